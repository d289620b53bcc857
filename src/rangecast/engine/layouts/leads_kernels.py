"""Who stands in an event's lists by leading entry: finding the lists, and comparing entries.

kernels/engine/lead_lists.py has the words of a list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import first_word, holds
from rangecast.kernels.engine.lead_lists import mark_of, read_form
from rangecast.simd.compiler import inlined_kernel, kernel
from rangecast.simd.memory import prefetch

AHEAD = 8
EVENTS = 32
"""So many events are turned into rows at once."""

NUMBERS = 10
_LONGEST = np.int64(NUMBERS - 2)
_NEXT = np.int64(1)

_MISSING = np.iinfo(np.int64).min
_MARK = np.uint64((1 << 32) - 1)
_STEP = np.uint64(32)
_ONE, _TWO = np.uint64(1), np.uint64(2)


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
    reaches: npt.NDArray[np.uint64]
    """By the length of an entry, how far it may reach (`fill_lengths`)."""
    sure: npt.NDArray[np.uint64]
    """And how far it surely does."""


class Room(NamedTuple):
    """What EVENTS events at a time are turned into."""

    rows: npt.NDArray[np.uint64]
    """The marks of their codes, as they stand in words; above 32 bits the step of a mark that may be several
    codes."""
    codes: npt.NDArray[np.int64]
    """Their codes, by event as well."""
    cells: npt.NDArray[np.int64]
    """The cells whose lists they read."""
    counts: npt.NDArray[np.int64]
    """How many those are."""
    found: npt.NDArray[np.int64]
    """Where the other entries begin of boxes that may hold one of them, and then boxes."""
    heads: npt.NDArray[np.uint32]
    """The heads of these boxes."""
    order: npt.NDArray[np.int32]
    """These boxes by how many entries they have."""
    ends: npt.NDArray[np.int64]
    """Where those of each number end."""
    left: npt.NDArray[np.int64]
    """Boxes whose entries do not tell."""


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
def _enter_code(lists, finder, i, j, code, room):
    """Take a code into the row of event i, and the list of its cell."""
    scale = lists.scales[j]
    bits = np.uint64(lists.form[0])
    mark = mark_of(code, lists.origins[j], scale, (1 << lists.form[1]) - 1)
    step = np.uint64(scale >> np.uint8(7)) << bits
    room.rows[i, j] = (np.uint64(mark) << bits) | (step << _STEP)
    room.codes[i, j] = code
    k = np.int64(finder.leads[j])
    if k >= 0:
        cell = lists.cut_starts[k] + 2 * k + _find_cell(lists, finder, k, code)
        room.cells[i, room.counts[i]] = cell
        room.counts[i] += 1
        prefetch(lists.starts, cell)


@kernel
def find_lists(codes, lists, finder, first_event, last_event, room):
    """Events as rows of marks and codes, and the cells of each."""
    n = last_event - first_event
    room.rows[:n] = 0
    room.codes[:n] = _MISSING
    room.counts[:n] = 0
    # attribute by attribute, as codes stand: event by event the cache would have to hold a line of each
    for at in range(lists.bounded.size):
        j = np.int64(lists.bounded[at])
        for i in range(n):
            code = codes[j, first_event + i]
            if code != _MISSING:
                _enter_code(lists, finder, i, j, code, room)
                continue
            lead = np.int64(finder.leads[j])
            if lead >= 0 and finder.lacking[lead] != 0:
                room.cells[i, room.counts[i]] = lists.cut_starts[lead] + 2 * lead
                room.counts[i] += 1


@kernel
def find_lists_of_entries(starts, attributes, codes, lists, finder, first_event, last_event, room):
    """The same of events by what they say."""
    n = last_event - first_event
    room.rows[:n] = 0
    room.codes[:n] = _MISSING
    room.counts[:n] = 0
    for i in range(n):
        for p in range(starts[first_event + i], starts[first_event + i + 1]):
            j = np.int64(attributes[p])
            # beyond the last attribute that any box bounds, which `leads` ends with
            if j < finder.leads.size:
                _enter_code(lists, finder, i, j, codes[p], room)
        for at in range(finder.lacking_leads.size):
            k = np.int64(finder.lacking_leads[at])
            if room.codes[i, lists.attributes[k]] == _MISSING:
                room.cells[i, room.counts[i]] = lists.cut_starts[k] + 2 * k
                room.counts[i] += 1


@inlined_kernel
def _ask_for_lists(lists, cells, n):
    for r in range(n):
        first = lists.starts[cells[r]]
        # most lists are as long as that, and a loop would not know where they end
        prefetch(lists.records, first)
        prefetch(lists.records, first + 16)
        prefetch(lists.records, first + 32)
        for p in range(first + 48, lists.starts[cells[r] + 1], 16):
            prefetch(lists.records, p)


@kernel
def _collect(lists, form, finder, row, cells, n_cells, found, heads):
    """The boxes of an event's lists whose first entry may hold it; returns how many.

    From here on a head REFERS as well where an entry is not sure.
    """
    # unsigned, here and below: a place that may be negative is looked at once more, a sixth of the time
    n = np.uint64(0)
    records = lists.records
    starts = lists.starts
    for r in range(n_cells):
        p = np.uint64(starts[cells[r]])
        if p == np.uint64(starts[cells[r] + 1]):
            continue
        rest = p + _ONE + _TWO * np.uint64(records[p])
        p += _ONE
        last = rest
        while p < last:
            head = records[p]
            entry = records[p + _ONE]
            mark = row[entry >> form.attribute]
            step = mark >> _STEP
            length = np.uint64(entry & form.lengths)
            far = np.int64(mark & _MARK) - np.int64(entry & form.marks)
            # unsigned: a mark before the entry's first is far away; as a number: a choice would be a branch
            unsure = np.uint32(np.uint64(far - np.int64(step)) >= finder.sure[step | length])
            found[n] = rest
            heads[n] = head | (unsure << form.box)
            n += np.uint64(np.uint64(far) <= finder.reaches[length])
            rest += np.uint64(head >> form.entries) - _ONE
            p += _TWO
    return np.int64(n)


@kernel
def _compare(lists, form, finder, row, n_found, boxes, room, p, out):
    """Write the slots of the boxes found whose other entries hold an event to out from p on; returns where
    they end, and how many boxes of room.left must be asked, since entries do not tell.
    """
    records, found, heads, order = lists.records, room.found, room.heads, room.order
    # those with as many entries one after the other: a loop that ends where the last one did is half the time
    ends = room.ends
    ends[:] = 0
    for q in range(n_found):
        ends[min(np.int64(heads[q] >> form.entries), _LONGEST) + _NEXT] += 1
    for k in range(1, ends.size):
        ends[k] += ends[k - 1]
    for q in range(n_found):
        number = min(np.int64(heads[q] >> form.entries), _LONGEST)
        order[ends[number]] = q
        ends[number] += 1
    left = np.int64(0)
    for r in range(n_found):
        place = np.uint64(order[r])
        head = heads[place]
        at = np.uint64(found[place])
        last = at + np.uint64(head >> form.entries) - _ONE
        held = np.int64(1)
        unsure = np.uint32(head >> form.box)
        # until one does not hold: without an end that depends on them, LLVM makes vectors of three entries
        while at < last and held:
            entry = records[at]
            mark = row[entry >> form.attribute]
            step = mark >> _STEP
            length = np.uint64(entry & form.lengths)
            far = np.int64(mark & _MARK) - np.int64(entry & form.marks)
            held = np.int64(np.uint64(far) <= finder.reaches[length])
            unsure |= np.uint32(np.uint64(far - np.int64(step)) >= finder.sure[step | length])
            at += _ONE
        refers = np.int64(unsure & np.uint32(1))
        box = np.int64(head & form.boxes)
        out[p] = boxes.slots[box] if boxes.slots.size else np.int32(box)
        p += held & ~refers
        room.left[left] = box
        left += held & refers
    return p, left


@kernel
def stab_rows(lists, finder, boxes, first_event, n, room, offsets, out):
    """Write the slots of n events that `room` has, from `first_event` on; returns how many of them were done:
    fewer where there was no room."""
    p = offsets[first_event]
    none = boxes.bases[:0]
    form = read_form(lists.form)
    left = room.left
    if n:
        _ask_for_lists(lists, room.cells[0], room.counts[0])
    for i in range(n):
        # the lists of the next event are on their way while those of this one are read
        if i + 1 < n:
            _ask_for_lists(lists, room.cells[i + 1], room.counts[i + 1])
        row = room.rows[i]
        n_found = _collect(lists, form, finder, row, room.cells[i], room.counts[i], room.found, room.heads)
        if p + n_found + lists.every.size >= out.size:
            return i
        p, n_left = _compare(lists, form, finder, row, n_found, boxes, room, p, out)
        # boxes that must be asked are far away, and on their way while others are
        codes = room.codes[i].reshape((room.codes.shape[1], 1))
        for q in range(n_left):
            prefetch(boxes.starts, left[q])
        for q in range(min(AHEAD, n_left)):
            prefetch(boxes.words, first_word(boxes.starts, boxes.stride, left[q]))
        for q in range(n_left):
            if q + AHEAD < n_left:
                prefetch(boxes.words, first_word(boxes.starts, boxes.stride, left[q + AHEAD]))
            box = left[q]
            out[p] = boxes.slots[box] if boxes.slots.size else np.int32(box)
            p += holds(boxes, box, codes, none, np.int64(0))
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
        find_lists(codes, lists, finder, e, e + n, room)
        done = stab_rows(lists, finder, boxes, e, n, room, offsets, out)
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
        find_lists_of_entries(starts, attributes, codes, lists, finder, e, e + n, room)
        done = stab_rows(lists, finder, boxes, e, n, room, offsets, out)
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
            if lists.starts[cell] < lists.starts[cell + 1]:
                n += np.int64(lists.records[lists.starts[cell]])
        counts[e] = n
