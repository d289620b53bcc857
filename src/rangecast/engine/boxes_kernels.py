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
such an entry have their own heads. boxes_kernels.py writes and reads those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.language.kernels import SET, find_set, first_check, in_spans_or_list
from rangecast.simd.compiler import inlined_kernel, kernel
from rangecast.simd.memory import prefetch, view
from rangecast.types.kernels import in_any_region, in_circle, in_region

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


# Boxes that share their heads: all bound the same attributes in the same ways, and words are ends alone.
#
# engine/boxes_kernels.py says what heads, kinds and words are. An entry is at the same place in each of these
# boxes, so a column of them is read without a look at the other entries.


@kernel
def share_heads(starts, attributes, lows, highs, bases, fixed, heads):
    """The heads of the entries of every box, if all may have the same, and whether they may.

    Unless `fixed`, they are found: BETWEEN says an equality too, where it stands among ranges.
    """
    h = heads.size
    for b in range(starts.size - 1):
        if starts[b + 1] - starts[b] != h:
            return False
        for k in range(h):
            i = starts[b] + k
            j = np.int64(attributes[i])
            kind = kind_of(lows[i], highs[i])
            if count_own_ends(kind) == 0 or not is_narrow(kind, lows[i], highs[i], bases[j]):
                return False
            head = j | (np.int64(kind) << 28)
            if b == 0 and not fixed:
                heads[k] = head
            own = np.int64(heads[k])
            if head == own:
                continue
            if own & POSITION != j or (kind != EQUAL and kind != BETWEEN):
                return False
            if own >> 28 == EQUAL and not fixed:
                heads[k] = j | (np.int64(BETWEEN) << 28)
            elif own >> 28 != BETWEEN:
                return False
    return True


@kernel
def fill_ends(starts, attributes, lows, highs, bases, heads, p, words):
    """Write the ends of boxes that share their heads, from p on."""
    for i in range(starts[0], starts[starts.size - 1]):
        base = bases[attributes[i]]
        kind = np.int64(heads[(i - starts[0]) % heads.size]) >> 28
        if kind != AT_MOST and kind != OR_ABSENT:
            words[p] = np.uint32(lows[i] - base)
            p += 1
        if kind != AT_LEAST and kind != EQUAL:
            words[p] = np.uint32(highs[i] - base)
            p += 1


@kernel
def interleave_heads(boxes, words):
    """Write the entries of boxes that share their heads with a head each."""
    p = np.int64(0)
    q = np.int64(0)
    for _ in range(boxes.n):
        for k in range(boxes.heads.size):
            words[q] = boxes.heads[k]
            q += 1
            for _ in range(count_own_ends(np.int64(boxes.heads[k]) >> 28)):
                words[q] = boxes.words[p]
                q += 1
                p += 1


@kernel
def count_ends(heads):
    """How many words the ends of a box with these heads take."""
    n = 0
    for k in range(heads.size):
        n += count_own_ends(np.int64(heads[k]) >> 28)
    return n


@kernel
def check_heads(heads, d):
    """Whether heads that boxes share are of narrow entries with ends, on attributes below d."""
    for k in range(heads.size):
        kind = np.int64(heads[k]) >> 28
        if np.int64(heads[k]) & POSITION >= d or kind > OR_ABSENT or count_own_ends(kind) == 0:
            return False
    return True


@kernel
def fill_shared_column(boxes, numbers, j, lows, highs):
    """As `fill_column`, of boxes that share their heads: an entry is at the same place in each."""
    at = np.int64(0)
    kind = np.int64(ANY)
    for k in range(boxes.heads.size):
        head = np.int64(boxes.heads[k])
        if head & POSITION == j:
            kind = head >> 28
            break
        at += count_own_ends(head >> 28)
    if kind == ANY:
        lows[:] = _MISSING
        highs[:] = _LAST
        return
    base = boxes.bases[j]
    second = 1 if kind == BETWEEN else 0
    for i in range(numbers.size):
        p = np.int64(numbers[i]) * np.int64(boxes.stride) + at
        lows[i] = base + np.int64(boxes.words[p])
        highs[i] = base + np.int64(boxes.words[p + second])
    if kind == AT_LEAST:
        highs[:] = _LAST
    elif kind == AT_MOST:
        lows[:] = _PRESENT
    elif kind == OR_ABSENT:
        lows[:] = _MISSING


