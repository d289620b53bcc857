"""Lists by value of one attribute, for boxes that ask for one value there: a path of `auto`.

A box stands once, in the list of its value, with its other bounds packed beside it (packed.py), so
that a list is read from front to back and checked two attributes at a time.

    array    dtype    shape           meaning
    values   int64    n_lists         the values, ascending
    table    int32    values' span,   list of a value, -1 where there is none: by value when the
                      or 2^k          values lie close together, else by hash
    starts   int32    n_lists + 1     where the lists begin
    boxes    int32    n               the boxes, list after list
    bounds   uint64   (n, n_words)    their bounds on the other attributes that some of them bound
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.attributes import Codes
from rangecast.indexes.base import Rows
from rangecast.indexes.catalog import Boxes
from rangecast.indexes.packed import Packed, bounded_attributes
from rangecast.indexes.parts import Part
from rangecast.kernels import equality as kernels
from rangecast.kernels import packed as packed_kernels
from rangecast.kernels.ids import hash_integers
from rangecast.storage import Arrays

_ARRAYS = ("values", "table", "starts", "boxes", "bounds")


class EqualityPart(Part):
    """Lists by value; see the module head."""

    exact = True

    def __init__(self, on: int, dense: bool, identical: bool, packed: Packed, arrays: Arrays) -> None:
        self.on = on
        self.dense = dense
        self.identical = identical
        self.packed = packed
        self.arrays = arrays

    def stab(self, codes: Codes, boxes: Boxes) -> Rows:
        a = self.arrays
        m = codes.shape[1]
        lists = np.empty(m, np.int32)
        own = codes[self.on]
        values, starts = a["values"], a["starts"]
        if self.dense:
            total = kernels.find_dense(own, values[0] if len(values) else 0, a["table"], starts, lists)
        else:
            hashes = np.empty(m, np.uint64)
            hash_integers(own, hashes)
            total = kernels.find_hashed(own, hashes, values, a["table"], starts, lists)
        offsets = np.empty(m + 1, np.int64)
        out = np.empty(total, np.int32)
        n = kernels.stab_lists(
            lists, starts, a["boxes"], a["bounds"], self.packed.pack_events(codes), self.packed.ones,
            self.packed.guards, self.packed.inexact, codes, boxes.lows, boxes.highs, offsets, out,
        )  # fmt: skip
        if not self.identical:
            packed_kernels.to_slots(out, n, boxes.slots)
        return offsets, out[:n]

    def without(self, dead: npt.NDArray[np.uint8]) -> EqualityPart | None:
        if not self.identical:
            return None
        boxes = self.arrays["boxes"]
        living = dead[boxes] == 0
        before = np.concatenate([[0], np.cumsum(living)])
        swept: Arrays = {
            **self.arrays,
            "starts": before[self.arrays["starts"]].astype(np.int32),
            "boxes": boxes[living],
            "bounds": self.arrays["bounds"][living],
        }
        return EqualityPart(self.on, self.dense, self.identical, self.packed, swept)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        meta, arrays = self.packed.export()
        named = {"on": self.on, "dense": self.dense, "identical": self.identical, "packed": meta}
        return named, {**self.arrays, **arrays}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: Arrays) -> EqualityPart:
        packed = Packed.restore(meta["packed"], arrays)
        own = {name: arrays[name] for name in _ARRAYS}
        return cls(meta["on"], meta["dense"], meta["identical"], packed, own)

    def stats(self) -> dict[str, int]:
        return {"lists": len(self.arrays["values"])}


def build_equality(boxes: Boxes, numbers: npt.NDArray[np.int64], on: int) -> EqualityPart:
    """Lists over boxes whose low is their high on the attribute `on`."""
    keys = boxes.lows[on, numbers]
    order = np.argsort(keys, kind="stable")
    numbers, keys = numbers[order], keys[order]
    firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else keys[:0]
    values = np.ascontiguousarray(keys[firsts])
    starts = np.append(firsts, len(keys)).astype(np.int32)
    span = int(values[-1]) - int(values[0]) + 1 if len(values) else 0
    dense = span <= 4 * len(values) + 1024
    if dense:
        table = np.full(span, -1, np.int32)
        if span:
            table[values - values[0]] = np.arange(len(values))
    else:
        table = np.full(1 << int(2 * len(values)).bit_length(), -1, np.int32)
        hashes = np.empty(len(values), np.uint64)
        hash_integers(values, hashes)
        kernels.enter_values(values, hashes, table)
    packed = Packed.fit(boxes, numbers, bounded_attributes(boxes, numbers, (on,)), widen=True)
    bounds = packed.pack_boxes(boxes, numbers)
    if not packed.n_words:
        bounds = np.empty((len(numbers), 0), np.uint64)
    own = (values, table, starts, numbers.astype(np.int32), bounds)
    identical = bool((boxes.slots[numbers] == numbers).all())
    return EqualityPart(on, dense, identical, packed, dict(zip(_ARRAYS, own, strict=True)))
