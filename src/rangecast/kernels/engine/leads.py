"""Lists by leading entry: choosing leads, filling lists per cell, and checking who stands in an event's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels import inlined_kernel, kernel
from rangecast.kernels.engine.boxes import NARROW, first_word, holds
from rangecast.kernels.machine.memory import prefetch

AHEAD = 8
EVENTS = 32
"""So many events are turned into rows at once."""

REFERS = 1 << 31
"""In the second word of a record that does not have all entries of its box."""
EQUAL = 1 << 31
"""In the attribute of an entry with one end."""

_REST = np.uint32(REFERS - 1)
_MISSING = np.iinfo(np.int64).min
_LOWEST = np.uint32(1)
_HIGHEST = np.uint32(NARROW)


class LeadLists(NamedTuple):
    """Lists of boxes per leading attribute and cell; engine/leads.py tells what the arrays are."""

    attributes: npt.NDArray[np.int32]
    cut_starts: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    records: npt.NDArray[np.uint32]
    every: npt.NDArray[np.int32]
    bounded: npt.NDArray[np.int32]


class CellFinder(NamedTuple):
    """How the lists of an event are found, beside the lists themselves."""

    leads: npt.NDArray[np.int32]
    """By attribute, which of the leading ones it is; -1 for the others."""
    lacking: npt.NDArray[np.uint8]
    """Whether the list of missing values of a leading attribute has somebody."""
    shifts: npt.NDArray[np.int64]
    """The width of the cells of a leading attribute as a power of two; -1 where they differ."""


class Room(NamedTuple):
    """What EVENTS events at a time are turned into."""

    rows: npt.NDArray[np.uint32]
    """Their squeezed codes."""
    cells: npt.NDArray[np.int64]
    """The cells whose lists they read."""
    counts: npt.NDArray[np.int64]
    """How many those are."""
    doubtful: npt.NDArray[np.uint8]
    """Whether one of the squeezed codes does not compare with ends as the code does."""
    found: npt.NDArray[np.int64]
    """Where the records begin that may hold one of them, and then their boxes."""


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
    """A code in 32 bits, in the same order: 0 is missing, and what lies too far off is the nearest.

    An event's code that became neither the least nor the largest of these compares with ends as it did
    before; of those two it is not known.
    """
    if code == _MISSING:
        return np.uint32(0)
    if code <= base:
        return np.uint32(1)
    # as unsigned: the difference of two codes may be none
    distance = np.uint64(code) - np.uint64(base)
    return np.uint32(distance) if distance < np.uint64(NARROW) else np.uint32(NARROW)


@kernel
def size_records(starts, lows, highs, leads, seconds, n_places, most_again, sizes, refers):
    """sizes[b] = how many words a record of box b has; whether it refers to the box for its other entries,
    which it does when to write them in n_places[b] lists would take more than most_again words.
    """
    for b in range(sizes.size):
        if leads[b] < 0:
            sizes[b] = 0
            refers[b] = False
            continue
        whole = 0
        for i in range(starts[b], starts[b + 1]):
            whole += 2 if lows[i] == highs[i] else 3
        one = seconds[b] if seconds[b] >= 0 else leads[b]
        size = 2 if lows[one] == highs[one] else 3
        refers[b] = (whole - size) * n_places[b] > most_again
        sizes[b] = 2 + (size if refers[b] else whole)


@inlined_kernel
def _put_entry(records, p, attribute, low, high, base):
    records[p] = np.uint32(attribute)
    records[p + 1] = squeeze(low, base)
    if low == high:
        records[p] = np.uint32(np.int64(attribute) | EQUAL)
        return p + 2
    records[p + 2] = squeeze(high, base)
    return p + 3


@kernel
def fill_records(places, numbers, entries, bases, leads, seconds, sizes, refers, records):
    """Write the records of boxes one after the other: the second entry first, the leading one last."""
    starts, attributes, lows, highs = entries
    p = np.int64(0)
    for q in range(places.size):
        b = places[q]
        records[p] = np.uint32(numbers[b])
        records[p + 1] = np.uint32((sizes[b] - 2) | (REFERS if refers[b] else 0))
        p += 2
        one = seconds[b] if seconds[b] >= 0 else leads[b]
        p = _put_entry(records, p, attributes[one], lows[one], highs[one], bases[attributes[one]])
        if refers[b] or one == leads[b]:
            continue
        for i in range(starts[b], starts[b + 1]):
            if i != one and i != leads[b]:
                p = _put_entry(records, p, attributes[i], lows[i], highs[i], bases[attributes[i]])
        i = leads[b]
        p = _put_entry(records, p, attributes[i], lows[i], highs[i], bases[attributes[i]])


@kernel
def check_records(starts, records, n_boxes, n_attributes):
    """Whether each list is whole records of boxes, with one entry or more on attributes; starts ascend."""
    p = np.int64(0)
    for cell in range(starts.size):
        while p < starts[cell]:
            if p + 2 > records.size or np.int64(records[p]) >= n_boxes:
                return False
            last = p + 2 + np.int64(records[p + 1] & _REST)
            p += 2
            if p == last or last > records.size:
                return False
            while p < last:
                if np.int64(records[p] & _REST) >= n_attributes:
                    return False
                p += 2 if records[p] > _REST else 3
            if p != last:
                return False
        if p != starts[cell]:
            return False
    return True


@kernel
def sweep_records(starts, records, dead, swept_starts, swept):
    """Copy what lives; returns how many words that are."""
    p = np.int64(0)
    for cell in range(starts.size - 1):
        swept_starts[cell] = p
        q = starts[cell]
        while q < starts[cell + 1]:
            size = 2 + np.int64(records[q + 1] & _REST)
            if dead[records[q]] == 0:
                for w in range(size):
                    swept[p + w] = records[q + w]
                p += size
            q += size
    swept_starts[starts.size - 1] = p
    return p


@inlined_kernel
def _find_cell(lists, finder, k, code):
    """The cell of a code of leading attribute k, counted from its cell of missing values."""
    first = lists.cut_starts[k]
    last = lists.cut_starts[k + 1]
    if finder.shifts[k] >= 0:
        if first == last or code < lists.cuts[first]:
            return np.int64(1)
        # as unsigned: the difference of two codes may be none
        far = (np.uint64(code) - np.uint64(lists.cuts[first])) >> np.uint64(finder.shifts[k])
        return np.int64(min(far, np.uint64(last - first - 1))) + 2
    a = first
    while first < last:
        middle = (first + last) >> 1
        if lists.cuts[middle] <= code:
            first = middle + 1
        else:
            last = middle
    return first - a + 1


@kernel
def _find_lists(codes, lists, finder, bases, first_event, last_event, room):
    """Events as rows of squeezed codes, and the cells of each."""
    n = last_event - first_event
    rows = room.rows
    cells = room.cells
    counts = room.counts
    rows[:n] = 0
    counts[:n] = 0
    room.doubtful[:n] = 0
    # attribute by attribute, as codes stand: event by event the cache would have to hold a line of each
    for at in range(lists.bounded.size):
        j = np.int64(lists.bounded[at])
        k = np.int64(finder.leads[j])
        for i in range(n):
            code = codes[j, first_event + i]
            if code == _MISSING:
                if k < 0 or finder.lacking[k] == 0:
                    continue
                cell = lists.cut_starts[k] + 2 * k
            else:
                value = squeeze(code, bases[j])
                rows[i, j] = value
                room.doubtful[i] |= (value == _LOWEST) | (value == _HIGHEST)
                if k < 0:
                    continue
                cell = lists.cut_starts[k] + 2 * k + _find_cell(lists, finder, k, code)
            cells[i, counts[i]] = cell
            counts[i] += 1
            prefetch(lists.starts, cell)


@inlined_kernel
def _ask_for_lists(lists, cells, n):
    for r in range(n):
        first = lists.starts[cells[r]]
        for p in range(first, lists.starts[cells[r] + 1], 16):
            prefetch(lists.records, p)


@kernel
def _collect(lists, row, cells, n_cells, found):
    """The records of an event's lists whose first entry holds it; returns how many."""
    n = 0
    records = lists.records
    for r in range(n_cells):
        p = lists.starts[cells[r]]
        last = lists.starts[cells[r] + 1]
        while p < last:
            one = np.int64(records[p + 2] > _REST)
            value = row[records[p + 2] & _REST]
            found[n] = p
            n += (records[p + 3] <= value) & (value <= records[p + 4 - one])
            p += 2 + np.int64(records[p + 1] & _REST)
    return n


