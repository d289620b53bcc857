"""Lists by leading entry: choosing leads, filling lists per cell, and checking who stands in an event's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels import inlined_kernel, kernel
from rangecast.kernels.engine.boxes import NARROW, holds
from rangecast.kernels.machine.memory import prefetch

AHEAD = 8
EVENTS = 16
"""So many events are turned into rows at once."""

BOX, SECOND, LOW, HIGH = range(4)
_MISSING = np.iinfo(np.int64).min


class LeadLists(NamedTuple):
    """Lists of boxes per leading attribute and cell; engine/leads.py tells what the arrays are."""

    attributes: npt.NDArray[np.int32]
    cut_starts: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int32]
    listed: npt.NDArray[np.uint32]
    every: npt.NDArray[np.int32]


@kernel
def choose_leads(starts, shares, leads, seconds):
    """The entry of each box that lets the least through, and the next one; -1 where there is none."""
    for b in range(leads.size):
        first = np.int64(-1)
        second = np.int64(-1)
        for i in range(starts[b], starts[b + 1]):
            if first < 0 or shares[i] < shares[first]:
                second = first
                first = np.int64(i)
            elif second < 0 or shares[i] < shares[second]:
                second = np.int64(i)
        leads[b] = first
        seconds[b] = second


@kernel
def fill_cells(firsts, lasts, cursors, rows):
    """Enter the number of each interval in every cell from its first to its last."""
    for i in range(firsts.size):
        for cell in range(firsts[i], lasts[i] + 1):
            rows[cursors[cell]] = i
            cursors[cell] += 1


@inlined_kernel
def squeeze(code, base):
    """A code in 32 bits, in the same order: 0 is missing, and what lies too far off is the nearest."""
    if code == _MISSING:
        return np.uint32(0)
    if code <= base:
        return np.uint32(1)
    # as unsigned: the difference of two codes may be none
    distance = np.uint64(code) - np.uint64(base)
    return np.uint32(distance) if distance < np.uint64(NARROW) else np.uint32(NARROW)


@kernel
def squeeze_ends(codes, attributes, bases, column, out):
    """out[i, column] = codes[i] in 32 bits, by the base of attributes[i]."""
    for i in range(codes.size):
        out[i, column] = squeeze(codes[i], bases[attributes[i]])


@inlined_kernel
def _find_cell(cuts, first, last, v):
    """How many of the cuts first..last are at most v."""
    a = first
    while first < last:
        middle = (first + last) >> 1
        if cuts[middle] <= v:
            first = middle + 1
        else:
            last = middle
    return first - a


@kernel
def _collect(lists, lacking, codes, row, e, found):
    """Boxes in the lists of event e whose second entry may hold it; returns how many."""
    n = 0
    listed = lists.listed
    for k in range(lists.attributes.size):
        j = lists.attributes[k]
        if row[j] == 0 and lacking[k] == 0:
            continue
        first = lists.cut_starts[k]
        # an attribute has two cells more than cuts: one for missing values, which is the first
        cell = first + 2 * k
        if row[j] != 0:
            cell += 1 + _find_cell(lists.cuts, first, lists.cut_starts[k + 1], codes[j, e])
        for q in range(lists.starts[cell], lists.starts[cell + 1]):
            found[n] = np.int32(listed[q, BOX])
            value = row[listed[q, SECOND]]
            n += (listed[q, LOW] <= value) & (value <= listed[q, HIGH])
    return n


@kernel
def stab(codes, lists, lacking, boxes, first_event, rows, found, offsets, out):
    """Write the slots of events from `first_event` on; returns the event for which there was no room.

    `lacking` tells of which attributes the list of missing values has somebody. `rows` takes EVENTS events by
    row, `found` the candidates of one; offsets[first_event] is where to begin.
    """
    m = codes.shape[1]
    d = min(codes.shape[0], boxes.bases.size)
    p = offsets[first_event]
    none = boxes.bases[:0]
    e = first_event
    while e < m:
        last = min(e + EVENTS, m)
        # codes stand by attribute: row by row the cache would have to hold a line of each
        for j in range(d):
            base = boxes.bases[j]
            for i in range(e, last):
                rows[i - e, j] = squeeze(codes[j, i], base)
        for i in range(e, last):
            n = _collect(lists, lacking, codes, rows[i - e], i, found)
            if p + n + lists.every.size > out.size:
                return i
            for q in range(min(AHEAD, n)):
                _ask_for(boxes, found[q])
            for q in range(n):
                if q + AHEAD < n:
                    _ask_for(boxes, found[q + AHEAD])
                box = found[q]
                out[p] = boxes.slots[box] if boxes.slots.size else box
                p += holds(boxes, box, codes, none, i)
            for q in range(lists.every.size):
                box = lists.every[q]
                out[p] = boxes.slots[box] if boxes.slots.size else box
                p += 1
            offsets[i + 1] = p
        e = last
    return m


@inlined_kernel
def _ask_for(boxes, box):
    if boxes.starts.size:
        prefetch(boxes.words, np.int64(boxes.starts[box]))
    else:
        prefetch(boxes.words, np.int64(box) * np.int64(boxes.stride))


@kernel
def count_candidates(codes, lists, counts):
    """counts[e] = how many boxes stand in the lists of event e."""
    for e in range(counts.size):
        n = np.int64(lists.every.size)
        for k in range(lists.attributes.size):
            v = codes[lists.attributes[k], e]
            first = lists.cut_starts[k]
            cell = first + 2 * k
            if v != _MISSING:
                cell += 1 + _find_cell(lists.cuts, first, lists.cut_starts[k + 1], v)
            n += lists.starts[cell + 1] - lists.starts[cell]
        counts[e] = n
