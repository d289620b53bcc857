"""Putting the frames of consumers together out of pieces that many of them share."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import config, types
from numba.core.typing.templates import signature

from rangecast.simd.compiler import inlined_kernel, kernel

COMMA, ZERO, RETURN, NEWLINE = 44, 48, 13, 10
QUOTE, BACKSLASH, SLASH, SPACE = 34, 92, 47, 32
CHUNK_HEAD, CHUNK_TAIL = 10, 2
"""Bytes around the frames of a consumer, which make them a chunk of an HTTP body."""


class JoinedStrings(NamedTuple):
    """Strings one after the other: number k is letters[starts[k] : starts[k + 1]]."""

    letters: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]

    def pieces(self) -> list[bytes]:
        """Each by itself."""
        raw, starts = self.letters.tobytes(), self.starts.tolist()
        return [raw[starts[k] : starts[k + 1]] for k in range(len(starts) - 1)]


@inlined_kernel
def _copy(letters, begin, end, out, p):
    for i in range(begin, end):
        out[p] = letters[i]
        p += 1
    return p


@inlined_kernel
def _put_number(number, n_digits, out, p):
    for k in range(n_digits):
        out[p + n_digits - 1 - k] = ZERO + number % 10
        number //= 10
    return p + n_digits


@inlined_kernel
def _put_hex(number, out, p):
    """Eight digits, a return and a newline: the head of a chunk."""
    for k in range(8):
        digit = (number >> (28 - 4 * k)) & 15
        out[p + k] = ZERO + digit if digit < 10 else 87 + digit
    out[p + 8] = RETURN
    out[p + 9] = NEWLINE


@kernel
def take_strings(strings, rows, letters, starts):
    """Copy some strings, one after the other, and where each begins; the room must do."""
    p = 0
    for k in range(rows.size):
        starts[k] = p
        p = _copy(strings.letters, strings.starts[rows[k]], strings.starts[rows[k] + 1], letters, p)
    starts[rows.size] = p


@kernel
def quote_names(ids, at, letters, starts):
    """Write what each id has behind its first slash, or all of it, as a JSON string; and where each ends.

    The first begins at letters[at], and string k ends at starts[k]. Returns False where a name has letters
    that JSON must escape.
    """
    for k in range(ids.starts.size - 1):
        begin, end = ids.starts[k], ids.starts[k + 1]
        for i in range(begin, end - 1):
            if ids.letters[i] == SLASH:
                begin = i + 1
                break
        letters[at] = QUOTE
        at += 1
        for i in range(begin, end):
            letter = ids.letters[i]
            if letter == QUOTE or letter == BACKSLASH or letter < SPACE:
                return False
            letters[at] = letter
            at += 1
        letters[at] = QUOTE
        at += 1
        starts[k] = at
    return True


@kernel
def group_pairs(rows, entries, owners, wanted, places, out_rows, out_entries, out_owners):
    """Pairs of an event and an entry, by owner and without those of owners that are not wanted.

    The pairs of one owner keep their order. `places` has an entry more than `wanted`, whose last stands for
    the entries of nobody: their owner is -1. Returns how many pairs there are.
    """
    for owner in range(places.size):
        places[owner] = 0
    for i in range(entries.size):
        owner = owners[entries[i]]
        if owner >= 0 and wanted[owner]:
            places[owner + 1] += 1
    for owner in range(1, places.size):
        places[owner] += places[owner - 1]
    for i in range(entries.size):
        owner = owners[entries[i]]
        if owner >= 0 and wanted[owner]:
            at = places[owner]
            places[owner] = at + 1
            out_rows[at] = rows[i]
            out_entries[at] = entries[i]
            out_owners[at] = owner
    return places[places.size - 2]


@kernel
def measure_frames(firsts, digits, events, stretches, marks, texts, entries, names, tails):
    """How many bytes all frames take, without the heads and tails of chunks."""
    size = 0
    n_marks = marks.starts[4]
    for f in range(firsts.size - 1):
        size += n_marks + 2 * digits[f]
        size += texts.starts[events[f] + 1] - texts.starts[events[f]]
        size += tails.starts[stretches[f] + 1] - tails.starts[stretches[f]]
        size += firsts[f + 1] - firsts[f] - 1
        for i in range(firsts[f], firsts[f + 1]):
            size += names.starts[entries[i] + 1] - names.starts[entries[i]]
    return size


@kernel
def write_frames(
    firsts, owners, sequences, digits, events, stretches, marks, texts, entries, names, tails, out, ends
):
    """Write frame after frame, and where each ends.

    Frame f is about the event of sequences[f], a number of digits[f] digits, whose text is events[f]. It has
    the names of the entries firsts[f] .. firsts[f + 1] - 1 with commas between them, and the tail of
    stretches[f]. `marks` are what stands before the number, before its repetition, before the text and behind
    it. The frames of one owner, which follow one another, are a chunk with its head and its tail.
    """
    p = 0
    begin = 0
    last = ends.size - 1
    for f in range(ends.size):
        if f == 0 or owners[f] != owners[f - 1]:
            begin = p
            p += CHUNK_HEAD
        p = _copy(marks.letters, marks.starts[0], marks.starts[1], out, p)
        p = _put_number(sequences[f], digits[f], out, p)
        p = _copy(marks.letters, marks.starts[1], marks.starts[2], out, p)
        p = _put_number(sequences[f], digits[f], out, p)
        p = _copy(marks.letters, marks.starts[2], marks.starts[3], out, p)
        p = _copy(texts.letters, texts.starts[events[f]], texts.starts[events[f] + 1], out, p)
        p = _copy(marks.letters, marks.starts[3], marks.starts[4], out, p)
        for i in range(firsts[f], firsts[f + 1]):
            if i > firsts[f]:
                out[p] = COMMA
                p += 1
            p = _copy(names.letters, names.starts[entries[i]], names.starts[entries[i] + 1], out, p)
        p = _copy(tails.letters, tails.starts[stretches[f]], tails.starts[stretches[f] + 1], out, p)
        ends[f] = p
        if f == last or owners[f] != owners[f + 1]:
            _put_hex(p - begin - CHUNK_HEAD, out, begin)
            out[p] = RETURN
            out[p + 1] = NEWLINE
            p += CHUNK_TAIL


# Writing to many sockets in one call, without Python's lock in between.
#
# A write to a loopback socket takes about ten microseconds, most of them in the kernel's stack. A thousand of
# them are ten milliseconds, in which other threads run.

_DO_NOT_WAIT = 0x4040  # MSG_DONTWAIT and MSG_NOSIGNAL of Linux

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _send(handle: Any, address: Any, length: Any, flags: Any) -> Any:
        library = ctypes.CDLL(None)
        library.send.restype = ctypes.c_ssize_t
        library.send.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        return library.send(int(handle), int(address), int(length), int(flags))

else:
    # by name, so that what is compiled holds no address and can be kept on disk
    _send: Any = types.ExternalFunction(  # type: ignore[no-redef]
        "send", signature(types.int64, types.int32, types.intp, types.intp, types.int32)
    )


@kernel
def send_pieces(handles, address, begins, ends, sent):
    """Send the bytes begins[k] .. ends[k] - 1 behind an address to handle k, as many as it takes at once.

    sent[k] says how many those were; it is negative where the socket takes none.
    """
    for k in range(handles.size):
        sent[k] = _send(
            np.int32(handles[k]), address + begins[k], ends[k] - begins[k], np.int32(_DO_NOT_WAIT)
        )
