"""Events from rows: the only reader of events, for files, pipes, tables and the batches of a DataFrame.

A file is read batch by batch, so that memory does not grow with it. Each batch comes with the ids of its
events (ids.py), the columns that were asked to come along, and the rows that were rejected: those that the
file's own reader could not read, those without an id of the run's type, those with a value that its
attribute does not take. `load_events` is the step that all of them share.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.durable.bucket import is_address, objects_at, place_of, size_of
from rangecast.errors import EventError, OptionError, StorageError
from rangecast.loading.files import ROWS_AT_ONCE, RowBatch, RowFile
from rangecast.loading.formats import open_rows
from rangecast.loading.ids import INT64, STRING, column_type, id_text, in_one_piece, settle, typed_ids
from rangecast.loading.json import JsonLinesFile
from rangecast.loading.rejected import RejectedRow
from rangecast.model.events import Events
from rangecast.model.ids import Ids
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import narrowed
from rangecast.types.attributes import MISSING
from rangecast.types.frames import NamedColumns, ObjectNames, describe_absent, named_columns
from rangecast.types.schema import Schema

# What JSON is expected to hold for each kind of attribute; text files are parsed by the attribute.
ARROW_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "category": pa.string(),
    "text": pa.string(),
    "tags": pa.list_(pa.string()),
    "timestamp": pa.string(),
    "bool": pa.bool_(),
    "point": pa.list_(pa.float64()),
}
_OWNER = "an event"


class EventColumns(NamedTuple):
    """Which columns of the rows are read: of ids (None numbers the rows), of attributes, and to keep.

    `written` has the columns of attributes that are written otherwise, in other capitals.
    """

    id: str | None
    attributes: tuple[str, ...]
    keep: tuple[str, ...] = ()
    written: Mapping[str, str] = {}

    def column_of(self, attribute: str) -> str:
        """The name of an attribute's column."""
        return self.written.get(attribute, attribute)


class EventBatch(NamedTuple):
    """Events that can be matched, their ids, rows and kept columns, and the rows that were rejected."""

    events: Events
    ids: pa.Array[Any]
    kept: dict[str, pa.Array[Any]]
    rows: npt.NDArray[np.int64] | None
    rejected: list[RejectedRow]
    position: int = 0

    def table(self, event_id: str) -> pa.Table:
        """The kept columns and the ids, by the names that they have in the input."""
        return pa.table({**self.kept, event_id: self.ids})


def load_events(
    schema: Schema,
    batch: RowBatch,
    columns: EventColumns,
    id_type: pa.DataType | None = None,
    source: str | None = None,
) -> EventBatch:
    """The events of a batch of rows; without `id_type`, ids stay as they are and must be there."""
    n = len(batch)
    events = _encoded(schema, batch, columns) if batch.events is None else batch.events
    ids, wrong = _ids(batch, columns.id, id_type)
    kept = {name: _kept(batch.column(name)) for name in columns.keep}
    # an id says which row is meant, so what is wrong with it comes first
    reasons = {rejected.row: rejected.reason for rejected in events.rejected} | wrong
    unread = [RejectedRow(source, u.row, u.line, None, u.reason, u.raw) for u in batch.unread]
    if not reasons:
        return EventBatch(events, ids, kept, batch.rows, unread, batch.position)
    taken = np.ones(n, bool)
    taken[list(reasons)] = False
    # rows that the events' own encoding rejected are gone from `events` already
    own = np.ones(n, bool)
    own[[rejected.row for rejected in events.rejected]] = False
    rejected = [*unread, *reject_rows(batch, reasons, columns.id, source)]
    rejected.sort(key=lambda row: row.row or 0)
    mask = pa.array(taken)
    return EventBatch(
        events.select(taken[own]),
        ids.filter(mask),
        {name: column.filter(mask) for name, column in kept.items()},
        None if batch.rows is None else batch.rows[taken],
        rejected,
        batch.position,
    )


def _encoded(schema: Schema, batch: RowBatch, columns: EventColumns) -> Events:
    if isinstance(batch.data, pa.Table):
        there = [name for name in columns.attributes if columns.column_of(name) in batch.data.column_names]
    else:
        there = list(columns.attributes)
    given = {name: batch.column(columns.column_of(name)) for name in there}
    return Events.from_arrays(schema, given, on_error="collect")


def reject_rows(
    batch: RowBatch, reasons: dict[int, str], id: str | None, source: str | None
) -> Iterator[RejectedRow]:
    """Rows of a batch, by position, with their reasons."""
    given = None if id is None else batch.column(id)
    for i, reason in sorted(reasons.items()):
        value = None if given is None else given[i].as_py() if isinstance(given[i], pa.Scalar) else given[i]
        row = None if batch.rows is None else int(batch.rows[i])
        line = None if batch.lines is None else int(batch.lines[i])
        place = source if batch.source is None else batch.source(i)
        yield RejectedRow(place, row, line, id_text(value), reason, batch.raw(i))


