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

from rangecast.covering.index import CoverIndex
from rangecast.errors import SubscriptionError
from rangecast.kernels.covering import dominance as kernels
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions


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
