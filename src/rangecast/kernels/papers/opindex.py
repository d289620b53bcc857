"""Predicates by pivot, operator and attribute: counting the satisfied ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.papers.counters import add_up, count_slices, prefix_upto
from rangecast.simd.compiler import allocating_kernel, kernel

EQUAL, AT_LEAST, AT_MOST = 0, 1, 2
_MISSING = np.iinfo(np.int64).min


class OperatorLists(NamedTuple):
    """Sorted lists of operands; papers/opindex.py tells what the arrays are."""

    pivots: npt.NDArray[np.int64]
    without: npt.NDArray[np.uint8]
    pivot_starts: npt.NDArray[np.int64]
    attributes: npt.NDArray[np.int64]
    operators: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    operands: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.int32]
    needed: npt.NDArray[np.int32]
    always: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]


@kernel
def _below(operands, first, last, code):
    """End of the prefix of ascending operands that are less than a code."""
    while first < last:
        middle = (first + last) >> 1
        if operands[middle] < code:
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def _slices(codes, e, lists, slices):
    """The satisfied predicates of an event as slices of the lists; returns how many slices there are."""
    n = 0
    for k in range(lists.pivots.size):
        # whoever has this pivot needs a value of it, unless one of them asks for none
        if codes[lists.pivots[k], e] == _MISSING and not lists.without[k]:
            continue
        for g in range(lists.pivot_starts[k], lists.pivot_starts[k + 1]):
            v = codes[lists.attributes[g], e]
            first = lists.starts[g]
            last = lists.starts[g + 1]
            if lists.operators[g] == AT_LEAST:
                last = prefix_upto(lists.operands, first, last, v)
            else:
                first = _below(lists.operands, first, last, v)
                if lists.operators[g] == EQUAL:
                    last = prefix_upto(lists.operands, first, last, v)
            if first < last:
                slices[n, 0] = 0
                slices[n, 1] = first
                slices[n, 2] = last
                n += 1
    return n


@allocating_kernel
def stab(codes, lists, first, done, offsets, out, counters):
    """Match events first.. and write their slots from out[done] on; returns the event it got to.

    counters[0] adds up satisfied predicates.
    """
    counts = np.zeros(lists.needed.size, lists.needed.dtype)
    slices = np.empty((lists.attributes.size, 3), np.int64)
    p = done
    for e in range(first, codes.shape[1]):
        n = _slices(codes, e, lists, slices)
        total = add_up(slices, n)
        end = count_slices(
            slices,
            n,
            total,
            lists.boxes,
            lists.boxes,
            lists.needed,
            lists.always,
            lists.slots,
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
