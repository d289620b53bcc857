"""Boxes as kernels take them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Boxes(NamedTuple):
    """The box arrays of one moment; columns beyond `n` are spare room."""

    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    n: int
