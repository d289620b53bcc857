"""The durable home of subscriptions: a change log and memory-mapped snapshots, in one folder.

    store.json                        schema, kind of index, the store's own id; written once
    lock                              held by the one process that writes
    log/00000000000000000001.log      every change, in order (log.py)
    snapshots/00000000000000000012.index   the index of version 12 (Index.save), mapped by all who match
    holds/<name>.json                 who still needs which version (retention.py)
    history.json                      how much of the past is kept, if somebody has said so (history.py)

Each change (an insert, a delete, or both at once by `apply`) is one version: 1, 2, 3, ... A change
that was acknowledged is on disk and survives a crash; one that was not may be there or not, but never
in part. A snapshot is what a version looks like, ready to be matched: it is made when it is first
asked for, by whoever asks, written aside and renamed, and never changes. A version that has no
snapshot is the nearest older one with the changes since, so a process that holds an index of version
v comes to version w by `for change in store.changes(v): change.apply_to(index)`.

One process writes at a time: the lock is flock's, so it is gone with the process that held it. Any
number of processes read, and need no lock. `compact` makes the log and old snapshots go, but nothing
that is held; a store that is written to compacts itself by its history.

A subscription may end by itself (`expires`); `expire` deletes those whose time has come, as a change
like any other, so every version has the same subscriptions whenever it is asked for (expiry.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rangecast.array_file import read_arrays, sync_folder, writing_to
from rangecast.engine import index_type, load_index
from rangecast.errors import RangecastError, SchemaError, StorageError, SubscriptionError
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.sealed import read_document, write_document
from rangecast.store.expiry import checked_times, instant
from rangecast.store.history import CHECKPOINT, HistoryLimits, read_history, write_history
from rangecast.store.lock import LockedError, holding
from rangecast.store.log import ChangeLog
from rangecast.store.reader import Versions, n_words
from rangecast.store.record import EXPRESSIONS, checked_note
from rangecast.store.retention import Hold, remove_hold, write_hold
from rangecast.store.segment import DamagedMarkError
from rangecast.store.selection import fulfilling
from rangecast.types.schema import Schema

FORMAT = 1
_STALE_SECONDS = 3600
_log = logging.getLogger(__name__)


class Store(Versions):
    """Durable, versioned subscriptions.

    >>> import tempfile
    >>> from rangecast import Int, Schema
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store.open(folder.name + "/alerts", Schema(Int("price")))
    >>> store.insert(Subscriptions.parse(store.schema, {7: "price < 10", 8: "price > 5"}))
    1
    >>> store.delete([8, 9])
    [9]
    >>> store.version, len(store), store.index(1).stats()["subscriptions"]
    (2, 1, 2)
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, settings: dict[str, Any], schema: Schema, wait: float) -> None:
        super().__init__(path, settings, schema)
        self.wait = wait
        self._held = False

    def _after_fork(self) -> None:
        super()._after_fork()
        self._held = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        schema: Schema | None = None,
        *,
        index: str | None = None,
        options: Mapping[str, Any] | None = None,
        wait: float = 10.0,
    ) -> Store:
        """Open a store, or create it when there is none and a schema is given.

        `index` and `options` say what the snapshots are ("auto" unless told otherwise), `wait` how
        many seconds a write waits for another writer. A schema object that is given is the store's
        own from then on, so subscriptions made with it need no translation.
        """
        folder = Path(path).absolute()
        if not (folder / "store.json").exists():
            if schema is None:
                raise StorageError(f"{folder}: there is no store here; give a schema to create one")
            _create(folder, schema, index or "auto", dict(options or {}), wait)
        settings = _read_settings(folder)
        for name, given in (("index", index), ("options", options)):
            if given is not None and given != settings[name]:
                raise StorageError(
                    f"{folder}: the store was made with {name} {settings[name]!r}, got {given!r}"
                )
        stored = _stored_schema(folder, settings)
        if schema is not None:
            stored.check_declared(schema, f"the schema given for the store {folder}")
        store = cls(folder, settings, stored if schema is None else schema, wait)
        store.refresh()
        return store

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).open, (str(self.path),)

    def insert(self, subs: Subscriptions, expires: Any = None) -> int:
        """Add subscriptions, replacing those of the same id; returns the version that has them.

        `expires` says when they end: one time, or one for each (a datetime, which is UTC without a zone,
        or microseconds since 1970 UTC; null or 0 for never). Without it they end as their load said.
        Replacing one replaces its end as well.
        """
        return self.apply(inserted=subs, expires=expires)

    def delete(self, ids: Any = None, *, where: str | None = None) -> list[Any]:
        """Take subscriptions out by id; gives back the ids that were not there.

        With `where`, a condition on the payload such as "owner = 'ann'", take out those that fulfil it, and
        give back their ids.
        """
        if where is not None:
            if ids is not None:
                raise SubscriptionError("delete takes ids or where=, got both")
            with self.writing():
                found = fulfilling(self._state().subscriptions(), where)
                self.apply(deleted=found)
                gone: list[Any] = found.arrow().to_pylist()
                return gone
        if ids is None:
            raise SubscriptionError("delete takes ids, or a condition on the payload as where=")
        wanted = Ids.of(ids if not isinstance(ids, int | str | uuid.UUID) else [ids])
        with self.writing():
            state = self._state()
            self._living = None  # until the change is on disk: a write that fails must not show
            unknown = state.delete(wanted)
            known = wanted
            if unknown:
                absent = IdTable(Ids.of(unknown)).find(wanted)
                known = wanted.select(np.flatnonzero(absent < 0))
            version = self.apply(deleted=known)
            self._living = version, state
            return unknown

    def apply(
        self,
        inserted: Subscriptions | None = None,
        deleted: Any = (),
        expires: Any = None,
        note: Mapping[str, Any] | None = None,
    ) -> int:
        """Delete and insert as one version; returns it. Nothing to do makes no version.

        `note` is kept with the change, so that it is there exactly when the change is: how far a topic was
        read, say. It is a mapping of names to values that JSON can hold; `notes` has the newest of each name.
        A note alone makes a version.
        """
        gone = Ids.of(deleted)
        subs = inserted if inserted is not None else Subscriptions.empty(self._schema)
        if not isinstance(subs, Subscriptions):
            raise SubscriptionError(f"a store takes Subscriptions, got {type(subs).__name__}")
        times = subs.expires if expires is None else checked_times(expires, len(subs))
        with self.writing():
            if not len(subs) and not len(gone) and not note:
                return self._log.version
            try:
                subs = subs.reconciled(self._schema)
            except SchemaError as error:
                raise SchemaError(
                    f"{self.path}: {error}; parse them again with the store's own schema (store.schema)"
                ) from None
            self._check_ids(subs.ids, gone)
            if subs.has_sets and index_type(self.kind).sets == "multiplied":
                subs.dense()  # what the store's index could not take must not be written
            return self._log.append(instant(), gone, subs, times, checked_note(note))

    def expire(self, now: Any = None, *, patient: bool = True) -> int:
        """Delete all subscriptions whose time has come, as one version; returns the newest version.

        Takes the lock only when there is something to do; unless `patient`, it is left for the next time
        when another process is writing. `now` is the present unless told.
        """
        moment = instant(now)
        with self._guard:
            if not len(self._expiries().due(moment)):
                return self._log.version
        try:
            with self.writing(None if patient else 0.0):
                return self.apply(deleted=self._expiries().due(moment))
        except LockedError:
            if patient:
                raise
            return self.version

    def hold(self, name: str, version: int | None = None, note: str = "") -> int:
        """Say that a version (the newest unless told) and all after it are needed; returns it.

        `compact` keeps them until `release(name)`. A second hold of the same name takes the place of the
        first. Refused when the version is gone; needs no writer's lock.
        """
        folder = self.path / "holds"
        with writing_to(folder):
            folder.mkdir(exist_ok=True)
        with holding(folder / "lock", self.wait):
            with self._guard:
                version = self._resolve(version)
            write_hold(folder, Hold(name, version, note, instant()))
        return version

    def release(self, name: str) -> bool:
        """Take back a hold; says whether there was one."""
        return remove_hold(self.path / "holds", name)

    @property
    def history(self) -> HistoryLimits | None:
        """How much of its past the store keeps by itself; None: all of it, until somebody compacts it."""
        return read_history(self.path)

    def keep_history(self, history: HistoryLimits | None) -> None:
        """Say how much of its past the store keeps by itself, for all who write to it."""
        write_history(self.path, history)

    def learn(self, words: Mapping[str, Sequence[str]]) -> int:
        """Give category words their codes for good, so that many processes may parse with the same ones; also
        the texts of hidden attributes (types/derived.py), under EXPRESSIONS.

        Makes a version that changes no subscription, unless all words are known.
        """
        with self.writing():
            for _, category in self._schema.categories():
                for word in words.get(category.name, ()):
                    category.vocabulary.add(word)
            hidden = self._schema.hidden_names()
            fresh = [text for text in words.get(EXPRESSIONS, ()) if text not in hidden]
            self._schema.learn_hidden(len(hidden), fresh)
            if n_words(self._schema) == n_words(self._log.schema):
                return self._log.version
            return self._log.append(instant(), Ids.of([]), Subscriptions.empty(self._schema.widest()))

    @contextlib.contextmanager
    def writing(self, wait: float | None = None) -> Iterator[None]:
        """Hold the lock over several changes; inside, the store and its schema are up to date.

        `wait` is how many seconds to wait for another writer, the store's own `wait` unless told.
        """
        with self._guard:
            if not self._held:
                with holding(self.path / "lock", self.wait if wait is None else wait):
                    self._recover()
                    self._held = True
                    try:
                        self._tend()
                        yield
                    finally:
                        self._held = False
            else:
                # inside another `writing` of this thread; the guard keeps other threads out
                yield

    def _recover(self) -> None:
        """Before a write: see that the log ends where the last whole change does."""
        try:
            self.refresh()
        except DamagedMarkError as error:
            _log.warning("%s; looking whether all changes are whole", error)
            self._log.mend_mark()
            self.refresh()
        cut = self._log.recover()
        if cut:
            _log.warning("%s: cut off %d bytes of a change never finished", self.path, cut)
        self.refresh()
        ahead = [version for version in self.snapshots() if version > self._log.version]
        if ahead:
            # the version would get other changes here, and readers would take this snapshot for it
            raise StorageError(
                f"{self.snapshot_path(ahead[0])}: must not be newer than the log, which ends with version "
                f"{self._log.version}, as in a copy of a store that was being written; remove it or copy anew"
            )

    def _tend(self) -> None:
        """Before a write, now and then: begin a segment of the log, and remove what is beyond the history."""
        last = self._log.n_last
        try:
            if last >= CHECKPOINT:
                self._checkpoint()
                self.publish_if_due()
                self._forget()
            elif last and not self._log.is_summed():
                self._checkpoint()
        except StorageError as error:
            # it can wait; the write may not
            _log.warning("%s: upkeep was put off: %s", self.path, error)

    def _forget(self) -> None:
        history = self.history
        if history is None:
            return
        newest = self._log.version
        moment = np.array([instant() - int(history.seconds * 1_000_000)])
        oldest = history.keeps(newest, int(self._log.versions_at(moment)[0]), _size(self.path))
        oldest = min([oldest, *(hold.version for hold in self.holds())])
        # where there is a snapshot, none has to be made for it
        starts = [version for version in self.snapshots() if self._log.base < version <= oldest]
        if starts:
            self.compact(starts[-1])

    def _checkpoint(self) -> None:
        """Begin a segment of the log, from which on it can be read by itself."""
        self._log.start_segment(self._log.version + 1, instant(), *self._expiries().all())
        self.refresh()

    def compact(self, keep: int | None = None) -> dict[str, int]:
        """Remove what no version from `keep` on needs: older snapshots and changes.

        `keep` is the oldest version that is held, or the newest one; a `keep` above a hold is refused.
        Returns the number of snapshots and log segments removed and the bytes that this freed.
        """
        with self.writing():
            while True:
                oldest = self._oldest_needed(keep)
                self.snapshot(oldest)
                if self._log.n_last:
                    self._checkpoint()
                (self.path / "holds").mkdir(exist_ok=True)
                with holding(self.path / "holds" / "lock", self.wait):
                    # somebody may have held an older version while the snapshot was made
                    if self._oldest_needed(keep) >= oldest:
                        return self._drop_before(oldest)

    def _oldest_needed(self, keep: int | None) -> int:
        """The version from which on `compact` keeps everything."""
        newest = self._log.version
        if keep is not None and not 0 <= keep <= newest:
            raise StorageError(f"{self.path}: has versions up to {newest}, cannot keep {keep}")
        held = self.holds()[:1]
        if keep is None:
            return min([newest, *(hold.version for hold in held)])
        for hold in held:
            if keep > hold.version:
                note = f" ({hold.note})" if hold.note else ""
                raise StorageError(
                    f"{self.path}: version {hold.version} is held by {hold.name!r}{note}, so what is before "
                    f"{keep} cannot go; keep {hold.version}, or release {hold.name!r} if nobody uses it"
                )
        return keep

    def _drop_before(self, keep: int) -> dict[str, int]:
        before = _size(self.path)
        segments = self._log.drop_before(keep)
        gone = [self.snapshot_path(version) for version in self.snapshots() if version < keep]
        with writing_to(self.path / "snapshots"):
            for path in [*gone, *_strays(self.path), *(self.path / "log").glob("*.torn-*")]:
                path.unlink(missing_ok=True)
            for folder in (self.path / "snapshots").glob("*.stripes-*"):
                # what Spark has cut a snapshot into goes with it
                if int(folder.stem) < keep:
                    shutil.rmtree(folder, ignore_errors=True)
            sync_folder(self.path / "snapshots")
        self.refresh()
        return {
            "snapshots": len(gone),
            "segments": len(segments),
            "bytes": max(0, before - _size(self.path)),
        }

    def verify(self) -> list[str]:
        """Read everything and check it against its sums; a sentence for each thing that is wrong."""
        with self._guard:
            self.refresh()
            problems = self._log.check()
            for version in self.snapshots():
                try:
                    read_arrays(self.snapshot_path(version))  # the texts too, which no index reads by itself
                    load_index(self.snapshot_path(version), verify=False)
                except StorageError as error:
                    problems.append(str(error))
            try:
                for hold in self.holds():
                    self._resolve(hold.version)
            except StorageError as error:
                problems.append(str(error))
            if not problems:
                self.index()
            return problems

    def _check_ids(self, *rows: Ids) -> None:
        """Raise when ids are of the other type than those in the store."""
        kinds = {ids.textual for ids in rows if len(ids)} | ({self._log.textual} - {None})
        if len(kinds) > 1:
            raise SubscriptionError(f"{self.path}: ids must be all whole numbers or all strings, got both")


