"""The lemmas and theorems of the covering paper as functions that can be checked.

Each says what the paper says, for numbers: a bound, or the object that a proof builds. Tests hold them
against counts that are made in another way.

    paper           here                                      found
    Lemma 3.1       `extremal.bits_for`, `kept_share`         holds
    Lemma 3.2       `greedy_cubes`                            holds
    Lemma 3.3       `extremal.truncated`, `greedy_cubes`      holds
    Lemma 3.4       `extremal.cubes_by_level`                 holds
    Lemma 3.5       `widest`                                  holds
    Lemma 3.6       `printed_bound`                           fails: sides 3, 3, 3, 3 and m = 2 have 66 cubes,
                                                              and the bound is 54; `mended_bound` holds
    Theorem 3.1     `approximate_bound`                       holds with the mended bound
    Lemma 4.1       `thin_cells`                              holds
    Theorem 4.1     `exhaustive_bound`                        holds

Where the proof of Lemma 3.6 has its gap. Case 2.1 bounds the cubes of one level by X**(d-2) * (Y * (d-1) +
X), where X and Y are the longest and the shortest side in cubes. It goes on "if we assume 2**alpha > d - 1",
which makes that less than 2 * X**(d-1); without the assumption, as with alpha = 0, it is up to d * X**(d-1).
The last line then drops the 2 beside 2**(alpha * (d-1)) as small, which for alpha = 0 it is not. What
remains true in every case: a level has prod(X_j) - prod(X_j - b_j) cubes with b_j 0 or 1, which is at most
the sum over j of b_j times the product of the other X_k, so at most d * X**(d-1); no X_j exceeds 2**alpha *
(2**m - 1), and there are at most m levels. So

    cubes(R^m) <= d * m * (2**alpha * (2**m - 1))**(d-1)

and Theorem 3.1 keeps its order in epsilon, alpha and the sides, which do not occur, and has another factor d.

Source: Shen and Tirthapura (2012), sections 3 and 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.covering import kernels
from rangecast.errors import CapacityError, OptionError
from rangecast.zorder.curve import Addresses, ZCurve

# Extremal rectangles of the Z curve: their standard cubes and runs, counted and listed.
#
# An extremal rectangle reaches to the top corner of a universe of 2**bits cells a dimension; its sides
# say all about it. A standard cube is a box that halving the universe along every dimension, again and
# again, arrives at: one run of consecutive addresses. The greedy cut into standard cubes, largest first,
# is the least one (Lemma 3.2), and all cubes down to side 2**i together fill the extremal rectangle of
# the sides with the lower i bits cleared (Lemma 3.3): so most counts need no enumeration.
#
# Source: Shen and Tirthapura, "Approximate covering detection among content-based subscriptions using
# space filling curves" (2012), sections 3 and 5. Their second procedure steps through the cubes of a
# rectangle dimension by dimension; here the free bits of an address count up as one number, which
# lists the same cubes in the order of the curve, so that neighbours join into runs as they come.

MOST_LISTED = 50_000_000
"""Cubes beyond which listing them one by one is refused."""


def _checked(sides: Sequence[int], bits: int) -> tuple[int, ...]:
    whole = tuple(int(side) for side in sides)
    if not whole or not all(1 <= side <= 1 << bits for side in whole):
        raise OptionError(
            f"the sides of an extremal rectangle must be within 1 and 2**{bits}, got {list(sides)}"
        )
    return whole


def cubes_by_level(sides: Sequence[int], bits: int = 63) -> dict[int, int]:
    """How many standard cubes of side 2**level a rectangle is cut into, by level, largest first.

    >>> cubes_by_level([7, 5])
    {2: 1, 1: 2, 0: 11}
    """
    whole = _checked(sides, bits)
    counts: dict[int, int] = {}
    done = 0
    for level in range(min(whole).bit_length() - 1, -1, -1):
        reached = math.prod((side >> level) << level for side in whole)
        if reached > done:
            counts[level] = (reached - done) >> (level * len(whole))
        done = reached
    return counts


def count_cubes(sides: Sequence[int], bits: int = 63) -> int:
    """The least number of standard cubes that fill a rectangle (Lemma 3.4).

    >>> count_cubes([256, 256]), count_cubes([257, 257])
    (1, 514)
    """
    return sum(cubes_by_level(sides, bits).values())


def cubes_until(sides: Sequence[int], epsilon: float) -> int:
    """How many cubes, largest first, hold 1 - epsilon of a rectangle's volume.

    >>> cubes_until([257, 257], 0.01), cubes_until([257, 257], 0.0)
    (1, 514)
    """
    whole = _checked(sides, 63)
    if not 0 <= epsilon < 1:
        raise OptionError(f"epsilon must be at least 0 and below 1, got {epsilon}")
    missing: float = math.prod(whole) * (1 - epsilon) if epsilon else math.prod(whole)
    total = 0
    for level, n in cubes_by_level(whole).items():
        cube = 1 << (level * len(whole))
        if n * cube >= missing:
            return total + max(0, math.ceil(missing / cube))
        total += n
        missing -= n * cube
    return total


def bits_for(n_dims: int, epsilon: float) -> int:
    """How many leading bits of every side keep at least 1 - epsilon of the volume (Lemma 3.1).

    >>> bits_for(4, 0.05)
    8
    """
    if not 0 < epsilon < 1:
        raise OptionError(f"epsilon must be above 0 and below 1, got {epsilon}")
    return math.ceil(math.log2(2 * n_dims / epsilon))


def truncated(sides: Sequence[int], m: int) -> tuple[int, ...]:
    """The sides with all but their m leading bits cleared.

    >>> truncated([257, 7], 2)
    (256, 6)
    """
    return tuple(
        (side >> cut) << cut for side, cut in ((s, max(0, s.bit_length() - m)) for s in _checked(sides, 63))
    )


def aspect_ratio(sides: Sequence[int]) -> int:
    """Bits of the longest side less bits of the shortest.

    >>> aspect_ratio([256, 7])
    6
    """
    lengths = [side.bit_length() for side in _checked(sides, 63)]
    return max(lengths) - min(lengths)


def rectangles(sides: Sequence[int], level: int) -> list[tuple[int, ...]]:
    """The rectangles that the cubes of side 2**level make up, each by its sides (Algorithm 1).

    >>> sorted(rectangles([7, 5], 0))
    [(1, 1), (1, 4), (2, 1), (4, 1)]
    """
    places = _places(sides, level)
    return [tuple(1 << int(p) for p in row) for row in places]


def _places(sides: Sequence[int], level: int) -> npt.NDArray[np.int64]:
    whole = np.array(_checked(sides, 63), np.int64)
    if not 0 <= level < int(whole.min()).bit_length():
        return np.empty((0, len(whole)), np.int64)
    n = kernels.list_rectangles(whole, level, np.empty((0, len(whole)), np.int64))
    out = np.empty((n, len(whole)), np.int64)
    kernels.list_rectangles(whole, level, out)
    return out


def runs(sides: Sequence[int], bits: int) -> tuple[Addresses, Addresses]:
    """First and last address of every run of the curve that a rectangle is, ascending.

    >>> firsts, lasts = runs([3, 3], 2)
    >>> [int(a) >> 60 for a in firsts[:, 0]], [int(a) >> 60 for a in lasts[:, 0]]
    ([3, 6, 9, 11], [3, 7, 9, 15])
    """
    whole = _checked(sides, bits)
    n_cubes = count_cubes(whole, bits)
    if n_cubes > MOST_LISTED:
        raise CapacityError(
            f"at most {MOST_LISTED:,} cubes can be listed, but the sides {whole} need {n_cubes:,}"
        )
    curve = ZCurve([bits] * len(whole))
    lengths = np.array(whole, np.int64)
    firsts: list[Addresses] = []
    lasts: list[Addresses] = []
    for level in cubes_by_level(whole, bits):
        for places in _places(whole, level):
            none = np.empty((0, curve.n_words), np.uint64)
            n, _ = kernels.list_runs(lengths, level, places, curve.dims, curve.shifts, none, none)
            pair = np.empty((2, n, curve.n_words), np.uint64)
            kernels.list_runs(lengths, level, places, curve.dims, curve.shifts, pair[0], pair[1])
            firsts.append(pair[0])
            lasts.append(pair[1])
    return _joined(np.concatenate(firsts), np.concatenate(lasts), 64 * curve.n_words - len(curve.dims))


def _joined(firsts: Addresses, lasts: Addresses, unused: int) -> tuple[Addresses, Addresses]:
    """Runs that follow each other as one; the lowest `unused` bits of an address are always 0."""
    order = np.lexsort(firsts.T[::-1])
    firsts, lasts = firsts[order], lasts[order]
    after = lasts[:-1].copy()
    carry = np.full(len(after), np.uint64(1) << np.uint64(unused))
    for w in range(after.shape[1] - 1, -1, -1):
        after[:, w] += carry
        carry = (after[:, w] < carry).astype(np.uint64)
    apart = np.concatenate([[True], (after != firsts[1:]).any(axis=1)])
    ends = np.concatenate([apart[1:], [True]])
    return firsts[apart], lasts[ends]


def count_runs(sides: Sequence[int], bits: int) -> int:
    """The least number of runs of the Z curve that a rectangle is.

    >>> count_runs([256, 256], 9), count_runs([257, 257], 9)
    (1, 385)
    """
    return len(runs(sides, bits)[0])


def cubes(sides: Sequence[int], bits: int, level: int) -> list[tuple[int, ...]]:
    """The cubes of side 2**level of a rectangle, each by its coordinates in units of that side.

    >>> sorted(cubes([7, 5], 3, 1))
    [(1, 2), (1, 3)]
    """
    whole = _checked(sides, bits)
    found = []
    for places in _places(whole, level):
        spans = []
        for side, place in zip(whole, places.tolist(), strict=True):
            # eq. 1: the bits above the place inverted, a 1, then all that may follow
            above = ~side >> (place + 1) << (place + 1)
            low = ((above | 1 << place) & ((1 << bits) - 1)) >> level
            spans.append(range(low, low + (1 << (place - level))))
        found += list(itertools.product(*spans))
    return found


Coordinates = tuple[int, ...]
Cube = tuple[int, Coordinates]
"""The level of a standard cube, and its lowest cell."""


def kept_share(sides: Sequence[int], m: int) -> float:
    """The share of a rectangle's volume that the m leading bits of every side keep.

    >>> kept_share([257, 257], 8) > 0.99
    True
    """
    return math.prod(truncated(sides, m)) / math.prod(sides)


def cells_of(sides: Sequence[int], bits: int) -> set[Coordinates]:
    """The cells of an extremal rectangle, one by one.

    >>> sorted(cells_of([1, 2], 2))
    [(3, 2), (3, 3)]
    """
    top = 1 << bits
    return set(itertools.product(*(range(top - side, top) for side in sides)))


def greedy_cubes(region: set[Coordinates], bits: int) -> list[Cube]:
    """Cut any region into standard cubes by taking the largest that fits, again and again (section 3.2).

    >>> [level for level, _ in greedy_cubes(cells_of([3, 3], 2), 2)]
    [1, 0, 0, 0, 0, 0]
    """
    left = set(region)
    taken = []
    for level in range(bits, -1, -1):
        for corner in sorted({tuple(x >> level << level for x in cell) for cell in left}):
            inside = set(itertools.product(*(range(x, x + (1 << level)) for x in corner)))
            if inside <= left:
                taken.append((level, corner))
                left -= inside
    return taken


def widest(bits: Sequence[int]) -> tuple[int, ...]:
    """The sides with these numbers of bits that need the most cubes: all ones (Lemma 3.5).

    >>> widest([2, 3])
    (3, 7)
    """
    return tuple((1 << b) - 1 for b in bits)


def printed_bound(n_dims: int, m: int, aspect: int) -> int:
    """What Lemma 3.6 says no R^m needs as many cubes as; it is not true.

    >>> printed_bound(4, 2, 0)
    54
    """
    widest_side = (1 << aspect) * ((1 << m) - 1)
    return m * int(widest_side ** (n_dims - 1))


def mended_bound(n_dims: int, m: int, aspect: int) -> int:
    """More cubes than this no R^m needs (the module head has the proof).

    >>> mended_bound(4, 2, 0)
    216
    """
    return n_dims * printed_bound(n_dims, m, aspect)


def approximate_bound(sides: Sequence[int], epsilon: float) -> int:
    """More cubes than this need not be searched to search 1 - epsilon of the volume (Theorem 3.1, mended).

    It depends on the sides by their aspect ratio alone.

    >>> approximate_bound([255] * 4, 0.3) == approximate_bound([4095] * 4, 0.3)
    True
    """
    d = len(sides)
    return mended_bound(d, bits_for(d, epsilon), aspect_ratio(sides))


def worst_sides(n_dims: int, shortest: int, aspect: int) -> tuple[int, ...]:
    """The rectangle of section 4: the last side is 2**shortest - 1, the others have `aspect` bits more.

    >>> worst_sides(3, 2, 1)
    (4, 4, 3)
    """
    return (*[1 << (shortest + aspect - 1)] * (n_dims - 1), (1 << shortest) - 1)


def thin_cells(sides: Sequence[int], bits: int) -> set[Coordinates]:
    """R_0 of section 4: cells of the lowest bit of the last side and the top bit of every other one.

    >>> sorted(thin_cells(worst_sides(2, 2, 0), 2))
    [(2, 1), (3, 1)]
    """
    top = 1 << bits
    spans = [range(top - (1 << (side.bit_length() - 1)), top) for side in sides[:-1]]
    return set(itertools.product(*spans, [top - sides[-1]]))


def exhaustive_bound(sides: Sequence[int]) -> int:
    """Fewer runs than this cannot fill `worst_sides` (Theorem 4.1).

    >>> exhaustive_bound(worst_sides(2, 3, 1))
    8
    """
    return math.prod(1 << (side.bit_length() - 1) for side in sides[:-1])


# Positions on three curves that divide a universe again and again: Z, Gray and Hilbert.
#
# A standard cube is one run of each of them, so the paper's upper bound holds for all (section 3.2); how many
# runs a region is differs. The covering paper searches along Z and names the other two.
#
#     curve     position of a cell                                        source
#     z         its coordinates with their bits interleaved               Morton 1966
#     gray      the rank of those bits as a Gray code                     Faloutsos 1986
#     hilbert   the bits after undoing, from the top, each cube's turns   Hilbert 1891, by Skilling's steps
#                                                                         ("Programming the Hilbert curve")

CURVES = ("z", "gray", "hilbert")
MOST_CELLS = 1 << 24
Positions = npt.NDArray[np.int64]


def positions(curve: str, cells: npt.NDArray[np.int64], bits: int) -> Positions:
    """Where cells lie on a curve; `cells` has a row per dimension.

    >>> square = np.array([[0, 0, 1, 1], [0, 1, 1, 0]])
    >>> {curve: positions(curve, square, 1).tolist() for curve in CURVES}
    {'z': [0, 1, 3, 2], 'gray': [0, 1, 2, 3], 'hilbert': [0, 1, 2, 3]}
    """
    if curve not in CURVES:
        raise OptionError(f"curve must be one of {', '.join(CURVES)}, got {curve!r}")
    if len(cells) * bits > 62:
        raise CapacityError(f"positions must fit 62 bits, got {len(cells)} dimensions of {bits} bits")
    if curve == "hilbert":
        return _interleaved(_turned(cells, bits), bits)
    found = _interleaved(cells, bits)
    if curve == "gray":
        shift = 1
        while shift < len(cells) * bits:
            found ^= found >> shift
            shift *= 2
    return found


def count_curve_runs(curve: str, sides: Sequence[int], bits: int, corner: Sequence[int] | None = None) -> int:
    """The least number of runs of a curve that make up a rectangle, at the top corner by default.

    >>> count_curve_runs("z", [257, 257], 9)
    385
    """
    n_cells = int(np.prod([int(side) for side in sides]))
    if n_cells > MOST_CELLS:
        raise CapacityError(f"at most {MOST_CELLS:,} cells can be listed, but {list(sides)} has {n_cells:,}")
    lowest = [(1 << bits) - side for side in sides] if corner is None else list(corner)
    spans: list[Any] = [np.arange(low, low + side) for low, side in zip(lowest, sides, strict=True)]
    cells = np.stack([axis.ravel() for axis in np.meshgrid(*spans, indexing="ij")])
    along = np.sort(positions(curve, cells.astype(np.int64), bits))
    return 1 + int(np.count_nonzero(np.diff(along) > 1))


def _interleaved(cells: npt.NDArray[np.int64], bits: int) -> Positions:
    found = np.zeros(cells.shape[1], np.int64)
    for bit in range(bits - 1, -1, -1):
        for row in cells:
            found = found << 1 | (row >> bit & 1)
    return found


def _turned(cells: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    """Coordinates whose interleaved bits are the position on Hilbert's curve."""
    x = cells.copy()
    for bit in range(bits - 1, 0, -1):
        below = np.int64((1 << bit) - 1)
        for row in x:
            # within the half that the curve enters turned round, the first axis is mirrored; else two change
            # places
            mirrored = (row >> bit & 1).astype(bool)
            swapped = np.where(mirrored, 0, (x[0] ^ row) & below)
            x[0] ^= np.where(mirrored, below, swapped)
            row ^= swapped
    for i in range(1, len(x)):
        x[i] ^= x[i - 1]
    flip = np.zeros(x.shape[1], np.int64)
    for bit in range(bits - 1, 0, -1):
        flip ^= np.where(x[-1] >> bit & 1, np.int64((1 << bit) - 1), 0)
    x ^= flip
    return x
