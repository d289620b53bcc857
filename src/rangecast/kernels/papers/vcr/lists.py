"""Lists of boxes per construct, linked within arrays: adding, taking out, stabbing.

A construct has a place: its id, or where the hash table keeps it when `keys` is not empty. Its list
begins at heads[place]; nodes[q] is a box and the node that follows, -1 at the end. Nodes that
were taken out are a list of their own, to be used again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds_dense
from rangecast.kernels.model.ids import mix
from rangecast.kernels.papers.vcr.constructs import construct_id, count_along, cut_along
from rangecast.simd.compiler import kernel

# fields of `state`
_FREE = 0  # first node of those taken out, or -1
_USED = 1  # nodes ever used
_LISTED = 2  # nodes in lists
_KEYS = 3  # keys in the hash table, those whose list is empty too
_ACTIVE = 4  # constructs whose list is not empty


class RectangleLists(NamedTuple):
    """The lists; papers/vcr/lists.py tells what the arrays are."""

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
def count_pieces(x0s, x1s, y0s, y1s, kx, ky, overlapped, out):
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
def stab(codes, cells_x, cells_y, rx, kx, ky, lists, tested, boxes, stamps, progress, offsets, out):
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
