"""`rc.Tracker`: objects that move through subscriptions.

An event is a state of an object, which its key names. The tracker matches it and compares the answer with
that of the object's last event. What it keeps:

    what        shape          meaning
    keys        n              the key of each object, numbered in the order of first coming
    objects     int64 (3, n)   where the object's row begins in the pool, how long it is, and the time of its
                               last event in microseconds; UNKNOWN for one that was forgotten
    pool        int64          rows of subscriptions in ascending order, as codes
    names       m              with ids that are strings: the string of each code; otherwise a code is the id

A write is all or nothing: rows are put behind those that are in use, longer arrays replace the old
ones, and the objects of the batch get their new rows by one assignment at the very end.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time as clock
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.durable import lock
from rangecast.durable.arrays import flatten, read_arrays, unflatten, write_arrays
from rangecast.engine import Index
from rangecast.engine.boxes import grown
from rangecast.engine.checks import ascending, hold, within
from rangecast.errors import CapacityError, EventError, OptionError, StorageError, SubscriptionError
from rangecast.loading.ids import in_one_piece
from rangecast.model.events import Events
from rangecast.model.ids import Ids, IdTable
from rangecast.model.kernels import order_rows
from rangecast.model.matches import Matches
from rangecast.tracking import kernels
from rangecast.types.attributes import MISSING, Timestamp
from rangecast.types.frames import table_of

FORMAT = 1
UNKNOWN = MISSING
_LATEST = 2**63 - 1
_NO_IDS = Ids(np.empty(0, np.int64))
_NOTHING = np.array([[0], [0], [UNKNOWN]])  # what is known of an object that was forgotten
_SPARE = 1024  # so much of the pool may always be rows that nobody has any more


class TrackerArrays(NamedTuple):
    """What a file holds of a tracker."""

    key_values: npt.NDArray[np.int64]
    key_starts: npt.NDArray[np.int64]
    key_letters: npt.NDArray[np.uint8]
    textual_keys: bool
    name_starts: npt.NDArray[np.int64]
    name_letters: npt.NDArray[np.uint8]
    textual_ids: bool
    objects: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int64]


class _States(NamedTuple):
    """What is known of the objects of one moment; the first `used` entries of the pool are rows."""

    keys: NumberedIds
    objects: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int64]
    used: int
    names: NumberedIds


class ComparedRows(NamedTuple):
    """What became of each pair of an event and a code, in the order of events and codes."""

    events: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.uint8]
    """ENTERED, LEFT or STAYS."""
    same: npt.NDArray[np.uint8]
    """For each event, whether nothing was entered or left."""


def compared_rows(
    previous: npt.NDArray[np.int64],
    before: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]],
    offsets: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    stays: bool = True,
) -> ComparedRows:
    """Compare rows of ascending codes with those before them.

    `previous` has the row of the batch that precedes each, or KEPT where it is in `before`: where the row of
    each begins in a pool, how long it is, and the pool.
    """
    starts, lengths, pool = before
    room = len(codes) + int(np.diff(offsets)[previous[previous >= 0]].sum())
    room += int(lengths[previous == kernels.KEPT].sum())
    out = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.uint8)
    same = np.empty(len(previous), np.uint8)
    n = kernels.compare(previous, starts, lengths, offsets, codes, pool, stays, out, same)
    return ComparedRows(out[0][:n], out[1][:n], out[2][:n], same)


class _CodeRows(NamedTuple):
    """The matches of a batch as rows of ascending codes."""

    offsets: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    names: NumberedIds


class Tracker:
    """Reports which subscriptions each object has entered, has left and stays in since its last event.

    `key` names what tells objects apart: a column of the frames, or a key of the dicts, that are given to
    `update`; it need not be an attribute. With `time`, another such name, an event that is older than the
    last one of its object is late and changes nothing; without, events count in the order in which they come.
    Objects that had no event for as long as `expires` (seconds or a timedelta) are forgotten, and at most
    `limit` are known at once.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("x"), rc.Int("y"))
    >>> index = rc.open_index("auto", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {1: "x < 10", 2: "x between 5 and 20 and y > 0"}))
    >>> tracker = rc.Tracker(index, key="vehicle")
    >>> list(tracker.update([{"vehicle": "a", "x": 4, "y": 1}, {"vehicle": "a", "x": 7, "y": 1}]))
    [('entered', 'a', 1), ('stays', 'a', 1), ('entered', 'a', 2)]
    >>> list(tracker.update_one({"vehicle": "a", "x": 12, "y": 1}))
    [('left', 'a', 1), ('stays', 'a', 2)]
    """

    def __init__(
        self,
        index: Index,
        key: str,
        *,
        time: str | None = None,
        expires: float | dt.timedelta | None = None,
        limit: int = 10_000_000,
    ) -> None:
        if not isinstance(key, str) or not key:
            raise OptionError(f"key must be the name of what tells objects apart, got {key!r}")
        if key in ("event_id", "change", "subscription_id"):
            raise OptionError(f"key must not be {key!r}, which is a column of the answer; rename it")
        if isinstance(expires, dt.timedelta):
            expires = expires.total_seconds()
        if expires is not None and not 0 < expires < 2**62 / 1e6:
            raise OptionError(f"expires must be a time above 0, got {expires}")
        if not 0 < limit < 2**31:
            raise OptionError(f"limit must be from 1 to {2**31 - 1:,} objects, got {limit}")
        self.index = index
        self.key = key
        self.time = time
        self.expires = expires
        self.limit = limit
        self._lock = threading.RLock()
        lock.watch(self)
        self._oldest = _LATEST  # no object is known by an event before it
        self._packed_size = 0
        none = np.empty(0, np.int64)
        self._states = _States(
            NumberedIds(_NO_IDS), np.empty((3, 0), np.int64), none, 0, NumberedIds(_NO_IDS)
        )

    def _after_fork(self) -> None:
        self._lock = lock.renewed(self._lock, f"Tracker(key={self.key!r})")

    def __len__(self) -> int:
        """How many objects are known."""
        with self._lock:
            return int((_last(self._states) != UNKNOWN).sum())

    def __repr__(self) -> str:
        return f"Tracker({self.index!r}, key={self.key!r}, {len(self):,} objects)"

    def update(
        self, events: Any, *, keys: Any = None, times: Any = None, threads: int = 1, stays: bool = True
    ) -> Changes:
        """Take the next events, in their order, and return what changed.

        `events` is a frame or a list of dicts with the key, or Events with `keys` (and `times`) beside them.
        Without `stays`, only what was entered and left is reported. An event that cannot be taken raises
        EventError, and then none of the events counts.
        """
        rows, keys, times = self._read(events, keys, times)
        ids = self._key_ids(keys, len(rows))
        when = self._instants(times, len(rows))
        with self._lock:
            # inside: two batches must be compared in the order in which they were matched
            return self._apply(ids, when, self.index.match(rows, threads=threads), stays)

    def update_one(self, event: Mapping[str, Any], *, stays: bool = True) -> Changes:
        """Take one event, given as a dict."""
        if self.key not in event:
            raise EventError(f"an event must have the key {self.key!r}, got {', '.join(map(str, event))}")
        ids = self._key_ids([event[self.key]], 1)
        when = self._instants(None if self.time is None else [event.get(self.time)], 1)
        with self._lock:
            found = self.index.match_one(event)
            return self._apply(ids, when, Matches.from_ids([0, len(found)], found), stays)

    def subscriptions_of(self, key: int | str) -> npt.NDArray[Any]:
        """The subscriptions that an object is in since its last event, ascending; none for an unknown
        object."""
        with self._lock:
            s = self._states
            number = int(s.keys.find(Ids.of([key]))[0])
            start, length = s.objects[:2, number].tolist() if number >= 0 else (0, 0)
            codes = s.pool[start : start + length]
            return np.sort(s.names.ids.take(codes)) if s.names.textual else codes.copy()

    def expire(self, before: Any) -> Changes:
        """Forget the objects whose last event was before a time (an instant, or seconds since 1970).

        They leave every subscription that they were in; these changes have no event.
        """
        if isinstance(before, int | float):
            before = dt.datetime.fromtimestamp(before, dt.UTC)
        limit = Timestamp("before").bracket(before)[0]
        with self._lock:
            s = self._states
            gone = np.flatnonzero((_last(s) != UNKNOWN) & (_last(s) < limit))
            changes = self._changes(s, *_leaving(s, gone, s.objects[:, gone]), np.empty(0, np.int64))
            s.objects[:, gone] = _NOTHING
            if len(gone):
                self._tidy()
            return changes

    def stats(self) -> dict[str, int]:
        """How many objects and pairs are known, and the bytes that this takes."""
        with self._lock:
            s = self._states
            arrays = s.objects.nbytes + s.pool.nbytes
            return {
                "objects": int((_last(s) != UNKNOWN).sum()),
                "pairs": int(s.objects[1, : len(s.keys)].sum()),
                "bytes": arrays + s.keys.nbytes + s.names.nbytes,
            }

    # files

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write what is known of the objects to one file and return its size; the index is saved
        separately."""
        with self._lock:
            s = _packed(self._states)
        keys, names = s.keys.ids, s.names.ids
        tree = TrackerArrays(
            keys.values, keys.starts, keys.letters, s.keys.textual,
            names.starts, names.letters, s.names.textual, s.objects, s.pool,
        )  # fmt: skip
        meta, arrays = flatten(tree)
        head = {"kind": "tracker", "format": FORMAT, "key": self.key, "time": self.time}
        return write_arrays(path, {**head, "states": meta}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], index: Index, **options: Any) -> Tracker:
        """Load a tracker from a file, over an index; `options` are those of a new one, except key and
        time."""
        meta, arrays = read_arrays(path, mmap=False)
        if meta.get("kind") != "tracker" or meta.get("format") != FORMAT:
            raise StorageError(f"{path}: not the file of a tracker, or of another version")
        tree: TrackerArrays = unflatten(TrackerArrays, meta["states"], arrays)
        tracker = cls(index, meta["key"], time=meta["time"], **options)
        tracker._states = _loaded(tree)
        tracker._oldest = int(_last(tracker._states).min(initial=_LATEST))
        return tracker

    # one batch

    def _read(self, events: Any, keys: Any, times: Any) -> tuple[Events, Any, Any]:
        """Events, with the keys and times beside them."""
        if isinstance(events, Events):
            if keys is None:
                raise OptionError(f"Events hold attributes only: give keys, the {self.key!r} of each")
            if (times is None) != (self.time is None):
                raise OptionError("times must be given where the tracker was made with time, and only there")
            return events, keys, times
        if keys is not None or times is not None:
            raise OptionError("keys and times go with Events; a frame has them as columns")
        if isinstance(events, list) and not events:
            return Events.from_rows(self.index.schema, []), [], None if self.time is None else []
        table = table_of(events, "events")
        for name in (self.key, *([self.time] if self.time else [])):
            if name not in table.column_names:
                raise EventError(f"events: there is no column {name!r}, only {', '.join(table.column_names)}")
        times = None if self.time is None else table[self.time]
        return Events.from_arrow(self.index.schema, table), in_one_piece(table[self.key]), times

    def _key_ids(self, keys: Any, n: int) -> Ids:
        try:
            ids = Ids.of(keys)
        except SubscriptionError as error:
            said = str(error).replace("a subscription must have an id", "an event must have a key")
            said = said.replace("a subscription's id", "a key")
            raise EventError(f"{self.key!r} must be whole numbers or strings: {said}") from None
        if len(ids) != n:
            raise OptionError(f"keys must be as many as the events, {n}, got {len(ids)}")
        return ids

    def _instants(self, times: Any, n: int) -> npt.NDArray[np.int64]:
        """The time of each event in microseconds: its own, or when it came."""
        if times is None:
            return np.full(n, clock.time_ns() // 1000, np.int64)
        encoded = self.index.schema.instants(self.time or "time").encode(times)
        if len(encoded.bad):
            raise EventError(f"row {encoded.bad[0]}: {encoded.reasons[0]}")
        if len(encoded.codes) != n:
            raise OptionError(f"times must be as many as the events, {n}, got {len(encoded.codes)}")
        absent = np.flatnonzero(encoded.codes == MISSING)
        if len(absent):
            raise EventError(f"row {absent[0]}: an event must have a time, {self.time!r}, got none")
        return encoded.codes

    def _apply(self, keys: Ids, times: npt.NDArray[np.int64], found: Matches, stays: bool) -> Changes:
        s = self._states
        numbers, s = self._numbered(s, keys)
        rows = _rows_of(found, s.names)
        starts, lengths, newest = s.objects[:, numbers]
        order = np.argsort(numbers, kind="stable")
        previous, last = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.uint8)
        # what comes without a time of its own is never late, whatever the clock does
        newest = newest if self.time is not None else np.full(len(newest), UNKNOWN)
        kernels.chain(order, numbers, times, newest, previous, last)
        events, codes, kinds, same = compared_rows(
            previous, (starts, lengths, s.pool), rows.offsets, rows.codes, stays
        )

        # the new rows go behind those in use, but for what is as it was
        finals = np.flatnonzero(last)
        moved = finals[(same[finals] == 0) | (previous[finals] != kernels.KEPT)]
        places, sizes = rows.offsets[:-1].copy(), np.diff(rows.offsets)
        used = s.used + int(sizes[moved].sum())
        pool = grown(s.pool, s.used, used)
        kernels.copy_rows(moved, places, sizes, rows.codes, pool, s.used)
        kept = np.setdiff1d(finals, moved, assume_unique=True)
        places[kept], sizes[kept] = starts[kept], lengths[kept]
        s = _States(s.keys, s.objects, pool, used, rows.names)
        touched = numbers[finals]
        fresh = np.stack([places[finals], sizes[finals], times[finals]])

        gone = self._silent(s, touched, fresh[2], times)
        theirs = s.objects[:, gone]
        _, here, there = np.intersect1d(gone, touched, assume_unique=True, return_indices=True)
        theirs[:, here] = fresh[:, there]
        left = _leaving(s, gone, theirs)
        late = np.flatnonzero(previous == kernels.LATE)
        changes = self._changes(
            s,
            np.concatenate([events, left[0]]),
            np.concatenate([numbers[events], left[1]]),
            np.concatenate([codes, left[2]]),
            np.concatenate([kinds, left[3]]),
            late,
        )
        # so far nothing is different for whoever asks; from here on everything is
        self._states = s
        fresh[:, there] = _NOTHING
        forgotten = np.repeat(_NOTHING, len(gone), axis=1)
        s.objects[:, np.concatenate([touched, gone])] = np.concatenate([fresh, forgotten], axis=1)
        if len(gone) or used > 2 * self._packed_size + _SPARE:
            self._tidy()
        return changes

    def _numbered(self, s: _States, keys: Ids) -> tuple[npt.NDArray[np.int64], _States]:
        """The number of each event's object, and states in which all of them have one."""
        if len(s.keys) and len(keys) and keys.textual != s.keys.textual:
            kind, got = ("strings", "whole numbers") if s.keys.textual else ("whole numbers", "strings")
            raise EventError(f"{self.key!r} was {kind} so far and must stay so, got {got}")
        numbers = s.keys.find(keys).astype(np.int64)
        strangers = np.flatnonzero(numbers < 0)
        if not len(strangers):
            return numbers, s
        more = keys.select(strangers)
        firsts = NumberedIds(more).find(more)
        distinct = np.unique(firsts)
        n, k = len(s.keys), len(distinct)
        if n + k > self.limit:
            living = int((_last(s) != UNKNOWN).sum())
            if living + k > self.limit:
                raise CapacityError(
                    f"{living + k:,} objects would be above the limit of {self.limit:,}; nothing was "
                    "changed. Forget some with expire(), or make the tracker with a larger limit"
                )
        numbers[strangers] = n + np.searchsorted(distinct, firsts)
        objects = grown(s.objects, n, n + k)
        objects[:, n : n + k] = _NOTHING
        return numbers, s._replace(keys=s.keys.with_more(more.select(distinct)), objects=objects)

    def _silent(self, s: _States, touched: Any, fresh: Any, times: npt.NDArray[np.int64]) -> Any:
        """The objects that had no event for too long before the newest one of this batch."""
        none = np.empty(0, np.int64)
        if self.expires is None or not len(times):
            return none
        self._oldest = min(self._oldest, int(times.min()))
        limit = int(times.max()) - int(self.expires * 1e6)
        if limit <= self._oldest:
            return none
        last = _last(s).copy()
        last[touched] = fresh
        silent = (last != UNKNOWN) & (last < limit)
        self._oldest = limit
        return np.flatnonzero(silent)

    def _changes(self, s: _States, events: Any, objects: Any, codes: Any, kinds: Any, late: Any) -> Changes:
        if s.names.textual:
            # numbers go by who came first; strings are told in their own order, like numbers
            distinct, where = np.unique(codes, return_inverse=True)
            ranks = s.names.ids.select(distinct).ranks()
            places = where.reshape(-1) if ranks is None else ranks[where.reshape(-1)]
            order = np.lexsort((places, objects, np.where(events == FORGOTTEN, len(events), events)))
            events, objects, codes, kinds = (part[order] for part in (events, objects, codes, kinds))
        keys = s.keys.ids.arrow().take(pa.array(objects))
        ids = s.names.ids.arrow().take(pa.array(codes)) if s.names.textual else pa.array(codes)
        return Changes(events, keys, kinds, ids, self.key, late)

    def _tidy(self) -> None:
        """Give back the room of rows that nobody has any more, and of objects that were forgotten."""
        s = self._states
        held = int(s.objects[1, : len(s.keys)].sum())
        forgotten = int((_last(s) == UNKNOWN).sum())
        if s.used > 2 * held + _SPARE or forgotten > len(s.keys) // 2 + _SPARE:
            self._states = _packed(s)
        self._packed_size = self._states.used


