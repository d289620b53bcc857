"""How much of its past a store keeps by itself.

    history.json    versions, seconds and bytes, with a sum (sealed.py); the defaults where there is none

Every CHECKPOINT versions a writer begins a segment of the log, sees to it that there is a recent snapshot,
and lets `compact` remove what is beyond the limits. So opening a store costs what has changed since the last
checkpoint, and its folder does not grow for ever. Holds are respected, as by every `compact`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rangecast.errors import OptionError, StorageError
from rangecast.store.home import Home

CHECKPOINT = 1000
_FILE = "history.json"


@dataclass(frozen=True)
class HistoryLimits:
    """Limits of the past: a version goes when it is beyond `versions` or the folder is larger than `bytes`,
    but not while it is younger than `seconds`. None is no limit.

    >>> HistoryLimits(versions=100).keeps(newest=5000, young=4990, size=0)
    4900
    >>> HistoryLimits(versions=100).keeps(newest=5000, young=2000, size=0)
    2000
    >>> HistoryLimits(versions=None, bytes=1000).keeps(newest=5000, young=4990, size=1001)
    4990
    """

    versions: int | None = 10_000
    seconds: float = 3600.0
    bytes: int | None = 1 << 34

    def __post_init__(self) -> None:
        for name, least in (("versions", 1), ("seconds", 0), ("bytes", 0)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= least):
                raise OptionError(f"{name} of a history must be at least {least}, got {value!r}")

    def keeps(self, newest: int, young: int, size: int) -> int:
        """The oldest version to keep; `young` is the newest one that is as old as `seconds`."""
        limit = 0 if self.versions is None else newest - self.versions
        if self.bytes is not None and size > self.bytes:
            limit = newest
        return max(0, min(limit, young))


def read_history(home: Home) -> HistoryLimits | None:
    """The limits of a store; None when it keeps everything until somebody compacts it."""
    said = home.read(_FILE)
    if said is None:
        return HistoryLimits()
    if not said:
        return None
    try:
        return HistoryLimits(**said)
    except (TypeError, OptionError) as error:
        raise StorageError(f"{home.path / _FILE}: cannot be read: {error}") from None


def write_history(home: Home, history: HistoryLimits | None) -> None:
    """Put the limits of a store."""
    home.write(_FILE, {} if history is None else asdict(history))
