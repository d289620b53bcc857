"""Ingest: a DataFrame of subscriptions becomes a new version of a store.

    rows --parse and check in the workers--> staged arrays --latest per id--> one change --> snapshot
                        |
                        +--> rejected rows (rangecast.loading.rejected)

Rows are conditions in text, or bounds in columns (`price_low`, `price_high`, or `price` for equality).
A row that cannot be loaded is rejected and stops no other; it never takes effect, so an earlier
good row of the same id stands. Of several good rows of an id the one with the largest sequence wins,
or without a sequence the last in the order of the input. The driver handles arrays, never rows.

Parsing subscriptions inside Spark's workers, in two passes where there are categories.

A category's strings have codes, and a condition such as `symbol != 'IBM'` is a range of codes: workers
that each named strings on their own could not be put together again. So the first pass only finds
the strings, the store gives them codes for good (`Store.learn`), and the second pass parses with
those. Without categories, the first pass looks at conditions with expressions alone.

The second pass leaves its result in files of the store's staging folder, since the store is where
both workers and driver can write and read; a row per file comes back through Spark. Rows:

    array          dtype   meaning
    ids.*          Ids     of each good row (store/log.py has the same form)
    gone           uint8   1 where the row is a delete
    sequences      int64   the order that the user gave, 0 without one
    orders         int64   the order of the rows in the input
    boxes.*                the boxes of the rows (model/boxes.py), deletes have none
    texts          uint8   the conditions of the rows as they were written, if they came as text
    payload        uint8   columns of the users' own, if some were asked for (model/user_columns.py)
    expires        int64   when the subscription of each row ends, 0 for never, if there is such a column
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rangecast.array_file import Arrays, read_arrays, replacing, sync_folder, write_arrays
from rangecast.errors import StorageError, SubscriptionError
from rangecast.loading import RejectedRow, RowBatch
from rangecast.loading.events import reject_rows
from rangecast.loading.parquet_files import table_raw
from rangecast.loading.rejected import REJECTED, rejected_table
from rangecast.loading.subscriptions import OWN
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import UserColumns
from rangecast.spark.output import map_arrow
from rangecast.spark.report import REJECTED_FIELDS, Report
from rangecast.store.record import EXPRESSIONS, boxes_arrays, ids_arrays, ids_from, subscriptions_from
from rangecast.store.store import Store
from rangecast.types.schema import Schema

_WORDS = T.StructType([T.StructField("position", T.IntegerType()), T.StructField("word", T.StringType())])
_STAGED = T.StructType(
    [
        *(T.StructField(name, T.StringType()) for name in ("file", "rejected_file")),
        *(T.StructField(name, T.LongType()) for name in ("rows", "rejected")),
    ]
)
_IDS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.StringType)
_SEQUENCES = (*_IDS[:-1], T.TimestampType, T.TimestampNTZType, T.DateType)
_PAYLOAD = (*_SEQUENCES, T.StringType, T.BooleanType, T.FloatType, T.DoubleType, T.DecimalType)


def ingest(
    subscriptions: DataFrame,
    schema: Schema | None,
    store: Store | str | os.PathLike[str],
    *,
    id: str = "id",
    condition: str | None = None,
    sequence: str | None = None,
    op: str | None = None,
    payload: Sequence[str] = (),
    expires: str | None = None,
    publish: bool = True,
) -> Report:
    """Load subscriptions into a store as one version, and publish its snapshot.

    `store` is a Store or a path, where a store is made if there is none (then `schema` is needed).
    `condition` names the column of texts ("condition" if there is one), else bounds are taken from
    columns named after the attributes. `sequence` orders rows of one id, `op` says upsert or delete. The
    columns in `payload` are kept with the subscriptions, and that named by `expires` says when each ends.
    The report has version, rows, accepted, deleted, superseded, rejected_rows, and the rejected rows
    as a DataFrame (rangecast.loading.rejected).
    """
    report = Report(step="ingest")
    home = store if isinstance(store, Store) else Store.open(store, schema)
    if schema is not None:
        home.schema.check_same(schema, "the schema given")
    columns = check_columns(subscriptions.schema, home.schema, id, condition, sequence, op)
    columns = with_beside(columns, subscriptions.schema, payload, expires)
    numbered = subscriptions.withColumn(ORDER, F.monotonically_increasing_id())
    staging = home.path / "staging" / uuid.uuid4().hex
    staging.mkdir(parents=True)
    try:
        if columns.condition is not None or any(home.schema.categories()):
            with report.timed("words"):
                home.learn(find_words(subscriptions, home.schema, str(home.path), columns))
        with report.timed("parse"):
            staged = map_arrow(numbered, loader(str(home.path), str(staging), columns), _STAGED).collect()
        report.rows = sum(row["rows"] for row in staged)
        report.rejected_rows = sum(row["rejected"] for row in staged)
        with report.timed("store"):
            _apply(home, staging, [row["file"] for row in staged if row["file"]], report)
        report.rejected = _keep_rejected(subscriptions, home, staging, staged)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    if publish:
        with report.timed("publish"):
            report.index_bytes = home.snapshot(report.version).stat().st_size
    report.log()
    return report


def check_columns(
    given: T.StructType,
    schema: Schema,
    id: str,
    condition: str | None,
    sequence: str | None,
    op: str | None,
) -> Columns:
    """Which columns mean what, after they were found to be there and of the right types."""
    types = {field.name: field.dataType for field in given.fields if not field.name.startswith(OWN)}
    if condition is None and "condition" in types and "condition" not in schema:
        condition = "condition"
    wanted: list[tuple[str, str | None, tuple[Any, ...], str]] = [
        ("id", id, _IDS, "whole numbers or strings"),
        ("condition", condition, (T.StringType,), "strings"),
        ("sequence", sequence, _SEQUENCES, "whole numbers or times"),
        ("op", op, (T.StringType,), "strings"),
    ]
    for what, name, taken, words in wanted:
        if name is None:
            continue
        if name not in types:
            raise SubscriptionError(f"{what}: there is no column {name!r}; there are {', '.join(types)}")
        if not isinstance(types[name], taken):
            got = types[name].simpleString()
            raise SubscriptionError(f"{what}: the column {name!r} must have {words}, got {got}")
    bounds = [n for a in schema.names for n in (a, f"{a}_low", f"{a}_high") if n in types and n != id]
    if condition is None and not bounds:
        first = schema.names[0]
        raise SubscriptionError(
            f"there must be a condition column, or bounds such as {first}_low and {first}_high, got "
            f"{', '.join(types)}"
        )
    return Columns(id, condition, sequence, op)


def with_beside(
    columns: Columns, given: T.StructType, payload: Sequence[str], expires: str | None
) -> Columns:
    """Also the columns that are kept beside the boxes, after they were found to be there."""
    types = {field.name: field.dataType for field in given.fields}
    values = "strings, numbers, booleans, dates or times"
    wanted: list[tuple[str, str, Any, str]] = [("payload", name, _PAYLOAD, values) for name in payload]
    if expires is not None:
        wanted.append(("expires", expires, (*_SEQUENCES, T.StringType), "times"))
    for what, name, taken, words in wanted:
        if name not in types:
            raise SubscriptionError(f"{what}: there is no column {name!r}; there are {', '.join(types)}")
        if not isinstance(types[name], taken):
            got = types[name].simpleString()
            raise SubscriptionError(f"{what}: the column {name!r} must have {words}, got {got}")
    return replace(columns, payload=tuple(payload), expires=expires)


def find_words(
    subscriptions: DataFrame, schema: Schema, place: SchemaPlace, columns: Columns
) -> dict[str, list[str]]:
    """For each attribute, the strings that have no code yet; also the expressions that are new."""
    found = map_arrow(subscriptions, word_finder(place, columns), _WORDS).toArrow()
    # each task has its words once; sorted, so that the codes do not depend on which worker was first
    order = [("position", "ascending"), ("word", "ascending")]
    found = found.group_by(["position", "word"]).aggregate([]).sort_by(order)
    words = found["word"].to_pylist()
    cuts = np.searchsorted(found["position"].to_numpy(), np.arange(len(schema.names) + 1))
    by_name = {name: words[cuts[j] : cuts[j + 1]] for j, name in enumerate(schema.names)}
    return {EXPRESSIONS: words[: cuts[0]], **by_name}


def _apply(home: Store, staging: Path, files: list[str], report: Report) -> None:
    """Put the staged arrays together, keep the latest row of each id, write one change."""
    missing = [name for name in files if not (staging / name).exists()]
    if missing:
        raise StorageError(
            f"{staging / missing[0]}: a worker wrote this file, and the driver does not see it; the store "
            "must be on storage that all machines share"
        )
    report.accepted = report.deleted = report.superseded = 0
    if not files:
        report.version = home.version
        return
    parts = [read_arrays(staging / name)[1] for name in sorted(files)]
    coming, gone, report.superseded = latest(home.schema, parts)
    report.accepted, report.deleted = len(coming), len(gone)
    report.version = home.apply(coming, gone)


def latest(schema: Schema, parts: Sequence[Arrays]) -> tuple[Subscriptions, Ids, int]:
    """The subscriptions and the deleted ids of the latest row of each id, and how many rows were older."""
    ids = Ids.of(pa.concat_arrays([ids_from(part, "ids").arrow() for part in parts]))
    gone, sequences, orders = (
        np.concatenate([part[name] for part in parts]) for name in ("gone", "sequences", "orders")
    )
    subs = Subscriptions.concat([_rows_of(schema, part) for part in parts], distinct=False)
    newest = latest_rows(ids, sequences, orders)
    deletes = newest[gone[newest] == 1]
    upserts = newest[gone[newest] == 0]
    coming = subs if len(upserts) == len(ids) else subs.select(upserts)
    return coming, ids.select(deletes), len(ids) - len(newest)


def _rows_of(schema: Schema, part: Arrays) -> Subscriptions:
    subs = subscriptions_from(schema.widest(), ids_from(part, "ids"), part)
    subs.beside.expires = part.get("expires")
    return subs


def latest_rows(
    ids: Ids, sequences: npt.NDArray[np.int64], orders: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """For each id its latest row, in the order of the input.

    >>> latest_rows(Ids.of([5, 6, 5]), np.array([2, 0, 1]), np.array([0, 1, 2])).tolist()
    [0, 1]
    """
    keys = ids.values
    if ids.textual:
        keys = ids.arrow().dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    by_id = np.lexsort((orders, sequences, keys))
    last = np.ones(len(by_id), bool)
    last[:-1] = keys[by_id[1:]] != keys[by_id[:-1]]
    found = by_id[last]
    rows: npt.NDArray[np.int64] = found[np.argsort(orders[found], kind="stable")]
    return rows


def _keep_rejected(subscriptions: DataFrame, home: Store, staging: Path, staged: list[Any]) -> DataFrame:
    """The rejected rows as a DataFrame; their files stay with the store."""
    spark = subscriptions.sparkSession
    names = [row["rejected_file"] for row in staged if row["rejected_file"]]
    if not names:
        return spark.createDataFrame([], REJECTED_FIELDS)
    folder = home.path / "rejected" / staging.name
    folder.mkdir(parents=True)
    for name in names:
        os.replace(staging / name, folder / name)
    sync_folder(folder)
    return spark.read.schema(REJECTED_FIELDS).parquet(str(folder))


ORDER = "rangecast_order"
# what a condition with an expression has: an operator, a call, or a name on the right; others may too
_EXPRESSION = r"(?i)[*/+(]|-\s|[\w\"`]\s*-|[<>=]\s*[^\s0-9'.+-]|(between|and)\s+[^\s0-9'.+-]"
_UPSERTS, _DELETES = ("upsert", "insert", "update"), ("delete", "remove")
_BOXES_AT_ONCE = 500_000
_ArrowMap = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# where a worker takes the schema and its codes from: the path of a store, or Schema.to_dict(words=True)
SchemaPlace = str | dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Columns:
    """Which columns of the input mean what; without a condition, bounds are found by name."""

    id: str
    condition: str | None
    sequence: str | None
    op: str | None
    payload: tuple[str, ...] = ()
    expires: str | None = None


def schema_of(place: SchemaPlace) -> Schema:
    """The schema with the codes that are known so far."""
    if not isinstance(place, str):
        return Schema.from_dict(place)
    if not (Path(place) / "store.json").exists():
        raise StorageError(f"{place}: there is no store here; a worker must see the same files as the driver")
    return Store.open(place).schema


def word_finder(place: SchemaPlace, columns: Columns) -> _ArrowMap:
    """The first pass: the strings that conditions name, as (attribute's position, word)."""

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = schema_of(place)
        schema = Schema.from_dict(known.to_dict(words=True))
        for batch in batches:
            table = pa.Table.from_batches([batch])
            deleting, _ = _deletes(table, columns)
            table = table.filter(pa.array(~deleting))
            if columns.condition is not None and not any(known.categories()):
                # no strings to find, and few conditions have expressions
                texts = pc.cast(table[columns.condition], pa.string())
                table = table.filter(pc.match_substring_regex(texts, _EXPRESSION).fill_null(False))
            _load(schema, table, columns)
        words = schema.hidden_names()[len(known.hidden_names()) :]
        positions = [-1] * len(words)
        for (position, had), (_, has) in zip(known.categories(), schema.categories(), strict=True):
            fresh = has.vocabulary.words()[len(had.vocabulary) :]
            positions += [position] * len(fresh)
            words += fresh
        columns_out = [pa.array(positions, pa.int32()), pa.array(words, pa.string())]
        yield pa.RecordBatch.from_arrays(columns_out, ["position", "word"])

    return find


def loader(store: str, staging: str, columns: Columns) -> _ArrowMap:
    """The second pass: parse, and stage what is good and what is not; gives back the files."""

    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[ParsedPiece] = []
        rows = 0
        aside: list[RejectedRow] = []
        staged: list[tuple[str, str, int, int]] = []
        for part, rejected in parsed(schema_of(store), batches, columns):
            rows += len(part.ids) + len(rejected)
            aside += rejected
            parts.append(part)
            if sum(p.subs.n_boxes for p in parts) >= _BOXES_AT_ONCE:
                staged.append((_stage(staging, parts), "", 0, 0))
                parts = []
        staged.append(
            (_stage(staging, parts) if parts else "", _stage_rejected(staging, aside), rows, len(aside))
        )
        files, bad_files, counts, bad = zip(*staged, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(files), pa.array(bad_files), pa.array(counts, pa.int64()), pa.array(bad, pa.int64())],
            ["file", "rejected_file", "rows", "rejected"],
        )

    return load


