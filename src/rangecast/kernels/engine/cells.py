"""Lists per cell and level: filling them, and reading them for a batch of events.

engine/cells.py tells what the arrays are. A cell of level i is a fine cell shifted right by
shifts[i]; the lists of level i begin at bases[i].
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import allocating_kernel, kernel
from rangecast.kernels.engine.packed_bounds import GUARDS, box_holds, pack_values
from rangecast.kernels.machine.views import view, view_rows
from rangecast.kernels.model.matches import copy_run

_LAST = np.iinfo(np.int64).max
_LOWER = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)
_FIELD = np.uint64(0x7FFF)
_NONE = np.uint64(0)


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
    lows, highs, firsts, lasts, order, levels, shifts, bases, cuts, counting, whole_starts, begin_ranks,
    end_ranks, inner_starts, names, whole, begins, ends, inner, inner_ends,
):  # fmt: skip
    """One attribute: count the entries of each list, or write them (starts and ranks are then cursors).

    A cell's lists of beginnings and ends are kept by fine cell, so that an event finds its part of
    them in a table: begin_ranks[level, f] entries begin before the fine cell f.
    """
    for k in range(order.size):
        i = order[k]
        level = levels[i]
        s = shifts[level]
        base = bases[level]
        a = firsts[i] >> s
        b = lasts[i] >> s
        at_start = _begins(lows[i], a, s, cuts)
        at_end = _ends(highs[i], b, s, cuts)
        if a == b and not (at_start and at_end):
            c = base + a
            if counting:
                inner_starts[c + 1] += 1
            else:
                p = inner_starts[c]
                inner_starts[c] = p + 1
                inner[p] = names[i]
                inner_ends[p] = np.uint64(firsts[i]) | (np.uint64(lasts[i]) << np.uint64(32))
            continue
        if not at_start:
            if counting:
                begin_ranks[level, firsts[i] + 1] += 1
            else:
                p = begin_ranks[level, firsts[i]]
                begin_ranks[level, firsts[i]] = p + 1
                begins[p] = names[i]
            a += 1
        if not at_end:
            if counting:
                end_ranks[level, lasts[i] + 1] += 1
            else:
                p = end_ranks[level, lasts[i]]
                end_ranks[level, lasts[i]] = p + 1
                ends[p] = names[i]
            b -= 1
        for cell in range(base + a, base + b + 1):
            if counting:
                whole_starts[cell + 1] += 1
            else:
                p = whole_starts[cell]
                whole_starts[cell] = p + 1
                whole[p] = names[i]


@kernel
def bound_line(cells, shifts, bases, whole_starts, begin_ranks, end_ranks, inner_starts):
    """How many entries a batch can touch at most."""
    total = 0
    n_fine = begin_ranks.shape[1] - 1
    for e in range(cells.size):
        f = cells[e]
        for level in range(shifts.size):
            s = shifts[level]
            c = bases[level] + (f >> s)
            first = (f >> s) << s
            total += whole_starts[c + 1] - whole_starts[c]
            total += begin_ranks[level, f + 1] - begin_ranks[level, first]
            total += end_ranks[level, min(first + (1 << s), n_fine)] - end_ranks[level, f]
            total += inner_starts[c + 1] - inner_starts[c]
    return total


@kernel
def stab_line(
    values, cells, exact, shifts, bases, whole_starts, begin_ranks, end_ranks, inner_starts,
    whole, begins, ends, inner, inner_ends, lows, highs, placed, offsets, add, out,
):  # fmt: skip
    """One attribute: copy runs of lists, look only at what shares the event's fine cell.

    With `placed` the row of event e goes to out[offsets[e]] on, else rows follow each other and
    offsets are written; only exact cells can be placed. `add` is added to each entry.
    """
    p = 0
    n_fine = begin_ranks.shape[1] - 1
    for e in range(cells.size):
        if placed:
            p = offsets[e]
        else:
            offsets[e] = p
        f = cells[e]
        v = values[e]
        for level in range(shifts.size):
            s = shifts[level]
            c = bases[level] + (f >> s)
            first = (f >> s) << s
            p = copy_run(whole, whole_starts[c], whole_starts[c + 1] - whole_starts[c], add, False, out, p)
            a = begin_ranks[level, first]
            b = begin_ranks[level, f + exact]
            p = copy_run(begins, a, b - a, add, False, out, p)
            if not exact:
                for q in range(b, begin_ranks[level, f + 1]):
                    out[p] = begins[q] + add
                    p += lows[begins[q]] <= v
            a = end_ranks[level, f + 1 - exact]
            b = end_ranks[level, min(first + (1 << s), n_fine)]
            p = copy_run(ends, a, b - a, add, False, out, p)
            if not exact:
                for q in range(end_ranks[level, f], a):
                    out[p] = ends[q] + add
                    p += v <= highs[ends[q]]
            n = inner_starts[c + 1] - inner_starts[c]
            if n > 0:
                own = inner[inner_starts[c] : inner_starts[c] + n]
                spans = inner_ends[inner_starts[c] : inner_starts[c] + n]
                into = out[p : p + n]
                k = 0
                if placed:
                    # what lies beyond the row is another's
                    for q in range(n):
                        if (spans[q] & _LOWER) <= f and (spans[q] >> _HALF) >= f:
                            into[k] = own[q] + add
                            k += 1
                elif exact:
                    for q in range(n):
                        into[k] = own[q] + add
                        k += ((spans[q] & _LOWER) <= f) & ((spans[q] >> _HALF) >= f)
                else:
                    for q in range(n):
                        if (spans[q] & _LOWER) <= f and (spans[q] >> _HALF) >= f:
                            into[k] = own[q] + add
                            k += (lows[own[q]] <= v) & (v <= highs[own[q]])
                p += k
    if not placed:
        offsets[cells.size] = p
    return p


@kernel
def count_line(
    cells, shifts, bases, whole_starts, begin_ranks, end_ranks, inner_starts, inner_ends, counts
):  # fmt: skip
    """counts[e] = the matches of event e, where fine cells are exact."""
    n_fine = begin_ranks.shape[1] - 1
    for e in range(cells.size):
        f = cells[e]
        total = np.int64(0)
        for level in range(shifts.size):
            s = shifts[level]
            c = bases[level] + (f >> s)
            first = (f >> s) << s
            total += whole_starts[c + 1] - whole_starts[c]
            total += begin_ranks[level, f + 1] - begin_ranks[level, first]
            total += end_ranks[level, min(first + (1 << s), n_fine)] - end_ranks[level, f]
            spans = inner_ends[inner_starts[c] : inner_starts[c + 1]]
            for q in range(spans.size):
                total += ((spans[q] & _LOWER) <= f) & ((spans[q] >> _HALF) >= f)
        counts[e] = total


@kernel
def sweep(starts, entries, payload, dead, out_starts, out, out_payload):
    """Lists without their dead entries; a payload goes along where there is one. Returns the new size."""
    p = 0
    for k in range(starts.size - 1):
        out_starts[k] = p
        for q in range(starts[k], starts[k + 1]):
            out[p] = entries[q]
            if payload.size:
                out_payload[p] = payload[q]
            if not dead[entries[q]]:
                p += 1
    out_starts[starts.size - 1] = p
    return p


@kernel
def sweep_plane(starts, entries, bound_starts, bounds, dead, out_starts, out, out_bound_starts, out_bounds):
    """As `sweep`, for whole and crossing lists in turn; returns the new numbers of entries and bounds."""
    p = 0
    b = 0
    for c in range(bound_starts.size - 1):
        out_starts[2 * c] = p
        out_bound_starts[c] = b
        for q in range(starts[2 * c], starts[2 * c + 1]):
            out[p] = entries[q]
            if not dead[entries[q]]:
                p += 1
        out_starts[2 * c + 1] = p
        first = starts[2 * c + 1]
        for q in range(first, starts[2 * c + 2]):
            out[p] = entries[q]
            out_bounds[b] = bounds[bound_starts[c] + q - first]
            if not dead[entries[q]]:
                p += 1
                b += 1
    out_starts[starts.size - 1] = p
    out_bound_starts[bound_starts.size - 1] = b
    return p, b


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
def locate_plane(words, fine_x, fine_y):
    """The fine cells of events out of their packed values."""
    for e in range(fine_x.size):
        fine_x[e] = np.int64(words[e, 0] & _FIELD) - 1
        fine_y[e] = np.int64((words[e, 0] >> _HALF) & _FIELD) - 1


@kernel
def _cell_at(fine_x, fine_y, e, shifts, bases, columns, level):
    """The cell of event e at a level."""
    return bases[level] + (fine_y[e] >> shifts[level, 1]) * columns[level] + (fine_x[e] >> shifts[level, 0])


@kernel
def bound_plane(fine_x, fine_y, shifts, bases, columns, starts):
    """How many entries a batch can touch at most."""
    total = 0
    for e in range(fine_x.size):
        for level in range(bases.size):
            c = _cell_at(fine_x, fine_y, e, shifts, bases, columns, level)
            total += starts[2 * c + 2] - starts[2 * c]
    return total


@kernel
def stab_plane(
    order, codes, on, fine_x, fine_y, words, ones, shifts, bases, columns, starts, bound_starts,
    entries, bounds, lows, highs, offsets, out,
):  # fmt: skip
    """Two attributes: copy the whole list of each level's cell, compare the crossing one.

    Row i of the answer is that of event order[i].
    """
    p = 0
    exact = ones == _NONE
    for i in range(order.size):
        e = order[i]
        offsets[i] = p
        word = words[e, 0] | GUARDS
        strict = (words[e, 0] - ones) | GUARDS
        for level in range(bases.size):
            c = _cell_at(fine_x, fine_y, e, shifts, bases, columns, level)
            a = starts[2 * c]
            b = starts[2 * c + 1]
            p = copy_run(entries, a, b - a, np.int32(0), False, out, p)
            n = bound_starts[c + 1] - bound_starts[c]
            crossing = entries[b : b + n]
            own = bounds[bound_starts[c] : bound_starts[c] + n]
            if exact:
                into = out[p : p + n]
                k = 0
                for q in range(n):
                    into[k] = crossing[q]
                    k += ((word - own[q]) & GUARDS) == GUARDS
                p += k
            else:
                # few hold, and a branch lets the next list be on its way meanwhile: without it, 1.5 times the
                # time on the covering workload
                for q in range(n):
                    if ((word - own[q]) & GUARDS) == GUARDS:
                        out[p] = crossing[q]
                        sure = ((strict - own[q]) & GUARDS) == GUARDS
                        p += sure or box_holds(lows, highs, crossing[q], codes, on, e)
    offsets[order.size] = p
    return p


@allocating_kernel
def stab_plane_few(part, codes, lows, highs, offsets, out):
    """All that a few events need, in one call; `part` is the table of views of engine/cells.py.

    Returns how many boxes there are, or where `out` has less room than they might take, minus that.
    """
    m = codes.shape[1]
    on = view(part[0], np.int64)
    ones = view(part[1], np.uint64)
    shifts = view_rows(part[2], np.int64)
    bases = view(part[3], np.int64)
    starts = view(part[4], np.int32)
    columns = view(part[8], np.int64)
    words = np.empty((m, ones.size), np.uint64)
    pack_values(codes, view_rows(part[9], np.int64), words)
    fine_x = np.empty(m, np.int64)
    fine_y = np.empty(m, np.int64)
    locate_plane(words, fine_x, fine_y)
    room = bound_plane(fine_x, fine_y, shifts, bases, columns, starts)
    if room > out.size:
        return -room
    return stab_plane(
        np.arange(m), codes, on, fine_x, fine_y, words, ones[0], shifts, bases, columns, starts,
        view(part[6], np.int32), view(part[5], np.int32), view(part[7], np.uint64), lows, highs, offsets, out,
    )  # fmt: skip