class EventFile:
    """The events of a file or a pipe; after the last batch, `absent` are the attributes that no event had.

    `n_rows` counts the rows read, on from `first_row`, from which rows without ids are numbered on as well.

    `event_id` names the column of ids; by default it is `id`, and without one rows are numbered. With
    `attributes`, just these are read, and a file with columns must have all of them.
    """

    def __init__(  # noqa: PLR0913 - each is an option of whoever opens a file
        self,
        schema: Schema,
        path: str,
        *,
        event_id: str | None = None,
        attributes: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        id_type: pa.DataType | None = None,
        format: str | None = None,
        stream: BinaryIO | None = None,
        batch: int = ROWS_AT_ONCE,
        groups: tuple[int, int] | None = None,
        first_row: int = 0,
        delimiter: str | None = None,
    ) -> None:
        self.path = path
        self.paths = (path,)
        self.n_events = 0
        self.n_rows = first_row
        self._first_row = first_row
        self._schema = schema
        self._asked = event_id
        self._id_type = id_type
        # whether rows must be read to tell the type, or that there are ids at all
        self._settled = id_type is not None and event_id is not None
        self._present = np.zeros(len(schema.names), bool)
        self._unseen = set(keep)
        self._ahead: list[RowBatch] = []
        self._named = NamedColumns({}, [], [])
        self._columns = EventColumns(event_id or "id", tuple(attributes or schema.read_names), tuple(keep))
        wanted: dict[str, Any] = dict.fromkeys(keep, STRING)
        wanted[event_id or "id"] = id_type
        wanted |= {name: ARROW_TYPES[schema[name].kind] for name in self._columns.attributes}
        self._file: RowFile = open_rows(
            path, wanted, format=format, stream=stream, batch=batch, groups=groups, delimiter=delimiter
        )
        if isinstance(self._file, JsonLinesFile) and set(self._columns.attributes) == set(schema.names):
            self._file.read_events(schema, self._settled)
        self.size = self._file.size
        self._batches = self._file.batches()
        try:
            if self._file.names is not None:
                self._check_columns(self._file.names, attributes is not None)
        except EventError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def kept_types(self) -> dict[str, pa.DataType]:
        """The types of the columns that come along: those of the file, texts where it has none."""
        return {name: self._file.types.get(name, STRING) for name in self._columns.keep}

    @property
    def absent(self) -> list[str]:
        """Attributes for which no event had a value."""
        return [name for name, some in zip(self._schema.names, self._present, strict=True) if not some]

    @property
    def absent_kept(self) -> list[str]:
        """Columns to keep that no line of JSON had; other files say their columns, and are refused."""
        if self._file.names is not None:
            return []
        return [name for name in self._columns.keep if name in self._unseen]

    def refuse_absent(self) -> None:
        """Raise EventError for attributes that no column of the file has, where the file says its columns."""
        if self._named.absent:
            raise EventError(describe_absent(self._named.absent, self._named.near_misses(), self.path))

    def near_misses(self) -> dict[str, str]:
        """Attributes that no event had, and the columns that were probably meant."""
        if isinstance(self._file, JsonLinesFile):
            kind = ObjectNames(self._columns.attributes).kind_of(tuple(self._file.keys))
            named = NamedColumns(kind.columns, [], kind.unused)
        else:
            named = self._named
        return named._replace(absent=self.absent).near_misses()

    @property
    def id_type(self) -> pa.DataType:
        """The type of ids, int64 or string; reads ahead where it takes rows to tell."""
        if not self._settled:
            found = self._settle()
            self._id_type = self._id_type or found or INT64
            self._settled = True
        assert self._id_type is not None
        return self._id_type

    def __iter__(self) -> Iterator[EventBatch]:
        id_type = self.id_type
        while True:
            batch = self._ahead.pop(0) if self._ahead else next(self._batches, None)
            if batch is None:
                return
            loaded = load_events(self._schema, batch, self._columns, id_type, self.path)
            if not self._file.types and loaded.kept:
                # what a text file keeps is text, whatever type lines of JSON were read with
                kept = {name: column.cast(STRING) for name, column in loaded.kept.items()}
                loaded = loaded._replace(kept=kept)
            if self._columns.id is None and self._first_row:
                loaded = loaded._replace(ids=pc.add(loaded.ids, self._first_row))
            self.n_rows += len(batch) + len(batch.unread)
            if self._unseen:
                self._unseen -= {name for name, kept in loaded.kept.items() if kept.null_count < len(kept)}
            if not self._present.all():
                self._present |= (loaded.events.codes != MISSING).any(axis=1)
            self.n_events += len(loaded.events)
            yield loaded

    def _settle(self) -> pa.DataType | None:
        for batch in self._batches:
            self._ahead.append(batch)
            if not len(batch):
                continue
            if self._file.names is None:
                self._check_id(batch.columns)
            if self._columns.id is None:
                return INT64
            found = settle(batch.column(self._columns.id), self._file.textual)
            if found is not None or self._id_type is not None:
                return found
        return None

    def _check_columns(self, names: list[str], all_of_them: bool) -> None:
        self._named = named_columns(self._columns.attributes, names)
        needed = [*self._columns.keep, *(self._named.absent if all_of_them else ())]
        for name in needed:
            if name not in names:
                raise EventError(no_column(self.path, name, names))
        written = {name: column for name, column in self._named.columns.items() if column != name}
        if written:
            self._columns = self._columns._replace(written=written)
            id = self._columns.id
            self._file.keep({*self._columns.keep, *self._named.columns.values(), *([id] if id else ())})
        if not self._named.columns:
            raise EventError(
                f"{self.path}: must have a column of the schema ({', '.join(self._schema.read_names)}), "
                f"got {', '.join(names)}"
            )
        self._check_id(names)
        kind = self._file.types.get(self._columns.id or "")
        if kind is not None and not self._file.textual:
            found = column_type(kind)
            if found is None:
                raise EventError(bad_id_type(self.path, str(self._columns.id), kind))
            self._id_type = self._id_type or found
            self._settled = True

    def _check_id(self, names: list[str]) -> None:
        if self._asked is not None and self._asked not in names:
            raise EventError(no_column(self.path, self._asked, names))
        if self._columns.id not in names:
            self._columns = self._columns._replace(id=None)


