"""An order of boxes in which those of a block lie near each other, so that an event can skip blocks.

A set of boxes is cut in two at one end on one attribute, and each side again by itself, down to one block.
engine/bitmap.py tells what was tried.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.engine.bitmap_building import BLOCK, TOP
from rangecast.simd.compiler import allocating_kernel, inlined_kernel

_KEYS = 256
_SAMPLED = 2048
_LEAST_SHARE = 1 / 32


@allocating_kernel
def cut_blocks(bounds, keys, sizes, order):
    """Put boxes into an order in which those of a block lie near each other: their fields, and `order` along.

    bounds[i] has the fields of box i (bitmap_building.py), of which those in `keys` are cut at; field 2k and
    field 2k + 1 are about an attribute with sizes[k] cells. A set is cut at a first or a last cell, where
    what is looked at is least, were an event as likely in one cell as in another: of either side so many
    boxes as it has, times the cells that they cover. Ends are counted in a sample of each set.
    """
    n, width = bounds.shape
    stack = np.empty((n // BLOCK + 2, 2), np.int64)
    stack[0, 0] = 0
    stack[0, 1] = n
    depth = 1
    counts = np.empty(_KEYS, np.int64)
    # per key the outermost other end
    others = np.empty(_KEYS, np.int64)
    beyond = np.empty(_KEYS + 1, np.int64)
    kept = np.empty_like(bounds)
    kept_order = np.empty_like(order)
    while depth > 0:
        depth -= 1
        a = stack[depth, 0]
        b = stack[depth, 1]
        size = b - a
        if size <= BLOCK:
            continue
        step = max(1, size // _SAMPLED)
        sampled = (size + step - 1) // step
        best = np.inf
        best_key = -1
        best_share = 0.5
        for at in range(keys.size):
            key = keys[at]
            top = sizes[key >> 1] - 1
            counts[: top + 1] = 0
            others[: top + 1] = 0
            outermost = np.int64(0)
            least = np.int64(top)
            for i in range(a, b, step):
                # cells are counted from the far side for last ones, so that both kinds look alike: a key, and
                # the other end, which is not before it
                c = _from_own_side(bounds[i, key], key, top)
                other = top - _from_own_side(bounds[i, key ^ 1], key ^ 1, top)
                counts[c] += 1
                others[c] = max(others[c], other)
                outermost = max(outermost, other)
                least = min(least, c)
            # a box that holds nothing may end before it begins
            whole = max(outermost - least + 1, 1)
            beyond[top + 1] = 0
            for cell in range(top, -1, -1):
                beyond[cell] = max(beyond[cell + 1], others[cell] if counts[cell] > 0 else 0)
            before = 0
            covered = 0
            for cell in range(least, top + 1):
                if before > 0 and counts[cell] > 0:
                    share = before / sampled
                    if _LEAST_SHARE <= share <= 1 - _LEAST_SHARE:
                        near = (covered - least + 1) * share
                        far = (beyond[cell] - cell + 1) * (1 - share)
                        cost = (near + far) / whole
                        if cost < best:
                            best = cost
                            best_key = key
                            best_share = share
                if counts[cell] > 0:
                    before += counts[cell]
                    covered = max(covered, others[cell])
        if best_key < 0:
            continue
        n_blocks = (size + BLOCK - 1) // BLOCK
        top = sizes[best_key >> 1] - 1
        n_near = min(max(np.int64(best_share * size / BLOCK + 0.5), 1), n_blocks - 1) * BLOCK
        counts[: top + 1] = 0
        for i in range(a, b):
            counts[_from_own_side(bounds[i, best_key], best_key, top)] += 1
        cut = 0
        below = 0
        while below + counts[cut] <= n_near:
            below += counts[cut]
            cut += 1
        ties = n_near - below
        p = a
        r = a + n_near
        for i in range(a, b):
            c = _from_own_side(bounds[i, best_key], best_key, top)
            front = c < cut
            if c == cut and ties > 0:
                front = True
                ties -= 1
            if front:
                to = p
                p += 1
            else:
                to = r
                r += 1
            kept_order[to] = order[i]
            for q in range(width):
                kept[to, q] = bounds[i, q]
        order[a:b] = kept_order[a:b]
        bounds[a:b] = kept[a:b]
        stack[depth, 0] = a
        stack[depth, 1] = a + n_near
        stack[depth + 1, 0] = a + n_near
        stack[depth + 1, 1] = b
        depth += 2


@inlined_kernel
def _from_own_side(field, key, top):
    """The cell of an end, counted from 0 for first ones and from the last cell down for last ones."""
    return max(np.int64(field) - (TOP - top if key & 1 else 1), 0)
