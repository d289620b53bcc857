"""A part that counts satisfied predicates: what those of `counting` and `opindex` have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import counted, shaped
from rangecast.engine.static_part import Part
from rangecast.types.attributes import Codes


class CountedPart(Part):
    """Matches by counting; a subclass names its kernel and the arrays that this takes."""

    kernel: ClassVar[Callable[..., Any]]
    """Answers events from one on while there is room, and gives the event that it got to."""

    @property
    def arrays(self) -> Any:
        """What the kernel takes, `slots` among it."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        self._tally = threading.Lock()
        self._satisfied = 0

    def stab(self, codes: Codes, boxes: Boxes) -> Rows:
        offsets = np.zeros(codes.shape[1] + 1, np.int64)
        out = np.empty(max(4096, 16 * codes.shape[1]), np.int32)
        counters = np.zeros(1, np.int64)
        done = 0
        while True:
            done = int(self.kernel(codes, self.arrays, done, int(offsets[done]), offsets, out, counters))
            if done == codes.shape[1]:
                break
            # no event matches more than all boxes, so the room that one needs is bounded
            out = np.concatenate([out, np.empty(max(len(out), len(self.arrays.slots)), np.int32)])
        with self._tally:
            self._satisfied += int(counters[0])
        return offsets, out[: offsets[-1]]


def hold_needed(boxes: npt.NDArray[np.int32], n: int, needed: npt.NDArray[Any]) -> None:
    """Raise unless a counter of each of n boxes, which are in range, comes by what it needs at most once."""
    shaped("predicates that boxes need", needed, n)
    # one that went around would give its box twice, beyond the room for one each
    if len(boxes) > np.iinfo(needed.dtype).max:
        counted("that boxes have the predicates they need", boxes, n, needed)