def whole_file_reason(error: Exception) -> str | None:
    """Why a file that could not be read to its end is rejected as a whole; None for a disk that fails."""
    cause = error.__cause__ or error.__context__
    return None if isinstance(cause, OSError) and cause.errno is not None else str(error)


def no_column(path: str, name: str, names: Sequence[str]) -> str:
    """The message about a column that must be there."""
    return f"{path}: there is no column {name!r}, only {', '.join(names)}"


def bad_id_type(path: str, name: str, kind: pa.DataType) -> str:
    """The message about a column that can hold no ids."""
    return f"{path}: ids must be whole numbers or strings, {name!r} is {kind}"


def _ids(
    batch: RowBatch, id: str | None, id_type: pa.DataType | None
) -> tuple[pa.Array[Any], dict[int, str]]:
    if id is None:
        return pa.array(batch.rows, INT64), {}
    column = batch.column(id)
    if id_type is not None:
        return typed_ids(column, id_type, _OWNER)
    plain = in_one_piece(column)
    nulls = np.flatnonzero(plain.is_null().to_numpy(zero_copy_only=False)) if plain.null_count else ()
    return plain, {int(row): f"{_OWNER} must have an id, got null" for row in nulls}


def _kept(column: Any) -> pa.Array[Any]:
    """A column that comes along: with its type, or as texts where lines of JSON had several."""
    if isinstance(column, list):
        return pa.array([id_text(value) for value in column], STRING)
    return in_one_piece(column)


# Several files of events as one: their names, in order, and the events of one after the other.
#
# What is settled by the first file holds for all of them: the type of ids. Rows without ids are numbered on
# from file to file. A file is opened when the one before it has been read, so that thousands of them are no
# trouble; that all are there with their columns is checked at the start.


def expand_paths(names: Sequence[str]) -> list[str]:
    """The files that names and patterns such as `trades/*.csv` stand for, each once; StorageError for none.

    >>> expand_paths(["/dev/null", "/dev/nul[l]"])
    ['/dev/null']
    """
    found: dict[str, None] = {}
    for name in map(place_of, names):
        there = [name]
        if is_address(name):
            there = objects_at(name)
            if not there:
                raise StorageError(f"{name}: there is no such object, and no folder of objects")
        elif glob.has_magic(name) and not os.path.exists(name):
            there = sorted(glob.glob(name, recursive=True))
            if not there:
                raise StorageError(f"{name}: no file has a name like this")
        elif not os.path.exists(name):
            raise StorageError(f"{name}: there is no such file")
        found |= dict.fromkeys(there)
    return list(found)


