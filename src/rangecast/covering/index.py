"""Which stored subscription covers this one? Exactly, or in 1 - epsilon of the places to look.

Subscription s covers t when every box of t lies in some box of s: so every event that t matches, s
matches too. (The converse is left out on purpose: a box that only several boxes together hold is looked for
by `covers_together` alone, with a budget; not finding a cover costs a message, never a match.) A
subscription without boxes matches nothing and any other covers it. Ids are those of engine/catalog.py; a
subscription never covers itself, that is, one of the same id.

Two searches stand behind one question, each built when it is first asked:

    method   search                                                       answer
    blocks   greatest corners of blocks of points, ours (searches.py)       exact
    curve    cubes of the Z curve, Shen and Tirthapura 2012 (searches.py)    exact for epsilon = 0

Which one is asked when no method is named: for epsilon = 0 `blocks`; for epsilon > 0 `curve` for each
subscription whose search needs no more than AUTO_CUBES cubes, which is known beforehand, `blocks` for
the others. Named outright, `curve` refuses a search of more than `max_cubes` cubes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.covering import kernels
from rangecast.covering.kernels import SoughtCovers
from rangecast.covering.searches import BlockSearch, CurveSearch, living_boxes, seek_covers, stored_boxes
from rangecast.engine.catalog import Catalog
from rangecast.engine.grid import choose_attributes, named_attributes
from rangecast.errors import CapacityError, OptionError, SubscriptionError
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema

AUTO_CUBES = 1024
METHODS = ("blocks", "curve")
MOST_ATTRIBUTES = 16
"""How many attributes become coordinates unless `on` names them; the others are confirmed only."""


class CoverIndex:
    """Subscriptions, ready to be asked for covers.

    `bits` is the number of bits of a coordinate on the curve, `on` names the attributes that become
    coordinates (by default all of them, or 16 if there are more), and `max_cubes` bounds a search by
    `curve`.

    >>> from rangecast import Int, Schema
    >>> schema = Schema(Int("price", 0, 99))
    >>> index = CoverIndex(schema)
    >>> index.insert(Subscriptions.parse(schema, {7: "price between 10 and 20", 8: "price < 50"}))
    >>> asked = Subscriptions.parse(schema, {1: "price = 15", 2: "price > 60", 8: "price < 50"})
    >>> index.covers(asked).tolist()
    [7, -1, -1]
    """

    def __init__(
        self,
        schema: Schema,
        bits: int = 16,
        on: str | Sequence[str] | None = None,
        max_cubes: int = 1 << 20,
    ) -> None:
        if not 3 <= bits <= 31:
            raise OptionError(f"bits must be within 3 and 31, got {bits}")
        if max_cubes < 1:
            raise OptionError(f"max_cubes must be at least 1, got {max_cubes}")
        self.schema = schema
        self.bits = bits
        self.max_cubes = max_cubes
        self._named: tuple[int, ...] | None = None
        if on is not None:
            names = (on,) if isinstance(on, str) else tuple(on)
            self._named = named_attributes(schema, names, len(names))
            if not 1 <= len(names) <= 31 or 2 * len(names) * bits > 1000:
                raise OptionError(
                    f"on= takes 1 to 31 attributes and 2 * attributes * bits must not exceed 1,000, "
                    f"got {len(names)} attributes of {bits} bits"
                )
        self._clear()

    def _clear(self) -> None:
        self._catalog = Catalog(self.schema, compares=True)
        self._drop_searches()
        self._last: dict[str, Any] = {}

    def _widen(self, schema: Schema) -> None:
        """Make room for more hidden attributes (types/derived.py)."""
        living = self._catalog.living().reconciled(schema)
        self.schema = schema
        self._clear()
        if len(living):
            self._catalog.add(living)

    def _drop_searches(self) -> None:
        self._blocks: BlockSearch | None = None
        self._curve: CurveSearch | None = None

    def __len__(self) -> int:
        return self._catalog.n_living

    def __contains__(self, id: Any) -> bool:
        return bool(self.contains([id])[0])

    def contains(self, ids: Any) -> npt.NDArray[np.bool_]:
        """For each id, whether it is in the index."""
        return self._catalog.find(Ids.of(ids)) >= 0

    def __repr__(self) -> str:
        return f"<CoverIndex: {len(self):,} subscriptions>"

    def insert(self, subs: Subscriptions) -> None:
        """Add subscriptions; one whose id is already here replaces the old one."""
        if not isinstance(subs, Subscriptions):
            raise SubscriptionError(f"insert takes Subscriptions, got {type(subs).__name__}")
        if not len(subs):
            return
        subs = subs.reconciled(self.schema).expanded()
        if len(subs.schema) > len(self.schema):
            self._widen(subs.schema)
        self._catalog.check(subs)
        if self._catalog.n_living:
            slots = self._catalog.find(subs.ids)
            self._remove(slots[slots >= 0])
        self._catalog.add(subs)
        for search in (self._blocks, self._curve):
            if search is not None:
                search.add(self._catalog)

    def delete(self, ids: Any) -> list[Any]:
        """Delete subscriptions by id; returns the ids that were not there."""
        wanted = Ids.of(ids if not isinstance(ids, int | str) else [ids])
        slots = self._catalog.find(wanted)
        unknown = [wanted[int(row)] for row in np.flatnonzero(slots < 0)]
        self._remove(np.unique(slots[slots >= 0]).astype(np.int32))
        return unknown

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        if not len(slots):
            return
        catalog = self._catalog
        if self._curve is not None:
            self._curve.remove(catalog, self._boxes_of(slots)[0])
        catalog.kill(slots)
        if catalog.n_slots - catalog.n_living > catalog.n_living + 4096:
            self.compact()

    def compact(self) -> None:
        """Free the memory of deleted subscriptions."""
        living = self._catalog.living()
        self._clear()
        if len(living):
            self._catalog.add(living)

    def subscriptions(self, ids: Any = None) -> Subscriptions:
        """All subscriptions of the index, or those of some ids, which must be there."""
        if ids is None:
            return self._catalog.living()
        wanted = Ids.of(ids)
        slots = self._catalog.find(wanted)
        if (slots < 0).any():
            raise SubscriptionError(f"no subscription has the id {wanted[int(np.argmin(slots))]!r}")
        boxes, owners = self._boxes_of(slots)
        catalog = self._catalog
        return Subscriptions(self.schema, wanted, catalog.lows[:, boxes], catalog.highs[:, boxes], owners)

    def _boxes_of(self, slots: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The boxes of some slots, and for each box which of these slots has it."""
        counts = self._catalog.first_boxes[slots + 1] - self._catalog.first_boxes[slots]
        return self._catalog.box_numbers(slots), np.repeat(np.arange(len(slots), dtype=np.int32), counts)

    def covers(
        self, subs: Subscriptions, epsilon: float = 0.0, method: str | None = None
    ) -> npt.NDArray[Any]:
        """For each subscription, the id of one that covers it, or -1 (None where ids are strings).

        A cover that is returned always covers. With epsilon > 0 a cover may be missed, if it lies in the last
        part of the search space, which has at most this share of its volume.
        """
        slots = self.cover_slots(subs, epsilon, method)
        found = slots >= 0
        ids = self._catalog.ids
        out: npt.NDArray[Any] = np.full(len(slots), -1, np.int64)
        if ids.textual:
            out = np.full(len(slots), None, object)
        if found.any():
            out[found] = ids.take(slots[found])
        return out

    def pairs(
        self, subs: Subscriptions, epsilon: float = 0.0, method: str | None = None
    ) -> tuple[tuple[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[np.bool_]]:
        """The ids of the covered subscriptions with the ids of their covers, and which rows are covered."""
        slots = self.cover_slots(subs, epsilon, method)
        found = slots >= 0
        return (subs.ids.take(np.flatnonzero(found)), self._catalog.ids.take(slots[found])), found

    def covered(
        self, subs: Subscriptions, epsilon: float = 0.0, method: str | None = None
    ) -> npt.NDArray[Any]:
        """For each subscription, whether another one covers it."""
        return self.cover_slots(subs, epsilon, method) >= 0

    def covers_together(
        self, subs: Subscriptions, budget: int = 10_000, epsilon: float = 0.0, method: str | None = None
    ) -> list[npt.NDArray[Any]]:
        """For each subscription, the ids of some that together cover it; none where no cover was found.

        A single cover is returned alone. Where there is none, the boxes of all others are cut out of
        each of its boxes (index.py) until nothing is left or more than `budget` pieces were made; this
        compares with every box of the index.

        >>> from rangecast import Int, Schema
        >>> schema = Schema(Int("price", 0, 99))
        >>> index = CoverIndex(schema)
        >>> index.insert(Subscriptions.parse(schema, {7: "price < 50", 8: "price between 40 and 70"}))
        >>> asked = Subscriptions.parse(schema, {1: "price = 5", 2: "price < 60", 3: "price < 80"})
        >>> [ids.tolist() for ids in index.covers_together(asked)]
        [[7], [7, 8], []]
        """
        if budget < 1:
            raise OptionError(f"budget must be at least 1, got {budget}")
        slots = self.cover_slots(subs, epsilon, method)
        ids = self._catalog.ids
        out = [ids.take(slots[row : row + 1] if slots[row] >= 0 else slots[:0]) for row in range(len(slots))]
        rows = np.flatnonzero(slots < 0) if len(self) else slots[:0]
        if not len(rows):
            return out
        subs = subs.reconciled(self.schema)
        sought = seek_covers(subs, self._catalog.find(subs.ids))
        boxes = living_boxes(self._catalog, 0, self._catalog.n_boxes)
        for row in rows.tolist():
            # a subscription without boxes has none here only if it is alone
            if sought.first_boxes[row] < sought.first_boxes[row + 1]:
                out[row] = ids.take(self._cover_together(sought, row, boxes, budget))
        self._last["last_together"] = sum(len(out[row]) > 0 for row in rows.tolist())
        return out

    def _cover_together(
        self, sought: SoughtCovers, row: int, boxes: npt.NDArray[np.int64], budget: int
    ) -> npt.NDArray[np.int32]:
        """The slots that together cover a row, each of its boxes within `budget`."""
        catalog = self._catalog
        used: list[npt.NDArray[np.int64]] = []
        for box in range(sought.first_boxes[row], sought.first_boxes[row + 1]):
            low, high = sought.lows[:, box], sought.highs[:, box]
            near = boxes[catalog.box_slots[boxes] != sought.own[row]]
            for j in range(len(low)):
                near = near[(catalog.lows[j, near] <= high[j]) & (catalog.highs[j, near] >= low[j])]
            found = find_union_cover(low, high, catalog.lows[:, near], catalog.highs[:, near], budget)
            if found is None:
                return np.empty(0, np.int32)
            used.append(near[found])
        return np.unique(catalog.box_slots[np.concatenate(used)])

    def covered_by(self, subs: Subscriptions) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The other way round: the ids of the subscriptions in the index that these cover, and of their
        covers.

        The search is exact.

        >>> from rangecast import Int, Schema
        >>> schema = Schema(Int("price", 0, 99))
        >>> index = CoverIndex(schema)
        >>> index.insert(Subscriptions.parse(schema, {7: "price < 5", 8: "price between 40 and 70"}))
        >>> [ids.tolist() for ids in index.covered_by(Subscriptions.parse(schema, {9: "price < 50"}))]
        [[7], [9]]
        """
        subs = subs.reconciled(self.schema).expanded()
        catalog = self._catalog
        living = np.flatnonzero(catalog.alive[: catalog.n_slots]).astype(np.int32)
        if subs.n_boxes and len(subs.schema) == len(self.schema):
            # what one of them covers lies in the hull of all
            low, high = subs.lows.min(axis=1), subs.highs.max(axis=1)
            outside = np.zeros(catalog.n_slots, bool)
            boxes = living_boxes(catalog, 0, catalog.n_boxes)
            for j in range(len(low)):
                beyond = (catalog.lows[j, boxes] < low[j]) | (catalog.highs[j, boxes] > high[j])
                outside[catalog.box_slots[boxes[beyond]]] = True
                boxes = boxes[~beyond]
            living = living[~outside[living]]
        if not len(subs) or not len(living):
            return self._catalog.ids.take(living[:0]), subs.ids.take(living[:0])
        covering = CoverIndex(subs.schema, self.bits, None, self.max_cubes)
        covering.insert(subs)
        inside, owners = self._boxes_of(living)
        asked = Subscriptions(
            self.schema,
            catalog.ids.select(living),
            catalog.lows[:, inside],
            catalog.highs[:, inside],
            owners,
        )
        return covering.pairs(asked)[0]

    def cover_slots(
        self, subs: Subscriptions, epsilon: float = 0.0, method: str | None = None
    ) -> npt.NDArray[np.int32]:
        """As `covers`, with positions in the index for ids; -1 where there is no cover."""
        if method is not None and method not in METHODS:
            raise OptionError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        if not 0 <= epsilon < 1:
            raise OptionError(f"epsilon must be at least 0 and below 1, got {epsilon}")
        catalog = self._catalog
        out = np.full(len(subs), -1, np.int32)
        self._last = {"last_queries": len(subs), "last_hits": 0}
        if not len(self) or not len(subs):
            return out
        subs = subs.reconciled(self.schema)
        sought = seek_covers(subs, catalog.find(subs.ids))
        has_boxes = np.diff(sought.first_boxes) > 0
        self._cover_nothing(sought, np.flatnonzero(~has_boxes), out)
        rows = np.flatnonzero(has_boxes)
        if method == "curve" or (method is None and epsilon > 0):
            rows = self._search_curve(sought, rows, epsilon, method is not None, out)
        if len(rows):
            counts = np.zeros(4, np.int64)
            self._block_search().search(catalog, stored_boxes(catalog), sought, rows, out, counts)
            self._last |= {"last_nodes": int(counts[0]), "last_exact": len(rows)}
        self._last["last_hits"] = int((out >= 0).sum())
        return out

    def _cover_nothing(
        self, sought: SoughtCovers, rows: npt.NDArray[np.int64], out: npt.NDArray[np.int32]
    ) -> None:
        """A subscription without boxes is covered by any other one."""
        if len(rows):
            two = np.flatnonzero(self._catalog.alive[: self._catalog.n_slots])[:2]
            own = sought.own[rows]
            out[rows] = np.where(own != two[0], two[0], two[1] if len(two) > 1 else -1)

    def _search_curve(
        self,
        sought: SoughtCovers,
        rows: npt.NDArray[np.int64],
        epsilon: float,
        forced: bool,
        out: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.int64]:
        """Search by the curve; returns the rows that need too many cubes for it."""
        curve = self._curve_search()
        sides = curve.sides(sought, rows)
        needed = curve.cubes_needed(sides, epsilon)
        few = needed <= (self.max_cubes if forced else AUTO_CUBES)
        if forced and not few.all():
            worst = float(needed.max())
            raise CapacityError(
                f"a search by the curve may examine {self.max_cubes:,} cubes, but epsilon = {epsilon:g} "
                f"needs {worst:,.0f} ({int((~few).sum())} of {len(rows)} subscriptions need too many); "
                "raise epsilon or max_cubes, lower bits, or leave the method open for an exact answer"
            )
        counts = np.zeros(4, np.int64)
        shares = np.ones(len(out))
        stored = stored_boxes(self._catalog)
        curve.search(
            stored, sought, rows[few], np.ascontiguousarray(sides[:, few]), epsilon, out, shares, counts
        )
        self._last |= {
            "last_runs": int(counts[kernels.RUNS]),
            "last_cubes": int(counts[kernels.CUBES]),
            "last_candidates": int(counts[kernels.CANDIDATES]),
            "last_share": float(shares[rows[few]].mean()) if few.any() else 0.0,
        }
        return rows[~few]

    def _attributes(self) -> tuple[int, ...]:
        if self._named is not None:
            return self._named
        count = min(len(self.schema), MOST_ATTRIBUTES, 1000 // (2 * self.bits))
        if count == len(self.schema):
            return tuple(range(count))
        catalog = self._catalog
        return choose_attributes(self.schema, None, count, catalog.boxes, np.arange(catalog.n_boxes))

    def _block_search(self) -> BlockSearch:
        if self._blocks is None:
            self._blocks = BlockSearch(self._catalog, self._attributes())
        return self._blocks

    def _curve_search(self) -> CurveSearch:
        if self._curve is None:
            self._curve = CurveSearch(self._catalog, self._attributes(), self.bits)
        return self._curve

    def stats(self) -> dict[str, Any]:
        """Counts and sizes; figures that begin with `last_` describe the last search.

        last_queries subscriptions were asked about, and last_hits of them had a cover. last_runs, last_cubes,
        last_candidates and last_share (of the volume, mean) tell what the curve examined, last_nodes how many
        blocks the exact search compared, and last_exact for how many subscriptions. last_together is how many
        had none but are covered by several subscriptions together, if that was asked for.
        """
        catalog = self._catalog
        total = catalog.nbytes
        out: dict[str, Any] = {
            "subscriptions": len(self),
            "boxes": int(catalog.alive[catalog.box_slots[: catalog.n_boxes]].sum()),
            "bytes": 0,
            "catalog_bytes": total,
        }
        if self._blocks is not None:
            total += self._blocks.nbytes
            out |= {"blocks": self._blocks.n_blocks, "block_bytes": self._blocks.nbytes}
        if self._curve is not None:
            total += self._curve.nbytes
            out |= {"curve_bytes": self._curve.nbytes, **self._curve.tree.stats()}
        out["bytes"] = total
        out["bytes_per_subscription"] = round(total / len(self), 1) if len(self) else 0.0
        return out | self._last


# Is one box covered by several together? Exactly, by cutting away; or probably, by drawing points.
#
# `CoverIndex` looks for one subscription that covers another. A set may cover what none of its members does:
# [0, 5] and [6, 9] cover [0, 9]. Deciding that is hard in general (co-NP-complete in the number of
# attributes), so the exact search has a budget, and says None where it is used up: as with every cover, not
# knowing costs a message and never a match.
#
#     function             answer                         how
#     `find_union_cover`   the boxes of a cover, or None  cuts the box by one other after the next, until more
#     `union_covers`       True, False, or None           than `budget` pieces were made
#     `probably_covers`    False for certain, or True     draws points of the box; a point that nobody holds
#                          with an error below `error`    proves that it is not covered
#
# Source: Ouksel, Jurca, Podnar and Aberer, "Efficient probabilistic subsumption checking for content-based
# publish/subscribe systems" (Middleware 2006), for the second. Their number of points follows from the
# smallest gap that the ends of the boxes could leave; so does ours.

BoxEnds = npt.NDArray[np.int64]


def union_covers(
    low: BoxEnds, high: BoxEnds, lows: BoxEnds, highs: BoxEnds, budget: int = 10_000
) -> bool | None:
    """Whether the boxes lows[:, i]..highs[:, i] together hold low..high; None when the budget is used up.

    >>> two = np.array([[0, 6]]), np.array([[5, 9]])
    >>> union_covers(np.array([0]), np.array([9]), *two), union_covers(np.array([0]), np.array([10]), *two)
    (True, False)
    """
    return _cut_away(low, high, lows, highs, budget)[0]


def find_union_cover(
    low: BoxEnds, high: BoxEnds, lows: BoxEnds, highs: BoxEnds, budget: int = 10_000
) -> npt.NDArray[np.int64] | None:
    """The numbers of boxes that together hold low..high; None when there are none or the budget is used up.

    >>> three = np.array([[0, 6, 3]]), np.array([[5, 9, 4]])
    >>> find_union_cover(np.array([0]), np.array([9]), *three).tolist()
    [0, 1]
    """
    covered, used = _cut_away(low, high, lows, highs, budget)
    return np.array(sorted(used), np.int64) if covered else None


def _cut_away(
    low: BoxEnds, high: BoxEnds, lows: BoxEnds, highs: BoxEnds, budget: int
) -> tuple[bool | None, list[int]]:
    """Whether nothing is left of a box without the others (None: unknown), and which of these cut it."""
    if budget < 1:
        raise OptionError(f"budget must be at least 1, got {budget}")
    low, high = low[:, None], high[:, None]
    near = np.flatnonzero(((lows <= high) & (highs >= low)).all(axis=0))
    lows, highs = np.maximum(lows[:, near], low), np.minimum(highs[:, near], high)
    # the largest first: it leaves the least to cut; as floats, since codes go to the ends of 64 bits
    sizes = np.log1p(highs.astype(np.float64) - lows).sum(axis=0)
    left_lows, left_highs = low, high
    used: list[int] = []
    spent = 0
    for i in np.argsort(-sizes, kind="stable").tolist():
        met = ((lows[:, i, None] <= left_highs) & (highs[:, i, None] >= left_lows)).all(axis=0)
        if not met.any():
            continue
        used.append(int(near[i]))
        pieces = _without(left_lows[:, met], left_highs[:, met], lows[:, i], highs[:, i])
        left_lows = np.concatenate([left_lows[:, ~met], *(one for one, _ in pieces)], axis=1)
        left_highs = np.concatenate([left_highs[:, ~met], *(one for _, one in pieces)], axis=1)
        spent += sum(one.shape[1] for one, _ in pieces)
        if not left_lows.shape[1]:
            return True, used
        if spent > budget:
            return None, used
    return False, used


def _without(lows: BoxEnds, highs: BoxEnds, a: BoxEnds, b: BoxEnds) -> list[tuple[BoxEnds, BoxEnds]]:
    """Boxes without another that meets each of them, as disjoint boxes: at most two per attribute and box."""
    pieces = []
    for j in range(len(lows)):
        below, above = lows[j] < a[j], highs[j] > b[j]
        if below.any():
            pieces.append((lows[:, below], highs[:, below]))
            pieces[-1][1][j] = a[j] - 1
        if above.any():
            pieces.append((lows[:, above], highs[:, above]))
            pieces[-1][0][j] = b[j] + 1
        lows, highs = lows.copy(), highs.copy()
        lows[j], highs[j] = np.maximum(lows[j], a[j]), np.minimum(highs[j], b[j])
    return pieces


def points_needed(low: BoxEnds, high: BoxEnds, lows: BoxEnds, highs: BoxEnds, error: float) -> int:
    """How many points leave an error below `error`: a gap, if any, is at least the smallest cell of the ends.

    >>> one = np.array([[0]]), np.array([[4]])
    >>> points_needed(np.array([0]), np.array([9]), *one, 0.01)
    7
    """
    share = 1.0
    for j in range(len(low)):
        cuts = np.concatenate([[low[j], high[j] + 1], lows[j], highs[j] + 1])
        cuts = np.unique(np.clip(cuts, low[j], high[j] + 1))
        share *= float(np.diff(cuts).min()) / float(high[j] - low[j] + 1)
    return 1 if share >= 1 else math.ceil(math.log(error) / math.log1p(-share))


def probably_covers(
    low: BoxEnds,
    high: BoxEnds,
    lows: BoxEnds,
    highs: BoxEnds,
    rng: np.random.Generator,
    error: float = 0.01,
    most_points: int = 100_000,
) -> bool | None:
    """False when a point of the box was found that nobody holds; True when `points_needed` points found none.

    None when more than `most_points` would be needed, and so many found none.
    """
    if not 0 < error < 1:
        raise OptionError(f"error must be above 0 and below 1, got {error}")
    needed = points_needed(low, high, lows, highs, error)
    for _ in range(min(needed, most_points)):
        point = rng.integers(low, high, endpoint=True)[:, None]
        if not ((lows <= point) & (point <= highs)).all(axis=0).any():
            return False
    return True if needed <= most_points else None
