"""Is one box covered by several together? Exactly, by cutting away; or probably, by drawing points.

`CoverIndex` looks for one subscription that covers another. A set may cover what none of its members does:
[0, 5] and [6, 9] cover [0, 9]. Deciding that is hard in general (co-NP-complete in the number of
attributes), so the exact search has a budget, and says None where it is used up: as with every cover, not
knowing costs a message and never a match.

    function           answer                     cost
    `union_covers`     True, False, or None       cuts the box by one cover after the other, up to `budget`
    pieces `probably_covers`  False for certain, or      draws points of the box; each point that nobody
    holds is a proof
                       True with an error below   that it is not covered
                       `error` (see there)

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
    if budget < 1:
        raise OptionError(f"budget must be at least 1, got {budget}")
    meets = ((lows <= high[:, None]) & (highs >= low[:, None])).all(axis=0)
    lows, highs = np.maximum(lows[:, meets], low[:, None]), np.minimum(highs[:, meets], high[:, None])
    # the largest first: it leaves the least to cut
    sizes = np.log1p((highs - lows).astype(np.float64)).sum(axis=0)
    order = np.argsort(-sizes, kind="stable")
    left = [(low.copy(), high.copy())]
    spent = 0
    for i in order.tolist():
        pieces: list[tuple[BoxEnds, BoxEnds]] = []
        for piece in left:
            cut = _without(*piece, lows[:, i], highs[:, i])
            spent += len(cut)
            pieces += cut
            if spent > budget:
                return None
        left = pieces
        if not left:
            return True
    return not left


def _without(low: BoxEnds, high: BoxEnds, a: BoxEnds, b: BoxEnds) -> list[tuple[BoxEnds, BoxEnds]]:
    """A box without another, as disjoint boxes: at most two per attribute."""
    if (a > high).any() or (b < low).any():
        return [(low, high)]
    low, high = low.copy(), high.copy()
    pieces = []
    for j in range(len(low)):
        if low[j] < a[j]:
            upper = high.copy()
            upper[j] = a[j] - 1
            pieces.append((low.copy(), upper))
            low[j] = a[j]
        if high[j] > b[j]:
            lower = low.copy()
            lower[j] = b[j] + 1
            pieces.append((lower, high.copy()))
            high[j] = b[j]
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
