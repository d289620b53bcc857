"""The printed algorithms of the covering paper, line by line, in plain Python.

Source: Shen and Tirthapura (2012), section 5: algorithms 1 and 2, equation (1), and the order in which the
section takes the cubes of an extremal rectangle. Names are the paper's: sides ell, level i, the number m of
dimensions that are fixed, fd (which of them), r (the bit of each side that a rectangle stands for), c (the
coordinates of a cube). Dimensions count from 0 here and from 1 in the paper.

The paper keeps the state of an enumeration in static variables, which initFlag sets; here each enumeration is
a generator, whose first value is what initFlag gives, and which ends where NoMoreRectangle or NoMoreCube is
returned.

The kernels (covering/kernels.py) run through the same rectangles in the same order (`choose_rectangle`), with
a set of dimensions as a mask, and join cubes that follow each other on the curve (`lay_rectangle`).
tests/papers/test_transcripts.py holds both against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations


def b(x: int) -> int:
    """The number of bits of x."""
    return x.bit_length()


def NonZeroDim(ell: tuple[int, ...], i: int) -> list[int]:
    """The dimensions whose side has bit i."""
    return [j for j in range(len(ell)) if ell[j] >> i & 1]


def FixedDim(ell: tuple[int, ...], i: int, m: int) -> list[tuple[int, ...]]:
    """All choices of m of these dimensions."""
    return list(combinations(NonZeroDim(ell, i), m))


def EnumerateRectangle(
    ell: tuple[int, ...],
    i: int,
    fd: tuple[int, ...],
) -> Iterator[tuple[int, ...]]:
    """Algorithm 1: the rectangles r of R_{i,m} in which the dimensions of fd are fixed.

    >>> [list(EnumerateRectangle((7, 5), 0, fd)) for fd in ((0,), (1,), (0, 1))]  # figures 5 and 6
    [[(0, 2)], [(2, 0), (1, 0)], [(0, 0)]]
    """
    d = len(ell)
    if any(b(ell[z]) - 1 <= i for z in range(d) if z not in fd):
        return  # a side without a bit above i has no place for r[z]: the set is empty
    # initFlag: the highest bit of each side
    NextRectangle = [i if z in fd else b(ell[z]) - 1 for z in range(d)]
    yield tuple(NextRectangle)
    while True:
        for z in range(d):
            if z not in fd:
                # the next non-zero bit below, and above i
                lower = [x for x in range(NextRectangle[z] - 1, i, -1) if ell[z] >> x & 1]
                if lower:
                    NextRectangle[z] = lower[0]
                    break
                NextRectangle[z] = b(ell[z]) - 1
        else:
            return  # NoMoreRectangle
        yield tuple(NextRectangle)


def EnumStdCube(
    r: tuple[int, ...],
    k: int,
    ell: tuple[int, ...],
    i: int,
) -> Iterator[tuple[int, ...]]:
    """Algorithm 2: the standard cubes c of side 2**i of a rectangle r, by equation (1).

    >>> [tuple(f"{c:03b}" for c in cube) for cube in EnumStdCube((1, 0), 3, (7, 5), 0)]
    [('010', '011'), ('011', '011')]
    """
    d = len(ell)
    NextCube = [0] * d
    # initFlag: bits above r[z] are those of the side inverted, bit r[z] is 1, and those below it begin at 0
    for z in range(d):
        for x in range(i, k):
            if x > r[z]:
                NextCube[z] |= (~ell[z] >> x & 1) << (x - i)
            elif x == r[z]:
                NextCube[z] |= 1 << (x - i)
    yield tuple(NextCube)
    while True:
        for z in range(d):
            low = (1 << (r[z] - i)) - 1
            temp = (NextCube[z] & low) + 1 & low
            NextCube[z] = NextCube[z] & ~low | temp
            if temp > 0:
                break
        else:
            return  # NoMoreCube
        yield tuple(NextCube)


def rectangles_of(ell: tuple[int, ...], i: int) -> Iterator[tuple[int, ...]]:
    """The rectangles of level i, whose disjoint union is A(D_i): all m, all choices of dimensions."""
    for m in range(1, len(ell) + 1):
        for fd in FixedDim(ell, i, m):
            yield from EnumerateRectangle(ell, i, fd)


def cubes_of(ell: tuple[int, ...], k: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The levels and cubes of an extremal rectangle in a universe of side 2**k, the largest cubes first."""
    for i in range(max(map(b, ell)) - 1, -1, -1):
        for r in rectangles_of(ell, i):
            for c in EnumStdCube(r, k, ell, i):
                yield i, c
