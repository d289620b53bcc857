"""Strings of Arrow columns to the codes of a vocabulary, without a Python object for any of them.

A column of text is two buffers, offsets and bytes, and a kernel looks each string up where it lies:
0.015 us for a short one, where a fresh dictionary of the column and a look-up of its words in Python took ten
times that. A `WordTable` is made of the first words of a vocabulary and is never changed; as the vocabulary
grows, what the table does not know is looked up in the vocabulary, and the table is rebuilt when that has
become much.

    column                          how
    string, large_string            its own buffers, whatever slice of them, chunk by chunk
    string_view                     cast, which copies the bytes
    dictionary of one of these      the words of the dictionary, then one entry per row
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.types import kernels
from rangecast.types.kernels import WordTable

MISSING = -(2**63)
_NO_LETTERS = np.zeros(8, np.uint8)
_NO_WORDS = pa.nulls(0, pa.large_string())
_MANY = 1 << 14  # words


def arrow_numbers(values: npt.NDArray[Any]) -> pa.Array[Any]:
    """An array of int32 or int64 as Arrow, without a copy; `pa.array` would import pandas first.

    >>> arrow_numbers(np.array([5, 7])).to_pylist()
    [5, 7]
    """
    kind = pa.int32() if values.dtype == np.int32 else pa.int64()
    own = np.ascontiguousarray(values, np.int32 if values.dtype == np.int32 else np.int64)
    return pa.Array.from_buffers(kind, len(own), [None, pa.py_buffer(own)])


def arrow_words(words: Sequence[str]) -> pa.Array[Any]:
    """Strings as Arrow's large strings, likewise; UnicodeEncodeError for half of a surrogate pair.

    >>> arrow_words(["a", "", "é"]).to_pylist()
    ['a', '', 'é']
    """
    letters = "".join(words).encode()
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    if len(letters) != int(sizes.sum()):  # not all of it is ASCII
        sizes = np.fromiter(map(len, map(str.encode, words)), np.int64, len(words))
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.large_string(), len(sizes), buffers)


class LettersRoom:
    """The UTF-8 of one text after the other, with zeros behind it, in memory that is used again."""

    def __init__(self, n_zeros: int) -> None:
        self._n_zeros = n_zeros
        self._room = np.empty(0, np.uint8)

    def put(self, text: str) -> npt.NDArray[np.uint8]:
        """The letters of a text and the zeros, until the next one is put; UnicodeEncodeError for half of a
        surrogate pair.

        >>> LettersRoom(2).put("aé").tolist()
        [97, 195, 169, 0, 0]
        """
        letters = text.encode()
        n = len(letters)
        if n + self._n_zeros > len(self._room):
            self._room = np.empty(2 * n + self._n_zeros, np.uint8)
        self._room.data[:n] = letters
        self._room[n : n + self._n_zeros] = 0
        return self._room[: n + self._n_zeros]


def word_table(words: list[str]) -> WordTable:
    """A table of these words, which all differ; word k has the code k + 1.

    >>> find_strings(word_table(["IBM", "HAL"]), pa.array(["DEC", "HAL"])).codes.tolist()
    [0, 2]
    """
    text = arrow_words(words)
    starts = np.frombuffer(text.buffers()[1], np.int64, len(text) + 1).copy()
    letters = _letters(text.buffers()[2]).copy()
    # twice the places take a quarter of the time off, as long as the processor's caches hold them
    size = 1 << max(4, ((4 if len(words) <= _MANY else 2) * len(words)).bit_length())
    table = WordTable(np.zeros((size, 3), np.uint64), starts, letters)
    kernels.enter_words(table, 0)
    return table


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type is looked up here."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def without_views(column: Any) -> Any:
    """The same column where Arrow can take rows of it, which it cannot of string_view."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
        return column.cast(pa.large_string())
    return column


def words_of(column: Any, rows: npt.NDArray[np.int64]) -> pa.Array[Any]:
    """Some strings of a column without views, none of them null, as large strings; ArrowInvalid where one is
    not Unicode.

    >>> words_of(pa.chunked_array([["a", "b"], ["c"]]), np.array([2, 0])).to_pylist()
    ['c', 'a']
    """
    if not len(rows):
        return _NO_WORDS
    words = _words_inside(column, rows)
    if not bytes(words.buffers()[2] or b"").isascii():  # asking takes a tenth of the time
        words.validate(full=True)
    return words if pa.types.is_large_string(words.type) else words.cast(pa.large_string())


def _words_inside(column: Any, rows: npt.NDArray[np.int64]) -> pa.Array[Any]:
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        column = column.chunk(0)
    if isinstance(column, pa.Array) and not pa.types.is_dictionary(column.type):
        _, starts, letters = column.buffers()
        if letters is not None:
            # in a third of the time that Arrow takes
            size = 4 if pa.types.is_string(column.type) else 8
            ends = np.frombuffer(starts, f"i{size}", len(column) + 1, size * column.offset)
            begins = ends[rows].astype(np.int64)
            text = np.array([(letters.address, letters.size, 1)], np.int64)
            return strings_of_spans(text, begins, ends[rows + 1] - begins)
    words = column.take(arrow_numbers(rows))
    if isinstance(words, pa.ChunkedArray):
        words = words.combine_chunks()
        if isinstance(words, pa.ChunkedArray):  # too large for one array of its type
            words = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in words.chunks])
    return words.dictionary_decode() if pa.types.is_dictionary(words.type) else words


