"""Bitsets per block, attribute and cell: running a batch through block by block.

engine/layouts/bitmap.py tells what the arrays are.

Candidates are compared in one of two ways. Where a batch asks for few boxes of a block, they are collected
over events and blocks, and their fields are asked for some places ahead. Where it asks for many, the block's
fields were asked for in order while the block before was compared, and a word of candidates is compared as
soon as it is found: the event's fields stay in registers, and no list is written and read. Microseconds per
event of a million boxes of REIN's workload, caches emptied before each batch:

                                                              batches of 200    of 2,000
    all candidates collected, all places signed                    89               61
    places unsigned, fields compared into masks                    84               56
    and fields asked for while candidates are compared             79               53
    and a word at a time                                           70               49
    and the row of the eighth word ahead asked for once more       70               50
    14, 17 and 24 cells instead of 20                          73, 70, 70       59, 54, 49
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import first_word, holds, view_boxes
from rangecast.engine.kernels import cell_of
from rangecast.simd.bytes import WIDEST, compare_fields, compare_rests, compare_word
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.lanes import WORDS, and_cells, count_bits, lowest
from rangecast.simd.memory import prefetch, scratch

_FIRST, _NEXT = 12, 8
_AHEAD = 32
_PENDING = 256
_BLOCK = 64 * WORDS
# a word more, and one place: what is no candidate is written behind the last one
_ROOM = _PENDING + 65
_QUEUED = 32
_PLACES = _QUEUED + 1
_LEFTS = (_QUEUED + 1) * WORDS
_LISTED = _QUEUED * WORDS + 8
_LINE = 64
_FULL = np.uint64(_PENDING)
_OF_WORDS = np.uint64(WORDS.bit_length() - 1)
_WORD = np.uint64(WORDS - 1)
_BITS = np.uint64(6)
_STREAMED = 3
_EVENT = np.uint64(32)
_ROW = np.uint64(0xFFFF_FFFF)
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_ALL = ~_NONE
_EVERY = np.int64(np.iinfo(np.int64).max)


class BitmapBlocks(NamedTuple):
    """Blocks of boxes and their bitsets; engine/layouts/bitmap.py tells what the arrays are."""

    boxes: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.uint8]
    rests: npt.NDArray[np.uint8]
    tables: npt.NDArray[np.uint8]
    table_starts: npt.NDArray[np.int64]
    bits: npt.NDArray[np.uint64]
    row_bases: npt.NDArray[np.int32]
    block_attributes: npt.NDArray[np.int32]
    n_block_attributes: npt.NDArray[np.int32]
    block_rows: npt.NDArray[np.int64]
    tops: npt.NDArray[np.uint64]
    top_bases: npt.NDArray[np.int64]
    coarse: npt.NDArray[np.uint8]
    middle_firsts: npt.NDArray[np.int32]
    unsure: npt.NDArray[np.uint8]


@kernel
def choose_blocks(values, blocks, cells, points, line, chosen):
    """cells[e, k] = event e's coarse cell; points[0, e] = its fields by middle cells, points[1, e] = by how
    far into these its values are; chosen[:, e] = the blocks that may hold it, as a bitset.

    Words of 64 blocks lie event beside event, for that is how they are read; `line` has room for those of one
    event.
    """
    tables = blocks.tables
    table_starts = blocks.table_starts
    tops = blocks.tops
    top_bases = blocks.top_bases
    coarse = blocks.coarse
    middle_firsts = blocks.middle_firsts
    # those that only fill up a row are not bounded by anybody
    points[:] = np.uint8(1)
    for e in range(cells.shape[0]):
        line[:] = _ALL
        for k in range(cells.shape[1]):
            fine = np.int64((values[e, k >> 1] >> np.uint64(32 * (k & 1))) & np.uint64(0x7FFF)) - 1
            middle = np.int64(tables[table_starts[k] + fine])
            at = top_bases[k] + middle
            rest = min(fine - middle_firsts[at], MOST_REST)
            points[0, e, 2 * k] = middle + 1
            points[0, e, 2 * k + 1] = TOP - middle
            points[1, e, 2 * k] = rest + 1
            points[1, e, 2 * k + 1] = TOP - rest
            cells[e, k] = coarse[at]
            top = tops[at]
            for w in range(line.size):
                line[w] &= top[w]
        for w in range(line.size):
            chosen[w, e] = line[w]


@inlined_kernel
def _list_words(some, j, words, n):
    """Append the places of the words of the j-th bitset that are not empty; returns how many there are then.

    Eight are written whether they are there or not: how many there are follows no pattern.
    """
    base = np.uint64(WORDS * j)
    more = n + np.uint64(count_bits(some))
    while n < more:
        for q in range(8):
            words[n + np.uint64(q)] = base + np.uint64(lowest(some))
            some &= some - _ONE
        n += np.uint64(8)
    return more


@inlined_kernel
def _expand(x, base, found, k):
    """Append `base` plus the number of each bit that is set; returns how many entries there are then.

    Two are written whether they are there or not.
    """
    if x == _ALL:
        run = found[k : k + 64]
        for b in range(64):
            run[b] = base + np.uint64(b)
        return k + np.uint64(64)
    more = k + np.uint64(count_bits(x))
    while k < more:
        for q in range(2):
            found[k + np.uint64(q)] = base + np.uint64(lowest(x))
            x &= x - _ONE
        k += np.uint64(2)
    return more


@kernel
def _look_closer(blocks, points, codes, theirs, n, doubtful, p, out):
    """Write which of n candidates hold their event, by the rests, and those with an end in its fine cell by
    codes; returns the place behind them."""
    bounds = blocks.bounds
    rests = blocks.rests
    boxes = blocks.boxes
    ones = blocks.unsure[1]
    width = bounds.shape[1]
    for q in range(n):
        ahead = np.int64(doubtful[q] & _ROW) * width
        prefetch(rests, ahead)
        prefetch(rests, ahead + width - 1)
    unsure = np.int64(0)
    for q in range(n):
        pair = doubtful[q]
        held = compare_rests(bounds, rests, pair & _ROW, points[0], pair >> _EVENT, ones, points[1])
        out[p] = pair
        p += held == 2
        doubtful[unsure] = pair
        unsure += held == 1
    for q in range(unsure):
        # where events have the very values that boxes ask for, all of them come here
        if q + _AHEAD < unsure:
            box = boxes[doubtful[q + _AHEAD] & _ROW]
            prefetch(theirs.words, first_word(theirs.starts, theirs.stride, box))
        pair = doubtful[q]
        # on all attributes that the box bounds
        if holds(theirs, boxes[pair & _ROW], codes, boxes, np.int64(pair >> _EVENT)):
            out[p] = pair
            p += 1
    return p


@kernel
def _verify(blocks, points, codes, theirs, n, found, p, out):
    """Write which of n candidates hold their event, from the place p on; returns the place behind them.

    By their fields, and those that have an end in the event's middle cell by more than these.
    """
    bounds = blocks.bounds
    ones = blocks.unsure[0]
    width = bounds.shape[1]
    fields = points[0]
    # unsigned, for else each place is tested for counting from the end
    kept = np.uint64(p)
    unsure = _NONE
    for q in range(n):
        # rows are seldom in cache: they are asked for so early that they are there in time
        ahead = np.int64(found[min(q + _AHEAD, n - 1)] & _ROW) * width
        prefetch(bounds, ahead)
        prefetch(bounds, ahead + width - 1)
        pair = found[q]
        held = np.uint64(compare_fields(bounds, pair & _ROW, fields, pair >> _EVENT, ones))
        out[kept] = pair
        kept += held >> _ONE
        found[unsure] = pair
        unsure += held & _ONE
    return _look_closer(blocks, points, codes, theirs, np.int64(unsure), found, np.int64(kept), out)


@kernel
def stab_blocks(
    blocks, values, cells, points, chosen, codes, own_boxes, state, room, out
):  # fmt: skip
    """Emit the pairs of an event and the row of a box that holds it, block by block: the row in the lower
    half of a word, the event in the upper one.

    The events come as packed values; their cells, fields and blocks are written by the first call.
    state[0] is the block to go on with and state[3] the event of it, by its place among those that look at
    the block; state[1] counts rows written, state[2] candidates; returns False when there may be no room for
    another block's. An event for which a block gave state[4] rows is done. `room` has a place for each
    event, two for each attribute and one for each word of blocks.

    Candidates are collected over events and blocks, and compared when there are some hundreds of them, or
    where a block's fields are in cache already, word by word.

    The boxes come as their table of views: each NamedTuple costs a call 1 us, which is nothing to a batch,
    but four of them are a sixth of a match of one event.
    """
    m = cells.shape[0]
    own = room[:m]
    attributes = room[m : m + cells.shape[1]]
    bases = room[m + cells.shape[1] : m + 2 * cells.shape[1]]
    if state[0] == 0 and state[3] == 0:
        choose_blocks(values, blocks, cells, points, room[m + 2 * cells.shape[1] :].view(np.uint64), chosen)
    theirs = view_boxes(own_boxes)
    boxes = blocks.boxes
    ones = blocks.unsure[0]
    bounds = blocks.bounds
    block_attributes = blocks.block_attributes
    n_block_attributes = blocks.n_block_attributes
    block_rows = blocks.block_rows
    row_bases = blocks.row_bases
    bits = blocks.bits
    n_blocks = n_block_attributes.size
    lefts = scratch(_LEFTS, np.uint64)
    somes = scratch(_PLACES, np.uint64)
    events = scratch(_PLACES, np.uint64)
    words = scratch(_LISTED, np.uint64)
    found = scratch(_ROOM, np.uint64)
    doubts = scratch(_ROOM, np.uint64)
    n_doubts = np.int64(0)
    fields = np.int64(0)
    fields_until = np.int64(0)
    n_checked = np.int64(0)
    width = bounds.shape[1]
    n_found = np.int64(0)
    before = np.int64(0)
    more = np.int64(0)
    looked = np.int64(0)
    p = state[1]
    limit = state[4]
    for b in range(state[0], n_blocks):
        begun = p
        n_last = n_checked + n_found - before
        before = n_checked + n_found
        column = chosen[b >> 6]
        up = np.uint64(b & 63)
        n = n_block_attributes[b]
        first = b * WORDS * 64
        size = min(boxes.size - first, WORDS * 64)
        for q in range(n):
            attributes[q] = block_attributes[b, q]
            bases[q] = row_bases[b, block_attributes[b, q]]
        # without a branch: which events look at a block follows no pattern
        n_own = np.int64(0)
        for e in range(m):
            own[n_own] = e
            n_own += np.int64((column[e] >> up) & _ONE)
        # the rows of the next block come while the events of this one are looked at
        coming = WORDS * block_rows[b + 1]
        until = WORDS * block_rows[b + 2] if m > 64 and b + 1 < n_blocks else coming
        step = ((until - coming) // max(n_own, 1) + 8) & -8
        # and its fields, in order, where as many of its boxes as of this one's will be asked for one by one;
        # what candidates were too few to ask for is asked for here
        in_cache = fields_until > first * width
        while fields < fields_until:
            prefetch(bounds, fields)
            fields += _LINE
        fields = (first + _BLOCK) * width
        fields_until = fields
        if m > 64 and width <= WIDEST and _STREAMED * n_last * _LINE > size * width and b + 1 < n_blocks:
            fields_until = min(fields + _BLOCK * width, boxes.size * width)
        # where most had bits left after the first ones, all at once; asked again now and then
        at_once = n if 2 * more > looked else min(n, _FIRST)
        if at_once < n or b & 15 == 0:
            more = np.int64(0)
            looked = n_own
        for since in range(state[3], n_own, _QUEUED):
            # who has bits left is put down without a branch, for nothing tells it beforehand
            queued = np.int64(0)
            behind = np.int64(since + _QUEUED)
            if behind > n_own:
                behind = n_own
            for i in range(since, behind):
                e = own[i]
                for _ in range(0, min(step, until - coming), 8):
                    prefetch(bits, coming)
                    coming += 8
                left = lefts[WORDS * queued : WORDS * (queued + 1)]
                if n > 0:
                    # so many at once that mostly nothing is left; the most selective ones come first
                    k = at_once
                    some = and_cells(bits, bases, attributes, cells, e, 0, k, left)
                    more += k < n and some != _NONE
                    while k < n and some != _NONE:
                        upto = min(n, k + _NEXT)
                        some = and_cells(bits, bases, attributes, cells, e, k, upto, left)
                        k = upto
                else:
                    n_words = (size + 63) >> 6
                    some = (_ONE << np.uint64(n_words)) - _ONE
                    for w in range(n_words):
                        left[w] = _ALL >> np.uint64(64 - min(size - 64 * w, 64))
                events[queued] = np.uint64(e)
                somes[queued] = some
                queued += some != _NONE
            if p + n_found + n_doubts + queued * size >= out.size:
                n_checked += n_found
                p = _verify(blocks, points, codes, theirs, n_found, found, p, out)
                n_found = np.int64(0)
                p = _look_closer(blocks, points, codes, theirs, n_doubts, doubts, p, out)
                n_doubts = np.int64(0)
                if p + queued * size >= out.size:
                    state[0] = b
                    state[1] = p
                    state[2] += n_checked
                    state[3] = since
                    return False
            n_listed = _NONE
            for j in range(queued):
                n_listed = _list_words(somes[j], j, words, n_listed)
            # what the bitsets leave shares a coarse cell with the event; fields say who holds it
            if in_cache:
                for j in range(np.int64(n_listed)):
                    if n_doubts >= _PENDING:
                        p = _look_closer(blocks, points, codes, theirs, n_doubts, doubts, p, out)
                        n_doubts = np.int64(0)
                    if fields < fields_until:
                        prefetch(bounds, fields)
                        prefetch(bounds, fields + _LINE)
                        fields += 2 * _LINE
                    at = words[j]
                    e = events[at >> _OF_WORDS]
                    word = lefts[at]
                    n_checked += count_bits(word)
                    row = np.uint64(first) + ((at & _WORD) << _BITS)
                    p, n_doubts = compare_word(
                        bounds, row, word, points[0], e, ones, p, out, n_doubts, doubts
                    )  # fmt: skip
                continue
            n_expanded = np.uint64(n_found)
            for j in range(np.int64(n_listed)):
                if n_expanded >= _FULL:
                    n_checked += np.int64(n_expanded)
                    p = _verify(blocks, points, codes, theirs, np.int64(n_expanded), found, p, out)
                    n_expanded = _NONE
                at = words[j]
                base = (events[at >> _OF_WORDS] << _EVENT) + (np.uint64(first) + ((at & _WORD) << _BITS))
                n_expanded = _expand(lefts[at], base, found, n_expanded)
            n_found = np.int64(n_expanded)
        state[3] = 0
        if limit != _EVERY:
            n_checked += n_found
            p = _verify(blocks, points, codes, theirs, n_found, found, p, out)
            n_found = np.int64(0)
            p = _look_closer(blocks, points, codes, theirs, n_doubts, doubts, p, out)
            n_doubts = np.int64(0)
            _leave_out(out[begun:p], limit, b, chosen)
    p = _verify(blocks, points, codes, theirs, n_found, found, p, out)
    p = _look_closer(blocks, points, codes, theirs, n_doubts, doubts, p, out)
    state[2] += n_checked + n_found
    state[0] = n_blocks
    state[1] = p
    return True


@kernel
def _leave_out(pairs, limit, b, chosen):
    """Where an event stands in `limit` places in a row, it looks at no block behind b."""
    word = b >> 6
    q = 0
    while q < pairs.size:
        e = pairs[q] >> _EVENT
        start = q
        while q < pairs.size and pairs[q] >> _EVENT == e:
            q += 1
        if q - start >= limit:
            chosen[word, e] &= _ALL >> np.uint64(63 - (b & 63))
            for w in range(word + 1, chosen.shape[0]):
                chosen[w, e] = _NONE


@kernel
def count_events(pairs, n, counts):
    """counts[e] = how many of the first n pairs are of event e; counts start as zeros."""
    for q in range(n):
        counts[pairs[q] >> _EVENT] += 1


@kernel
def name_boxes(pairs, n, boxes):
    """Put the box of each row in its place."""
    for q in range(n):
        row = pairs[q] & _ROW
        pairs[q] = pairs[q] - row + np.uint64(boxes[row])


@kernel
def place_rows(pairs, n, slots, places, add, out):
    """Write the slot of each row, with `add` added, to its event's place, which moves on by one."""
    for q in range(n):
        if q + _AHEAD < n:
            prefetch(slots, np.int64(pairs[q + _AHEAD] & _ROW))
        e = pairs[q] >> _EVENT
        p = places[e]
        out[np.uint64(p)] = slots[pairs[q] & _ROW] + add
        places[e] = p + 1