class EventFiles:
    """The events of several files, as `EventFile` has those of one; `remarks` are on single files."""

    def __init__(self, schema: Schema, paths: Sequence[str], **options: Any) -> None:
        self.paths = tuple(paths)
        self.path = self.paths[0]
        self.n_events = 0
        self.remarks: list[str] = []
        self._schema = schema
        self._options = options
        for path in self.paths[1:]:  # a file that cannot be read must not end a run that has written
            EventFile(schema, path, **options).close()
        self._open = EventFile(schema, self.path, **options)
        self._kept_types = self._open.kept_types
        self._absent = set(schema.names)
        self._absent_kept = set(self._kept_types)
        self._near: dict[str, str] = {}
        # a Parquet file counts its rows and others their bytes; bytes are the unit for all of them here
        self._sizes = [size_of(path) for path in self.paths]
        self.size: int | None = sum(self._sizes)

    def close(self) -> None:
        """Close the file that is open."""
        self._open.close()

    def __enter__(self) -> EventFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id_type(self) -> pa.DataType:
        """The type of ids, by the first file."""
        return self._open.id_type

    @property
    def kept_types(self) -> dict[str, pa.DataType]:
        """The types of the columns that come along, by the first file."""
        return self._kept_types

    @property
    def absent(self) -> list[str]:
        """Attributes for which no event of any file had a value."""
        return [name for name in self._schema.names if name in self._absent]

    @property
    def absent_kept(self) -> list[str]:
        """Columns to keep that no event of any file had, where files do not say their columns."""
        return [name for name in self._kept_types if name in self._absent_kept]

    def refuse_absent(self) -> None:
        """As of an EventFile, by the first file."""
        self._open.refuse_absent()

    def near_misses(self) -> dict[str, str]:
        """Attributes that no event had, and the columns that were probably meant."""
        return {name: column for name, column in self._near.items() if name in self._absent}

    def __iter__(self) -> Iterator[EventBatch]:
        id_type = self.id_type
        done = 0
        for number, (path, size) in enumerate(zip(self.paths, self._sizes, strict=True)):
            if number:
                rows = self._open.n_rows
                self._open.close()
                options = self._options | {"id_type": id_type, "first_row": rows}
                self._open = EventFile(self._schema, path, **options)
            file = self._open
            for batch in file:
                share = batch.position / file.size if file.size else 0.0
                yield batch._replace(position=done + int(size * min(share, 1.0)))
            done += size
            self.n_events += file.n_events
            if file.n_events:
                self._absent_kept &= set(file.absent_kept)
                near = file.near_misses()
                self._near |= near
                self._absent &= set(file.absent)
                if near:
                    self.remarks.append(describe_absent(list(near), near, f"no event of {path}"))


# Columns that come along with matches: of the events (`keep`) and of the subscriptions (`payload`).
#
# A payload column is in the order of the subscriptions, and joined by id. An index gives matches as slots of
# a list of ids that seldom changes, so the join of those ids is made once and each batch is a gather.

PAIR = ("event_id", "subscription_id")


class PayloadColumns:
    """Columns of the payload of subscriptions, for the matches of an index that holds them.

    >>> from rangecast import Int, Schema
    >>> rows = [{"id": 7, "price": 1, "owner": "ann"}, {"id": 8, "price": 2, "owner": "bob"}]
    >>> subs = Subscriptions.from_rows(Schema(Int("price")), rows, payload=["owner"])
    >>> PayloadColumns(subs, ["owner"]).of(Matches.from_ids([0, 1], [8]))["owner"].to_pylist()
    ['bob']
    """

    def __init__(self, subs: Subscriptions, names: Sequence[str]) -> None:
        self._ids = subs.ids.arrow()
        self._columns: dict[str, Any] = {name: pa.array([], pa.string()) for name in names}
        if len(subs) and names:  # none have no payload either
            table = narrowed(subs.beside.table(tuple(names)))
            self._columns = {name: in_one_piece(table[name]) for name in names}
        self._joined: tuple[Ids, Any] | None = None  # ids of an index, and the row of each here

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of the columns."""
        return {name: column.type for name, column in self._columns.items()}

    def of(self, matches: Matches) -> dict[str, Any]:
        """The columns, a row for each pair of some matches."""
        if self._joined is None or not _same(self._joined[0], matches.names):
            ids = matches.names.arrow()
            self._joined = (matches.names, pc.index_in(ids, self._ids.cast(ids.type)))
        rows = self._joined[1].take(pa.array(matches.slots))
        return {name: column.take(rows) for name, column in self._columns.items()}


def _same(these: Ids, those: Ids) -> bool:
    """Whether two lists of ids are the same memory: an index makes a new object of it for each batch."""
    one = these.starts if these.textual else these.values
    other = those.starts if those.textual else those.values
    return len(one) == len(other) and one.ctypes.data == other.ctypes.data


def check_names(keep: Sequence[str], payload: Sequence[str]) -> None:
    """Raise OptionError when two columns of the output would have one name."""
    names = [*PAIR, *keep, *payload]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"columns of the output must differ, got twice: {', '.join(twice)}")


def cast_column(column: Any, kind: pa.DataType, name: str, path: str) -> Any:
    """A column of a later file in the type of the first one."""
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise EventError(
            f"{path}: the column {name!r} must be {kind} as in the first file, got {column.type}"
        ) from None
