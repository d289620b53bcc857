"""Bounds packed two attributes to a word, so that a candidate is checked without touching its codes.

An attribute gets a Grid of at most CELLS cells. When every end point starts a cell (few different
ones, or a small domain) the grid is exact and comparing cells is comparing codes. Otherwise only a
value in the same cell as an end of the box needs its codes looked at, one in thousands.

    array        dtype    shape        meaning
    attributes   int64    k            the attributes that are packed
    inexact      int64    <= k         those whose grid is not exact
    ones         uint64   n_words      1 in every field of an inexact attribute

kernels/packed.py has the layout of a word and the comparison.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.attributes import LAST, MISSING, PRESENT, Codes
from rangecast.grid import Grid
from rangecast.indexes.catalog import Boxes
from rangecast.kernels import packed as kernels
from rangecast.storage import Arrays

CELLS = 32_000
_SAMPLE = 65_536


class Packed:
    """How some attributes are packed."""

    def __init__(self, attributes: npt.NDArray[np.int64], grids: list[Grid], exact: list[bool]) -> None:
        self.attributes = np.asarray(attributes, np.int64)
        self.grids = grids
        self.exact = exact
        self.n_words = (len(grids) + 1) // 2
        self.inexact = np.array(
            [j for j, known in zip(self.attributes, exact, strict=True) if not known], np.int64
        )
        self.ones = np.zeros(max(1, self.n_words), np.uint64)
        for k, known in enumerate(exact):
            if not known:
                self.ones[k // 2] |= np.uint64(0x0001_0001 << 32 * (k % 2))

    @classmethod
    def fit(cls, boxes: Boxes, numbers: npt.NDArray[np.int64], attributes: Any, cells: int = CELLS) -> Packed:
        """Grids for the bounds of these boxes."""
        fitted = [fit_grid(column(boxes.lows, j, numbers), column(boxes.highs, j, numbers), cells) for j in attributes]
        return cls(np.array(list(attributes), np.int64), [g for g, _ in fitted], [known for _, known in fitted])

    def pack_boxes(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """A row of words for each box."""
        columns = np.zeros((max(1, self.n_words), len(numbers)), np.uint64)
        for k, (j, grid) in enumerate(zip(self.attributes, self.grids, strict=True)):
            kernels.pack_bounds(
                boxes.lows[j], boxes.highs[j], numbers, grid.cuts, grid.origin, grid.shift, k % 2, columns[k // 2]
            )
        return np.ascontiguousarray(columns.T)

    def pack_events(self, codes: Codes) -> npt.NDArray[np.uint64]:
        """A row of words for each event."""
        columns = np.zeros((max(1, self.n_words), codes.shape[1]), np.uint64)
        for k, (j, grid) in enumerate(zip(self.attributes, self.grids, strict=True)):
            kernels.pack_values(codes[j], grid.cuts, grid.origin, grid.shift, k % 2, columns[k // 2])
        return np.ascontiguousarray(columns.T)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        """Plain data and arrays for `restore`."""
        arrays: Arrays = {"packed.attributes": self.attributes}
        for k, grid in enumerate(self.grids):
            arrays.update({f"packed.{k}.{name}": array for name, array in grid.to_arrays().items()})
        return {"exact": [bool(known) for known in self.exact]}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: Arrays) -> Packed:
        """The packing of an export."""
        grids = [
            Grid.from_arrays({name: arrays[f"packed.{k}.{name}"] for name in ("cuts", "shape")})
            for k in range(len(meta["exact"]))
        ]
        return cls(arrays["packed.attributes"], grids, meta["exact"])

    @property
    def nbytes(self) -> int:
        """Bytes of the grids."""
        return sum(grid.cuts.nbytes for grid in self.grids)


def column(rows: Codes, j: int, numbers: npt.NDArray[np.int64]) -> Codes:
    """The codes of some boxes on one attribute; a view where the numbers follow each other."""
    n = len(numbers)
    if n and int(numbers[-1]) - int(numbers[0]) == n - 1:
        return rows[j, int(numbers[0]) : int(numbers[0]) + n]
    return rows[j, numbers]


def bounded_attributes(boxes: Boxes, numbers: npt.NDArray[np.int64], without: Any = ()) -> list[int]:
    """The attributes that some of the boxes bound."""
    out = []
    for j in range(len(boxes.lows)):
        if j not in without:
            lows, highs = column(boxes.lows, j, numbers), column(boxes.highs, j, numbers)
            if (lows != MISSING).any() or (highs != LAST).any():
                out.append(j)
    return out


def fit_grid(lows: Codes, highs: Codes, cells: int) -> tuple[Grid, bool]:
    """A grid of at most `cells` cells for these intervals, and whether every end point starts a cell.

    Cells of equal width are found by a shift, the others by binary search, so they come first: one
    code a cell when that fits, then wider ones unless the end points crowd in a few of them.
    """
    starts, ends = lows[lows > PRESENT], highs[(highs > MISSING) & (highs < LAST)]
    if not len(starts) and not len(ends):
        return Grid.cut_at([]), True
    low = min(int(a.min()) for a in (starts, ends) if len(a))
    high = max(int(a.max()) for a in (starts, ends) if len(a))
    if low > PRESENT and high < LAST and high - low + 4 <= cells:
        return Grid.uniform(low, high, cells), True
    step = max(1, (len(starts) + len(ends)) // _SAMPLE)
    sample = np.sort(np.concatenate([starts[::step], ends[::step]]))
    if len(np.unique(sample)) < cells * 3 // 4 or step == 1:
        points = np.unique(np.concatenate([starts, ends + 1]))
        if len(points) + 3 <= cells:
            return Grid.cut_at(points), True
    if high - low < 2**40 and not _crowded(sample, low, high):
        return Grid.uniform(low, high, cells), False
    return Grid.quantiles(lows, highs, cells), False


def _crowded(sample: Codes, low: int, high: int) -> bool:
    counts, _ = np.histogram(sample.astype(np.float64), 64, (float(low), float(high)))
    return bool(counts.max() > 8 * counts.mean())
