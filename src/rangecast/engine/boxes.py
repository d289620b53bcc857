"""The boxes of one moment, as layouts read them.

How bounds are kept is known here and in kernels/engine/boxes.py alone. Whoever lays boxes out asks for
columns; whoever matches hands `arrays` to a kernel, or `table` where a few events must be fast, and the
kernel asks `holds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.kernels.engine.boxes import BoxArrays
from rangecast.kernels.machine.views import Views
from rangecast.types.attributes import LAST, MISSING, Codes


class Boxes:
    """Boxes by number; what is behind `n` is spare room."""

    def __init__(self, lows: Codes, highs: Codes, slots: npt.NDArray[np.int32], n: int) -> None:
        self.arrays = BoxArrays(lows, highs, slots, n)

    @property
    def n(self) -> int:
        """How many boxes there are."""
        return self.arrays.n

    @property
    def n_attributes(self) -> int:
        """How many attributes the schema has."""
        return len(self.arrays.lows)

    @property
    def lows(self) -> Codes:
        """The low ends (d, >= n), for who needs them dense."""
        return self.arrays.lows

    @property
    def highs(self) -> Codes:
        """The high ends (d, >= n), for who needs them dense."""
        return self.arrays.highs

    @property
    def slots(self) -> npt.NDArray[np.int32]:
        """The slot of each box."""
        return self.arrays.slots

    @cached_property
    def _views(self) -> Views:
        a = self.arrays
        return Views(a.lows, a.highs, a.slots, np.array([a.n], np.int64))

    @property
    def table(self) -> npt.NDArray[np.int64]:
        """The table from which `view_boxes` makes the arrays again."""
        return self._views.table

    def column(self, j: int, numbers: npt.NDArray[np.int64]) -> tuple[Codes, Codes]:
        """The low and the high ends of some boxes on one attribute, MISSING and LAST where it is ignored.

        They may be views, and must not be written to.
        """
        a, n = self.arrays, len(numbers)
        if follow_each_other(numbers):
            own = slice(int(numbers[0]), int(numbers[0]) + n)
            return a.lows[j, own], a.highs[j, own]
        return a.lows[j, numbers], a.highs[j, numbers]

    def columns(self, attributes: Iterable[int], numbers: npt.NDArray[np.int64]) -> tuple[Codes, Codes]:
        """The same of several attributes, a row each."""
        own = np.array(list(attributes), np.int64)
        lows, highs = (np.empty((len(own), len(numbers)), np.int64) for _ in range(2))
        for k, j in enumerate(own.tolist()):
            lows[k], highs[k] = self.column(j, numbers)
        return lows, highs

    def bounded(self, numbers: npt.NDArray[np.int64]) -> list[int]:
        """The attributes that some of the boxes bound."""
        out = []
        for j in range(self.n_attributes):
            lows, highs = self.column(j, numbers)
            if (lows != MISSING).any() or (highs != LAST).any():
                out.append(j)
        return out

    def bounds_at(self, attributes: npt.NDArray[Any], numbers: npt.NDArray[np.int64]) -> tuple[Codes, Codes]:
        """The ends of box numbers[i] on attributes[i]."""
        return self.arrays.lows[attributes, numbers], self.arrays.highs[attributes, numbers]

    def slots_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The slots of some boxes."""
        return self.arrays.slots[numbers]

    def are_slots(self, numbers: npt.NDArray[np.int64]) -> bool:
        """Whether the numbers of these boxes are their slots."""
        return bool((self.slots_of(numbers) == numbers).all())


def follow_each_other(numbers: npt.NDArray[np.int64]) -> bool:
    """Whether each number is one more than the one before it.

    >>> follow_each_other(np.array([4, 5, 6])), follow_each_other(np.array([4, 6, 5, 7]))
    (True, False)
    """
    n = len(numbers)
    if not n or int(numbers[-1]) - int(numbers[0]) != n - 1:
        return False
    return bool((numbers[1:] - numbers[:-1] == 1).all())
