"""Subscription ids: int64 or strings, in arrays.

    form      arrays                                         meaning
    int       values int64[n]
    string    starts int64[n + 1], letters uint8[starts[n]]  UTF-8, as in an Arrow large string array
    counting  first, n                                       whole numbers that count up by one: no array

A UUID is the string that it is usually written as. `Ids` is an immutable row of ids. `IdTable` finds the slot
of an id: an open-addressing hash table in one int32 array, so that it is built by a kernel, pickles, and maps
from a file, for both forms.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast import memory
from rangecast.errors import SubscriptionError
from rangecast.model import kernels
from rangecast.types.arrow_compute import pc
from rangecast.types.columns import describe, is_unicode
from rangecast.types.strings import arrow_numbers, arrow_words

FEW_IDS = 256  # up to here numpy takes them, or adds a number to them, sooner than a kernel is called
_UUID_DIGITS = [k for k in range(36) if k not in (8, 13, 18, 23)]
_NO_LETTERS = np.empty(0, np.uint8)
_NO_STARTS = np.zeros(1, np.int64)
_NO_VALUES = np.empty(0, np.int64)


def is_uuid(kind: pa.DataType) -> bool:
    """Whether a column of this Arrow type holds UUIDs."""
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def uuids_as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """A column of UUIDs as strings; any other as it is.

    >>> uuids_as_text(pa.array([uuid.UUID(int=7).bytes, None], pa.uuid())).to_pylist()
    ['00000000-0000-0000-0000-000000000007', None]
    """
    if not is_uuid(column.type):
        return column
    n = len(column)
    raw = pa.concat_arrays([column.storage.fill_null(bytes(16))]).buffers()[1].to_pybytes()[: 16 * n]
    digits = np.frombuffer(raw.hex().encode(), np.uint8).reshape(n, 32)
    letters = np.full((n, 36), ord("-"), np.uint8)
    letters[:, _UUID_DIGITS] = digits
    starts = pa.py_buffer(np.arange(n + 1, dtype=np.int64) * 36)
    text = pa.LargeStringArray.from_buffers(n, starts, pa.py_buffer(letters))
    return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.large_string()))


_FEW_WORDS = 4096
_FEW_TEXTS = 16  # up to here Python reads them one by one before Arrow has begun


class Ids:
    """A row of ids, all whole numbers or all strings.

    >>> Ids.of(["b", "a"]).take(np.array([1, 1])).tolist()
    ['a', 'a']
    """

    __slots__ = ("_n", "_plus", "_step", "_values", "first", "letters", "starts", "textual")

    def __init__(self, values: Any = None, starts: Any = None, letters: Any = None) -> None:
        self.textual = values is None
        self._values: npt.NDArray[np.int64] = _NO_VALUES if values is None else values
        self.first: int | None = None
        """What they count up from, where no array is kept."""
        self._n = 0
        self._plus = _NO_VALUES
        self.starts: npt.NDArray[np.int64] = _NO_STARTS if starts is None else starts
        self.letters: npt.NDArray[np.uint8] = _NO_LETTERS if letters is None else letters
        self._step: int | None = None

    @classmethod
    def counting(cls, first: int, n: int) -> Ids:
        """The n whole numbers from `first` on.

        >>> Ids.counting(5, 3).values.tolist(), Ids.counting(5, 3).nbytes
        ([5, 6, 7], 0)
        """
        out = cls(_NO_VALUES)
        out.first, out._n, out._plus = first, n, np.array(first, np.int64)
        return out

    @property
    def values(self) -> npt.NDArray[np.int64]:
        """Whole numbers, made again each time where no array is kept; empty where ids are strings."""
        if self.first is None:
            return self._values
        # not by its end, which may be one more than an int64
        return np.arange(self._n, dtype=np.int64) + self.first

    @classmethod
    def of(cls, values: Any) -> Ids:
        """Ids from an array, a list, a Series or an Arrow column; a wrong one raises, naming it."""
        if isinstance(values, Ids):
            return values
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != np.uint64:
            return cls(np.array(values, np.int64))  # a copy: the caller may change theirs
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not isinstance(values, pa.Array):
            if hasattr(values, "to_numpy"):
                values = values.to_numpy()
            items = values if isinstance(values, np.ndarray) else list(values)
            if len(items) == 0:
                return cls(np.empty(0, np.int64))
            if isinstance(items[0], uuid.UUID):
                items = [str(item) if isinstance(item, uuid.UUID) else item for item in items]
            plain = items if isinstance(items, list) else []
            kinds = set(map(type, plain))
            try:
                if kinds == {int}:
                    return cls(np.array(plain, np.int64))
                values = arrow_words(plain) if kinds == {str} else pa.array(items)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError):
                raise SubscriptionError(_complaint(items)) from None
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        values = uuids_as_text(values)
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise SubscriptionError(f"row {row}: a subscription must have an id, got null")
        if pa.types.is_integer(values.type):
            try:
                # a copy: Arrow shares the memory of a Series, which the caller may change
                return cls(np.array(values.cast(pa.int64()).to_numpy(zero_copy_only=False)))
            except pa.ArrowInvalid:
                raise SubscriptionError(_complaint(values.to_pylist())) from None
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return cls._of_text(values.cast(pa.large_string()))
        if len(values) == 0:
            return cls(np.empty(0, np.int64))
        raise SubscriptionError(_complaint(values.to_pylist()))

    @classmethod
    def _of_text(cls, text: pa.Array[Any]) -> Ids:
        if text.offset:
            text = pa.concat_arrays([text])
        _, starts, letters = text.buffers()
        n = len(text)
        ends = np.frombuffer(starts, np.int64, n + 1, text.offset * 8)
        chars = np.frombuffer(letters, np.uint8) if letters is not None else _NO_LETTERS
        return cls(None, ends - ends[0], chars[ends[0] : ends[-1]].copy())

    def __len__(self) -> int:
        if self.first is not None:
            return self._n
        return len(self.starts) - 1 if self.textual else len(self._values)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.starts.nbytes + self.letters.nbytes if self.textual else self._values.nbytes

    def __getitem__(self, slot: int) -> int | str:
        if self.textual:
            return self.letters[self.starts[slot] : self.starts[slot + 1]].tobytes().decode()
        if self.first is not None:
            return self.first + range(self._n)[slot]
        return int(self._values[slot])

    def select(self, slots: npt.NDArray[Any]) -> Ids:
        """The ids at some slots, as Ids."""
        if self.first is not None:
            return Ids(np.asarray(slots, np.int64) + self.first)
        if not self.textual:
            return Ids(self._values[slots])
        return Ids._of_text(self.arrow().take(arrow_numbers(slots)))

    def head(self, n: int) -> Ids:
        """The first n ids, without a copy."""
        if self.first is not None:
            return Ids.counting(self.first, min(n, self._n))
        return Ids(None, self.starts[: n + 1], self.letters) if self.textual else Ids(self._values[:n])

    def arrow(self) -> pa.Array[Any]:
        """An Arrow array of int64 or large_string, without a copy."""
        if not self.textual:
            return arrow_numbers(self.values)
        starts, letters = pa.py_buffer(self.starts), pa.py_buffer(self.letters)
        return pa.LargeStringArray.from_buffers(len(self), starts, letters)

    def take(self, slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The ids at some slots: int64, or an object array of str."""
        if not self.textual:
            if len(slots) <= FEW_IDS:
                # `_plus` is an array of one number: of a number numpy makes one at each call, in half a
                # microsecond
                return self._values.take(slots) if self.first is None else slots + self._plus
            out = memory.empty(len(slots), np.int64)
            slots = np.ascontiguousarray(slots, np.int32)
            if self._consecutive(len(slots)):
                # half the time of a gather from a table that fills the cache, or less
                kernels.count_from(int(self._values[0]) if self.first is None else self.first, slots, out)
                return out
            kernels.gather(self._values, slots, out)
            return out
        if len(slots) <= _FEW_TEXTS:
            return np.fromiter(map(self.__getitem__, slots.tolist()), object, len(slots))
        distinct, where = np.unique(slots, return_inverse=True)
        found = self.arrow().take(arrow_numbers(distinct))
        if len(distinct) <= _FEW_WORDS:  # twice as slow per word, but without pandas
            return np.fromiter(found.to_pylist(), object, len(distinct))[where]
        return found.to_numpy(zero_copy_only=False).astype(object)[where]  # type: ignore[no-any-return]

    def _consecutive(self, wanted: int) -> bool:
        """Whether the ids count up by one; looked at only when that costs less than it may save."""
        if self.first is not None:
            return True
        if self._step is None:
            if wanted < len(self._values):
                return False
            self._step = int(self.counts_up())
        return bool(self._step)

    @property
    def dense(self) -> bool:
        """Whether the ids, all different, are whole numbers without a gap."""
        if self.first is not None:
            return self._n > 0
        n = len(self._values)
        return n > 0 and int(self._values.max()) - int(self._values.min()) == n - 1

    def dense_order(self) -> npt.NDArray[np.int64] | None:
        """How to put the ids so that they count up by one; None where they cannot, or do already."""
        if self.counts_up() or not self.dense:
            return None
        n = len(self._values)
        order = np.full(n, -1, np.int64)
        order[self._values - self._values.min()] = np.arange(n)
        # an id that stands twice leaves a gap
        return None if (order < 0).any() else order

    def counts_up(self) -> bool:
        """Whether they are whole numbers, each one more than the one before it."""
        if self.first is not None:
            return True
        values = self._values
        n = len(values)
        if self.textual or not n or int(values[-1]) - int(values[0]) != n - 1:
            return False
        return bool(kernels.counts_up(values))

    def take_arrow(self, slots: npt.NDArray[Any]) -> pa.Array[Any]:
        """The ids at some slots: int64, or a dictionary array that shares this row's strings."""
        if not self.textual:
            return arrow_numbers(self.take(slots))
        return pa.DictionaryArray.from_arrays(arrow_numbers(np.asarray(slots, np.int32)), self.arrow())

    def ranks(self) -> npt.NDArray[np.int64] | None:
        """Each id's place in ascending order (equal ids share one); None when slots are in order."""
        if self.textual:
            # Arrow orders the bytes where they stand; numpy would give each string the room of the longest
            ranks = pc.rank(self.arrow(), tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
            return None if bool((ranks[1:] > ranks[:-1]).all()) else ranks
        values = self._values
        if self.first is not None or len(values) < 2 or bool((values[1:] > values[:-1]).all()):
            return None
        return np.unique(values, return_inverse=True)[1].astype(np.int64)

    def hashes(self) -> npt.NDArray[np.uint64]:
        """A 64-bit hash per id."""
        out = np.empty(len(self), np.uint64)
        if self.textual:
            kernels.hash_strings(self.starts, self.letters, out)
        else:
            kernels.hash_integers(self.values, out)
        return out

    def places_of(self, wanted: Ids) -> npt.NDArray[np.int32]:
        """Where each of some ids stands among ours, which count up; -1 where it does not.

        >>> Ids.counting(5, 3).places_of(Ids.of([7, 4, 8, 5])).tolist()
        [2, -1, -1, 0]
        """
        assert self.first is not None
        out = np.full(len(wanted), -1, np.int32)
        if self._n and not wanted.textual:
            values = wanted.values
            rows = np.flatnonzero((values >= self.first) & (values <= self.first + self._n - 1))
            out[rows] = values[rows] - self.first
        return out

    def repeats(self) -> npt.NDArray[np.int64]:
        """Rows whose id already stood in an earlier row."""
        if not self.textual and bool((self._values[1:] > self._values[:-1]).all()):
            return np.empty(0, np.int64)
        firsts = IdTable(self).find(self)
        return np.flatnonzero(firsts != np.arange(len(self)))


class IdTable:
    """Finds slots by id. To grow, the table is rebuilt at twice the size."""

    __slots__ = ("ids", "table")

    def __init__(self, ids: Ids, table: npt.NDArray[np.int32] | None = None) -> None:
        self.ids = ids
        if table is None:
            table = np.full(_table_size(len(ids)), -1, np.int32)
            hashes = ids.hashes()
            kernels.enter(table, hashes, ids.values, ids.starts, ids.letters, ids.textual, 0)
        self.table = table

    @property
    def nbytes(self) -> int:
        """Bytes of the table alone."""
        return self.table.nbytes

    def find(self, wanted: Ids) -> npt.NDArray[np.int32]:
        """The slot of each id, -1 where there is none; the first slot that holds it."""
        out = np.full(len(wanted), -1, np.int32)
        if len(self.ids) and len(wanted) and wanted.textual == self.ids.textual:
            i, w = self.ids, wanted
            kernels.find(
                self.table,
                i.values,
                i.starts,
                i.letters,
                w.hashes(),
                w.values,
                w.starts,
                w.letters,
                w.textual,
                out,
            )
        return out

    def extended(self, ids: Ids, alive: npt.NDArray[np.uint8]) -> IdTable:
        """A table for `ids`, which begin with ours; a later living slot takes over an id's entry."""
        n = len(self.ids)
        # from nothing: slots that are dead may repeat the id of one that lives
        if n == 0 or 2 * len(ids) > len(self.table):
            table = np.full(_table_size(len(ids)), -1, np.int32)
            kernels.enter_living(table, ids.hashes(), alive)
            return IdTable(ids, table)
        fresh = np.arange(n, len(ids))
        hashes = ids.select(fresh).hashes()
        kernels.enter(self.table, hashes, ids.values, ids.starts, ids.letters, ids.textual, n)
        return IdTable(ids, self.table)


def _table_size(n: int) -> int:
    return 1 << max(4, int(3 * n).bit_length())


def _complaint(items: Any) -> str:
    for row, item in enumerate(items):
        whole = isinstance(item, int | np.integer) and not isinstance(item, bool)
        if whole and -(2**63) <= int(item) < 2**63:
            continue
        if not isinstance(item, str) or not is_unicode(item):
            return f"row {row}: a subscription's id must be an int64 or a string, got {describe(item)}"
    return "ids of one load must be all whole numbers or all strings, got both"
