"""`scan`: look at every box. The baseline of all measurements, and right for small sets.

The paper of Wang, Zhang and Kitsuregawa (2004, sec. 5) calls it brute force and measures every index
beside it. Ours is a fair one: columnar, compiled, the most selective attribute first, and an event
leaves a block of boxes as soon as none is left (kernels/engine/scan.py). A part holds no arrays of its own:
it is a range of the catalog's columns, dead boxes included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.array_file import Arrays
from rangecast.engine.answers import Rows, scan_rows
from rangecast.engine.catalog import Boxes
from rangecast.engine.parts import Part, StaticIndex
from rangecast.types.attributes import Codes


class ScanPart(Part):
    """A range of box numbers."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    def stab(self, codes: Codes, boxes: Boxes) -> Rows:
        return scan_rows(codes, boxes, self.first, self.last)

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64]:
        return np.full(codes.shape[1], self.last - self.first, np.int64)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        return {"first": self.first, "last": self.last}, {}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: Arrays) -> ScanPart:
        return cls(meta["first"], meta["last"])


class ScanIndex(StaticIndex):
    """Every box is compared with every event.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"))
    >>> index = rc.open_index("scan", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price < 10", 8: "price >= 5"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 7}])).sort().row(0).tolist()
    [7, 8]
    """

    name = "scan"
    part_type = ScanPart

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        if not len(numbers):
            return ScanPart(0, 0)
        return ScanPart(int(numbers[0]), int(numbers[-1]) + 1)
