"""Events from a file, batch by batch, so that memory does not grow with the file.

Each batch comes with the ids of its events: those of the id column, or row numbers from 1 when there
is none. The ids of the first batch settle whether they are whole numbers or strings, since an output
file has one type; an event whose id is of the other kind is set aside like any other bad row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.cli.loading import ARROW_TYPES, in_one_piece, whole_numbers
from rangecast.errors import EventError
from rangecast.loading import RejectedRow, Rejects, RowBatch, open_rows
from rangecast.loading.rejected import EVENTS
from rangecast.model.events import Events
from rangecast.types.attributes import MISSING
from rangecast.types.columns import describe
from rangecast.types.schema import Schema


class EventBatch(NamedTuple):
    """Events, the id of each, and how far in the file they end."""

    events: Events
    ids: pa.Array[Any]
    position: int


class EventStream:
    """The events of a file; after the last batch, `absent` are the attributes that no event had."""

    def __init__(
        self,
        schema: Schema,
        path: str,
        rejects: Rejects,
        *,
        event_id: str | None = None,
        format: str | None = None,
        stream: BinaryIO | None = None,
        batch: int = 100_000,
    ) -> None:
        self.path = path
        self.id_type: pa.DataType = pa.int64()
        self.n_events = 0
        self._schema = schema
        self._rejects = rejects
        self._asked = event_id
        self._present = np.zeros(len(schema), bool)
        self._settled = False
        wanted: dict[str, Any] = {event_id or "id": None}
        wanted |= {attribute.name: ARROW_TYPES[attribute.kind] for attribute in schema}
        self._source = open_rows(path, wanted, format=format, stream=stream, batch=batch)
        self.size = self._source.size
        self._id: str | None = event_id or "id"
        if self._source.names is not None:
            try:
                self._check_columns(self._source.names)
            except EventError:
                self.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    @property
    def absent(self) -> list[str]:
        """Attributes for which no event had a value."""
        return [name for name, some in zip(self._schema.names, self._present, strict=True) if not some]

    def __iter__(self) -> Iterator[EventBatch]:
        for batch in self._source.batches():
            yield self._load(batch)

    def _load(self, batch: RowBatch) -> EventBatch:
        if not self._settled and len(batch):
            if self._source.names is None:
                self._check_id(batch.columns)
            self._settle_type(batch)
        ids, wrong = self._ids(batch)
        if isinstance(batch.data, pa.Table):
            events = Events.from_arrow(self._schema, batch.data, on_error="collect")
        else:
            events = Events.from_rows(self._schema, batch.data, on_error="collect")
        reasons = {rejected.row: rejected.reason for rejected in events.rejected}
        taken = np.ones(len(batch), bool)
        taken[list(reasons)] = False
        if wrong:
            keep = np.ones(len(batch), bool)
            keep[list(wrong)] = False
            events = events.select(keep[taken])
            taken &= keep
            reasons = wrong | reasons
        self._set_aside(batch, reasons, ids)
        self._present |= (events.codes != MISSING).any(axis=1)
        self.n_events += len(events)
        return EventBatch(events, ids if taken.all() else ids.filter(pa.array(taken)), batch.position)

    def _check_columns(self, names: list[str]) -> None:
        if not set(names) & set(self._schema.names):
            raise EventError(
                f"{self.path}: must have a column of the schema ({', '.join(self._schema.names)}), "
                f"got {', '.join(names)}"
            )
        self._check_id(names)

    def _check_id(self, names: list[str]) -> None:
        if self._asked is not None and self._asked not in names:
            raise EventError(f"{self.path}: must have the id column {self._asked!r}, got {', '.join(names)}")
        if self._id not in names:
            self._id = None

    def _settle_type(self, batch: RowBatch) -> None:
        self._settled = True
        if self._id is None:
            return
        column = batch.column(self._id)
        if isinstance(column, list):
            whole = next((type(value) is int for value in column if value is not None), True)
        else:
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
            whole = pa.types.is_integer(kind) or pa.types.is_null(kind)
            if not text and not whole:
                raise EventError(f"{self.path}: ids must be whole numbers or strings, {self._id!r} is {kind}")
            if text and self._source.textual:
                whole = pa.types.is_integer(whole_numbers(column.drop_null()).type)
        self.id_type = pa.int64() if whole else pa.string()

    def _ids(self, batch: RowBatch) -> tuple[pa.Array[Any], dict[int, str]]:
        """The ids of a batch, and the rows that have none of the settled type."""
        if self._id is None:
            return pa.array(batch.rows), {}
        column = batch.column(self._id)
        if isinstance(column, pa.ChunkedArray):
            plain = in_one_piece(column)
            if pa.types.is_dictionary(plain.type):
                plain = plain.dictionary_decode()
            if self.id_type == pa.int64() and self._source.textual:
                plain = whole_numbers(plain)
            same_kind = pa.types.is_integer(plain.type) == (self.id_type == pa.int64())
            if same_kind and not plain.null_count:
                try:
                    return plain.cast(self.id_type), {}
                except pa.ArrowInvalid:  # an unsigned number beyond 64 bits
                    pass
            column = plain.to_pylist()
        return self._ids_one_by_one(column)

    def _ids_one_by_one(self, values: list[Any]) -> tuple[pa.Array[Any], dict[int, str]]:
        whole = self.id_type == pa.int64()
        wrong: dict[int, str] = {}
        taken: list[Any] = []
        for i, given in enumerate(values):
            value = given
            if whole and isinstance(given, str) and self._source.textual:
                found = whole_numbers(pa.array([given]))
                value = found[0].as_py()
            fits = type(value) is int and -(2**63) <= value < 2**63 if whole else isinstance(value, str)
            if not fits:
                word = "a whole number" if whole else "a string"
                wrong[i] = f"an event's id must be {word}, as at the start of the file, got {describe(given)}"
            taken.append(value if fits else None)
        return pa.array(taken, self.id_type), wrong

    def _set_aside(self, batch: RowBatch, reasons: dict[int, str], ids: pa.Array[Any]) -> None:
        problems = [RejectedRow(EVENTS, u.row, u.line, None, u.reason, u.raw) for u in batch.unread]
        for i, reason in reasons.items():
            line = None if batch.lines is None else int(batch.lines[i])
            id = None if self._id is None else ids[i].as_py()
            problems.append(RejectedRow(EVENTS, int(batch.rows[i]), line, id, reason, batch.raw(i)))
        for problem in sorted(problems, key=lambda p: p.row):
            self._rejects.add(problem)