def _last(s: _States) -> npt.NDArray[np.int64]:
    """When each object had its last event."""
    return s.objects[2, : len(s.keys)]


def _rows_of(found: Matches, names: NumberedIds) -> _CodeRows:
    """The matches as rows of ascending codes."""
    slots, where = np.unique(found.slots, return_inverse=True)
    ids = found.names_at(slots)
    if ids.textual:
        names = names if names.textual else NumberedIds(Ids.of(np.empty(0, np.int64)))
        codes = names.find(ids).astype(np.int64)
        strangers = np.flatnonzero(codes < 0)
        codes[strangers] = len(names) + np.arange(len(strangers))
        names = names.with_more(ids.select(strangers))
    else:
        codes = ids.values
    codes = np.ascontiguousarray(codes[where.reshape(-1)])
    order = np.empty(len(codes), np.int64)
    order_rows(found.offsets, codes, order)
    return _CodeRows(np.ascontiguousarray(found.offsets), codes[order], names)


def _leaving(s: _States, gone: npt.NDArray[np.int64], rows: Any) -> tuple[Any, Any, Any, Any]:
    """What some objects leave by being forgotten: events, objects, codes and kinds."""
    places, sizes, _ = rows
    n = int(sizes.sum())
    codes = np.empty(n, np.int64)
    kernels.copy_rows(np.arange(len(gone)), places, sizes, s.pool, codes, 0)
    return np.full(n, FORGOTTEN), np.repeat(gone, sizes), codes, np.full(n, kernels.LEFT, np.uint8)


