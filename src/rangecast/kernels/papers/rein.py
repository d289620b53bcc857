"""Marking who does not match: two sorted lists of ends per attribute, cut into buckets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import allocating_kernel, kernel


class BucketLists(NamedTuple):
    """Low and high ends per attribute, bucket by bucket; papers/rein.py tells what the arrays are."""

    used: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int64]
    cut_starts: npt.NDArray[np.int64]
    low_starts: npt.NDArray[np.int64]
    low_keys: npt.NDArray[np.int64]
    low_boxes: npt.NDArray[np.int32]
    high_starts: npt.NDArray[np.int64]
    high_keys: npt.NDArray[np.int64]
    high_boxes: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]


@kernel
def _bucket(cuts, first, last, code):
    """The bucket of a code: how many of cuts[first:last] are not greater."""
    a = first
    b = last
    while a < b:
        middle = (a + b) >> 1
        if cuts[middle] <= code:
            a = middle + 1
        else:
            b = middle
    return a - first


@kernel
def _mark(boxes, first, last, marks):
    for q in range(first, last):
        marks[boxes[q] >> 6] |= np.uint64(1) << np.uint64(boxes[q] & 63)


@kernel
def _mark_event(codes, e, lists, marks, counters):
    """Mark every box that some value of an event rules out."""
    for k in range(lists.used.size):
        v = codes[lists.used[k], e]
        first = lists.cut_starts[k]
        last = lists.cut_starts[k + 1]
        bucket = _bucket(lists.cuts, first, last, v)
        # the lists of attribute k begin after those of the others: each has a bucket more than cuts
        own = first + k + bucket
        begin = first + k
        end = last + k + 1
        # low ends in the value's own bucket are compared, those of later buckets are all above it
        for q in range(lists.low_starts[own], lists.low_starts[own + 1]):
            if lists.low_keys[q] > v:
                marks[lists.low_boxes[q] >> 6] |= np.uint64(1) << np.uint64(lists.low_boxes[q] & 63)
        counters[0] += lists.low_starts[own + 1] - lists.low_starts[own]
        _mark(lists.low_boxes, lists.low_starts[own + 1], lists.low_starts[end], marks)
        for q in range(lists.high_starts[own], lists.high_starts[own + 1]):
            if lists.high_keys[q] < v:
                marks[lists.high_boxes[q] >> 6] |= np.uint64(1) << np.uint64(lists.high_boxes[q] & 63)
        counters[0] += lists.high_starts[own + 1] - lists.high_starts[own]
        _mark(lists.high_boxes, lists.high_starts[begin], lists.high_starts[own], marks)
        counters[1] += lists.low_starts[end] - lists.low_starts[own + 1]
        counters[1] += lists.high_starts[own] - lists.high_starts[begin]


@allocating_kernel
def stab(codes, lists, first, done, offsets, out, counters):
    """Match events first.. and write their slots from out[done] on; returns the event it got to.

    counters[0] adds up ends that were compared, counters[1] those that were marked without.
    """
    n = lists.slots.size
    marks = np.zeros((n >> 6) + 1, np.uint64)
    p = done
    for e in range(first, codes.shape[1]):
        # all of them may be left, and an event is done whole or not at all
        if p + n > out.size:
            offsets[e] = p
            return e
        marks[:] = 0
        _mark_event(codes, e, lists, marks, counters)
        for w in range(marks.size):
            free = ~marks[w]
            if free == 0:
                continue
            for b in range(64):
                box = 64 * w + b
                if box >= n:
                    break
                if free >> np.uint64(b) & np.uint64(1):
                    out[p] = lists.slots[box]
                    p += 1
        offsets[e + 1] = p
    return codes.shape[1]
