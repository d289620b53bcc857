"""Passes over what came from a file, where numpy would need several: lists by links, counts, bitmaps, edges.

Each reads every array once and in order, and tells what does not hold by a number; engine/checks.py and the
structures say it in words.
"""

from __future__ import annotations

import numpy as np

from rangecast.engine.boxes_kernels import first_word
from rangecast.model.kernels import copy_run, mix
from rangecast.simd.compiler import kernel

FINE, UNORDERED, OUTSIDE = 0, 1, 2


@kernel
def check_nodes(nodes, link, n_boxes):
    """FINE if column 0 is boxes and each link leads to a node before its own, or, with -1, nowhere.

    A walk along such links ends, and lists that have only grown have them. UNORDERED if some lead to a node
    behind, OUTSIDE if a box or a link is out of range.
    """
    n = nodes.shape[0]
    outside = np.int64(0)
    behind = np.int64(0)
    for i in range(n):
        box = np.int64(nodes[i, 0])
        to = np.int64(nodes[i, link])
        # what must not be negative, joined; the sign tells
        outside |= box | (n_boxes - 1 - box) | (to + 1) | (n - 1 - to)
        behind |= i - 1 - to
    return OUTSIDE if outside < 0 else UNORDERED if behind < 0 else FINE


@kernel
def check_pairs(nodes, n_boxes):
    """check_nodes for nodes of two columns, read as words of 64 bits: 4 times as fast, in whole registers."""
    n = np.int64(nodes.size)
    outside = np.int64(0)
    behind = np.int64(0)
    for i in range(n):
        box = np.int64(nodes[i] & np.uint64(0xFFFFFFFF))
        # the link, plus 1: nowhere is 0, and anything below it a large number
        to = np.int64(((nodes[i] >> np.uint64(32)) + np.uint64(1)) & np.uint64(0xFFFFFFFF))
        outside |= (n_boxes - 1 - box) | (n - to)
        behind |= i - to
    return OUTSIDE if outside < 0 else UNORDERED if behind < 0 else FINE


@kernel
def meet(links, n, met):
    """Mark the nodes that links lead to, a bit each; False if one is out of range or was met before."""
    for i in range(links.size):
        to = np.int64(links[i])
        if to >= 0:
            bit = np.uint64(1) << np.uint64(to & 63)
            if to >= n or met[to >> 6] & bit:
                return False
            met[to >> 6] |= bit
        elif to < -1:
            return False
    return True


@kernel
def count_members(members, counts, most):
    """Add up how often each member comes; members are in range. False if one comes more often than `most`.

    Counters as narrow as they can be stay in the cache.
    """
    for i in range(members.size):
        m = np.uint64(members[i])
        if counts[m] == most:
            return False
        counts[m] += 1
    return True


