"""Lists by value: finding an event's list, and checking what else its members ask for."""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel
from rangecast.kernels.matches import copy_run
from rangecast.kernels.packed import box_holds

_ALL = ~np.uint64(0)


@kernel
def enter_values(values, hashes, table):
    """Put the position of each value into an open-addressing table of -1."""
    mask = np.uint64(table.size - 1)
    for i in range(values.size):
        p = hashes[i] & mask
        while table[p] >= 0:
            p = (p + np.uint64(1)) & mask
        table[p] = i


@kernel
def find_dense(codes, origin, table, starts, out):
    """out[e] = the list of a code, -1 where it has none; table[code - origin] names it.

    Returns how many entries all those lists have.
    """
    total = 0
    last = origin + table.size - 1
    for e in range(codes.size):
        k = np.int32(-1)
        if codes[e] >= origin and codes[e] <= last:
            k = table[codes[e] - origin]
        out[e] = k
        if k >= 0:
            total += starts[k + 1] - starts[k]
    return total


@kernel
def find_hashed(codes, hashes, values, table, starts, out):
    """As `find_dense`, by hash."""
    total = 0
    mask = np.uint64(table.size - 1)
    for e in range(codes.size):
        p = hashes[e] & mask
        k = table[p]
        while k >= 0 and values[k] != codes[e]:
            p = (p + np.uint64(1)) & mask
            k = table[p]
        out[e] = k
        if k >= 0:
            total += starts[k + 1] - starts[k]
    return total


@kernel
def stab_lists(
    order, lists, starts, boxes, bounds, values, ones, guards, inexact, rare_starts, rare_attributes,
    rare_bounds, codes, lows, highs, offsets, out,
):  # fmt: skip
    """Emit the boxes of each event's list that hold it; `bounds` of no words means all do.

    Row i of the answer is that of event order[i].
    """
    p = np.int64(0)
    n_words = bounds.shape[1]
    for i in range(order.size):
        e = order[i]
        offsets[i] = p
        if lists[e] < 0:
            continue
        a = starts[lists[e]]
        n = starts[lists[e] + 1] - a
        if rare_starts.size:
            # where a box stands, until the rare bounds are looked at
            into = out[p : p + n]
            k = 0
            for q in range(a, a + n):
                held = _ALL
                sure = _ALL
                for w in range(n_words):
                    held &= ((values[e, w] | guards[w]) - bounds[q, w]) | ~guards[w]
                    sure &= (((values[e, w] - ones[w]) | guards[w]) - bounds[q, w]) | ~guards[w]
                into[k] = q
                if inexact.size == 0:
                    k += held == _ALL
                elif held == _ALL:
                    k += sure == _ALL or box_holds(lows, highs, boxes[q], codes, inexact, e)
            for r in range(k):
                q = into[r]
                hit = True
                for b in range(rare_starts[q], rare_starts[q + 1]):
                    v = codes[rare_attributes[b], e]
                    hit = hit and rare_bounds[b, 0] <= v and v <= rare_bounds[b, 1]
                out[p] = boxes[q]
                p += hit
            continue
        if n_words == 0:
            p = copy_run(boxes, a, n, np.int32(0), out, p)
            continue
        own = boxes[a : a + n]
        rows = bounds[a : a + n]
        into = out[p : p + n]
        k = 0
        if inexact.size == 0 and n_words == 1:
            # unsigned, as everywhere that a negative index cannot be
            guard = guards[0]
            value = values[e, 0] | guard
            to = np.uint64(p)
            for q in range(np.uint64(a), np.uint64(a + n)):
                out[to] = boxes[q]
                to += np.uint64(((value - bounds[q, 0]) & guard) == guard)
            p = np.int64(to)
            continue
        if inexact.size == 0:
            for q in range(n):
                held = _ALL
                for w in range(n_words):
                    held &= ((values[e, w] | guards[w]) - rows[q, w]) | ~guards[w]
                into[k] = own[q]
                k += held == _ALL
        else:
            for q in range(n):
                held = _ALL
                sure = _ALL
                for w in range(n_words):
                    held &= ((values[e, w] | guards[w]) - rows[q, w]) | ~guards[w]
                    sure &= (((values[e, w] - ones[w]) | guards[w]) - rows[q, w]) | ~guards[w]
                into[k] = own[q]
                if held == _ALL:
                    k += sure == _ALL or box_holds(lows, highs, own[q], codes, inexact, e)
        p += k
    offsets[order.size] = p
    return p
