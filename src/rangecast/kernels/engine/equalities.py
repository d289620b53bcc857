"""Lists by the values of two attributes: which of them may be there for an event, and what they hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds, view_boxes
from rangecast.kernels.machine.bitsets import lowest
from rangecast.kernels.machine.views import view, view_rows
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.memory import prefetch, scratch

BLOCK = 128
"""Events whose hashes are computed before the first of them is looked up."""
MOST_COUPLES = 16
"""Couples of attributes of one part: each is a bit of what an event found."""
ROWS = 4
"""Rows of the table of views that `stab_few` takes."""
_HASHES = BLOCK * MOST_COUPLES
_NEAR = 4096
_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_C = np.uint64(0xD6E8FEB86659FD93)
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_BIT = np.uint64(63)
_SIX = np.uint64(6)
_TWELVE = np.uint64(12)
_HALF = np.uint64(32)


class CoupleLists(NamedTuple):
    """Lists by the values of couples of attributes; engine/equalities.py tells what the arrays are."""

    couples: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]


@inlined_kernel
def _hash(first, second, c):
    """Of the values of couple c: the upper bits name a word of flags, the lower ones its bits and a list."""
    h = np.uint64(first) * _A + np.uint64(second) * _B + np.uint64(c) * _C
    h = (h ^ (h >> _HALF)) * _C
    return h ^ (h >> _HALF)


@inlined_kernel
def _bits(h):
    """The two bits of a word of flags that a hash has."""
    return (_ONE << (h & _BIT)) | (_ONE << ((h >> _SIX) & _BIT))


@inlined_kernel
def _list_of(h, n_lists):
    return (h >> _TWELVE) & np.uint64(n_lists - 1)


@inlined_kernel
def _shift(words):
    """How far a hash is shifted to leave the number of one of 2^k words, of which there are two at least."""
    k = np.uint64(0)
    while (1 << np.int64(k)) < words:
        k += _ONE
    return np.uint64(64) - k


@kernel
def hash_couple(firsts, seconds, c, out):
    """out[i] = the hash of the values of couple c."""
    for i in range(firsts.size):
        out[i] = _hash(firsts[i], seconds[i], c)


@kernel
def list_numbers(hashes, n_lists, out):
    """out[i] = the list of a hash, of 2^k lists."""
    for i in range(hashes.size):
        out[i] = _list_of(hashes[i], n_lists)


@kernel
def count_alike(hashes, table, out):
    """out[i] = how many have about the same hash as hashes[i], up to 255; table: zeros, 2^k of them."""
    most = np.uint8(255)
    for i in range(hashes.size):
        at = _list_of(hashes[i], table.size)
        table[at] += np.uint8(table[at] < most)
    for i in range(hashes.size):
        out[i] = table[_list_of(hashes[i], table.size)]


@kernel
def set_flags(hashes, flags):
    """Set the bits of hashes."""
    shift = _shift(flags.size)
    for i in range(hashes.size):
        flags[hashes[i] >> shift] |= _bits(hashes[i])


@kernel
def _ask_block(codes, lists, begin, end, hashes, found):
    """found[k] = a bit for each couple whose values event begin + k may have a list for.

    Couple by couple, so that its loops have nothing to choose; words are asked for one loop ahead.
    """
    flags = lists.flags
    shift = _shift(flags.size)
    n = np.uint64(end - begin)
    for k in range(n):
        found[k] = _NONE
    for c in range(lists.couples.shape[0]):
        firsts = codes[lists.couples[c, 0], begin:end]
        seconds = codes[lists.couples[c, 1], begin:end]
        own = hashes[c * BLOCK : (c + 1) * BLOCK]
        for k in range(n):
            own[k] = _hash(firsts[k], seconds[k], c)
        # those that fit the first cache are there
        if flags.size > _NEAR:
            for k in range(n):
                prefetch(flags, own[k] >> shift)
    for c in range(lists.couples.shape[0]):
        own = hashes[c * BLOCK : (c + 1) * BLOCK]
        bit = np.uint64(c)
        for k in range(n):
            bits = _bits(own[k])
            found[k] |= np.uint64((flags[own[k] >> shift] & bits) == bits) << bit


@inlined_kernel
def _is_repeated(hashes, k, c, before, n_lists):
    """Whether an earlier couple of the same event has led to the list of couple c: it was read then."""
    own = _list_of(hashes[c * BLOCK + k], n_lists)
    again = False
    while before != _NONE:
        other = np.int64(lowest(before))
        before &= before - _ONE
        again |= _list_of(hashes[other * BLOCK + k], n_lists) == own
    return again


@kernel
def stab(codes, lists, boxes, e, offsets, out):
    """Emit the boxes that hold each event, from event e on, a multiple of the block.

    Returns the event to go on with when `out` has no room for the next ones, or the number of events.
    """
    m = codes.shape[1]
    starts = lists.starts
    n_lists = starts.size - 1
    hashes = scratch(_HASHES, np.uint64)
    found = scratch(BLOCK, np.uint64)
    to = offsets[e]
    for begin in range(e, m, BLOCK):
        end = min(begin + BLOCK, m)
        _ask_block(codes, lists, begin, end, hashes, found)
        for k in range(end - begin):
            rest = found[k]
            before = _NONE
            while rest != _NONE:
                c = np.int64(lowest(rest))
                rest &= rest - _ONE
                b = np.int64(_list_of(hashes[c * BLOCK + k], n_lists))
                if not _is_repeated(hashes, k, c, before, n_lists):
                    if to + starts[b + 1] - starts[b] > out.size:
                        return begin
                    for q in range(starts[b], starts[b + 1]):
                        box = lists.boxes[q]
                        if holds(boxes, box, codes, starts, begin + k):
                            out[to] = box
                            to += 1
                before |= _ONE << np.uint64(c)
            offsets[begin + k + 1] = to
    return m


@kernel
def count_candidates(codes, lists, counts):
    """counts[e] = how many boxes event e looks at."""
    m = codes.shape[1]
    hashes = scratch(_HASHES, np.uint64)
    found = scratch(BLOCK, np.uint64)
    n_lists = lists.starts.size - 1
    for begin in range(0, m, BLOCK):
        end = min(begin + BLOCK, m)
        _ask_block(codes, lists, begin, end, hashes, found)
        for k in range(end - begin):
            total = 0
            for c in range(lists.couples.shape[0]):
                if (found[k] >> np.uint64(c)) & _ONE:
                    b = np.int64(_list_of(hashes[c * BLOCK + k], n_lists))
                    total += lists.starts[b + 1] - lists.starts[b]
            counts[begin + k] = total


@allocating_kernel
def stab_few(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call; `part` is the table of views of engine/equalities.py.

    Returns how many boxes there are, or where `out` has too little room, minus the room to try with.
    """
    # in the order of the fields
    lists = CoupleLists(
        view_rows(part[0], np.int64),
        view(part[1], np.uint64),
        view(part[2], np.int32),
        view(part[3], np.int32),
    )
    offsets[0] = 0
    boxes = view_boxes(own_boxes)
    m = codes.shape[1]
    if stab(codes, lists, boxes, np.int64(0), offsets, out) < m:
        return -(4 * out.size + BLOCK)
    return offsets[m]
