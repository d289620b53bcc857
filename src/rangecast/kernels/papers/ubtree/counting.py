"""Counting satisfied predicates: stabbing one interval tree per attribute, then adding up.

The tree of an attribute is laid over the ranks of its distinct end points, 1 to n_points: the nodes
are the ranks themselves, the root the largest power of two, and an interval belongs to the node in it
that is highest (has the most trailing zeros). A node's intervals all hold its point; they stand twice, by
low ascending and by high descending, so those that hold a value are a prefix of one of the two lists.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.papers.counters import add_up, count_slices, prefix_upto
from rangecast.simd.compiler import allocating_kernel, kernel


class IntervalTrees(NamedTuple):
    """An interval tree per attribute, one after the other.

    used[k] is the attribute whose points are point_starts[k]..point_starts[k + 1]; needed[i] the number
    of predicates of box i; `always` the boxes without any.
    """

    used: npt.NDArray[np.int64]
    point_starts: npt.NDArray[np.int64]
    points: npt.NDArray[np.int64]
    node_starts: npt.NDArray[np.int64]
    low_keys: npt.NDArray[np.int64]
    low_boxes: npt.NDArray[np.int32]
    high_keys: npt.NDArray[np.int64]
    high_boxes: npt.NDArray[np.int32]
    needed: npt.NDArray[Any]
    always: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]


@kernel
def forks(lows, highs, out):
    """out[i] = the rank within lows[i]..highs[i] (ranks from 1) with the most trailing zeros."""
    for i in range(lows.size):
        below = lows[i] - 1
        high = highs[i]
        step = np.int64(1)
        # clear low bits of `high` as long as that keeps it above `below`
        while high & ~(2 * step - 1) > below:
            step *= 2
        out[i] = high & ~(step - 1)


@kernel
def _rank(points, code):
    """How many points are not greater than a code."""
    low = 0
    high = points.size
    while low < high:
        middle = (low + high) >> 1
        if points[middle] <= code:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _prefix_from(keys, first, last, code):
    """End of the prefix of descending keys[first:last] that are not less than a code."""
    while first < last:
        middle = (first + last) >> 1
        if keys[middle] >= code:
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def _slices(code, k, trees, slices, n):
    """The list slices of the k-th tree whose intervals hold a code, from slices[n] on; returns the end.

    Its points are points[a:b]; its node of rank r has node_starts[a + r - 1] to the next. A slice is (which
    list, first, last): list 0 is in the order of lows, 1 of highs.
    """
    a = trees.point_starts[k]
    own = trees.points[a : trees.point_starts[k + 1]]
    rank = _rank(own, code)
    node = np.int64(1)
    while 2 * node <= own.size:
        node *= 2
    step = node
    while step > 0:
        step >>= 1
        if node > own.size:
            # the tree is cut off at the last point: only the left side is there
            node -= step
            continue
        first = trees.node_starts[a + node - 1]
        last = trees.node_starts[a + node]
        if node > rank:
            end = prefix_upto(trees.low_keys, first, last, code)
            slices[n, 0] = 0
        else:
            end = _prefix_from(trees.high_keys, first, last, code)
            slices[n, 0] = 1
        if end > first:
            slices[n, 1] = first
            slices[n, 2] = end
            n += 1
        node = node - step if node > rank else node + step
    return n


@allocating_kernel
def stab(codes, trees, first, done, offsets, out, counters):
    """Match events first.. and write their slots from out[done] on; returns the event it got to.

    counters[0] adds up satisfied predicates.
    """
    counts = np.zeros(trees.needed.size, trees.needed.dtype)
    slices = np.empty((64 * trees.used.size, 3), np.int64)
    p = done
    for e in range(first, codes.shape[1]):
        n = 0
        # all slices first: their lengths say how much room the event can need
        for k in range(trees.used.size):
            n = _slices(codes[trees.used[k], e], k, trees, slices, n)
        total = add_up(slices, n)
        end = count_slices(
            slices,
            n,
            total,
            trees.low_boxes,
            trees.high_boxes,
            trees.needed,
            trees.always,
            trees.slots,
            counts,
            out,
            p,
        )
        if end < 0:
            offsets[e] = p
            return e
        p = end
        counters[0] += total
        offsets[e + 1] = p
    return codes.shape[1]
