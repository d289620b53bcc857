"""Lists per cell and level: filling them, and reading them for a batch of events.

indexes/cells.py tells what the arrays are. A cell of level i is a fine cell shifted right by
shifts[i]; the lists of level i begin at bases[i].
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel
from rangecast.kernels.packed import GUARDS

_LAST = np.iinfo(np.int64).max


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


@kernel
def width_classes(firsts, lasts, out):
    """out[i] = the whole logarithm of base 2 of how many fine cells interval i touches."""
    for i in range(firsts.size):
        width = lasts[i] - firsts[i] + 1
        t = 0
        while width > 1:
            width >>= 1
            t += 1
        out[i] = t


@kernel
def _begins(low, cell, shift, cuts):
    """Whether an interval that starts in a cell starts no later than the cell."""
    return low <= cuts[cell << shift]


@kernel
def _ends(high, cell, shift, cuts):
    """Whether an interval that ends in a cell ends no sooner than the cell."""
    after = (cell + 1) << shift
    return high >= (cuts[after] - 1 if after < cuts.size else _LAST)


@kernel
def fill_line(
    lows, highs, firsts, lasts, order, levels, shifts, bases, cuts, counting,
    whole_starts, edge_starts, inner_starts, names, whole, edges, edge_keys, inner, inner_firsts, inner_lasts,
):  # fmt: skip
    """One attribute: count the entries of each list, or write them (starts are then cursors).

    `order` is by ascending low for the entries of beginnings; ends are written by a second call with
    the order of highs. counting: 1 counts all, 2 writes all but ends, 3 writes ends.
    """
    for k in range(order.size):
        i = order[k]
        level = levels[i]
        s = shifts[level]
        base = bases[level]
        a = firsts[i] >> s
        b = lasts[i] >> s
        low = lows[i]
        high = highs[i]
        begins = _begins(low, a, s, cuts)
        ends = _ends(high, b, s, cuts)
        if a == b and not (begins and ends):
            c = base + a
            if counting == 1:
                inner_starts[c + 1] += 1
            elif counting == 2:
                p = inner_starts[c]
                inner_starts[c] = p + 1
                inner[p] = names[i]
                inner_firsts[p] = firsts[i]
                inner_lasts[p] = lasts[i]
            continue
        if counting != 3:
            if not begins:
                c = 2 * (base + a)
                if counting == 1:
                    edge_starts[c + 1] += 1
                else:
                    p = edge_starts[c]
                    edge_starts[c] = p + 1
                    edges[p] = names[i]
                    edge_keys[p] = firsts[i]
                a += 1
            if not ends:
                if counting == 1:
                    edge_starts[2 * (base + b) + 2] += 1
                b -= 1
            for cell in range(base + a, base + b + 1):
                if counting == 1:
                    whole_starts[cell + 1] += 1
                else:
                    p = whole_starts[cell]
                    whole_starts[cell] = p + 1
                    whole[p] = names[i]
        elif not ends:
            c = 2 * (base + b) + 1
            p = edge_starts[c]
            edge_starts[c] = p + 1
            edges[p] = names[i]
            edge_keys[p] = lasts[i]


@kernel
def bound_line(cells, shifts, bases, whole_starts, edge_starts, inner_starts):
    """How many entries a batch can touch at most."""
    total = 0
    for e in range(cells.size):
        for level in range(shifts.size):
            c = bases[level] + (cells[e] >> shifts[level])
            total += whole_starts[c + 1] - whole_starts[c]
            total += edge_starts[2 * c + 2] - edge_starts[2 * c]
            total += inner_starts[c + 1] - inner_starts[c]
    return total


@kernel
def _first_not_below(keys, a, b, key):
    """The first position in [a, b) of ascending keys whose key is not below `key`."""
    n = b - a
    while n > 0:
        half = n >> 1
        if keys[a + half] < key:
            a += half + 1
            n -= half + 1
        else:
            n = half
    return a


@kernel
def stab_line(
    values, cells, exact, shifts, bases, whole_starts, edge_starts, inner_starts,
    whole, edges, edge_keys, inner, inner_firsts, inner_lasts, lows, highs, offsets, out,
):  # fmt: skip
    """One attribute: copy runs of lists, look only at what shares the event's fine cell."""
    p = 0
    for e in range(cells.size):
        offsets[e] = p
        f = cells[e]
        v = values[e]
        for level in range(shifts.size):
            c = bases[level] + (f >> shifts[level])
            a = whole_starts[c]
            n = whole_starts[c + 1] - a
            for q in range(n):
                out[p + q] = whole[a + q]
            p += n
            a = edge_starts[2 * c]
            middle = edge_starts[2 * c + 1]
            b = edge_starts[2 * c + 2]
            if a < middle:
                sure = _first_not_below(edge_keys, a, middle, f + 1 if exact else f)
                n = sure - a
                for q in range(n):
                    out[p + q] = edges[a + q]
                p += n
                if not exact:
                    while sure < middle and edge_keys[sure] == f:
                        out[p] = edges[sure]
                        p += lows[edges[sure]] <= v
                        sure += 1
            if middle < b:
                sure = _first_not_below(edge_keys, middle, b, f if exact else f + 1)
                n = b - sure
                for q in range(n):
                    out[p + q] = edges[sure + q]
                p += n
                if not exact:
                    sure -= 1
                    while sure >= middle and edge_keys[sure] == f:
                        out[p] = edges[sure]
                        p += v <= highs[edges[sure]]
                        sure -= 1
            if exact:
                for q in range(inner_starts[c], inner_starts[c + 1]):
                    out[p] = inner[q]
                    p += (inner_firsts[q] <= f) & (f <= inner_lasts[q])
            else:
                for q in range(inner_starts[c], inner_starts[c + 1]):
                    if inner_firsts[q] <= f and f <= inner_lasts[q]:
                        box = inner[q]
                        out[p] = box
                        p += (lows[box] <= v) & (v <= highs[box])
    offsets[cells.size] = p
    return p


