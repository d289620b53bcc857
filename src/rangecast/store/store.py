"""The durable home of subscriptions: a change log and memory-mapped snapshots, in a folder or a bucket.

    store.json                        schema, kind of index, the store's own id; written once
    lock                              held by the one process that writes
    log/00000000000000000001.log      every change, in order (change_log.py)
    snapshots/00000000000000000012.index   the index of version 12 (Index.save), mapped by all who match
    holds/<name>.json                 who still needs which version (keep.py)
    history.json                      how much of the past is kept, if somebody has said so (keep.py)

Each change (an insert, a delete, or both at once by `apply`) is one version: 1, 2, 3, ... A change
that was acknowledged is on disk and survives a crash; one that was not may be there or not, but never
in part. A snapshot is what a version looks like, ready to be matched: it is made when it is first
asked for, by whoever asks, written aside and renamed, and never changes. A version that has no
snapshot is the nearest older one with the changes since, so a process that holds an index of version
v comes to version w by `for change in store.changes(v): change.apply_to(index)`.

One process writes at a time: the lock is flock's, so it is gone with the process that held it. In a bucket,
which has no locks, whoever is second is told so and does it again (object_log.py). Any
number of processes read, and need no lock. `compact` makes the log and old snapshots go, but nothing
that is held; a store that is written to compacts itself by its history.

A subscription may end by itself (`expires`); `expire` deletes those whose time has come, as a change
like any other, so every version has the same subscriptions whenever it is asked for (keep.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from rangecast.durable.arrays import read_arrays
from rangecast.durable.lock import LockedError
from rangecast.engine import index_type, load_index, open_index
from rangecast.errors import RangecastError, SchemaError, StorageError, SubscriptionError
from rangecast.model.events import Events
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import instant
from rangecast.store.change import EXPRESSIONS, Change, DamagedMarkError, FragmentEntry, Note, checked_note
from rangecast.store.change_log import ChangeLog
from rangecast.store.home import Home, home_of
from rangecast.store.keep import (
    CHECKPOINT,
    HistoryLimits,
    Hold,
    checked_times,
    hold_name,
    read_history,
    remove_hold,
    write_history,
    write_hold,
)
from rangecast.store.object_log import CHECKPOINT as OBJECT_CHECKPOINT
from rangecast.store.object_log import ObjectLog, OvertakenError
from rangecast.store.versions import Versions, check_fragments, n_words, sweep_fragments
from rangecast.types.schema import Schema

_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
T = TypeVar("T")
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

    def __init__(self, home: Home, settings: dict[str, Any], schema: Schema, wait: float) -> None:
        super().__init__(home, settings, schema)
        self.wait = wait

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

        `index` and `options` say what the snapshots are ("auto" by default), `wait` how
        many seconds a write waits for another writer. A schema object that is given is the store's
        own from then on, so subscriptions made with it need no translation.
        """
        home = home_of(path)
        if not home.has("store.json"):
            if schema is None:
                raise StorageError(f"{home.path}: there is no store here; give a schema to create one")
            create_store(home, schema, index or "auto", dict(options or {}), wait)
        settings = read_settings(home)
        for name, given in (("index", index), ("options", options)):
            if given is not None and given != (made := settings[name]):
                raise StorageError(f"{home.path}: the store was made with {name} {made!r}, got {given!r}")
        stored = stored_schema(home, settings)
        if schema is not None:
            stored.check_declared(schema, f"the schema given for the store {home.path}")
        store = cls(home, settings, stored if schema is None else schema, wait)
        store.refresh()
        return store

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).open, (str(self.path),)

    def insert(self, subs: Subscriptions, expires: Any = None) -> int:
        """Add subscriptions, replacing those of the same id; returns the version that has them.

        `expires` says when they expire: one time, or one for each (a datetime, which is UTC without a zone,
        or microseconds since 1970 UTC; null or 0 for never). Without it they expire as stated when they were
        loaded. Replacing a subscription replaces its expiry too.
        """
        return self.apply(inserted=subs, expires=expires)

    def delete(self, ids: Any = None, *, where: str | None = None) -> list[Any]:
        """Delete subscriptions by id; returns the ids that were not there.

        With `where`, a condition on the payload such as "owner = 'ann'", take out those that fulfil it, and
        give back their ids.
        """
        if where is not None:
            if ids is not None:
                raise SubscriptionError("delete takes ids or where=, got both")
            return self.exclusively(lambda: self._delete_where(where))
        if ids is None:
            raise SubscriptionError("delete takes ids, or a condition on the payload as where=")
        wanted = Ids.of(ids if not isinstance(ids, int | str | uuid.UUID) else [ids])
        return self.exclusively(lambda: self._delete(wanted))

    def _delete_where(self, where: str) -> list[Any]:
        found = fulfilling(self._state().subscriptions(), where)
        self.apply(deleted=found)
        gone: list[Any] = found.arrow().to_pylist()
        return gone

    def _delete(self, wanted: Ids) -> list[Any]:
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
        """Delete and insert as one version, and return it; a change that is empty makes no version.

        `note` is kept with the change, so that it is there exactly when the change is: how far a topic was
        read, say. It is a mapping of names to values that JSON can hold; `notes` has the newest of each name.
        A note alone makes a version.
        """
        return self.make_change(inserted, deleted, expires, note).version

    def make_change(
        self,
        inserted: Subscriptions | None = None,
        deleted: Any = (),
        expires: Any = None,
        note: Mapping[str, Any] | None = None,
    ) -> Change:
        """Do what `apply` does, and return the change, so that its own process need not read it back."""
        gone = Ids.of(deleted)
        subs = inserted if inserted is not None else Subscriptions.empty(self._schema)
        if not isinstance(subs, Subscriptions):
            raise SubscriptionError(f"a store takes Subscriptions, got {type(subs).__name__}")
        times = subs.expires if expires is None else checked_times(expires, len(subs))
        kept = checked_note(note)
        return self.exclusively(lambda: self._append(subs, gone, times, kept))

    def _append(self, subs: Subscriptions, gone: Ids, times: Any, note: Note | None) -> Change:
        if not len(subs) and not len(gone) and not note:
            return Change(self._log.version, instant(), gone, subs)
        try:
            subs = subs.reconciled(self._schema)
        except SchemaError as error:
            raise SchemaError(
                f"{self.path}: {error}; parse them again with the store's own schema (store.schema)"
            ) from None
        self._check_ids(subs.ids, gone)
        if subs.has_sets and index_type(self.kind).sets == "multiplied":
            subs.dense()  # what the store's index could not take must not be written
        version = self._log.append(instant(), gone, subs, times, note)
        return Change(version, self._log.time_of(version), gone, subs, times, note)

    def apply_fragments(
        self, fragments: Sequence[FragmentEntry], note: Mapping[str, Any] | None = None
    ) -> int:
        """Take fragments that were put (rangecast.store.versions) as one version; returns it.

        Their words must be known (`learn`), and no id may be in two of them. No fragments make no version.
        """
        kept = checked_note(note)
        return self.exclusively(lambda: self._append_fragments(fragments, kept))

    def _append_fragments(self, fragments: Sequence[FragmentEntry], note: Note | None) -> int:
        if not fragments and not note:
            return self._log.version
        check_fragments(self._home, fragments)
        self._check_kinds({fragment.textual for fragment in fragments})
        none = Subscriptions.empty(self._schema.widest())
        return self._log.append(instant(), Ids.of([]), none, None, note, fragments)

    def expire(self, now: Any = None, *, patient: bool = True) -> int:
        """Delete all subscriptions whose time has come, as one version; returns the newest version.

        The lock is taken only when there is something to do. If another process is writing, a `patient`
        call waits for it, and any other one leaves the work for the next time. `now` is the present by
        default.
        """
        with self._guard:
            first = self.next_expiry()
            if first is None or first > (moment := instant(now)):
                return self._log.version
        try:
            due = self.exclusively(
                lambda: self.apply(deleted=self._expiries().due(moment)), None if patient else 0.0
            )
        except (LockedError, OvertakenError):
            if patient:
                raise
            return self.version
        return due

    def hold(self, name: str, version: int | None = None, note: str = "") -> int:
        """Hold a version (the newest by default) and all later ones for as long as they are needed; returns
        it.

        `compact` keeps them until `release(name)`. A second hold of the same name replaces the
        first. A version that is gone is refused. No writer's lock is needed.
        """
        with self._home.holding("holds/lock", self.wait):
            with self._guard:
                version = self._resolve(version)
            held = Hold(name, version, note, instant())
            if isinstance(self._log, ObjectLog):
                self._hold_in_bucket(held, self._log)
            else:
                write_hold(self._home, held)
        return version

    def _hold_in_bucket(self, held: Hold, log: ObjectLog) -> None:
        """Put a hold first, then see that its version was not closed: nobody can be kept from compacting."""
        before = self._home.read(hold_name(held.name))
        write_hold(self._home, held)
        with self._guard:
            log.reopen()
            if held.version >= log.closed:
                return
        if before is None:
            remove_hold(self._home, held.name)
        else:
            self._home.write(hold_name(held.name), before)
        raise StorageError(
            f"{self.path}: version {held.version} is gone, or about to go; the oldest is {log.closed}"
        )

    def release(self, name: str) -> bool:
        """Release a hold; returns whether there was one."""
        return remove_hold(self._home, name)

    @property
    def history(self) -> HistoryLimits | None:
        """How much of its past the store keeps by itself; None: all of it, until somebody compacts it."""
        return read_history(self._home)

    def keep_history(self, history: HistoryLimits | None) -> None:
        """Say how much of its past the store keeps by itself, for all who write to it."""
        write_history(self._home, history)

    def learn(self, words: Mapping[str, Sequence[str]]) -> int:
        """Give category words their codes for good, so that many processes may parse with the same ones; also
        bundles of traits (types/patterns.py), and the texts of hidden attributes (types/derived.py), under
        EXPRESSIONS.

        Makes a version that changes no subscription, unless all words are known.
        """
        return self.exclusively(lambda: self._learn(words))

    def _learn(self, words: Mapping[str, Sequence[str]]) -> int:
        for name, vocabulary in self._schema.dictionaries():
            for word in words.get(name, ()):
                vocabulary.add(word)
        hidden = self._schema.hidden_names()
        fresh = [text for text in words.get(EXPRESSIONS, ()) if text not in hidden]
        self._schema.learn_hidden(len(hidden), fresh)
        if n_words(self._schema) == n_words(self._log.schema):
            return self._log.version
        return self._log.append(instant(), Ids.of([]), Subscriptions.empty(self._schema.widest()))

    @contextlib.contextmanager
    def writing(self, wait: float | None = None) -> Iterator[None]:
        """Hold the lock over several changes; inside, the store and its schema are up to date.

        `wait` is how many seconds to wait for another writer, the store's own `wait` by default. A bucket has
        no lock: there a change inside raises OvertakenError when another process has written meanwhile, and
        the caller begins again.
        """
        with self._guard:
            if not self._held:
                with self._home.holding("lock", self.wait if wait is None else wait):
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

    def exclusively(self, step: Callable[[], T], wait: float | None = None) -> T:
        """Do a step that changes the store as its only writer; returns what the step returns.

        In a bucket, which has no locks, the step is done again when another process was faster, for up to
        `wait` seconds: so it must read what it needs again each time.
        """
        until = time.monotonic() + (self.wait if wait is None else wait)
        pause = _PAUSE
        while True:
            try:
                with self.writing(wait):
                    return step()
            except OvertakenError:
                if self._held or time.monotonic() > until:
                    raise
                time.sleep(random.uniform(0.0, pause))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _recover(self) -> None:
        """Before a write: see that the log ends where the last whole change does."""
        if not isinstance(self._log, ChangeLog):
            self.refresh()
            return
        try:
            self.refresh()
        except DamagedMarkError as error:
            _log.warning("%s; looking whether all changes are whole", error)
            self._log.mend_mark()
            self.refresh()
        recovered = self._log.recover()
        if recovered.cut:
            _log.warning("%s: cut off %d bytes of a change never finished", self.path, recovered.cut)
        if recovered.kept:
            self.refresh()
        ahead = [version for version in self.snapshots() if version > self._log.version]
        if ahead:
            # the version would get other changes here, and readers would take this snapshot for it
            raise StorageError(
                f"{self.snapshot_path(ahead[0])}: must not be newer than the log, which ends with version "
                f"{self._log.version}, as in a copy of a store that was being written; "
                "remove it, or copy the store again"
            )

    def _tend(self) -> None:
        """Before a write, now and then: begin a segment of the log, and remove what is beyond the history."""
        last = self._log.n_last
        try:
            if last >= (CHECKPOINT if self._home.locks else OBJECT_CHECKPOINT):
                self._checkpoint()
                self.publish_if_due()
                self._forget()
            elif last and isinstance(self._log, ChangeLog) and not self._log.summed:
                self._checkpoint()
        except OvertakenError:
            pass  # another process has done it
        except StorageError as error:
            # it can wait; the write may not
            _log.warning("%s: upkeep was put off: %s", self.path, error)

    def _forget(self) -> None:
        history = self.history
        if history is None:
            return
        newest = self._log.version
        moment = np.array([instant() - int(history.seconds * 1_000_000)])
        oldest = history.keeps(newest, int(self._log.versions_at(moment)[0]), self._home.size())
        oldest = min([oldest, *(hold.version for hold in self.holds())])
        # where there is a snapshot, none has to be made for it
        starts = [version for version in self.snapshots() if self._log.base < version <= oldest]
        if starts:
            self.compact(starts[-1])

    def _checkpoint(self) -> None:
        """Begin a segment of the log, from which on it can be read by itself."""
        self._log.checkpoint(instant(), *self._expiries().all())
        self._look()

    def compact(self, keep: int | None = None) -> dict[str, int]:
        """Remove what no version from `keep` on needs: older snapshots and changes.

        By default, `keep` is the oldest version that is held, or the newest one if none is; a `keep` above a
        hold is refused.
        Returns the number of snapshots and log segments removed and the bytes that this freed.
        """
        return self.exclusively(lambda: self._compact(keep))

    def _compact(self, keep: int | None) -> dict[str, int]:
        while True:
            oldest = self._oldest_needed(keep)
            self.snapshot(oldest)
            if self._home.locks and self._log.n_last:
                self._checkpoint()
            with self._home.holding("holds/lock", self.wait):
                if isinstance(self._log, ObjectLog):
                    # from here on nobody can hold what is before
                    self._log.checkpoint(instant(), *self._expiries().all(), closed=oldest)
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
                    f"{keep} cannot be deleted; keep {hold.version}, or release {hold.name!r} if nobody "
                    "uses it"
                )
        return keep

    def _drop_before(self, keep: int) -> dict[str, int]:
        before = self._home.size()
        before_fragments = set(self._log.fragments.values())
        if isinstance(self._log, ObjectLog):
            self._log.checkpoint(instant(), *self._expiries().all(), base=keep)
        segments = self._log.drop_before(keep)
        names = [name for name in self._home.names("snapshots") if name.endswith(".index")]
        gone = [f"snapshots/{name}" for name in names if int(name.removesuffix(".index")) < keep]
        self._home.remove_all(gone)
        self._home.sweep(keep)
        self._look()
        sweep_fragments(
            self._home, before_fragments - set(self._log.fragments.values()), self._log.fragments.values()
        )
        return {
            "snapshots": len(gone),
            "segments": segments,
            "bytes": max(0, before - self._home.size()),
        }

    def verify(self) -> list[str]:
        """Read everything and check it against its sums; returns a sentence for each fault."""
        with self._guard:
            self.refresh()
            problems = self._log.check()
            for version in self.snapshots():
                try:
                    file = self.snapshot_file(version)
                    read_arrays(file)  # the texts too, which no index reads by itself
                    load_index(file, verify=False)
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
        self._check_kinds({ids.textual for ids in rows if len(ids)})

    def _check_kinds(self, kinds: set[bool]) -> None:
        if len(kinds | ({self._log.textual} - {None})) > 1:
            raise SubscriptionError(f"{self.path}: ids must be all whole numbers or all strings, got both")


