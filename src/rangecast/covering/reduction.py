"""Reducing a set of subscriptions to those that no other covers.

Covering is a preorder: transitive, and two subscriptions may cover each other. So first the boxes that
lie in another box of their own subscription are dropped; what is left of two subscriptions that cover
each other is then the same, and of those with the same boxes the smallest id stays. Among the others
covering is a partial order: one search each in an index of all of them says who is covered and by
whom, and following the answers upwards ends at a subscription that stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.covering import kernels
from rangecast.covering.index import BoxEnds, CoverIndex
from rangecast.errors import OptionError, SubscriptionError
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import LAST, PRESENT


class Reduction:
    """What remains of a set of subscriptions, and which ones cover the others.

    `covered` and `covering` are rows of the set, in pairs: subscription covered[i] is not needed, because
    covering[i], which stays, matches whatever it matches.
    """

    def __init__(self, subs: Subscriptions, roots: npt.NDArray[np.int64]) -> None:
        self.subscriptions = subs
        self.covered: npt.NDArray[np.int64] = np.flatnonzero(roots != np.arange(len(roots)))
        self.covering: npt.NDArray[np.int64] = roots[self.covered]

    def __repr__(self) -> str:
        return f"Reduction({len(self.subscriptions):,} subscriptions, {len(self.covered):,} covered)"

    @property
    def kept(self) -> Subscriptions:
        """The subscriptions that no other covers."""
        rest = np.ones(len(self.subscriptions), bool)
        rest[self.covered] = False
        return self.subscriptions.select(rest)

    @property
    def ids(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The ids of `covered` and of `covering`."""
        return self.subscriptions.ids.take(self.covered), self.subscriptions.ids.take(self.covering)

    def to_arrow(self) -> pa.Table:
        """A table of pairs: `covered` and `covering`, ids."""
        ids: Ids = self.subscriptions.ids
        return pa.table(
            {
                "covered": ids.take_arrow(self.covered.astype(np.int32)),
                "covering": ids.take_arrow(self.covering.astype(np.int32)),
            }
        )


def reduce(subs: Subscriptions, epsilon: float = 0.0, method: str | None = None, **options: Any) -> Reduction:
    """The subscriptions that no other covers, and for each of the rest one that stays and covers it.

    With epsilon > 0 some covered ones may stay (see CoverIndex.covers); none goes that is not covered.
    Further options are those of CoverIndex.

    >>> from rangecast import Int, Schema, Subscriptions
    >>> schema = Schema(Int("price", 0, 99))
    >>> conditions = {3: "price < 50", 2: "price = 7", 1: "price between 5 and 9", 9: "price < 50"}
    >>> reduction = reduce(Subscriptions.parse(schema, conditions))
    >>> reduction.kept.ids.values.tolist(), [ids.tolist() for ids in reduction.ids]
    ([3], [[2, 1, 9], [3, 3, 3]])
    """
    if not isinstance(subs, Subscriptions):
        raise SubscriptionError(f"reduce takes Subscriptions, got {type(subs).__name__}")
    index = CoverIndex(subs.schema, **options)
    given, subs = subs, subs.expanded()
    roots = np.arange(len(subs), dtype=np.int64)
    if not len(subs):
        index.covers(subs, epsilon, method)
        return Reduction(given, roots)
    plain = _without_inner_boxes(subs)
    firsts = _first_alike(plain)
    distinct = np.flatnonzero(firsts == roots)
    alone = plain if len(distinct) == len(plain) else plain.select(distinct)
    index.insert(Subscriptions(alone.schema, np.arange(len(alone)), alone.lows, alone.highs, alone.owners))
    slots = index.cover_slots(index.subscriptions(), epsilon, method).astype(np.int64)
    parents = np.where(slots >= 0, slots, np.arange(len(slots)))
    kernels.follow(parents)
    roots[distinct] = distinct[parents]
    return Reduction(given, roots[firsts])


def _without_inner_boxes(subs: Subscriptions) -> Subscriptions:
    """The same subscriptions without boxes that lie in another of their own, each one's boxes in order."""
    if not (subs.owners[1:] == subs.owners[:-1]).any():
        return subs
    starts = np.searchsorted(subs.owners, np.arange(len(subs) + 1)).astype(np.int64)
    keep = np.ones(subs.n_boxes, np.uint8)
    kernels.drop_inner(subs.lows, subs.highs, starts, keep)
    order = np.lexsort((*subs.highs, *subs.lows, subs.owners))
    order = order[keep[order] == 1]
    return Subscriptions(subs.schema, subs.ids, subs.lows[:, order], subs.highs[:, order], subs.owners[order])