@kernel
def most_bits(bits):
    """The largest number of bits that are set in a row of words of 32."""
    most = np.uint32(0)
    for row in range(bits.shape[0]):
        total = np.uint32(0)
        for w in range(bits.shape[1]):
            word = bits[row, w]
            word = word - ((word >> np.uint32(1)) & np.uint32(0x55555555))
            word = (word & np.uint32(0x33333333)) + ((word >> np.uint32(2)) & np.uint32(0x33333333))
            word = (word + (word >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
            word = word + (word >> np.uint32(8))
            total += (word + (word >> np.uint32(16))) & np.uint32(0x3F)
        if total > most:
            most = total
    return most


@kernel
def check_bits(bits, base, step, n):
    """Whether every bit of every row is a number from 0 to n - 1; those of row r begin at base + r * step.

    Only words that reach over an end are looked at.
    """
    for row in range(bits.shape[0]):
        first = base + row * step
        inside = min(max(-(first // 32), 0), bits.shape[1])
        beyond = min(max((n - first) // 32, inside), bits.shape[1])
        for part in range(2):
            for w in range(0 if part == 0 else beyond, inside if part == 0 else bits.shape[1]):
                word = np.int64(bits[row, w])
                for k in range(32):
                    number = first + 32 * w + k
                    if (word >> k) & 1 and (number < 0 or number >= n):
                        return False
    return True


@kernel
def check_edges(skip, levels):
    """Whether nodes have their edges, and each edge leads to a higher key with edges of its level."""
    keys = skip.keys
    heights = skip.heights
    edges = skip.edges
    targets = skip.targets
    n = keys.size
    for x in range(n):
        height = np.int64(heights[x])
        first = np.int64(edges[x])
        if (
            height < 0
            or height > levels
            or first < 0
            or first >= targets.size
            or first + height > targets.size
        ):
            return False
        for level in range(height):
            y = targets[first + level]
            if y < -1 or y >= n:
                return False
            if y >= 0 and (keys[y] <= keys[x] or heights[y] <= level):
                return False
    return True


# Finding the cell of a code.

_MISSING = np.iinfo(np.int64).min


@kernel
def cell_of(code, cuts, origin, shift):
    """The cell that holds a code; shift >= 0 means inner cells of 2**shift codes from `origin`."""
    n = cuts.size
    if shift >= 0:
        if code == _MISSING:
            return 0
        if code < origin:
            return 1
        if code >= cuts[n - 1]:
            return n - 1
        # shifted before the difference is taken: origin is a multiple of 2**shift, and codes at the two
        # ends of int64 would overflow the other way round
        return (code >> shift) - (origin >> shift) + 2
    # no branch depends on the code: at random codes a wrong guess costs more than the whole step
    low = np.uint64(0)
    rest = np.uint64(n)
    while rest > np.uint64(1):
        half = rest >> np.uint64(1)
        low += half * np.uint64(cuts[low + half] <= code)
        rest -= half
    return np.int64(low)


@kernel
def locate(codes, cuts, origin, shift, out):
    """out[i] = the cell of codes[i]."""
    for i in range(codes.size):
        out[i] = cell_of(codes[i], cuts, origin, shift)


@kernel
def sort_by_cell(cells, counts, order):
    """order = positions by ascending cell, stable; counts: zeros, one more than there are cells."""
    for i in range(cells.size):
        counts[cells[i] + 1] += 1
    for c in range(1, counts.size):
        counts[c] += counts[c - 1]
    for i in range(cells.size):
        order[counts[cells[i]]] = i
        counts[cells[i]] += 1


# Who holds what, in a sample of boxes: a bit for each event, attribute and box.


@kernel
def mark_holders(values, lows, highs, out):
    """out[k, e, w] has bit b when box 64 w + b holds the value of event e on attribute k.

    values: (attributes, events), lows and highs: (attributes, 64 times words).
    """
    for k in range(out.shape[0]):
        for e in range(out.shape[1]):
            v = values[k, e]
            for w in range(out.shape[2]):
                own_lows = lows[k, 64 * w : 64 * w + 64]
                own_highs = highs[k, 64 * w : 64 * w + 64]
                word = np.uint64(0)
                for b in range(64):
                    word |= np.uint64((own_lows[b] <= v) & (v <= own_highs[b])) << np.uint64(b)
                out[k, e, w] = word


# Boxes that are alike: found by hash, verified bound by bound, and their members copied in runs.


@kernel
def hash_boxes(boxes, numbers, out):
    """A hash of each of some boxes: of its words, since boxes with the same entries have the same."""
    for i in range(numbers.size):
        h = np.uint64(1)
        p = first_word(boxes.starts, boxes.stride, numbers[i])
        end = first_word(boxes.starts, boxes.stride, numbers[i] + 1)
        while p < end:
            h = mix(h ^ np.uint64(boxes.words[p]))
            p += 1
        out[i] = h


@kernel
def mark_firsts(boxes, numbers, out):
    """Set out[i] where a box differs from the one before it."""
    for i in range(1, numbers.size):
        p = first_word(boxes.starts, boxes.stride, numbers[i - 1])
        end = first_word(boxes.starts, boxes.stride, numbers[i - 1] + 1)
        q = first_word(boxes.starts, boxes.stride, numbers[i])
        other = first_word(boxes.starts, boxes.stride, numbers[i] + 1)
        out[i] = end - p != other - q
        while p < end and not out[i]:
            out[i] = boxes.words[p] != boxes.words[q]
            p += 1
            q += 1


@kernel
def count_group_members(offsets, groups, starts, counts):
    """counts[e] = how many members the groups of row e have."""
    for e in range(counts.size):
        n = np.int64(0)
        for q in range(offsets[e], offsets[e + 1]):
            n += starts[groups[q] + 1] - starts[groups[q]]
        counts[e] = n


@kernel
def copy_members(offsets, groups, starts, members, places, add, out):
    """Write the members of the groups of row e, with `add` added, from out[places[e]] on."""
    for e in range(places.size):
        p = places[e]
        for q in range(offsets[e], offsets[e + 1]):
            a = starts[groups[q]]
            p = copy_run(members, a, starts[groups[q] + 1] - a, add, False, out, p)