@dataclass(frozen=True)
class ParsedPiece:
    """The good rows of a batch."""

    ids: pa.Array[Any]
    gone: npt.NDArray[np.uint8]
    sequences: npt.NDArray[np.int64]
    orders: npt.NDArray[np.int64]
    subs: Subscriptions


def parsed(
    schema: Schema, batches: Iterator[pa.RecordBatch], columns: Columns
) -> Iterator[tuple[ParsedPiece, list[RejectedRow]]]:
    """The good rows of each batch, and the rejected ones, by a schema that has all codes."""
    n_words = [schema.width, *(len(category.vocabulary) for _, category in schema.categories())]
    for batch in batches:
        yield _part(schema, pa.Table.from_batches([batch]), columns)
    if n_words != [schema.width, *(len(category.vocabulary) for _, category in schema.categories())]:
        raise StorageError(
            "the subscriptions changed while they were read: the second pass met strings or expressions "
            "that the first did not; persist the DataFrame first"
        )


def _part(schema: Schema, table: pa.Table, columns: Columns) -> tuple[ParsedPiece, list[RejectedRow]]:
    n = table.num_rows
    # what the reader of a file said comes first (rangecast.loading.subscriptions)
    said = table[OWN + "reason"] if OWN + "reason" in table.column_names else pa.nulls(n)
    reasons = {row: said[row].as_py() for row in np.flatnonzero(~_nulls(said)).tolist()}
    deleting, bad_ops = _deletes(table, columns)
    reasons.update(bad_ops)
    for row in np.flatnonzero(_nulls(table[columns.id])).tolist():
        reasons.setdefault(row, "a subscription must have an id, got null")
    sequences = np.zeros(n, np.int64)
    if columns.sequence is not None:
        column = table[columns.sequence].combine_chunks()
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        sequences = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(_nulls(column)).tolist():
            reasons.setdefault(row, f"the sequence {columns.sequence!r} must not be null")
    coming = np.flatnonzero(~deleting)
    subs = _load(schema, table.take(pa.array(coming)), columns)
    for rejected in subs.rejected:
        reasons.setdefault(int(coming[rejected.row]), rejected.reason)
    aside = _rejected(table, reasons, columns)
    good = np.ones(n, bool)
    good[list(reasons)] = False
    # the subscriptions carry their row as id; those whose row was rejected for another reason go
    rows = coming[subs.ids.values]
    subs = subs.select(good[rows])
    rank = np.cumsum(good) - 1
    owners = rank[coming[subs.ids.values]][subs.owners].astype(np.int32) if len(subs) else subs.owners
    kept = pa.array(good)
    ids = table[columns.id].combine_chunks().filter(kept)
    numbers = np.arange(int(good.sum()))
    texts = None
    if columns.condition is not None:
        written = pc.if_else(pa.array(deleting), None, table[columns.condition].combine_chunks())
        texts = written.filter(kept)
    beside = UserColumns.of(len(numbers), texts, table.select(list(columns.payload)).filter(kept))
    if subs.expires is not None:
        beside.expires = np.zeros(len(numbers), np.int64)
        beside.expires[rank[coming[subs.ids.values]]] = subs.expires
    whole = Subscriptions.of_boxes(schema, numbers, subs.boxes._replace(owners=owners), texts=beside)
    orders = table[ORDER].combine_chunks().to_numpy(zero_copy_only=False)
    return ParsedPiece(ids, deleting[good].astype(np.uint8), sequences[good], orders[good], whole), aside


