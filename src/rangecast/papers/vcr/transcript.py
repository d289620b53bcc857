"""The printed algorithms of the rectangle paper, line by line, in plain Python.

Source: Wu, Chen and Yu (2004), figures 2 and 4 and equation (1). Names are the paper's: a working rectangle
(Lw, Bw, Ww, Hw), strips (Ls, Bs, Ws, Hs) cut off its bottom, and virtual construct rectangles v. Numbers at
the ends of lines count the lines of figure 2 from its head.

The kernels (`cut_along` and `construct_id` in kernels.py) cut each axis by itself: in figure 2 the heights of
the strips depend on Hw and By alone, and the widths within a strip on Ww and Lw alone, so the rectangles are
every width beside every height. tests/papers/test_transcripts.py holds both against each other.

The paper's rectangles include all their border points; so do these.
"""

from __future__ import annotations

from typing import NamedTuple


class ConstructRectangle(NamedTuple):
    """A rectangle by its corner, width and height: (a, b, w, h) of the paper."""

    left: int
    bottom: int
    width: int
    height: int


def maxVCRh(Hw: int, Ly: int) -> int:
    """The greatest height of a construct, a power of two and at most Ly, that is not above Hw."""
    height = Ly
    while height > Hw:
        height //= 2
    return height


def simple_decomposition(a: int, b: int, w: int, h: int, Lx: int, Ly: int) -> list[ConstructRectangle]:
    """Figure 2: cut a predicate's rectangle into constructs, SD.

    >>> len(simple_decomposition(3, 3, 11, 6, 4, 4))  # figure 3
    8
    """
    Lw, Bw, Ww, Hw = a, b, w, h  # 1: workRect
    decomposedSet: list[ConstructRectangle] = []  # 2
    while Hw > 0:  # 3
        Hs = maxVCRh(Hw, Ly)  # 4
        Ls, Bs, Ws = Lw, Bw, Ww  # 5: stripRect
        while Ws > 0:  # 6
            width = maxVCRh(Ws, Lx)  # 7 to 9: the largest v at (Ls, Bs) that is as high as the strip
            decomposedSet.append(ConstructRectangle(Ls, Bs, width, Hs))  # 10
            Ls, Ws = Ls + width, Ws - width  # 11
        Bw, Hw = Bw + Hs, Hw - Hs  # 13
    return decomposedSet  # 15


def overlapped_decomposition(a: int, b: int, w: int, h: int, Lx: int, Ly: int) -> list[ConstructRectangle]:
    """Figure 4 and section 2.2.2: as figure 2 with constructs of one size, OD.

    The last construct of a strip is moved back to the left, and the last strip down, so that they end where
    the predicate ends.

    >>> pieces = overlapped_decomposition(3, 3, 11, 6, 4, 4)
    >>> len(pieces), [tuple(v) for v in pieces[:3]]  # figure 4a
    (6, [(3, 3, 4, 4), (7, 3, 4, 4), (10, 3, 4, 4)])
    """
    width, height = maxVCRh(w, Lx), maxVCRh(h, Ly)
    decomposedSet: list[ConstructRectangle] = []
    Bw, Hw = b, h
    while Hw > 0:
        Bs = min(Bw, b + h - height)
        Ls, Ws = a, w
        while Ws > 0:
            decomposedSet.append(ConstructRectangle(min(Ls, a + w - width), Bs, width, height))
            Ls, Ws = Ls + width, Ws - width
        Bw, Hw = Bw + height, Hw - height
    return decomposedSet


def vcr_id(v: ConstructRectangle, Rx: int, Lx: int, Ly: int) -> int:
    """Equation (1): the number of a construct, B(x + y Rx) + j (kx + 1) + i, with B = (kx + 1)(ky + 1).

    >>> vcr_id(ConstructRectangle(0, 0, 1, 1), 300, 4, 4), vcr_id(ConstructRectangle(1, 0, 2, 4), 300, 4, 4)
    (0, 16)
    """
    kx, ky = Lx.bit_length() - 1, Ly.bit_length() - 1
    i, j = v.width.bit_length() - 1, v.height.bit_length() - 1
    B = (kx + 1) * (ky + 1)
    return B * (v.left + v.bottom * Rx) + j * (kx + 1) + i
