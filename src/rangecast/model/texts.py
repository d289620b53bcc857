"""The conditions as people wrote them: a column of texts beside the subscriptions, compressed in blocks.

No match reads a text, so the column is made to stay out of the way: a mapped index keeps it in its file,
and whoever asks for one text reads and decompresses the one block that holds it (texts.py).

`Texts` is what users see. It consists of runs of rows, one after the other; a run names some packed
columns and the rows in them. So selecting and joining move row numbers, and never touch the blocks.
A few texts are left as a list, since packing them would take as long as parsing them; once many have
come in this way, one by one, they are packed together.
"""

from __future__ import annotations

import itertools
import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import CapacityError, StorageError, SubscriptionError
from rangecast.model import kernels
from rangecast.types.strings import LettersRoom, arrow_numbers

# A column of texts as one array of bytes, compressed in blocks:
#
#     bytes             meaning
#     0-7               b"RCTEXT01", or b"RCTEXT02" where blocks of digits may be among them
#     8-15              n_rows, little-endian like all numbers here
#     16-23             n_blocks, each of 1,024 rows but for the last
#     24-...            int64 [n_blocks + 1]: where each block begins in these bytes, and where the last ends
#     ...               uint32 [n_blocks]: the size of each block when it is decompressed
#     ...               uint32 [n_blocks]: CRC-32 of each block as it stands
#     ...               the blocks: int32 length of each row's text (-1 where it has none), then UTF-8
#
# A block is compressed with Zstandard, unless it is so small that this would not make it smaller. With
# 46 bytes per text, 1 M texts take 8.8 MB and 0.4 s (zlib: 10.1 MB and 1.0 s; LZ4: 13.6 MB and 0.2 s).
#
# Long texts are mostly lists of numbers. A block of such is b"RCDIGITS", the lengths, and the texts with half
# a byte for each digit (model/kernels.py): 0.44 of the bytes in a quarter of the time that Zstandard takes to
# leave 0.37. Its least level leaves 0.45 and takes 19 ns for a value instead of 6: texts with lists of
# thousands of numbers would be parsed in 1.55 times the time (lower levels leave 0.8 and more, LZ4 0.75).

_MAGIC = b"RCTEXT01"
_MAGIC_OF_DIGITS = b"RCTEXT02"
_DIGITS = b"RCDIGITS"
_HEAD = struct.Struct("<8sQQ")
_BLOCK_ROWS = 1024
MOST_BYTES = 2**31 - 1
"""Of the texts of a block: lengths have 32 bits."""
# Making a compressor takes 60 us, which a few short texts do not pay back.
_PLAIN_BYTES = 512
# Texts so long are mostly lists. Of those the least level leaves 0.45, and takes a third of the time of the
# usual one, which leaves 0.46.
LONG_TEXT = 1024
_SAMPLED = 4096
_NOT_DIGITS = re.compile(r"[^0-9, -]")


class _Stored(NamedTuple):
    """A block as it is stored, and its size when it is decompressed."""

    raw: bytes
    size: int


