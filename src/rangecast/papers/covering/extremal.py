"""Extremal rectangles of the Z curve: their standard cubes and runs, counted and listed.

An extremal rectangle reaches to the top corner of a universe of 2**bits cells a dimension; its sides
say all about it. A standard cube is a box that halving the universe along every dimension, again and
again, arrives at: one run of consecutive addresses. The greedy cut into standard cubes, largest first,
is the least one (Lemma 3.2), and all cubes down to side 2**i together fill the extremal rectangle of
the sides with the lower i bits cleared (Lemma 3.3): so most counts need no enumeration.

Source: Shen and Tirthapura, "Approximate covering detection among content-based subscriptions using
space filling curves" (2012), sections 3 and 5. Their second procedure steps through the cubes of a
rectangle dimension by dimension; here the free bits of an address count up as one number, which
lists the same cubes in the order of the curve, so that neighbours join into runs as they come.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rangecast.covering import kernels
from rangecast.errors import CapacityError, OptionError
from rangecast.zorder.curve import Addresses, ZCurve

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