def _packed(s: _States) -> _States:
    """The same states without forgotten objects, rows that nobody has and strings that no row names."""
    living = np.flatnonzero(_last(s) != UNKNOWN)
    objects = s.objects[:, living]
    places, sizes = objects[0], objects[1]
    pool = np.empty(int(sizes.sum()), np.int64)
    kernels.copy_rows(np.arange(len(living)), places, sizes, s.pool, pool, 0)
    names = s.names
    if names.textual:
        # numbers in the same order as before, so that rows still ascend
        named, pool = np.unique(pool, return_inverse=True)
        pool = pool.reshape(-1).astype(np.int64)
        names = NumberedIds(names.ids.select(named))
    return _States(NumberedIds(s.keys.ids.select(living)), objects, pool, len(pool), names)


def _loaded(tree: TrackerArrays) -> _States:
    """The states of a file, after a look at everything that a kernel follows."""
    for name, starts, letters in (
        ("key_starts", tree.key_starts, tree.key_letters),
        ("name_starts", tree.name_starts, tree.name_letters),
    ):
        ascending(name, starts, len(letters))
    keys = Ids(None, tree.key_starts, tree.key_letters) if tree.textual_keys else Ids(tree.key_values)
    names = Ids(None, tree.name_starts, tree.name_letters) if tree.textual_ids else _NO_IDS
    hold("as many objects as keys", tree.objects.shape == (3, len(keys)))
    starts, sizes = tree.objects[0], tree.objects[1]
    hold("rows of no negative length", not len(sizes) or int(sizes.min()) >= 0)
    within("the place of a row", starts, len(tree.pool) + 1)
    within("the length of a row", sizes, len(tree.pool) + 1)
    within("the end of a row", starts + sizes, len(tree.pool) + 1)
    if tree.textual_ids:
        within("a code", tree.pool, len(names))
    return _States(NumberedIds(keys), tree.objects, tree.pool, len(tree.pool), NumberedIds(names))