def strings_of_spans(
    text: npt.NDArray[np.int64],
    begins: npt.NDArray[Any],
    sizes: npt.NDArray[Any],
    kind: pa.DataType | None = None,
) -> pa.Array[Any]:
    """Pieces of a text as a column, of large strings if no type is given; a size of -1 is null.

    `text` says where the letters lie (simd/memory.py).
    """
    kind = pa.large_string() if kind is None else kind
    null = sizes < 0
    some = bool(null.any())
    if some and bool(null.all()):
        return pa.nulls(len(sizes), kind)
    sizes = np.maximum(sizes, 0, dtype=np.int64)
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    letters = np.empty(int(starts[-1]), np.uint8)
    kernels.copy_spans(text, np.ascontiguousarray(begins, np.int64), sizes, starts, letters)
    valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if some else None
    offsets = starts if kind == pa.large_string() else starts.astype(np.int32)
    return pa.Array.from_buffers(kind, len(sizes), [valid, pa.py_buffer(offsets), pa.py_buffer(letters)])


class FoundStrings(NamedTuple):
    """The codes of a column of text: 0 where no word is it, MISSING where it is null; and how many have the
    code 0, None where nobody has counted them or not all of them are ASCII."""

    codes: npt.NDArray[np.int64]
    n_strange: int | None


def find_strings(table: WordTable, column: Any, out: npt.NDArray[np.int64] | None = None) -> FoundStrings:
    """Look the strings of a column up; the codes are put into `out` if it is given.

    Raises ArrowInvalid where the column's buffers are not what its type says. What a word equals is
    Unicode; whether what no word equals is, the caller has to find out.

    >>> find_strings(word_table(["IBM", "HAL"]), pa.array(["HAL", None, "DEC"])).codes.tolist()
    [2, -9223372036854775808, 0]
    """
    out = np.empty(len(column), np.int64) if out is None else out
    at = 0
    n_strange: int | None = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        more = _find(table, chunk, out[at : at + len(chunk)])
        n_strange = None if more is None or n_strange is None else n_strange + more
        at += len(chunk)
    return FoundStrings(out, n_strange)


class StrangeStrings:
    """The strings of a column that have the code 0, found when they are asked for."""

    __slots__ = ("_codes", "_column", "_found")

    def __init__(self, column: Any, codes: npt.NDArray[np.int64]) -> None:
        self._column = column
        self._codes = codes
        self._found: tuple[npt.NDArray[np.int64], pa.Array[Any]] | None = None

    def __call__(self) -> tuple[npt.NDArray[np.int64], pa.Array[Any]]:
        """Their rows and they themselves, as `words_of` has them."""
        if self._found is None:
            rows = np.flatnonzero(self._codes == 0)
            self._found = rows, words_of(self._column, rows)
        return self._found


def strange_strings(column: Any, found: FoundStrings) -> StrangeStrings | tuple[()]:
    """The strings of a column that no word is, () where there are none; ArrowInvalid where one is not
    Unicode, which must be known at once."""
    strange = StrangeStrings(column, found.codes)
    n = len(strange()[0]) if found.n_strange is None else found.n_strange
    return strange if n else ()


def _find(table: WordTable, chunk: pa.Array[Any], out: npt.NDArray[np.int64]) -> int | None:
    """The codes of a chunk in `out`; returns how many are 0 as FoundStrings has it."""
    kind = chunk.type
    if pa.types.is_dictionary(kind):
        if len(chunk.dictionary) > 2 * len(chunk):
            return _find(table, chunk.dictionary_decode(), out)
        codes = np.empty(len(chunk.dictionary) + 1, np.int64)
        _find(table, chunk.dictionary, codes[:-1])
        codes[-1] = MISSING
        indices = chunk.indices.fill_null(len(codes) - 1) if chunk.indices.null_count else chunk.indices
        np.take(codes, indices.to_numpy(zero_copy_only=False), out=out)
        return None
    if pa.types.is_string_view(kind):
        chunk = chunk.cast(pa.large_string())
        kind = chunk.type
    chunk.validate()
    valid, starts, letters = chunk.buffers()
    if starts is None or not len(chunk):
        out[:] = MISSING
        return 0
    narrow = pa.types.is_string(kind)
    places = np.array(
        [
            (starts.address + chunk.offset * (4 if narrow else 8), len(chunk) + 1, 1),
            (_NO_LETTERS.ctypes.data, 0, 1) if letters is None else (letters.address, letters.size, 1),
            (_NO_LETTERS.ctypes.data, 0, 1) if not chunk.null_count else (valid.address, valid.size, 1),
        ],
        np.int64,
    )
    find = kernels.find_words_narrow if narrow else kernels.find_words
    told = int(find(places, chunk.offset, table, out))
    if told < 0:
        raise pa.ArrowInvalid("the offsets of a column of text lead beyond its bytes")
    return None if told & 1 else told >> 1


def _letters(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return _NO_LETTERS if buffer is None or not buffer.size else np.frombuffer(buffer, np.uint8)