@kernel
def put_dense(lows, highs, first, last, bases, heads, p, words):
    """Write the ends of the dense boxes first..last from p on, if all may have these heads; whether they may.

    By way of entries, which are as large as the boxes, this took four times as long.
    """
    passed = 0
    for j in range(lows.shape[0]):
        if passed < heads.size and np.int64(heads[passed]) & POSITION == j:
            passed += 1
            continue
        for b in range(first, last):
            if lows[j, b] != _MISSING or highs[j, b] != _LAST:
                return False
    for b in range(first, last):
        for k in range(heads.size):
            at = np.int64(heads[k]) & POSITION
            own = np.int64(heads[k]) >> 28
            low = lows[at, b]
            high = highs[at, b]
            if low == _MISSING and high == _LAST:
                return False
            kind = kind_of(low, high)
            # BETWEEN says an equality too
            if kind != own and not (kind == EQUAL and own == BETWEEN):
                return False
            if not is_narrow(kind, low, high, bases[at]):
                return False
            if own != AT_MOST and own != OR_ABSENT:
                words[p] = np.uint32(low - bases[at])
                p += 1
            if own != AT_LEAST and own != EQUAL:
                words[p] = np.uint32(high - bases[at])
                p += 1
    return True


@kernel
def fill_distances(boxes, numbers, j, origin, lows, highs):
    """The ends of some boxes on one attribute as distances of 32 bits, if it has both; whether it has."""
    at = np.int64(0)
    kind = np.int64(ANY)
    for k in range(boxes.heads.size):
        head = np.int64(boxes.heads[k])
        if head & POSITION == j:
            kind = head >> 28
            break
        at += count_own_ends(head >> 28)
    if kind != BETWEEN and kind != EQUAL:
        return False
    off = boxes.bases[j] - origin
    second = np.int64(kind == BETWEEN)
    for i in range(numbers.size):
        p = np.int64(numbers[i]) * np.int64(boxes.stride) + at
        lows[i] = np.uint32(off + np.int64(boxes.words[p]))
        highs[i] = np.uint32(off + np.int64(boxes.words[p + second]))
    return True


# Dropping what the covering of a region has found and whose point is not in it (engine/catalog.py).

_POSITION = SET - 1


@inlined_kernel
def _holds(boxes, lists, box, codes, e, bases, counts, regions, spheres):
    """Whether a box holds event e. bases[j] is -1 unless attribute j is of points; then its regions are
    bases[j] .. bases[j] + counts[j]. The last attributes first: they are the coverings."""
    for i in range(boxes.starts[box + 1] - 1, boxes.starts[box] - 1, -1):
        at = boxes.attributes[i]
        j = at & _POSITION
        v = codes[j, e]
        if bases[j] < 0:
            if v < boxes.lows[i] or boxes.highs[i] < v:
                return False
            if at & SET and not in_spans_or_list(boxes, lists, find_set(boxes, i), v):
                return False
        elif at & SET:
            number = find_set(boxes, i)
            held = False
            for k in range(boxes.set_starts[number], boxes.set_starts[number + 1]):
                low = boxes.set_lows[k]
                high = boxes.set_highs[k]
                if in_any_region(regions, bases[j], counts[j], low, high, v, spheres, j, e):
                    held = True
                    break
            if not held:
                return False
        elif not in_any_region(regions, bases[j], counts[j], boxes.lows[i], boxes.highs[i], v, spheres, j, e):
            return False
    return True