class PackedTexts:
    """One packed column (see the module head); blocks are read when a text in them is asked for.

    `resident` columns are this process's own memory, and are packed again once most of their texts are
    gone; those of a mapped file stay where they are.
    """

    __slots__ = ("_sizes", "_starts", "_sums", "n", "raw", "resident")

    def __init__(self, raw: npt.NDArray[np.uint8], resident: bool = True) -> None:
        self.raw = raw
        self.resident = resident
        if len(raw) < _HEAD.size:
            raise _damaged("their head is cut off")
        magic, self.n, n_blocks = _HEAD.unpack(raw[: _HEAD.size].tobytes())
        end = _HEAD.size + 16 * n_blocks + 8
        if magic not in (_MAGIC, _MAGIC_OF_DIGITS) or n_blocks != -(-self.n // _BLOCK_ROWS) or len(raw) < end:
            raise _damaged("their head is none")
        tables = raw[_HEAD.size : end].tobytes()
        self._starts = np.frombuffer(tables, "<i8", n_blocks + 1)
        self._sizes = np.frombuffer(tables, "<u4", n_blocks, 8 * n_blocks + 8)
        self._sums = np.frombuffer(tables, "<u4", n_blocks, 12 * n_blocks + 8)
        falls = bool((np.diff(self._starts) < 0).any())
        if int(self._starts[0]) != end or int(self._starts[-1]) != len(raw) or falls:
            raise _damaged(f"they must have {int(self._starts[-1])} bytes, got {len(raw)}")

    @classmethod
    def of(cls, column: pa.Array[Any]) -> PackedTexts:
        """A column of large strings, packed."""
        if column.offset:
            column = pa.concat_arrays([column])
        n = len(column)
        buffers = column.buffers()
        starts = np.frombuffer(buffers[1], np.int64, n + 1) if n else np.zeros(1, np.int64)
        letters = memoryview(buffers[2]) if n and buffers[2] is not None else memoryview(b"")
        lengths = np.diff(starts).astype("<i4")
        if column.null_count:
            lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
        blocks = []
        for first in range(0, n, _BLOCK_ROWS):
            last = min(n, first + _BLOCK_ROWS)
            size = int(starts[last] - starts[first])
            _check_size(last - first, size)
            plain = lengths[first:last].tobytes() + letters[int(starts[first]) : int(starts[last])]
            codec = _quick_codec() if size > LONG_TEXT * (last - first) else _codec()
            packed = codec.compress(plain, asbytes=True) if len(plain) > _PLAIN_BYTES else plain
            blocks.append(_Stored(packed if len(packed) < len(plain) else plain, len(plain)))
        return cls._of_blocks(n, blocks)

    @classmethod
    def of_long(cls, texts: list[str | None]) -> PackedTexts:
        """A list of long texts, packed; those of digits without a copy of all of them."""
        n_blocks = -(-len(texts) // _BLOCK_ROWS)
        places = np.full(n_blocks + 1, _HEAD.size + 16 * n_blocks + 8, "<i8")
        sizes, sums = np.empty(n_blocks, "<u4"), np.empty(n_blocks, "<u4")
        room = LettersRoom(kernels.PADDING)
        magic = _MAGIC
        # half of all letters, and what the block may have that comes last; what is not written to takes no
        # memory, and what is asked for in one piece is there a quarter sooner than pieces that are joined
        out = np.empty(sum(len(text) for text in texts if text) * 5 // 8, np.uint8)
        for block in range(n_blocks):
            own = texts[block * _BLOCK_ROWS : (block + 1) * _BLOCK_ROWS]
            first = int(places[block])
            if _mostly_digits(own):
                magic = _MAGIC_OF_DIGITS
                letters = sum((1 if text.isascii() else 4) * len(text) for text in own if text)
                end = first + len(_DIGITS) + 4 * len(own)
                out = _with_room(out, first, end + 2 * letters + kernels.PADDING)
                lengths = np.full(len(own), -1, np.int64)
                begin = end
                for k, text in enumerate(own):
                    if text is not None:
                        utf8 = room.put(text)
                        lengths[k] = len(utf8) - kernels.PADDING
                        end = kernels.pack_digits(utf8, int(lengths[k]), out, end)
                size = int(np.maximum(lengths, 0).sum())
                _check_size(len(own), size)
                out[first:begin] = np.frombuffer(_DIGITS + lengths.astype("<i4").tobytes(), np.uint8)
                sizes[block] = size + 4 * len(own)
            else:
                packed = cls.of(column_of(own))
                stored = packed.raw[int(packed._starts[0]) :]
                end = first + len(stored)
                out = _with_room(out, first, end)
                out[first:end] = stored
                sizes[block] = packed._sizes[0]
            sums[block] = zlib.crc32(out[first:end].data)
            places[block + 1 :] = end
        head = _head(magic, len(texts), places, sizes, sums)
        out = _with_room(out, 0, len(head))
        out[: len(head)] = np.frombuffer(head, np.uint8)
        out.resize(int(places[-1]), refcheck=False)  # in its place
        return cls(out)

    @classmethod
    def _of_blocks(cls, n: int, blocks: list[_Stored]) -> PackedTexts:
        head = _HEAD.size + 16 * len(blocks) + 8
        places = np.cumsum([head, *(len(block.raw) for block in blocks)]).astype("<i8")
        sizes = np.array([block.size for block in blocks], "<u4")
        sums = np.array([zlib.crc32(block.raw) for block in blocks], "<u4")
        whole = b"".join([_head(_MAGIC, n, places, sizes, sums), *(block.raw for block in blocks)])
        return cls(np.frombuffer(whole, np.uint8))

    def take(self, rows: npt.NDArray[np.int64]) -> pa.Array[Any]:
        """The texts of some rows, as large strings."""
        wanted, where = np.unique(rows // _BLOCK_ROWS, return_inverse=True)
        lengths: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
        letters: list[memoryview] = []
        for block in wanted.tolist():
            plain = self._read(block)
            n = min(_BLOCK_ROWS, self.n - block * _BLOCK_ROWS)
            own = np.frombuffer(plain, "<i4", n) if len(plain) >= 4 * n else np.empty(0, np.int32)
            # the head has no sum of its own: each block tells whether it has so many rows
            if len(own) != n or 4 * n + int(np.maximum(own, 0).sum(dtype=np.int64)) != len(plain):
                raise _damaged(f"block {block} does not have the texts of {n} rows")
            lengths.append(own)
            letters.append(memoryview(plain)[4 * n :])
        sizes = np.concatenate(lengths)
        column = _strings(np.maximum(sizes, 0), sizes >= 0, b"".join(letters))
        places = where.reshape(-1) * _BLOCK_ROWS + rows % _BLOCK_ROWS
        if len(places) == len(column) and bool((places == np.arange(len(places))).all()):
            return column
        return column.take(arrow_numbers(places))

    @property
    def nbytes(self) -> int:
        """Bytes, packed."""
        return self.raw.nbytes

    def _read(self, block: int) -> bytes:
        stored = self.raw[int(self._starts[block]) : int(self._starts[block + 1])].tobytes()
        if zlib.crc32(stored) != int(self._sums[block]):
            raise _damaged(f"block {block} does not have its sum")
        size = int(self._sizes[block])
        if len(stored) == size:
            return stored
        if stored.startswith(_DIGITS):
            return self._read_digits(block, stored, size)
        try:
            plain: bytes = _codec().decompress(stored, size, asbytes=True)
        except (OSError, ValueError) as error:
            raise _damaged(f"block {block} cannot be decompressed ({error})") from None
        return plain

    def _read_digits(self, block: int, stored: bytes, size: int) -> bytes:
        n = min(_BLOCK_ROWS, self.n - block * _BLOCK_ROWS)
        packed = np.frombuffer(stored, np.uint8, offset=len(_DIGITS))
        lengths = packed[: 4 * n].view("<i4") if len(packed) >= 4 * n else np.empty(0, "<i4")
        out = np.empty(max(size - 4 * n, 0), np.uint8)
        if len(lengths) != n or int(np.maximum(lengths, 0).sum(dtype=np.int64)) != len(out):
            raise _damaged(f"block {block} does not have the texts of {n} rows")
        if kernels.unpack_digits(packed[4 * n :], lengths, out) != len(packed) - 4 * n:
            raise _damaged(f"block {block} cannot be decompressed")
        return lengths.tobytes() + out.tobytes()


def _check_size(n: int, size: int) -> None:
    if size > MOST_BYTES:
        raise CapacityError(
            f"the texts of {n:,} subscriptions can have {MOST_BYTES:,} bytes, got {size:,}; "
            "write shorter ones, or give them as arrays"
        )


def _head(
    magic: bytes, n: int, places: npt.NDArray[Any], sizes: npt.NDArray[Any], sums: npt.NDArray[Any]
) -> bytes:
    return _HEAD.pack(magic, n, len(sizes)) + places.tobytes() + sizes.tobytes() + sums.tobytes()


def _with_room(out: npt.NDArray[np.uint8], used: int, wanted: int) -> npt.NDArray[np.uint8]:
    """The array, or a copy with more room."""
    if wanted <= len(out):
        return out
    longer = np.empty(max(wanted, len(out) + (len(out) >> 1)), np.uint8)
    longer[:used] = out[:used]
    return longer


def _mostly_digits(texts: list[str | None]) -> bool:
    """Whether texts are long, and all but one in thirty letters of the first one are of lists of numbers."""
    sample = next((text for text in texts if text), "")[:_SAMPLED]
    return len(sample) > LONG_TEXT and 30 * len(_NOT_DIGITS.findall(sample)) < len(sample)


def column_of(texts: list[Any]) -> pa.Array[Any]:
    """A list as large strings; pa.array would import pandas first, which takes half a second."""
    present = np.fromiter((text is not None for text in texts), bool, len(texts))
    plain = texts if present.all() else ["" if text is None else text for text in texts]
    try:
        letters = "".join(plain).encode()
    except TypeError:
        row = next(row for row, text in enumerate(plain) if not isinstance(text, str))
        raise SubscriptionError(f"row {row}: a text must be a string or None, got {plain[row]!r}") from None
    sizes = np.fromiter(map(len, plain), np.int64, len(plain))
    if len(letters) != int(sizes.sum()):  # not all of it is ASCII
        sizes = np.fromiter(map(len, map(str.encode, plain)), np.int64, len(plain))
    return _strings(sizes, present, letters)


def _strings(sizes: npt.NDArray[Any], present: npt.NDArray[np.bool_], letters: bytes) -> pa.Array[Any]:
    """Large strings from the sizes of all texts and their UTF-8, one after the other."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.large_string(), len(sizes), buffers)


def _codec() -> pa.Codec:
    return pa.Codec("zstd")


def _quick_codec() -> pa.Codec:
    return pa.Codec("zstd", compression_level=1)


def _damaged(what: str) -> StorageError:
    return StorageError(f"the texts of the subscriptions are damaged: {what}; save the index again")


TextRows = npt.NDArray[np.int32]

_FEW_ROWS = 64
# A run with fewer rows is small; that many small ones at the end are packed anew as one.
_SMALL_RUN = 1024
_MANY_RUNS = 256


class FewTexts:
    """A few texts as they came."""

    __slots__ = ("n", "texts")
    resident = True

    def __init__(self, texts: list[str | None]) -> None:
        self.texts = texts
        self.n = len(texts)

    @property
    def nbytes(self) -> int:
        """Bytes of the texts themselves."""
        return sum(len(text.encode()) for text in self.texts if text is not None)

    def take(self, rows: npt.NDArray[np.int64]) -> pa.Array[Any]:
        """The texts of some rows, as large strings."""
        return column_of([self.texts[row] for row in rows.tolist()])


TextHolder = PackedTexts | FewTexts


class _Stretch(NamedTuple):
    """Some rows: of packed columns, numbered through; -1 for no text. None: all rows of one column."""

    sources: tuple[TextHolder, ...]
    rows: TextRows | None
    n: int

    def take(self, wanted: npt.NDArray[np.int64]) -> pa.Array[Any]:
        rows = wanted if self.rows is None else self.rows[wanted].astype(np.int64)
        if len(self.sources) == 1 and not bool((rows < 0).any()):
            return self.sources[0].take(rows)
        found: list[pa.Array[Any]] = [pa.nulls(1, pa.large_string())]
        places = np.zeros(len(rows), np.int64)  # where there is no text: the null that comes first
        filled = 1
        for source, mine, theirs in _by_source(self.sources, rows):
            places[mine] = filled + np.arange(len(mine))
            found.append(source.take(theirs))
            filled += len(mine)
        return pa.concat_arrays(found).take(arrow_numbers(places))


class Texts:
    """A column of texts, some of which may be absent (None).

    >>> texts = Texts.of(["price < 10", None, "price > 5"])
    >>> texts[0], texts[1], texts.select(np.array([2, 0])).to_list()
    ('price < 10', None, ['price > 5', 'price < 10'])
    """

    __slots__ = ("_runs", "_small", "_starts")

    def __init__(self, runs: Iterable[_Stretch] = ()) -> None:
        self._runs: tuple[_Stretch, ...] = ()
        self._starts = [0]
        self._small = 0  # how many runs at the end are small
        for run in runs:
            self._append(run)

    def _append(self, run: _Stretch) -> None:
        """Only before anybody has seen the object."""
        if not run.n:
            return
        small = run.n < _SMALL_RUN
        self._small = self._small + 1 if small else 0
        self._runs = (*self._runs, run)
        self._starts.append(self._starts[-1] + run.n)
        if self._small >= _MANY_RUNS:
            column = pa.concat_arrays([run.take(np.arange(run.n)) for run in self._runs[-self._small :]])
            packed = PackedTexts.of(column)
            self._runs = (*self._runs[: -self._small], _Stretch((packed,), None, packed.n))
            self._starts[-self._small :] = [self._starts[-1]]
            self._small = int(packed.n < _SMALL_RUN)

    @classmethod
    def of(cls, texts: Any) -> Texts:
        """A column from a list or an Arrow array of strings, in which None stands for no text."""
        if isinstance(texts, Texts):
            return texts
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        if isinstance(texts, pa.Array):
            column = texts.cast(pa.large_string())
        else:
            texts = list(texts)
            if len(texts) <= _FEW_ROWS and all(type(text) is str and text.isascii() for text in texts):
                return cls([_Stretch((FewTexts(texts),), None, len(texts))])
            if len(texts) > _FEW_ROWS and _are_long(texts):
                packed = PackedTexts.of_long(texts)
                return cls([_Stretch((packed,), None, packed.n)])
            column = column_of(texts)
            if len(texts) <= _FEW_ROWS:
                return cls([_Stretch((FewTexts(column.to_pylist()),), None, len(texts))])
        packed = PackedTexts.of(column)
        return cls([_Stretch((packed,), None, packed.n)])

    @classmethod
    def absent(cls, n: int) -> Texts:
        """n rows without a text."""
        return cls([_Stretch((), np.full(n, -1, np.int32), n)])

    @classmethod
    def unpack(cls, raw: npt.NDArray[np.uint8], resident: bool = True) -> Texts:
        """The column that `pack` gave; a mapped one is not `resident`."""
        packed = PackedTexts(raw, resident)
        return cls([_Stretch((packed,), None, packed.n)])

    @classmethod
    def concat(cls, several: Iterable[Texts]) -> Texts:
        """Several columns as one."""
        columns = iter(several)
        out = cls()
        first = next(columns, out)
        out._runs, out._starts, out._small = first._runs, list(first._starts), first._small
        for texts in columns:
            for run in texts._runs:
                out._append(run)
        return out

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> str | None:
        if not 0 <= row < len(self):
            raise IndexError(f"there are {len(self)} texts, got row {row}")
        number = bisect_right(self._starts, row) - 1
        found = self._runs[number].take(np.array([row - self._starts[number]]))
        text: str | None = found[0].as_py()
        return text

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.to_list())

    def __reduce__(self) -> tuple[Any, ...]:
        return Texts.unpack, (self.pack(),)

    @property
    def nbytes(self) -> int:
        """Bytes of what is packed, each column once, and of the row numbers."""
        sources = {id(s): s.nbytes for run in self._runs for s in run.sources}
        return sum(sources.values()) + sum(run.rows.nbytes for run in self._runs if run.rows is not None)

    def select(self, rows: npt.NDArray[Any]) -> Texts:
        """The texts of some rows; nothing is read, unless most of what this process holds has gone."""
        rows = np.asarray(rows, np.int64)
        if len(self._runs) == 1:
            return Texts([_selected(self._runs[0], rows)])
        return Texts([_selected(_joined(self._runs), rows)])

    def padded(self, n: int) -> Texts:
        """With rows without a text at the end, so that there are n."""
        return self if len(self) == n else Texts.concat([self, Texts.absent(n - len(self))])

    def arrow(self) -> pa.Array[Any]:
        """All texts as large strings."""
        parts = [run.take(np.arange(run.n)) for run in self._runs]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.large_string())

    def to_list(self) -> list[str | None]:
        """All texts as Python strings."""
        texts: list[str | None] = self.arrow().to_pylist()
        return texts

    def pack(self) -> npt.NDArray[np.uint8]:
        """One array of bytes; what is packed already, whole and in order, is taken as it is."""
        if len(self._runs) == 1 and self._runs[0].rows is None:
            (whole,) = self._runs[0].sources
            if isinstance(whole, PackedTexts):
                return whole.raw
        return PackedTexts.of(self.arrow()).raw


def _are_long(texts: list[Any]) -> bool:
    """Whether these are texts, of which the first ones are long."""
    first = [text for text in texts[:16] if isinstance(text, str)]
    if sum(map(len, first)) <= LONG_TEXT * len(first):
        return False
    return all(text is None or isinstance(text, str) for text in texts)


def _by_source(
    sources: tuple[TextHolder, ...], rows: npt.NDArray[Any]
) -> Iterator[tuple[TextHolder, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """For each column that some rows are in: which of them, and their rows in it."""
    ends = np.cumsum([source.n for source in sources])
    present = np.flatnonzero(rows >= 0)
    owners = np.searchsorted(ends, rows[present], "right")
    order = np.argsort(owners, kind="stable")
    cuts = np.searchsorted(owners[order], np.arange(len(sources) + 1))
    for number in np.flatnonzero(np.diff(cuts)).tolist():
        mine = present[order[cuts[number] : cuts[number + 1]]]
        source = sources[number]
        yield source, mine, rows[mine].astype(np.int64) - int(ends[number] - source.n)


def _joined(runs: tuple[_Stretch, ...]) -> _Stretch:
    """Several runs as one, by row numbers; a column that several of them name stands once."""
    sources = {id(source): source for run in runs for source in run.sources}
    firsts = dict(
        zip(sources, itertools.accumulate((s.n for s in sources.values()), initial=0), strict=False)
    )
    out = np.full(sum(run.n for run in runs), -1, np.int32)
    start = 0
    for run in runs:
        part = out[start : start + run.n]
        if run.rows is None:
            first = firsts[id(run.sources[0])]
            part[:] = np.arange(first, first + run.n, dtype=np.int32)
        else:
            for source, mine, theirs in _by_source(run.sources, run.rows):
                part[mine] = firsts[id(source)] + theirs
        start += run.n
    return _Stretch(tuple(sources.values()), out, len(out))


def _selected(run: _Stretch, wanted: npt.NDArray[np.int64]) -> _Stretch:
    if run.rows is None and len(wanted) == run.n and bool((wanted == np.arange(run.n)).all()):
        return run
    rows = wanted if run.rows is None else run.rows[wanted]
    sources: list[TextHolder] = []
    out = np.full(len(rows), -1, np.int32)
    first = 0
    for source, mine, theirs in _by_source(run.sources, rows):
        if source.resident and 2 * len(mine) < source.n:
            # most of it would be memory for nothing; what is mapped costs none
            source, theirs = PackedTexts.of(source.take(theirs)), np.arange(len(mine))
        out[mine] = first + theirs
        sources.append(source)
        first += source.n
    whole = len(sources) == 1 and first == len(out) and bool((out == np.arange(first)).all())
    return _Stretch(tuple(sources), None if whole else out, len(out))
