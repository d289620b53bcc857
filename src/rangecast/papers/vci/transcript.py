"""The printed algorithm of the interval paper, line by line, in plain Python.

Source: Wu, Chen, Yu and Mei (2004), figure 2 with the functions that section 2.2 describes, and equation (1).
Names are the paper's: H_c is the list of construct c, B_i the bit vector of value i. Numbers at the ends of
lines count the lines of figure 2.

The kernel (`decompose` in kernels.py) cuts half-open ranges of cells, from the left as here, and takes SCI
and LCI alike by a table of lengths; `ClosedIntervals` in structures.py has the search and the deletion.
tests/papers/test_transcripts.py holds all three against each other.
"""

from __future__ import annotations


class SCI:
    """Simple construct intervals on the values a0 .. a0 + R - 1, none longer than L.

    >>> index = SCI(L=4, R=7)
    >>> index.INSERT("p", 0, 6)
    >>> index.H, index.B[4]  # figure 3a
    ({3: ['p'], 17: ['p']}, {17, 3})
    """

    def __init__(self, L: int, R: int, a0: int = 0) -> None:
        self.L = L
        self.a0 = a0
        self.H: dict[int, list[object]] = {}
        self.B: list[set[int]] = [set() for _ in range(R)]

    def INSERT(self, p: object, x: int, y: int) -> None:
        """Figure 2: insert the predicate p: [x, y], whose ends differ."""
        L = self.L
        if y - x > L:  # 1
            m = (y - x - 1) // L  # 2
            # 3: break p down to m + 1 constructs
            pieces = [(x + j * L, x + (j + 1) * L) for j in range(m)]  # 4, 5
            pieces.append((x + m * L, y))  # 6
        else:
            pieces = [(x, y)]  # 7
        for a, b in pieces:  # 8
            c = self.find_coordinate(a, b)
            if c not in self.H:  # 9
                self.set_bitmap(c, a, b)
            self.insert_pid(p, c)  # 10

    def find_coordinate(self, a: int, b: int) -> int:
        """Equation (1): the number of the construct [a, b]."""
        return (a - self.a0) * self.L + (b - a) - 1

    def insert_pid(self, p: object, c: int) -> None:
        """Put p at the head of H_c."""
        self.H.setdefault(c, []).insert(0, p)

    def set_bitmap(self, c: int, a: int, b: int) -> None:
        """Set bit c of B_i for every value i of [a, b]."""
        for i in range(a, b + 1):
            self.B[i - self.a0].add(c)
