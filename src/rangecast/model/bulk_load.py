"""One bulk load of subscriptions: columns as given, and which rows are rejected and why."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import SubscriptionError
from rangecast.kernels.model import subscriptions as kernels
from rangecast.model.expiry_times import expiry_times
from rangecast.model.ids import Ids
from rangecast.model.texts import Texts
from rangecast.model.user_columns import UserColumns
from rangecast.types.attributes import HIGH, LAST, LOW, MISSING, Category, Codes
from rangecast.types.columns import is_unicode
from rangecast.types.schema import Schema


class Rejected(NamedTuple):
    """A row that was not loaded."""

    row: int
    id: Any
    reason: str


class Loaded(NamedTuple):
    """What a load took: ids, a mask of the rows (None: all of them), the rejected rows, what is beside."""

    ids: Ids
    good: npt.NDArray[np.bool_] | None
    rejected: list[Rejected]
    beside: UserColumns


def as_written(texts: list[Any]) -> Texts:
    """The texts of a load; what is no text, or none that UTF-8 can write, is absent."""
    try:
        return Texts.of(texts)
    except (SubscriptionError, UnicodeEncodeError):
        return Texts.of([text if _is_text(text) else None for text in texts])


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def columns_of(schema: Schema, bounds: Any, what: str) -> dict[int, Any]:
    """Bounds as columns by attribute position."""
    if isinstance(bounds, Mapping):
        return {schema.position(name): column for name, column in bounds.items() if column is not None}
    matrix = bounds if isinstance(bounds, np.ndarray) else np.asarray(bounds, dtype=_matrix_dtype(bounds))
    if matrix.ndim == 1 and len(schema) == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.shape[1] != len(schema):
        if matrix.size == 0:
            return {}
        raise SubscriptionError(
            f"{what} must be (n, {len(schema)}) values or a dict of columns, got {matrix.shape}"
        )
    return {j: np.ascontiguousarray(matrix[:, j]) for j in range(len(schema))}


def _matrix_dtype(bounds: Any) -> Any:
    """Object when there are nulls or mixed types, so that whole numbers stay exact."""
    flat = [value for row in bounds for value in (row if isinstance(row, list | tuple) else [row])]
    kinds = {type(value) for value in flat}
    return None if kinds <= {int} or kinds <= {float} else object


def bound_codes(load: Load, lows: Any, highs: Any) -> tuple[Codes, Codes]:
    """Inclusive bounds as codes (d, n); rows whose bounds cannot be are rejected."""
    schema, n = load.schema, load.n
    low_codes = np.full((len(schema), n), MISSING, np.int64)
    high_codes = np.full((len(schema), n), LAST, np.int64)
    low_columns, high_columns = columns_of(schema, lows, "lows"), columns_of(schema, highs, "highs")
    for j, attribute in enumerate(schema):
        low, high = low_columns.get(j), high_columns.get(j)
        if low is None and high is None:
            continue
        for column in (low, high):
            if column is not None:
                load.check_length(len(column), f"bounds of {attribute.name!r}")
        grow = isinstance(attribute, Category)
        a = attribute.encode(low, LOW, grow) if low is not None else None
        b = attribute.encode(high, HIGH, grow) if high is not None else None
        for encoded in (a, b):
            if encoded is not None:
                encoded.note(load.reasons, every=load.collect)
        low_row, high_row = low_codes[j], high_codes[j]
        if a is not None:
            low_row[:] = a.codes
        if b is not None:
            high_row[:] = b.codes
        kernels.close_bounds(low_row, high_row, b is not None)
        wrong = low_row > high_row
        if isinstance(attribute, Category):
            wrong |= (low_row != high_row) & ~((low_row == MISSING) & (high_row == LAST))
        rows = np.flatnonzero(wrong).tolist()
        for row in rows if load.collect else rows[:1]:
            ends = f"[{attribute.decode(low_row[row])}, {attribute.decode(high_row[row])}]"
            if isinstance(attribute, Category):
                reason = f"low must equal high on the {attribute.kind} {attribute.name!r}, got {ends}"
            else:
                reason = f"low must not exceed high on {attribute.name!r}, got {ends}"
            load.reject(row, reason)
        for row in rows:  # where nothing is collected they are counted
            load.reject(row, "")
    return low_codes, high_codes


class Load:
    """One bulk load: which rows were rejected and why; by default it raises at the first one."""

    def __init__(self, schema: Schema, ids: Any, on_error: str) -> None:
        if on_error not in ("raise", "collect"):
            raise SubscriptionError(f"on_error must be 'raise' or 'collect', got {on_error!r}")
        self.schema = schema
        self.collect = on_error == "collect"
        self.reasons: dict[int, str] = {}
        self.first_error: Exception | None = None
        self.raw = ids
        try:
            self.ids = Ids.of(ids)
        except SubscriptionError:
            if not self.collect:
                raise
            self.ids = self._salvage_ids(ids)
        self.n = len(self.ids)

    def _salvage_ids(self, ids: Any) -> Ids:
        """Ids of a column in which some are no ids; those rows are rejected."""
        items = ids.to_pylist() if isinstance(ids, pa.Array | pa.ChunkedArray) else list(ids)
        items = [str(item) if isinstance(item, uuid.UUID) else item for item in items]
        kinds = [
            int
            if isinstance(i, int | np.integer) and not isinstance(i, bool) and -(2**63) <= i < 2**63
            else type(i if not isinstance(i, str) or is_unicode(i) else b"")
            for i in items
        ]
        wanted = str if kinds.count(str) > kinds.count(int) else int
        self.raw = items
        for row, kind in enumerate(kinds):
            if kind is not wanted:
                word = "a string" if wanted is str else "an int64"
                self.reasons[row] = (
                    f"a subscription's id must be {word} as in the other rows, got {items[row]!r}"
                )
        taken = [item if kind is wanted else None for item, kind in zip(items, kinds, strict=True)]
        spare: Any = "" if wanted is str else 0
        return Ids.of(pa.array([spare if item is None else item for item in taken]))

    def check_length(self, length: int, what: str) -> None:
        if length != self.n:
            raise SubscriptionError(f"{what} must have one row per id, got {length} for {self.n} ids")

    def id_of(self, row: int) -> Any:
        if row in self.reasons and isinstance(self.raw, list):
            return self.raw[row]
        return self.ids[row]

    def reject(self, row: int, reason: str, error: Exception | None = None) -> None:
        self.reasons.setdefault(row, reason)
        if self.first_error is None:
            self.first_error = error

    def _reject_repeats(self) -> None:
        """Of the rows of one id that are good the first is taken; a bad one before it takes nothing away."""
        if not self.reasons:
            repeats = self.ids.repeats()
        else:
            good = np.setdiff1d(np.arange(self.n), list(self.reasons))
            repeats = good[self.ids.select(good).repeats()]
        for row in repeats.tolist():
            self.reject(row, "this id stands in an earlier row of the load; ids must differ")

    def finish(self, beside: UserColumns, expires: Any = None) -> Loaded:
        """Which rows were taken, once all were looked at; raises for the first bad one unless collecting."""
        if expires is not None:
            times, bad = expiry_times(expires, self.n)
            for row, reason in bad.items():
                self.reject(row, f"expires: {reason}")
            beside = UserColumns(self.n, beside.texts, beside.payload, times)
        self._reject_repeats()
        if not self.reasons:
            return Loaded(self.ids, None, [], beside)
        if not self.collect:
            row = min(self.reasons)
            tail = f" ({len(self.reasons)} of {self.n} subscriptions)" if self.n > 1 else ""
            # the count goes to the end of the first line: a language error draws a caret below it
            headline, *below = self.reasons[row].split("\n")
            message = "\n".join([f"subscription {self.id_of(row)!r}: {headline}{tail}", *below])
            raise SubscriptionError(message) from self.first_error
        rejected = [Rejected(row, self.id_of(row), self.reasons[row]) for row in sorted(self.reasons)]
        good = np.ones(self.n, bool)
        good[list(self.reasons)] = False
        rows = np.flatnonzero(good)
        return Loaded(self.ids.select(rows), good, rejected, beside.select(rows))
