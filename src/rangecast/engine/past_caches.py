"""Whether a large answer is written past the caches (kernels/machine/memory.py), as this machine likes it.

Of an answer that is larger than the caches nothing would be found there anyway, so it may as well be written
past them. On one machine that takes 0.8 of the time, on another 1.6 times as long: 34 us instead of 21 for an
event with 20,000 matches. So the first large answers of a process are written in four pieces, by turns past
the caches and not, and what took less per match, at its best, is what all later ones do. That costs nothing
but the worse way itself.

Rows that are written in another order than they stand in are tried apart: on one machine those of 400 ids
take 0.87 of the time past the caches, and rows of 20,000 in their order 1.2 times as long.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

CACHES = 32 << 20
_TRIED = 3
_PIECES = 4
_LEAST_SHARE = 16
"""A piece with less than such a share of the matches tells nothing."""

WritePiece = Callable[[int, int, bool], int]
"""Writes the rows from the first to before the last, past the caches or not; returns how many matches those
are."""


class Stores:
    """What was learnt of the two ways."""

    def __init__(self) -> None:
        self.past: bool | None = None
        """Whether to write past the caches; None while that is not known."""
        self._best = {True: np.inf, False: np.inf}
        self._tried = 0

    def write(self, n_matches: int, n_rows: int, out: npt.NDArray[Any], write: WritePiece) -> None:
        """Have the rows of an answer written in the way that suits its size."""
        if n_matches * out.itemsize <= CACHES:
            write(0, n_rows, False)
        elif self.past is not None:
            write(0, n_rows, self.past)
        else:
            self._try(n_matches, n_rows, write)

    def _try(self, n_matches: int, n_rows: int, write: WritePiece) -> None:
        """Write pieces by turns, and choose when that was done some times; threads may do so side by side."""
        ends = [n_rows * k // _PIECES for k in range(_PIECES + 1)]
        took = {True: np.inf, False: np.inf}
        tells = True
        for k, (first, last) in enumerate(itertools.pairwise(ends)):
            past = k % 2 == 0
            start = perf_counter()
            n = write(first, last, past)
            tells &= n * _LEAST_SHARE >= n_matches
            took[past] = min(took[past], (perf_counter() - start) / max(n, 1))
        if not tells:
            return
        self._best = {past: min(self._best[past], took[past]) for past in took}
        self._tried += 1
        if self._tried >= _TRIED:
            self.past = bool(self._best[True] < self._best[False])


STORES = Stores()
"""For rows in the order in which they stand."""

TURNED = Stores()
"""For rows in any other order."""