# Building `bitmap`: fields of bytes out of bounds, and bitsets out of fields.
#
# engine/layouts/bitmap.py tells what the arrays are.
#
# Field 2k of a row is about the low end of attribute k and counts middle cells from 1, field 2k + 1 about the
# high end and counts them from TOP down; a field of 0 is "not bounded". So a box holds an event only if no
# field exceeds the event's, and the larger a field, the further its end is from that side.

TOP = 255
MOST_REST = 254
"""The largest distance from the first fine cell of a middle one that a rest tells apart from larger ones."""
BLOCK = 64 * WORDS
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max


@kernel
def locate_ends(lows, highs, cuts, origin, shift, fines, counts):
    """fines = the fine cells of both ends, -1 where there is none; counts[c] = how many intervals begin in
    the cell c or end just before it, the outer ends left out."""
    for i in range(lows.size):
        fines[0, i] = -1
        fines[1, i] = -1
        if lows[i] != _MISSING:
            c = cell_of(lows[i], cuts, origin, shift)
            fines[0, i] = c
            if c > 0:
                counts[c] += 1
        if highs[i] != _LAST:
            c = cell_of(highs[i], cuts, origin, shift)
            fines[1, i] = c
            if c + 1 < counts.size:
                counts[c + 1] += 1


@kernel
def put_fields(fines, table, firsts, k, bounds, rests):
    """Write the two fields of attribute k, and how far into its middle cell each end is, counted likewise."""
    for i in range(fines.shape[1]):
        low = fines[0, i]
        if low >= 0:
            middle = table[low]
            bounds[i, 2 * k] = middle + 1
            rests[i, 2 * k] = min(low - firsts[middle], MOST_REST) + 1
        high = fines[1, i]
        if high >= 0:
            middle = table[high]
            bounds[i, 2 * k + 1] = TOP - middle
            rests[i, 2 * k + 1] = TOP - min(high - firsts[middle], MOST_REST)


