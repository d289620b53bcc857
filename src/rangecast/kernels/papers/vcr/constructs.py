"""The geometry of construct rectangles: ids, cutting along an axis, the covering set."""

from __future__ import annotations

from rangecast.simd.compiler import kernel


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
