"""From boxes to points: the space in which a cover dominates what it covers.

A box of beta attributes becomes a point of 2 beta coordinates, (-low, high) of each attribute
(Edelsbrunner and Overmars, 1982): one box holds another exactly if none of its coordinates is smaller.
Coordinates are numbered by the cells of a grid per attribute (engine/grid.py), rounded the same way for all
boxes: so a box that holds another is never below it, and a search that goes by cells misses none; what
it finds is confirmed on the codes.

    dimension   2 j              2 j + 1
    side        cells 0 .. low   cells high .. last      how many cells are nowhere below the box

Shen and Tirthapura (2012, sec. 2) bring all attributes to one number of cells, 2**bits. An attribute
with fewer cells is stretched by a power of two here: that keeps the order, fills the universe, and
brings the sides of a rectangle closer to each other, which is what the number of cubes depends on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rangecast.engine.grid import Grid
from rangecast.types.attributes import Codes
from rangecast.types.schema import Schema

Sides = npt.NDArray[np.int64]


class Universe:
    """The coordinates of boxes over some attributes of a schema, `bits` bits each.

    >>> from rangecast import Int, Schema
    >>> space = Universe(Schema(Int("a", 0, 4)), [0], 3, np.array([[0]]), np.array([[4]]))
    >>> space.sides(np.array([[1, 0]]), np.array([[2, 4]])).tolist()
    [[4, 3], [4, 2]]
    """

    def __init__(
        self, schema: Schema, positions: Sequence[int], bits: int, lows: Codes, highs: Codes
    ) -> None:
        self.bits = bits
        self.positions = tuple(positions)
        self.grids = [Grid.fit(schema[j], lows[j], highs[j], 1 << bits) for j in self.positions]
        self.stretches = [bits - (grid.n_cells - 1).bit_length() for grid in self.grids]

    @property
    def n_dims(self) -> int:
        """Twice the number of attributes."""
        return 2 * len(self.positions)

    @property
    def nbytes(self) -> int:
        """Bytes of the grids."""
        return sum(grid.cuts.nbytes for grid in self.grids)

    def sides(self, lows: Codes, highs: Codes) -> Sides:
        """The sides of the extremal rectangle of each box, (n_dims, n)."""
        out = np.empty((self.n_dims, lows.shape[1]), np.int64)
        for k, (j, grid, stretch) in enumerate(zip(self.positions, self.grids, self.stretches, strict=True)):
            out[2 * k] = (grid.locate(lows[j]).astype(np.int64) + 1) << stretch
            out[2 * k + 1] = (grid.n_cells - grid.locate(highs[j]).astype(np.int64)) << stretch
        return out

    def points(self, lows: Codes, highs: Codes) -> npt.NDArray[np.int64]:
        """The coordinates of each box: the lowest corner of its extremal rectangle."""
        return np.int64(1 << self.bits) - self.sides(lows, highs)
