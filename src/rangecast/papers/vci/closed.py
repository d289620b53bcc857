"""The interval paper's own structures: closed constructs, linked lists, bit vectors; and what they weigh.

The indexes read constructs as half-open (constructs.py says why). Here they are closed, as printed: [0, 4]
and [4, 6] both cover 4, so a value on a seam finds a predicate twice, and a predicate of one value cannot be
stored. It is for checking the paper's numbers, not for speed: the lists are Python's.

    what            bytes, as the paper counts them
    header          4 per construct, R * width constructs
    list node       8: an id and a pointer
    SCI, LCI        a vector of R * width bits per value
    SCI-BC, LCI-BC  a vector of the covering segment per value: L*L + 1 or L(k+1) + 1 bits
    LCI-BV          no vector; with the distance table 2L + k numbers more
    Dlist           a header per value, and a node in the list of every value that a predicate covers

Source: Wu, Chen, Yu and Mei (IBM Research Report, 2004), sec. 2 to 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError
from rangecast.papers.vci.constructs import ConstructIntervals

HEADER = 4
NODE = 8
BitVectors = npt.NDArray[np.bool_]


class ClosedIntervals:
    """Predicates on the values a0 .. a0 + r - 1, cut into closed constructs, with a bit vector per value.

    >>> index = ClosedIntervals("sci", 4, 7)
    >>> index.insert("p", 0, 6)
    >>> index.insert("q", 0, 2)
    >>> index.find(1), index.find(4)
    (['q', 'p'], ['p', 'p'])
    """

    def __init__(self, kind: str, longest: int, r: int, a0: int = 0) -> None:
        self.constructs = ConstructIntervals.of(kind, longest)
        self.a0 = a0
        self.bits: BitVectors = np.zeros((r, r * self.constructs.width), bool)
        self.lists: dict[int, list[Any]] = {}

    def insert(self, id: Any, x: int, y: int) -> None:
        """Cut [x, y] into constructs, note the id at the head of their lists, and set bits (figure 2)."""
        if not self.a0 <= x < y < self.a0 + len(self.bits):
            raise OptionError(
                f"a predicate must have x < y within {self.a0} and {self.a0 + len(self.bits) - 1}, got "
                f"[{x}, {y}]"
            )
        for c in self.constructs.decompose(x, y, self.a0):
            own = self.lists.setdefault(c, [])
            if not own:
                self._mark(c, True)
            own.insert(0, id)

    def delete(self, id: Any, x: int, y: int) -> None:
        """Take an id out of its lists, and reset the bits of those that are empty now."""
        for c in self.constructs.decompose(x, y, self.a0):
            self.lists[c].remove(id)
            if not self.lists[c]:
                self._mark(c, False)

    def find(self, value: int) -> list[Any]:
        """The ids of the lists whose bits are set for a value, one on a seam twice (sec. 2.2)."""
        active = np.flatnonzero(self.bits[value - self.a0])
        return [id for c in active.tolist() for id in self.lists[c]]

    def _mark(self, c: int, active: bool) -> None:
        a, b = self.constructs.interval(c)
        self.bits[a : b + 1, c] = active


def match_two_phases(
    indexes: Mapping[str, ClosedIntervals], needed: Mapping[Any, int], event: Mapping[str, int]
) -> list[Any]:
    """Conjunctions by one interval index per attribute: satisfied predicates, then counting (sec. 2.1).

    >>> index = ClosedIntervals("lci", 4, 10)
    >>> index.insert(7, 1, 5)
    >>> match_two_phases({"price": index}, {7: 1}, {"price": 5})
    [7]
    """
    counts: dict[Any, int] = {}
    for name, value in event.items():
        if name in indexes:
            for id in set(indexes[name].find(value)):
                counts[id] = counts.get(id, 0) + 1
    return sorted(id for id, n in needed.items() if counts.get(id, 0) == n)


def paper_bytes(scheme: str, lows: Any, highs: Any, r: int, longest: int) -> int:
    """Bytes of one of the paper's structures over predicates [low, high] on r values.

    >>> paper_bytes("Dlist", [1, 3], [4, 5], 100, 4)
    456
    """
    lows, highs = np.asarray(lows, np.int64), np.asarray(highs, np.int64)
    if scheme == "Dlist":
        return HEADER * r + NODE * int((highs - lows + 1).sum())
    kind, _, form = scheme.partition("-")
    constructs = ConstructIntervals.of(kind.lower(), longest)
    total = HEADER * r * constructs.width + NODE * count_constructs(constructs, highs - lows)
    if form == "":
        total += r * r * constructs.width // 8
    elif form == "BC":
        first, last = constructs.segment(longest)
        total += r * -(-(last - first + 1) // 8)
    elif form == "BV(DT)":
        total += HEADER * len(constructs.distances())
    elif form != "BV":
        raise OptionError(f"no scheme of the paper is called {scheme!r}")
    return total


def count_constructs(constructs: ConstructIntervals, lengths: npt.NDArray[np.int64]) -> int:
    """How many constructs intervals of these lengths are cut into, in all.

    >>> count_constructs(ConstructIntervals.of("lci", 16), np.array([7, 32]))
    5
    """
    whole = np.maximum(lengths - 1, 0) // constructs.longest
    rest = lengths - whole * constructs.longest
    if constructs.kind == "sci":
        return int((whole + (rest > 0)).sum())
    ones = np.zeros(len(rest), np.int64)
    for k in range(constructs.longest.bit_length()):
        ones += rest >> k & 1
    return int((whole + ones).sum())
