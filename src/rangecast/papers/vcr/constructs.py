"""Construct rectangles as the paper defines them: ids, decompositions, covering set, distance table.

Source: Wu, Chen and Yu 2004 (index.py), sec. 2.1 to 2.3. Rectangles are closed: (x, y, w, h) holds
x <= p <= x + w, so two constructs of one rectangle share the points of their seam.

    number                                  where
    id(x, y, 2**i, 2**j)                    eq. (1): B (x + y Rx) + j (kx + 1) + i, B = (kx + 1)(ky + 1)
    simple, overlapped decomposition        sec. 2.2.1 and 2.2.2; both are products of cuts along the axes
    |Cov(a, b)| = (2 Lx + kx)(2 Ly + ky)    theorem 1, for points with a >= Lx and b >= Ly
    distance table                          sec. 2.3.2: ids of Cov(a, b) less that of the pivot
                                            (a - Lx, b - Ly, 1, 1); the same for all such points

A point nearer to the left or lower border than Lx, Ly has fewer constructs, for corners outside the
domain do not exist; `covering` gives those that do. At the right and upper border nothing changes,
because constructs may reach beyond it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError
from rangecast.kernels.papers.vcr import constructs as kernels

ConstructIds = npt.NDArray[np.int64]
Rectangle = tuple[int, int, int, int]


class ConstructRectangles(NamedTuple):
    """All constructs over rx by ry corners with sides up to 2**kx and 2**ky.

    >>> small = ConstructRectangles(20, 20, 2, 2)
    >>> small.id(0, 0, 1, 1), small.id(0, 0, 4, 4), small.n_per_corner
    (0, 8, 9)
    >>> len(small.decompose(3, 3, 11, 6)), len(small.decompose(3, 3, 11, 6, overlapped=True))
    (8, 6)
    >>> len(small.covering(10, 10)), len(small.distances())
    (100, 100)
    """

    rx: int
    ry: int
    kx: int
    ky: int

    @property
    def n_per_corner(self) -> int:
        """B, the constructs with one bottom-left corner."""
        return (self.kx + 1) * (self.ky + 1)

    @property
    def n_constructs(self) -> int:
        """How many constructs there are."""
        return self.n_per_corner * self.rx * self.ry

    @property
    def n_covering(self) -> int:
        """How many constructs hold a point that is not near the border."""
        return ((2 << self.kx) + self.kx) * ((2 << self.ky) + self.ky)

    def id(self, x: int, y: int, width: int, height: int) -> int:
        """The number of a construct."""
        i, j = width.bit_length() - 1, height.bit_length() - 1
        inside = 0 <= x < self.rx and 0 <= y < self.ry and 0 <= i <= self.kx and 0 <= j <= self.ky
        if not inside or (width, height) != (1 << i, 1 << j):
            raise OptionError(
                f"a construct has its corner within {self.rx} x {self.ry} and sides that are powers of two "
                f"up to {1 << self.kx} x {1 << self.ky}, got {(x, y, width, height)}"
            )
        return int(kernels.construct_id(x, y, i, j, self.rx, self.kx, self.ky))

    def rectangle(self, number: int) -> Rectangle:
        """The construct (x, y, width, height) with a number: the inverse of `id`."""
        corner, size = divmod(number, self.n_per_corner)
        j, i = divmod(size, self.kx + 1)
        y, x = divmod(corner, self.rx)
        return x, y, 1 << i, 1 << j

    def decompose(self, a: int, b: int, w: int, h: int, overlapped: bool = False) -> list[Rectangle]:
        """The constructs that make the rectangle (a, b, w, h), strip by strip from below."""
        if w < 1 or h < 1:
            raise OptionError(f"a rectangle of width or height 0 has no construct, got {(a, b, w, h)}")
        columns, rows = (
            self._cut(first, length, k, overlapped) for first, length, k in ((a, w, self.kx), (b, h, self.ky))
        )
        return [(x, y, width, height) for y, height in rows for x, width in columns]

    def covering(self, a: int, b: int) -> ConstructIds:
        """Ids of all constructs that hold the point (a, b), ascending."""
        out = np.empty(self.n_covering, np.int64)
        return out[: kernels.cover_point(a, b, self.rx, self.kx, self.ky, out)]

    def pivot(self, a: int, b: int) -> int:
        """The id of (a - Lx, b - Ly, 1, 1), to which distances are added."""
        return self.id(a - (1 << self.kx), b - (1 << self.ky), 1, 1)

    def distances(self) -> ConstructIds:
        """The distance table: what to add to a point's pivot to get the ids that hold it."""
        # the differences depend on the row length alone, so any point off the border will do
        held: ConstructIds = self.covering(1 << self.kx, 1 << self.ky)
        return held

    @staticmethod
    def _cut(first: int, length: int, k: int, overlapped: bool) -> list[tuple[int, int]]:
        n = int(kernels.count_along(length, k, overlapped))
        starts, logs = np.empty(n, np.int64), np.empty(n, np.int64)
        kernels.cut_along(first, length, k, overlapped, starts, logs)
        return [(int(start), 1 << int(log)) for start, log in zip(starts, logs, strict=True)]
