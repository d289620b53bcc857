"""Dropping what the covering of a region has found and whose point is not in it (engine/checked_slots.py)."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.types.places import in_any_region, in_circle, in_region
from rangecast.language.kernels import SET, find_set, first_check, in_spans_or_list
from rangecast.simd.compiler import inlined_kernel, kernel

_POSITION = SET - 1
_MISSING = np.iinfo(np.int64).min


@inlined_kernel
def _holds(boxes, lists, box, codes, e, bases, counts, regions, spheres):
    """Whether a box holds event e. bases[j] is -1 unless attribute j is of points; then its regions are
    bases[j] .. bases[j] + counts[j]. The last attributes first: they are the coverings."""
    for i in range(boxes.starts[box + 1] - 1, boxes.starts[box] - 1, -1):
        at = boxes.attributes[i]
        j = at & _POSITION
        v = codes[j, e]
        if bases[j] < 0:
            if v < boxes.lows[i] or boxes.highs[i] < v:
                return False
            if at & SET and not in_spans_or_list(boxes, lists, find_set(boxes, i), v):
                return False
        elif at & SET:
            number = find_set(boxes, i)
            held = False
            for k in range(boxes.set_starts[number], boxes.set_starts[number + 1]):
                low = boxes.set_lows[k]
                high = boxes.set_highs[k]
                if in_any_region(regions, bases[j], counts[j], low, high, v, spheres, j, e):
                    held = True
                    break
            if not held:
                return False
        elif not in_any_region(regions, bases[j], counts[j], boxes.lows[i], boxes.highs[i], v, spheres, j, e):
            return False
    return True


@kernel
def drop_outside(
    codes,
    offsets,
    slots,
    checks,
    boxes,
    lists,
    tail,
    bases,
    counts,
    regions,
    position,
    lone,
    checked,
    spheres,
    out_offsets,
):
    """As `drop_unheld` (kernels/model/boxes.py), where some attributes are of points.

    `spheres` (d, 4) is scratch, of zeros. Returns the new size.
    """
    p = np.int64(0)
    n = np.int64(boxes.owners.size)
    for e in range(offsets.size - 1):
        first = offsets[e]
        out_offsets[e] = p
        v = codes[position, e]
        for q in range(first, offsets[e + 1]):
            s = slots[q]
            # a bit per slot stays in the caches where a number per slot does not: most that is found among
            # subscriptions of all kinds is not checked
            if not (checked[s >> 3] >> (s & 7)) & 1:
                slots[p] = s
                p += 1
                continue
            region = np.int64(lone[s])
            # most slots ask for one region, which decides: following a box to it takes ten loads from memory
            # that depend on one another, this takes three
            if 0 < region <= counts[position] and v != _MISSING:
                circle = regions.lone_circles[bases[position] + region - 1]
                if circle >= 0:
                    held = in_circle(regions, circle, v, spheres, position, e)
                else:
                    held = in_region(regions, bases[position] + region - 1, v, spheres, position, e)
                if held:
                    slots[p] = s
                    p += 1
                continue
            box = first_check(np.int64(checks[s]), s, tail)
            kept = box < 0
            while not kept and box < n and boxes.owners[box] == s:
                kept = _holds(boxes, lists, box, codes, e, bases, counts, regions, spheres)
                box += 1
            if kept:
                slots[p] = s
                p += 1
    out_offsets[offsets.size - 1] = p
    return p
