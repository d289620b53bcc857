"""The workloads of the papers, with their parameters.

    name                     source
    intervals...             Wu, Chen, Yu, Mei 2004, section 5.2: efficient interval indexing (VCI)
    rectangles...            Wu, Chen, Yu 2004, section 3.1: VCR indexing
    predicates-16            Wang, Zhang, Kitsuregawa 2004, section 5.1, Table 1: predicate index on a UB-tree
    boxes-12d                Wang, Zhang, Kitsuregawa 2004, section 5.1: batches of events on an R-tree
    covering                 Shen, Tirthapura 2012, section 6: approximate covering
    rein                     Qian, Cao, Zhu, Li 2014: REIN

Where a paper leaves something open, the generator's docstring says how it is settled here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError
from rangecast.types.attributes import Float, Int
from rangecast.types.schema import Schema
from rangecast.workloads.registry import Draw, Drawn, DrawnColumns, at_least, in_unit_range, named

_SHORT = 65_536
_VCI = "Wu, Chen, Yu, Mei 2004, 5.2"
_VCR = "Wu, Chen, Yu 2004, 3.1"


@named(
    "intervals-wide-domain", "short intervals on a domain with few at each value", 1_000_000, 20_000, _VCI,
    r=250_000,
)  # fmt: skip
@named("intervals", "short intervals on a domain so small that a value has thousands", 1_000_000, 1_000, _VCI)
def intervals(draw: Draw, n: int, m: int, *, r: int = 5_000, w: int = 200) -> Drawn:
    """Values 1 to r; a start in [1, r - 1], a length in [1, w], cut off at r; events uniform."""
    at_least("intervals", 2, r=r)
    at_least("intervals", 1, w=w)
    lows = draw.subscriptions.integers(1, r, n)
    highs = np.minimum(lows + draw.subscriptions.integers(1, w + 1, n), r)
    values = draw.events.integers(1, r + 1, m)
    return Drawn(Schema(Int("value", 1, r)), {"value": lows}, {"value": highs}, {"value": values})


@named(
    "rectangles-wide-domain", "heaped rectangles on a domain of three million points", 256_000, 50_000, _VCR,
    rx=2_000, ry=1_500,
)  # fmt: skip
@named("rectangles-uniform", "rectangles spread evenly over a small domain", 256_000, 10_000, _VCR, alpha=0.0)
@named("rectangles", "rectangles heaped on each other in the middle (the 90-10 rule)", 256_000, 2_000, _VCR)
def rectangles(
    draw: Draw,
    n: int,
    m: int,
    *,
    rx: int = 300,
    ry: int = 200,
    wx: int = 40,
    wy: int = 20,
    alpha: float = 0.9,
    beta: float = 0.1,
) -> Drawn:
    """Points 0..rx-1 by 0..ry-1; width in [1, wx], height in [1, wy], cut off at the border.

    A share `alpha` of the lower left corners, and of the events, falls in a centred rectangle of
    the domain's shape that has `beta` of its area; the rest falls anywhere, in that rectangle too.
    """
    in_unit_range("rectangles", alpha=alpha, beta=beta)
    at_least("rectangles", 1, rx=rx, ry=ry, wx=wx, wy=wy)
    lows: DrawnColumns = {}
    highs: DrawnColumns = {}
    columns: DrawnColumns = {}
    hot = draw.subscriptions.random(n) < alpha
    hot_events = draw.events.random(m) < alpha
    for name, r, w in (("x", rx, wx), ("y", ry, wy)):
        lows[name] = _heaped(draw.subscriptions, hot, r, beta)
        highs[name] = np.minimum(lows[name] + draw.subscriptions.integers(1, w + 1, n), r - 1)
        columns[name] = _heaped(draw.events, hot_events, r, beta)
    return Drawn(Schema(Int("x", 0, rx - 1), Int("y", 0, ry - 1)), lows, highs, columns)


def _heaped(
    rng: np.random.Generator, hot: npt.NDArray[np.bool_], r: int, beta: float
) -> npt.NDArray[np.int64]:
    side = max(round(r * beta**0.5), 1)
    first = (r - side) // 2
    return np.where(hot, rng.integers(first, first + side, len(hot)), rng.integers(0, r, len(hot)))


@named(
    "boxes-12d", "every attribute bounded and none selective alone", 1_000_000, 200,
    "Wang, Zhang, Kitsuregawa 2004 (R-tree), 5.1",
)  # fmt: skip
def boxes(draw: Draw, n: int, m: int, *, attributes: int = 12) -> Drawn:
    """Unsigned shorts; both ends of each interval and each event's value are uniform."""
    at_least("boxes-12d", 1, attributes=attributes)
    names = [f"a{j}" for j in range(1, attributes + 1)]
    lows: DrawnColumns = {}
    highs: DrawnColumns = {}
    for name in names:
        one, other = draw.subscriptions.integers(0, _SHORT, (2, n))
        lows[name], highs[name] = np.minimum(one, other), np.maximum(one, other)
    columns: DrawnColumns = {name: draw.events.integers(0, _SHORT, m) for name in names}
    return Drawn(Schema(*(Int(name, 0, _SHORT - 1) for name in names)), lows, highs, columns)