@kernel
def fill_plane(
    lows, highs, firsts, lasts, levels, shifts, bases, columns, cuts_x, cuts_y, counting,
    starts, names, words, entries, bounds, bound_starts,
):  # fmt: skip
    """Two attributes: count the entries of each list (whole, crossing, whole, ...), or write them.

    bound_starts counts the crossing entries before each cell: only those have bounds.
    """
    for i in range(names.size):
        level = levels[i]
        sx = shifts[level, 0]
        sy = shifts[level, 1]
        x0 = firsts[0, i] >> sx
        x1 = lasts[0, i] >> sx
        y0 = firsts[1, i] >> sy
        y1 = lasts[1, i] >> sy
        left = _begins(lows[0, i], x0, sx, cuts_x)
        right = _ends(highs[0, i], x1, sx, cuts_x)
        bottom = _begins(lows[1, i], y0, sy, cuts_y)
        top = _ends(highs[1, i], y1, sy, cuts_y)
        for y in range(y0, y1 + 1):
            row_whole = (y > y0 or bottom) and (y < y1 or top)
            for x in range(x0, x1 + 1):
                c = bases[level] + y * columns[level] + x
                if row_whole and (x > x0 or left) and (x < x1 or right):
                    if counting:
                        starts[2 * c + 1] += 1
                    else:
                        p = starts[2 * c]
                        starts[2 * c] = p + 1
                        entries[p] = names[i]
                elif counting:
                    starts[2 * c + 2] += 1
                else:
                    p = starts[2 * c + 1]
                    starts[2 * c + 1] = p + 1
                    entries[p] = names[i]
                    q = bound_starts[c]
                    bound_starts[c] = q + 1
                    bounds[q] = words[i]


@kernel
def bound_plane(fine_x, fine_y, shifts, bases, columns, starts):
    """How many entries a batch can touch at most."""
    total = 0
    for e in range(fine_x.size):
        for level in range(bases.size):
            c = (
                bases[level]
                + (fine_y[e] >> shifts[level, 1]) * columns[level]
                + (fine_x[e] >> shifts[level, 0])
            )
            total += starts[2 * c + 2] - starts[2 * c]
    return total


@kernel
def stab_plane(
    codes, on, fine_x, fine_y, words, ones, shifts, bases, columns, starts, bound_starts,
    entries, bounds, lows, highs, offsets, out,
):  # fmt: skip
    """Two attributes: copy the whole list of each level's cell, compare the crossing one."""
    p = 0
    exact = ones == np.uint64(0)
    jx = on[0]
    jy = on[1]
    for e in range(fine_x.size):
        offsets[e] = p
        word = words[e, 0] | GUARDS
        strict = (words[e, 0] - ones) | GUARDS
        for level in range(bases.size):
            c = (
                bases[level]
                + (fine_y[e] >> shifts[level, 1]) * columns[level]
                + (fine_x[e] >> shifts[level, 0])
            )
            a = starts[2 * c]
            b = starts[2 * c + 1]
            n = b - a
            for q in range(n):
                out[p + q] = entries[a + q]
            p += n
            q0 = bound_starts[c]
            n = bound_starts[c + 1] - q0
            if exact:
                for q in range(n):
                    out[p] = entries[b + q]
                    p += ((word - bounds[q0 + q]) & GUARDS) == GUARDS
            else:
                for q in range(n):
                    if ((word - bounds[q0 + q]) & GUARDS) == GUARDS:
                        box = entries[b + q]
                        out[p] = box
                        if ((strict - bounds[q0 + q]) & GUARDS) == GUARDS:
                            p += 1
                        else:
                            x = codes[jx, e]
                            y = codes[jy, e]
                            p += (
                                (lows[jx, box] <= x)
                                & (x <= highs[jx, box])
                                & (lows[jy, box] <= y)
                                & (y <= highs[jy, box])
                            )
    offsets[fine_x.size] = p
    return p
