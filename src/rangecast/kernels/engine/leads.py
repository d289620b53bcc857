"""Lists by leading entry: choosing leads, filling lists per cell, and checking who stands in an event's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels import inlined_kernel, kernel
from rangecast.kernels.engine.boxes import (
    BETWEEN,
    MOST_ATTRIBUTES,
    NARROW,
    first_word,
    holds,
    read_entry,
)
from rangecast.kernels.engine.boxes import (
    EQUAL as ONE_VALUE,
)
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
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_KIND = np.uint32(28)
_POSITION = np.uint32(MOST_ATTRIBUTES - 1)
_BETWEEN_KIND = np.uint32(BETWEEN)
_EQUAL_KIND = np.uint32(ONE_VALUE)


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
    lacking_leads: npt.NDArray[np.int32]
    """The leading attributes of which it has."""
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
    codes: npt.NDArray[np.int64]
    """The codes themselves, (d, EVENTS), of those that are doubtful."""
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


@inlined_kernel
def _enter_code(lists, finder, bases, i, j, code, room):
    """Take a code into the row of event i, and the list of its cell."""
    value = squeeze(code, bases[j])
    room.rows[i, j] = value
    room.doubtful[i] |= (value == _LOWEST) | (value == _HIGHEST)
    k = np.int64(finder.leads[j])
    if k >= 0:
        cell = lists.cut_starts[k] + 2 * k + _find_cell(lists, finder, k, code)
        room.cells[i, room.counts[i]] = cell
        room.counts[i] += 1
        prefetch(lists.starts, cell)


@kernel
def find_lists(codes, lists, finder, bases, first_event, last_event, room):
    """Events as rows of squeezed codes, and the cells of each."""
    n = last_event - first_event
    room.rows[:n] = 0
    room.counts[:n] = 0
    room.doubtful[:n] = 0
    # attribute by attribute, as codes stand: event by event the cache would have to hold a line of each
    for at in range(lists.bounded.size):
        j = np.int64(lists.bounded[at])
        for i in range(n):
            code = codes[j, first_event + i]
            if code != _MISSING:
                _enter_code(lists, finder, bases, i, j, code, room)
                continue
            lead = np.int64(finder.leads[j])
            if lead >= 0 and finder.lacking[lead] != 0:
                room.cells[i, room.counts[i]] = lists.cut_starts[lead] + 2 * lead
                room.counts[i] += 1
    for i in range(n):
        if room.doubtful[i]:
            for k in range(codes.shape[0]):
                room.codes[k, i] = codes[k, first_event + i]


@kernel
def find_lists_of_entries(starts, attributes, codes, lists, finder, bases, first_event, last_event, room):
    """The same of events by what they say."""
    n = last_event - first_event
    room.rows[:n] = 0
    room.counts[:n] = 0
    room.doubtful[:n] = 0
    for i in range(n):
        first = starts[first_event + i]
        last = starts[first_event + i + 1]
        for p in range(first, last):
            j = np.int64(attributes[p])
            # beyond the last attribute that any box bounds, which `leads` ends with
            if j < finder.leads.size:
                _enter_code(lists, finder, bases, i, j, codes[p], room)
        for at in range(finder.lacking_leads.size):
            k = np.int64(finder.lacking_leads[at])
            if room.rows[i, lists.attributes[k]] == 0:
                room.cells[i, room.counts[i]] = lists.cut_starts[k] + 2 * k
                room.counts[i] += 1
        if room.doubtful[i]:
            room.codes[:, i] = _MISSING
            for p in range(first, last):
                room.codes[attributes[p], i] = codes[p]


@inlined_kernel
def _ask_for_lists(lists, cells, n):
    for r in range(n):
        first = lists.starts[cells[r]]
        for p in range(first, lists.starts[cells[r] + 1], 16):
            prefetch(lists.records, p)


@kernel
def _collect(lists, row, cells, n_cells, found):
    """The records of an event's lists whose first entry holds it; returns how many."""
    # unsigned, here and below: a place that may be negative is looked at once more, a sixth of the time
    n = np.uint64(0)
    records = lists.records
    starts = lists.starts
    for r in range(n_cells):
        p = np.uint64(starts[cells[r]])
        last = np.uint64(starts[cells[r] + 1])
        while p < last:
            head = records[p + _TWO]
            one = np.uint64(head > _REST)
            value = row[head & _REST]
            found[n] = p
            n += np.uint64((records[p + _THREE] <= value) & (value <= records[p + _FOUR - one]))
            p += _TWO + np.uint64(records[p + _ONE] & _REST)
    return np.int64(n)