# The changes that a batch of events made: which object entered, left or stays in which subscription.

WORDS = ("entered", "left", "stays")
FORGOTTEN = -1
"""The event of a change that no event made: its object was forgotten."""


class Changes:
    """Changes in the order of the events that made them; what objects left by being forgotten comes last.

    `late` are the rows of events that were older than what was known of their object, and changed nothing.
    """

    def __init__(
        self,
        events: npt.NDArray[np.int64],
        keys: pa.Array[Any],
        kinds: npt.NDArray[np.uint8],
        ids: pa.Array[Any],
        key: str,
        late: npt.NDArray[np.int64],
    ) -> None:
        self.events = events
        self.keys = keys
        self.kinds = kinds
        self.ids = ids
        self.key = key
        self.late = late

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        counts = np.bincount(self.kinds, minlength=len(WORDS))
        said = ", ".join(f"{n:,} {word}" for word, n in zip(WORDS, counts.tolist(), strict=True))
        return f"Changes({said}{f', {len(self.late):,} late' if len(self.late) else ''})"

    def __iter__(self) -> Iterator[tuple[str, Any, Any]]:
        """Each change as (word, key, subscription id)."""
        words = [WORDS[kind] for kind in self.kinds.tolist()]
        return zip(words, self.keys.to_pylist(), self.ids.to_pylist(), strict=True)

    @property
    def entered(self) -> Changes:
        """What was not so before."""
        return self._of(kernels.ENTERED)

    @property
    def left(self) -> Changes:
        """What is so no longer."""
        return self._of(kernels.LEFT)

    @property
    def stays(self) -> Changes:
        """What was so and is so still."""
        return self._of(kernels.STAYS)

    def _of(self, kind: int) -> Changes:
        rows = np.flatnonzero(self.kinds == kind)
        taken = pa.array(rows)
        return Changes(
            self.events[rows],
            self.keys.take(taken),
            self.kinds[rows],
            self.ids.take(taken),
            self.key,
            self.late,
        )

    def to_arrow(self, event_ids: Any = None) -> pa.Table:
        """A table: `event_id` (null where an object was forgotten), the key, `change`, `subscription_id`."""
        forgotten = self.events == FORGOTTEN
        rows = pa.array(self.events, mask=forgotten)
        if event_ids is not None:
            arrow = isinstance(event_ids, pa.Array | pa.ChunkedArray)
            rows = in_one_piece(event_ids if arrow else pa.array(event_ids)).take(rows)
        words = pa.DictionaryArray.from_arrays(pa.array(self.kinds.astype(np.int8)), pa.array(WORDS))
        return pa.table({"event_id": rows, self.key: self.keys, "change": words, "subscription_id": self.ids})

    def to_pandas(self, event_ids: Any = None) -> Any:
        """The table of `to_arrow` as a DataFrame of pandas."""
        return self.to_arrow(event_ids).to_pandas()

    def to_polars(self, event_ids: Any = None) -> Any:
        """The table of `to_arrow` as a DataFrame of Polars."""
        import polars

        return polars.from_arrow(self.to_arrow(event_ids))


