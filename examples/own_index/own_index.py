"""`sorted`: boxes sorted by their low ends on one attribute. A skeleton to copy for an index of your own.

An event with value v looks at the boxes whose low end is at most v, and compares the other bounds one by one.
That is right and not fast; the layout and `stab` are what you replace. Inserts, deletes, files, pickles,
threads and explanations come with StaticIndex, for any layout that is built at once.

    array     dtype   shape   meaning
    lows      int64   n       the low ends on the attribute, ascending
    numbers   int64   n       the box of each, as a number within `boxes`

Values are codes: integers in the order of the values, the smallest of all for a missing value. Bounds are
closed. A box bounds every attribute; one that its subscription does not mention has all codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import rangecast as rc
from rangecast.engine.answers import Request
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import hold, shaped, within
from rangecast.engine.parts import Part, StaticIndex


class SortedArrays(NamedTuple):
    """What a file holds of a part; see the module head."""

    lows: np.ndarray
    numbers: np.ndarray


@dataclass(eq=False)
class SortedPart(Part):
    """Some boxes, laid out once and never changed. The fields are what a file holds."""

    on: int
    arrays: SortedArrays

    def check(self, boxes: Boxes, n_slots: int) -> None:
        """A file may hold anything: raise unless all that `stab` indexes by is in range."""
        hold("that an attribute is one of the schema", 0 <= self.on < boxes.n_attributes)
        shaped("lows", self.arrays.lows, len(self.arrays.numbers))
        within("numbers of boxes", self.arrays.numbers, boxes.n)

    def stab(self, request: Request) -> tuple[np.ndarray, np.ndarray]:
        """For each event (a column of codes) the slots of the boxes that hold it: offsets and slots."""
        codes, boxes = request.codes, request.boxes
        found = []
        ends = np.searchsorted(self.arrays.lows, codes[self.on], "right")
        for event, end in enumerate(ends):
            numbers = self.arrays.numbers[:end]
            values = codes[:, event : event + 1]
            lows, highs = boxes.columns(range(boxes.n_attributes), numbers)
            holds = (lows <= values) & (values <= highs)
            found.append(boxes.slots_of(numbers[holds.all(axis=0)]))
        offsets = np.concatenate([[0], np.cumsum([len(slots) for slots in found])]).astype(np.int64)
        return offsets, np.concatenate([np.empty(0, np.int32), *found])


class SortedIndex(StaticIndex):
    """Boxes sorted by their low ends on one attribute: `on`, or the first of the schema."""

    name = "sorted"

    def _configure(self, on: str | None = None) -> None:
        """The parameters are the options of `open_index`."""
        names = list(self.schema.names)
        if on is not None and on not in names:
            raise rc.OptionError(f"index 'sorted': on must be an attribute of the schema, got {on!r}")
        self._on = 0 if on is None else names.index(on)

    def _build(self, boxes: Boxes, numbers: np.ndarray) -> Any:
        """A part of some boxes, by their numbers."""
        lows, _ = boxes.column(self._on, numbers)
        order = np.argsort(lows, kind="stable")
        return SortedPart(self._on, SortedArrays(lows[order], numbers[order]))