@inlined_kernel
def first_of(bounds, i, k):
    """The first middle cell of box i on attribute k."""
    return max(np.int64(bounds[i, 2 * k]) - 1, 0)


@inlined_kernel
def last_of(bounds, i, k, size):
    """The last one, of so many."""
    field = np.int64(bounds[i, 2 * k + 1])
    return TOP - field if field > 0 else size - 1


@kernel
def count_cells(bounds, sizes, counts):
    """counts[k, 0, c] = how many boxes begin in the middle cell c of attribute k; counts[k, 1, c] = how many
    end in it."""
    for i in range(bounds.shape[0]):
        for k in range(sizes.size):
            counts[k, 0, first_of(bounds, i, k)] += 1
            counts[k, 1, last_of(bounds, i, k, sizes[k])] += 1


@kernel
def block_spans(bounds, sizes, bases, coarse, n_cells, sums, ends):
    """sums[k, b] = the share of coarse cells that the boxes of block b touch on attribute k, added up;
    ends[:, k, b] = the first and the last of them, which it begins as the last and the first there are."""
    for i in range(bounds.shape[0]):
        b = i // BLOCK
        for k in range(sizes.size):
            first = np.int64(coarse[bases[k] + first_of(bounds, i, k)])
            last = np.int64(coarse[bases[k] + last_of(bounds, i, k, sizes[k])])
            sums[k, b] += (last - first + 1) / n_cells[k]
            ends[0, k, b] = min(ends[0, k, b], first)
            ends[1, k, b] = max(ends[1, k, b], last)