# What a store is made with, once and for all: its schema, the kind of its index, its own id (store.json).

FORMAT = 1


def create_store(home: Home, schema: Schema, index: str, options: dict[str, Any], wait: float) -> None:
    """Make an empty store, unless another process was faster."""
    index_type(index)(schema, **options)
    settings = {
        "format": FORMAT,
        "id": uuid.uuid4().hex,
        "schema": schema.to_dict(),
        "index": index,
        "options": options,
    }
    home.begin(settings, schema, instant(), wait)


def read_settings(home: Home) -> dict[str, Any]:
    """What a store was made with, checked."""
    settings = home.read("store.json") or {}
    if settings.get("format") != FORMAT:
        raise StorageError(f"{home.path}: a store of format {FORMAT} is read, got {settings.get('format')}")
    absent = {"id", "schema", "index", "options"} - set(settings)
    if absent:
        lacks = ", ".join(sorted(absent))
        raise StorageError(f"{home.path}/store.json: cannot be read: it must have {lacks}")
    return settings


def stored_schema(home: Home, settings: dict[str, Any]) -> Schema:
    """The schema that a store was made with, after everything else was checked."""
    try:
        # what kind of index it is, and with which options, is checked along
        schema = Schema.from_dict(settings["schema"])
        index_type(settings["index"])(schema, **settings["options"])
    except (RangecastError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{home.path}/store.json: cannot be read: {error!r}") from None
    return schema


# Which subscriptions fulfil a condition on their own columns, such as `owner = 'ann'`.
#
# The condition is in the language of all conditions, and a payload is an event for it: its columns are the
# attributes, and nulls are missing. Only columns that the condition may name are read.


def fulfilling(subs: Subscriptions, where: str) -> Ids:
    """The ids of the subscriptions whose payload fulfils a condition.

    >>> from rangecast import Int
    >>> subs = Subscriptions.parse(Schema(Int("price")), {7: "price < 10", 8: "price > 5"})
    >>> fulfilling(subs.with_payload({"owner": ["ann", "bob"]}), "owner = 'bob'").values.tolist()
    [8]
    """
    beside = subs.beside
    if not beside.payload:
        raise SubscriptionError(f"no subscription has a payload, so none can be chosen by {where!r}")
    named = [name for name in beside.payload if name.casefold() in where.casefold()]
    # none is named: the error lists all columns
    table = beside.table(named) if named else beside.table(rows=np.empty(0, np.int64))
    schema = Schema.infer(table)
    index = open_index("scan", schema)
    index.insert(Subscriptions.parse(schema, {0: where}))
    if not named:
        return subs.ids.select(np.empty(0, np.int64))
    return subs.ids.select(np.flatnonzero(index.match_any(Events.from_arrow(schema, table))))
