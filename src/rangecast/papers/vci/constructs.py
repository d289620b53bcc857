"""Virtual construct intervals: their coordinates, and which of them cover a value.

Source: Wu, Chen, Yu and Mei, "Efficient interval indexing for content-based subscription e-commerce and
services" (IBM Research Report, 2004), sec. 2-4. From every value start constructs of the lengths
1, 2, ..., L (simple, SCI) or 1, 2, 4, ..., L = 2**k (logarithmic, LCI); `width` of them, so the
construct [a, b] has the coordinate (a - a0) * width + its place among the lengths (eq. 1 and 2).

The paper's constructs are closed: [0, 4] and [4, 6] both cover 4. A predicate that was cut there would
be found twice by the value 4, and a predicate of one value has no construct. The indexes therefore read
a construct as half-open, [a, b): value 4 stands for the unit [4, 5), and the predicate "x to y" over
whole numbers is the interval [x, y + 1) with a length of at least 1. Coordinates and decomposition are
the same in both readings; a value is covered by one construct fewer of each length. `closed=True`,
the default here, gives the paper's numbers:

    what                      closed, as in the paper      half-open, as in the indexes
    covering segment, SCI     L*L + 1                      L*L - L + 1
    covering segment, LCI     L(k+1) + 1                   (L-1)(k+1) + 1
    distance table, SCI       L(L+3)/2                     L(L+1)/2
    distance table, LCI       2L + k                       2L - 1
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.layouts.runs import check_length
from rangecast.errors import OptionError
from rangecast.kernels.papers.vci import lists as kernels


class ConstructIntervals(NamedTuple):
    """The lengths that start at each value, ascending, and the place of the longest that fits."""

    kind: str
    lengths: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]

    @property
    def longest(self) -> int:
        """L, the maximal length."""
        return int(self.lengths[-1])

    @property
    def width(self) -> int:
        """How many constructs start at each value."""
        return len(self.lengths)

    @classmethod
    def of(cls, kind: str, longest: int) -> ConstructIntervals:
        """SCI or LCI with a maximal length.

        >>> ConstructIntervals.of("lci", 8).lengths.tolist(), ConstructIntervals.of("sci", 4).lengths.tolist()
        ([1, 2, 4, 8], [1, 2, 3, 4])
        """
        if kind not in ("sci", "lci"):
            raise OptionError(f"constructs must be 'sci' or 'lci', got {kind!r}")
        check_length(longest)
        fits = np.arange(longest + 1)
        if kind == "sci":
            return cls(kind, fits[1:], np.maximum(fits - 1, 0))
        powers = np.int64(1) << np.arange(longest.bit_length())
        return cls(kind, powers, np.maximum(np.searchsorted(powers, fits, "right") - 1, 0))

    def coordinate(self, a: int, b: int, a0: int = 0) -> int:
        """The coordinate of the construct [a, b].

        >>> ConstructIntervals.of("sci", 4).coordinate(0, 2)
        1
        """
        place = int(np.searchsorted(self.lengths, b - a))
        if place == self.width or self.lengths[place] != b - a:
            raise OptionError(f"no construct of {self.kind} with L = {self.longest} has the length {b - a}")
        return (a - a0) * self.width + place

    def interval(self, coordinate: int, a0: int = 0) -> tuple[int, int]:
        """The ends of a construct: the inverse of `coordinate`."""
        a, place = divmod(coordinate, self.width)
        return a0 + a, a0 + a + int(self.lengths[place])

    def decompose(self, x: int, y: int, a0: int = 0) -> list[int]:
        """The coordinates of the constructs that [x, y] is cut into, from the left.

        >>> ConstructIntervals.of("sci", 4).decompose(0, 6)
        [3, 17]
        """
        out = np.empty(max(y - x, 0), np.int64)
        n = kernels.decompose(x - a0, y - a0, self.columns, self.lengths, out)
        return [int(c) for c in out[:n]]

    def segment(self, j: int, closed: bool = True) -> tuple[int, int]:
        """The least and the greatest coordinate that can cover the value a0 + j, for j >= L.

        >>> low, high = ConstructIntervals.of("lci", 16).segment(100)
        >>> high - low + 1 == 16 * (4 + 1) + 1
        True
        """
        first = j - self.longest + (0 if closed else 1)
        return first * self.width + self.width - 1, j * self.width + self.width - 1

    def distances(self, closed: bool = True) -> npt.NDArray[np.int64]:
        """The distance table: coordinates of the constructs that cover a value, less the least of them.

        >>> len(ConstructIntervals.of("lci", 16).distances()) == 2 * 16 + 4
        True
        """
        reach = self.lengths + (1 if closed else 0)
        # relative to the value itself: starts 0, -1, ..., -(reach - 1) for each length
        places = np.repeat(np.arange(self.width), reach)
        back = np.arange(len(places)) - np.repeat(np.cumsum(reach) - reach, reach)
        coordinates = np.sort(places - back * self.width)
        table: npt.NDArray[np.int64] = coordinates - coordinates[0]
        return table