@named(
    "predicates-16", "mostly equality, some half-intervals, and attributes that few use", 1_200_000, 1_000,
    "Wang, Zhang, Kitsuregawa 2004 (UB-tree), Table 1",
)  # fmt: skip
def predicates(
    draw: Draw,
    n: int,
    m: int,
    *,
    attributes: int = 16,
    always: int = 3,
    often: int = 5,
    often_share: float = 0.7,
    seldom_share: float = 0.01,
    equality: float = 0.8,
    half: float = 0.5,
    selectivity: float = 0.0001,
) -> Drawn:
    """Shorts; the first attributes are always used, the next often, the rest seldom.

    Independent draws would leave an event almost nothing to match (some three subscriptions in a
    million, those without an equality), and the paper does not say how it came to its 0.01 %. Here
    some points are drawn uniformly, about 1 / selectivity of them, and each subscription belongs to
    one: its equalities take the point's values, and the ends of its intervals and half-intervals
    are drawn uniformly on either side of them. An event is one of the points. The share of the
    subscriptions that belongs to a point is `selectivity` less what matches by chance, so that the
    two add up to it; the remainder that fills no point belongs to points that no event takes. With
    a selectivity of 0, or below what chance gives, subscriptions and events are independent.
    """
    in_unit_range(
        "predicates-16",
        often_share=often_share,
        seldom_share=seldom_share,
        equality=equality,
        half=half,
        selectivity=selectivity,
    )
    at_least("predicates-16", 1, attributes=attributes)
    rng = draw.subscriptions
    shares = [1.0] * always + [often_share] * often + [seldom_share] * attributes
    shares = shares[:attributes]
    # An end drawn between the border and the point leaves 3/4 of the domain to a half-interval and
    # 1/2 to an interval, on average.
    pass_by_chance = (1 - equality) * (0.75 * half + 0.5 * (1 - half))
    chance = float(np.prod([1 - share + share * pass_by_chance for share in shares]))
    of_point = (selectivity - chance) / (1 - chance) if selectivity > chance else 0.0
    n_points = int(1 / of_point + 1e-9) if of_point else 0
    mine = (rng.random(n) / of_point).astype(np.int64) if n_points else None
    theirs = draw.events.integers(0, n_points, m) if n_points else None
    if theirs is not None and m <= n_points:
        theirs = draw.events.permutation(n_points)[:m]  # no event twice while there are points left
    names = [f"a{j}" for j in range(1, attributes + 1)]
    lows: DrawnColumns = {}
    highs: DrawnColumns = {}
    columns: DrawnColumns = {}
    for name, share in zip(names, shares, strict=True):
        points = rng.integers(0, _SHORT, n_points)
        columns[name] = draw.events.integers(0, _SHORT, m) if theirs is None else points[theirs]
        rows = np.flatnonzero(rng.random(n) < share)
        lows[name], highs[name] = np.full((2, n), np.nan)
        held = None if mine is None else _of_points(rng, points, mine[rows])
        lows[name][rows], highs[name][rows] = _predicate(rng, len(rows), held, equality, half)
    return Drawn(Schema(*(Int(name, 0, _SHORT - 1) for name in names)), lows, highs, columns)


