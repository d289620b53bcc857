"""Is one box covered by several together? Exactly, by cutting away; or probably, by drawing points.

`CoverIndex` looks for one subscription that covers another. A set may cover what none of its members does:
[0, 5] and [6, 9] cover [0, 9]. Deciding that is hard in general (co-NP-complete in the number of
attributes), so the exact search has a budget, and says None where it is used up: as with every cover, not
knowing costs a message and never a match.

    function             answer                         how
    `find_union_cover`   the boxes of a cover, or None  cuts the box by one other after the next, until more
    `union_covers`       True, False, or None           than `budget` pieces were made
    `probably_covers`    False for certain, or True     draws points of the box; a point that nobody holds
                         with an error below `error`    proves that it is not covered

Source: Ouksel, Jurca, Podnar and Aberer, "Efficient probabilistic subsumption checking for content-based
publish/subscribe systems" (Middleware 2006), for the second. Their number of points follows from the smallest
gap that the ends of the boxes could leave; so does ours.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError

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
