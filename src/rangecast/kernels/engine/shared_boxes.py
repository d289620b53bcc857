"""Boxes that are alike: found by hash, verified bound by bound, and their members copied in runs."""

from __future__ import annotations

import numpy as np

from rangecast.engine.boxes_kernels import first_word
from rangecast.kernels.model.ids import mix
from rangecast.model.kernels import copy_run
from rangecast.simd.compiler import kernel


@kernel
def hash_boxes(boxes, numbers, out):
    """A hash of each of some boxes: of its words, since boxes with the same entries have the same."""
    for i in range(numbers.size):
        h = np.uint64(1)
        p = first_word(boxes.starts, boxes.stride, numbers[i])
        end = first_word(boxes.starts, boxes.stride, numbers[i] + 1)
        while p < end:
            h = mix(h ^ np.uint64(boxes.words[p]))
            p += 1
        out[i] = h


@kernel
def mark_firsts(boxes, numbers, out):
    """Set out[i] where a box differs from the one before it."""
    for i in range(1, numbers.size):
        p = first_word(boxes.starts, boxes.stride, numbers[i - 1])
        end = first_word(boxes.starts, boxes.stride, numbers[i - 1] + 1)
        q = first_word(boxes.starts, boxes.stride, numbers[i])
        other = first_word(boxes.starts, boxes.stride, numbers[i] + 1)
        out[i] = end - p != other - q
        while p < end and not out[i]:
            out[i] = boxes.words[p] != boxes.words[q]
            p += 1
            q += 1


@kernel
def count_members(offsets, groups, starts, counts):
    """counts[e] = how many members the groups of row e have."""
    for e in range(counts.size):
        n = np.int64(0)
        for q in range(offsets[e], offsets[e + 1]):
            n += starts[groups[q] + 1] - starts[groups[q]]
        counts[e] = n


@kernel
def copy_members(offsets, groups, starts, members, places, add, out):
    """Write the members of the groups of row e, with `add` added, from out[places[e]] on."""
    for e in range(places.size):
        p = places[e]
        for q in range(offsets[e], offsets[e + 1]):
            a = starts[groups[q]]
            p = copy_run(members, a, starts[groups[q] + 1] - a, add, False, out, p)