def _rejected(table: pa.Table, reasons: dict[int, str], columns: Columns) -> list[RejectedRow]:
    """The rows with a reason; those of a file with their place in it."""
    hidden = [name for name in table.column_names if name.startswith(OWN)]
    raw = table_raw(table.drop_columns(hidden))
    if OWN + "reason" not in hidden:
        return list(reject_rows(RowBatch(table, None, None, raw), reasons, columns.id, None))
    found = table.select([OWN + field.name for field in REJECTED]).rename_columns(REJECTED.names)
    rows = found.take(pa.array(sorted(reasons), pa.int64())).to_pylist()
    return [
        RejectedRow(**row)._replace(reason=reasons[i], raw=raw(i) if row["raw"] is None else row["raw"])
        for i, row in zip(sorted(reasons), rows, strict=True)
    ]


def _load(schema: Schema, table: pa.Table, columns: Columns) -> Subscriptions:
    """Subscriptions whose ids are row numbers; what is wrong with a row is in `rejected`."""
    rows = np.arange(table.num_rows)
    if not table.num_rows:
        return Subscriptions.empty(schema)
    options: dict[str, Any] = {"on_error": "collect"}
    if columns.condition is not None:
        texts, ends = table[columns.condition], columns.expires
        options["expires"] = None if ends is None else table[ends]
        return Subscriptions.parse(schema, ids=rows, texts=texts, remarks=False, **options)
    name = "rangecast_row"
    numbered = table.append_column(name, pa.array(rows))
    # a column that is kept beside is no bound
    options["payload"] = columns.payload
    return Subscriptions.from_arrow(schema, numbered, id=name, expires=columns.expires, **options)


