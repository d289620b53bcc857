"""The bounds that a layout does not go by, packed box by box, so that a candidate costs a line of memory.

A candidate of `cells` on one or two attributes must still hold the event on the others. Their codes lie
attribute by attribute, two lines of memory each; packed (packed.py), eight attributes are half a line.
On 100,000 boxes of 8 attributes and 1,000 candidates an event that takes 7 us instead of 43.

    array    dtype    shape          meaning
    words    uint64   (n, n_words)   the packed bounds of each box
    rows     int32    span or 0      the row of each box from the first on; none where boxes follow each other

A batch with few candidates an event is compared by codes: packing its events would cost more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.attributes import Codes
from rangecast.indexes.catalog import Boxes
from rangecast.indexes.packed import Packed
from rangecast.kernels import packed as kernels
from rangecast.storage import Arrays

FEW = 4
_PREFIX = "checked."


class Checked:
    """Packed bounds of some boxes on some attributes."""

    def __init__(
        self,
        first: int,
        packed: Packed,
        words: npt.NDArray[np.uint64],
        rows: npt.NDArray[np.int32],
    ) -> None:
        self.first = first
        self.packed = packed
        self.words = words
        self.rows = rows

    @classmethod
    def fit(cls, boxes: Boxes, numbers: npt.NDArray[np.int64], attributes: list[int]) -> Checked:
        """The bounds of the boxes with these numbers (ascending)."""
        packed = Packed.fit(boxes, numbers, attributes)
        first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
        rows = np.empty(0, np.int32)
        if last - first != len(numbers) - 1:
            rows = np.zeros(last - first + 1, np.int32)
            rows[numbers - first] = np.arange(len(numbers), dtype=np.int32)
        return cls(first, packed, packed.pack_boxes(boxes, numbers), rows)

    def keep(
        self,
        order: npt.NDArray[np.int64],
        codes: Codes,
        boxes: Boxes,
        offsets: npt.NDArray[np.int64],
        candidates: npt.NDArray[np.int32],
    ) -> int:
        """Keep the candidates of each row that hold its event, in place; returns how many there are.

        Row i is that of event order[i].
        """
        packed = self.packed
        if int(offsets[-1]) < FEW * codes.shape[1]:
            few = (order, codes, boxes.lows, boxes.highs, packed.attributes, offsets, candidates)
            return int(kernels.check_codes(*few))
        kept = kernels.check_packed(
            order, codes, boxes.lows, boxes.highs, packed.inexact, packed.pack_events(codes), packed.ones,
            self.first, self.rows, self.words, offsets, candidates,
        )  # fmt: skip
        return int(kept)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        """Plain data and arrays for `restore`."""
        meta, arrays = self.packed.export()
        own: Arrays = {"words": self.words, "rows": self.rows, **arrays}
        return {"first": self.first, **meta}, {_PREFIX + name: array for name, array in own.items()}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: Arrays) -> Checked:
        """What was exported, out of arrays that may hold others too."""
        own = {name[len(_PREFIX) :]: array for name, array in arrays.items() if name.startswith(_PREFIX)}
        return cls(meta["first"], Packed.restore(meta, own), own["words"], own["rows"])
