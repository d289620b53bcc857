"""Who is in an index: ids, slots and boxes, append-only until it is compacted.

    array         dtype   shape             meaning
    ids           Ids     n_slots           the id of each slot
    alive         uint8   n_slots           0 once the slot was deleted or replaced
    overlapping   uint8   n_slots           1 when two boxes of the slot share a point
    first_boxes   int64   n_slots + 1       the boxes of slot s are first_boxes[s] .. first_boxes[s + 1]
    box_slots     int32   >= n_boxes        the slot of each box
    entries       BoxEntries                the bounds of the boxes (box_entries.py)
    lows, highs   int64   (d, >= n_boxes)   instead of entries, where a structure needs boxes expanded
    said          SaidBoxes                 the boxes of slots with sets (said_boxes.py), or None; the boxes
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
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.engine.box_entries import BoxEntries, EntryArrays
from rangecast.engine.boxes import Boxes, ExpandedBoxes, follow_each_other, grown
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.said_boxes import SaidArrays, SaidBoxes, into_pieces
from rangecast.errors import CapacityError, SubscriptionError
from rangecast.model import boxes as sparse
from rangecast.model.boxes import DenseBoxes, SparseBoxes
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import UserColumns, unpacked
from rangecast.types.schema import Schema

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


class Catalog:
    """The subscriptions of one index."""

    def __init__(
        self, schema: Schema, *, sets: str = "cut", expands: bool = True, compares: bool = False
    ) -> None:
        """An empty catalog; `sets` says how boxes with sets are kept (contract.py), with expands=False bounds
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

    def draft(self) -> Catalog:
        """The same subscriptions in a catalog that may be changed while readers go on with this one."""
        out = Catalog.__new__(Catalog)
        out.__dict__.update(self.__dict__)
        out.said = copy.copy(self.said)
        out.entries = None if self.entries is None else self.entries.draft()
        self._table = None
        return out

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


__all__ = ["Boxes", "Catalog", "CatalogArrays", "grown"]
