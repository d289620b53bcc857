"""Lists per cell: counting, filling, and stabbing them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import kernel

_LAST = np.iinfo(np.int64).max


class DirectLists(NamedTuple):
    """Lists per cell of attribute `on`; papers/vci/direct.py tells what the arrays are."""

    on: int
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


@kernel
def _covers(low, high, cell, cuts):
    end = cuts[cell + 1] - 1 if cell + 1 < cuts.size else _LAST
    return low <= cuts[cell] and end <= high


@kernel
def count_entries(lows, highs, firsts, lasts, cuts, starts):
    """starts becomes the ends of the lists (whole, crossing, whole, ...); returns the crossing ones."""
    crossing = 0
    for i in range(lows.size):
        for c in range(firsts[i], lasts[i] + 1):
            if _covers(lows[i], highs[i], c, cuts):
                starts[2 * c + 1] += 1
            else:
                starts[2 * c + 2] += 1
                crossing += 1
    for k in range(1, starts.size):
        starts[k] += starts[k - 1]
    return crossing


@kernel
def fill_entries(lows, highs, firsts, lasts, cuts, cursors, numbers, box_slots, lists):
    """Write each interval's slot (and box) into its lists; cursors are the starts of the lists."""
    for i in range(lows.size):
        for c in range(firsts[i], lasts[i] + 1):
            k = 2 * c if _covers(lows[i], highs[i], c, cuts) else 2 * c + 1
            p = cursors[k]
            cursors[k] = p + 1
            lists.slots[p] = box_slots[numbers[i]]
            if lists.boxes.size:
                lists.boxes[p] = numbers[i]


@kernel
def count(cells, starts):
    """How many entries a batch will look at."""
    total = 0
    for e in range(cells.size):
        total += starts[2 * cells[e] + 2] - starts[2 * cells[e]]
    return total


@kernel
def stab(codes, cells, lists, lows, highs, offsets, out):
    """Copy whole lists, check what must be checked; returns the number of matches."""
    on = lists.on
    starts = lists.starts
    slots = lists.slots
    checked = lists.checked
    p = 0
    for e in range(cells.size):
        offsets[e] = p
        a = starts[2 * cells[e]]
        b = starts[2 * cells[e] + 1]
        c = starts[2 * cells[e] + 2]
        if checked.size == 0:
            for q in range(a, b):
                out[p + q - a] = slots[q]
            p += b - a
        v = codes[on, e]
        for q in range(a if checked.size else b, c):
            box = lists.boxes[q]
            hit = q < b or (lows[on, box] <= v and v <= highs[on, box])
            for k in range(checked.size):
                if not hit:
                    break
                j = checked[k]
                hit = lows[j, box] <= codes[j, e] and codes[j, e] <= highs[j, box]
            out[p] = slots[q]
            p += hit
    offsets[cells.size] = p
    return p