@inlined_kernel
def _holds_row(records, p, row):
    """Whether the entries of a record hold an event, given as squeezed codes."""
    last = p + _TWO + np.uint64(records[p + _ONE] & _REST)
    held = True
    p += _TWO
    while p < last:
        one = np.uint64(records[p] > _REST)
        value = row[records[p] & _REST]
        held &= (records[p + _ONE] <= value) & (value <= records[p + _TWO - one])
        p += _THREE - one
    return held


@kernel
def _box_holds_row(boxes, box, row):
    """Whether a box holds an event, given as squeezed codes, none of which is doubtful."""
    words = boxes.words
    p = np.uint64(first_word(boxes.starts, boxes.stride, box))
    end = np.uint64(first_word(boxes.starts, boxes.stride, box + 1))
    held = True
    # equalities and ranges of narrow ends, without a branch that depends on which it is: half the time
    while boxes.heads.size == 0 and p < end and words[p] >> _KIND <= _EQUAL_KIND:
        head = words[p]
        two = np.uint64(head >> _KIND == _BETWEEN_KIND)
        value = row[min(head & _POSITION, np.uint32(row.size - 1))]
        # a distance of 0 is squeezed to 1, so that missing is below every end
        held &= (max(words[p + _ONE], _LOWEST) <= value) & (value <= words[p + _ONE + two])
        p += _TWO + two
    at, last, k = np.int64(p), np.int64(end), 0
    while held and at < last:
        j, low, high, at, k = read_entry(boxes, at, k)
        base = boxes.bases[j]
        held = squeeze(low, base) <= row[j] and row[j] <= squeeze(high, base)
    return held


@kernel
def stab_rows(lists, boxes, first_event, n, room, offsets, out):
    """Write the slots of n events that `room` has, from `first_event` on; returns how many of them were done:
    fewer where there was no room."""
    p = offsets[first_event]
    none = boxes.bases[:0]
    records = lists.records
    found = room.found
    if n:
        _ask_for_lists(lists, room.cells[0], room.counts[0])
    for i in range(n):
        # the lists of the next event are on their way while those of this one are read
        if i + 1 < n:
            _ask_for_lists(lists, room.cells[i + 1], room.counts[i + 1])
        row = room.rows[i]
        doubtful = room.doubtful[i] != 0
        n_found = _collect(lists, row, room.cells[i], room.counts[i], found)
        if p + n_found + lists.every.size > out.size:
            return i
        # where a record does not tell, its box comes last, so that it can be asked for ahead
        left = 0
        for q in range(n_found):
            at = found[q]
            held = _holds_row(records, np.uint64(at), row)
            box = np.int64(records[at])
            if (records[at + 1] > _REST) | doubtful:
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
            if doubtful:
                p += holds(boxes, box, room.codes, none, i)
            else:
                p += _box_holds_row(boxes, box, row)
        for q in range(lists.every.size):
            box = lists.every[q]
            out[p] = boxes.slots[box] if boxes.slots.size else box
            p += 1
        offsets[first_event + i + 1] = p
    return n


@kernel
def stab(codes, lists, finder, boxes, first_event, room, offsets, out):
    """Write the slots of events from `first_event` on; returns the event for which there was no room.

    offsets[first_event] is where to begin.
    """
    m = codes.shape[1]
    e = first_event
    while e < m:
        n = min(EVENTS, m - e)
        find_lists(codes, lists, finder, boxes.bases, e, e + n, room)
        done = stab_rows(lists, boxes, e, n, room, offsets, out)
        e += done
        if done < n:
            break
    return e


@kernel
def stab_entries(starts, attributes, codes, lists, finder, boxes, first_event, room, offsets, out):
    """As `stab`, of events by what they say."""
    m = starts.size - 1
    e = first_event
    while e < m:
        n = min(EVENTS, m - e)
        find_lists_of_entries(starts, attributes, codes, lists, finder, boxes.bases, e, e + n, room)
        done = stab_rows(lists, boxes, e, n, room, offsets, out)
        e += done
        if done < n:
            break
    return e


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