def _of_points(
    rng: np.random.Generator, points: npt.NDArray[np.int64], mine: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    held = points[np.minimum(mine, len(points) - 1)]
    alone = mine >= len(points)
    held[alone] = rng.integers(0, _SHORT, np.count_nonzero(alone))
    return held


def _predicate(
    rng: np.random.Generator, k: int, held: npt.NDArray[np.int64] | None, equality: float, half: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Bounds of k predicates that hold the given values, or any: = , half-interval or interval."""
    kind = rng.random(k)
    u = rng.random(k)
    v = rng.random(k)
    if held is None:
        values = np.floor(u * _SHORT)
        ends = np.floor(v * _SHORT)
        low, high = np.minimum(values, ends), np.maximum(values, ends)
        lower_half, upper_half = values, values
    else:
        values = held.astype(np.float64)
        low = np.floor(u * (values + 1))
        high = values + np.floor(v * (_SHORT - values))
        lower_half, upper_half = low, high
    equal = kind < equality
    one_sided = ~equal & (kind < equality + (1 - equality) * half)
    from_below = one_sided & (rng.random(k) < 0.5)
    from_above = one_sided & ~from_below
    low = np.where(equal, values, np.where(from_below, lower_half, np.where(from_above, np.nan, low)))
    high = np.where(equal, values, np.where(from_below, np.nan, np.where(from_above, upper_half, high)))
    return low, high


@named(
    "rein", "half of the attributes in each subscription, each half the domain wide", 1_000_000, 200,
    "Qian, Cao, Zhu, Li 2014",
)  # fmt: skip
def rein(draw: Draw, n: int, m: int, *, attributes: int = 20, used: int = 10, width: float = 0.5) -> Drawn:
    """Floats in [0, 1); each subscription bounds `used` attributes, drawn without repetition."""
    in_unit_range("rein", width=width)
    at_least("rein", 1, attributes=attributes, used=used)
    if used > attributes:
        raise OptionError(f"workload 'rein': used must not exceed attributes, got {used} of {attributes}")
    rng = draw.subscriptions
    names = [f"a{j}" for j in range(1, attributes + 1)]
    # The attributes with the smallest `used` of uniform keys are a uniform choice.
    keys = rng.random((n, attributes), dtype=np.float32)
    chosen = np.zeros((n, attributes), bool)
    if n:
        np.put_along_axis(chosen, np.argpartition(keys, used - 1, axis=1)[:, :used], True, axis=1)
    lows: DrawnColumns = {}
    highs: DrawnColumns = {}
    for j, name in enumerate(names):
        low = rng.random(n) * (1 - width)
        lows[name] = np.where(chosen[:, j], low, np.nan)
        # Rounding must not carry the upper end to 1, which is outside the domain.
        highs[name] = np.where(chosen[:, j], np.minimum(low + width, np.nextafter(1.0, 0.0)), np.nan)
    columns: DrawnColumns = {name: draw.events.random(m) for name in names}
    return Drawn(Schema(*(Float(name, 0.0, 1.0) for name in names)), lows, highs, columns)


@named(
    "covering", "chains of nested rectangles of one aspect ratio, so that most are covered", 100_000, 1_000,
    "Shen, Tirthapura 2012, 6",
)  # fmt: skip
def covering(
    draw: Draw,
    n: int,
    m: int,
    *,
    attributes: int = 2,
    bits: int = 16,
    aspect: int = 2,
    short: int = 8,
    depth: int = 4,
) -> Drawn:
    """Boxes in a universe of 2^bits values per attribute, in chains where each holds the next.

    The aspect ratio is the paper's: the bits of the longest side minus those of the shortest. The
    outermost box of a chain has one side of `short` bits, one of `short + aspect`, and others
    between; each box within has every side shifted right by one bit, which keeps the ratio. The
    paper has no nesting: it looks for covers that are absent or rare, which is depth 1.
    """
    at_least("covering", 1, attributes=attributes, depth=depth)
    at_least("covering", 0, aspect=aspect)
    if attributes == 1 and aspect:
        raise OptionError(f"workload 'covering': one attribute has aspect 0, got {aspect}")
    if not depth <= short <= bits - aspect or bits > 62:
        raise OptionError(
            "workload 'covering': must hold depth <= short <= bits - aspect and bits <= 62, "
            f"got depth {depth}, short {short}, bits {bits}, aspect {aspect}"
        )
    rng = draw.subscriptions
    universe = 1 << bits
    chains = -(-n // depth)
    # Bits of each side: in a random order of attributes the first is shortest, the second longest.
    extra = rng.integers(0, aspect + 1, (chains, attributes))
    extra[:, 0] = 0
    if attributes > 1:
        extra[:, 1] = aspect
    size = 1 << (short + rng.permuted(extra, axis=1) - 1)
    sides = size + rng.integers(0, size)
    corner = rng.integers(0, universe - sides + 1)
    levels = [(corner, corner + sides - 1)]
    for _ in range(depth - 1):
        inner = sides >> 1
        corner = corner + rng.integers(0, sides - inner + 1)
        sides = inner
        levels.append((corner, corner + sides - 1))
    # Level by level within a chain would put each cover just before what it covers: shuffle.
    order = rng.permutation(chains * depth)[:n]
    low = np.concatenate([first for first, _ in levels])[order]
    high = np.concatenate([last for _, last in levels])[order]
    names = [f"a{j}" for j in range(1, attributes + 1)]
    lows: DrawnColumns = {name: np.ascontiguousarray(low[:, j]) for j, name in enumerate(names)}
    highs: DrawnColumns = {name: np.ascontiguousarray(high[:, j]) for j, name in enumerate(names)}
    columns: DrawnColumns = {name: draw.events.integers(0, universe, m) for name in names}
    return Drawn(Schema(*(Int(name, 0, universe - 1) for name in names)), lows, highs, columns)