@kernel
def drop_outside(
    codes,
    offsets,
    slots,
    checks,
    boxes,
    lists,
    tail,
    bases,
    counts,
    regions,
    position,
    lone,
    checked,
    spheres,
    out_offsets,
):
    """As `drop_unheld` (language/kernels.py), where some attributes are of points.

    `spheres` (d, 4) is scratch, of zeros. Returns the new size.
    """
    p = np.int64(0)
    n = np.int64(boxes.owners.size)
    for e in range(offsets.size - 1):
        first = offsets[e]
        out_offsets[e] = p
        v = codes[position, e]
        for q in range(first, offsets[e + 1]):
            s = slots[q]
            # a bit per slot stays in the caches where a number per slot does not: most that is found among
            # subscriptions of all kinds is not checked
            if not (checked[s >> 3] >> (s & 7)) & 1:
                slots[p] = s
                p += 1
                continue
            region = np.int64(lone[s])
            # most slots ask for one region, which decides: following a box to it takes ten loads from memory
            # that depend on one another, this takes three
            if 0 < region <= counts[position] and v != _MISSING:
                circle = regions.lone_circles[bases[position] + region - 1]
                if circle >= 0:
                    held = in_circle(regions, circle, v, spheres, position, e)
                else:
                    held = in_region(regions, bases[position] + region - 1, v, spheres, position, e)
                if held:
                    slots[p] = s
                    p += 1
                continue
            box = first_check(np.int64(checks[s]), s, tail)
            kept = box < 0
            while not kept and box < n and boxes.owners[box] == s:
                kept = _holds(boxes, lists, box, codes, e, bases, counts, regions, spheres)
                box += 1
            if kept:
                slots[p] = s
                p += 1
    out_offsets[offsets.size - 1] = p
    return p


# Long lists of values: keeping them, giving them back as spans, and laying boxes out by value.

_AHEAD = 8  # lists: 4 and 16 are as good
_LINE = 16  # words
_NARROW = np.uint64(2**32)
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


@kernel
def measure_sets(boxes, least, widest, sizes):
    """sizes[k] = how many values set k has, where it has `least` spans, of `widest` values each on average at
    the most, and asks for values alone; otherwise 0."""
    for k in range(boxes.sets.size):
        first = boxes.set_starts[k]
        last = boxes.set_starts[k + 1]
        sizes[k] = 0
        if last - first < least or boxes.set_lows[first] == _MISSING:
            continue
        most = np.uint64(widest * (last - first))
        n = np.uint64(0)
        for q in range(first, last):
            # without their signs: a span may be longer than the largest number
            n += min(np.uint64(boxes.set_highs[q]) - np.uint64(boxes.set_lows[q]), most) + np.uint64(1)
        if n <= most:
            sizes[k] = n


@kernel
def describe_lists(boxes, sets, bases, wide):
    """The least value of each of some sets, and whether some value is too far from it for 32 bits."""
    for i in range(sets.size):
        k = sets[i]
        bases[i] = boxes.set_lows[boxes.set_starts[k]]
        last = boxes.set_highs[boxes.set_starts[k + 1] - 1]
        wide[i] = np.uint64(last) - np.uint64(bases[i]) >= _NARROW


@kernel
def fill_lists(boxes, sets, sizes, bases, wide, p, words):
    """Write the values of some sets one after the other, from p on; sizes[i] says how many the i-th has."""
    for i in range(sets.size):
        first = boxes.set_starts[sets[i]]
        last = boxes.set_starts[sets[i] + 1]
        base = np.uint64(bases[i])
        if not wide[i] and sizes[i] == last - first:
            # single values alone: one subtraction each, several at once
            _fill_singles(boxes.set_lows[first:last], base, words[p : p + last - first])
            p += last - first
            continue
        for q in range(first, last):
            value = np.uint64(boxes.set_lows[q]) - base
            n = np.int64(np.uint64(boxes.set_highs[q]) - np.uint64(boxes.set_lows[q])) + 1
            for _ in range(n):
                words[p] = value & _LOW
                p += 1
                if wide[i]:
                    words[p] = value >> _HALF
                    p += 1
                value += np.uint64(1)


@kernel
def _fill_singles(lows, base, out):
    for q in range(lows.size):
        out[q] = np.uint64(lows[q]) - base


@inlined_kernel
def _value(lists, k, at):
    """A value of list k, as its distance from the base."""
    value = np.uint64(lists.words[at])
    if lists.wide[k]:
        value |= np.uint64(lists.words[at + 1]) << _HALF
    return value


@kernel
def check_lists(lists):
    """Whether the values of each list begin with its base and ascend."""
    for k in range(lists.bases.size):
        step = np.int64(1) + lists.wide[k]
        before = np.uint64(0)
        for at in range(lists.starts[k], lists.starts[k + 1], step):
            value = _value(lists, k, at)
            if (value != before) if at == lists.starts[k] else (value <= before):
                return False
            before = value
        # the last one has a code
        if np.uint64(lists.bases[k]) + np.uint64(2**63) + before < before:
            return False
    return True


