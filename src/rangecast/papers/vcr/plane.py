"""Two attributes as a plane of cells: what the rectangle index is laid out on.

    field     meaning
    on        positions of the two attributes; one in a schema of one attribute
    grids     a Grid for each, so cell 0 is MISSING and every code has a cell
    shape     cells along x and y; y is a single cell where there is no second attribute

A box is a rectangle of cells on it, `Rectangles`, with the part of that rectangle that the box holds
whole. Between the two lie crossed cells: they hold codes inside and outside the box, so an event
there must be compared with the box itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import hold
from rangecast.engine.grid import Grid
from rangecast.engine.selectivity import choose_attributes, named_attributes
from rangecast.errors import CapacityError, OptionError
from rangecast.types.attributes import LAST, MISSING, Codes
from rangecast.types.schema import Schema

Cells = npt.NDArray[np.int32]

LEAST_CELLS, MOST_CELLS = 5, 2**15
LEAST_AUTOMATIC = 64
EXACT_SHARE = 0.9
MOST_ENTRIES = 2**31 - 1


class Rectangles(NamedTuple):
    """Per box, the cells that it touches and those that it holds whole (first and last, inclusive)."""

    x0: Cells
    x1: Cells
    y0: Cells
    y1: Cells
    whole_x0: Cells
    whole_x1: Cells
    whole_y0: Cells
    whole_y1: Cells

    @property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Which boxes cross no cell."""
        same: npt.NDArray[np.bool_] = (
            (self.x0 == self.whole_x0)
            & (self.x1 == self.whole_x1)
            & (self.y0 == self.whole_y0)
            & (self.y1 == self.whole_y1)
        )
        return same

    @property
    def mostly_exact(self) -> bool:
        """Whether few boxes cross cells: finer cells than these would not help."""
        return bool(np.count_nonzero(self.exact) >= EXACT_SHARE * len(self.x0))


@dataclass(eq=False)
class Plane:
    """The cells of one or two attributes."""

    on: tuple[int, ...]
    grids: tuple[Grid, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Cells along x and along y."""
        return self.grids[0].n_cells, self.grids[1].n_cells if len(self.grids) > 1 else 1

    @classmethod
    def fit(
        cls,
        schema: Schema,
        on: tuple[int, ...] | None,
        boxes: Boxes,
        numbers: npt.NDArray[np.int64],
        cells: int,
    ) -> Plane:
        """A plane for these boxes, on the two most selective attributes unless `on` names them."""
        chosen = on or choose_attributes(schema, None, min(2, len(schema)), boxes, numbers)
        grids = tuple(
            Grid.fit(schema[j], boxes.lows[j, numbers], boxes.highs[j, numbers], cells) for j in chosen
        )
        return cls(chosen, grids)

    def check(self, n_attributes: int) -> None:
        """Raise StorageError unless every event has a cell on it."""
        n = min(2, n_attributes)
        hold("that a plane is of two attributes", len(self.on) == len(self.grids) == len(set(self.on)) == n)
        hold("that a plane is of attributes", all(0 <= j < n_attributes for j in self.on))
        for grid in self.grids:
            grid.check()

    def flipped(self) -> Plane:
        """The same plane with x and y exchanged."""
        return Plane(self.on[::-1], self.grids[::-1])

    def locate(self, codes: Codes) -> tuple[Cells, Cells]:
        """The cells of a batch."""
        xs = self.grids[0].locate(codes[self.on[0]])
        if len(self.on) == 1:
            return xs, np.zeros(len(xs), np.int32)
        return xs, self.grids[1].locate(codes[self.on[1]])

    def rectangles(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Rectangles:
        """The cells of boxes."""
        sides: list[list[Cells]] = []
        for j, grid in zip(self.on, self.grids, strict=True):
            lows, highs = boxes.lows[j, numbers], boxes.highs[j, numbers]
            first, last = grid.locate(lows), grid.locate(highs)
            ends = np.append(grid.cuts[1:] - 1, LAST)
            whole_first = first + (lows > grid.cuts[first]).astype(np.int32)
            whole_last = last - (highs < ends[last]).astype(np.int32)
            sides.append([first, last, whole_first, whole_last])
        if len(sides) == 1:
            sides.append([np.zeros(len(numbers), np.int32)] * 4)
        (x0, x1, wx0, wx1), (y0, y1, wy0, wy1) = sides
        return Rectangles(x0, x1, y0, y1, wx0, wx1, wy0, wy1)

    def others(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> list[int]:
        """Attributes that are not on the plane and that some box bounds."""
        return [
            j
            for j in range(len(boxes.lows))
            if j not in self.on
            and bool((boxes.lows[j, numbers] != MISSING).any() or (boxes.highs[j, numbers] != LAST).any())
        ]


def plane_attributes(schema: Schema, on: Any) -> tuple[int, ...] | None:
    """The attributes of an `on=` option: two names, or the one name of a schema of one attribute."""
    return None if on is None else named_attributes(schema, on, min(2, len(schema)))


def default_cells(n: int) -> int:
    """Cells along an axis for n boxes: their number grows with n, not with the domain.

    >>> default_cells(1_000), default_cells(256_000)
    (256, 4096)
    """
    return min(max(1 << int(8 * max(n, 1) ** 0.5).bit_length(), 2 * LEAST_AUTOMATIC), 8192)


def check_cells(cells: int | None) -> None:
    """Raise unless `cells` is a number of cells along an axis, or None."""
    if cells is not None and not LEAST_CELLS <= cells <= MOST_CELLS:
        raise OptionError(f"cells must be within {LEAST_CELLS} and {MOST_CELLS}, got {cells}")


def check_entries(n: int) -> None:
    """Raise when lists would have more entries than int32 can number."""
    if n > MOST_ENTRIES:
        raise CapacityError(
            f"'vcr' lists at most {MOST_ENTRIES:,} entries, but would need {n:,}; "
            "larger Lx= and Ly= or fewer cells= need fewer"
        )


def log_of_side(name: str, side: int | None) -> int | None:
    """The k of a maximal side 2**k given as an option."""
    if side is None:
        return None
    if not isinstance(side, int) or side < 1 or side & (side - 1) or side > MOST_CELLS:
        raise OptionError(f"{name} must be a power of two within 1 and {MOST_CELLS}, got {side!r}")
    return side.bit_length() - 1
