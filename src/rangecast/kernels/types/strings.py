"""Finding strings of an Arrow column in a table of words, by their bytes.

Hashing and comparing take eight bytes at a time. The last eight of a string overlap those before them, so
that nothing behind it is touched: its buffer may end there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from rangecast.kernels import inlined_kernel, kernel
from rangecast.kernels.machine.views import view

MISSING = -(2**63)
_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


class WordTable(NamedTuple):
    """Words by their hash, in open addressing: a power of two of places, at most half of them taken.

    array     dtype    shape    meaning
    marks     uint64   size     the hash of the word at a place
    codes     int32    size     its code, 0 where the place is free
    starts    int64    n + 1    word of code c is letters[starts[c - 1]:starts[c]]
    letters   uint8             UTF-8
    """

    marks: npt.NDArray[np.uint64]
    codes: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    letters: npt.NDArray[np.uint8]


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def eight(letters: Any, at: Any) -> Any:
        """The eight bytes from a place on, as one number."""
        return np.uint64(int.from_bytes(letters[at : at + 8].tobytes(), "little"))

    def four(letters: Any, at: Any) -> Any:
        """The four bytes from a place on."""
        return np.uint64(int.from_bytes(letters[at : at + 4].tobytes(), "little"))

    def _times(a: Any, b: Any) -> Any:
        return np.uint64(int(a) * int(b) & (2**64 - 1))

else:

    def _load(bits):
        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(bits).as_pointer())
            word = builder.load(place)
            word.align = 1
            return word if bits == 64 else builder.zext(word, ir.IntType(64))

        return generate

    @intrinsic
    def eight(typing_context, letters, at):
        """The eight bytes from a place on, as one number."""
        return types.uint64(letters, types.intp), _load(64)

    @intrinsic
    def four(typing_context, letters, at):
        """The four bytes from a place on."""
        return types.uint64(letters, types.intp), _load(32)

    @inlined_kernel
    def _times(a, b):
        return a * b


@inlined_kernel
def _stir(h, word):
    h = _times(h ^ word, _A)
    return h ^ (h >> _HALF)


@inlined_kernel
def hash_letters(letters, a, b):
    """A 64-bit hash of letters[a:b]."""
    n = b - a
    h = _times(np.uint64(n) + np.uint64(1), _B)
    if n >= 8:
        at = a
        while at < b - 8:
            h = _stir(h, eight(letters, at))
            at += 8
        h = _stir(h, eight(letters, b - 8))
    elif n >= 4:
        h = _stir(h, (four(letters, a) << _HALF) | four(letters, b - 4))
    elif n > 0:
        ends = np.uint64(letters[a]) | (np.uint64(letters[b - 1]) << np.uint64(8))
        h = _stir(h, ends | (np.uint64(letters[a + n // 2]) << np.uint64(16)))
    h = _times(h, _B)
    return h ^ (h >> _HALF)


@inlined_kernel
def same_letters(letters, a, n, others, b):
    """Whether letters[a:a + n] are others[b:b + n]."""
    if n >= 8:
        q = 0
        while q < n - 8:
            if eight(letters, a + q) != eight(others, b + q):
                return False
            q += 8
        return eight(letters, a + n - 8) == eight(others, b + n - 8)
    if n >= 4:
        if four(letters, a) != four(others, b):
            return False
        return four(letters, a + n - 4) == four(others, b + n - 4)
    for q in range(n):
        if letters[a + q] != others[b + q]:
            return False
    return True


@kernel
def enter_words(words, first):
    """Put the words from code first + 1 on into the table; all of them differ."""
    mask = np.uint64(words.codes.size - 1)
    for k in range(first, words.starts.size - 1):
        h = hash_letters(words.letters, words.starts[k], words.starts[k + 1])
        place = h & mask
        while words.codes[place] != 0:
            place = (place + np.uint64(1)) & mask
        words.marks[place] = h
        words.codes[place] = k + 1


@inlined_kernel
def _find(starts, letters, valid, first_bit, words, out):
    mask = np.uint64(words.codes.size - 1)
    strangers = 0
    for i in range(out.size):
        if valid.size:
            bit = first_bit + i
            if not (valid[bit >> 3] >> np.uint8(bit & 7)) & 1:
                out[i] = MISSING
                continue
        a = np.int64(starts[i])
        n = np.int64(starts[i + 1]) - a
        if a < 0 or n < 0 or a + n > letters.size:
            return -1
        h = hash_letters(letters, a, a + n)
        place = h & mask
        code = 0
        while words.codes[place] != 0:
            if words.marks[place] == h:
                c = words.codes[place]
                at = words.starts[c - 1]
                if words.starts[c] - at == n and same_letters(letters, a, n, words.letters, at):
                    code = c
                    break
            place = (place + np.uint64(1)) & mask
        out[i] = code
        if code == 0:
            strangers += 1
    return strangers


@kernel
def find_words(buffers, first_bit, words, out):
    """out[i] = the code of string i, 0 where no word is it, MISSING where it is null.

    `buffers` says where offsets of 64 bits, letters and bits of validity lie (machine/views.py): arrays over
    Arrow's are now writable and now not, which would be types of their own. `valid` has a bit per string from
    `first_bit` on, or nothing where none is null. Returns how many had no word, or -1 where an offset leads
    beyond the letters.
    """
    starts, letters, valid = (
        view(buffers[0], np.int64),
        view(buffers[1], np.uint8),
        view(buffers[2], np.uint8),
    )
    return _find(starts, letters, valid, first_bit, words, out)


@kernel
def find_words_narrow(buffers, first_bit, words, out):
    """The same with offsets of 32 bits."""
    starts, letters, valid = (
        view(buffers[0], np.int32),
        view(buffers[1], np.uint8),
        view(buffers[2], np.uint8),
    )
    return _find(starts, letters, valid, first_bit, words, out)
