"""Passes over what came from a file, where numpy would need several: lists by links, counts, bitmaps, edges.

Each reads every array once and in order, and tells what does not hold by a number; engine/checks.py and the
structures say it in words.
"""

from __future__ import annotations

import numpy as np

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
