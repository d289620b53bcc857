"""Putting the frames of consumers together out of pieces that many of them share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels import inlined_kernel, kernel

COMMA, ZERO = 44, 48


class JoinedStrings(NamedTuple):
    """Strings one after the other: number k is letters[starts[k] : starts[k + 1]]."""

    letters: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]


@inlined_kernel
def _copy(pieces, k, out, p):
    for i in range(pieces.starts[k], pieces.starts[k + 1]):
        out[p] = pieces.letters[i]
        p += 1
    return p


@inlined_kernel
def _put_number(number, n_digits, out, p):
    for k in range(n_digits):
        out[p + n_digits - 1 - k] = ZERO + number % 10
        number //= 10
    return p + n_digits


@kernel
def write_frames(firsts, sequences, digits, events, stretches, marks, texts, names, tails, out, ends):
    """Write frame after frame, and where each ends.

    Frame f is about the event of sequences[f], a number of digits[f] digits, whose text is events[f]. It has
    the names firsts[f] .. firsts[f + 1] - 1 with commas between them, and the tail of stretches[f]. `marks`
    are what stands before the number, before its repetition, before the text and behind it.
    """
    p = 0
    for f in range(ends.size):
        p = _copy(marks, 0, out, p)
        p = _put_number(sequences[f], digits[f], out, p)
        p = _copy(marks, 1, out, p)
        p = _put_number(sequences[f], digits[f], out, p)
        p = _copy(marks, 2, out, p)
        p = _copy(texts, events[f], out, p)
        p = _copy(marks, 3, out, p)
        for i in range(firsts[f], firsts[f + 1]):
            if i > firsts[f]:
                out[p] = COMMA
                p += 1
            p = _copy(names, i, out, p)
        p = _copy(tails, stretches[f], out, p)
        ends[f] = p
