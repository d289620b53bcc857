"""Positions on three curves that divide a universe again and again: Z, Gray and Hilbert.

A standard cube is one run of each of them, so the paper's upper bound holds for all (section 3.2); how many
runs a region is differs. The covering paper searches along Z and names the other two.

    curve     position of a cell                                        source
    z         its coordinates with their bits interleaved               Morton 1966
    gray      the rank of those bits as a Gray code                     Faloutsos 1986
    hilbert   the bits after undoing, from the top, each cube's turns   Hilbert 1891, by Skilling's steps
                                                                        ("Programming the Hilbert curve")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import CapacityError, OptionError

CURVES = ("z", "gray", "hilbert")
MOST_CELLS = 1 << 24
Positions = npt.NDArray[np.int64]


def positions(curve: str, cells: npt.NDArray[np.int64], bits: int) -> Positions:
    """Where cells lie on a curve; `cells` has a row per dimension.

    >>> square = np.array([[0, 0, 1, 1], [0, 1, 1, 0]])
    >>> {curve: positions(curve, square, 1).tolist() for curve in CURVES}
    {'z': [0, 1, 3, 2], 'gray': [0, 1, 2, 3], 'hilbert': [0, 1, 2, 3]}
    """
    if curve not in CURVES:
        raise OptionError(f"curve must be one of {', '.join(CURVES)}, got {curve!r}")
    if len(cells) * bits > 62:
        raise CapacityError(f"positions must fit 62 bits, got {len(cells)} dimensions of {bits} bits")
    if curve == "hilbert":
        return _interleaved(_turned(cells, bits), bits)
    found = _interleaved(cells, bits)
    if curve == "gray":
        shift = 1
        while shift < len(cells) * bits:
            found ^= found >> shift
            shift *= 2
    return found


def count_runs(curve: str, sides: Sequence[int], bits: int, corner: Sequence[int] | None = None) -> int:
    """The least number of runs of a curve that make up a rectangle, at the top corner by default.

    >>> count_runs("z", [257, 257], 9)
    385
    """
    n_cells = int(np.prod([int(side) for side in sides]))
    if n_cells > MOST_CELLS:
        raise CapacityError(f"at most {MOST_CELLS:,} cells can be listed, but {list(sides)} has {n_cells:,}")
    lowest = [(1 << bits) - side for side in sides] if corner is None else list(corner)
    spans: list[Any] = [np.arange(low, low + side) for low, side in zip(lowest, sides, strict=True)]
    cells = np.stack([axis.ravel() for axis in np.meshgrid(*spans, indexing="ij")])
    along = np.sort(positions(curve, cells.astype(np.int64), bits))
    return 1 + int(np.count_nonzero(np.diff(along) > 1))


def _interleaved(cells: npt.NDArray[np.int64], bits: int) -> Positions:
    found = np.zeros(cells.shape[1], np.int64)
    for bit in range(bits - 1, -1, -1):
        for row in cells:
            found = found << 1 | (row >> bit & 1)
    return found


def _turned(cells: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    """Coordinates whose interleaved bits are the position on Hilbert's curve."""
    x = cells.copy()
    for bit in range(bits - 1, 0, -1):
        below = np.int64((1 << bit) - 1)
        for row in x:
            # within the half that the curve enters turned round, the first axis is mirrored; else two change
            # places
            mirrored = (row >> bit & 1).astype(bool)
            swapped = np.where(mirrored, 0, (x[0] ^ row) & below)
            x[0] ^= np.where(mirrored, below, swapped)
            row ^= swapped
    for i in range(1, len(x)):
        x[i] ^= x[i - 1]
    flip = np.zeros(x.shape[1], np.int64)
    for bit in range(bits - 1, 0, -1):
        flip ^= np.where(x[-1] >> bit & 1, np.int64((1 << bit) - 1), 0)
    x ^= flip
    return x
