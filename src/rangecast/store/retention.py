"""Who still needs a version of a store: one small file for each, which `compact` reads.

    holds/<name>.json    version, note, and when it was held; it has a sum (sealed.py)
    holds/lock           taken for a moment by who holds, and by compact while it removes

A hold is kept until it is released, also past the end of its process: a stream that crashed finds the
version of its last batch again. The lock is not the writers' lock, so a hold never waits for a load;
with it a hold that was given cannot lose its version to a compaction that had read the holds before.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from rangecast.array_file import sync_folder, writing_to
from rangecast.errors import OptionError, StorageError
from rangecast.sealed import read_document, write_document

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Hold(NamedTuple):
    """A version that `compact` must keep, and all after it."""

    name: str
    version: int
    note: str
    time: int


def read_holds(folder: Path) -> list[Hold]:
    """All holds of a store, the oldest version first."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            said = read_document(path)
            if said is not None:
                found.append(Hold(path.stem, int(said["version"]), str(said["note"]), int(said["time"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            # not passed over: what it held would be removed
            raise StorageError(
                f"{path}: a hold that cannot be read ({error}); release it by its name"
            ) from None
    return sorted(found, key=lambda hold: (hold.version, hold.name))


def write_hold(folder: Path, hold: Hold) -> None:
    """Put a hold, in place of the one of the same name."""
    said = {"version": hold.version, "note": hold.note, "time": hold.time}
    write_document(_path(folder, hold.name), said)


def remove_hold(folder: Path, name: str) -> bool:
    """Take a hold away; says whether there was one."""
    path = _path(folder, name)
    with writing_to(path):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        sync_folder(folder)
    return True


def _path(folder: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise OptionError(
            "the name of a hold must be up to 100 letters, digits, '_', '-' and '.', not '-' or '.' first, "
            f"got {name!r}"
        )
    return folder / f"{name}.json"
