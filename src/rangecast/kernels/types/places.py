"""Whether points lie in regions: circles on the sphere, and polygons on a grid of whole numbers.

A point is a code (types/places.py): its latitude above 32 bits, its longitude below, both in units of 1e-7
degrees and counted from the south pole and from 180 degrees west. A polygon has its corners on the same grid,
so that which side of an edge a point is on is a matter of whole numbers, and the border is exact. A circle is
the points whose straight line through the sphere to its centre is not longer than its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.simd.compiler import inlined_kernel, kernel

SCALE = 10_000_000
"""Units of a degree."""

WEST = 180 * SCALE
SOUTH = 90 * SCALE
_TURN = 360 * SCALE
_LOW_BITS = (1 << 32) - 1
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max
_DECIDED = 1 << 33
_RADIANS = np.pi / (180.0 * SCALE)


class RegionArrays(NamedTuple):
    """Regions, numbered from 1: a point is in one when it is in all of its areas, and in no denied one.

    array           dtype     area           meaning
    starts          int64     n_regions + 1   where the areas of a region begin in `named`
    named           int64     n_named         1 more than the number of an area; negative where it is denied
    areas          int64     n_areas        the number k of a circle, or -1 - k for a polygon
    circles         float64   (n_circles, 4)  centre on the unit sphere, and the square of its chord
    extents          int64     (n_polygons, 4) west, south, east and north end; counted from 0 degrees
    polygon_starts  int64     n_polygons + 1  where its parts begin: a point in any of them is in it
    part_starts     int64     n_parts + 1     where the rings of a part begin: its outline and its holes
    ring_starts     int64     n_rings + 1     where the corners of a ring begin; the last is the first again
    xs, ys          int64     n_corners       counted from 0 degrees
    lone_circles    int64     n_regions       the circle of a region that is one circle and no more, or -1
    """

    starts: Any
    named: Any
    areas: Any
    circles: Any
    extents: Any
    polygon_starts: Any
    part_starts: Any
    ring_starts: Any
    xs: Any
    ys: Any
    lone_circles: Any


@inlined_kernel
def _side(ax, ay, bx, by, x, y):
    """The sign of (bx - ax)(y - ay) - (x - ax)(by - ay): of products of up to 64 bits, so in two halves."""
    width = bx - ax
    reach = x - ax
    rise = by - ay
    up = y - ay
    high = (width >> 16) * up - (reach >> 16) * rise
    if high > _DECIDED:
        return 1
    if high < -_DECIDED:
        return -1
    whole = (high << 16) + (width & 65535) * up - (reach & 65535) * rise
    return 1 if whole > 0 else -1 if whole < 0 else 0


@kernel
def in_polygon(regions, k, x, y):
    """Whether a polygon holds a point, its border included; its parts by the even-odd rule."""
    xs = regions.xs
    ys = regions.ys
    for part in range(regions.polygon_starts[k], regions.polygon_starts[k + 1]):
        odd = False
        for ring in range(regions.part_starts[part], regions.part_starts[part + 1]):
            for i in range(regions.ring_starts[ring], regions.ring_starts[ring + 1] - 1):
                ay = ys[i]
                by = ys[i + 1]
                if (y < ay and y < by) or (y > ay and y > by):
                    continue
                ax = xs[i]
                bx = xs[i + 1]
                if x > ax and x > bx:
                    continue
                if ay == by:
                    if x >= ax or x >= bx:
                        return True
                    continue
                if ay > by:
                    ax, bx = bx, ax
                    ay, by = by, ay
                if x < ax and x < bx:
                    side = 1
                else:
                    side = _side(ax, ay, bx, by, x, y)
                    if side == 0:
                        return True
                # an edge without its upper end, so that a corner counts once
                odd ^= side > 0 and y < by
        if odd:
            return True
    return False


@inlined_kernel
def in_circle(regions, k, code, spheres, j, e):
    """Whether circle k holds the point of event e; spheres[j] has its place on the unit sphere once it is
    known, and 1 more than the number of its event."""
    if spheres[j, 3] != e + 1.0:
        longitude = (code & _LOW_BITS) - WEST
        latitude = (code >> 32) - SOUTH
        flat = np.cos(latitude * _RADIANS)
        spheres[j, 0] = flat * np.cos(longitude * _RADIANS)
        spheres[j, 1] = flat * np.sin(longitude * _RADIANS)
        spheres[j, 2] = np.sin(latitude * _RADIANS)
        spheres[j, 3] = e + 1.0
    circles = regions.circles
    dx = spheres[j, 0] - circles[k, 0]
    dy = spheres[j, 1] - circles[k, 1]
    dz = spheres[j, 2] - circles[k, 2]
    return dx * dx + dy * dy + dz * dz <= circles[k, 3]


@kernel
def _in_area(regions, area, code, spheres, j, e):
    """Whether an area holds the point of event e; `spheres` as in `in_circle`."""
    k = regions.areas[area]
    longitude = (code & _LOW_BITS) - WEST
    latitude = (code >> 32) - SOUTH
    if k < 0:
        k = -1 - k
        extents = regions.extents
        if latitude < extents[k, 1] or latitude > extents[k, 3]:
            return False
        # a polygon over the date line goes on beyond 180 degrees
        for turn in range(-1, 2):
            x = longitude + turn * _TURN
            if extents[k, 0] <= x <= extents[k, 2] and in_polygon(regions, k, x, latitude):
                return True
        return False
    return in_circle(regions, k, code, spheres, j, e)


@inlined_kernel
def in_region(regions, number, code, spheres, j, e):
    """Whether a region, by its place in `starts`, holds the point of event e."""
    for i in range(regions.starts[number], regions.starts[number + 1]):
        name = regions.named[i]
        area = abs(name) - 1
        if _in_area(regions, area, code, spheres, j, e) != (name > 0):
            return False
    return True


@inlined_kernel
def in_any_region(regions, base, count, low, high, code, spheres, j, e):
    """Whether the regions that a span of an attribute names hold a point, one of them at least.

    An event has as values of the attribute the regions that its point is in, and LAST for being there at all;
    regions of the attribute are base .. base + count.
    """
    if code == _MISSING:
        return low == _MISSING
    if high == _LAST:
        return True
    for number in range(max(low, 1) - 1, min(high, count)):
        if in_region(regions, base + number, code, spheres, j, e):
            return True
    return False


@kernel
def mark_inside(regions, number, codes, spheres, out):
    """out[e] = 1 where a region holds point e, 0 where it does not; missing points are in none."""
    for e in range(codes.size):
        out[e] = codes[e] != _MISSING and in_region(regions, number, codes[e], spheres, 0, e)
