"""The compiled scan: columns, most selective attribute first, stopping when no candidate is left.

Boxes go in blocks whose columns stay in the first-level cache while a batch of events runs over
them: the entries of a block are turned into columns once for all events. Within a block the first attribute
leaves a list of candidates (written without a branch), and each further attribute shortens it. For a few
events, or where a box bounds few of many attributes, its entries are read as they stand.
"""

from __future__ import annotations

import numpy as np

from rangecast.engine.boxes_kernels import first_word, holds, read_entry, view_boxes
from rangecast.simd.compiler import allocating_kernel, kernel
from rangecast.simd.memory import scratch

BLOCK = 1024
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max


@allocating_kernel
def order_dense(boxes, first, last, order):
    """Attributes that some box bounds, those that bound the most and the narrowest first.

    Narrowness counts boxes with an equality; a sample is enough for an order. Returns how many.
    """
    lows = boxes.lows
    highs = boxes.highs
    d = lows.shape[0]
    score = np.zeros(d, np.int64)
    step = max(1, (last - first) // 4096)
    used = 0
    for j in range(d):
        bounded = False
        for b in range(first, last):
            if lows[j, b] != _MISSING or highs[j, b] != _LAST:
                bounded = True
                break
        if not bounded:
            continue
        for b in range(first, last, step):
            if lows[j, b] != _MISSING or highs[j, b] != _LAST:
                score[j] += 1
            if lows[j, b] == highs[j, b]:
                score[j] += 8
        k = used
        while k > 0 and score[order[k - 1]] < score[j]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = j
        used += 1
    return used


@kernel
def scan_dense(codes, boxes, first, last, order, state, out_events, out_slots):
    """As `scan`, of dense boxes.

    state[0] counts (block, event) steps done, state[1] pairs written; returns False when the buffers
    have no room for another step.
    """
    lows = boxes.lows
    highs = boxes.highs
    m = codes.shape[1]
    n_blocks = (last - first + BLOCK - 1) // BLOCK
    found = scratch(BLOCK, np.int32)
    step = state[0]
    p = state[1]
    while step < n_blocks * m:
        a = first + (step // m) * BLOCK
        b = min(a + BLOCK, last)
        if p + (b - a) > out_slots.size:
            state[0] = step
            state[1] = p
            return False
        e = step % m
        k = 0
        if order.size == 0:
            for i in range(a, b):
                found[k] = i - a
                k += 1
        else:
            j = order[0]
            v = codes[j, e]
            low = lows[j, a:b]
            high = highs[j, a:b]
            for i in range(b - a):
                found[k] = i
                k += (low[i] <= v) & (v <= high[i])
        for o in range(1, order.size):
            if k == 0:
                break
            j = order[o]
            v = codes[j, e]
            low = lows[j, a:b]
            high = highs[j, a:b]
            kept = 0
            for q in range(k):
                i = found[q]
                found[kept] = i
                kept += (low[i] <= v) & (v <= high[i])
            k = kept
        for q in range(k):
            out_events[p] = e
            out_slots[p] = boxes.slots[a + found[q]]
            p += 1
        step += 1
    state[0] = step
    state[1] = p
    return True


@kernel
def score_attributes(boxes, first, last, scores):
    """How many boxes bound each attribute, those with an equality nine times over; returns all entries."""
    n = np.int64(0)
    for b in range(first, last):
        p = first_word(boxes.starts, boxes.stride, b)
        end = first_word(boxes.starts, boxes.stride, b + 1)
        k = np.int64(0)
        while p < end:
            j, low, high, p, k = read_entry(boxes, p, k)
            scores[j] += 9 if low == high else 1
            n += 1
    return n


@kernel
def _turn_block(boxes, a, b, ranks, columns):
    """columns[0] and columns[1]: the ends of the boxes a..b, a row for each attribute in use."""
    for rank in range(columns.shape[1]):
        for i in range(b - a):
            columns[0, rank, i] = _MISSING
            columns[1, rank, i] = _LAST
    for box in range(a, b):
        p = first_word(boxes.starts, boxes.stride, box)
        end = first_word(boxes.starts, boxes.stride, box + 1)
        k = np.int64(0)
        while p < end:
            j, low, high, p, k = read_entry(boxes, p, k)
            columns[0, ranks[j], box - a] = low
            columns[1, ranks[j], box - a] = high


@kernel
def scan(codes, boxes, first, last, order, ranks, columns, state, out_events, out_slots):
    """Emit (event, slot) for each event and box in first..last that holds it.

    state[0] counts (block, event) steps done, state[1] pairs written; returns False when the buffers
    have no room for another step.
    """
    m = codes.shape[1]
    n_blocks = (last - first + BLOCK - 1) // BLOCK
    found = scratch(BLOCK, np.int32)
    step = state[0]
    p = state[1]
    turned = np.int64(-1)
    while step < n_blocks * m:
        a = first + (step // m) * BLOCK
        b = min(a + BLOCK, last)
        if p + (b - a) > out_slots.size:
            state[0] = step
            state[1] = p
            return False
        if turned != a:
            _turn_block(boxes, a, b, ranks, columns)
            turned = a
        e = step % m
        k = 0
        if order.size == 0:
            for i in range(b - a):
                found[i] = i
            k = b - a
        else:
            v = codes[order[0], e]
            low = columns[0, 0]
            high = columns[1, 0]
            for i in range(b - a):
                found[k] = i
                k += (low[i] <= v) & (v <= high[i])
        for o in range(1, order.size):
            if k == 0:
                break
            v = codes[order[o], e]
            low = columns[0, o]
            high = columns[1, o]
            kept = 0
            for q in range(k):
                i = found[q]
                found[kept] = i
                kept += (low[i] <= v) & (v <= high[i])
            k = kept
        for q in range(k):
            box = a + found[q]
            out_events[p] = e
            out_slots[p] = boxes.slots[box] if boxes.slots.size else box
            p += 1
        step += 1
    state[0] = step
    state[1] = p
    return True


@kernel
def walk(codes, boxes, first, last, state, out_events, out_slots):
    """As `scan`, box by box: the first entry that does not hold ends the comparison."""
    m = codes.shape[1]
    n_blocks = (last - first + BLOCK - 1) // BLOCK
    step = state[0]
    p = state[1]
    none = boxes.bases[:0]
    while step < n_blocks * m:
        a = first + (step // m) * BLOCK
        b = min(a + BLOCK, last)
        if p + (b - a) > out_slots.size:
            state[0] = step
            state[1] = p
            return False
        e = step % m
        for box in range(a, b):
            if holds(boxes, box, codes, none, e):
                out_events[p] = e
                out_slots[p] = boxes.slots[box] if boxes.slots.size else box
                p += 1
        step += 1
    state[0] = step
    state[1] = p
    return True


@kernel
def walk_few(own_boxes, first, last, codes, offsets, out):
    """Rows of slots for a few events, box by box; `own_boxes` is the table of views of the boxes.

    Returns how many there are, or where `out` has too little room, minus the room to try with.
    """
    boxes = view_boxes(own_boxes)
    none = boxes.bases[:0]
    p = np.int64(0)
    for e in range(codes.shape[1]):
        offsets[e] = p
        for box in range(first, last):
            if holds(boxes, box, codes, none, e):
                if p == out.size:
                    return -codes.shape[1] * (last - first)
                out[p] = boxes.slots[box] if boxes.slots.size else box
                p += 1
    offsets[codes.shape[1]] = p
    return p
