"""Constructs in runs: cutting rectangles of cells, sorting what is listed, and stabbing the runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds_dense
from rangecast.model.kernels import mix
from rangecast.simd.compiler import allocating_kernel, kernel

_M1 = np.uint64(0x5555555555555555)
_M2 = np.uint64(0x3333333333333333)
_M4 = np.uint64(0x0F0F0F0F0F0F0F0F)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_SIXTEEN = np.uint64(16)
_HALF = np.uint64(32)
_LOW = np.uint64(127)


class RectangleRuns(NamedTuple):
    """Runs of entries; papers/vcr/structures.py tells what the arrays are."""

    stride: int
    shift: int
    planes: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint64]
    ranks: npt.NDArray[np.int32]
    heads: npt.NDArray[np.int32]
    starts: npt.NDArray[np.uint8]
    entries: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


@kernel
def _bits(x):
    """How many bits are set; sums instead of a product, which would overflow."""
    x = x - ((x >> _ONE) & _M1)
    x = (x & _M2) + ((x >> _TWO) & _M2)
    x = (x + (x >> _FOUR)) & _M4
    x = x + (x >> _EIGHT)
    x = x + (x >> _SIXTEEN)
    x = x + (x >> _HALF)
    return np.int64(x & _LOW)


@kernel
def _rank(place, words, ranks):
    """How many buckets before this place hold something."""
    w = place >> 6
    below = (_ONE << np.uint64(place & 63)) - _ONE
    return ranks[w] + _bits(words[w] & below)


@kernel
def _aligned(y, last, k):
    """The largest j <= k for which y is a multiple of 2**j and the block at y ends by `last`."""
    j = 0
    while j < k and (y >> j) & 1 == 0 and y + (2 << j) - 1 <= last:
        j += 1
    return j


@kernel
def count_blocks(y0, y1, k):
    """How many aligned blocks of at most 2**k cells make y0..y1."""
    n = 0
    y = y0
    while y <= y1:
        y += 1 << _aligned(y, y1, k)
        n += 1
    return n


@kernel
def count_pieces(x0s, x1s, y0s, y1s, kx, ky, across, upward):
    """across[k, r], upward[k, r] = pieces of rectangle r along x, y when sizes stop at 2**k."""
    for r in range(x0s.size):
        w = x1s[r] - x0s[r] + 1
        for k in range(kx + 1):
            n = w >> k
            rest = w & ((1 << k) - 1)
            while rest:
                rest &= rest - 1
                n += 1
            across[k, r] = n
        for k in range(ky + 1):
            upward[k, r] = count_blocks(y0s[r], y1s[r], k)


@allocating_kernel
def count_planes(x0s, x1s, y0s, y1s, kinds, kx, ky, counts):
    """counts[kind, i, j] += entries of constructs of 2**i by 2**j cells."""
    tops = np.empty(ky + 1, np.int64)
    for r in range(x0s.size):
        tops[:] = 0
        y = y0s[r]
        while y <= y1s[r]:
            j = _aligned(y, y1s[r], ky)
            tops[j] += 1
            y += 1 << j
        w = x1s[r] - x0s[r] + 1
        i = kx
        while w > 0:
            n = w >> i
            if n:
                for j in range(ky + 1):
                    counts[kinds[r], i, j] += n * tops[j]
                w -= n << i
            i -= 1


@kernel
def fill_keys(x0s, x1s, y0s, y1s, kinds, values, kx, ky, bases, stride, keys, entries):
    """Cut each rectangle; keys[p] = the place of a construct, entries[p] = whose it is."""
    p = 0
    for r in range(x0s.size):
        y = y0s[r]
        while y <= y1s[r]:
            j = _aligned(y, y1s[r], ky)
            x = x0s[r]
            i = kx
            while x <= x1s[r]:
                while x + (1 << i) - 1 > x1s[r]:
                    i -= 1
                keys[p] = bases[kinds[r], i, j] + (y >> j) * stride + x
                entries[p] = values[r]
                p += 1
                x += 1 << i
            y += 1 << j
    return p


@kernel
def interleave(xs, ys, out):
    """out[r] = the bits of xs[r] and ys[r] in turn: the place on the Z curve."""
    for r in range(xs.size):
        z = 0
        for bit in range(15):
            z |= ((xs[r] >> bit) & 1) << (2 * bit)
            z |= ((ys[r] >> bit) & 1) << (2 * bit + 1)
        out[r] = z


@allocating_kernel
def sort_pass(keys, entries, shift, out_keys, out_entries):
    """One stable pass of a radix sort by eleven bits of the keys."""
    starts = np.zeros(2049, np.int64)
    for p in range(keys.size):
        starts[((keys[p] >> shift) & 2047) + 1] += 1
    for d in range(2048):
        starts[d + 1] += starts[d]
    for p in range(keys.size):
        d = (keys[p] >> shift) & 2047
        q = starts[d]
        out_keys[q] = keys[p]
        out_entries[q] = entries[p]
        starts[d] = q + 1


@kernel
def count_buckets(keys, most, out):
    """out[s] = how many buckets of 2**s places hold something, for sorted keys and s <= most."""
    for s in range(most + 1):
        out[s] = 1 if keys.size else 0
    for p in range(1, keys.size):
        apart = keys[p] ^ keys[p - 1]
        s = 0
        while apart and s <= most:
            out[s] += 1
            apart >>= 1
            s += 1


@kernel
def fill_buckets(keys, runs):
    """Mark the buckets that hold something and note where each begins."""
    shift = runs.shift
    words = runs.words
    heads = runs.heads
    starts = runs.starts
    k = 0
    last = -1
    for p in range(keys.size):
        place = keys[p] >> shift
        if place != last:
            last = place
            words[place >> 6] |= _ONE << np.uint64(place & 63)
            heads[k] = p
            k += 1
        if starts.size:
            starts[p] = keys[p] & ((1 << shift) - 1)
    heads[k] = keys.size
    before = 0
    for w in range(words.size):
        runs.ranks[w] = before
        before += _bits(words[w])


@kernel
def _first_at_least(starts, a, b, bound):
    """The first place in a..b whose start is not below the bound; a bucket is in ascending order."""
    while b - a > 16:
        middle = (a + b) >> 1
        if starts[middle] < bound:
            a = middle + 1
        else:
            b = middle
    while a < b and starts[a] < bound:
        a += 1
    return a


@kernel
def find_runs(x, y, runs, found):
    """found[2r], found[2r + 1] = the entries of plane r whose constructs hold the cell (x, y).

    Returns how many entries there are.
    """
    planes = runs.planes
    shift = runs.shift
    words = runs.words
    ranks = runs.ranks
    heads = runs.heads
    starts = runs.starts
    total = 0
    inside = (1 << shift) - 1
    for r in range(planes.shape[0]):
        i = planes[r, 1]
        row = planes[r, 3] + (y >> planes[r, 2]) * runs.stride
        low = x - (1 << i) + 1
        if low < 0:
            low = 0
        first = (row + low) >> shift
        last = (row + x) >> shift
        k = _rank(first, words, ranks)
        m = _rank(last + 1, words, ranks)
        a = heads[k]
        b = heads[m]
        if shift and a < b:
            # the first and the last bucket may hold constructs that begin too early or too late
            f = heads[k + np.int64((words[first >> 6] >> np.uint64(first & 63)) & _ONE)]
            g = heads[m - np.int64((words[last >> 6] >> np.uint64(last & 63)) & _ONE)]
            a = _first_at_least(starts, a, f, low & inside)
            if g < a:
                g = a
            b = _first_at_least(starts, g, b, (x & inside) + 1)
        found[2 * r] = a
        found[2 * r + 1] = b
        total += b - a
    return total


@kernel
def estimate(xs, ys, runs, found):
    """How many entries a batch will look at."""
    total = 0
    for e in range(xs.size):
        total += find_runs(xs[e], ys[e], runs, found)
    return total


@kernel
def stab_runs(codes, xs, ys, runs, n_whole, tested, boxes, found, state, offsets, out):
    """Copy the runs of whole planes, check those of crossed ones.

    state[0] is the event to go on with, state[1] the matches written; returns False when `out` has
    no room for the next event. The first n_whole planes are whole: an entry of these is a slot when no
    other attribute is checked; otherwise a box whose attributes in `checked` are to be looked at; of crossed
    planes it is a box, and `tested` lists all attributes that matter.
    """
    lows = boxes.lows
    highs = boxes.highs
    entries = runs.entries
    copied = runs.checked.size == 0
    p = state[1]
    for e in range(state[0], xs.size):
        total = find_runs(xs[e], ys[e], runs, found)
        if p + total > out.size:
            state[0] = e
            state[1] = p
            return False
        offsets[e] = p
        for r in range(runs.planes.shape[0]):
            a = found[2 * r]
            b = found[2 * r + 1]
            if copied and r < n_whole:
                for q in range(b - a):
                    out[p + q] = entries[a + q]
                p += b - a
                continue
            attributes = runs.checked if r < n_whole else tested
            for q in range(a, b):
                box = entries[q]
                hit = True
                for k in range(attributes.size):
                    j = attributes[k]
                    v = codes[j, e]
                    if v < lows[j, box] or highs[j, box] < v:
                        hit = False
                        break
                if hit:
                    out[p] = boxes.slots[box]
                    p += 1
    offsets[xs.size] = p
    state[0] = xs.size
    state[1] = p
    return True


# The geometry of construct rectangles: ids, cutting along an axis, the covering set.


@kernel
def construct_id(x, y, i, j, rx, kx, ky):
    """The number of the construct (x, y, 2**i, 2**j), corners scanned row by row."""
    return (kx + 1) * (ky + 1) * (x + y * rx) + j * (kx + 1) + i


@kernel
def count_along(length, k, overlapped):
    """How many constructs an axis of this length (at least 1) is cut into."""
    i = k
    while (1 << i) > length:
        i -= 1
    if overlapped:
        return (length + (1 << i) - 1) >> i
    n = 0
    while length > 0:
        while (1 << i) > length:
            i -= 1
        n += length >> i
        length -= (length >> i) << i
    return n


@kernel
def cut_along(first, length, k, overlapped, starts, logs):
    """Cut an axis from `first` on: where each construct begins and the logarithm of its size.

    One axis of figure 2 (lines 3, 4 and 13 for heights, 6 to 11 for widths) and of figure 4 (overlapped):
    transcript.py has them as printed. The heights of the strips do not depend on the widths in a strip, so
    a rectangle's constructs are every width beside every height.

    Simple: the largest that fits, then the largest that fits the rest. Overlapped: all of one size,
    and the last is moved back so that it ends where the axis ends. Returns how many there are.
    """
    end = first + length
    n = 0
    i = k
    while (1 << i) > length:
        i -= 1
    at = first
    while at < end:
        if not overlapped:
            while at + (1 << i) > end:
                i -= 1
        elif at + (1 << i) > end:
            at = end - (1 << i)
        starts[n] = at
        logs[n] = i
        n += 1
        at += 1 << i
    return n


@kernel
def cover_point(a, b, rx, kx, ky, out):
    """out = the ids, ascending, of all constructs that hold the point (a, b); returns how many.

    Corners left of or below the origin do not exist, so a point near these borders has fewer.
    """
    n = 0
    for y in range(max(b - (1 << ky), 0), b + 1):
        for x in range(max(a - (1 << kx), 0), a + 1):
            for j in range(ky + 1):
                if y + (1 << j) >= b:
                    for i in range(kx + 1):
                        if x + (1 << i) >= a:
                            out[n] = construct_id(x, y, i, j, rx, kx, ky)
                            n += 1
    return n


# Lists of boxes per construct, linked within arrays: adding, taking out, stabbing.
#
# A construct has a place: its id, or where the hash table keeps it when `keys` is not empty. Its list
# begins at heads[place]; nodes[q] is a box and the node that follows, -1 at the end. Nodes that
# were taken out are a list of their own, to be used again.

# fields of `state`
_FREE = 0  # first node of those taken out, or -1
_USED = 1  # nodes ever used
_LISTED = 2  # nodes in lists
_KEYS = 3  # keys in the hash table, those whose list is empty too
_ACTIVE = 4  # constructs whose list is not empty


class RectangleLists(NamedTuple):
    """The lists; papers/vcr/structures.py tells what the arrays are."""

    heads: npt.NDArray[np.int32]
    keys: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int32]
    needs: npt.NDArray[np.uint8]
    distances: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]


class Cutting(NamedTuple):
    """How rectangles are cut, and room for the cuts of one along x and along y."""

    rx: int
    kx: int
    ky: int
    overlapped: bool
    xs: npt.NDArray[np.int64]
    x_logs: npt.NDArray[np.int64]
    ys: npt.NDArray[np.int64]
    y_logs: npt.NDArray[np.int64]


@kernel
def _cut(x0, x1, y0, y1, cutting):
    """Cut one rectangle, whose sides count as one at least; returns how many cuts there are each way."""
    nx = cut_along(x0, max(x1 - x0, 1), cutting.kx, cutting.overlapped, cutting.xs, cutting.x_logs)
    ny = cut_along(y0, max(y1 - y0, 1), cutting.ky, cutting.overlapped, cutting.ys, cutting.y_logs)
    return nx, ny


@kernel
def _construct_of(u, v, cutting):
    """The id of a construct of the rectangle that was cut last."""
    x_log = cutting.x_logs[u]
    y_log = cutting.y_logs[v]
    return construct_id(cutting.xs[u], cutting.ys[v], x_log, y_log, cutting.rx, cutting.kx, cutting.ky)


@kernel
def _find(key, keys):
    """Where a key stands, or the empty place where it would."""
    p = np.int64(mix(np.uint64(key)) % np.uint64(keys.size))
    while keys[p] != key and keys[p] != -1:
        p += 1
        if p == keys.size:
            p = np.int64(0)
    return p


@kernel
def count_list_pieces(x0s, x1s, y0s, y1s, kx, ky, overlapped, out):
    """out[r] = how many constructs rectangle r is cut into; one cell counts as a side of one."""
    for r in range(x0s.size):
        w = max(x1s[r] - x0s[r], 1)
        h = max(y1s[r] - y0s[r], 1)
        out[r] = count_along(w, kx, overlapped) * count_along(h, ky, overlapped)


@kernel
def insert(x0s, x1s, y0s, y1s, numbers, first, cutting, most_keys, lists):
    """List boxes from rectangle `first` on; stops where the table may become too full, returns where."""
    heads = lists.heads
    keys = lists.keys
    nodes = lists.nodes
    state = lists.state
    for r in range(first, x0s.size):
        nx, ny = _cut(x0s[r], x1s[r], y0s[r], y1s[r], cutting)
        if keys.size and state[_KEYS] + nx * ny > most_keys:
            return r
        for v in range(ny):
            for u in range(nx):
                place = _construct_of(u, v, cutting)
                if keys.size:
                    key = place
                    place = _find(key, keys)
                    if keys[place] == -1:
                        keys[place] = key
                        state[_KEYS] += 1
                q = state[_FREE]
                if q >= 0:
                    state[_FREE] = nodes[q, 1]
                else:
                    q = state[_USED]
                    state[_USED] = q + 1
                if heads[place] < 0:
                    state[_ACTIVE] += 1
                nodes[q, 1] = heads[place]
                nodes[q, 0] = numbers[r]
                heads[place] = q
                state[_LISTED] += 1
    return x0s.size


@kernel
def remove(x0s, x1s, y0s, y1s, numbers, cutting, lists):
    """Cut each rectangle as when it came and unlink its box from the lists."""
    heads = lists.heads
    nodes = lists.nodes
    for r in range(x0s.size):
        nx, ny = _cut(x0s[r], x1s[r], y0s[r], y1s[r], cutting)
        for v in range(ny):
            for u in range(nx):
                place = _construct_of(u, v, cutting)
                if lists.keys.size:
                    place = _find(place, lists.keys)
                before = np.int64(-1)
                q = np.int64(heads[place])
                while nodes[q, 0] != numbers[r]:
                    before = q
                    q = np.int64(nodes[q, 1])
                if before < 0:
                    heads[place] = nodes[q, 1]
                else:
                    nodes[before, 1] = nodes[q, 1]
                _release(q, place, lists)


@kernel
def sweep(doomed, lists):
    """Unlink all nodes of doomed boxes in one pass over all lists."""
    heads = lists.heads
    nodes = lists.nodes
    for place in range(heads.size):
        before = np.int64(-1)
        q = np.int64(heads[place])
        while q >= 0:
            following = np.int64(nodes[q, 1])
            if doomed[nodes[q, 0]]:
                if before < 0:
                    heads[place] = following
                else:
                    nodes[before, 1] = following
                _release(q, place, lists)
            else:
                before = q
            q = following


@kernel
def _release(q, place, lists):
    lists.nodes[q, 1] = lists.state[_FREE]
    lists.state[_FREE] = q
    lists.state[_LISTED] -= 1
    if lists.heads[place] < 0:
        lists.state[_ACTIVE] -= 1


@kernel
def rehash(keys, heads, new_keys, new_heads, state):
    """Move all lists that are not empty into a larger table."""
    state[_KEYS] = 0
    for p in range(keys.size):
        if keys[p] != -1 and heads[p] >= 0:
            q = _find(keys[p], new_keys)
            new_keys[q] = keys[p]
            new_heads[q] = heads[p]
            state[_KEYS] += 1


@kernel
def measure_probes(keys, heads, out):
    """out = the sum of the probes that find each activated construct, and the most of one."""
    for p in range(keys.size):
        if keys[p] != -1 and heads[p] >= 0:
            home = np.int64(mix(np.uint64(keys[p])) % np.uint64(keys.size))
            probes = p - home + 1 if p >= home else p + keys.size - home + 1
            out[0] += probes
            out[1] = max(out[1], probes)


@kernel
def _copy_list(place, e, p, tick, lists, codes, tested, boxes, stamps, out):
    """Write the slots of one list that match and were not met yet; -1 when `out` is full."""
    if lists.keys.size:
        place = _find(place, lists.keys)
    needs = lists.needs
    q = np.int64(lists.heads[place])
    while q >= 0:
        box = lists.nodes[q, 0]
        q = np.int64(lists.nodes[q, 1])
        if stamps[box] == tick:
            continue
        stamps[box] = tick
        if needs.size and needs[box] and not holds_dense(boxes, box, codes, tested, e):
            continue
        if p == out.size:
            return -1
        out[p] = boxes.slots[box]
        p += 1
    return p


@kernel
def stab_lists(codes, cells_x, cells_y, rx, kx, ky, lists, tested, boxes, stamps, progress, offsets, out):
    """Look at each construct that may hold a point; returns False when `out` has no room.

    progress: the event to go on with, matches written, and the stamp last used. Points far enough
    from the left and lower border add the distances to their pivot; others, or all when there are no
    distances, work out each id.
    """
    distances = lists.distances
    width = 1 << kx
    height = 1 << ky
    p = progress[1]
    tick = progress[2]
    for e in range(progress[0], cells_x.size):
        offsets[e] = p
        # a stamp of its own for each try of each event: constructs overlap, and a box comes once
        tick += 1
        a = np.int64(cells_x[e])
        b = np.int64(cells_y[e])
        if distances.size and a >= width and b >= height:
            # the gaps between covering constructs are the same everywhere: one table of them serves all
            pivot = construct_id(a - width, b - height, 0, 0, rx, kx, ky)
            for k in range(distances.size):
                p = _copy_list(pivot + distances[k], e, p, tick, lists, codes, tested, boxes, stamps, out)
                if p < 0:
                    break
        else:
            for y in range(max(b - height, 0), b + 1):
                for x in range(max(a - width, 0), a + 1):
                    for j in range(ky + 1):
                        if y + (1 << j) < b:
                            continue
                        for i in range(kx + 1):
                            if x + (1 << i) < a or p < 0:
                                continue
                            place = construct_id(x, y, i, j, rx, kx, ky)
                            p = _copy_list(place, e, p, tick, lists, codes, tested, boxes, stamps, out)
        # the event begins anew when there is more room
        if p < 0:
            progress[0] = e
            progress[1] = offsets[e]
            progress[2] = tick
            return False
    offsets[cells_x.size] = p
    progress[0] = cells_x.size
    progress[1] = p
    return True
