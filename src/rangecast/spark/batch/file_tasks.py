"""One unit of file mode, inside a worker: read with Arrow, match, write, rename.

What comes next is read while a batch is matched, and matched while pairs are written, by a thread each: the
readers, kernels and writers leave Python's lock to others.

A unit is some row groups of a Parquet file, or a whole CSV or JSON lines file. Its output is written
under a temporary name and renamed, then its entry in `done/` is; both are named for the unit, so
doing a unit twice, at once or after a crash, leaves one file with the same rows.

In a bucket nothing is renamed. There each attempt puts its output under a name of its own, and the entry in
`done/`, which is created if there is none, says which attempt counts. What the others have put is deleted.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.durable.bucket import is_address, seekable_file
from rangecast.engine import Index
from rangecast.errors import EventError, StorageError
from rangecast.loading import EventFile, RejectedRow
from rangecast.loading.events import whole_file_reason
from rangecast.loading.match_file import read_ahead
from rangecast.loading.pairs import Pace, ParquetPairs
from rangecast.loading.rejected import rejected_table
from rangecast.model.events import Events
from rangecast.spark.output import COUNTS, LISTS, PAIRS, Answer
from rangecast.spark.worker import answer_events, beside_driver, mapped, pairs_in
from rangecast.store.home import Home, home_of
from rangecast.types.schema import Schema

STATE = "_rangecast"
# Pairs of a row group, but for the last one: so many of them are written while the next ones are matched.
_GROUP_AT_LEAST = 1 << 18


class Unit(NamedTuple):
    """A piece of work: a file, its format, and the row groups [first, last) of Parquet; last -1: all."""

    path: str
    format: str
    first: int
    last: int


class FileBatch(NamedTuple):
    """Events ready to be matched, with the columns that go out, and the rows that were rejected.

    `rows` has the number of each event in its file, from 1.
    """

    events: Events
    table: pa.Table
    rejected: list[RejectedRow]
    rows: npt.NDArray[np.int64]


class FileRun(NamedTuple):
    """All that a worker needs to know of a run; read from the output folder."""

    out: str
    snapshot: str
    answer: Answer
    units: list[Unit]
    id_type: str
    compression: str
    strict: bool = False

    @classmethod
    def read(cls, out: str) -> FileRun:
        """The plan of an output folder."""
        home = home_of(out)
        raw = home.read(f"{STATE}/plan.json")
        if raw is None:
            raise StorageError(
                f"{home.path}/{STATE}/plan.json: is not here; a worker must see the same files as the driver"
            )
        units = [Unit(*unit) for unit in raw["units"]]
        return cls(
            out,
            raw["snapshot"],
            Answer(**raw["answer"]),
            units,
            raw["id_type"],
            raw["compression"],
            raw.get("strict", False),
        )

    @property
    def home(self) -> Home:
        """The output folder."""
        return home_of(self.out)

    def part(self, number: int) -> str:
        """A name for the file of a unit's matches; in a bucket one that no other attempt has."""
        attempt = f"-{uuid.uuid4().hex}" if is_address(self.out) else ""
        return f"part-{number:05}{attempt}.parquet"

    def done_units(self) -> set[int]:
        """The units that are done."""
        names = self.home.names(f"{STATE}/done")
        return {int(name.removesuffix(".json")) for name in names if name.endswith(".json")}


def done_name(number: int) -> str:
    """The entry that says that a unit is done."""
    return f"{STATE}/done/{number:05}.json"


def run_unit(plan: FileRun, number: int) -> dict[str, Any]:
    """Do one unit and enter it as done; returns the counts."""
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
    aside: list[RejectedRow] = []
    pace = Pace()
    home, part = plan.home, plan.part(number)
    scratch = home.scratch(f"{STATE}/tmp/{number:05}-{uuid.uuid4().hex}.parquet")
    id_type = pa.type_for_alias(plan.id_type)
    writer = ParquetPairs(scratch, plan.compression, _filled(plan.answer), _GROUP_AT_LEAST)
    try:

        def matched() -> Iterator[pa.RecordBatch]:
            for batch in read_ahead(read_unit(unit, index.schema, plan.answer, id_type)):
                counted["events"] += len(batch.events)
                aside.extend(batch.rejected)
                yield from answer_events(index, batch.events, batch.table, plan.answer, pace)

        for piece in read_ahead(matched()):
            with beside_driver(plan.out):
                writer.write(pa.Table.from_batches([piece]))
            counted["rows"] += piece.num_rows
            counted["pairs"] += pairs_in(piece, plan.answer.form)
        schema = _empty_schema(index, plan.answer, unit, id_type) if writer.is_empty else None
        with beside_driver(plan.out):
            writer.close(schema)
        counted["bytes"] = scratch.stat().st_size
        with beside_driver(plan.out):
            home.take(part, scratch)
    except (EventError, StorageError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = None if plan.strict else whole_file_reason(error)
        if reason is None:
            raise
        counted |= dict.fromkeys(("events", "rows", "pairs"), 0)
        aside = [RejectedRow(unit.path, None, None, None, reason, "")]
        home.remove_all([part])
        part, counted["bytes"] = "", 0
    finally:
        writer.release()
        scratch.unlink(missing_ok=True)
    counted["rejected"] = len(aside)
    rejected = f"{STATE}/rejected/{plan.part(number)}" if aside else ""
    if aside:
        home.put(rejected, lambda file: pq.write_table(rejected_table(aside), file))
    counted |= {"part": part, "rejected_part": rejected}
    counted["seconds"] = round(time.perf_counter() - start, 4)
    if not home.create(done_name(number), counted):
        # another attempt was faster, and counts
        home.remove_all([name for name in (part, rejected) if name])
    return counted


def read_unit(unit: Unit, schema: Schema, answer: Answer, id_type: pa.DataType) -> Iterator[FileBatch]:
    """The events of a unit, batch by batch."""
    groups = (unit.first, unit.last) if unit.format == "parquet" else None
    with EventFile(
        schema,
        unit.path,
        event_id=answer.event_id,
        attributes=answer.attributes,
        keep=answer.keep,
        id_type=id_type,
        format=unit.format,
        groups=groups,
    ) as file:
        for batch in file:
            assert batch.rows is not None
            yield FileBatch(batch.events, batch.table(answer.event_id), batch.rejected, batch.rows)


def _filled(answer: Answer) -> tuple[str, ...]:
    """The columns that have a value in each row: an event without an id is rejected."""
    event, second = answer.names[:2]
    always = answer.form == COUNTS or (answer.form == PAIRS and not answer.outer)
    return (event, second) if always else (event,)


def _empty_schema(index: Index, answer: Answer, unit: Unit, id_type: pa.DataType) -> pa.Schema:
    """The columns of a unit without any row."""
    wanted = (answer.event_id, *answer.keep)
    given: dict[str, pa.DataType] = dict.fromkeys(wanted, pa.string())
    if unit.format == "parquet":
        found = pq.read_schema(seekable_file(unit.path))
        given = {name: found.field(name).type for name in wanted}
    given[answer.event_id] = id_type
    ids = pa.string() if answer.textual else pa.int64()
    second = {LISTS: pa.list_(ids), COUNTS: pa.int64()}.get(answer.form, ids)
    types = [given[answer.event_id], second, *(given[name] for name in answer.keep)]
    return pa.schema(list(zip(answer.names, types, strict=True)))