# Ids that are numbered in the order of their first coming.


class NumberedIds:
    """Ids and their numbers, append-only: `with_more` gives a longer one, which shares the arrays.

    Only the hash table is changed in place. The longer one takes it away, so that a shorter one whose
    successor was given up makes another when it is next asked.

    >>> few = NumberedIds(Ids.of(["b", "a"]))
    >>> few.with_more(Ids.of(["c"])).find(Ids.of(["c", "a", "z"])).tolist(), few.find(Ids.of(["c"])).tolist()
    ([2, 1, -1], [-1])
    """

    __slots__ = ("_letters", "_places", "_size", "_table", "textual")

    def __init__(self, ids: Ids) -> None:
        self.textual = ids.textual
        self._places = ids.starts if ids.textual else ids.values
        self._letters = ids.letters
        self._size = len(ids)
        self._table: IdTable | None = None

    def __len__(self) -> int:
        return self._size

    @property
    def ids(self) -> Ids:
        """The ids by number, without a copy."""
        if not self.textual:
            return Ids(self._places[: self._size])
        starts = self._places[: self._size + 1]
        return Ids(None, starts, self._letters[: starts[-1]])

    @property
    def nbytes(self) -> int:
        """Bytes of ids and table."""
        table = 0 if self._table is None else self._table.nbytes
        return self._places.nbytes + self._letters.nbytes + table

    def find(self, wanted: Ids) -> npt.NDArray[np.int32]:
        """The number of each id, -1 where it has none."""
        if self._table is None:
            self._table = IdTable(self.ids)
        return self._table.find(wanted)

    def with_more(self, more: Ids) -> NumberedIds:
        """These and some that are not among them, numbered on."""
        if not len(more):
            return self
        if not self._size:
            return NumberedIds(more)
        n, k = self._size, len(more)
        out = NumberedIds(self.ids)
        out._size = n + k
        if self.textual:
            used, length = int(self._places[n]), int(more.starts[-1])
            out._letters = grown(self._letters, used, used + length)
            out._letters[used : used + length] = more.letters[:length]
            out._places = grown(self._places, n + 1, n + 1 + k)
            out._places[n + 1 : n + 1 + k] = more.starts[1:] + used
        else:
            out._places = grown(self._places, n, n + k)
            out._places[n : n + k] = more.values
        table, self._table = self._table, None
        if table is not None:
            out._table = table.extended(out.ids, np.ones(out._size, np.uint8))
        return out
