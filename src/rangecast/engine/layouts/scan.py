"""`scan`: look at every box. The baseline of all measurements, and right for small sets.

The paper of Wang, Zhang and Kitsuregawa (2004, sec. 5) calls it brute force and measures every index
beside it. Ours is a fair one: columnar, compiled, the most selective attribute first, and an event
leaves a block of boxes as soon as none is left (engine/layouts/scan_kernels.py). A part holds no arrays of
its own: it is a range of the catalog's columns, dead boxes included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Request, Rows, scan_rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import hold
from rangecast.engine.parts import Part, StaticIndex
from rangecast.types.attributes import Codes


@dataclass(eq=False)
class ScanPart(Part):
    """A range of box numbers."""

    first: int
    last: int

    def check(self, boxes: Boxes, n_slots: int) -> None:
        hold("that a range is one of boxes", 0 <= self.first <= self.last <= boxes.n)

    def stab(self, request: Request) -> Rows:
        return scan_rows(request.codes, request.boxes, self.first, self.last)

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        return np.full(codes.shape[1], self.last - self.first, np.int64)


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
    expands = False
    sets = "hulls"

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        if not len(numbers):
            return ScanPart(0, 0)
        return ScanPart(int(numbers[0]), int(numbers[-1]) + 1)
