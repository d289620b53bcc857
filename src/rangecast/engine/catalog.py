"""Who is in an index: ids, slots and boxes, append-only until it is compacted.

    array         dtype   shape             meaning
    ids           Ids     n_slots           the id of each slot
    alive         uint8   n_slots           0 once the slot was deleted or replaced
    overlapping   uint8   n_slots           1 when two boxes of the slot share a point
    first_boxes   int64   n_slots + 1       the boxes of slot s are first_boxes[s] .. first_boxes[s + 1]
    lows, highs   int64   (d, >= n_boxes)   closed code intervals
    box_slots     int32   >= n_boxes        the slot of each box
    said          SaidBoxes                 the boxes of slots with sets (said_boxes.py), or None; the boxes
                                            above are pieces of those
    table         int32   power of two      hash table from id to slot (model/ids.py)
    texts         Texts   <= n_slots        the conditions as written (model/texts.py), or None; never matched

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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.said_boxes import SaidArrays, SaidBoxes, into_pieces
from rangecast.errors import CapacityError, SubscriptionError
from rangecast.model import boxes as sparse
from rangecast.model.boxes import DenseBoxes, SparseBoxes
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.texts import Texts
from rangecast.types.schema import Schema


class CatalogArrays(NamedTuple):
    """What a file holds of a catalog. Files of every version have these names, or they could not be read."""

    id_values: npt.NDArray[np.int64] | None
    id_starts: npt.NDArray[np.int64] | None
    id_letters: npt.NDArray[np.uint8] | None
    alive: npt.NDArray[np.uint8]
    overlapping: npt.NDArray[np.uint8]
    first_boxes: npt.NDArray[np.int64]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    box_slots: npt.NDArray[np.int32]
    texts: npt.NDArray[np.uint8] | None = None
    said: SaidArrays | None = None


def grown(array: npt.NDArray[Any], used: int, wanted: int) -> npt.NDArray[Any]:
    """The array, or a copy with more room along its last axis, so that `wanted` entries fit."""
    capacity = array.shape[-1]
    if wanted <= capacity:
        return array
    # the first load gets exactly its size: most indexes are loaded once
    room = wanted if used == 0 else max(wanted, capacity + (capacity >> 1), 64)
    out = np.empty((*array.shape[:-1], room), array.dtype)
    out[..., :used] = array[..., :used]
    return out


class Catalog:
    """The subscriptions of one index."""

    def __init__(self, schema: Schema, *, cuts_sets: bool = True) -> None:
        """An empty catalog; with cuts_sets=False a box with sets is kept as its hull and the sets."""
        self.schema = schema
        self._cuts = cuts_sets
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
        self.alive: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.overlapping: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.first_boxes: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self.lows: npt.NDArray[np.int64] = np.empty((len(schema), 0), np.int64)
        self.highs: npt.NDArray[np.int64] = np.empty((len(schema), 0), np.int64)
        self.box_slots: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self.priorities: npt.NDArray[np.float64] | None = None
        """What `match(limit=k)` chooses by, of each slot, once a subscription came with a priority."""
        self._table: IdTable | None = None
        self._texts: Texts | None = None

    def draft(self) -> Catalog:
        """The same subscriptions in a catalog that may be changed while readers go on with this one."""
        out = Catalog.__new__(Catalog)
        out.__dict__.update(self.__dict__)
        out.said = copy.copy(self.said)
        self._table = None
        return out

    @property
    def ids(self) -> Ids:
        """The ids of all slots."""
        if self._textual:
            return Ids(None, self._values[: self.n_slots + 1], self._letters)
        return Ids(self._values[: self.n_slots])

    @property
    def boxes(self) -> Boxes:
        """The box arrays as they are now."""
        return Boxes(self.lows, self.highs, self.box_slots, self.n_boxes)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in use."""
        columns = 16 * len(self.schema) * self.n_boxes + 4 * self.n_boxes
        slots = 10 * self.n_slots + 8
        said = 0 if self.said is None else self.said.nbytes
        return columns + slots + said + self.ids.nbytes + (self._table.nbytes if self._table else 0)

    @property
    def table(self) -> IdTable:
        """The hash table, made when it is first needed: a mapped index that only matches needs none."""
        if self._table is None:
            ids = self.ids
            self._table = IdTable(ids.head(0)).extended(ids, self.alive)
        return self._table

    def find(self, ids: Ids) -> npt.NDArray[np.int32]:
        """The living slot of each id, -1 where there is none."""
        slots = self.table.find(ids)
        if len(slots):
            gone = (slots >= 0) & (self.alive[np.maximum(slots, 0)] == 0) if self.n_slots else slots >= 0
            slots[gone] = -1
        return slots

    def kill(self, slots: npt.NDArray[np.int32]) -> None:
        """Mark living slots as gone."""
        # a copy, for readers: 50 us per million slots
        alive = self.alive.copy()
        alive[slots] = 0
        self.alive = alive
        self.n_living -= len(slots)
        self.n_living_boxes -= int((self.first_boxes[slots + 1] - self.first_boxes[slots]).sum())
        self.n_overlapping -= int(self.overlapping[slots].sum())

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
        pieces = into_pieces(subs, cuts=self._cuts)
        lows, highs, owners = pieces.dense
        n_pieces = len(owners)
        had_table = self._table is not None
        self._append_ids(subs.ids, n)
        if n == 0 and m == 0:
            # one bulk load: take its arrays as they are, without a copy
            self.lows, self.highs = lows, highs
        else:
            self.lows = grown(self.lows, m, m + n_pieces)
            self.highs = grown(self.highs, m, m + n_pieces)
            self.lows[:, m : m + n_pieces] = lows
            self.highs[:, m : m + n_pieces] = highs
        self.box_slots = grown(self.box_slots, m, m + n_pieces)
        self.box_slots[m : m + n_pieces] = owners + np.int32(n)
        self.alive = grown(self.alive, n, n + k)
        self.alive[n : n + k] = 1
        self.overlapping = grown(self.overlapping, n, n + k)
        self.overlapping[n : n + k] = pieces.overlapping
        self.first_boxes = grown(self.first_boxes, n + 1, n + k + 1)
        self.first_boxes[n + 1 : n + k + 1] = m + np.cumsum(np.bincount(owners, minlength=k))
        self.n_slots += k
        self.n_boxes += n_pieces
        self.n_living += k
        self.n_living_boxes += n_pieces
        self.n_overlapping += int(pieces.overlapping.sum())
        if pieces.checked is not None:
            self.said = self.said or SaidBoxes()
            self.said.add(subs, n, pieces.checked)
        if subs.texts is not None:
            before = Texts.absent(n) if self._texts is None else self._texts.padded(n)
            self._texts = Texts.concat([before, subs.texts])
        if had_table:
            assert self._table is not None
            self._table = self._table.extended(self.ids, self.alive)

    def prioritize(self, ids: Ids, values: npt.NDArray[np.float64] | None) -> None:
        """Give the subscriptions that were added last their priorities: 0 unless told."""
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

    def _append_ids(self, ids: Ids, n: int) -> None:
        if n == 0:
            self._textual = ids.textual
            self._values = ids.starts if ids.textual else ids.values
            self._letters = ids.letters
        elif self._textual:
            used = int(self._values[n])
            more = int(ids.starts[-1])
            self._letters = grown(self._letters, used, used + more)
            self._letters[used : used + more] = ids.letters[:more]
            self._values = grown(self._values, n + 1, n + 1 + len(ids))
            self._values[n + 1 : n + 1 + len(ids)] = ids.starts[1:] + used
        else:
            self._values = grown(self._values, n, n + len(ids))
            self._values[n : n + len(ids)] = ids.values

    def id_base(self, first: int, last: int) -> int | None:
        """What makes ids of the slots of some boxes when added, where that is the same for all."""
        if self._textual or first == last:
            return None
        a, b = int(self.box_slots[first]), int(self.box_slots[last - 1])
        values = self._values[a : b + 1]
        base = int(values[0]) - a
        # compared as unsigned, whose differences do not overflow
        steps = np.diff(values.view(np.uint64))
        return base if bool((steps == 1).all()) and -(2**62) < base < 2**62 else None

    def box_numbers(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """The numbers of the boxes of some slots, without going through those of others."""
        starts, ends = self.first_boxes[slots], self.first_boxes[slots + 1]
        counts = ends - starts
        return np.repeat(ends - np.cumsum(counts), counts) + np.arange(int(counts.sum()))

    def boxes_of(self, slot: int) -> SparseBoxes:
        """The boxes of a slot, as they were said; their owner is 0."""
        if self.said is not None:
            numbers, owners = self.said.of_slots(np.array([slot]))
            if len(numbers):
                return sparse.select(self.said.boxes, numbers, owners.astype(np.int32))
        columns = slice(int(self.first_boxes[slot]), int(self.first_boxes[slot + 1]))
        lows, highs = self.lows[:, columns], self.highs[:, columns]
        return sparse.from_dense(DenseBoxes(lows, highs, np.zeros(lows.shape[1], np.int32)))

    def texts_of(self, slots: npt.NDArray[Any]) -> Texts | None:
        """What was written for some slots; None when nothing was for any."""
        return None if self._texts is None else self._texts.padded(self.n_slots).select(slots)

    def text_of(self, slot: int) -> str | None:
        """What was written for a slot; reads no more than the block that it is in."""
        return None if self._texts is None or slot >= len(self._texts) else self._texts[slot]

    @property
    def text_bytes(self) -> int:
        """Bytes of the texts, which no match reads."""
        return 0 if self._texts is None else self._texts.nbytes

    def living(self) -> Subscriptions:
        """All living subscriptions, in the order of their slots."""
        slots = np.flatnonzero(self.alive[: self.n_slots])
        texts = self.texts_of(slots)
        own = self.box_slots[: self.n_boxes]
        if self.said is not None:
            return self._living_with_sets(slots, texts, self.said)
        if self.n_boxes == self.n_slots and not bool((own[1:] == own[:-1]).any()):
            chosen: Any = slice(self.n_slots) if len(slots) == self.n_slots else slots
            ids = self.ids if len(slots) == self.n_slots else self.ids.select(slots)
            lows, highs = self.lows[:, chosen], self.highs[:, chosen]
            return Subscriptions(self.schema, ids, lows, highs, texts=texts)
        boxes = np.flatnonzero(self.alive[self.box_slots[: self.n_boxes]])
        rank = np.cumsum(self.alive[: self.n_slots], dtype=np.int64) - 1
        owners = rank[self.box_slots[boxes]].astype(np.int32)
        if len(slots) == self.n_slots:
            lows, highs = self.lows[:, : self.n_boxes], self.highs[:, : self.n_boxes]
            return Subscriptions(self.schema, self.ids, lows, highs, owners, texts=texts)
        ids, lows, highs = self.ids.select(slots), self.lows[:, boxes], self.highs[:, boxes]
        return Subscriptions(self.schema, ids, lows, highs, owners, texts=texts)

    def _living_with_sets(
        self, slots: npt.NDArray[np.int64], texts: Texts | None, said: SaidBoxes
    ) -> Subscriptions:
        numbers, with_sets = said.of_slots(slots)
        plain = np.ones(self.n_slots, bool)
        plain[slots[with_sets]] = False
        own = self.box_slots[: self.n_boxes]
        others = np.flatnonzero(plain[own] & (self.alive[own] == 1))
        rank = np.cumsum(self.alive[: self.n_slots], dtype=np.int64) - 1
        rest = DenseBoxes(self.lows[:, others], self.highs[:, others], rank[own[others]].astype(np.int32))
        chosen = sparse.select(said.boxes, numbers, with_sets.astype(np.int32))
        both = sparse.concat([sparse.from_dense(rest), chosen], [0, 0])
        order = np.argsort(both.owners, kind="stable")
        boxes = sparse.select(both, order, both.owners[order])
        return Subscriptions.of_boxes(self.schema, self.ids.select(slots), boxes, texts=texts)

    def _check(self) -> None:
        """Raise StorageError unless ids, slots and boxes fit together."""
        n, m = self.n_slots, self.n_boxes
        if self._textual:
            ascending("starts of ids", self._values, len(self._letters), n + 1)
            if self._letters.size and int(self._letters.max()) >= 128:
                self.ids.arrow().validate(full=True)
        else:
            shaped("ids", self._values, n)
        hold("that texts are of subscriptions", self._texts is None or len(self._texts) <= n)
        shaped("overlapping", self.overlapping, n)
        for name, flags in (("alive", self.alive), ("overlapping", self.overlapping)):
            within(name, flags, 2)
        ascending("first boxes", self.first_boxes, m, n + 1)
        shaped("lows", self.lows, len(self.schema), m)
        shaped("highs", self.highs, len(self.schema), m)
        hold("that boxes have slots", int(self.first_boxes[0]) == 0 and int(self.first_boxes[-1]) == m)
        within("slots of boxes", self.box_slots, n)
        if self.said is not None:
            self.said.check(len(self.schema), n)

    def stored(self) -> CatalogArrays:
        """What a file holds of it."""
        n, m = self.n_slots, self.n_boxes
        return CatalogArrays(
            id_values=None if self._textual else self._values[:n],
            id_starts=self._values[: n + 1] if self._textual else None,
            id_letters=self._letters[: self._values[n]] if self._textual else None,
            alive=self.alive[:n],
            overlapping=self.overlapping[:n],
            first_boxes=self.first_boxes[: n + 1],
            lows=self.lows[:, :m],
            highs=self.highs[:, :m],
            box_slots=self.box_slots[:m],
            texts=None if self._texts is None else self._texts.padded(n).pack(),
            said=None if self.said is None else self.said.stored(n),
        )

    @classmethod
    def take(cls, schema: Schema, arrays: CatalogArrays, *, cuts_sets: bool = True) -> Catalog:
        """A catalog of stored arrays, which it takes as they are."""
        out = cls(schema, cuts_sets=cuts_sets)
        out.said = None if arrays.said is None else SaidBoxes(arrays.said)
        if arrays.id_starts is not None and arrays.id_letters is not None:
            out._textual = True
            out._values, out._letters = arrays.id_starts, arrays.id_letters
        elif arrays.id_values is not None:
            out._values = arrays.id_values
        out.alive, out.overlapping = arrays.alive, arrays.overlapping
        out.first_boxes, out.box_slots = arrays.first_boxes, arrays.box_slots
        out.lows, out.highs = arrays.lows, arrays.highs
        if arrays.texts is not None:  # files of before there were texts have none
            out._texts = Texts.unpack(arrays.texts, resident=False)
        out.n_slots, out.n_boxes = len(out.alive), len(out.box_slots)
        out._check()
        out.n_living = int(out.alive.sum())
        out.n_living_boxes = int(out.alive[out.box_slots].sum())
        out.n_overlapping = int((out.overlapping & out.alive).sum())
        return out


__all__ = ["Boxes", "Catalog", "CatalogArrays", "grown"]
