"""`opindex`: predicates parted by a pivot attribute, then by operator, then counted.

Source: Zhang, Chan and Tan, "An efficient publish/subscribe index for e-commerce databases" (PVLDB 7, 2014).
Of the attributes that a subscription bounds, the one that the fewest bound is its pivot: an event that has
no value of it cannot match and never looks there. Within a pivot, predicates of one operator on one
attribute are a list in the order of their operands, so the satisfied ones are a prefix, a suffix, or the run
of one value; each adds one to its subscription's counter, and a subscription matches when the counter
reaches the number of its predicates.

    array         dtype   shape          meaning
    pivots        int64   k              the attributes that are somebody's pivot
    without       uint8   k              whether a box of this pivot matches without a value of it
    pivot_starts  int64   k + 1          the lists of each pivot
    attributes    int64   n_lists        the attribute of each list
    operators     int64   n_lists        0 is =, 1 is >=, 2 is <=
    starts        int64   n_lists + 1    the predicates of each list
    operands      int64   n_predicates   ascending within a list
    boxes         int32   n_predicates   their boxes
    needed        int32   n              predicates of each box
    always        int32   any            boxes without a predicate
    slots         int32   n              the slot of each box

Where we depart. The paper also has != and operators on strings; both are intervals of codes here. An
interval is two predicates, >= and <=, as there. A list per pivot, operator and attribute replaces
its signatures, which say which attributes occur: lists that would be empty are not there. Counters are one
array per match and go back to 0 by the same lists. Boxes are numbered within their part; live changes go
through engine/parts.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, flat, shaped, within
from rangecast.engine.parts import Part, StaticIndex
from rangecast.memory import check_fits
from rangecast.papers.contrib import kernels
from rangecast.papers.contrib.kernels import AT_LEAST, AT_MOST, EQUAL, OperatorLists
from rangecast.papers.ubtree.structures import CountedPart, hold_needed
from rangecast.types.attributes import LAST, MISSING


@dataclass(eq=False)
class OpIndexPart(CountedPart):
    """Lists of predicates over some boxes."""

    lists: OperatorLists

    kernel = staticmethod(kernels.stab_operators)

    @property
    def arrays(self) -> OperatorLists:
        return self.lists

    def check(self, boxes: Boxes, n_slots: int) -> None:
        own, n, d = self.lists, len(self.lists.slots), boxes.n_attributes
        flat(own)
        within("pivots", own.pivots, d)
        shaped("pivots that may be missing", own.without, len(own.pivots))
        ascending("lists of pivots", own.pivot_starts, len(own.attributes), len(own.pivots) + 1)
        within("attributes of lists", own.attributes, d)
        shaped("operators of lists", own.operators, len(own.attributes))
        ascending("predicates of lists", own.starts, len(own.boxes), len(own.attributes) + 1)
        shaped("operands of lists", own.operands, len(own.boxes))
        within("boxes of lists", own.boxes, n)
        within("boxes without predicates", own.always, n)
        within("slots of lists", own.slots, n_slots)
        hold_needed(own.boxes, n, own.needed)

    def stats(self) -> dict[str, int]:
        return {
            "predicates": len(self.lists.boxes),
            "pivots": len(self.lists.pivots),
            "lists": len(self.lists.attributes),
            "satisfied_predicates": self._satisfied,
        }


class OpIndex(StaticIndex):
    """Parts predicates by pivot and operator, then counts; see the module head.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"), rc.Int("volume"))
    >>> index = rc.open_index("opindex", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price > 9 and volume = 5", 8: "price < 30"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 10, "volume": 5}, {"price": 10}])).counts.tolist()
    [2, 1]
    """

    name = "opindex"

    def _configure(self, memory_limit: int | None = None) -> None:
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        n = len(numbers)
        used = boxes.bounded(numbers)
        often = np.zeros(len(used), np.int64)
        for k, j in enumerate(used):
            lows, highs = boxes.column(j, numbers)
            often[k] = np.count_nonzero((lows != MISSING) | (highs != LAST))
        pivot_of = np.full(n, -1, np.int64)
        needed = np.zeros(n, np.int32)
        # from the most frequent down, so that the rarest attribute of each box is written last
        for k in np.argsort(-often, kind="stable").tolist():
            lows, highs = boxes.column(used[k], numbers)
            low, high = lows != MISSING, highs != LAST
            pivot_of[low | high] = used[k]
            needed += np.where(lows == highs, 1, low.astype(np.int32) + high)
        total = int(needed.sum(dtype=np.int64))
        check_fits(
            12 * total + 8 * n,
            self._memory_limit,
            f"'opindex' of {n:,} boxes with {total:,} predicates",
            "'scan' needs less",
        )
        parts = [np.empty((3, 0), np.int64)]
        operands = [np.empty(0, np.int64)]
        for j in used:
            lows, highs = boxes.column(j, numbers)
            equal = lows == highs
            for operator, keys, mine in (
                (EQUAL, lows, equal),
                (AT_LEAST, lows, (lows != MISSING) & ~equal),
                (AT_MOST, highs, (highs != LAST) & ~equal),
            ):
                own = np.flatnonzero(mine)
                list_ = np.full(len(own), 3 * j + operator)
                parts.append(np.stack([pivot_of[own], list_, own]))
                operands.append(keys[own])
        pivot, list_, own = np.concatenate(parts, axis=1)
        keys = np.concatenate(operands)
        order = np.lexsort((keys, list_, pivot))
        pivot, list_, own, keys = pivot[order], list_[order], own[order], keys[order]
        begins = np.flatnonzero(np.diff(pivot, prepend=-1) | np.diff(list_, prepend=-1))
        pivots, pivot_starts = np.unique(pivot[begins], return_index=True)
        without = np.zeros(len(pivots), np.uint8)
        for k, j in enumerate(pivots.tolist()):
            lows, _ = boxes.column(j, numbers)
            without[k] = (lows[pivot_of == j] == MISSING).any()
        return OpIndexPart(
            OperatorLists(
                pivots=pivots.astype(np.int64),
                without=without,
                pivot_starts=np.append(pivot_starts, len(begins)).astype(np.int64),
                attributes=list_[begins] // 3,
                operators=list_[begins] % 3,
                starts=np.append(begins, len(own)).astype(np.int64),
                operands=keys,
                boxes=own.astype(np.int32),
                needed=needed,
                always=np.flatnonzero(needed == 0).astype(np.int32),
                slots=boxes.slots_of(numbers).copy(),
            )
        )
