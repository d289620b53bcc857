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

from rangecast.papers.covering.extremal import aspect_ratio, bits_for, truncated

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