def _first_alike(subs: Subscriptions) -> npt.NDArray[np.int64]:
    """For each row, the row of the smallest id that has the same boxes."""
    starts = np.searchsorted(subs.owners, np.arange(len(subs) + 1)).astype(np.int64)
    hashes = np.empty(len(subs), np.uint64)
    kernels.hash_boxes(subs.lows, subs.highs, starts, hashes)
    ranks = subs.ids.ranks()
    order = np.argsort(hashes, kind="stable") if ranks is None else np.lexsort((ranks, hashes))
    out = np.empty(len(subs), np.int64)
    kernels.find_twins(subs.lows, subs.highs, starts, hashes, order, out)
    return out


# Merging: one subscription in the place of several, for whoever only asks "does anyone want this?".
#
# A *merger* of some boxes is a box that holds them all. It is perfect when it holds nothing else: then a
# table of mergers sends on the same events as a table of the subscriptions. Source: Li, Hou and Jacobsen, "A
# unified approach to routing, covering, and subscription merging in content-based publish/subscribe systems
# based on modified binary decision diagrams" (ICDCS 2005), where perfect and imperfect mergers are defined.
#
# We depart in the structure: theirs are decision diagrams, in which boxes are merged wherever they share a
# part; ours are arrays of boxes and one rule, applied until it changes nothing:
#
#     boxes that are equal in every attribute but one, and in that one overlap or touch, become one box.
#
# For each attribute in turn the boxes are sorted by all others, so that those to be merged lie side by side:
# O(d n log n) per pass, and a pass in which nothing merges is the last. The rule finds no merger of three
# boxes no two of which have one, and what is merged first can stand in the way of a better one, so the number
# that is left is not the least possible. With `waste` above 0 there may be gaps between them: the merger is
# imperfect and lets events through that nobody wants, but at least 1 - `waste` of its volume is wanted.
# Volumes are counted in codes, within the outermost ends that the boxes have in each attribute: without a
# bound a side would be nearly all codes that there are, and every gap nothing beside it.


class Merging:
    """Mergers, and the subscriptions that each of them replaces.

    `mergers` are subscriptions of one box, with ids from 0 on. `members` and `into` are rows in pairs: a box
    of subscription members[i] lies in merger into[i]. A subscription of several boxes may be in several.
    """

    def __init__(
        self,
        subs: Subscriptions,
        mergers: Subscriptions,
        members: npt.NDArray[np.int64],
        into: npt.NDArray[np.int64],
    ) -> None:
        self.subscriptions = subs
        self.mergers = mergers
        self.members = members
        self.into = into

    def __repr__(self) -> str:
        return f"Merging({len(self.subscriptions):,} subscriptions, {len(self.mergers):,} mergers)"

    def to_arrow(self) -> pa.Table:
        """A table of pairs: `subscription`, an id, and `merger`."""
        return pa.table({
            "subscription": self.subscriptions.ids.take_arrow(self.members.astype(np.int32)),
            "merger": pa.array(self.into),
        })  # fmt: skip


def merge(subs: Subscriptions, waste: float = 0.0) -> Merging:
    """Fewer boxes that match whatever these match, and nothing else unless `waste` is above 0.

    `waste` is the largest share of a merger's volume that may belong to nobody, at least 0 and below 1.

    >>> from rangecast import Int, Schema
    >>> schema = Schema(Int("price", 0, 99), Int("size", 0, 9))
    >>> texts = {7: "price < 50 and size = 3", 8: "price >= 50 and size = 3", 9: "price > 90 and size < 3"}
    >>> merging = merge(Subscriptions.parse(schema, texts))
    >>> len(merging.mergers), merging.into.tolist()
    (2, [0, 0, 1])
    """
    if not isinstance(subs, Subscriptions):
        raise SubscriptionError(f"merge takes Subscriptions, got {type(subs).__name__}")
    if not 0 <= waste < 1:
        raise OptionError(f"waste must be at least 0 and below 1, got {waste}")
    boxes = subs.expanded()
    lows, highs = boxes.lows, boxes.highs
    outermost = [_outermost(lows[j], highs[j]) for j in range(len(lows))]
    wanted = np.ones(lows.shape[1])
    into = np.arange(lows.shape[1])
    unchanged = j = 0
    while unchanged < len(lows) and lows.shape[1] > 1:
        groups, wanted = _groups_along(lows, highs, wanted, j, waste, outermost[j])
        unchanged = unchanged + 1 if len(wanted) == len(groups) else 0
        lows, highs = _hulls(lows, highs, groups, len(wanted))
        into = groups[into]
        j = (j + 1) % len(lows)
    # in the order of the boxes given
    kept = into[np.sort(np.unique(into, return_index=True)[1])]
    numbers = np.empty(lows.shape[1], np.int64)
    numbers[kept] = np.arange(len(kept))
    mergers = Subscriptions(
        boxes.schema,
        np.arange(len(kept)),
        lows[:, kept],
        highs[:, kept],
        np.arange(len(kept), dtype=np.int32),
    )
    pairs = np.unique(np.stack([boxes.owners, numbers[into]]), axis=1)
    return Merging(subs, mergers, pairs[0], pairs[1])