def _deletes(table: pa.Table, columns: Columns) -> tuple[npt.NDArray[np.bool_], dict[int, str]]:
    """Which rows delete, and the rows whose op is none."""
    if columns.op is None:
        return np.zeros(table.num_rows, bool), {}
    said = table[columns.op].combine_chunks().cast(pa.string())
    words = pc.utf8_lower(pc.utf8_trim_whitespace(said.fill_null(_UPSERTS[0])))
    deleting = pc.is_in(words, value_set=pa.array(_DELETES)).to_numpy(zero_copy_only=False)
    known = pc.is_in(words, value_set=pa.array([*_UPSERTS, *_DELETES])).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~known).tolist()
    return deleting, {row: f"op must be upsert or delete, got {said[row].as_py()!r}" for row in bad}


def join_pieces(parts: list[ParsedPiece]) -> Arrays:
    """The rows of some batches as the arrays of the table above."""
    ids = Ids.of(pa.concat_arrays([part.ids for part in parts]))
    subs = Subscriptions.concat([part.subs for part in parts], distinct=False)
    return {
        **ids_arrays(ids, "ids"),
        "gone": np.concatenate([part.gone for part in parts]),
        "sequences": np.concatenate([part.sequences for part in parts]),
        "orders": np.concatenate([part.orders for part in parts]),
        **boxes_arrays(subs),
        **({} if subs.expires is None else {"expires": subs.expires}),
    }


def _stage(staging: str, parts: list[ParsedPiece]) -> str:
    name = f"{uuid.uuid4().hex}.arrays"
    write_arrays(Path(staging) / name, {}, join_pieces(parts))
    return name


def _stage_rejected(staging: str, aside: list[RejectedRow]) -> str:
    if not aside:
        return ""
    name = f"{uuid.uuid4().hex}.parquet"
    with replacing(Path(staging) / name) as file:
        pq.write_table(rejected_table(aside), file)
    return name


def _nulls(column: Any) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False))
    return nulls
