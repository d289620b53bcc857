"""The conditions as people wrote them: a column of texts beside the subscriptions, compressed in blocks.

No match reads a text, so the column is made to stay out of the way: a mapped index keeps it in its file,
and whoever asks for one text reads and decompresses the one block that holds it (packed_texts.py).

`Texts` is what users see. It consists of runs of rows, one after the other; a run names some packed
columns and the rows in them. So selecting and joining move row numbers, and never touch the blocks.
A few texts are left as a list, since packing them would take as long as parsing them; once many have
come in this way, one by one, they are packed together.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.model.packed_texts import LONG_TEXT, PackedTexts, column_of
from rangecast.types.strings import arrow_numbers

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
