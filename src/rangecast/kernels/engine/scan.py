"""The compiled scan: columns, most selective attribute first, stopping when no candidate is left.

Boxes go in blocks whose columns stay in the first-level cache while a batch of events runs over
them. Within a block the first attribute leaves a list of candidates (written without a branch), and
each further attribute shortens it.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import allocating_kernel, kernel
from rangecast.kernels.machine.memory import scratch

_BLOCK = 1024
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max


@allocating_kernel
def order_attributes(boxes, first, last, order):
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
def scan(codes, boxes, first, last, order, state, out_events, out_slots):
    """Emit (event, slot) for each event and box in first..last that holds it.

    state[0] counts (block, event) steps done, state[1] pairs written; returns False when the buffers
    have no room for another step.
    """
    lows = boxes.lows
    highs = boxes.highs
    m = codes.shape[1]
    n_blocks = (last - first + _BLOCK - 1) // _BLOCK
    found = scratch(_BLOCK, np.int32)
    step = state[0]
    p = state[1]
    while step < n_blocks * m:
        a = first + (step // m) * _BLOCK
        b = min(a + _BLOCK, last)
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