@kernel
def count_spans(lists, chosen, counts):
    """How many spans each of the chosen lists is."""
    for i in range(chosen.size):
        k = chosen[i]
        step = np.int64(1) + lists.wide[k]
        n = np.int64(0)
        before = np.uint64(0)
        for at in range(lists.starts[k], lists.starts[k + 1], step):
            value = _value(lists, k, at)
            n += n == 0 or value != before + np.uint64(1)
            before = value
        counts[i] = n


@kernel
def fill_spans(lists, chosen, firsts, lows, highs):
    """Write the spans of the chosen lists, those of the i-th from firsts[i] on."""
    for i in range(chosen.size):
        k = chosen[i]
        base = np.uint64(lists.bases[k])
        step = np.int64(1) + lists.wide[k]
        p = firsts[i] - 1
        before = np.uint64(0)
        for at in range(lists.starts[k], lists.starts[k + 1], step):
            value = _value(lists, k, at)
            code = np.int64(base + value)
            if p < firsts[i] or value != before + np.uint64(1):
                p += 1
                lows[p] = code
            highs[p] = code
            before = value


@kernel
def gather_values(lists, chosen, p, out):
    """Write the codes of the chosen lists one after the other."""
    for i in range(chosen.size):
        k = chosen[i]
        base = np.uint64(lists.bases[k])
        step = np.int64(1) + lists.wide[k]
        for at in range(lists.starts[k], lists.starts[k + 1], step):
            out[p] = np.int64(base + _value(lists, k, at))
            p += 1


@kernel
def rank_values(codes, hashes, values, table, out):
    """out[i] = the place of code i among the values, all of which are in the table (open addressing)."""
    mask = np.uint64(table.size - 1)
    for i in range(codes.size):
        p = hashes[i] & mask
        while values[table[p]] != codes[i]:
            p = (p + np.uint64(1)) & mask
        out[i] = table[p]


@kernel
def lay_out_by_key(words, firsts, lasts, adds, members, tile, cursors, starts, out):
    """Write the member of each list once for each of its keys, key after key, those of a key in the order of
    the lists; starts[key] is where they begin. A key is a word of a list and what is added in that list, and
    keys ascend within a list.

    All lists are walked through together, `tile` keys at a time, so that what is counted and written lies
    within the caches. A list has few words in a tile, and there are more lists than a processor foresees: the
    words of one some lists ahead are asked for, in both passes, which halves the time (35 ns per value
    become 17 with 20,000 lists of 5,000; asked for in the first pass alone, 29).
    """
    n_keys = starts.size - 1
    n_lists = firsts.size
    for i in range(n_lists):
        cursors[i] = firsts[i]
    for key in range(starts.size):
        starts[key] = 0
    p = np.int64(0)
    for first in range(0, n_keys, tile):
        last = min(first + tile, n_keys)
        # starts[key + 1] counts, and becomes the place of the next member of the key: at last where it ends
        for i in range(n_lists):
            ahead = cursors[min(i + _AHEAD, n_lists - 1)]
            prefetch(words, ahead)
            prefetch(words, ahead + _LINE)
            add = adds[i]
            q = cursors[i]
            while q < lasts[i]:
                key = np.int64(words[q]) + add
                if key >= last:
                    break
                starts[key + 1] += 1
                q += 1
        for key in range(first, last):
            n = starts[key + 1]
            starts[key + 1] = p
            p += n
        for i in range(n_lists):
            ahead = cursors[min(i + _AHEAD, n_lists - 1)]
            prefetch(words, ahead)
            prefetch(words, ahead + _LINE)
            add = adds[i]
            q = cursors[i]
            member = members[i]
            while q < lasts[i]:
                key = np.int64(words[q]) + add
                if key >= last:
                    break
                out[starts[key + 1]] = member
                starts[key + 1] += 1
                q += 1
            cursors[i] = q


@kernel
def spread_columns(starts, members, rows, out):
    """The bounds of each list word by word, as engine/layouts/lists.py has them: row m is that of member
    m."""
    n_words = rows.shape[1]
    p = np.int64(0)
    for k in range(starts.size - 1):
        for w in range(n_words):
            for q in range(starts[k], starts[k + 1]):
                out[p] = rows[members[q], w]
                p += 1


@kernel
def rename(members, numbers):
    """members[q] = numbers[members[q]], in place."""
    for q in range(members.size):
        members[q] = numbers[members[q]]
