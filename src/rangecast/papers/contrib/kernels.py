"""Containment-encoded intervals: cutting intervals into them, and stabbing the ones that hold a value.

Within a segment of 2**k cells they are numbered as the nodes of a heap: 1 is the whole segment, 2c and 2c +
1 the halves of c, so who holds a cell is found by shifting its leaf's number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds_dense, holds_dense_value
from rangecast.simd.compiler import kernel

_LAST = np.iinfo(np.int64).max


class EncodedLists(NamedTuple):
    """Lists per construct of attribute `on`; papers/cei.py tells what the arrays are."""

    on: int
    k: int
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


@kernel
def _enter(list_, filling, starts, slot, number, lists):
    """Count an entry of a list, or write it where its cursor is."""
    if filling:
        p = starts[list_]
        lists.slots[p] = slot
        lists.boxes[p] = number
        starts[list_] = p + 1
    else:
        starts[list_ + 1] += 1


@kernel
def enter_all(lows, highs, firsts, lasts, cuts, numbers, box_slots, filling, starts, lists):
    """Count the entries of all lists, or fill them; `starts` are counts behind the first, or cursors.

    List 0 has the boxes that hold every cell; list c + 1 those that hold cell c in part; behind them are the
    lists of the constructs.
    """
    n_cells = cuts.size
    size = np.int64(1) << lists.k
    for i in range(lows.size):
        slot = box_slots[numbers[i]]
        number = numbers[i]
        first = np.int64(firsts[i])
        last = np.int64(lasts[i])
        if lows[i] > cuts[first]:
            _enter(1 + first, filling, starts, slot, number, lists)
            first += 1
        end = cuts[lasts[i] + 1] - 1 if lasts[i] + 1 < n_cells else _LAST
        if highs[i] < end and first <= last:
            _enter(1 + last, filling, starts, slot, number, lists)
            last -= 1
        if first == 0 and last == n_cells - 1:
            _enter(0, filling, starts, slot, number, lists)
            continue
        while first <= last:
            # what lies in one segment, from its leaves up
            segment = first >> lists.k
            a = first - segment * size + size
            b = min(last, (segment + 1) * size - 1) - segment * size + size + 1
            base = 1 + n_cells + 2 * size * segment
            while a < b:
                if a & 1:
                    _enter(base + a, filling, starts, slot, number, lists)
                    a += 1
                if b & 1:
                    b -= 1
                    _enter(base + b, filling, starts, slot, number, lists)
                a >>= 1
                b >>= 1
            first = (segment + 1) * size
    if not filling:
        for q in range(1, starts.size):
            starts[q] += starts[q - 1]


@kernel
def count(cells, n_cells, lists):
    """How many entries a batch will look at."""
    size = np.int64(1) << lists.k
    total = cells.size * (lists.starts[1] - lists.starts[0])
    for e in range(cells.size):
        total += lists.starts[cells[e] + 2] - lists.starts[cells[e] + 1]
        segment = cells[e] >> lists.k
        base = 1 + n_cells + 2 * size * segment
        node = cells[e] - segment * size + size
        while node > 0:
            total += lists.starts[base + node + 1] - lists.starts[base + node]
            node >>= 1
    return total


@kernel
def _copy(list_, lists, codes, e, boxes, out, p):
    if lists.checked.size == 0:
        for q in range(lists.starts[list_], lists.starts[list_ + 1]):
            out[p] = lists.slots[q]
            p += 1
        return p
    for q in range(lists.starts[list_], lists.starts[list_ + 1]):
        out[p] = lists.slots[q]
        p += holds_dense(boxes, lists.boxes[q], codes, lists.checked, e)
    return p


@kernel
def stab(codes, cells, n_cells, lists, boxes, offsets, out):
    """Write the matches of a batch; returns their number."""
    size = np.int64(1) << lists.k
    p = 0
    for e in range(cells.size):
        offsets[e] = p
        v = codes[lists.on, e]
        p = _copy(0, lists, codes, e, boxes, out, p)
        for q in range(lists.starts[cells[e] + 1], lists.starts[cells[e] + 2]):
            out[p] = lists.slots[q]
            p += holds_dense_value(boxes, lists.boxes[q], lists.on, v) and holds_dense(
                boxes, lists.boxes[q], codes, lists.checked, e
            )
        segment = cells[e] >> lists.k
        base = 1 + n_cells + 2 * size * segment
        node = cells[e] - segment * size + size
        while node > 0:
            p = _copy(base + node, lists, codes, e, boxes, out, p)
            node >>= 1
    offsets[cells.size] = p
    return p
