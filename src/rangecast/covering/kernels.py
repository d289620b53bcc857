"""Cover search on the Z curve: the standard cubes of an extremal rectangle, largest first.

A sought is a point of 2 beta coordinates whose extremal rectangle reaches from it to the top corner of
the universe; `sides[k]` is how many cells that is along dimension k. Addresses, `dims` and `shifts`
are those of kernels/zorder/curve.py, all dimensions with the same number of bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.zorder.tree import seek
from rangecast.simd.compiler import allocating_kernel, kernel

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
    """Masks of the dimensions that must be fixed at a level, and of those that may be besides."""
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
