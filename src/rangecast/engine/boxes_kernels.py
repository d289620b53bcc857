"""Boxes as kernels take them, and whether one holds an event.

Only this module knows how bounds are kept: all other kernels ask it. A box is a run of 32-bit words, entry
after entry, and an entry is a head and its ends:

    bits of a head   meaning
    0-27             the attribute
    28-30            the kind: which ends are written, and what the others are
    31               wide: an end is two words, the lower first; otherwise one, from the attribute's base on

    kind         ends written   interval
    BETWEEN      low, high      low .. high
    EQUAL        value          value .. value
    AT_LEAST     low            low .. LAST
    AT_MOST      high           PRESENT .. high
    ANY          none           PRESENT .. LAST
    ABSENT       none           MISSING .. MISSING
    OR_ABSENT    high           MISSING .. high

So `symbol = 'IBM' and price > 5` is four words where ends of 64 bits on each attribute would be 32 bytes of
this schema and 16 of each attribute more. The array is read by a few candidates per event alone: layouts
compare packed bounds first.

Where all boxes bound the same attributes in the same ways, their heads are kept once, and the words are ends
alone: 8 bytes per range and 4 per equality. A kind without ends has no words to be counted by, so boxes with
such an entry have their own heads. shared_heads.py writes and reads those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.machine.views import view
from rangecast.simd.compiler import inlined_kernel, kernel

MOST_ATTRIBUTES = 1 << 28
NARROW = 0xFFFF_FFFF
"""The largest distance from a base that one word holds."""

_MISSING = np.iinfo(np.int64).min
_PRESENT = _MISSING + 1
_LAST = np.iinfo(np.int64).max
POSITION = MOST_ATTRIBUTES - 1
_LONGEST = 5
"""The words of the longest entry: a head and two wide ends."""
BETWEEN, EQUAL, AT_LEAST, AT_MOST, ANY, ABSENT, OR_ABSENT = range(7)


class BoxArrays(NamedTuple):
    """The box arrays of one moment; what is behind box `n` is spare room."""

    words: npt.NDArray[np.uint32]
    heads: npt.NDArray[np.uint32]
    """Heads of the entries of every box, where all have the same; empty where they stand in words."""
    starts: npt.NDArray[np.uint32]
    """Where the words of each box begin; empty where each has `stride` of them."""
    bases: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    """The slot of each box; empty where it is the box's own number."""
    n: int
    stride: int


class DenseArrays(NamedTuple):
    """Boxes as (d, n) ends, for the structures that need each attribute of each box."""

    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    n: int


@inlined_kernel
def view_boxes(table):
    """The arrays out of the table of views that engine/boxes.py makes."""
    head = view(table[5], np.int64)
    return BoxArrays(
        view(table[0], np.uint32),
        view(table[1], np.uint32),
        view(table[2], np.uint32),
        view(table[3], np.int64),
        view(table[4], np.int32),
        head[0],
        head[1],
    )


@inlined_kernel
def first_word(starts, stride, box):
    """Where the words of a box begin."""
    return np.int64(starts[box]) if starts.size else np.int64(box) * np.int64(stride)


@inlined_kernel
def read_entry(boxes, p, k):
    """The attribute and the ends of entry k of a box, which is at p; where the next one begins, and k + 1.

    Stays within the arrays whatever the words are, so that nobody has to follow all of them when a file is
    loaded: an attribute is one of the schema's, and `check_last` has looked at the boxes at the end of words.
    """
    words = boxes.words
    bases = boxes.bases
    if boxes.heads.size:
        head = np.int64(boxes.heads[k])
        j = head & POSITION
    else:
        head = np.int64(words[p])
        j = min(head & POSITION, np.int64(bases.size - 1))
        p += 1
    k += 1
    kind = (head >> 28) & 7
    if kind == ANY:
        return j, np.int64(_PRESENT), np.int64(_LAST), p, k
    if kind == ABSENT:
        return j, np.int64(_MISSING), np.int64(_MISSING), p, k
    if head >> 31:
        low = np.int64(words[p]) | (np.int64(words[p + 1]) << np.int64(32))
        p += 2
        high = low
        if kind == BETWEEN:
            high = np.int64(words[p]) | (np.int64(words[p + 1]) << np.int64(32))
            p += 2
    else:
        low = bases[j] + np.int64(words[p])
        p += 1
        high = low
        if kind == BETWEEN:
            high = bases[j] + np.int64(words[p])
            p += 1
    if kind == AT_LEAST:
        high = np.int64(_LAST)
    elif kind == AT_MOST:
        low = np.int64(_PRESENT)
    elif kind == OR_ABSENT:
        low = np.int64(_MISSING)
    return j, low, high, p, k


