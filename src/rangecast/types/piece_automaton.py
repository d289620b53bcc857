"""Building the automaton that finds many strings at once (kernels/types/traits.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.types import kernels
from rangecast.types.strings import arrow_words

_ROWS = 1024  # states with a row of next states: a megabyte


def buffers_of(column: pa.Array[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where strings of `arrow_words` begin, and their bytes, as arrays that may be written to."""
    _, starts, letters = column.buffers()
    bytes_ = np.zeros(1, np.uint8) if not letters.size else np.frombuffer(letters, np.uint8).copy()
    return np.frombuffer(starts, np.int64, len(column) + 1).copy(), bytes_


def automaton_of(pieces: Sequence[str]) -> kernels.Automaton:
    """The automaton of some strings, by their numbers.

    >>> automaton_of(["disk", "is"]).depths.max()
    np.int32(4)
    """
    starts, letters = buffers_of(arrow_words(pieces))
    n = int(starts[-1]) + 1
    size = 1 << max(4, (2 * n).bit_length())
    numbers = [np.zeros(n, np.int32) for _ in range(5)]
    parents, depths, fails, ends, of_states = numbers
    of_states[0] = -1
    found = kernels.Automaton(
        np.zeros(size, np.int64),
        np.zeros(size, np.int32),
        parents,
        np.zeros(n, np.uint8),
        depths,
        fails,
        of_states,
        ends,
        np.full(n, -1, np.int32),
        np.zeros(0, np.int32),
        np.zeros((n, 4), np.int32),
    )
    n_states = kernels.enter_pieces(found, starts, letters)
    found = found._replace(nexts=np.zeros(256 * min(n_states, _ROWS), np.int32))
    order = np.argsort(depths[1:n_states], kind="stable") + 1
    kernels.link_states(found, order)
    kernels.fill_rows(found, order)
    ending = np.where(of_states >= 0, np.arange(n), ends)
    found.steps[:, :3] = np.stack([found.rows, fails, ending], axis=1)
    return found
