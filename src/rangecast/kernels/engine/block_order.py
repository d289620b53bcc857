"""An order of boxes in which those of a block lie near each other, so that an event can skip blocks.

A set of boxes is cut in two at one end on one attribute, and each side again by itself, down to one block.
engine/bitmap.py tells what was tried.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import allocating_kernel
from rangecast.kernels.machine.bitsets import WORDS

BLOCK = 64 * WORDS
_KEYS = 256
_SAMPLED = 2048
_LEAST_SHARE = 1 / 32


@allocating_kernel
def cut_blocks(ends, sizes, order):
    """Put boxes into an order in which those of a block lie near each other, and their ends along with them.

    ends[i] = the first and the last cell of box i on each attribute, one pair after the other, of which
    attribute k has sizes[k]. A set is cut at a first or a last cell, where what is looked at is least, were
    an event as likely in one cell as in another: of either side so many boxes as it has, times the
    cells that they cover. Ends are counted in a sample of each set.
    """
    n, n_keys = ends.shape
    stack = np.empty((n // BLOCK + 2, 2), np.int64)
    stack[0, 0] = 0
    stack[0, 1] = n
    depth = 1
    counts = np.empty(_KEYS, np.int64)
    # per key the outermost other end
    others = np.empty(_KEYS, np.int64)
    beyond = np.empty(_KEYS + 1, np.int64)
    kept = np.empty_like(ends)
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
        for key in range(n_keys):
            upper = key & 1
            # cells are counted from the far side for last ones, so that both kinds look alike: a key, and the
            # other end, which is not before it
            top = sizes[key >> 1] - 1
            counts[: top + 1] = 0
            others[: top + 1] = 0
            outermost = np.int64(0)
            least = np.int64(top)
            for i in range(a, b, step):
                c = np.int64(ends[i, key])
                other = np.int64(ends[i, key ^ 1])
                if upper:
                    c = top - c
                    other = top - other
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
        upper = best_key & 1
        top = sizes[best_key >> 1] - 1
        n_near = min(max(np.int64(best_share * size / BLOCK + 0.5), 1), n_blocks - 1) * BLOCK
        if upper:
            # the near side is that of large cells, and whole blocks stand in front
            n_near = min(max(np.int64((1 - best_share) * size / BLOCK + 0.5), 1), n_blocks - 1) * BLOCK
        counts[: top + 1] = 0
        for i in range(a, b):
            counts[ends[i, best_key]] += 1
        cut = 0
        below = 0
        while below + counts[cut] <= n_near:
            below += counts[cut]
            cut += 1
        ties = n_near - below
        p = a
        r = a + n_near
        for i in range(a, b):
            c = ends[i, best_key]
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
            for key in range(n_keys):
                kept[to, key] = ends[i, key]
        order[a:b] = kept_order[a:b]
        ends[a:b] = kept[a:b]
        stack[depth, 0] = a
        stack[depth, 1] = a + n_near
        stack[depth + 1, 0] = a + n_near
        stack[depth + 1, 1] = b
        depth += 2