@kernel
def holds(boxes, box, codes, attributes, e):
    """Whether a box holds event e; the caller needs to know it of some attributes, but all are compared."""
    p = first_word(boxes.starts, boxes.stride, np.int64(box))
    end = first_word(boxes.starts, boxes.stride, np.int64(box) + 1)
    k = np.int64(0)
    while p < end:
        j, low, high, p, k = read_entry(boxes, p, k)
        v = codes[j, e]
        if v < low or v > high:
            return False
    return True


@kernel
def holds_value(boxes, box, j, v):
    """Whether a box holds a value of attribute j."""
    p = first_word(boxes.starts, boxes.stride, box)
    end = first_word(boxes.starts, boxes.stride, box + 1)
    k = np.int64(0)
    while p < end:
        at, low, high, p, k = read_entry(boxes, p, k)
        if at == j:
            return low <= v and v <= high
    return True


@kernel
def holds_dense(boxes, box, codes, attributes, e):
    """As `holds`, of dense boxes, on the attributes named."""
    for k in range(attributes.size):
        j = attributes[k]
        if codes[j, e] < boxes.lows[j, box] or codes[j, e] > boxes.highs[j, box]:
            return False
    return True


@kernel
def holds_dense_value(boxes, box, j, v):
    """As `holds_value`, of dense boxes."""
    return boxes.lows[j, box] <= v and v <= boxes.highs[j, box]


@inlined_kernel
def kind_of(low, high):
    """Which kind of entry an interval is."""
    if low == _MISSING:
        return ABSENT if high == _MISSING else OR_ABSENT
    if low == high:
        return EQUAL
    if high == _LAST:
        return ANY if low == _PRESENT else AT_LEAST
    return AT_MOST if low == _PRESENT else BETWEEN


@inlined_kernel
def is_narrow(kind, low, high, base):
    """Whether the ends that are written fit a word each."""
    top = base + NARROW
    if kind == AT_MOST or kind == OR_ABSENT:
        return base <= high and high <= top
    if kind == BETWEEN:
        return base <= low and low <= top and base <= high and high <= top
    return base <= low and low <= top


@inlined_kernel
def count_own_ends(kind):
    """How many ends of a kind are written."""
    return 2 if kind == BETWEEN else (0 if kind == ANY or kind == ABSENT else 1)


@kernel
def count_words(starts, attributes, lows, highs, bases, counts):
    """counts[b] = how many words box b takes; its entries are starts[b] .. starts[b + 1]."""
    for b in range(counts.size):
        n = 0
        for i in range(starts[b], starts[b + 1]):
            kind = kind_of(lows[i], highs[i])
            narrow = is_narrow(kind, lows[i], highs[i], bases[attributes[i]])
            n += 1 + count_own_ends(kind) * (1 if narrow else 2)
        counts[b] = n


@inlined_kernel
def _put(words, p, end, narrow, base):
    if narrow:
        words[p] = np.uint32(end - base)
        return p + 1
    words[p] = np.uint32(end & NARROW)
    words[p + 1] = np.uint32((end >> np.int64(32)) & NARROW)
    return p + 2


@kernel
def fill_words(starts, attributes, lows, highs, bases, p, words):
    """Write the words of boxes one after the other, from p on."""
    for b in range(starts.size - 1):
        for i in range(starts[b], starts[b + 1]):
            j = np.int64(attributes[i])
            kind = kind_of(lows[i], highs[i])
            ends = count_own_ends(kind)
            narrow = ends == 0 or is_narrow(kind, lows[i], highs[i], bases[j])
            words[p] = np.uint32(j | (np.int64(kind) << 28) | (0 if narrow else np.int64(1) << 31))
            p += 1
            if kind == AT_MOST or kind == OR_ABSENT:
                p = _put(words, p, highs[i], narrow, bases[j])
            elif ends > 0:
                p = _put(words, p, lows[i], narrow, bases[j])
                if ends == 2:
                    p = _put(words, p, highs[i], narrow, bases[j])


@kernel
def span_ends(attributes, lows, highs, least, largest, firsts):
    """Per attribute the least and the largest end that would be written, and the first one."""
    for i in range(attributes.size):
        j = attributes[i]
        for end in (lows[i], highs[i]):
            if _PRESENT < end and end < _LAST:
                if least[j] > largest[j]:
                    firsts[j] = end
                least[j] = min(least[j], end)
                largest[j] = max(largest[j], end)


