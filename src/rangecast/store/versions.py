"""The versions of a store, for all who read: the change log and the snapshots together.

A snapshot is a saved index. The index of a version is its snapshot, or the nearest older snapshot with
the changes since. Reading needs no lock: the log shows only what is durable, snapshots appear by a
rename, and neither ever changes. What a compaction takes away while it is read is read again from what
is left.
"""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rangecast.durable import lock
from rangecast.durable.arrays import write_arrays_to
from rangecast.durable.lock import LockedError
from rangecast.engine import Index, index_type, load_index, open_index
from rangecast.errors import StorageError
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import Times, instant
from rangecast.store.change import Change, FragmentEntry, change_arrays, gathered
from rangecast.store.change_log import FRAGMENTS, ChangePiece
from rangecast.store.home import Home
from rangecast.store.keep import Expiries, Hold, read_holds
from rangecast.types.schema import Schema

_TRIES = 5
_MANY = 1000
T = TypeVar("T")


class Versions:
    """What can be read of a store; `Store` adds what changes it."""

    def __init__(self, home: Home, settings: dict[str, Any], schema: Schema) -> None:
        self._home = home
        self.path = home.path
        self._settings = settings
        self._schema = schema
        self._begin()
        lock.watch(self)

    def _begin(self) -> None:
        self._log = self._home.open_log(Schema.from_dict(self._settings["schema"]))
        self._guard = threading.RLock()
        # whether this process has the writers' lock: then nobody else makes a version
        self._held = False
        self._living: tuple[int, Index] | None = None
        self._ending: tuple[int, Expiries] | None = None

    def _after_fork(self) -> None:
        # a thread may have been half-way through any of it; all of it is on disk
        self._begin()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self.path)!r}: version {self.version}>"

    def __len__(self) -> int:
        with self._guard:
            return len(self._state())

    def __contains__(self, id: Any) -> bool:
        with self._guard:
            return id in self._state()

    @property
    def schema(self) -> Schema:
        """The schema, with every word that the store's subscriptions name."""
        return self._schema

    @property
    def id(self) -> str:
        """The store's own id, made when it was created."""
        return str(self._settings["id"])

    @property
    def kind(self) -> str:
        """The kind of index that the snapshots hold."""
        return str(self._settings["index"])

    @property
    def options(self) -> dict[str, Any]:
        """The options of that index."""
        return dict(self._settings["options"])

    @property
    def ids_are_text(self) -> bool | None:
        """Whether ids are strings; None while there are none."""
        self.refresh()
        return self._log.textual

    @property
    def version(self) -> int:
        """The newest version; 0 is the empty store."""
        self.refresh()
        return self._log.version

    @property
    def notes(self) -> dict[str, Any]:
        """The newest note of each name that was written with a change (`Store.apply`)."""
        with self._guard:
            self.refresh()
            return dict(self._log.notes)

    @property
    def oldest(self) -> int:
        """The oldest version that is still available."""
        with self._guard:
            self.refresh()
            base = self._log.base
            return 0 if base == 0 else next((v for v in self.snapshots() if v >= base), base)

    def refresh(self) -> int:
        """Take in what other processes have written; returns the newest version."""
        with self._guard:
            if not (self._held and self._home.locks):
                self._look()
            return self._log.version

    def _look(self) -> None:
        before = self._log.n_learned
        _retry_read(self._log.refresh)
        if self._log.n_learned != before:
            self._take_words()

    def changes(self, since: int, until: int | None = None) -> Iterator[Change]:
        """The changes after version `since`, up to `until` or the newest, in order."""
        with self._guard:
            # what is known already needs no look
            newest = self._log.version if until is not None and until <= self._log.version else self.refresh()
            last = newest if until is None else until
            if not 0 <= since <= newest or last > newest:
                raise StorageError(f"{self.path}: has versions up to {newest}, got {since} to {last}")
            found = self._log.changes(since, last)
        yield from found

    def pieces(self, since: int, until: int) -> list[ChangePiece]:
        """What the changes after version `since` up to `until` consist of, so that several readers can take
        some each."""
        with self._guard:
            self.refresh()
            return list(self._log.pieces(since, until))

    def read_pieces(self, pieces: Iterable[ChangePiece]) -> Iterator[Change]:
        """The changes of some pieces, as `changes` would give them."""
        with self._guard:
            self.refresh()
            read = self._log.read_piece
        for piece in pieces:
            yield read(piece)

    def version_at(self, when: dt.datetime) -> int:
        """The version that was the newest at a time; a time without a zone is UTC."""
        found = int(self.versions_at(np.array([instant(when)]))[0])
        if found < 0:
            raise StorageError(f"{self.path}: the version of {when} is gone; the oldest is {self.oldest}")
        return found

    def versions_at(self, times: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The version that was the newest at each time (microseconds since 1970 UTC); -1 where it is gone."""
        with self._guard:
            self.refresh()
            found = self._log.versions_at(np.asarray(times, np.int64))
            found[found < self.oldest] = -1
            return found

    def time_of(self, version: int) -> dt.datetime:
        """When a version was made."""
        with self._guard:
            self.refresh()
            return dt.datetime.fromtimestamp(self._log.time_of(version) / 1_000_000, dt.UTC)

    def changed(self, since: int, until: int | None = None) -> int:
        """How many subscriptions the changes after `since` up to `until` name, without reading them."""
        with self._guard:
            newest = self.refresh()
            last = newest if until is None else until
            if not self._log.base <= since <= newest or last > newest:
                raise StorageError(
                    f"{self.path}: has changes from {self._log.base} up to {newest}, got {since} to {last}"
                )
            return self._log.changed(since, last)

    def expires_at(self, ids: Any) -> Times:
        """When each of these subscriptions expires, in microseconds since 1970 UTC; 0 for never."""
        with self._guard:
            return self._expiries().of(Ids.of(ids))

    def next_expiry(self) -> int | None:
        """When the next subscription expires, in microseconds since 1970 UTC; None when none does."""
        with self._guard:
            return _retry_read(self._next_expiry)

    def holds(self) -> list[Hold]:
        """Who needs which version, the oldest first: what `compact` keeps."""
        return read_holds(self._home)

    def snapshots(self) -> list[int]:
        """The versions that have a snapshot on disk."""
        found = [int(n[:-6]) for n in self._home.names("snapshots") if n.endswith(".index")]
        # in a bucket one that is older than the log is about to be deleted, or came too late
        return found if self._home.locks else [version for version in found if version >= self._log.base]

    def log_bytes(self) -> int:
        """Bytes of the change log, and of the fragments that it names."""
        return self._home.size("log") + self._home.size(FRAGMENTS)

    def snapshot_path(self, version: int) -> Any:
        """Where the snapshot of a version is, or would be: a path, or an address in a bucket."""
        return self.path / "snapshots" / f"{version:020}.index"

    def snapshot_file(self, version: int) -> Path:
        """The snapshot of a version as a file of this machine; StorageError if there is none."""
        found = self._home.file(_snapshot_name(version))
        if found is None:
            raise StorageError(f"{self.snapshot_path(version)}: cannot be read: there is no such snapshot")
        return found

    def snapshot(self, version: int | None = None) -> Path:
        """The file of a version's index (the newest by default), made now if it is not there yet; of a store
        in a bucket, the file that this machine has fetched.

        `rangecast.load_index` maps it; it stays as it is until `compact` removes it.
        """
        with self._guard:
            version = self._resolve(version)
            found = self._home.file(_snapshot_name(version))
            return self._home.save(self.index(version), _snapshot_name(version)) if found is None else found

    def publish_if_due(self, share: float = 0.2) -> Path | None:
        """Make a snapshot of the newest version when enough has changed since the last one.

        Enough is a share of the subscriptions (a thousand at least), or a thousand versions. Returns the
        new snapshot's path, or None when none is due, another process is making it, or newer stripes were
        cut without a whole snapshot. Nobody waits for it: neither readers nor writers, nor other threads
        that use this object.
        """
        if self._guard.acquire(blocking=False):
            try:
                if not _retry_read(self._may_be_due):
                    return None
            finally:
                self._guard.release()
        # another object, so that nobody waits for the guard of this one, and this call for nobody
        reader = Versions(self._home, self._settings, Schema.from_dict(self._settings["schema"]))
        if not _retry_read(lambda: reader._due(share)):
            return None
        try:
            with self._home.holding("snapshots/lock", 0.0):
                return reader.snapshot()
        except LockedError:
            return None

    def _may_be_due(self) -> bool:
        """Whether there are so many changes that the number of all subscriptions must be looked at."""
        newest = self.refresh()
        last = self._nearest(newest)
        return max(newest - last, self._log.changed(last, newest)) >= _MANY

    def _due(self, share: float) -> bool:
        newest = self.version
        last = self._nearest(newest)
        cut = [name.partition(".")[0] for name in self._home.folders("snapshots") if ".stripes-" in name]
        if cut and int(max(cut)) > last:
            return False  # whoever cut it without a whole snapshot has no room for one
        if newest - last >= _MANY:
            return True
        n = len(load_index(self.snapshot_file(last), verify=None)) if last else 0
        return self.changed(last, newest) >= max(_MANY, share * n)

    def nearest(self, version: int | None = None) -> int:
        """The version from which the index of a version is made: that of a snapshot, or 0."""
        with self._guard:
            return self._nearest(self._resolve(version))

    def index(self, version: int | None = None, verify: bool | None = True) -> Index:
        """The index of a version, for this process alone: its snapshot, or an older one and the changes.

        `verify` checks the snapshot's sums, for which all of it is read; None does unless this machine has
        checked the file as it is now.
        """
        with self._guard:
            return _retry_read(lambda: self._build_index(self._resolve(version), verify))

    def _build_index(self, version: int, verify: bool | None) -> Index:
        start = self._nearest(version)
        # version 0 needs no file; any other must be there, or was just compacted away
        if start > 0 or self._home.has(_snapshot_name(start)):
            index = load_index(self.snapshot_file(start), verify=verify)
        else:
            index = self.empty_index()
        if start < version:
            for step in gathered(self._log.changes(start, version)):
                step.apply_to(index)
        return index

    def empty_index(self, words: bool = False) -> Index:
        """An index as the store's snapshots are, of version 0; it may know all words beforehand."""
        schema = Schema.from_dict(self._settings["schema"])
        if words:
            schema = Schema.from_dict(self._log.schema.widest().to_dict(words=True))
        return open_index(self.kind, schema, **self._settings["options"])

    def subscriptions(self, version: int | None = None) -> Subscriptions:
        """All subscriptions of a version."""
        with self._guard:
            return (self._state() if version is None else self.index(version)).subscriptions()

    def _resolve(self, version: int | None) -> int:
        newest = self.refresh()
        if version is None:
            return newest
        if not 0 <= version <= newest:
            raise StorageError(f"{self.path}: has versions up to {newest}, got {version}")
        self._nearest(version)
        return version

    def _nearest(self, version: int) -> int:
        base = self._log.base
        # a snapshot older than the log is good for its own version alone
        starts = [v for v in self.snapshots() if v == version or base <= v <= version]
        if starts:
            return starts[-1]
        if base > 0:
            raise StorageError(f"{self.path}: version {version} is gone; the oldest is {self.oldest}")
        return 0

    def _expiries(self) -> Expiries:
        """What ends some time in the newest version, kept and brought forward by the changes."""
        return _retry_read(lambda: self._ends(self.refresh()))

    def _next_expiry(self) -> int | None:
        newest = self.refresh()
        if self._ending is None and self._log.none_expires():
            return None
        return self._ends(newest).next()

    def _ends(self, newest: int) -> Expiries:
        if self._ending is None or self._ending[0] < self._log.base:
            version, ids, times = self._log.opening(newest)
            self._ending = version, Expiries(ids, times)
        version, expiries = self._ending
        if version < newest:
            # nothing to read while nothing ends, which is so in most stores
            if len(expiries) or self._log.may_expire(version, newest):
                self._ending = None
                for change in self._log.changes(version, newest):
                    expiries.apply(change)
            self._ending = newest, expiries
        return expiries

    def _take_words(self) -> None:
        """Bring the log's words into the schema that users parse with."""
        written = self._log.schema
        pairs = list(zip(self._schema.dictionaries(), written.dictionaries(), strict=True))
        if self._schema.learn_hidden(0, written.hidden_names()) and all(
            ours.agrees_with(theirs) for (_, ours), (_, theirs) in pairs
        ):
            for (_, ours), (_, theirs) in pairs:
                ours.extend_from(theirs)
        else:
            # words that were named here and never written were overtaken by another writer's
            self._schema = Schema.from_dict(written.widest().to_dict(words=True))

    def _state(self) -> Index:
        """The index of the newest version, kept and brought forward by the changes."""
        return _retry_read(self._living_index)

    def _living_index(self) -> Index:
        newest = self.refresh()
        if self._living is None or self._living[0] < self._log.base:
            self._living = newest, self.index(newest)
        version, index = self._living
        if version < newest:
            self._living = None
            for step in gathered(self._log.changes(version, newest)):
                step.apply_to(index)
            self._living = newest, index
        return index


def _snapshot_name(version: int) -> str:
    return f"snapshots/{version:020}.index"


def n_words(schema: Schema) -> int:
    """How many words the dictionaries of a schema have together, and hidden attributes."""
    return schema.width + sum(len(vocabulary) for _, vocabulary in schema.dictionaries())


def _retry_read(read: Callable[[], T]) -> T:
    """What `read` gives, tried again when a compaction may have taken away what it was reading."""
    for _ in range(_TRIES - 1):
        try:
            return read()
        except StorageError:
            continue
    return read()


# Changes in fragments: files beside the log that one record names, so that they are one version.
#
#     fragments/<stem>.<id>.arrays      some of the change: deleted.*, inserted.*, boxes.* and the rest, as in
#                                   a record (change.py); no id is in two fragments of one change
#
# Whoever loads millions of subscriptions puts fragments from many processes, none of which holds them all,
# and then has the store take them (`Store.apply_fragments`): a record of some hundred bytes. Until then
# nobody sees them. The stem has the time at which the load began, so what a load that was killed has left can
# be told, and is removed by `compact` after a day.

_DAY = 86_400_000_000


def new_stem() -> str:
    """What the names of all fragments of a load begin with."""
    return f"{instant():020}-{uuid.uuid4().hex}"


def put_fragment(home: Home, stem: str, kind: str, deleted: Ids, inserted: Subscriptions) -> FragmentEntry:
    """Put one fragment of a change of a store, whose snapshots are of a kind of index."""
    if inserted.has_sets and index_type(kind).sets == "multiplied":
        inserted.dense()  # what the store's index could not take must not be written
    name = f"{stem}.{uuid.uuid4().hex}.arrays"
    arrays = change_arrays(deleted, inserted, inserted.expires)
    home.put(f"{FRAGMENTS}/{name}", lambda file: write_arrays_to(file, {}, arrays))
    textual = (inserted.ids if len(inserted) else deleted).textual
    return FragmentEntry(name, len(deleted) + len(inserted), inserted.expires is not None, textual)


def check_fragments(home: Home, fragments: Sequence[FragmentEntry]) -> None:
    """Raise when a fragment is not there for this process."""
    there = set(home.names(FRAGMENTS))
    for fragment in fragments:
        if fragment.name not in there:
            raise StorageError(
                f"{home.path}/{FRAGMENTS}/{fragment.name}: a worker wrote this file, and the driver "
                "does not see it; the store must be on storage that all machines share, or in a bucket"
            )


def drop_fragments(home: Home, stem: str, keep: Collection[str] = ()) -> None:
    """Remove the fragments of a load but those with a name to keep."""
    names = [name for name in home.names(FRAGMENTS) if name.startswith(f"{stem}.") and name not in keep]
    home.remove_all(f"{FRAGMENTS}/{name}" for name in names)


def sweep_fragments(home: Home, gone: Iterable[str], living: Collection[str]) -> None:
    """Remove the fragments of changes that are gone, and those that no change names since a day."""
    dead = set(gone)
    before = f"{instant() - _DAY:020}"
    names = []
    for name in home.names(FRAGMENTS):
        stem = name.partition(".")[0]
        if stem in dead or (stem not in living and stem < before):
            names.append(f"{FRAGMENTS}/{name}")
    home.remove_all(names)
