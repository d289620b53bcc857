"""Who still needs a version of a store: one small file for each, which `compact` reads.

    holds/<name>.json    version, note, and when it was held; it has a sum (sealed.py)
    holds/lock           taken for a moment by who holds, and by compact while it removes

A hold is kept until it is released, also past the end of its process: a stream that crashed finds the
version of its last batch again. The lock is not the writers' lock, so a hold never waits for a load;
with it a hold that was given cannot lose its version to a compaction that had read the holds before. In a
bucket, which has no locks, a hold is put first, then compared with what compact has closed (object_log.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rangecast.errors import OptionError, StorageError
from rangecast.store.home import Home

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Hold(NamedTuple):
    """A version that `compact` must keep, and all after it."""

    name: str
    version: int
    note: str
    time: int


def read_holds(home: Home) -> list[Hold]:
    """All holds of a store, the oldest version first."""
    found = []
    for name in (name for name in home.names("holds") if name.endswith(".json")):
        path = home.path / "holds" / name
        try:
            said = home.read(f"holds/{name}")
            if said is not None:
                stem = name.removesuffix(".json")
                found.append(Hold(stem, int(said["version"]), str(said["note"]), int(said["time"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            # not passed over: what it held would be removed
            raise StorageError(
                f"{path}: a hold that cannot be read ({error}); release it by its name"
            ) from None
    return sorted(found, key=lambda hold: (hold.version, hold.name))


def write_hold(home: Home, hold: Hold) -> None:
    """Put a hold, in place of the one of the same name."""
    said = {"version": hold.version, "note": hold.note, "time": hold.time}
    home.write(hold_name(hold.name), said)


def remove_hold(home: Home, name: str) -> bool:
    """Take a hold away; says whether there was one."""
    return home.remove(hold_name(name))


def hold_name(name: str) -> str:
    """The document of a hold."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            "the name of a hold must be up to 100 letters, digits, '_', '-' and '.', not '-' or '.' first, "
            f"got {name!r}"
        )
    return f"holds/{name}.json"
