"""Boxes as kernels take them, and whether one holds an event.

Only this module knows how bounds are kept: all other kernels ask it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels import inlined_kernel, kernel
from rangecast.kernels.machine.views import view, view_rows


class BoxArrays(NamedTuple):
    """The box arrays of one moment; columns beyond `n` are spare room."""

    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    n: int


@inlined_kernel
def view_boxes(table):
    """The arrays out of the table of views that engine/boxes.py makes."""
    return BoxArrays(
        view_rows(table[0], np.int64),
        view_rows(table[1], np.int64),
        view(table[2], np.int32),
        view(table[3], np.int64)[0],
    )


@kernel
def holds(boxes, box, codes, attributes, e):
    """Whether a box holds event e on some attributes; it may be compared on others as well."""
    for k in range(attributes.size):
        j = attributes[k]
        if codes[j, e] < boxes.lows[j, box] or codes[j, e] > boxes.highs[j, box]:
            return False
    return True


@kernel
def holds_value(boxes, box, j, v):
    """Whether a box holds a value of attribute j."""
    return boxes.lows[j, box] <= v and v <= boxes.highs[j, box]