def _create(folder: Path, schema: Schema, index: str, options: dict[str, Any], wait: float) -> None:
    index_type(index)(schema, **options)
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder}: a store is a folder, but here is a file")
    others = [p.name for p in folder.iterdir()] if folder.exists() else []
    if set(others) - {"lock", "log", "snapshots"}:
        raise StorageError(
            f"{folder}: holds other files ({', '.join(sorted(others)[:3])}); name an empty folder"
        )
    (folder / "log").mkdir(parents=True, exist_ok=True)
    (folder / "snapshots").mkdir(exist_ok=True)
    with holding(folder / "lock", wait):
        if (folder / "store.json").exists():
            return
        ChangeLog(folder / "log", schema).start_segment(1, instant())
        settings = {
            "format": FORMAT,
            "id": uuid.uuid4().hex,
            "schema": schema.to_dict(),
            "index": index,
            "options": options,
        }
        write_document(folder / "store.json", settings)


def _read_settings(folder: Path) -> dict[str, Any]:
    settings = read_document(folder / "store.json") or {}
    if settings.get("format") != FORMAT:
        raise StorageError(f"{folder}: a store of format {FORMAT} is read, got {settings.get('format')}")
    absent = {"id", "schema", "index", "options"} - set(settings)
    if absent:
        raise StorageError(f"{folder}/store.json: cannot be read: it must have {', '.join(sorted(absent))}")
    return settings


def _stored_schema(folder: Path, settings: dict[str, Any]) -> Schema:
    try:
        # what kind of index it is, and with which options, is checked along
        schema = Schema.from_dict(settings["schema"])
        index_type(settings["index"])(schema, **settings["options"])
    except (RangecastError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{folder}/store.json: cannot be read: {error!r}") from None
    return schema


def _strays(folder: Path) -> list[Path]:
    """Files that a crash has left half written."""
    return [path for path, status in _files(folder) if path.suffix == ".tmp" and _is_stale(status)]


def _is_stale(status: os.stat_result) -> bool:
    return status.st_mtime < time.time() - _STALE_SECONDS


def _size(folder: Path) -> int:
    return sum(status.st_size for _, status in _files(folder))


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.rglob("*"):
        # others rename and remove theirs meanwhile
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                yield path, status
