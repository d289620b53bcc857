"""What both searches share: what is to be covered, the stored boxes as kernels take them, and counting.

A `SoughtCovers` is a batch of subscriptions for which covers are sought. A cover must hold every box of a
subscription, so a search goes by the first of them and confirms the others on what it finds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine.catalog import Catalog
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import Codes

Stored = tuple[npt.NDArray[Any], ...]


class SoughtCovers:
    """Subscriptions to be covered: boxes, and the slot that each has in the catalog itself."""

    __slots__ = ("first_boxes", "highs", "lows", "own")

    def __init__(
        self, lows: Codes, highs: Codes, first_boxes: npt.NDArray[np.int64], own: npt.NDArray[np.int32]
    ) -> None:
        self.lows = lows
        self.highs = highs
        self.first_boxes = first_boxes
        self.own = own

    def __len__(self) -> int:
        return len(self.own)

    @classmethod
    def of(cls, subs: Subscriptions, own: npt.NDArray[np.int32]) -> SoughtCovers:
        """Subscriptions whose own slots (-1: none) are given."""
        starts = np.searchsorted(subs.owners, np.arange(len(subs) + 1)).astype(np.int64)
        return cls(subs.lows, subs.highs, starts, own)

    def boxes(self, rows: npt.NDArray[np.int64]) -> tuple[Codes, Codes]:
        """The first box of some rows, as columns; each row must have one."""
        columns = self.first_boxes[rows]
        return np.ascontiguousarray(self.lows[:, columns]), np.ascontiguousarray(self.highs[:, columns])


def stored_arrays(catalog: Catalog) -> Stored:
    """The arrays of a catalog, in the order that the kernels take them."""
    return catalog.lows, catalog.highs, catalog.box_slots, catalog.first_boxes, catalog.alive


def living_boxes(catalog: Catalog, first: int, last: int) -> npt.NDArray[np.int64]:
    """The box numbers in first..last whose slots are alive."""
    return first + np.flatnonzero(catalog.alive[catalog.box_slots[first:last]])
