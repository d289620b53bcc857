"""An exact search, ours: points in blocks of 64 under a tree of greatest corners.

    array     dtype    shape                  meaning
    entries   int32    64 * blocks            the box of each entry
    nodes     uint16   (nodes, n_dims, 64)    coordinates of entries; above them, the greatest of a block
    starts    int64    levels + 1             the first node of each level

Boxes are points as in searches.py, rounded to 15 bits, ordered into blocks by halving along the
coordinate that varies most (Bentley's k-d tree, 1975), so that the points of a block are alike and its
greatest corner is close to them. A sought goes down only where that corner is nowhere below it, compares
64 entries at a time, and ends at the first entry whose box is confirmed on the codes. It searches all
of the region: where the paper's search has to cut its corner of the universe into cubes, whose number
grows with the length of the sides, this one looks at what is stored, and at a few dozen blocks of it.

Updates: blocks never change. New boxes are a tail that is scanned; past TAIL_LIMIT it becomes blocks of
its own, taking along earlier ones that are not RATIO times larger. Boxes of slots that are gone stay
until then, and are refused when they are confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rangecast.covering import kernels
from rangecast.covering.kernels import PointBlocks, SoughtCovers, StoredBoxes
from rangecast.durable.arrays import count_bytes
from rangecast.engine.catalog import Catalog
from rangecast.engine.grid import Grid
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import Codes
from rangecast.types.schema import Schema
from rangecast.zorder.curve import Addresses, ZCurve
from rangecast.zorder.tree import ZTree

TAIL_LIMIT = 512
RATIO = 4
BITS = 15
"""Bits of a coordinate: all cells and a 0 for "no entry" fit in 16."""
_WIDTH = 64


class Blocks:
    """The living boxes of one range of a catalog; see the module head."""

    def __init__(self, catalog: Catalog, positions: tuple[int, ...], first: int, last: int) -> None:
        self.first, self.last = first, last
        boxes = living_boxes(catalog, first, last)
        lows = np.ascontiguousarray(catalog.lows[:, boxes])
        highs = np.ascontiguousarray(catalog.highs[:, boxes])
        self.universe = Universe(catalog.schema, positions, BITS, lows, highs)
        points = (self.universe.points(lows, highs) + 1).astype(np.uint16)
        order = np.arange(len(boxes), dtype=np.int32)
        kernels.order_points(points, order, np.empty((64, 2), np.int64))
        sizes = [-(-len(boxes) // _WIDTH)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // _WIDTH))
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        nodes = np.zeros((int(starts[-1]), self.universe.n_dims, _WIDTH), np.uint16)
        self.blocks = PointBlocks(nodes, starts, boxes[order].astype(np.int32))
        kernels.fill_nodes(points, order, self.blocks)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return count_bytes(self.blocks) + self.universe.nbytes

    def search(
        self,
        stored: StoredBoxes,
        sought: SoughtCovers,
        rows: npt.NDArray[np.int64],
        out: npt.NDArray[np.int32],
        counts: npt.NDArray[np.int64],
    ) -> None:
        """Write a covering slot or -1 for the given rows."""
        points = (self.universe.points(*take_first_boxes(sought, rows)) + 1).astype(np.uint16)
        if len(rows) > _WIDTH:
            # subscriptions that are alike go down to the same blocks: a third less time for 1 M of them
            near = np.argsort((points[0] & 0x7F00) | (points[-1] >> 8), kind="stable")
            rows, points = rows[near], np.ascontiguousarray(points[:, near])
        passed = np.zeros(_WIDTH, np.uint8)
        words = passed.view(np.uint64)
        kernels.search_blocks(self.blocks, stored, sought, rows, points, passed, words, out, counts)


class BlockSearch:
    """All boxes of a catalog, in blocks and a tail."""

    def __init__(self, catalog: Catalog, positions: tuple[int, ...]) -> None:
        self.positions = positions
        self.parts: list[Blocks] = []
        self.add(catalog)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(part.nbytes for part in self.parts)

    @property
    def n_blocks(self) -> int:
        """Blocks of 64 entries, all parts together."""
        return sum(int(part.blocks.starts[1]) for part in self.parts)

    def add(self, catalog: Catalog) -> None:
        """Take in what the catalog got since the last call."""
        first = self.parts[-1].last if self.parts else 0
        last = catalog.n_boxes
        if last - first <= TAIL_LIMIT:
            return
        while self.parts and self.parts[-1].last - self.parts[-1].first < RATIO * (last - first):
            first = self.parts.pop().first
        if catalog.alive[catalog.box_slots[first:last]].any():
            self.parts.append(Blocks(catalog, self.positions, first, last))

    def search(
        self,
        catalog: Catalog,
        stored: StoredBoxes,
        sought: SoughtCovers,
        rows: npt.NDArray[np.int64],
        out: npt.NDArray[np.int32],
        counts: npt.NDArray[np.int64],
    ) -> None:
        """Write a covering slot or -1 for the given rows."""
        for part in self.parts:
            part.search(stored, sought, rows, out, counts)
            rows = rows[out[rows] < 0]
            if not len(rows):
                return
        first = self.parts[-1].last if self.parts else 0
        if first < catalog.n_boxes:
            kernels.search_tail(stored, first, catalog.n_boxes, sought, rows, out, counts)


# What both searches share: the queries, the stored boxes as kernels take them, and counting.
#
# A `SoughtCovers` is a batch of subscriptions for which covers are sought. A cover must hold every box of a
# subscription, so a search starts from the first of them and confirms the others on what it finds.


def seek_covers(subs: Subscriptions, own: npt.NDArray[np.int32]) -> SoughtCovers:
    """What covers are sought for: subscriptions whose own slots (-1: none) are given."""
    subs = subs.expanded()
    starts = np.searchsorted(subs.owners, np.arange(len(subs) + 1)).astype(np.int64)
    return SoughtCovers(subs.lows, subs.highs, starts, own)


def take_first_boxes(sought: SoughtCovers, rows: npt.NDArray[np.int64]) -> tuple[Codes, Codes]:
    """The first box of some rows, as columns; each row must have one."""
    columns = sought.first_boxes[rows]
    return np.ascontiguousarray(sought.lows[:, columns]), np.ascontiguousarray(sought.highs[:, columns])


def stored_boxes(catalog: Catalog) -> StoredBoxes:
    """The arrays of a catalog as kernels take them."""
    return StoredBoxes(catalog.lows, catalog.highs, catalog.box_slots, catalog.first_boxes, catalog.alive)


def living_boxes(catalog: Catalog, first: int, last: int) -> npt.NDArray[np.int64]:
    """The box numbers in first..last whose slots are alive."""
    return first + np.flatnonzero(catalog.alive[catalog.box_slots[first:last]])


# From boxes to points: the space in which a cover dominates what it covers.
#
# A box of beta attributes becomes a point of 2 beta coordinates, (-low, high) of each attribute
# (Edelsbrunner and Overmars, 1982): one box holds another exactly if none of its coordinates is smaller.
# Coordinates are numbered by the cells of a grid per attribute (engine/grid.py), rounded the same way for all
# boxes: so a box that holds another is never below it, and a search that goes by cells misses none; what
# it finds is confirmed on the codes.
#
#     dimension   2 j              2 j + 1
#     side        cells 0 .. low   cells high .. last      how many cells are nowhere below the box
#
# Shen and Tirthapura (2012, sec. 2) bring all attributes to one number of cells, 2**bits. An attribute
# with fewer cells is stretched by a power of two here: that keeps the order, fills the universe, and
# brings the sides of a rectangle closer to each other, which is what the number of cubes depends on.

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


# The paper's search: runs of the Z curve in a B+tree, largest cubes first, until enough is searched.
#
#     part        what it holds
#     universe    grids that turn boxes into points of `bits` bits a coordinate (searches.py)
#     tree        the B+tree over their Z-addresses that the UB-tree also uses (zorder/tree.py)
#
# The extremal rectangle of what is sought is cut into standard cubes (papers/covering/theory.py), those of
# one rectangle of cubes joined into runs; each run is one descent of the tree and a walk while entries are in
# it. The search ends at the first cover, or once 1 - epsilon of the volume is done. All of it is one kernel.
#
# Source: Shen and Tirthapura (2012), section 5. Where we depart: a run is walked and not only tested for
# emptiness, since the subscription itself is stored in it when it is a subscription of the index, and since a
# point in a border cell may belong to a box that does not cover; every answer is confirmed on the codes. And
# how many cubes a search needs is known before it starts (Lemma 3.4), so a hopeless one never starts.


class CurveSearch:
    """Points of stored boxes in the order of the Z curve."""

    def __init__(self, catalog: Catalog, positions: tuple[int, ...], bits: int) -> None:
        n = catalog.n_boxes
        self.universe = Universe(catalog.schema, positions, bits, catalog.lows[:, :n], catalog.highs[:, :n])
        self.curve = ZCurve([bits] * self.universe.n_dims)
        self.tree = ZTree(self.curve.n_words)
        self.n_loaded = 0
        self.add(catalog)

    @property
    def nbytes(self) -> int:
        """Bytes of the tree and the grids."""
        return self.tree.nbytes + self.universe.nbytes

    def add(self, catalog: Catalog) -> None:
        """Take in the living boxes that came since the last call."""
        boxes = living_boxes(catalog, self.n_loaded, catalog.n_boxes)
        if len(boxes):
            self.tree.insert(self._addresses(catalog, boxes), boxes)
        self.n_loaded = catalog.n_boxes

    def remove(self, catalog: Catalog, boxes: npt.NDArray[np.int64]) -> None:
        """Take out the boxes of slots that are about to go."""
        held = boxes[boxes < self.n_loaded]
        if len(held):
            self.tree.delete(self._addresses(catalog, held), held)

    def _addresses(self, catalog: Catalog, boxes: npt.NDArray[np.int64]) -> Addresses:
        points = self.universe.points(
            np.ascontiguousarray(catalog.lows[:, boxes]), np.ascontiguousarray(catalog.highs[:, boxes])
        )
        return self.curve.encode(points)

    def sides(self, sought: SoughtCovers, rows: npt.NDArray[np.int64]) -> Sides:
        """The extremal rectangle of each row."""
        return self.universe.sides(*take_first_boxes(sought, rows))

    def cubes_needed(self, sides: Sides, epsilon: float) -> npt.NDArray[np.float64]:
        """How many cubes each search examines at most."""
        out = np.empty(sides.shape[1])
        kernels.count_needed_each(sides, epsilon, out)
        return out

    def search(
        self,
        stored: StoredBoxes,
        sought: SoughtCovers,
        rows: npt.NDArray[np.int64],
        sides: Sides,
        epsilon: float,
        out: npt.NDArray[np.int32],
        shares: npt.NDArray[np.float64],
        counts: npt.NDArray[np.int64],
    ) -> None:
        """Write a covering slot or -1, and the share of the volume searched, for the given rows."""
        dims, shifts = self.curve.dims, self.curve.shifts
        kernels.search_curve(
            self.tree.arrays, stored, sought, rows, sides, dims, shifts, epsilon, out, shares, counts
        )
