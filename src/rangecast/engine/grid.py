"""Grids: cells over the codes of one attribute, for indexes that need a small domain.

    cell        codes
    0           MISSING alone, so that no other cell ever needs a check for it
    1           PRESENT .. the code before the grid's first inner cell
    2 .. n - 2  the inner cells
    n - 1       everything from the end of the inner cells to LAST

Every code has a cell, so bounds and values outside a stated domain are matched like any others. A
cell that a box covers whole needs no check; one that it only crosses (it holds codes inside and
outside the box) does. Inner cells are all of one power-of-two width (found by a shift), or cut
wherever `cuts` says (found by binary search), which suits floats and skewed data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine import kernels
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import hold
from rangecast.errors import OptionError
from rangecast.types.attributes import LAST, MISSING, PRESENT, Attribute, Codes
from rangecast.types.schema import Schema


@dataclass(eq=False, slots=True)
class Grid:
    """Cells over int64 codes; `cuts[c]` is the first code of cell c.

    >>> grid = Grid.uniform(0, 99, 16)
    >>> grid.n_cells, grid.locate(np.array([MISSING, -5, 0, 99, 100])).tolist()
    (16, [0, 1, 2, 14, 14])
    """

    cuts: Codes
    origin: int = 0
    shift: int = -1

    @property
    def n_cells(self) -> int:
        """How many cells there are, the three outer ones included."""
        return len(self.cuts)

    @classmethod
    def uniform(cls, low: int, high: int, n_cells: int) -> Grid:
        """At most n_cells cells, the inner ones equally wide by a power of two, over codes low..high."""
        if n_cells < 5 or low > high:
            raise OptionError(
                f"a grid needs at least 5 cells and low <= high, got {n_cells} over [{low}, {high}]"
            )
        low, high = max(low, PRESENT + 1), min(high, LAST - 1)
        shift = 0
        while (high >> shift) - (low >> shift) + 1 > n_cells - 3:
            shift += 1
        # aligned, so that a cell is found by shifting alone; the codes below belong to cell 1
        first = low >> shift
        first += first << shift <= PRESENT
        inner = np.arange(first, (high >> shift) + 1, dtype=np.int64) << shift
        end = min(max(first, (high >> shift) + 1) << shift, LAST)
        cuts = np.concatenate([np.array([MISSING, PRESENT]), inner, np.array([end])])
        return cls(cuts, first << shift, shift)

    @classmethod
    def cut_at(cls, cuts: Any) -> Grid:
        """Inner cells that begin at the given codes (any order, repeats allowed)."""
        inner = np.unique(np.asarray(cuts, np.int64))
        inner = inner[(inner > PRESENT) & (inner <= LAST)]
        return cls(np.concatenate([np.array([MISSING, PRESENT], np.int64), inner]))

    @classmethod
    def quantiles(cls, lows: Codes, highs: Codes, n_cells: int, sample: int = 65_536) -> Grid:
        """Cells that hold about equally many end points of the given intervals."""
        step = max(1, len(lows) // sample)
        starts, ends = lows[::step], highs[::step]
        ends = ends[(ends > MISSING) & (ends < LAST)]
        # a cell begins where an interval begins, and where one has ended
        points = np.sort(np.concatenate([starts[starts > PRESENT], ends + 1]))
        if not len(points):
            return cls.cut_at([])
        places = np.linspace(0, len(points) - 1, max(1, n_cells - 2)).astype(np.int64)
        return cls.cut_at(points[places])

    @classmethod
    def fit(cls, attribute: Attribute, lows: Codes, highs: Codes, n_cells: int) -> Grid:
        """A grid for these intervals: one code per cell if that fits; otherwise uniform for whole numbers and
        times with a stated domain, and cut at quantiles of the end points for the rest."""
        domain = attribute.domain
        if domain is None:
            starts, ends = lows[lows > PRESENT], highs[(highs > MISSING) & (highs < LAST)]
            if not len(starts) and not len(ends):
                return cls.cut_at([])
            points = (
                [int(a.min()) for a in (starts, ends) if len(a)],
                [int(a.max()) for a in (starts, ends) if len(a)],
            )
            domain = min(points[0]), max(points[1])
            if domain[1] - domain[0] + 4 > n_cells:
                return cls.quantiles(lows, highs, n_cells)
        elif attribute.kind == "float":
            return cls.quantiles(lows, highs, n_cells)
        return cls.uniform(domain[0], domain[1], n_cells)

    def check(self) -> None:
        """Raise StorageError unless every code has one of the cells."""
        n = self.n_cells
        hold("that a grid has cells", self.cuts.ndim == 1 and n >= 2 and -1 <= self.shift < 63)
        if self.shift >= 0:
            # the cell of the last code that is found by a shift
            inner = ((int(self.cuts[-1]) - 1) >> self.shift) - (self.origin >> self.shift) + 2
            hold("that a grid's shift stays within its cells", n >= 3 and inner < n)

    def locate(self, codes: Codes) -> npt.NDArray[np.int32]:
        """The cell of each code."""
        out = np.empty(len(codes), np.int32)
        kernels.locate(codes, self.cuts, self.origin, self.shift, out)
        return out


# How much of its attribute a predicate lets through, estimated from the subscriptions alone.
#
# Widths are measured in ranks among a sample of all end points, so the estimate does not depend on
# units or on where values crowd, and an equality counts about one over the sample.

SAMPLE = 2048


def bounded_attributes(boxes: Boxes, numbers: npt.NDArray[np.int64], without: Any = ()) -> list[int]:
    """The attributes that some of the boxes bound."""
    return [j for j in boxes.bounded(numbers) if j not in without]


def estimate_selectivity(boxes: Boxes, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Per attribute, the mean share of values that a box lets through (1 where it is not bounded)."""
    out = np.ones(boxes.n_attributes)
    if not len(numbers):
        return out
    picked = numbers[:: max(1, len(numbers) // SAMPLE)]
    for j in boxes.bounded(picked):
        lows, highs = boxes.column(j, picked)
        bounded = (lows != MISSING) | (highs != LAST)
        points = np.sort(np.concatenate([lows[bounded], highs[bounded]]))
        ranks = np.searchsorted(points, highs, "right") - np.searchsorted(points, lows, "left")
        shares = np.where(bounded, ranks / len(points), 1.0)
        out[j] = shares.mean()
    return out


def choose_attributes(
    schema: Schema,
    on: str | tuple[str, ...] | list[str] | None,
    count: int,
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
) -> tuple[int, ...]:
    """Positions of the attributes to index: those named, or the most selective ones."""
    if on is not None:
        return named_attributes(schema, on, count)
    order = np.argsort(estimate_selectivity(boxes, numbers), kind="stable")
    return tuple(int(j) for j in order[:count])


def named_attributes(schema: Schema, on: str | tuple[str, ...] | list[str], count: int) -> tuple[int, ...]:
    """Positions of the attributes named by an `on=` option."""
    names = [on] if isinstance(on, str) else list(on)
    if len(names) != count or len(set(names)) != count:
        word = "one attribute name" if count == 1 else f"{count} different attribute names"
        raise OptionError(f"on= takes {word}, got {on!r}")
    return tuple(schema.position(name) for name in names)
