"""The paper's search: runs of the Z curve in a B+tree, largest cubes first, until enough is searched.

    part        what it holds
    universe    grids that turn boxes into points of `bits` bits a coordinate (universe.py)
    tree        the B+tree over their Z-addresses that the UB-tree also uses (zorder/tree.py)

The extremal rectangle of what is sought is cut into standard cubes (papers/covering/extremal.py), those of
one rectangle of cubes joined into runs; each run is one descent of the tree and a walk while entries are in
it. The search ends at the first cover, or once 1 - epsilon of the volume is done. All of it is one kernel.

Source: Shen and Tirthapura (2012), section 5. Where we depart: a run is walked and not only tested for
emptiness, since the subscription itself is stored in it when it is a subscription of the index, and since a
point in a border cell may belong to a box that does not cover; every answer is confirmed on the codes. And
how many cubes a search needs is known before it starts (Lemma 3.4), so a hopeless one never starts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.covering import kernels
from rangecast.covering.kernels import SoughtCovers, StoredBoxes
from rangecast.covering.search import living_boxes, take_first_boxes
from rangecast.covering.universe import Sides, Universe
from rangecast.engine.catalog import Catalog
from rangecast.zorder.curve import Addresses, ZCurve
from rangecast.zorder.tree import ZTree


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
