"""The contract of an index: insert, delete, match, stats, explain, save.

An index adds only the few primitives that differ: `_add`, `_remove` and `_stab` for structures that
change in place (this module's `Index`), or one `_build` for static layouts (`parts.py`'s
`StaticIndex`). Everything else is here: ids and slots, replacing, schemas of other objects, cutting a
batch among threads, dropping repeats of subscriptions whose boxes overlap, pickling and files.

A write is all or nothing. It prepares a draft of the catalog, changes the structure, and then publishes both
by one assignment, of `_read`: before it readers see the old state, after it the new one. A write that fails,
for want of memory or by Ctrl-C, publishes nothing. `_catalog` is the writer's own: while it is not the
published one, a write is under way or one has failed. Whoever takes the lock calls `_resume` first, which
puts a failed one right.

A structure that changes in place takes one caller at a time; a lock holds the others. After a failed write it
is of neither state, and `_resume` rebuilds it from the published catalog. Static layouts override
`_reading`, and match without a lock while another thread writes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.durable import lock
from rangecast.durable.arrays import Arrays, flatten, unflatten, write_arrays
from rangecast.engine.answers import Estimate, Rows
from rangecast.engine.catalog import Catalog, CatalogArrays
from rangecast.engine.checks import hold
from rangecast.engine.reading import InPlaceReading, Reading, check_limit, check_priorities
from rangecast.errors import OptionError, SubscriptionError
from rangecast.model.events import EventCodes, Events
from rangecast.model.explanation import Explanation, explain_boxes
from rangecast.model.ids import Ids
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import Codes
from rangecast.types.schema import Schema

LAYOUT = 9
"""Changes when the arrays of some index in a file do; files of another layout are rebuilt when read."""
# by layout, what structures have in another form since
_CHANGED: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys((5, 6, 7), ("LeadLists", "BitmapBlocks", "PlaneCells")),
    8: ("LeadLists", "BitmapBlocks"),
}


class Index:
    """Subscriptions that are ready to be matched; the module head says what a new kind of index adds."""

    name: ClassVar[str] = ""
    _read: Reading
    """What is published: the catalog of one state, and what matches read of it."""

    _from_file: bool = False
    """Whether the structure came from a file: checked so far that matches are safe, and not further."""

    sets: ClassVar[str] = "multiplied"
    """How boxes with sets are taken (catalog.py): "multiplied" out, with the limit of
    `Subscriptions.dense`, "cut" along one of them, the same but for long lists of values, which are "listed",
    or as "hulls"; all but the first by static layouts alone."""

    expands: ClassVar[bool] = True  # boxes have both ends of every attribute; or else are kept by entry
    reads_entries: ClassVar[bool] = (
        False  # takes events of wide schemas by what they say (model/wide_events.py)
    )

    def __init__(self, schema: Schema, **options: Any) -> None:
        self.schema = schema
        self.options = dict(options)
        self._lock = threading.RLock()
        lock.watch(self)
        self._catalog = self._new_catalog()
        self._last: dict[str, Any] = {}
        try:
            self._configure(**options)
        except TypeError as error:
            if "_configure" not in str(error):
                raise
            what = str(error).split("_configure() ")[-1]
            raise OptionError(f"index {self.name!r}: {what}") from None
        self._reset()
        self._publish()

    # what a kind of index provides

    def _configure(self) -> None:
        """Take and check the options."""

    def _reset(self) -> None:
        """Make the structure empty, whatever a failed write has left of it; the catalog is new."""

    def _arranged(self, subs: Subscriptions) -> Subscriptions:
        """The same subscriptions in the order in which they are to get slots: those that match together
        near each other, so that reading their ids afterwards stays within the cache."""
        return subs

    def _add(self, first: int, last: int) -> None:
        """Take in the boxes first..last of the catalog."""
        raise NotImplementedError

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        """Take out slots; the catalog already has them as gone, and the boxes of this write too."""
        raise NotImplementedError

    def _prepare(self, codes: Codes) -> None:
        """Take note of the events of a batch, and do what pays before they are matched."""

    def _stab(self, codes: Codes) -> Rows:
        """Match a batch of codes (d, n_events): offsets and slots."""
        raise NotImplementedError

    def _estimate(self, codes: Codes, level: int | None) -> Estimate:
        """How much work each event of a batch will be."""
        raise OptionError(
            f"index {self.name!r} cannot estimate the work of an event; "
            "auto, rtree, direct, vci, cells and bitmap can"
        )

    def _stab_from(self, codes: Codes, event: int, estimate: Estimate) -> Rows:
        """Match one event (d, 1), going on where the estimate of its batch stopped."""
        return self._stab(codes)

    def _structure(self) -> Any:
        """What a file holds beside the catalog: a tree of arrays and plain values (durable/arrays.py), of the
        kind that the annotation of the override says."""
        raise NotImplementedError

    def _take_structure(self, structure: Any) -> None:
        """Take what `_structure` gave; the catalog is already there."""
        raise NotImplementedError

    def _check_structure(self) -> None:
        """Raise StorageError unless all that matches index by, in a structure that came from a file, is in
        range and all that they follow ends (checks.py). Writes do not go on with such a structure."""

    def _structure_stats(self) -> dict[str, Any]:
        """Counts of the structure for `stats`, with its `bytes`."""
        return {"bytes": 0}

    # what users call

    def __len__(self) -> int:
        return self._read.catalog.n_living

    def __contains__(self, id: Any) -> bool:
        return bool(self.known([id])[0])

    def known(self, ids: Any) -> npt.NDArray[np.bool_]:
        """Which of these ids are in the index."""
        with self._lock:
            return self._read.catalog.find(Ids.of(ids)) >= 0

    @property
    def ids_are_text(self) -> bool:
        """Whether the ids are strings; an empty index takes either."""
        return self._read.catalog.ids.textual

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {len(self):,} subscriptions>"

    def insert(self, subs: Subscriptions, priorities: npt.ArrayLike | None = None) -> None:
        """Add subscriptions; one whose id is already here replaces the old one.

        `priorities` has a number for each of them, by which `match(limit=k)` chooses; without one it is 0.
        """
        if not isinstance(subs, Subscriptions):
            raise SubscriptionError(f"insert takes Subscriptions, got {type(subs).__name__}")
        weights = None if priorities is None else check_priorities(priorities, len(subs))
        if not len(subs):
            return
        with self._lock:
            self._begin()
            subs = taken_over(self, subs)
            if self.sets == "multiplied":
                subs = subs.expanded()
            catalog = self._catalog
            catalog.check(subs)
            self._check_capacity(subs)
            slots = catalog.find(subs.ids) if catalog.n_living else np.empty(0, np.int32)
            replaced = slots[slots >= 0]
            draft = catalog.draft()
            if len(replaced):
                draft.kill(replaced)
            draft.add(self._arranged(subs))
            draft.prioritize(subs.ids, weights)
            draft.n_updates += len(subs)
            self._catalog = draft
            if len(replaced):
                self._remove(replaced)
            self._add(catalog.n_boxes, draft.n_boxes)
            self._settle()
            self._publish()

    def delete(self, ids: Any) -> list[Any]:
        """Delete subscriptions by id; returns the ids that were not there."""
        wanted = Ids.of(ids if not isinstance(ids, int | str | uuid.UUID) else [ids])
        with self._lock:
            self._begin()
            slots = self._catalog.find(wanted)
            unknown = [wanted[int(row)] for row in np.flatnonzero(slots < 0)]
            found = np.unique(slots[slots >= 0]).astype(np.int32)
            if len(found):
                draft = self._catalog.draft()
                draft.kill(found)
                draft.n_updates += len(found)
                self._catalog = draft
                self._remove(found)
                self._settle()
                self._publish()
        return unknown

    def match(
        self, events: Events | Mapping[str, Any] | Any, threads: int = 1, limit: int | None = None
    ) -> Matches:
        """The subscriptions that each event matches; `threads` share a batch of events, and never one event.

        With a limit, at most that many per event: those of highest priority in descending order if any
        subscription was inserted with a priority, and any of them, in no particular order, if none was. Among
        equal priorities the choice is left to the index.
        A dict is one event; `match_one` returns its ids faster. A frame of any kind has one event per row.
        """
        most = None if limit is None else check_limit(limit)
        if most is None and isinstance(events, Mapping):
            self.schema.object_names.check(events, strict=False, stacklevel=4)
            found = self._match_dict(events)
            if found is not None:
                return found
        events = Events.of(self.schema, events)
        n_events = len(events)
        with self._encoded(events, self.reads_entries and most is None) as (reading, batch):
            threads = 1 if threads <= 1 else max(1, min(threads, n_events))
            matches = reading.match(batch, threads, most)
            self._last = {"last_events": n_events, "last_matches": matches.n_pairs, **events.computing}
        if n_events == 1:
            self._prepare(batch.codes)  # for the next ones
        return matches

    def match_one(self, event: Mapping[str, Any], unknown: str = "ignore") -> npt.NDArray[Any]:
        """The ids that one event, given as a dict, matches: the answer of `match`, and faster.

        A key that is not an attribute is ignored, or refused with unknown="error". A value that its attribute
        cannot hold raises EventError.
        """
        found = self._match_dict(event, unknown)
        return self.match(Events.from_rows(self.schema, [event])).ids if found is None else found.ids

    def _match_dict(self, event: Mapping[str, Any], unknown: str = "ignore") -> Matches | None:
        """The matches of one event; None where columns must say what it means."""
        with self._reading() as reading:
            plan = reading.catalog.plan or reading.catalog.make_plan()
            codes = plan.encode(event, unknown)  # after the state, as in `match`
            if codes is None:
                return None
            matches = reading.match_one(codes)
            # written at once, for the row of codes is used again
            n = len(matches.ids)
        self._prepare(codes)  # for the next ones
        self._last = {"last_events": 1, "last_matches": n}
        return matches

    def match_any(self, events: Events | Any) -> npt.NDArray[np.bool_]:
        """Whether each event matches any subscription at all; a search ends at its first match."""
        with self._encoded(Events.of(self.schema, events)) as (reading, batch):
            return reading.match_any(batch)

    def count(self, events: Events | Any) -> npt.NDArray[np.int64]:
        """How many subscriptions each event matches; no id is read."""
        with self._encoded(Events.of(self.schema, events)) as (reading, batch):
            return reading.count(batch)

    def estimate(self, events: Events, level: int | None = None) -> Estimate:
        """How much work each event will take, before it is matched; `level` is the depth read in a tree."""
        with self._lock:
            self._resume()
            codes, firsts = events.encoded(self.schema)
            found = self._estimate(codes, level)
            return found if firsts is None else found.of_events(firsts)

    def match_each(
        self, events: Events, estimate: Estimate | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """The events one by one, as (row, ids): in their order, or by an estimate, the cheapest first.

        An event sees the subscriptions as they are when its turn comes; nothing is locked in between.
        """
        if estimate is not None and len(estimate) != len(events):
            of = f"this batch of {len(events)} events"
            raise OptionError(f"the estimate must be of {of}, got {len(estimate)}")
        return self._each(events, estimate)

    def _each(self, events: Events, estimate: Estimate | None) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        for row in range(len(events)) if estimate is None else estimate.order.tolist():
            with self._reading() as reading:
                # after the state, as in `match`: a subscription that came meanwhile may have named a string
                codes, firsts = events.encoded(reading.catalog.schema)
                own = slice(row, row + 1) if firsts is None else slice(firsts[row], firsts[row + 1])
                one = np.ascontiguousarray(codes[:, own])
                ids = reading.match_from(one, row, estimate if firsts is None else None)
            yield row, ids

    @property
    def updates(self) -> int:
        """How many subscriptions have been inserted or deleted since the index was opened."""
        return self._read.catalog.n_updates

    def stats(self) -> dict[str, Any]:
        """Counts and sizes: subscriptions, boxes, bytes, what the structure counts, the last batch."""
        with self._lock:
            self._resume()
            catalog = self._catalog
            structure = self._structure_stats()
            total = catalog.nbytes + structure.pop("bytes")
            n = catalog.n_living
            return {
                "index": self.name,
                "subscriptions": n,
                "boxes": catalog.n_living_boxes,
                "bytes": total,
                "bytes_per_subscription": round(total / n, 1) if n else 0.0,
                "catalog_bytes": catalog.nbytes,
                "catalog": catalog.sizes(),
                "text_bytes": catalog.text_bytes,
                **catalog.schema.computed_counts(),
                **structure,
                **self._last,
            }

    def subscriptions(self) -> Subscriptions:
        """All subscriptions that are in the index."""
        return self._read.catalog.living()

    def explain(self, subscription: Any, event: Events | Mapping[str, Any]) -> Explanation:
        """Explain why a subscription, given by id or as Subscriptions, does or does not match an event.

        The explanation uses the words of the condition where they were kept, and bounds otherwise.
        """
        return explain_one(self.schema, self._read.catalog, self._lock, subscription, event)

    def payload(self, ids: Any, names: Sequence[str] | None = None) -> pa.Table:
        """The users' own columns (or those named) of some subscriptions, a row per id; null for unknown ones.

        Only the blocks that hold them are read. Matches take it as `index.payload(matches.ids)`.
        """
        with self._lock:
            catalog = self._read.catalog
            return catalog.payload_of(Ids.of(ids), names)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the index to one file (rangecast.load_index reads it) and return the file's size."""
        meta, arrays = self._dump()
        return write_arrays(path, meta, arrays)

    def compact(self) -> None:
        """Rebuild the index, which frees the memory of deleted subscriptions."""
        with self._lock:
            self._resume()
            self._check_boxes()
            self._compact(self._catalog)
            self._publish()

    # the rest

    def _new_catalog(self) -> Catalog:
        return Catalog(self.schema, sets=self.sets, expands=self.expands)

    def _publish(self) -> None:
        """Let readers see the writer's state; the end of every write."""
        self._read = InPlaceReading(self._catalog, self)

    def _resume(self) -> None:
        """Go on from the published state, whatever a failed write has left; for who has taken the lock."""
        if self._catalog is not self._read.catalog:
            self._compact(self._read.catalog)
            self._publish()

    def _begin(self) -> None:
        """The same for who is going to change the structure, which must not be one of a file's then."""
        self._resume()
        if self._from_file:
            self._check_boxes()
            self._compact(self._catalog)
            self._publish()

    def _check_boxes(self) -> None:
        """Raise StorageError where a structure cannot be built from the boxes of a file; matches only compare
        them, so loading need not read them for this."""
        if self._from_file:
            if self._catalog.said is not None:
                self._catalog.said.lists.check_values()
            boxes = self._catalog.living().boxes
            hold("that boxes are not empty", bool((boxes.lows <= boxes.highs).all()))

    def _compact(self, source: Catalog) -> None:
        """Rebuild the writer's state from what lives in a catalog."""
        living = self._arranged(source.living().reconciled(self.schema))
        catalog = self._new_catalog()
        catalog.n_updates = source.n_updates
        if len(living):
            catalog.add(living)
            if source.priorities is not None:
                catalog.prioritize(living.ids, source.priorities[source.find(living.ids)])
        # not before: until here a failed write must not look like a finished one
        self._catalog = catalog
        self._reset()
        if len(living):
            self._add(0, catalog.n_boxes)
        self._from_file = False

    def _after_fork(self) -> None:
        self._lock = lock.renewed(self._lock, repr(self))
        lock.renew_counters(self)

    def _settle(self) -> None:
        """After a write: rebuild once more slots are dead than alive."""
        dead = self._catalog.n_slots - self._catalog.n_living
        if dead > self._catalog.n_living + 4096:
            self._compact(self._catalog)

    def _check_capacity(self, subs: Subscriptions) -> None:
        """Raise CapacityError when these subscriptions could not be held."""

    @contextlib.contextmanager
    def _encoded(self, events: Events, entries: bool = False) -> Iterator[tuple[Reading, EventCodes]]:
        """The state that a match reads, and the codes of its events as that sees them."""
        # codes come after the state: a string that one of its subscriptions names must have its code by then
        seen = self._read
        batch = events.encoded(seen.catalog.schema, entries)
        if len(events) > 1:
            self._prepare(batch.codes)
        with self._reading() as reading:
            if reading is not seen:
                batch = events.encoded(reading.catalog.schema, entries)
            yield reading, batch

    def _reading(self) -> contextlib.AbstractContextManager[Reading]:
        return self._locked_reading()

    @contextlib.contextmanager
    def _locked_reading(self) -> Iterator[Reading]:
        with self._lock:
            self._resume()
            yield self._read

    def _frozen(self, arrays: Arrays) -> Arrays:
        """The arrays of a structure as they are now, whatever is written while a file is."""
        return {name: array.copy() for name, array in arrays.items()}

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        with self._lock:
            self._resume()
            structure, arrays = flatten(self._structure())
            arrays = self._frozen(arrays)
            state = self._catalog
        catalog, catalog_arrays = flatten(state.stored(), "catalog")
        meta = {
            "index": self.name,
            "layout": LAYOUT,
            # after the state, whose boxes may have the codes of words that came last
            "schema": self.schema.to_dict(words=True),
            "options": self.options,
            "catalog": catalog,
            "structure": structure,
        }
        if state.priorities is not None:
            arrays = {**arrays, "priorities": state.priorities[: state.n_slots]}
        return meta, {**catalog_arrays, **arrays}

    @classmethod
    def _from_dump(cls, meta: dict[str, Any], arrays: Arrays, schema: Schema | None = None) -> Index:
        index = cls(schema or Schema.from_dict(meta["schema"]), **meta["options"])
        # before layout 3 a catalog had the same arrays and nothing else
        stored = unflatten(CatalogArrays, meta.get("catalog", {"CatalogArrays": {}}), arrays, "catalog")
        taken = Catalog.take(index.schema, stored, sets=cls.sets)
        taken.take_priorities(arrays.get("priorities"))
        layout = meta.get("layout")
        if layout != LAYOUT and any(kind in repr(meta["structure"]) for kind in _CHANGED.get(layout, ("",))):
            # of a version that laid out structures in another way: the subscriptions are there
            index._compact(taken)
        else:
            hold("that boxes are kept as this index reads them", (taken.entries is None) == index.expands)
            kind = get_type_hints(type(index)._structure)["return"]
            index._catalog = taken
            index._take_structure(unflatten(kind, meta["structure"], arrays))
            index._check_structure()
            index._from_file = schema is None
        index._publish()
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), *self._dump(), self.schema)


