"""Who stands in an event's lists by leading entry: finding the lists, and comparing entries.

engine/layouts/leads_kernels.py has the words of a list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import first_word, holds
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


# Lists by leading entry: choosing leads, and filling, checking and sweeping the lists of cells.
#
# A list is made of words of 32 bits: how many boxes it has; for each of them a head and its first entry; and
# then the other entries, box after box. What heads and entries are made of, LeadLists.form tells:
#
#     word      from the lowest bit on
#     a head    the number of the box; REFERS, where it has more entries than are here; how many are here
#     an entry  its length (`fill_lengths`), its first mark, its attribute
#
# A mark is the place of a code among pieces of one width of its attribute (`mark_of`), so that an entry tells
# of nearly every mark whether a code there is held: it does not of the pieces in which the entry has an end,
# unless a piece is one code.

INEXACT = 1 << 7
"""In the scale of an attribute of which a mark may be several codes."""

_PRESENT = _MISSING + 1
_LAST = np.iinfo(np.int64).max


class LeadLists(NamedTuple):
    """Lists of boxes per leading attribute and cell; engine/layouts/leads.py tells what the arrays are."""

    attributes: npt.NDArray[np.int32]
    cut_starts: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    records: npt.NDArray[np.uint32]
    every: npt.NDArray[np.int32]
    bounded: npt.NDArray[np.int32]
    origins: npt.NDArray[np.int64]
    scales: npt.NDArray[np.uint8]
    form: npt.NDArray[np.int64]


class Form(NamedTuple):
    """Where the fields of words are, as `read_form` gives it: shifts; masks of marks, lengths and boxes."""

    attribute: np.uint32
    mark: np.uint32
    marks: np.uint32
    lengths: np.uint32
    entries: np.uint32
    box: np.uint32
    boxes: np.uint32


@inlined_kernel
def read_form(form):
    """The fields of words, out of how many bits the length, the mark and the number of a box have."""
    length, mark, box = np.uint32(form[0]), np.uint32(form[1]), np.uint32(form[2])
    one = np.uint32(1)
    return Form(
        np.uint32(length + mark),
        length,
        np.uint32(((one << mark) - one) << length),
        np.uint32((one << length) - one),
        np.uint32(box + one),
        box,
        np.uint32((one << box) - one),
    )


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
def mark_of(code, origin, scale, last):
    """The mark of a code: 0 is missing, 1 lies before the origin, and `last` is everything far behind it."""
    if code == _MISSING:
        return np.uint32(0)
    if code < origin:
        return np.uint32(1)
    # as unsigned: the difference of two codes may be none
    far = (np.uint64(code) - np.uint64(origin)) >> np.uint64(scale & np.uint8(INEXACT - 1))
    return np.uint32(far) + np.uint32(2) if far < np.uint64(last) - np.uint64(2) else np.uint32(last)


@kernel
def fill_lengths(bits, reaches, sure):
    """How far from its first mark an entry of length k may reach, and before which distance it surely does:
    sure[k] where a mark is one code, and otherwise sure[k + half], counted from the second mark. As distances
    stand in words, above the bits of a length.

    A length has an exponent of four bits and a mantissa: small ones are themselves, of large ones the last
    bits are not known.
    """
    half = sure.size // 2
    mantissa = bits - 4
    for k in range(half):
        exponent = max((k >> mantissa) - 1, 0)
        value = k & ((1 << mantissa) - 1)
        if k >> mantissa:
            value |= 1 << mantissa
        least = value << exponent
        most = least + (1 << exponent) - 1
        reaches[k] = (most << bits) | ((1 << bits) - 1)
        sure[k] = (least + 1) << bits
        sure[half + k] = max(least - 1, 0) << bits


@inlined_kernel
def _length_of(marks, bits):
    """What stands for a length: the largest that is not longer."""
    mantissa = np.int64(bits) - 4
    exponent = np.int64(0)
    while (marks >> exponent) >> (mantissa + 1):
        exponent += 1
    if marks >> mantissa == 0:
        return marks
    return ((exponent + 1) << mantissa) | ((marks >> exponent) & ((1 << mantissa) - 1))


@inlined_kernel
def _put_entry(lists, p, attribute, low, high):
    """Write an entry into the records at p; returns where the next one begins."""
    bits, mark_bits = lists.form[0], lists.form[1]
    origin, scale = lists.origins[attribute], lists.scales[attribute]
    last = (np.int64(1) << mark_bits) - 1
    first = np.int64(mark_of(low, origin, scale, last))
    if high == _LAST:
        # beyond the last mark there is none, so that it need not end there
        length = _length_of(last - first + 1, bits) + 1
    else:
        length = _length_of(np.int64(mark_of(high, origin, scale, last)) - first, bits)
    lists.records[p] = np.uint32((np.int64(attribute) << (bits + mark_bits)) | (first << bits) | length)
    return p + 1


@kernel
def find_inexact(entries, origins, last, scales):
    """Say of the scales of attributes whether a mark that an end of an entry is in may be several codes."""
    _, attributes, lows, highs = entries
    for i in range(attributes.size):
        j = attributes[i]
        scale = scales[j]
        exact = scale == 0
        if lows[i] > _PRESENT:
            mark = mark_of(lows[i], origins[j], scale, last)
            exact &= (mark > 1) & (mark < last)
        if highs[i] > _MISSING and highs[i] < _LAST:
            mark = mark_of(highs[i], origins[j], scale, last)
            exact &= (mark > 1) & (mark < last)
        if not exact:
            scales[j] |= np.uint8(INEXACT)


@kernel
def size_records(starts, leads, n_places, most_again, most, counts, refers):
    """counts[b] = how many entries of box b stand in a list; whether its head refers to the box for others:
    when to write them in n_places[b] lists would take more than most_again words, or they are more than most.
    """
    for b in range(counts.size):
        if leads[b] < 0:
            counts[b] = 0
            refers[b] = False
            continue
        n = starts[b + 1] - starts[b]
        counts[b] = 1 if (n - 1) * n_places[b] > most_again else min(n, most)
        refers[b] = counts[b] < n


@kernel
def fill_lists(listed, list_starts, numbers, entries, leads, seconds, counts, refers, lists):
    """Write lists.starts and lists.records; of a box the second entry first, the leading one last.

    listed[list_starts[cell] : list_starts[cell + 1]] are the boxes of a cell. Returns how many words there
    are; where there is no room for records, they are only counted.
    """
    starts, attributes, lows, highs = entries
    form = lists.form
    counting = lists.records.size == 0
    p = np.int64(0)
    for cell in range(list_starts.size - 1):
        lists.starts[cell] = p
        n = list_starts[cell + 1] - list_starts[cell]
        if n == 0:
            continue
        at = p + 1
        p = at + 2 * n
        if not counting:
            lists.records[at - 1] = np.uint32(n)
        for q in range(list_starts[cell], list_starts[cell + 1]):
            b = listed[q]
            last = p + counts[b] - 1
            if counting:
                p = last
                continue
            flag = np.int64(refers[b]) << form[2]
            lists.records[at] = np.uint32(numbers[b] | flag | (counts[b] << (form[2] + 1)))
            one = seconds[b] if seconds[b] >= 0 else leads[b]
            _put_entry(lists, at + 1, attributes[one], lows[one], highs[one])
            at += 2
            for i in range(starts[b], starts[b + 1]):
                if p < last and i != one and i != leads[b]:
                    p = _put_entry(lists, p, attributes[i], lows[i], highs[i])
            if p < last:
                p = _put_entry(lists, p, attributes[leads[b]], lows[leads[b]], highs[leads[b]])
    lists.starts[list_starts.size - 1] = p
    return p


@kernel
def check_lists(lists, n_boxes, n_attributes):
    """Whether each list is whole boxes with one entry or more on attributes; starts ascend."""
    form = read_form(lists.form)
    starts, records = lists.starts, lists.records
    for cell in range(starts.size - 1):
        first, last = starts[cell], starts[cell + 1]
        if first == last:
            continue
        n = np.int64(records[first])
        p = first + 1 + 2 * n
        if n == 0 or p > last:
            return False
        for q in range(first + 1, first + 1 + 2 * n, 2):
            count = np.int64(records[q] >> form.entries)
            if count == 0 or np.int64(records[q] & form.boxes) >= n_boxes:
                return False
            if np.int64(records[q + 1] >> form.attribute) >= n_attributes:
                return False
            p += count - 1
        if p != last:
            return False
        for q in range(first + 1 + 2 * n, last):
            if np.int64(records[q] >> form.attribute) >= n_attributes:
                return False
    return True


@kernel
def sweep_lists(lists, dead, swept_starts, swept):
    """Copy what lives; returns how many words that are."""
    form = read_form(lists.form)
    starts, records = lists.starts, lists.records
    p = np.int64(0)
    for cell in range(starts.size - 1):
        swept_starts[cell] = p
        if starts[cell] == starts[cell + 1]:
            continue
        first = starts[cell] + 1
        rests = first + 2 * np.int64(records[first - 1])
        left = np.int64(0)
        for q in range(first, rests, 2):
            left += dead[records[q] & form.boxes] == 0
        if left == 0:
            continue
        swept[p] = np.uint32(left)
        at = p + 1
        p = at + 2 * left
        r = rests
        for q in range(first, rests, 2):
            count = np.int64(records[q] >> form.entries)
            if dead[records[q] & form.boxes] == 0:
                swept[at] = records[q]
                swept[at + 1] = records[q + 1]
                at += 2
                for w in range(count - 1):
                    swept[p + w] = records[r + w]
                p += count - 1
            r += count - 1
    swept_starts[starts.size - 1] = p
    return p
