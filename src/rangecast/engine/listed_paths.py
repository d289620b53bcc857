"""Lists by value of boxes that are led by long lists of values (listed_values.py): a path of `auto`.

The lists are those of equality.py, in which such a box stands once for each of its values. They are made by
counting: how many boxes have each value, then each box is written where its values say. Values that lie too
far apart to be counted are counted by their ranks.

Boxes that bound nothing but the attribute of their list have lists of their own, without bounds beside them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes import Boxes
from rangecast.engine.layouts.lists import COUNTED, EqualityPart, enter_values, rare_bounds, split_attributes
from rangecast.engine.packed import Packed
from rangecast.engine.selectivity import bounded_attributes
from rangecast.kernels.engine import listed_values as kernels
from rangecast.kernels.engine.equality import ValueLists
from rangecast.kernels.model.ids import hash_integers
from rangecast.language.kernels import ListedValues
from rangecast.memory import check_fits
from rangecast.types.attributes import Codes

MOST_MEMBERS = 2**31 - 2
"""Of the lists of one path, whose places have 32 bits."""

# twice or half of it: a fifth slower with 20,000 lists of 5,000 values
_TILE = 1 << 19
_AT_LEAST = 8


class LedBoxes(NamedTuple):
    """Boxes that are led by lists on one attribute, ascending, and the places of their lists."""

    on: int
    numbers: npt.NDArray[np.int64]
    lists: npt.NDArray[np.int64]


def led_boxes(boxes: Boxes, numbers: npt.NDArray[np.int64]) -> list[LedBoxes]:
    """Those of some boxes (ascending) that are led, by attribute and by whether they bound others too; so few
    together that their members can be numbered."""
    lists = boxes.lists
    if lists is None or not len(numbers):
        return []
    own = np.flatnonzero(lists.boxes >= 0)
    places = np.minimum(np.searchsorted(numbers, lists.boxes[own]), len(numbers) - 1)
    own = own[numbers[places] == lists.boxes[own]]
    if not len(own):
        return []
    held = lists.boxes[own].astype(np.int64)
    attributes, counts = lists.on[own], boxes.entry_counts(held)
    out = []
    for on in np.unique(attributes).tolist():
        for alone in (True, False):
            chosen = np.flatnonzero((attributes == on) & ((counts == 1) == alone))
            sizes = (lists.starts[own[chosen] + 1] - lists.starts[own[chosen]]).cumsum()
            while len(chosen):
                n = max(int(np.searchsorted(sizes, MOST_MEMBERS, "right")), 1)
                out.append(LedBoxes(on, held[chosen[:n]], own[chosen[:n]]))
                sizes = sizes[n:] - sizes[n - 1]
                chosen = chosen[n:]
    return out


class _Keyed(NamedTuple):
    """The values of lists as keys, which count up: a word of list i from firsts[i] to lasts[i], with adds[i]
    added."""

    words: npt.NDArray[np.uint32]
    firsts: npt.NDArray[np.int64]
    lasts: npt.NDArray[np.int64]
    adds: npt.NDArray[np.int64]
    n_keys: int
    values: Codes | None
    """The value of each key; without them it is the key, with `low` added."""
    low: int


def build_listed(boxes: Boxes, led: LedBoxes, memory_limit: int | None = None) -> EqualityPart:
    """Lists by value of boxes that are led by theirs."""
    on, numbers, own = led
    lists = boxes.lists
    assert lists is not None
    total = int(((lists.starts[own + 1] - lists.starts[own]) // (1 + lists.wide[own])).sum())
    used = bounded_attributes(boxes, numbers, (on,))
    check_fits(
        total * (4 + 4 * len(used)),
        memory_limit,
        f"'auto' for {len(numbers):,} lists of {total:,} values",
        "the index 'scan' needs nearly nothing beyond the subscriptions",
    )
    keyed = _keyed(lists, own, total)
    starts, members = np.empty(keyed.n_keys + 1, np.int32), np.empty(total, np.int32)
    named = np.arange(len(numbers), dtype=np.int32) if used else numbers.astype(np.int32)
    # so many keys at a time that what they write stays in the caches, and each list has some of them
    tiles = max(min(total // _TILE, total // (_AT_LEAST * len(numbers))), 1)
    where = keyed.words, keyed.firsts, keyed.lasts, keyed.adds
    room = np.empty_like(keyed.firsts)
    kernels.lay_out_by_key(*where, named, -(-keyed.n_keys // tiles), room, starts, members)
    values = keyed.values
    if values is None:
        taken = np.flatnonzero(starts[1:] > starts[:-1])
        values, starts = taken + keyed.low, np.append(starts[taken], total)
    firsts = starts.astype(np.int32, copy=False)
    common, seldom = split_attributes(boxes, numbers, used)
    packed = Packed.fit(boxes, numbers, common, widen=total / max(len(values), 1))
    bounds = np.empty(total * packed.n_words, np.uint64)
    if packed.n_words:
        kernels.spread_columns(firsts, members, packed.pack_boxes(boxes, numbers), bounds)
    rare = []
    for j, rows in seldom:
        flags = np.zeros(len(numbers), bool)
        flags[rows] = True
        rare.append((j, np.flatnonzero(flags[members])))
    if used:
        kernels.rename(members, numbers.astype(np.int32))
    bounds_apart = rare_bounds(boxes, members, firsts, rare)
    dense, table = enter_values(values)
    held = ValueLists(on, dense, values, table, firsts, members, bounds, *bounds_apart)
    return EqualityPart(boxes.are_slots(numbers), packed, held)


def _keyed(lists: ListedValues, own: npt.NDArray[np.int64], total: int) -> _Keyed:
    firsts, lasts, bases = lists.starts[own], lists.starts[own + 1], lists.bases[own]
    if not lists.wide[own].any():
        low = int(bases.min())
        span = max((bases.astype(object) + lists.words[lasts - 1]).tolist()) - low + 1
        if span <= COUNTED * total + 1024:
            return _Keyed(lists.words, firsts, lasts, bases - low, span, None, low)
    # values that lie far from one another: their ranks among all of them
    codes = np.empty(total, np.int64)
    kernels.gather_values(lists, own, 0, codes)
    values = np.unique(codes)
    dense, table = enter_values(values)
    if dense:
        ranks = table[codes - values[0]].astype(np.uint32)
    else:
        hashes, ranks = np.empty(total, np.uint64), np.empty(total, np.uint32)
        hash_integers(codes, hashes)
        kernels.rank_values(codes, hashes, values, table, ranks)
    ends = ((lasts - firsts) // (1 + lists.wide[own])).cumsum()
    begins = np.concatenate([[0], ends[:-1]])
    return _Keyed(ranks, begins, ends, np.zeros(len(own), np.int64), len(values), values, 0)