@inlined_kernel
def _holds_row(records, p, row):
    """Whether the entries of a record hold an event, given as squeezed codes."""
    last = p + 2 + np.int64(records[p + 1] & _REST)
    held = True
    p += 2
    while p < last:
        one = np.int64(records[p] > _REST)
        value = row[records[p] & _REST]
        held &= (records[p + 1] <= value) & (value <= records[p + 2 - one])
        p += 3 - one
    return held


@kernel
def stab(codes, lists, finder, boxes, first_event, room, offsets, out):
    """Write the slots of events from `first_event` on; returns the event for which there was no room.

    offsets[first_event] is where to begin.
    """
    m = codes.shape[1]
    p = offsets[first_event]
    none = boxes.bases[:0]
    records = lists.records
    found = room.found
    e = first_event
    while e < m:
        last = min(e + EVENTS, m)
        _find_lists(codes, lists, finder, boxes.bases, e, last, room)
        _ask_for_lists(lists, room.cells[0], room.counts[0])
        for i in range(last - e):
            # the lists of the next event are on their way while those of this one are read
            if i + 1 < last - e:
                _ask_for_lists(lists, room.cells[i + 1], room.counts[i + 1])
            row = room.rows[i]
            n = _collect(lists, row, room.cells[i], room.counts[i], found)
            if p + n + lists.every.size > out.size:
                return e + i
            # where a record does not tell, its box comes last, so that it can be asked for ahead
            left = 0
            for q in range(n):
                at = found[q]
                held = _holds_row(records, at, row)
                box = np.int64(records[at])
                if (records[at + 1] > _REST) | (room.doubtful[i] != 0):
                    if held:
                        found[left] = box
                        left += 1
                        prefetch(boxes.starts, box)
                    continue
                out[p] = boxes.slots[box] if boxes.slots.size else np.int32(box)
                p += held
            for q in range(min(AHEAD, left)):
                prefetch(boxes.words, first_word(boxes.starts, boxes.stride, found[q]))
            for q in range(left):
                if q + AHEAD < left:
                    prefetch(boxes.words, first_word(boxes.starts, boxes.stride, found[q + AHEAD]))
                box = found[q]
                out[p] = boxes.slots[box] if boxes.slots.size else np.int32(box)
                p += holds(boxes, box, codes, none, e + i)
            for q in range(lists.every.size):
                box = lists.every[q]
                out[p] = boxes.slots[box] if boxes.slots.size else box
                p += 1
            offsets[e + i + 1] = p
        e = last
    return m


@kernel
def count_candidates(codes, lists, finder, counts):
    """counts[e] = how many records stand in the lists of event e, and boxes without an entry."""
    for e in range(counts.size):
        n = np.int64(lists.every.size)
        for k in range(lists.attributes.size):
            code = codes[lists.attributes[k], e]
            cell = lists.cut_starts[k] + 2 * k
            if code != _MISSING:
                cell += _find_cell(lists, finder, k, code)
            p = lists.starts[cell]
            while p < lists.starts[cell + 1]:
                p += 2 + np.int64(lists.records[p + 1] & _REST)
                n += 1
        counts[e] = n
