"""What both searches share: the queries, the stored boxes as kernels take them, and counting.

A `SoughtCovers` is a batch of subscriptions for which covers are sought. A cover must hold every box of a
subscription, so a search starts from the first of them and confirms the others on what it finds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.covering.kernels import SoughtCovers, StoredBoxes
from rangecast.engine.catalog import Catalog
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import Codes


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