def _revive(kind: type[Index], meta: dict[str, Any], arrays: Arrays, schema: Schema) -> Index:
    return kind._from_dump(meta, arrays, schema)


# What is asked about one subscription of an index, rather than about events.


def explain_one(
    schema: Schema,
    catalog: Catalog,
    lock: contextlib.AbstractContextManager[Any],
    subscription: Any,
    event: Events | Mapping[str, Any],
) -> Explanation:
    """`Index.explain`: of a subscription of the catalog, or of one that is given outright."""
    events = event if isinstance(event, Events) else Events.from_rows(schema, [event])
    if len(events) != 1:
        raise SubscriptionError(f"explain takes one event, got {len(events)}")
    if isinstance(subscription, Subscriptions):
        if len(subscription) != 1:
            raise SubscriptionError(f"explain takes one subscription, got {len(subscription)}")
        subs = subscription.reconciled(schema)
        text = None if subs.texts is None else subs.texts[0]
        return explain_boxes(subs.schema, subs.ids[0], subs.boxes, events, text)
    wanted = Ids.of([subscription])
    with lock:
        slot = int(catalog.find(wanted)[0])
    if slot < 0:
        raise SubscriptionError(f"no subscription has the id {subscription!r}")
    return explain_boxes(schema, subscription, catalog.boxes_of(slot), events, catalog.text_of(slot))


# Subscriptions whose conditions use more hidden attributes than an index has (types/derived.py).
#
# An index has the schema that it was made with, and its structures as many dimensions. When it gets a wider
# one, another index is made of all its boxes, and the first becomes it; whoever is matching goes on with what
# was published before.


def taken_over(index: Index, subs: Subscriptions) -> Subscriptions:
    """Subscriptions as an index takes them, made as wide as they are; for whoever has the index's lock."""
    subs = subs.reconciled(index.schema)
    if len(subs.schema) > len(index._catalog.schema):
        wide = type(index)(subs.schema, **index.options)
        wide._compact(index._catalog)
        index.__dict__.update(wide.__dict__ | {"_lock": index._lock, "_read": index._read})
        index._publish()
    return subs