@kernel
def span_dense(lows, highs, first, last, least, largest, firsts):
    """As `span_ends`, of the dense boxes first..last, as far as there are any."""
    for j in range(lows.shape[0]):
        for b in range(first, min(last, lows.shape[1])):
            for end in (lows[j, b], highs[j, b]):
                if _PRESENT < end and end < _LAST:
                    if least[j] > largest[j]:
                        firsts[j] = end
                    least[j] = min(least[j], end)
                    largest[j] = max(largest[j], end)


@kernel
def check_last(words, starts, stride, n):
    """Whether no entry reaches beyond the words; boxes ascend and end within them.

    Only an entry of the last words could: those boxes must be whole entries.
    """
    for b in range(n - 1, -1, -1):
        p = first_word(starts, stride, b)
        end = first_word(starts, stride, b + 1)
        if end + _LONGEST <= words.size + 1:
            break
        while p < end:
            head = np.int64(words[p])
            p += 1 + count_own_ends((head >> 28) & 7) * (2 if head >> 31 else 1)
        if p != end:
            return False
    return True


@kernel
def mark_bounded(boxes, numbers, out):
    """out[j] = 1 where one of some boxes bounds attribute j."""
    for i in range(numbers.size):
        p = first_word(boxes.starts, boxes.stride, numbers[i])
        end = first_word(boxes.starts, boxes.stride, numbers[i] + 1)
        k = np.int64(0)
        while p < end:
            j, _, _, p, k = read_entry(boxes, p, k)
            out[j] = 1


@kernel
def fill_column(boxes, numbers, j, lows, highs):
    """The ends of some boxes on one attribute, MISSING and LAST where it is ignored."""
    for i in range(numbers.size):
        p = first_word(boxes.starts, boxes.stride, numbers[i])
        end = first_word(boxes.starts, boxes.stride, numbers[i] + 1)
        k = np.int64(0)
        lows[i] = _MISSING
        highs[i] = _LAST
        while p < end:
            at, low, high, p, k = read_entry(boxes, p, k)
            if at == j:
                lows[i] = low
                highs[i] = high
                break


@kernel
def find_bounds(boxes, attributes, numbers, lows, highs):
    """The ends of box numbers[i] on attributes[i]."""
    for i in range(numbers.size):
        one = numbers[i : i + 1]
        fill_column(boxes, one, attributes[i], lows[i : i + 1], highs[i : i + 1])


@kernel
def count_entries(boxes, first, last, counts):
    """counts[j] = how many of the boxes first..last bound attribute j."""
    for b in range(first, last):
        p = first_word(boxes.starts, boxes.stride, b)
        end = first_word(boxes.starts, boxes.stride, b + 1)
        k = np.int64(0)
        while p < end:
            j, _, _, p, k = read_entry(boxes, p, k)
            counts[j] += 1


@kernel
def turn_entries(boxes, first, last, cursors, positions, lows, highs):
    """The entries of boxes first..last attribute by attribute; cursors[j] is where those of j begin."""
    for b in range(first, last):
        p = first_word(boxes.starts, boxes.stride, b)
        end = first_word(boxes.starts, boxes.stride, b + 1)
        k = np.int64(0)
        while p < end:
            j, low, high, p, k = read_entry(boxes, p, k)
            q = cursors[j]
            cursors[j] = q + 1
            positions[q] = b - first
            lows[q] = low
            highs[q] = high


@kernel
def count_own_entries(boxes, numbers, counts):
    """counts[i] = how many entries box numbers[i] has."""
    for i in range(numbers.size):
        p = first_word(boxes.starts, boxes.stride, numbers[i])
        end = first_word(boxes.starts, boxes.stride, numbers[i] + 1)
        k = np.int64(0)
        n = 0
        while p < end:
            _, _, _, p, k = read_entry(boxes, p, k)
            n += 1
        counts[i] = n


@kernel
def read_entries(boxes, numbers, attributes, lows, highs):
    """The entries of some boxes, one box after the other."""
    q = 0
    for i in range(numbers.size):
        p = first_word(boxes.starts, boxes.stride, numbers[i])
        end = first_word(boxes.starts, boxes.stride, numbers[i] + 1)
        k = np.int64(0)
        while p < end:
            j, low, high, p, k = read_entry(boxes, p, k)
            attributes[q] = j
            lows[q] = low
            highs[q] = high
            q += 1


@kernel
def drop_marked(numbers, marks):
    """Move the numbers without a mark together, in place; returns how many they are."""
    n = 0
    for i in range(numbers.size):
        numbers[n] = numbers[i]
        n += marks[numbers[i]] == 0
    return n
