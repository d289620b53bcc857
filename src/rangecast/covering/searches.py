"""An exact search, ours: points in blocks of 64 under a tree of greatest corners.

    array     dtype    shape                  meaning
    entries   int32    64 * blocks            the box of each entry
    nodes     uint16   (nodes, n_dims, 64)    coordinates of entries; above them, the greatest of a block
    starts    int64    levels + 1             the first node of each level

Boxes are points as in universe.py, rounded to 15 bits, ordered into blocks by halving along the
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

import numpy as np
import numpy.typing as npt

from rangecast.covering.kernels import SoughtCovers, StoredBoxes
from rangecast.covering.search import living_boxes, take_first_boxes
from rangecast.covering.universe import Universe
from rangecast.durable.arrays import count_bytes
from rangecast.engine.catalog import Catalog
from rangecast.kernels.covering import dominance as kernels
from rangecast.kernels.covering.dominance import PointBlocks

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
