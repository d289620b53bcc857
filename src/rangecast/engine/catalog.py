"""Who is in an index: ids, slots and boxes, append-only until it is compacted.

    array         dtype   shape             meaning
    ids           Ids     n_slots           the id of each slot
    alive         uint8   n_slots           0 once the slot was deleted or replaced
    overlapping   uint8   n_slots           1 when two boxes of the slot share a point
    first_boxes   int64   n_slots + 1       the boxes of slot s are first_boxes[s] .. first_boxes[s + 1]
    box_slots     int32   >= n_boxes        the slot of each box
    entries       BoxEntries                the bounds of the boxes (boxes.py)
    lows, highs   int64   (d, >= n_boxes)   instead of entries, where a structure needs boxes expanded
    said          SaidBoxes                 the boxes of slots with sets (catalog.py), or None; the boxes
                                            above are pieces of those
    table         int32   power of two      hash table from id to slot (model/ids.py)
    beside        UserColumns  <= n_slots   what users gave beside the boxes (model/user_columns.py); never
                                            matched

With entries, what says nothing takes no room: ids that count up are the first of them, and are found without
a table; `alive` is there once a slot was deleted, `overlapping` once
two boxes overlap, `first_boxes` and `box_slots` once a slot has no box or several; before, a box has the
number of its slot.

A slot is an index's own number for one version of one subscription: replacing an id gives it a new
slot. What is written is never changed: arrays are replaced by larger ones when full, and `alive` by a copy
when slots die. So a reader that holds the arrays of one moment can go on reading them.

A writer changes a `draft`, which shares the arrays and writes behind what the other one uses. When it fails,
the draft is forgotten, and the next one writes to the same places. Only the hash table is changed in place:
a draft takes it away from the catalog that it comes from, which makes another if it is asked again. So `find`
is for whoever holds the writer's lock.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.engine import boxes_kernels as place_kernels
from rangecast.engine.boxes import (
    BoxEntries,
    Boxes,
    EntryArrays,
    ExpandedBoxes,
    Listing,
    ListStore,
    choose_led,
    follow_each_other,
    grown,
    measure_sets,
    with_writable_room,
    without_listed,
)
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.errors import CapacityError, SubscriptionError
from rangecast.language import kernels
from rangecast.language.kernels import SET, ListedValues
from rangecast.model import boxes as sparse
from rangecast.model.boxes import DenseBoxes, SparseBoxes
from rangecast.model.ids import Ids, IdTable
from rangecast.model.one_event import EventPlan
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import UserColumns, unpacked
from rangecast.types.attributes import LAST, Codes
from rangecast.types.kernels import RegionArrays
from rangecast.types.patterns import HELD
from rangecast.types.places import joined
from rangecast.types.schema import Schema

if TYPE_CHECKING:
    from rangecast.engine.answers import Rows

_NONE = np.empty(0, np.int64)


class CatalogArrays(NamedTuple):
    """What a file holds of a catalog. Files of every version have these names, or they could not be read."""

    id_values: npt.NDArray[np.int64] | None
    id_starts: npt.NDArray[np.int64] | None
    id_letters: npt.NDArray[np.uint8] | None
    alive: npt.NDArray[np.uint8] | None = None
    overlapping: npt.NDArray[np.uint8] | None = None
    first_boxes: npt.NDArray[np.int64] | None = None
    lows: npt.NDArray[np.int64] | None = None
    highs: npt.NDArray[np.int64] | None = None
    box_slots: npt.NDArray[np.int32] | None = None
    said: SaidArrays | None = None
    entries: EntryArrays | None = None
    n_slots: int | None = None
    first_id: int | None = None
    texts: npt.NDArray[np.uint8] | None = None
    """These are last: who maps a file to match reads up to here."""
    payload: npt.NDArray[np.uint8] | None = None


class BoundAttributes:
    """The attributes that boxes of a catalog have bounded so far, and the trait bundles that they have named.

    Indexes share a schema, and with it hidden attributes: by this, one event is asked only for what the
    subscriptions of its own index need (model/one_event.py). It never shrinks, and drafts share it, so that
    it has at least what each of them bounds.
    """

    def __init__(self, positions: Iterable[int] = (), bundles: set[int] | None = None) -> None:
        self.positions = set(positions)
        self.bundles = bundles
        """The codes of the bundles, None where any may be meant."""

    def note(self, subs: Subscriptions) -> None:
        """Take note of what subscriptions bound."""
        n = len(subs.schema)
        first = subs.schema.hidden_position(HELD)
        bundled = first is not None and first < n
        if subs._sparse is None:
            # to read dense boxes for this would take longer than what it saves
            self.positions.update(range(n))
            self.bundles = None if bundled else self.bundles
        elif bundled or len(self.positions) < n:
            boxes = subs.boxes
            attributes = boxes.attributes & ~np.int32(SET)
            self.positions.update(np.flatnonzero(np.bincount(attributes, minlength=n)).tolist())
            if first is not None and self.bundles is not None:
                own = [np.flatnonzero(attributes == first + k) for k in range(3)]
                last = len(subs.schema.traits.vocabulary)
                # a bundle that holds is its code; one that does not is beside the two ends of a gap
                for low, high in zip(boxes.lows[own[0]].tolist(), boxes.highs[own[0]].tolist(), strict=True):
                    self.bundles.update(range(max(low, 1), min(high, last) + 1))
                self.bundles.update((boxes.highs[own[1]] + 1).tolist(), (boxes.lows[own[2]] - 1).tolist())


class Catalog:
    """The subscriptions of one index."""

    def __init__(
        self, schema: Schema, *, sets: str = "cut", expands: bool = True, compares: bool = False
    ) -> None:
        """An empty catalog; `sets` says how boxes with sets are kept (index.py), with expands=False bounds
        are kept by entry, and where it compares boxes regions stay what they are."""
        self.schema = schema
        self.entries = None if expands else BoxEntries(len(schema))
        self._single = not expands
        """Whether a box has the number of its slot, and first_boxes and box_slots are not there."""
        self._sets, self._compares = sets, compares
        self.said: SaidBoxes | None = None
        self.n_slots = 0
        self.n_boxes = 0
        self.n_living = 0
        self.n_living_boxes = 0
        self.n_overlapping = 0
        self.n_updates = 0
        self._values: npt.NDArray[Any] = np.empty(0, np.int64)
        self._letters: npt.NDArray[Any] = np.empty(0, np.uint8)
        self._textual = False
        self._first_id: int | None = None
        """What ids count up from, and are not kept."""
        self._alive: npt.NDArray[np.uint8] | None = np.empty(0, np.uint8) if expands else None
        self._overlapping: npt.NDArray[np.uint8] | None = np.empty(0, np.uint8) if expands else None
        self.first_boxes: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self.lows: npt.NDArray[np.int64] = np.empty((len(schema), 0), np.int64)
        self.highs: npt.NDArray[np.int64] = np.empty((len(schema), 0), np.int64)
        self.box_slots: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self.priorities: npt.NDArray[np.float64] | None = None
        """What `match(limit=k)` chooses by, of each slot, once a subscription came with a priority."""
        self._table: IdTable | None = None
        self._beside = UserColumns(0, None, {})
        self.bound = BoundAttributes(bundles=set())
        self.plan: EventPlan | None = None
        """What encodes one event for these subscriptions, once somebody has asked for it."""

    def draft(self) -> Catalog:
        """The same subscriptions in a catalog that may be changed while readers go on with this one."""
        out = Catalog.__new__(Catalog)
        out.__dict__.update(self.__dict__)
        out.said = copy.copy(self.said)
        out.entries = None if self.entries is None else self.entries.draft()
        self._table = None
        return out

    def make_plan(self) -> EventPlan:
        """Make the plan for one event."""
        self.plan = plan = EventPlan(self.schema, frozenset(self.bound.positions), self.bound.bundles)
        return plan

    @property
    def alive(self) -> npt.NDArray[np.uint8]:
        """1 for each slot that lives."""
        return np.ones(self.n_slots, np.uint8) if self._alive is None else self._alive

    @property
    def overlapping(self) -> npt.NDArray[np.uint8]:
        """1 for each slot of which two boxes share a point."""
        return np.zeros(self.n_slots, np.uint8) if self._overlapping is None else self._overlapping

    def box_ranges(self, slots: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the boxes of some slots begin and end."""
        if self._single:
            return slots.astype(np.int64), slots.astype(np.int64) + 1
        return self.first_boxes[slots], self.first_boxes[slots + 1]

    def slot_of(self, box: int) -> int:
        """The slot of a box, or the next one to come for the next box."""
        return self.n_slots if box >= self.n_boxes else box if self._single else int(self.box_slots[box])

    def living_boxes(self, first: int, last: int) -> npt.NDArray[np.int64]:
        """The numbers of the boxes first..last whose slot lives."""
        if self.n_living == self.n_slots:
            return np.arange(first, last)
        if self._single:
            return np.flatnonzero(self.alive[first:last]) + first
        return np.flatnonzero(self.alive[self.box_slots[first:last]]) + first

    @property
    def ids(self) -> Ids:
        """The ids of all slots."""
        if self._textual:
            return Ids(None, self._values[: self.n_slots + 1], self._letters)
        if self._first_id is not None:
            return Ids.counting(self._first_id, self.n_slots)
        return Ids(self._values[: self.n_slots])

    @property
    def boxes(self) -> Boxes:
        """The box arrays as they are now."""
        if self.entries is None:
            return ExpandedBoxes(self.lows, self.highs, self.box_slots, self.n_boxes)
        lists = None if self.said is None or not len(self.said.lists) else self.said.lists.arrays
        return Boxes(self.entries.arrays(self.box_slots), lists)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in use."""
        return sum(self.sizes().values())

    def sizes(self) -> dict[str, int]:
        """Bytes of each array in use, those that take none left out."""
        n, m = self.n_slots, self.n_boxes
        bounds = {"bounds": 16 * len(self.schema) * m} if self.entries is None else self.entries.sizes()
        several = {} if self._single else {"first_boxes": 8 * (n + 1), "box_slots": 4 * m}
        sizes = {
            "ids": self.ids.nbytes,
            "id_table": self._table.nbytes if self._table else 0,
            "alive": 0 if self._alive is None else n,
            "overlapping": 0 if self._overlapping is None else n,
            **several,
            **bounds,
            "sets": 0 if self.said is None else self.said.nbytes,
        }
        return {name: size for name, size in sizes.items() if size}

    @property
    def table(self) -> IdTable:
        """The hash table, made when it is first needed: a mapped index that only matches needs none."""
        if self._table is None:
            ids = self.ids
            self._table = IdTable(ids.head(0)).extended(ids, self.alive)
        return self._table

    def find(self, ids: Ids) -> npt.NDArray[np.int32]:
        """The living slot of each id, -1 where there is none."""
        slots = self.table.find(ids) if self._first_id is None else self.ids.places_of(ids)
        if len(slots):
            if self.n_living == self.n_slots and self.n_slots:
                return slots
            gone = (slots >= 0) & (self.alive[np.maximum(slots, 0)] == 0) if self.n_slots else slots >= 0
            slots[gone] = -1
        return slots

    def kill(self, slots: npt.NDArray[np.int32]) -> None:
        """Mark living slots as gone."""
        # a copy, for readers: 50 us per million slots
        alive = self.alive.copy()
        alive[slots] = 0
        self._alive = alive
        self.n_living -= len(slots)
        firsts, ends = self.box_ranges(slots)
        self.n_living_boxes -= int((ends - firsts).sum())
        if self._overlapping is not None:
            self.n_overlapping -= int(self._overlapping[slots].sum())

    def check(self, subs: Subscriptions) -> None:
        """Raise unless these subscriptions can be added."""
        most = 2**31 - 2
        if self.n_slots + len(subs) > most or self.n_boxes + subs.n_boxes > most:
            raise CapacityError(f"an index holds at most {most:,} subscriptions and boxes; split the set")
        if self.n_slots and subs.ids.textual != self._textual:
            word = ("whole numbers", "strings")[self._textual]
            raise SubscriptionError(f"the ids of this index are {word}, got {subs.ids[0]!r}")

    def add(self, subs: Subscriptions) -> None:
        """Append subscriptions that were checked; their ids must not be alive here."""
        n, m, k = self.n_slots, self.n_boxes, len(subs)
        self.bound.note(subs)
        if self.plan is not None and not self.plan.reads(self.bound.positions, self.bound.bundles):
            self.plan = None
        cuts = {"cuts": self._sets != "hulls", "lists": self._sets == "listed"}
        pieces = into_pieces(subs, expands=self.entries is None, compares=self._compares, **cuts)
        n_pieces = len(owners := pieces.bounds.owners)
        if self.entries is not None and isinstance(pieces.bounds, DenseBoxes):
            self.entries.add_dense(pieces.bounds)
        elif isinstance(pieces.bounds, DenseBoxes):
            lows, highs, _ = pieces.bounds
            if n == 0 and m == 0:
                # one bulk load: take its arrays as they are, without a copy
                self.lows, self.highs = lows, highs
            else:
                self.lows = grown(self.lows, m, m + n_pieces)
                self.highs = grown(self.highs, m, m + n_pieces)
                self.lows[:, m : m + n_pieces] = lows
                self.highs[:, m : m + n_pieces] = highs
        elif self.entries is not None:
            self.entries.add(pieces.bounds)
        self._append_ids(subs.ids, n)
        self._append_owners(owners, k)
        if self._alive is not None:
            self._alive = grown(self._alive, n, n + k)
            self._alive[n : n + k] = 1
        if self._overlapping is None and bool(pieces.overlapping.any()):
            self._overlapping = np.zeros(n, np.uint8)
        if self._overlapping is not None:
            self._overlapping = grown(self._overlapping, n, n + k)
            self._overlapping[n : n + k] = pieces.overlapping
        self.n_slots += k
        self.n_boxes += n_pieces
        self.n_living += k
        self.n_living_boxes += n_pieces
        self.n_overlapping += int(pieces.overlapping.sum())
        if pieces.checked is not None:
            self.said = self.said or SaidBoxes()
            self.said.add(subs, n, pieces, m)
        if subs.beside:
            self._beside = UserColumns.concat([self._beside.padded(n), subs.beside.kept()])
        if self._table is not None:
            self._table = None if self._first_id is not None else self._table.extended(self.ids, self.alive)

    def prioritize(self, ids: Ids, values: npt.NDArray[np.float64] | None) -> None:
        """Give the subscriptions that were added last their priorities: 0 by default."""
        if values is None and self.priorities is None:
            return
        n = self.n_slots
        first = n - len(ids)
        before = np.zeros(first) if self.priorities is None else self.priorities
        self.priorities = grown(before, first, n)
        self.priorities[first:n] = 0.0
        if values is not None:
            self.priorities[self.find(ids)] = values

    def take_priorities(self, stored: npt.NDArray[np.float64] | None) -> None:
        """Take the priorities of a file, if it has any."""
        if stored is not None:
            shaped("priorities", stored, self.n_slots)
        self.priorities = stored

    def _append_owners(self, owners: npt.NDArray[np.int32], k: int) -> None:
        """Take note of which of k new slots has each of the boxes that were added."""
        n, m, n_pieces = self.n_slots, self.n_boxes, len(owners)
        if self._single:
            if n_pieces == k and (not k or (owners[0] == 0 and follow_each_other(owners))):
                return
            self._single = False
            self.box_slots, self.first_boxes = np.arange(m, dtype=np.int32), np.arange(n + 1)
        self.box_slots = grown(self.box_slots, m, m + n_pieces)
        self.box_slots[m : m + n_pieces] = owners + np.int32(n)
        self.first_boxes = grown(self.first_boxes, n + 1, n + k + 1)
        self.first_boxes[n + 1 : n + k + 1] = m + np.cumsum(np.bincount(owners, minlength=k))

    def _append_ids(self, ids: Ids, n: int) -> None:
        if n == 0:
            self._textual = ids.textual
            counts = self.entries is not None and ids.counts_up()
            self._first_id = int(ids[0]) if counts else None
            self._values = _NONE if counts else ids.starts if ids.textual else ids.values
            self._letters = ids.letters
        elif self._textual:
            used = int(self._values[n])
            more = int(ids.starts[-1])
            self._letters = grown(self._letters, used, used + more)
            self._letters[used : used + more] = ids.letters[:more]
            self._values = grown(self._values, n + 1, n + 1 + len(ids))
            self._values[n + 1 : n + 1 + len(ids)] = ids.starts[1:] + used
        elif len(ids) and (
            self._first_id is None or int(ids[0]) != self._first_id + n or not ids.counts_up()
        ):
            self._values = grown(self.ids.values, n, n + len(ids))
            self._values[n : n + len(ids)] = ids.values
            self._first_id = None

    def id_base(self, first: int, last: int) -> int | None:
        """What makes ids of the slots of some boxes when added, where that is the same for all."""
        if self._textual or first == last:
            return None
        if self._first_id is not None:
            return self._first_id if -(2**62) < self._first_id < 2**62 else None
        a, b = (first, last - 1) if self._single else self.box_slots[[first, last - 1]].tolist()
        values = self._values[a : b + 1]
        base = int(values[0]) - a
        # compared as unsigned, whose differences do not overflow
        steps = np.diff(values.view(np.uint64))
        return base if bool((steps == 1).all()) and -(2**62) < base < 2**62 else None

    def box_numbers(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """The numbers of the boxes of some slots, without going through those of others."""
        starts, ends = self.box_ranges(slots)
        counts = ends - starts
        return np.repeat(ends - np.cumsum(counts), counts) + np.arange(int(counts.sum()))

    def boxes_of(self, slot: int) -> SparseBoxes:
        """The boxes of a slot, as they were said; their owner is 0."""
        if self.said is not None:
            numbers, owners = self.said.of_slots(np.array([slot]))
            if len(numbers):
                return self.said.select(numbers, owners.astype(np.int32))
        firsts, ends = self.box_ranges(np.array([slot]))
        numbers = np.arange(int(firsts[0]), int(ends[0]))
        return self.boxes.entries(numbers, np.zeros(len(numbers), np.int32))

    def beside_of(self, slots: npt.NDArray[Any]) -> UserColumns:
        """What users gave beside the boxes of some slots."""
        return self._beside.padded(self.n_slots).select(slots)

    def payload_of(self, ids: Ids, names: Sequence[str] | None) -> pa.Table:
        """Columns of the users' own, a row for each of these ids; null where an id is not here."""
        slots = self.find(ids).astype(np.int64)
        beside = self._beside.padded(self.n_slots + 1)  # the last row has nothing
        return beside.table(names, np.where(slots < 0, self.n_slots, slots))

    def text_of(self, slot: int) -> str | None:
        """What was written for a slot; reads no more than the block that it is in."""
        texts = self._beside.texts
        return None if texts is None or slot >= len(texts) else texts[slot]

    @property
    def text_bytes(self) -> int:
        """Bytes of the texts and the payload, which no match reads."""
        return self._beside.nbytes

    def living(self) -> Subscriptions:
        """All living subscriptions, in the order of their slots."""
        slots = np.flatnonzero(self.alive[: self.n_slots])
        beside = self.beside_of(slots)
        if self.said is not None:
            return self._living_with_sets(slots, beside, self.said)
        if self.entries is not None:
            ids = self.ids if len(slots) == self.n_slots else self.ids.select(slots)
            numbers = self.living_boxes(0, self.n_boxes)
            boxes = self.boxes.entries(numbers, self._ranks(numbers))
            return Subscriptions.of_boxes(self.schema, ids, boxes, texts=beside)
        own = self.box_slots[: self.n_boxes]
        if self.n_boxes == self.n_slots and not bool((own[1:] == own[:-1]).any()):
            chosen: Any = slice(self.n_slots) if len(slots) == self.n_slots else slots
            ids = self.ids if len(slots) == self.n_slots else self.ids.select(slots)
            lows, highs = self.lows[:, chosen], self.highs[:, chosen]
            return Subscriptions(self.schema, ids, lows, highs, texts=beside)
        numbers = np.flatnonzero(self.alive[self.box_slots[: self.n_boxes]])
        rank = np.cumsum(self.alive[: self.n_slots], dtype=np.int64) - 1
        owners = rank[self.box_slots[numbers]].astype(np.int32)
        if len(slots) == self.n_slots:
            lows, highs = self.lows[:, : self.n_boxes], self.highs[:, : self.n_boxes]
            return Subscriptions(self.schema, self.ids, lows, highs, owners, texts=beside)
        ids, lows, highs = self.ids.select(slots), self.lows[:, numbers], self.highs[:, numbers]
        return Subscriptions(self.schema, ids, lows, highs, owners, texts=beside)

    def _ranks(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The place of the slot of each box among the living ones."""
        slots = numbers if self._single else self.box_slots[numbers]
        rank = np.cumsum(self.alive[: self.n_slots], dtype=np.int64) - 1
        return rank[slots].astype(np.int32)

    def _living_with_sets(
        self, slots: npt.NDArray[np.int64], beside: UserColumns, said: SaidBoxes
    ) -> Subscriptions:
        numbers, with_sets = said.of_slots(slots)
        plain = np.ones(self.n_slots, bool)
        plain[slots[with_sets]] = False
        others = self.living_boxes(0, self.n_boxes)
        others = others[plain[others if self._single else self.box_slots[others]]]
        rest = self.boxes.entries(others, self._ranks(others))
        chosen = said.select(numbers, with_sets.astype(np.int32))
        boxes = sparse.merge(rest, chosen) if len(others) else chosen
        return Subscriptions.of_boxes(self.schema, self.ids.select(slots), boxes, texts=beside)

    def _check(self) -> None:
        """Raise StorageError unless ids, slots and boxes fit together."""
        n, m = self.n_slots, self.n_boxes
        if self._textual:
            ascending("starts of ids", self._values, len(self._letters), n + 1)
            if self._letters.size and int(self._letters.max()) >= 128:
                self.ids.arrow().validate(full=True)
        elif self._first_id is None:
            shaped("ids", self._values, n)
        else:
            hold("that ids are of 64 bits", -(2**63) <= self._first_id <= 2**63 - max(n, 1))
        hold("that texts and payload are of subscriptions", self._beside.n <= n)
        for name, flags in (("alive", self.alive), ("overlapping", self.overlapping)):
            shaped(name, flags, n)
            within(name, flags, 2)
        if self.entries is None:
            shaped("lows", self.lows, len(self.schema), m)
            shaped("highs", self.highs, len(self.schema), m)
        if self._single:
            hold("that each slot has a box", n == m)
        else:
            ascending("first boxes", self.first_boxes, m, n + 1)
            hold("that boxes have slots", int(self.first_boxes[0]) == 0 and int(self.first_boxes[-1]) == m)
            shaped("slots of boxes", self.box_slots, m)
            within("slots of boxes", self.box_slots, n)
        if self.said is not None:
            self.said.check(len(self.schema), n, m)

    def stored(self) -> CatalogArrays:
        """What a file holds of it."""
        n, m = self.n_slots, self.n_boxes
        beside = self._beside.padded(n)
        return CatalogArrays(
            id_values=None if self._textual or self._first_id is not None else self._values[:n],
            id_starts=self._values[: n + 1] if self._textual else None,
            id_letters=self._letters[: self._values[n]] if self._textual else None,
            alive=None if self._alive is None else self._alive[:n],
            overlapping=None if self._overlapping is None else self._overlapping[:n],
            first_boxes=None if self._single else self.first_boxes[: n + 1],
            lows=self.lows[:, :m] if self.entries is None else None,
            highs=self.highs[:, :m] if self.entries is None else None,
            box_slots=None if self._single else self.box_slots[:m],
            entries=None if self.entries is None else self.entries.stored(),
            n_slots=n,
            first_id=self._first_id,
            texts=None if beside.texts is None else beside.texts.pack(),
            said=None if self.said is None else self.said.stored(n),
            payload=beside.pack_payload(),
        )

    @classmethod
    def take(cls, schema: Schema, arrays: CatalogArrays, *, sets: str = "cut") -> Catalog:
        """A catalog of stored arrays, which it takes as they are, expanded or by entry."""
        out = cls(schema, sets=sets, expands=arrays.entries is None)
        # to read all boxes of a file for this would take longer than to map it
        out.bound = BoundAttributes(range(len(schema)))
        out.said = None if arrays.said is None else SaidBoxes(arrays.said)
        if arrays.id_starts is not None and arrays.id_letters is not None:
            out._textual = True
            out._values, out._letters = arrays.id_starts, arrays.id_letters
        elif arrays.id_values is not None:
            out._values = arrays.id_values
        else:
            out._first_id = arrays.first_id
        out._alive, out._overlapping = arrays.alive, arrays.overlapping
        if arrays.first_boxes is not None and arrays.box_slots is not None:
            out.first_boxes, out.box_slots = arrays.first_boxes, arrays.box_slots
            out._single = False
        if arrays.entries is not None:
            out.entries = BoxEntries.take(arrays.entries, len(schema))
        elif arrays.lows is not None and arrays.highs is not None:
            out.lows, out.highs = arrays.lows, arrays.highs
        # files of before there were texts or payload have none
        out._beside = unpacked(arrays.texts, arrays.payload, resident=False)
        # before layout 4 a catalog had all arrays, and did not say how long they are
        out.n_slots = len(out.alive) if arrays.n_slots is None else arrays.n_slots
        hold("that slots are counted", out.n_slots >= 0)
        out.n_boxes = len(out.box_slots) if out.entries is None else out.entries.n
        out._check()
        out.n_living = int(out.alive.sum())
        out.n_living_boxes = len(out.living_boxes(0, out.n_boxes))
        out.n_overlapping = int((out.overlapping & out.alive).sum())
        return out


# The boxes of subscriptions with sets, as they were said: beside the pieces that layouts are made of.
#
# Layouts know one interval per attribute (engine/boxes_kernels.py). A box with sets goes to them in pieces,
# cut along one set at most where all would be many: an IN list is a piece per value, and other sets are their
# hulls. So the pieces of a box hold all that the box holds, and sometimes more; a slot whose pieces hold more
# is *checked*: what a layout finds of it is compared with its boxes here (`drop_unheld` in
# language/kernels.py).
#
# `auto` does not cut a box along a long list of values: the list is kept beside the boxes (boxes.py),
# and may lead the box. Where nothing else is left to be said, its slot is checked only as long as it is in no
# layout.
#
# `scan` cuts along all sets or none: where all would be many pieces a box is its hull, and its slot is
# checked.
#
#    array     type          shape           meaning
#    boxes     SparseBoxes   >= n_boxes      the boxes of all slots that have sets; owners are slots
#    checks    int32         >= n_slots      0 where the slot is not checked, otherwise 1 more than the number
#                                            of its first box; negative where layouts by lists say all
#    lists     ListedValues  <= n_sets       long lists of values; their sets have no spans
#
# The arrays grow at their ends and are replaced by larger ones when full, as those of the catalog are.

FEW = 16
"""Into so many pieces a box is cut along all its sets: they cost no more than a check of what is found."""

MOST = 1 << 22
"""How many entries the pieces of a box may have together; with more it is its hull, and checked."""


class SaidArrays(NamedTuple):
    """What a file holds of them."""

    boxes: SparseBoxes
    checks: npt.NDArray[np.int32]
    lists: ListedValues | None = None


class BoxPieces(NamedTuple):
    """Boxes as layouts take them; which subscriptions they hold more than (2: than lists that lead them say),
    which may be found twice, and the sets that are lists."""

    bounds: DenseBoxes | SparseBoxes
    checked: npt.NDArray[np.uint8] | None
    overlapping: npt.NDArray[np.uint8]
    listing: Listing | None = None


def into_pieces(
    subs: Subscriptions, *, cuts: bool, expands: bool, compares: bool = False, lists: bool = False
) -> BoxPieces:
    """The boxes of subscriptions in pieces, dense if they are expanded; without cuts, only where few of them
    say all. Whoever compares boxes with boxes, and not with events, has regions as they were named. With
    lists, a box is not cut along a long list of values, which may lead it instead."""
    covered = None if compares else without_regions(subs)
    if covered is not None:
        # sets of what is left are not those of the boxes as they were said, which lists are named by
        found = into_pieces(covered[0], cuts=cuts, expands=expands)
        marked = covered[1] if found.checked is None else covered[1] | found.checked
        return found._replace(checked=marked)
    if not subs.has_sets:
        # as they are there: by entry and dense at once they would take the room of both
        bounds = subs.dense() if expands or subs._sparse is None else subs.boxes
        return BoxPieces(bounds, None, subs.overlapping())
    boxes, d, n = subs.boxes, len(subs.schema), len(subs)
    sizes = measure_sets(boxes) if lists else np.zeros(len(boxes.sets), np.int64)
    chosen, leads = np.zeros(len(boxes.sets), np.uint8), np.zeros(len(boxes.sets), np.uint8)
    of_boxes = np.empty(len(boxes.owners), np.uint8)
    ends = d if expands else max(1, int(np.diff(boxes.starts).max(initial=0)))
    most = max(FEW, MOST // ends) if cuts else 0
    kernels.choose_cuts(boxes, FEW, most, sizes, choose_led(boxes, sizes), chosen, leads, of_boxes)
    checked = np.zeros(n, np.uint8)
    checked[boxes.owners[of_boxes == 2]] = 2
    checked[boxes.owners[of_boxes == 1]] = 1
    # hulls may meet where sets do not, and then the slot would be found, and hold, twice
    overlapping = subs.overlapping() | (sparse.flag_overlapping(boxes, n, by_hulls=True) & (checked != 0))
    listed = np.flatnonzero(sizes)
    listing = None
    if len(listed):
        own = np.searchsorted(boxes.starts, boxes.sets[listed], "right") - 1
        firsts = sparse.starts_of(sparse.count_pieces(boxes, chosen).astype(np.int64))
        listing = Listing(listed, sizes[listed], np.where(leads[listed] == 1, firsts[own], -1))
    bounds = sparse.cut(boxes, d, chosen)[0] if expands else sparse.cut_entries(boxes, chosen)
    return BoxPieces(bounds, checked, overlapping, listing)


class SaidBoxes:
    """Boxes with sets, by slot."""

    def __init__(self, arrays: SaidArrays | None = None) -> None:
        empty = np.empty(0, np.int64)
        none = SparseBoxes(
            np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int32), empty, empty, empty,
            np.zeros(1, np.int64), empty, empty,
        )  # fmt: skip
        held = SaidArrays(none, np.empty(0, np.int32)) if arrays is None else arrays
        self._boxes, self._checks = held.boxes, held.checks
        self.lists = ListStore(held.lists)
        self._used = [len(array) for array in _columns(self._boxes)]
        self._n_slots = len(self._checks)
        self.any_checked = bool((self._checks > 0).any())
        listed = np.flatnonzero(self._checks < 0)
        self._last_led = int(listed[-1]) if len(listed) else -1
        self._regions = np.zeros(0, np.int32)
        self._n_regions = self._n_looked_at = 0
        self._bits = np.zeros(0, np.uint8)
        self._n_bits = 0

    def check(self, n_attributes: int, n_slots: int, n_boxes: int) -> None:
        """Raise StorageError unless kernels stay within entries, sets and slots."""
        b = self._boxes
        shaped("checks of slots", self._checks, n_slots)
        within("checks of slots", self._checks, len(b.owners) + 1, -len(b.owners))
        within("owners of boxes with sets", b.owners, n_slots)
        hold("that boxes with sets stand by slots", (b.owners[1:] >= b.owners[:-1]).all())
        n, n_spans = len(b.lows), len(b.set_lows)
        ascending("starts of entries", b.starts, n, len(b.owners) + 1)
        for name, array in (("attributes", b.attributes), ("highs of entries", b.highs)):
            shaped(name, array, n)
        within("attributes of entries", b.attributes & ~np.int32(SET), n_attributes)
        within("entries with sets", b.sets, n)
        marked = np.flatnonzero(b.attributes & np.int32(SET))
        hold("that entries with sets are marked", np.array_equal(marked, b.sets))
        ascending("starts of sets", b.set_starts, n_spans, len(b.sets) + 1)
        shaped("highs of sets", b.set_highs, n_spans)
        self.lists.check(len(b.sets), n_attributes, n_boxes)

    @property
    def boxes(self) -> SparseBoxes:
        """The boxes as they are now."""
        columns = zip(_columns(self._boxes), self._used, strict=True)
        return SparseBoxes(*(array[:n] for array, n in columns))

    def needs_checks(self, tail: int) -> bool:
        """Whether some slot is checked when those from `tail` on are in no layout."""
        return self.any_checked or self._last_led >= tail

    def checks(self, n_slots: int) -> npt.NDArray[np.int32]:
        """Which of all slots are checked, and by the boxes from which number on."""
        self._pad(n_slots)
        return self._checks[:n_slots]

    def checked_bits(self, n_slots: int) -> npt.NDArray[np.uint8]:
        """A bit for each slot, the lowest of a byte first: whether it is checked."""
        first, last = self._n_bits >> 3, (n_slots + 7) >> 3
        if self._n_bits < n_slots:
            # the byte that was begun is written anew as it is, for whoever reads it meanwhile
            self._bits = with_writable_room(self._bits, first + 1 if self._n_bits & 7 else first, last)
            self._bits[first:last] = np.packbits(self.checks(n_slots)[8 * first :] != 0, bitorder="little")
            self._n_bits = n_slots
        return self._bits[:last]

    def lone_regions(self, n_slots: int, position: int) -> npt.NDArray[np.int32]:
        """The code of the region that a slot asks of an attribute of points, if the region alone says whether
        what was found of the slot holds: it has one box, without sets, whose pieces say all the rest. 0 for
        any other slot."""
        if self._n_regions < n_slots:
            self._regions = with_writable_room(self._regions, self._n_regions, n_slots)
            self._regions[self._n_regions : n_slots] = 0
            self._n_regions = n_slots
        b, first = self.boxes, self._n_looked_at
        if first < len(b.owners):
            owners, starts = b.owners[first:], b.starts[first:]
            entries = slice(int(starts[0]), int(starts[-1]))
            attributes, lows, highs = b.attributes[entries], b.lows[entries], b.highs[entries]
            asked = (attributes == position) & (lows == highs) & (lows >= 1) & (lows < LAST)
            asked &= lows < 1 << 31
            n_asked, n_sets = (
                np.diff(sparse.starts_of(flags)[starts - starts[0]])
                for flags in (asked, attributes & SET != 0)
            )
            alone = np.bincount(owners - owners[0])[owners - owners[0]] == 1
            chosen = np.flatnonzero(alone & (n_asked == 1) & (n_sets == 0))
            codes = lows[asked][(sparse.starts_of(asked)[starts - starts[0]])[chosen]]
            self._regions[owners[chosen]] = codes
            self._n_looked_at = len(b.owners)
        return self._regions[:n_slots]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in use."""
        derived = self._regions.nbytes + self._bits.nbytes
        own = sum(array.nbytes for array in _columns(self.boxes)) + self.lists.nbytes
        return own + 4 * self._n_slots + derived

    def add(self, subs: Subscriptions, first: int, pieces: BoxPieces, first_box: int) -> None:
        """Take the boxes of those of the subscriptions that have sets or are checked; row 0 has the slot
        `first`, and the first of their pieces is box `first_box`."""
        boxes, checked = subs.boxes, pieces.checked
        assert checked is not None
        if pieces.listing is not None:
            # every box with a set is taken, so sets stay in their order
            self.lists = self.lists.add(boxes, pieces.listing, len(self.boxes.sets), first_box)
            boxes = without_listed(boxes, pieces.listing.sets)
        rows = checked.astype(bool)
        rows[boxes.owners[np.searchsorted(boxes.starts, boxes.sets, "right") - 1]] = True
        numbers = np.flatnonzero(rows[boxes.owners])
        owners = boxes.owners[numbers]
        found = np.flatnonzero(checked)
        firsts = self._used[0] + 1 + np.searchsorted(owners, found)
        self._append(sparse.select(boxes, numbers, owners + np.int32(first)))
        self._pad(first + len(subs))
        led = checked[found] == 2
        self._checks[first + found] = np.where(led, -firsts, firsts)
        self._n_bits = min(self._n_bits, first)
        self.any_checked |= bool((~led).any())
        if led.any():
            self._last_led = first + int(found[led][-1])

    def select(self, numbers: npt.NDArray[np.int64], owners: npt.NDArray[np.int32]) -> SparseBoxes:
        """Some boxes as they were said, with the owners that they get."""
        b = self.boxes
        chosen = sparse.select(b, numbers, owners)
        entries = sparse.ragged(b.starts, numbers)[chosen.sets]
        return self.lists.restored(chosen, np.searchsorted(b.sets, entries))

    def of_slots(self, slots: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The numbers of the boxes of some slots (ascending), and for each which of these slots has it."""
        owners = self.boxes.owners
        firsts, ends = np.searchsorted(owners, slots), np.searchsorted(owners, slots, "right")
        numbers = sparse.ragged(np.stack([firsts, ends], axis=1).ravel(), 2 * np.arange(len(slots)))
        return numbers, np.repeat(np.arange(len(slots)), ends - firsts)

    def stored(self, n_slots: int) -> SaidArrays:
        """What a file holds of it."""
        return SaidArrays(self.boxes, self.checks(n_slots), self.lists.arrays if len(self.lists) else None)

    def _append(self, more: SparseBoxes) -> None:
        n_entries, n_spans = len(self.boxes.lows), len(self.boxes.set_lows)
        moved = more._replace(
            starts=more.starts[1:] + n_entries,
            sets=more.sets + n_entries,
            set_starts=more.set_starts[1:] + n_spans,
        )
        arrays, counts = [], []
        for array, n, new in zip(_columns(self._boxes), self._used, _columns(moved), strict=True):
            arrays.append(with_writable_room(array, n, n + len(new)))
            arrays[-1][n : n + len(new)] = new
            counts.append(n + len(new))
        self._boxes, self._used = SparseBoxes(*arrays), counts

    def _pad(self, n_slots: int) -> None:
        if n_slots > self._n_slots:
            self._checks = with_writable_room(self._checks, self._n_slots, n_slots)
            self._checks[self._n_slots : n_slots] = 0
            self._n_slots = n_slots


def _columns(boxes: SparseBoxes) -> list[npt.NDArray[Any]]:
    return list(boxes)


# Slots whose pieces hold more than their boxes: what a structure finds of them is checked by the boxes.
#
# A structure knows one interval per attribute. A box may say more than that: sets of intervals
# (catalog.py), and regions of the earth (types/places.py), which a structure has as their coverings in
# longitude and latitude. The slots of such boxes are noted in the catalog, with the boxes as they were said,
# and whoever reads a structure drops what no box of a slot holds.
#
# Where an attribute is one of points, an entry of a box names regions by their codes. It holds an event whose
# point is in one of them, by the areas themselves; so exactness is in this one place, for every index.


class NamedRegions(NamedTuple):
    """The regions of all attributes of points: those of attribute j are bases[j] .. bases[j] + counts[j];
    a base is -1 where an attribute is of something else."""

    bases: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    regions: RegionArrays
    position: int
    """The attribute that slots have a region of in `lone`."""
    lone: npt.NDArray[np.int32]
    """For each slot the region that alone decides, or 0 (catalog.py)."""
    checked: npt.NDArray[np.uint8]
    """For each slot a bit: whether it is checked at all."""


class SlotChecks(NamedTuple):
    """Which slots are checked, and the boxes that they are checked by (catalog.py)."""

    checks: npt.NDArray[np.int32]
    boxes: SparseBoxes
    lists: ListedValues
    tail: int
    """From this slot on they are in no layout."""
    places: NamedRegions | None

    def held(self, codes: Codes, offsets: npt.NDArray[np.int64], slots: npt.NDArray[np.int32]) -> Rows:
        """The matches without those of checked slots of which no box holds the event, in place."""
        if not len(slots):
            return offsets, slots
        kept = np.empty_like(offsets)
        if self.places is None:
            n = kernels.drop_unheld(codes, offsets, slots, *self[:4], kept)
        else:
            spheres = np.zeros((len(codes), 4))
            n = place_kernels.drop_outside(codes, offsets, slots, *self[:4], *self.places, spheres, kept)
        return kept, slots[:n]


def checked_slots(catalog: Catalog, tail: int = 0) -> SlotChecks | None:
    """What matches of a catalog are checked by, if any are, when slots from `tail` on are in no layout."""
    said = catalog.said
    if said is None or not said.needs_checks(tail):
        return None
    checks, places = said.checks(catalog.n_slots), _places(catalog.schema, said, catalog.n_slots)
    return SlotChecks(checks, said.boxes, said.lists.arrays, tail, places)


def _places(schema: Schema, said: SaidBoxes, n_slots: int) -> NamedRegions | None:
    if not schema.points:
        return None
    bases = np.full(len(schema), -1, np.int64)
    counts = np.zeros(len(schema), np.int64)
    tables = []
    base = 0
    for position, attribute in schema.points:
        tables.append(attribute.regions())
        bases[position], counts[position] = base, len(tables[-1].starts) - 1
        base += int(counts[position])
    # with several attributes of points, whatever was found is compared with its boxes
    position = schema.points[0][0]
    lone = said.lone_regions(n_slots, position) if len(tables) == 1 else np.zeros(n_slots, np.int32)
    return NamedRegions(bases, counts, joined(tables), position, lone, said.checked_bits(n_slots))


def without_regions(subs: Subscriptions) -> tuple[Subscriptions, npt.NDArray[np.uint8]] | None:
    """The subscriptions without what their boxes ask of points beyond being there, and which of them do; None
    where none does."""
    schema = subs.schema
    if not schema.points:
        return None
    boxes = subs.boxes
    place = np.zeros(len(schema), bool)
    place[[position for position, _ in schema.points]] = True
    # a point is there, or is not: any other entry names regions
    asked = place[boxes.attributes & ~np.int32(SET)] & (boxes.highs >= 0) & (boxes.highs != LAST)
    if not asked.any():
        return None
    owners = np.repeat(boxes.owners, np.diff(boxes.starts))
    marked = np.zeros(len(subs), np.uint8)
    marked[owners[asked]] = 1
    kept = ~asked
    before = sparse.starts_of(kept)
    sets: npt.NDArray[Any] = kept[boxes.sets]
    chosen = np.flatnonzero(sets)
    spans = sparse.ragged(boxes.set_starts, chosen)
    rest = SparseBoxes(
        boxes.owners,
        before[boxes.starts],
        boxes.attributes[kept],
        boxes.lows[kept],
        boxes.highs[kept],
        before[boxes.sets[chosen]],
        sparse.starts_of(np.diff(boxes.set_starts)[chosen]),
        boxes.set_lows[spans],
        boxes.set_highs[spans],
    )
    return Subscriptions.of_boxes(schema, subs.ids, rest), marked
