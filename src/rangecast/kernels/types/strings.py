"""Finding strings of an Arrow column in a table of words, by their bytes.

A string of at most sixteen bytes is told by its first eight, its last eight and its length, so that it is
found in its place of the table without a look at anything else, and without a branch on its length: lengths
come in no order, so such a branch is foretold wrongly half of the time. Of a shorter one than eight the bytes
behind it are cut off; nothing behind the buffer is touched, which may end with the string.

Looking up what is in its first place or has none at once, and the others of a run of strings afterwards, has
no branch at all in its first loop, and takes as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from rangecast.kernels.machine.views import view, view_rows
from rangecast.simd.compiler import inlined_kernel, kernel

MISSING = -(2**63)
_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_ALL = np.uint64(2**64 - 1)
_CODES = np.uint64(2**32 - 1)
_TOPS = np.uint64(0x8080808080808080)
_WHOLE = 16  # bytes of the longest string that its place in the table holds


class WordTable(NamedTuple):
    """Words by their hash, in open addressing: a power of two of places, at most half of them taken.

    array     dtype    shape       meaning
    places    uint64   (size, 3)   of the word at a place: its first eight bytes, its last eight, and its
                                   length << 32 | its code; a shorter one's bytes with zeros, twice; 0 where
                                   the place is free
    starts    int64    n + 1       word of code c is letters[starts[c - 1]:starts[c]]
    letters   uint8                UTF-8
    """

    places: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    letters: npt.NDArray[np.uint8]


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def eight(letters: Any, at: Any) -> Any:
        """The eight bytes from a place on, as one number."""
        return np.uint64(int.from_bytes(letters[at : at + 8].tobytes(), "little"))

    def four(letters: Any, at: Any) -> Any:
        """The four bytes from a place on."""
        return np.uint64(int.from_bytes(letters[at : at + 4].tobytes(), "little"))

    def put_eight(letters: Any, at: Any, word: Any) -> None:
        """Write eight bytes from a place on."""
        letters[at : at + 8] = np.frombuffer(np.uint64(word).tobytes(), np.uint8)

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

    @intrinsic
    def put_eight(typing_context, letters, at, word):
        """Write eight bytes from a place on."""

        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
            builder.store(arguments[2], place, align=1)
            return context.get_dummy_value()

        return types.void(letters, types.intp, types.uint64), generate

    @inlined_kernel
    def _times(a, b):
        return a * b


@inlined_kernel
def _stir(h, word):
    h = _times(h ^ word, _A)
    return h ^ (h >> _HALF)


@inlined_kernel
def _ends(letters, a, n):
    """The first and the last eight of letters[a:a + n], with zeros behind fewer than eight."""
    if a + 8 > letters.size:
        few = np.uint64(0)
        for k in range(n):
            few |= np.uint64(letters[a + k]) << np.uint64(8 * k)
        return few, few
    own = _ALL if n >= 8 else (_ONE << np.uint64(8 * min(n, 7))) - _ONE
    return eight(letters, a) & own, eight(letters, a + max(n - 8, 0)) & own


@inlined_kernel
def _hash(letters, a, n, first, last):
    """A 64-bit hash of letters[a:a + n], of which the ends are known."""
    h = _stir(_times(np.uint64(n), _B), first)
    if n > _WHOLE:
        at = a + 8
        while at < a + n - 8:
            h = _stir(h, eight(letters, at))
            at += 8
    h = _times(h ^ last, _B)
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
    mask = np.uint64(words.places.shape[0] - 1)
    for k in range(first, words.starts.size - 1):
        a = words.starts[k]
        n = words.starts[k + 1] - a
        begin, end = _ends(words.letters, a, n)
        place = _hash(words.letters, a, n, begin, end) & mask
        while words.places[place, 2] != 0:
            place = (place + _ONE) & mask
        words.places[place, 0] = begin
        words.places[place, 1] = end
        words.places[place, 2] = (np.uint64(n) << _HALF) | np.uint64(k + 1)


@inlined_kernel
def _place_of(letters, a, n, words):
    """The place of letters[a:a + n] in a table, free where no word is it, and its first and last eight."""
    mask = np.uint64(words.places.shape[0] - 1)
    first, last = _ends(letters, a, n)
    place = _hash(letters, a, n, first, last) & mask
    while words.places[place, 2] != 0:
        mark = words.places[place, 2]
        if (
            words.places[place, 0] == first
            and words.places[place, 1] == last
            and mark >> _HALF == np.uint64(n)
        ):
            code = np.int64(mark & _CODES)
            if n <= _WHOLE or same_letters(letters, a, n, words.letters, words.starts[code - 1]):
                break
        place = (place + _ONE) & mask
    return place, first, last


@inlined_kernel
def find_word(letters, a, n, words):
    """The code of letters[a:a + n] in a table, 0 where no word is it."""
    place, _, _ = _place_of(letters, a, n, words)
    return np.int64(words.places[place, 2] & _CODES)


@inlined_kernel
def hash_word(letters, a, n):
    """The hash of letters[a:a + n], whose lowest bits are where a table is looked at first."""
    first, last = _ends(letters, a, n)
    return _hash(letters, a, n, first, last)


@inlined_kernel
def number_word(letters, a, n, words, counts):
    """The code of letters[a:a + n] in a table that grows: a word that is new is entered.

    There is room for one more. counts: how many words the table has, and how many letters they have.
    """
    place, first, last = _place_of(letters, a, n, words)
    mark = words.places[place, 2]
    if mark != 0:
        return np.int64(mark & _CODES)
    code, used = counts[0] + 1, counts[1]
    words.places[place, 0] = first
    words.places[place, 1] = last
    words.places[place, 2] = (np.uint64(n) << _HALF) | np.uint64(code)
    for q in range(n):
        words.letters[used + q] = letters[a + q]
    words.starts[code] = used + n
    counts[0] = code
    counts[1] = used + n
    return code


@inlined_kernel
def find_in(letters, a, n, tables, column):
    """The same in the table of a column, of which `tables` has three rows (machine/views.py)."""
    words = WordTable(
        view_rows(tables[3 * column], np.uint64),
        view(tables[3 * column + 1], np.int64),
        view(tables[3 * column + 2], np.uint8),
    )
    return find_word(letters, a, n, words)


@inlined_kernel
def _is_ascii(letters, a, n):
    bits = np.uint64(0)
    at = a
    while at + 8 <= a + n:
        bits |= eight(letters, at)
        at += 8
    while at < a + n:
        bits |= np.uint64(letters[at])
        at += 1
    return bits & _TOPS == 0


@inlined_kernel
def _find(starts, letters, valid, first_bit, words, out):
    strange = np.int64(0)
    foreign = np.int64(0)
    for i in range(out.size):
        if valid.size:
            bit = first_bit + i
            if not (valid[bit >> 3] >> np.uint8(bit & 7)) & 1:
                out[i] = MISSING
                continue
        a = np.int64(starts[i])
        n = np.int64(starts[i + 1]) - a
        if a < 0 or n < 0 or a + n > letters.size:
            return np.int64(-1)
        code = find_word(letters, a, n, words)
        out[i] = code
        if code == 0:
            strange += 1
            if not foreign and not _is_ascii(letters, a, n):
                foreign = np.int64(1)
    return 2 * strange + foreign


@kernel
def find_words(buffers, first_bit, words, out):
    """out[i] = the code of string i, 0 where no word is it, MISSING where it is null.

    `buffers` says where offsets of 64 bits, letters and bits of validity lie (machine/views.py): arrays over
    Arrow's are now writable and now not, which would be types of their own. `valid` has a bit per string from
    `first_bit` on, or nothing where none is null. Returns twice how many strings are no word, and 1 more
    where one of those is not ASCII; -1 where an offset does not lead to letters.
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


@kernel
def copy_spans(text, begins, sizes, starts, out):
    """Copy pieces of a text one after the other, each from starts[i] on; `text` says where it lies."""
    letters = view(text[0], np.uint8)
    for i in range(begins.size):
        a, b, n = starts[i], begins[i], sizes[i]
        if a + n + 8 <= out.size and b + n + 8 <= letters.size:
            # what is written behind a piece is written over by the next one
            for k in range(0, n, 8):
                put_eight(out, a + k, eight(letters, b + k))
        else:
            for k in range(n):
                out[a + k] = letters[b + k]