def _groups_along(
    lows: BoxEnds,
    highs: BoxEnds,
    wanted: npt.NDArray[np.float64],
    j: int,
    waste: float,
    outermost: tuple[int, int],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For each box its group along attribute j, and for each group the share of it that is wanted."""
    others = [ends[k] for k in range(len(lows)) if k != j for ends in (lows, highs)]
    order = np.lexsort((lows[j], *others)) if others else np.argsort(lows[j], kind="stable")
    differ = np.zeros(len(order), bool)
    for ends in others:
        differ[1:] |= ends[order[1:]] != ends[order[:-1]]
    if waste:
        a, b = (np.clip(ends[j][order], *outermost) for ends in (lows, highs))
        groups, shares = _sweep(a, b, wanted[order], differ, waste)
    else:
        groups = _sweep_touching(lows[j][order], highs[j][order], differ)
        shares = np.ones(int(groups[-1]) + 1)
    out = np.empty(len(order), np.int64)
    out[order] = groups
    return out, shares


def _outermost(lows: BoxEnds, highs: BoxEnds) -> tuple[int, int]:
    """One below the least and one above the greatest of the ends that are bounds."""
    ends = np.concatenate([lows[lows > PRESENT], highs[highs < LAST]])
    return (int(ends.min()) - 1, int(ends.max()) + 1) if len(ends) else (0, 0)


def _sweep_touching(lows: BoxEnds, highs: BoxEnds, differ: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """As `_sweep` without waste, in whole numbers: floats do not tell all codes apart."""
    groups: list[int] = []
    high = 0
    for a, b, new in zip(lows.tolist(), highs.tolist(), differ.tolist(), strict=True):
        apart = not groups or new or a > high + 1
        groups.append(groups[-1] + apart if groups else 0)
        high = b if apart else max(high, b)
    return np.array(groups, np.int64)


def _sweep(
    lows: BoxEnds,
    highs: BoxEnds,
    wanted: npt.NDArray[np.float64],
    differ: npt.NDArray[np.bool_],
    waste: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Intervals sorted by low, in groups; one that differs from the interval before it begins a group."""
    groups: list[int] = []
    shares: list[float] = []
    low = high = 0
    length = held = 0.0
    for a, b, share, new in zip(lows.tolist(), highs.tolist(), wanted.tolist(), differ.tolist(), strict=True):
        if groups and not new:
            # what overlaps may be the part that was wanted in both
            more = max(share * (b - a + 1) - max(min(high, b) - a + 1, 0), 0.0)
            longer = float(max(high, b) - low + 1)
            if held + more >= (1 - waste) * longer:
                high, length, held = max(high, b), longer, held + more
                groups.append(groups[-1])
                shares[-1] = held / length
                continue
        low, high, length = a, b, float(b - a + 1)
        held = share * length
        groups.append(len(shares))
        shares.append(share)
    return np.array(groups, np.int64), np.array(shares)


def _hulls(lows: BoxEnds, highs: BoxEnds, groups: npt.NDArray[np.int64], n: int) -> tuple[BoxEnds, BoxEnds]:
    """The smallest box around each group."""
    least = np.full((len(lows), n), np.iinfo(np.int64).max)
    most = np.full((len(lows), n), np.iinfo(np.int64).min)
    for j in range(len(lows)):
        np.minimum.at(least[j], groups, lows[j])
        np.maximum.at(most[j], groups, highs[j])
    return least, most