@kernel
def fill_rows(bounds, sizes, bases, coarse, ends, bounded, row_bases, bits):
    """Set the bits of each box: in the rows of all coarse cells that it touches.

    A bit is toggled in the first row and in the row after the last; then each row takes over the bits
    of the row before it. A block has rows for the cells that some box of it touches.
    """
    n = bounds.shape[0]
    for b in range(row_bases.shape[0]):
        for k in range(sizes.size):
            if not bounded[k, b]:
                continue
            base = np.int64(row_bases[b, k])
            for i in range(b * BLOCK, min((b + 1) * BLOCK, n)):
                w = (i % BLOCK) >> 6
                bit = _ONE << np.uint64(i & 63)
                first = np.int64(coarse[bases[k] + first_of(bounds, i, k)])
                behind = np.int64(coarse[bases[k] + last_of(bounds, i, k, sizes[k])]) + 1
                bits[base + first, w] ^= bit
                if behind <= ends[1, k, b]:
                    bits[base + behind, w] ^= bit
            for c in range(ends[0, k, b] + 1, ends[1, k, b] + 1):
                for w in range(WORDS):
                    bits[base + c, w] ^= bits[base + c - 1, w]


@allocating_kernel
def fill_tops(bounds, sizes, bases, tops):
    """tops[bases[k] + c]: the blocks that have somebody in the middle cell c of attribute k, as a bitset."""
    n = bounds.shape[0]
    marks = np.empty(TOP + 2, np.int32)
    for b in range((n + BLOCK - 1) // BLOCK):
        for k in range(sizes.size):
            marks[:] = 0
            for i in range(b * BLOCK, min((b + 1) * BLOCK, n)):
                marks[first_of(bounds, i, k)] += 1
                marks[last_of(bounds, i, k, sizes[k]) + 1] -= 1
            inside = 0
            for c in range(sizes[k]):
                inside += marks[c]
                if inside > 0:
                    tops[bases[k] + c, b >> 6] |= _ONE << np.uint64(b & 63)


# An order of boxes in which those of a block lie near each other, so that an event can skip blocks.
#
# A set of boxes is cut in two at one end on one attribute, and each side again by itself, down to one block.
# engine/layouts/bitmap.py tells what was tried.

_KEYS = 256
_SAMPLED = 2048
_LEAST_SHARE = 1 / 32


@allocating_kernel
def cut_blocks(bounds, keys, sizes, order):
    """Put boxes into an order in which those of a block lie near each other: their fields, and `order` along.

    bounds[i] has the fields of box i (bitmap_kernels.py), of which those in `keys` are cut at; field 2k and
    field 2k + 1 are about an attribute with sizes[k] cells. A set is cut at a first or a last cell, where
    what is looked at is least, were an event as likely in one cell as in another: of either side so many
    boxes as it has, times the cells that they cover. Ends are counted in a sample of each set.
    """
    n, width = bounds.shape
    stack = np.empty((n // BLOCK + 2, 2), np.int64)
    stack[0, 0] = 0
    stack[0, 1] = n
    depth = 1
    counts = np.empty(_KEYS, np.int64)
    # per key the outermost other end
    others = np.empty(_KEYS, np.int64)
    beyond = np.empty(_KEYS + 1, np.int64)
    kept = np.empty_like(bounds)
    kept_order = np.empty_like(order)
    while depth > 0:
        depth -= 1
        a = stack[depth, 0]
        b = stack[depth, 1]
        size = b - a
        if size <= BLOCK:
            continue
        step = max(1, size // _SAMPLED)
        sampled = (size + step - 1) // step
        best = np.inf
        best_key = -1
        best_share = 0.5
        for at in range(keys.size):
            key = keys[at]
            top = sizes[key >> 1] - 1
            counts[: top + 1] = 0
            others[: top + 1] = 0
            outermost = np.int64(0)
            least = np.int64(top)
            for i in range(a, b, step):
                # cells are counted from the far side for last ones, so that both kinds look alike: a key, and
                # the other end, which is not before it
                c = _from_own_side(bounds[i, key], key, top)
                other = top - _from_own_side(bounds[i, key ^ 1], key ^ 1, top)
                counts[c] += 1
                others[c] = max(others[c], other)
                outermost = max(outermost, other)
                least = min(least, c)
            # a box that holds nothing may end before it begins
            whole = max(outermost - least + 1, 1)
            beyond[top + 1] = 0
            for cell in range(top, -1, -1):
                beyond[cell] = max(beyond[cell + 1], others[cell] if counts[cell] > 0 else 0)
            before = 0
            covered = 0
            for cell in range(least, top + 1):
                if before > 0 and counts[cell] > 0:
                    share = before / sampled
                    if _LEAST_SHARE <= share <= 1 - _LEAST_SHARE:
                        near = (covered - least + 1) * share
                        far = (beyond[cell] - cell + 1) * (1 - share)
                        cost = (near + far) / whole
                        if cost < best:
                            best = cost
                            best_key = key
                            best_share = share
                if counts[cell] > 0:
                    before += counts[cell]
                    covered = max(covered, others[cell])
        if best_key < 0:
            continue
        n_blocks = (size + BLOCK - 1) // BLOCK
        top = sizes[best_key >> 1] - 1
        n_near = min(max(np.int64(best_share * size / BLOCK + 0.5), 1), n_blocks - 1) * BLOCK
        counts[: top + 1] = 0
        for i in range(a, b):
            counts[_from_own_side(bounds[i, best_key], best_key, top)] += 1
        cut = 0
        below = 0
        while below + counts[cut] <= n_near:
            below += counts[cut]
            cut += 1
        ties = n_near - below
        p = a
        r = a + n_near
        for i in range(a, b):
            c = _from_own_side(bounds[i, best_key], best_key, top)
            front = c < cut
            if c == cut and ties > 0:
                front = True
                ties -= 1
            if front:
                to = p
                p += 1
            else:
                to = r
                r += 1
            kept_order[to] = order[i]
            for q in range(width):
                kept[to, q] = bounds[i, q]
        order[a:b] = kept_order[a:b]
        bounds[a:b] = kept[a:b]
        stack[depth, 0] = a
        stack[depth, 1] = a + n_near
        stack[depth + 1, 0] = a + n_near
        stack[depth + 1, 1] = b
        depth += 2


@inlined_kernel
def _from_own_side(field, key, top):
    """The cell of an end, counted from 0 for first ones and from the last cell down for last ones."""
    return max(np.int64(field) - (TOP - top if key & 1 else 1), 0)
