"""A few events at a time: one kernel call where a batch gets several.

Where events come one at a time, calling is what costs: in lists by value, three calls with thirty arrays
took two fifths of a match, and comparing nearly nothing. So a part may have a kernel that does all its
steps for a few events, and finds the part's arrays by a table (simd/memory.py).

How much room the answer needs is known only within the call. It gets ROOM entries per event, or as many as
the part says, and is called again if that was too little. One event alone gets as much as one before it has
needed: called twice, one of 2,000 matches would take twice the time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine.answers import Rows
from rangecast.engine.boxes import Boxes
from rangecast.simd.memory import Views
from rangecast.types.attributes import Codes

FEW_EVENTS = 64  # smaller batches take this way
ROOM = 256  # matches per event at first
MOST_ROOM = 1 << 14
"""Matches of one event for which room is kept ready."""
_NO_BOXES = np.empty((0, 3), np.int64)
# of a class numpy makes one of these at each call, which is a third of the time of a small array
_SLOT, _OFFSET = np.dtype(np.int32), np.dtype(np.int64)


class FewEvents:
    """A kernel with the arrays of a part.

    `kernel(table, boxes.table, codes, offsets, out)` writes rows of box numbers and returns how many there
    are, or minus the room to try with.
    """

    def __init__(self, kernel: Callable[..., int], views: Views, room: int = ROOM) -> None:
        self._kernel = kernel
        self._views = views
        self._room = room
        self._room_of_one = room

    @property
    def views(self) -> Views:
        """The arrays of the part."""
        return self._views

    @property
    def room(self) -> int:
        """Matches per event for which there is room at first."""
        return self._room

    def stab(self, codes: Codes, boxes: Boxes | None) -> Rows:
        """The boxes that hold each event; a kernel that looks at no box needs none."""
        m = codes.shape[1]
        table, own = self._views.table, _NO_BOXES if boxes is None else boxes.table
        offsets, out = np.empty(m + 1, np.int64), np.empty(m * self._room, np.int32)
        n = self._kernel(table, own, codes, offsets, out)
        while n < 0:
            out = memory.empty(-n, np.int32)
            n = self._kernel(table, own, codes, offsets, out)
        return offsets, out[:n]

    def stab_one(
        self, codes: Codes, boxes: Boxes | None, slots: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.int32]:
        """The boxes that hold one event; with `slots`, those of the boxes."""
        own = _NO_BOXES if boxes is None else boxes.table
        out = np.empty(self._room_of_one, _SLOT)
        n = self._kernel(self._views.table, own, codes, np.empty(2, _OFFSET), out)
        if n < 0 or self._room_of_one > self._room:
            out, n = self._fitted(own, codes, out, n)
        return out[:n] if slots is None else slots[out[:n]]

    def stab_one_small(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        """The same as `stab_small`, of one event."""
        out = np.empty(self._room_of_one, _SLOT)
        n = self._kernel(self._views.table, boxes.table, codes, np.empty(2, _OFFSET), out)
        if n < -MOST_ROOM:
            return None
        if n < 0 or self._room_of_one > self._room:
            out, n = self._fitted(boxes.table, codes, out, n)
        return out[:n]

    def _fitted(
        self, own: npt.NDArray[np.int64], codes: Codes, out: npt.NDArray[np.int32], n: int
    ) -> tuple[npt.NDArray[np.int32], int]:
        """An answer of one event in room that suits it: called again where there was too little, which the
        next one then has, and copied where much is left, for others may hold it."""
        while n < 0:
            self._room_of_one = max(self._room_of_one, min(-n, MOST_ROOM))
            out = memory.empty(-n, np.int32)
            n = self._kernel(self._views.table, own, codes, np.empty(2, np.int64), out)
        return (out[:n].copy() if 4 * n < len(out) else out), n

    def stab_small(self, codes: Codes, boxes: Boxes) -> Rows | None:
        """The same, or None where the answer is not small: whoever can write ids without slots in between
        then does so."""
        m = codes.shape[1]
        offsets, out = np.empty(m + 1, np.int64), np.empty(m * self._room, np.int32)
        n = self._kernel(self._views.table, boxes.table, codes, offsets, out)
        return None if n < 0 else (offsets, out[:n])
