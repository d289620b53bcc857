"""One unit of file mode, inside a worker: read with Arrow, match, write, rename.

A unit is some row groups of a Parquet file, or a whole CSV or JSON lines file. Its output is written
under a temporary name and renamed, then its entry in `done/` is; both are named for the unit, so
doing a unit twice, at once or after a crash, leaves one file with the same rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangecast.array_file import replacing
from rangecast.engine import Index
from rangecast.errors import EventError, StorageError
from rangecast.loading import open_rows
from rangecast.model.events import Events
from rangecast.spark.worker import COUNTS, LISTS, Answer, Pace, answer_events, answer_names, mapped, pairs_in
from rangecast.types.schema import Schema

STATE = "_rangecast"
_EXPECTED = {"int": pa.int64(), "float": pa.float64(), "category": pa.string(), "timestamp": pa.string()}
_ROWS_IN = 65_536
_NO_ID = "an event must have an id"
_OTHER_ID = "the event's id must be a whole number, as the first event's is"
REJECTED = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("event_id", pa.string()), ("reason", pa.string()),
     ("raw", pa.string())]
)  # fmt: skip


class Unit(NamedTuple):
    """A piece of work: a file, its format, and the row groups [first, last) of Parquet; last -1: all."""

    path: str
    format: str
    first: int
    last: int


class FileBatch(NamedTuple):
    """Events ready to be matched, with the columns that go out, and the rows that were set aside.

    `rows` has the number of each event in its file, from 1.
    """

    events: Events
    table: pa.Table
    rejected: list[dict[str, Any]]
    rows: npt.NDArray[np.int64]


class FileRun(NamedTuple):
    """All that a worker needs to know of a run; read from the output folder."""

    out: str
    snapshot: str
    answer: Answer
    units: list[Unit]
    id_type: str
    compression: str

    @classmethod
    def read(cls, out: str) -> FileRun:
        """The plan of an output folder."""
        raw = json.loads((Path(out) / STATE / "plan.json").read_bytes())
        answer = dict(raw["answer"])
        answer["attributes"], answer["keep"] = tuple(answer["attributes"]), tuple(answer["keep"])
        units = [Unit(*unit) for unit in raw["units"]]
        return cls(out, raw["snapshot"], Answer(**answer), units, raw["id_type"], raw["compression"])

    def output(self, number: int) -> Path:
        """The file of a unit's matches."""
        return Path(self.out) / f"part-{number:05}.parquet"

    def done(self, number: int) -> Path:
        """The entry that says that a unit is done."""
        return Path(self.out) / STATE / "done" / f"{number:05}.json"

    def rejected(self, number: int) -> Path:
        """The file of a unit's rows that were set aside."""
        return Path(self.out) / STATE / "rejected" / f"part-{number:05}.parquet"


def run_unit(plan: FileRun, number: int) -> dict[str, Any]:
    """Do one unit and enter it as done; gives back what was counted."""
    start = time.perf_counter()
    unit = plan.units[number]
    index = mapped(plan.snapshot)
    counted: dict[str, Any] = {
        "unit": number,
        "file": unit.path,
        "events": 0,
        "rows": 0,
        "pairs": 0,
        "rejected": 0,
    }
    aside: list[dict[str, Any]] = []
    pace = Pace()
    scratch = Path(plan.out) / STATE / "tmp" / f"{number:05}-{uuid.uuid4().hex}.parquet"
    id_type = pa.type_for_alias(plan.id_type)
    try:
        with contextlib.ExitStack() as stack:
            writer: pq.ParquetWriter | None = None
            for batch in read_unit(unit, index.schema, plan.answer, id_type):
                counted["events"] += len(batch.events)
                aside += batch.rejected
                for piece in answer_events(index, batch.events, batch.table, plan.answer, pace):
                    writer = writer or stack.enter_context(_writer(scratch, piece.schema, plan.compression))
                    writer.write_batch(piece)
                    counted["rows"] += piece.num_rows
                    counted["pairs"] += pairs_in(piece, plan.answer.form)
            if writer is None:
                schema = _empty_schema(index, plan.answer, unit, id_type)
                stack.enter_context(_writer(scratch, schema, plan.compression))
        os.replace(scratch, plan.output(number))
    finally:
        scratch.unlink(missing_ok=True)
    counted["rejected"] = len(aside)
    if aside:
        table = pa.Table.from_pylist(aside, REJECTED)
        with replacing(plan.rejected(number)) as file:
            pq.write_table(table, file)
    counted["bytes"] = plan.output(number).stat().st_size
    counted["seconds"] = round(time.perf_counter() - start, 4)
    with replacing(plan.done(number)) as file:
        file.write(json.dumps(counted).encode())
    return counted


def read_unit(
    unit: Unit, schema: Schema, answer: Answer, id_type: pa.DataType, *, need_id: bool = False
) -> Iterator[FileBatch]:
    """The events of a unit, batch by batch; with `need_id`, an event without an id is set aside."""
    if unit.format == "parquet":
        return _parquet(unit, schema, answer, need_id)
    return _text(unit, schema, answer, id_type, need_id)


