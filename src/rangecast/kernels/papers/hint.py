"""The hierarchy of intervals: assigning them to partitions, and stabbing one partition per level.

The partitions of level l are numbered 2**l - 1 .. 2**(l + 1) - 2; each has four lists, one after the other
(papers/hint.py has their names).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds_dense, holds_dense_value
from rangecast.simd.compiler import kernel


class Hierarchy(NamedTuple):
    """Lists per partition of attribute `on`; papers/hint.py tells what the arrays are."""

    on: int
    bottom: int
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


@kernel
def _list(level, place, first, last, bottom):
    """The list of a partition that an interval of cells is in: replicas, and who ends behind, come later."""
    shift = bottom - level
    replica = first >> shift != place
    behind = last >> shift != place
    return 4 * ((np.int64(1) << level) - 1 + place) + 2 * replica + behind


@kernel
def count_entries(firsts, lasts, bottom, starts):
    """starts becomes the ends of the lists; an interval is in two partitions of a level at most."""
    for i in range(firsts.size):
        a = np.int64(firsts[i])
        b = np.int64(lasts[i])
        level = bottom
        while a <= b:
            if a & 1:
                starts[_list(level, a, firsts[i], lasts[i], bottom) + 1] += 1
                a += 1
            # what is left may be empty now: the last one was the first
            if not b & 1:
                starts[_list(level, b, firsts[i], lasts[i], bottom) + 1] += 1
                b -= 1
            a >>= 1
            b >>= 1
            level -= 1
    for k in range(1, starts.size):
        starts[k] += starts[k - 1]


@kernel
def fill_entries(firsts, lasts, numbers, box_slots, cursors, tree):
    """Write each interval into its lists; cursors are the starts of the lists."""
    for i in range(firsts.size):
        a = np.int64(firsts[i])
        b = np.int64(lasts[i])
        level = tree.bottom
        while a <= b:
            for side in range(2):
                # the same two questions as in count_entries, in the same order
                place = b if side else a
                if (place & 1) == side:
                    continue
                k = _list(level, place, firsts[i], lasts[i], tree.bottom)
                tree.slots[cursors[k]] = box_slots[numbers[i]]
                tree.boxes[cursors[k]] = numbers[i]
                cursors[k] += 1
                if side:
                    b -= 1
                else:
                    a += 1
            a >>= 1
            b >>= 1
            level -= 1


@kernel
def count(cells, tree):
    """How many entries a batch will look at."""
    total = 0
    for e in range(cells.size):
        for level in range(tree.bottom + 1):
            k = 4 * ((np.int64(1) << level) - 1 + (cells[e] >> (tree.bottom - level)))
            total += tree.starts[k + 4] - tree.starts[k]
    return total


@kernel
def stab(codes, cells, tree, boxes, offsets, out, compared):
    """Write the matches of a batch; compared[0] adds up entries whose bounds were looked at."""
    p = 0
    for e in range(cells.size):
        offsets[e] = p
        v = codes[tree.on, e]
        for level in range(tree.bottom + 1):
            k = 4 * ((np.int64(1) << level) - 1 + (cells[e] >> (tree.bottom - level)))
            # who begins or ends in this partition may do so beyond the value; replicas that end behind it
            # hold it
            sure = tree.starts[k + 3]
            for q in range(tree.starts[k], sure):
                out[p] = tree.slots[q]
                p += holds_dense_value(boxes, tree.boxes[q], tree.on, v) and holds_dense(
                    boxes, tree.boxes[q], codes, tree.checked, e
                )
            compared[0] += sure - tree.starts[k]
            for q in range(sure, tree.starts[k + 4]):
                out[p] = tree.slots[q]
                p += holds_dense(boxes, tree.boxes[q], codes, tree.checked, e)
    offsets[cells.size] = p
    return p
