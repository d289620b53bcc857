"""Lists by the values of two attributes, for boxes that ask for one value of each: a path of `auto`.

A list by one value (equality.py) is read whole, and where boxes ask for a second value nearly nothing of it
is kept: of 100,000 boxes that name two of three words out of 2,000, an event reads fifty and one event in
forty matches one. Here it is asked for each couple of attributes whether some box has the event's two values,
which takes one word of a table, and the answer is nearly always no.

    array     dtype    shape          meaning
    couples   int64    (k, 2)         the couples of attributes
    flags     uint64   2^i            two bits for each box, in the word that the hash of its two values names
    starts    int32    2^j + 1        where lists begin; which list is told by other bits of the same hash
    boxes     int32    n              the boxes, list after list

No bounds are kept here. Different values may share a list, so all that a box asks for is compared by
its own bounds: where its two values are there, and about one in a hundred times by chance. About MOST_ALIKE
boxes at most have the same two values, so an event of which all couples have lists pays little as well; where
more have them, they go to other paths.

Couples are proposed on a sample of boxes, each the one that saves most beside lists by one value
(value_lists.py), and weighed on all of them. Beside the weights there, in nanoseconds per event:

    a couple                   _COUPLE_NS
    a box that is compared     _CHECK_NS, times the share of events that have its two values

Values are taken to be independent, but for couples of values that several boxes have: `predicates-16`, where
each attribute tells all others, takes 2.3 times as long with couples.

The boxes above (`strings` of the benchmark "doors") in batches of 50,000: 0.02 us per event, and 0.16 by
lists on two attributes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import buffers
from rangecast.engine import packed_kernels
from rangecast.engine.answers import Found, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.costs import draw_boxes
from rangecast.engine.small import FEW_EVENTS, FewEvents
from rangecast.engine.static_part import Part
from rangecast.engine.value_lists import LIST_NS, PROBE_NS, AskedValues, rest_ns
from rangecast.kernels.engine import equalities as kernels
from rangecast.kernels.engine.equalities import MOST_COUPLES, CoupleLists
from rangecast.kernels.engine.grid import sort_by_cell
from rangecast.kernels.machine.views import Views
from rangecast.types.attributes import Codes

MOST_ALIKE = 8
_COUPLE_NS = 6.0
_CHECK_NS = 40.0
_MOST_ATTRIBUTES = 12
_ROOM = 4096


@dataclass(eq=False)
class EqualitiesPart(Part):
    """Lists by two values; see the module head."""

    identical: bool
    lists: CoupleLists

    exact = True
    ratio = 32

    def __post_init__(self) -> None:
        # as kernels.stab_few reads them
        self.few = FewEvents(kernels.stab_few, Views(*self.lists))

    def check(self, boxes: Boxes, n_slots: int) -> None:
        couples, flags, starts, held = self.lists
        shaped("couples of attributes", couples, len(couples), 2)
        hold("that couples are few", len(couples) <= MOST_COUPLES)
        within("couples of attributes", couples, boxes.n_attributes)
        for size, least in ((len(flags), 2), (len(starts) - 1, 1)):
            hold("that tables are powers of two", size >= least and size & (size - 1) == 0)
        ascending("starts of lists by two values", starts, len(held))
        within("boxes of lists by two values", held, boxes.n)
        if self.identical:
            within("boxes of lists by two values", held, n_slots)

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        m = codes.shape[1]
        offsets, out = self.few.stab(codes, boxes) if m < FEW_EVENTS else self._stab(codes, boxes)
        if not self.identical:
            packed_kernels.to_slots(out, len(out), boxes.slots)
        return offsets, out

    def _stab(self, codes: Codes, boxes: Boxes) -> Rows:
        m = codes.shape[1]
        offsets, out = buffers.empty(m + 1, np.int64), buffers.empty(m // 2 + _ROOM, np.int32)
        offsets[0] = e = 0
        while (e := int(kernels.stab(codes, self.lists, boxes.arrays, e, offsets, out))) < m:
            out = buffers.lengthened(out, int(offsets[e]), e / m)
        return offsets, out[: offsets[m]]

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return self.few.stab_one(codes, boxes, None if self.identical else boxes.slots)

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64]:
        counts = np.empty(codes.shape[1], np.int64)
        kernels.count_candidates(codes, self.lists, counts)
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> EqualitiesPart | None:
        if not self.identical:
            return None
        living = dead[self.lists.boxes] == 0
        before = np.concatenate([[0], np.cumsum(living)]).astype(np.int32)
        # flags stay: one of a dead box leads to a list without it
        swept = self.lists._replace(starts=before[self.lists.starts], boxes=self.lists.boxes[living])
        return EqualitiesPart(self.identical, swept)

    def stats(self) -> dict[str, int]:
        return {"couples": len(self.lists.couples)}


class Coupled(NamedTuple):
    """Couples of attributes, the boxes of each, and the hashes of their values there."""

    couples: list[tuple[int, int]]
    numbers: list[npt.NDArray[np.int64]]
    hashes: list[npt.NDArray[np.uint64]]


def build_equalities(boxes: Boxes, coupled: Coupled) -> EqualitiesPart:
    """Lists over boxes with one value on both attributes of their couple."""
    numbers, hashes = np.concatenate(coupled.numbers), np.concatenate(coupled.hashes)
    n_lists = _list_count(len(numbers))
    cells, order = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
    kernels.list_numbers(hashes, n_lists, cells)
    starts = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=n_lists))]).astype(np.int32)
    sort_by_cell(cells, np.zeros(n_lists + 1, np.int64), order)
    # 16 to 32 bits for each box, of which it sets two: about one in a hundred couples of values, or one in
    # two hundred, finds the bits of others
    flags = np.zeros(max(n_lists // 2, 2), np.uint64)
    kernels.set_flags(hashes, flags)
    couples = np.array(coupled.couples, np.int64).reshape(-1, 2)
    held = numbers[order].astype(np.int32)
    return EqualitiesPart(boxes.are_slots(numbers), CoupleLists(couples, flags, starts, held))


def _list_count(n: int) -> int:
    """A power of two, from half of so many boxes to all of them."""
    return 1 << max(n.bit_length() - 1, 0)


def choose_couples(
    boxes: Boxes, numbers: npt.NDArray[np.int64], asked: AskedValues, listed: list[int]
) -> Coupled | None:
    """Couples of attributes that save more than they cost beside lists by value on some attributes, with the
    boxes of each; None where they do not pay for a path."""
    n = len(asked.places)
    if len(asked.costs) < 2 or not n:
        return None
    now = np.full(n, rest_ns(asked.n), np.float32)
    for j in listed:
        now = np.minimum(now, asked.costs[j])
    chosen = _promising(asked, now)
    if not chosen:
        return None
    out = Coupled([], [], [])
    saved = 0.0
    for couple in chosen:
        held = numbers[asked.places]
        hashes = np.empty(n, np.uint64)
        firsts, seconds = (np.ascontiguousarray(boxes.column(j, held)[0]) for j in couple)
        kernels.hash_couple(firsts, seconds, len(out.couples), hashes)
        costs = _couple_costs(asked.costs, couple)
        rows = np.flatnonzero(costs < now)
        alike = _count_alike(hashes[rows])
        # values that come together more often than by chance in boxes will do so in events
        seen = (alike - 1) * np.float32(_CHECK_NS / max(len(rows), 1))
        gains = now[rows] - np.maximum(costs[rows], seen)
        # all but the longest lists: a few boxes in lists by one value would cost a look-up more
        kept = alike <= MOST_ALIKE
        gain = float(gains[kept].sum()) - _COUPLE_NS
        if gain < _COUPLE_NS:
            continue
        saved += gain
        out.couples.append(couple)
        out.numbers.append(held[rows[kept]])
        out.hashes.append(hashes[rows[kept]])
        now[rows[kept]] = 0.0
    return out if saved >= PROBE_NS else None


def _promising(asked: AskedValues, now: npt.NDArray[np.float32]) -> list[tuple[int, int]]:
    """Couples by what they would save on a sample of boxes, those that save most first."""
    places = draw_boxes(np.arange(len(now)))
    scale = len(now) / len(places)
    own = {j: costs[places] for j, costs in asked.costs.items()}
    most = sorted(own, key=lambda j: -np.count_nonzero(own[j] < np.inf))[:_MOST_ATTRIBUTES]
    costs = {couple: _couple_costs(own, couple) for couple in itertools.combinations(sorted(most), 2)}
    left = now[places]
    chosen: list[tuple[int, int]] = []
    while costs and len(chosen) < MOST_COUPLES:
        gains = {couple: float(np.maximum(left - cost, 0).sum()) * scale for couple, cost in costs.items()}
        best = max(gains, key=lambda couple: gains[couple])
        if gains[best] < 2 * _COUPLE_NS:
            break
        chosen.append(best)
        left = np.minimum(left, costs.pop(best))
    return chosen


def _couple_costs(
    costs: dict[int, npt.NDArray[np.float32]], couple: tuple[int, int]
) -> npt.NDArray[np.float32]:
    """What boxes cost an event in lists of a couple, by what they cost in those of one value."""
    i, j = couple
    both: npt.NDArray[np.float32] = costs[i] * costs[j] * np.float32(_CHECK_NS / LIST_NS**2)
    return both


def _count_alike(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]:
    """How many have the same hash as each; a few more in one of twenty cases."""
    table = np.zeros(16 * _list_count(len(hashes)), np.uint8)
    alike = np.empty(len(hashes), np.float32)
    kernels.count_alike(hashes, table, alike)
    return alike
