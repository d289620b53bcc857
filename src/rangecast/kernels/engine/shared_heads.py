"""Boxes that share their heads: all bound the same attributes in the same ways, and words are ends alone.

kernels/engine/boxes.py says what heads, kinds and words are. An entry is at the same place in each of these
boxes, so a column of them is read without a look at the other entries.
"""

from __future__ import annotations

import numpy as np

from rangecast.engine.boxes_kernels import (
    ANY,
    AT_LEAST,
    AT_MOST,
    BETWEEN,
    EQUAL,
    OR_ABSENT,
    POSITION,
    count_own_ends,
    is_narrow,
    kind_of,
)
from rangecast.simd.compiler import kernel

_MISSING = np.iinfo(np.int64).min
_PRESENT = _MISSING + 1
_LAST = np.iinfo(np.int64).max


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
