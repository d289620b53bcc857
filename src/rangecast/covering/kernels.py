"""Cover search on the Z curve: the standard cubes of an extremal rectangle, largest first.

A sought is a point of 2 beta coordinates whose extremal rectangle reaches from it to the top corner of
the universe; `sides[k]` is how many cells that is along dimension k. Addresses, `dims` and `shifts`
are those of zorder/kernels.py, all dimensions with the same number of bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.model.kernels import mix
from rangecast.simd.compiler import allocating_kernel, kernel
from rangecast.zorder.kernels import seek

_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
RUNS, CUBES, CANDIDATES, HITS = range(4)


class StoredBoxes(NamedTuple):
    """Stored subscriptions: the arrays of a catalog."""

    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    box_slots: npt.NDArray[np.int32]
    first_boxes: npt.NDArray[np.int64]
    alive: npt.NDArray[np.uint8]


class SoughtCovers(NamedTuple):
    """Subscriptions to be covered: their boxes, and the slot that each has in the catalog itself (it does not
    cover itself), or -1."""

    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    first_boxes: npt.NDArray[np.int64]
    own: npt.NDArray[np.int32]


@kernel
def holds(lows, highs, box, other_lows, other_highs, other):
    """Whether box `box` of the first arrays holds box `other` of the second."""
    for j in range(lows.shape[0]):
        if lows[j, box] > other_lows[j, other] or highs[j, box] < other_highs[j, other]:
            return False
    return True


@kernel
def covers_all(stored, slot, sought, row):
    """Whether each box of a row of the sought lies in some box of a stored slot."""
    first_boxes = stored.first_boxes
    for q in range(sought.first_boxes[row], sought.first_boxes[row + 1]):
        held = False
        for b in range(first_boxes[slot], first_boxes[slot + 1]):
            if holds(stored.lows, stored.highs, b, sought.lows, sought.highs, q):
                held = True
                break
        if not held:
            return False
    return True


@kernel
def confirm(stored, box, sought, row):
    """The slot of a stored box if it covers a row of the sought; otherwise -1."""
    first = sought.first_boxes[row]
    if not holds(stored.lows, stored.highs, box, sought.lows, sought.highs, first):
        return -1
    slot = np.int64(stored.box_slots[box])
    if slot == sought.own[row] or stored.alive[slot] == 0:
        return -1
    if sought.first_boxes[row + 1] - first > 1 and not covers_all(stored, slot, sought, row):
        return -1
    return slot


@kernel
def bits_in(x):
    """How many bits a positive number has, up to its highest 1."""
    n = 0
    while x > 0:
        x >>= 1
        n += 1
    return n


@kernel
def count_needed(sides, epsilon):
    """Cubes that the search examines until 1 - epsilon of the volume is done (Lemma 3.4), as a float."""
    lowest = bits_in(sides[0])
    total = 1.0
    for k in range(sides.size):
        lowest = min(lowest, bits_in(sides[k]))
        total *= float(sides[k])
    goal = total * (1.0 - epsilon) if epsilon > 0.0 else total
    cubes = 0.0
    done = 0.0
    for i in range(lowest - 1, -1, -1):
        reached = 1.0
        cube = 1.0
        for k in range(sides.size):
            reached *= float((sides[k] >> i) << i)
            cube *= 2.0**i
        if reached >= goal and epsilon > 0.0:
            return cubes + max(0.0, np.ceil((goal - done) / cube))
        cubes += (reached - done) / cube
        done = reached
    return cubes


@allocating_kernel
def count_needed_each(sides, epsilon, out):
    """out[i] = `count_needed` of the rectangle sides[:, i]."""
    one = np.empty(sides.shape[0], np.int64)
    for i in range(sides.shape[1]):
        for k in range(sides.shape[0]):
            one[k] = sides[k, i]
        out[i] = count_needed(one, epsilon)


@kernel
def lay_rectangle(sides, places, level, dims, shifts, first, suffix, free):
    """Write a rectangle of cubes of side 2**level as addresses; returns the free bits of a run.

    `places[k]` is the bit of sides[k] that the rectangle stands for: its side along k is 2**places[k]
    (Algorithm 1 of Shen and Tirthapura chooses them). Of a cube's coordinate (eq. 1) the bits above
    are those of the side inverted, the bit itself is 1, and those between it and the level are free.
    Algorithm 2 counts through the free bits of each coordinate; here they are counted along the curve, so
    that cubes come in the order of their addresses (papers/covering/transcript.py has both algorithms).
    first is the lowest address; free marks the free bits that count from run to run; suffix marks the
    lowest bits, all of which take every value: so cubes that follow each other are one run.
    """
    n_words = first.size
    for w in range(n_words):
        first[w] = _ZERO
        suffix[w] = _ZERO
        free[w] = _ZERO
    joined = 0
    in_suffix = True
    for p in range(dims.size - 1, -1, -1):
        k = dims[p]
        s = shifts[p]
        bit = _ONE << np.uint64(63 - (p & 63))
        word = p >> 6
        if s < places[k]:
            if in_suffix:
                suffix[word] |= bit
                if s >= level:
                    joined += 1
            else:
                free[word] |= bit
        else:
            in_suffix = False
            if s == places[k] or (sides[k] >> s) & 1 == 0:
                first[word] |= bit
    return joined


@kernel
def step_run(first, free):
    """Move `first` to the next run of its rectangle, in the order of addresses; False after the last."""
    carry = _ONE
    for w in range(first.size - 1, -1, -1):
        if carry == _ZERO:
            break
        filled = first[w] | ~free[w]
        total = filled + carry if filled != _ALL else _ZERO
        carry = _ONE if filled == _ALL else _ZERO
        first[w] = (total & free[w]) | (first[w] & ~free[w])
    return carry == _ZERO


@kernel
def choose_rectangle(sides, level, fixed, places, start):
    """Algorithm 1: the first (start) or the next choice of `places` for a set of fixed dimensions.

    papers/covering/transcript.py has it as printed, by its own names.

    Fixed dimensions (a bit mask) stay at the level; every other one goes through the 1 bits of its
    side above the level, highest first. False when the choices are exhausted.
    """
    for k in range(sides.size):
        if (fixed >> k) & 1:
            places[k] = level
        else:
            top = bits_in(sides[k]) - 1
            if start:
                places[k] = top
                continue
            place = places[k] - 1
            while place > level and (sides[k] >> place) & 1 == 0:
                place -= 1
            if place > level:
                places[k] = place
                return True
            places[k] = top
    return start


@kernel
def choose_fixed(sides, level):
    """Masks of the dimensions that must be fixed at a level, and of those that may be besides.

    The paper chooses any m of NonZeroDim. A side that has no bit above the level leaves Algorithm 1 no
    choice for its place, so such dimensions are in every choice that is not empty.
    """
    forced = 0
    optional = 0
    for k in range(sides.size):
        if (sides[k] >> level) & 1:
            if sides[k] >> (level + 1) == 0:
                forced |= 1 << k
            else:
                optional |= 1 << k
    return forced, optional


@kernel
def search_run(tree, stored, sought, row, first, suffix, counts):
    """The slot of the first entry of a run that covers a row of the sought, or -1."""
    leaves = tree.counts
    nexts = tree.nexts
    keys = tree.keys
    entries = tree.entries
    leaf, at = seek(tree, first, -1)
    while leaf >= 0:
        while at < leaves[leaf]:
            for w in range(first.size):
                last = first[w] | suffix[w]
                held = keys[leaf, at, w]
                if held != last:
                    if held > last:
                        return -1
                    break
            counts[CANDIDATES] += 1
            slot = confirm(stored, entries[leaf, at], sought, row)
            if slot >= 0:
                return slot
            at += 1
        leaf = nexts[leaf]
        at = 0
    return -1


@kernel
def search_cubes(tree, stored, sought, row, sides, dims, shifts, epsilon, places, words, counts):
    """One row of the sought: a covering slot or -1, and the share of the rectangle that was searched."""
    first, suffix, free = words[0], words[1], words[2]
    total = 1.0
    lowest = bits_in(sides[0])
    for k in range(sides.size):
        total *= float(sides[k])
        lowest = min(lowest, bits_in(sides[k]))
    goal = (1.0 - epsilon) * total
    done = 0.0
    for level in range(lowest - 1, -1, -1):
        forced, optional = choose_fixed(sides, level)
        if forced | optional == 0:
            continue
        cube = 2.0 ** (level * sides.size)
        # fewest fixed dimensions first: the larger rectangles, whose cubes join into the longest runs
        chosen = 0
        while True:
            fixed = forced | chosen
            more = fixed != 0 and choose_rectangle(sides, level, fixed, places, True)
            while more:
                joined = lay_rectangle(sides, places, level, dims, shifts, first, suffix, free)
                inside = True
                while inside:
                    counts[RUNS] += 1
                    counts[CUBES] += 1 << joined
                    done += cube * float(1 << joined)
                    slot = search_run(tree, stored, sought, row, first, suffix, counts)
                    if slot >= 0:
                        counts[HITS] += 1
                        return slot, done / total
                    if epsilon > 0.0 and done >= goal:
                        return -1, done / total
                    inside = step_run(first, free)
                more = choose_rectangle(sides, level, fixed, places, False)
            if chosen == optional:
                break
            chosen = (chosen - optional) & optional
    return -1, 1.0


@allocating_kernel
def search_curve(tree, stored, sought, rows, sides, dims, shifts, epsilon, out, shares, counts):
    """out[row], shares[row] = the answer of `search_cubes` for each of `rows`.

    sides[:, i] belongs to rows[i]; it is the rectangle of the first box of that sought.
    """
    n_dims = sides.shape[0]
    one = np.empty(n_dims, np.int64)
    places = np.empty(n_dims, np.int64)
    words = np.empty((3, tree.keys.shape[2]), np.uint64)
    for i in range(rows.size):
        row = rows[i]
        for k in range(n_dims):
            one[k] = sides[k, i]
        out[row], shares[row] = search_cubes(
            tree, stored, sought, row, one, dims, shifts, epsilon, places, words, counts
        )


@allocating_kernel
def list_rectangles(sides, level, out):
    """Rows of `places`, one a rectangle of cubes of side 2**level; returns how many, filled or not."""
    places = np.empty(sides.size, np.int64)
    forced, optional = choose_fixed(sides, level)
    n = 0
    if forced | optional == 0:
        return n
    chosen = 0
    while True:
        fixed = forced | chosen
        more = fixed != 0 and choose_rectangle(sides, level, fixed, places, True)
        while more:
            if n < out.shape[0]:
                for k in range(sides.size):
                    out[n, k] = places[k]
            n += 1
            more = choose_rectangle(sides, level, fixed, places, False)
        if chosen == optional:
            break
        chosen = (chosen - optional) & optional
    return n


@allocating_kernel
def list_runs(sides, level, places, dims, shifts, out_firsts, out_lasts):
    """Addresses of the runs of one rectangle; returns how many and how many cubes each joins."""
    words = np.empty((3, out_firsts.shape[1]), np.uint64)
    first, suffix, free = words[0], words[1], words[2]
    joined = lay_rectangle(sides, places, level, dims, shifts, first, suffix, free)
    n = 0
    inside = True
    while inside:
        if n < out_firsts.shape[0]:
            for w in range(first.size):
                out_firsts[n, w] = first[w]
                out_lasts[n, w] = first[w] | suffix[w]
        n += 1
        inside = step_run(first, free)
    return n, 1 << joined


# Exact cover search: points in blocks of 64, each block known by its greatest coordinates.
#
# A stored box is a point of uint16 coordinates, (-low, high) of every attribute, rounded to cells so
# that a cover is never below what it covers. `nodes[i]` holds 64 points, or the greatest corners of 64
# nodes of the level below, coordinate by coordinate; 0 is "no entry", coordinates and queries start at 1:
#
#     level 0   nodes starts[0] .. starts[1]   points; entry e of node i is box entries[64 i + e]
#     level l   nodes starts[l] .. starts[l+1] entry e of its node i is node 64 i + e of level l - 1
#     top       one node
#
# A search enters a node only if no coordinate of its greatest corner is below the point's. The 64
# comparisons of a coordinate are one loop without branches over adjacent uint16, which compiles to a few
# vector instructions.

NODES = 0
_WIDTH = 64


class PointBlocks(NamedTuple):
    """The nodes of all levels, where each level begins, and the box of each entry."""

    nodes: npt.NDArray[np.uint16]
    starts: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int32]


@kernel
def _widest(points, order, first, last):
    """The coordinate that varies most among a sample of points first..last."""
    step = max(1, (last - first) >> 7)
    best = -1.0
    widest = 0
    for k in range(points.shape[0]):
        total = 0.0
        squares = 0.0
        n = 0
        for i in range(first, last, step):
            x = float(points[k, order[i]])
            total += x
            squares += x * x
            n += 1
        spread = squares - total * total / n
        if spread > best:
            best = spread
            widest = k
    return widest


@kernel
def _split(row, order, first, last, place):
    """Reorder so that what stands before `place` is not greater than what stands from there on."""
    a = first
    b = last - 1
    while a < b:
        pivot = row[order[(a + b) >> 1]]
        i = a
        j = b
        while i <= j:
            while row[order[i]] < pivot:
                i += 1
            while row[order[j]] > pivot:
                j -= 1
            if i <= j:
                held = order[i]
                order[i] = order[j]
                order[j] = held
                i += 1
                j -= 1
        if place <= j:
            b = j
        elif place >= i:
            a = i
        else:
            return


@kernel
def order_points(points, order, stack):
    """Order points into blocks of 64 by halving along the coordinate that varies most (a k-d tree)."""
    depth = 1
    stack[0, 0] = 0
    stack[0, 1] = order.size
    while depth > 0:
        depth -= 1
        first = stack[depth, 0]
        last = stack[depth, 1]
        if last - first <= _WIDTH:
            continue
        # halves of whole blocks: only the very last block is not full
        blocks = (last - first + _WIDTH - 1) // _WIDTH
        place = first + (blocks >> 1) * _WIDTH
        _split(points[_widest(points, order, first, last)], order, first, last, place)
        stack[depth, 0] = first
        stack[depth, 1] = place
        stack[depth + 1, 0] = place
        stack[depth + 1, 1] = last
        depth += 2


@kernel
def fill_nodes(points, order, blocks):
    """Lay out the points in `order` and the greatest corners above them; nodes start as zeros."""
    starts = blocks.starts
    nodes = blocks.nodes
    for i in range(order.size):
        for k in range(points.shape[0]):
            nodes[i >> 6, k, i & 63] = points[k, order[i]]
    for level in range(1, starts.size - 1):
        below = starts[level - 1]
        for i in range(starts[level] - below):
            for k in range(points.shape[0]):
                top = nodes[below + i, k, 0]
                for e in range(1, _WIDTH):
                    top = max(top, nodes[below + i, k, e])
                nodes[starts[level] + (i >> 6), k, i & 63] = top


@kernel
def _compare(node, sought, passed):
    """passed[e] = 1 where entry e of a node is nowhere below the sought."""
    row = node[0]
    least = sought[0]
    for e in range(_WIDTH):
        passed[e] = row[e] >= least
    for k in range(1, sought.size):
        row = node[k]
        least = sought[k]
        for e in range(_WIDTH):
            passed[e] &= row[e] >= least


@kernel
def _search_one(blocks, stored, sought, row, point, stack, passed, words, counts):
    """A slot that covers a row of the sought, whose first box is the point, or -1."""
    starts = blocks.starts
    top = starts.size - 2
    stack[0, 0] = 0
    stack[0, 1] = top
    depth = 1
    while depth > 0:
        depth -= 1
        node = stack[depth, 0]
        level = stack[depth, 1]
        counts[NODES] += 1
        _compare(blocks.nodes[starts[level] + node], point, passed)
        # eight flags at a time: most are 0
        for w in range(_WIDTH >> 3):
            if words[w] == 0:
                continue
            for e in range(w << 3, (w + 1) << 3):
                if passed[e] == 0:
                    continue
                if level > 0:
                    stack[depth, 0] = (node << 6) + e
                    stack[depth, 1] = level - 1
                    depth += 1
                    continue
                counts[CANDIDATES] += 1
                slot = confirm(stored, blocks.entries[(node << 6) + e], sought, row)
                if slot >= 0:
                    counts[HITS] += 1
                    return slot
    return -1


@allocating_kernel
def search_blocks(blocks, stored, sought, rows, points, passed, words, out, counts):
    """out[row] = a slot that covers it, or -1, for each of `rows` of the sought.

    points[:, i] are the coordinates of the first box of rows[i]; `words` is `passed` seen as uint64.
    """
    n_dims = points.shape[0]
    point = np.empty(n_dims, np.uint16)
    stack = np.empty((_WIDTH * blocks.starts.size, 2), np.int64)
    for i in range(rows.size):
        for k in range(n_dims):
            point[k] = points[k, i]
        out[rows[i]] = _search_one(blocks, stored, sought, rows[i], point, stack, passed, words, counts)


@kernel
def search_tail(stored, first, last, sought, rows, out, counts):
    """As `search_blocks`, by looking at each of the boxes first..last."""
    for i in range(rows.size):
        row = rows[i]
        out[row] = -1
        for box in range(first, last):
            slot = confirm(stored, box, sought, row)
            if slot >= 0:
                counts[HITS] += 1
                out[row] = slot
                break


@kernel
def drop_inner(lows, highs, first_boxes, keep):
    """keep[b] = 0 for a box that lies in another box of its subscription; of equal ones one stays."""
    for s in range(first_boxes.size - 1):
        for b in range(first_boxes[s], first_boxes[s + 1]):
            for c in range(first_boxes[s], first_boxes[s + 1]):
                if b == c or not keep[c]:
                    continue
                inside = True
                for j in range(lows.shape[0]):
                    if lows[j, c] > lows[j, b] or highs[j, c] < highs[j, b]:
                        inside = False
                        break
                if inside:
                    keep[b] = 0
                    break


@kernel
def hash_boxes(lows, highs, first_boxes, out):
    """out[s] = a hash of the boxes of subscription s, in their order."""
    for s in range(first_boxes.size - 1):
        h = np.uint64(0x243F6A8885A308D3)
        for b in range(first_boxes[s], first_boxes[s + 1]):
            for j in range(lows.shape[0]):
                h = mix(h ^ np.uint64(lows[j, b]))
                h = mix(h ^ np.uint64(highs[j, b]))
        out[s] = h


@kernel
def _same(lows, highs, first_boxes, s, t):
    n = first_boxes[s + 1] - first_boxes[s]
    if first_boxes[t + 1] - first_boxes[t] != n:
        return False
    a = first_boxes[s]
    b = first_boxes[t]
    for i in range(n):
        for j in range(lows.shape[0]):
            if lows[j, a + i] != lows[j, b + i] or highs[j, a + i] != highs[j, b + i]:
                return False
    return True


@kernel
def find_twins(lows, highs, first_boxes, hashes, order, out):
    """out[s] = the first subscription, in `order`, with the same boxes; `order` goes by hash."""
    n = order.size
    start = 0
    for i in range(n):
        s = order[i]
        if i > 0 and hashes[s] != hashes[order[start]]:
            start = i
        out[s] = s
        # unlike subscriptions of one hash are next to never: the first comparison decides
        for k in range(start, i):
            t = order[k]
            if out[t] == t and _same(lows, highs, first_boxes, s, t):
                out[s] = t
                break


@kernel
def follow(parents):
    """Replace each parent by the last one up its chain; a root is its own parent."""
    for i in range(parents.size):
        root = i
        while parents[root] != root:
            root = parents[root]
        at = i
        while parents[at] != root:
            above = parents[at]
            parents[at] = root
            at = above