def _parquet(unit: Unit, schema: Schema, answer: Answer, need_id: bool) -> Iterator[FileBatch]:
    try:
        with pq.ParquetFile(unit.path, memory_map=True) as file:
            groups = list(range(unit.first, unit.last if unit.last >= 0 else file.num_row_groups))
            seen = sum(file.metadata.row_group(group).num_rows for group in range(unit.first))
            for piece in file.iter_batches(_ROWS_IN, groups, answer.columns, use_threads=False):
                columns = {name: piece.column(name) for name in answer.attributes}
                events = Events.from_arrays(schema, columns, on_error="collect")
                table = pa.Table.from_batches([piece])
                numbers = np.arange(seen + 1, seen + len(table) + 1)
                seen += len(table)
                bad = _without_id(table, answer) if need_id else {}
                yield _cleaned(unit, events, table, answer, [], numbers, partial(shown, table), bad)
    except (pa.ArrowInvalid, OSError) as error:
        raise StorageError(f"{unit.path}: cannot be read: {error}") from error


def _text(
    unit: Unit, schema: Schema, answer: Answer, id_type: pa.DataType, need_id: bool
) -> Iterator[FileBatch]:
    wanted: dict[str, pa.DataType | None] = dict.fromkeys(answer.keep, pa.string())
    wanted |= {name: _EXPECTED[schema[name].kind] for name in answer.attributes}
    wanted[answer.event_id] = id_type
    with open_rows(unit.path, wanted, format=unit.format) as source:
        names = source.names
        missing = [name for name in answer.columns if names is not None and name not in names]
        if missing:
            raise EventError(f"{unit.path}: there is no column {missing[0]!r}, only {', '.join(names or [])}")
        for batch in source.batches():
            columns = {name: batch.column(name) for name in answer.attributes}
            events = Events.from_arrays(schema, columns, on_error="collect")
            ids, bad = _typed_ids(batch.column(answer.event_id), id_type)
            others = {name: _strings(batch.column(name)) for name in answer.keep}
            table = pa.table({**others, answer.event_id: ids})
            aside = [reject(unit, row.row, None, row.reason, row.raw) for row in batch.unread]
            if need_id:
                bad = _without_id(table, answer) | bad
            yield _cleaned(unit, events, table, answer, aside, batch.rows, batch.raw, bad)


def _without_id(table: pa.Table, answer: Answer) -> dict[int, str]:
    """The rows whose event has no id, with the reason to set it aside."""
    ids = table.column(answer.event_id)
    if not ids.null_count:
        return {}
    return dict.fromkeys(np.flatnonzero(ids.is_null().to_numpy()).tolist(), _NO_ID)


def shown(table: pa.Table, row: int) -> str:
    """A row of a table as text."""
    return json.dumps(table.slice(row, 1).to_pylist()[0], default=str)


def _cleaned(
    unit: Unit,
    events: Events,
    table: pa.Table,
    answer: Answer,
    aside: list[dict[str, Any]],
    numbers: npt.NDArray[np.int64],
    raw: Callable[[int], str],
    bad: Mapping[int, str],
) -> FileBatch:
    """Leave out the rows of a table whose event was rejected or is in `bad`, and say why they were."""
    reasons = {r.row: r.reason for r in events.rejected}
    for row, reason in bad.items():
        reasons.setdefault(int(row), reason)
    if not reasons:
        return FileBatch(events, table, aside, numbers)
    good = np.ones(table.num_rows, bool)
    good[list(reasons)] = False
    # rows that the events' own encoding rejected are gone from `events` already
    own = np.ones(table.num_rows, bool)
    own[[r.row for r in events.rejected]] = False
    ids = table.column(answer.event_id)
    for row in sorted(reasons):
        aside.append(reject(unit, int(numbers[row]), ids[row].as_py(), reasons[row], raw(row)))
    return FileBatch(events.select(good[own]), table.filter(pa.array(good)), aside, numbers[good])


def reject(unit: Unit, row: int | None, event: Any, reason: str, raw: str) -> dict[str, Any]:
    """A row of REJECTED; without a number it is about the whole file."""
    event = None if event is None else str(event)
    return {"file": unit.path, "row": row, "event_id": event, "reason": reason, "raw": raw}


def _typed_ids(column: Any, id_type: pa.DataType) -> tuple[pa.Array[Any], dict[int, str]]:
    """Event ids of a text file in the type of the run, null where they are of another; these with reasons."""
    texts = _strings(column)
    if pa.types.is_string(id_type):
        return texts, {}
    whole = pc.match_substring_regex(texts, r"^\s*[+-]?[0-9]{1,18}\s*$").fill_null(False)
    bad = np.flatnonzero(~whole.to_numpy(zero_copy_only=False)).tolist()
    kept = pc.if_else(whole, pc.utf8_ltrim(pc.utf8_trim_whitespace(texts), characters="+"), None)
    reasons = {row: _OTHER_ID if texts[row].is_valid else _NO_ID for row in bad}
    return kept.cast(pa.int64()), reasons


def _strings(column: Any) -> pa.Array[Any]:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks().cast(pa.string())
    return pa.array([None if value is None else str(value) for value in column], pa.string())


def _writer(path: Path, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    # a dictionary pays for event ids, which repeat in runs, and not for subscription ids
    return pq.ParquetWriter(path, schema, compression=compression, use_dictionary=["event_id"])


def _empty_schema(index: Index, answer: Answer, unit: Unit, id_type: pa.DataType) -> pa.Schema:
    """The columns of a unit without any row."""
    given: dict[str, pa.DataType] = dict.fromkeys(answer.columns, pa.string()) | {answer.event_id: id_type}
    if unit.format == "parquet":
        found = pq.read_schema(unit.path)
        given = {name: found.field(name).type for name in answer.columns}
    ids = pa.string() if answer.textual else pa.int64()
    second = {LISTS: pa.list_(ids), COUNTS: pa.int64()}.get(answer.form, ids)
    types = [given[answer.event_id], second, *(given[name] for name in answer.keep)]
    return pa.schema(list(zip(answer_names(answer), types, strict=True)))
