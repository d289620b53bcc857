"""Ingest: a DataFrame of subscriptions becomes a new version of a store.

    rows --parse and check in the workers--> staged arrays --latest per id--> one change --> snapshot
                        |
                        +--> rejected rows (rangecast.loading.rejected)

Rows are conditions in text, or bounds in columns (`price_low`, `price_high`, or `price` for equality).
A row that cannot be loaded is rejected and stops no other; it never takes effect, so an earlier
good row of the same id stands. Of several good rows of an id the one with the largest sequence wins,
or without a sequence the last in the order of the input. The driver handles arrays, never rows.

Tasks parse in two passes where there are categories or expressions (ingest_tasks.py). A small input is
read once (small_inputs.py) and parsed once, in the driver and by the same functions: a single parser gives
words their codes as it meets them. It begins again, as the store's only writer, if another process has given
the store words meanwhile.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rangecast.array_file import Arrays, read_arrays
from rangecast.buckets.bucket import is_address
from rangecast.errors import SchemaError, StorageError, SubscriptionError
from rangecast.loading.subscriptions import OWN
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.spark.ingest_tasks import (
    ORDER,
    Columns,
    SchemaPlace,
    join_pieces,
    loader,
    parsed,
    stage_rejected,
    word_finder,
)
from rangecast.spark.output import map_arrow
from rangecast.spark.report import REJECTED_FIELDS, Report
from rangecast.spark.small_inputs import collect_small
from rangecast.store.home import Home, home_of
from rangecast.store.record import EXPRESSIONS, ids_from, subscriptions_from
from rangecast.store.store import Store
from rangecast.types.schema import Schema
from rangecast.types.traits import DICTIONARY

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
    name = uuid.uuid4().hex
    staging = home_of(home.path / "staging" / name)
    staging.prepare()
    try:
        with report.timed("read"):
            rows = collect_small(subscriptions, ORDER)
        if rows is not None:
            try:
                staged = _take_rows(home, rows, columns, staging, report)
            except SchemaError:
                staged = home.exclusively(lambda: _take_rows(home, rows, columns, staging, report))
        else:
            if columns.condition is not None or any(home.schema.categories()):
                with report.timed("words"):
                    home.learn(find_words(subscriptions, home.schema, str(home.path), columns))
            with report.timed("parse"):
                task = loader(str(home.path), str(staging.path), columns)
                staged = map_arrow(numbered, task, _STAGED).toArrow().to_pylist()
            with report.timed("store"):
                _apply(home, _staged_arrays(staging, staged), report)
        report.rows = sum(row["rows"] for row in staged)
        report.rejected_rows = sum(row["rejected"] for row in staged)
        kept = home_of(home.path / "rejected" / name)
        report.rejected = _keep_rejected(subscriptions, kept, staging, staged)
    finally:
        staging.clear()
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
    """For each attribute, the strings that have no code yet; also new expressions and bundles of traits."""
    found = map_arrow(subscriptions, word_finder(place, columns), _WORDS).toArrow()
    # each task has its words once; sorted, so that the codes do not depend on which worker was first
    order = [("position", "ascending"), ("word", "ascending")]
    found = found.group_by(["position", "word"]).aggregate([]).sort_by(order)
    words = found["word"].to_pylist()
    # as `word_finder` numbers them
    keys = [DICTIONARY, EXPRESSIONS, *schema.names]
    cuts = np.searchsorted(found["position"].to_numpy(), np.arange(-2, len(schema.names) + 1))
    return {key: words[cuts[j] : cuts[j + 1]] for j, key in enumerate(keys)}


def _take_rows(
    home: Store, rows: pa.Table, columns: Columns, staging: Home, report: Report
) -> list[dict[str, Any]]:
    """Parse rows here and write them as one change, with their words; gives what a task of Spark's gives.

    SchemaError when the store has got words from another process since it was asked for its own.
    """
    with report.timed("parse"):
        home.refresh()
        # a copy, for what is not written in the end
        schema = Schema.from_dict(home.schema.to_dict(words=True))
        parts, aside = [], []
        for part, rejected in parsed(schema, iter(rows.to_batches()), columns, learning=True):
            parts.append(part)
            aside += rejected
    with report.timed("store"):
        _apply(home, [join_pieces(parts)] if parts else [], report, schema)
    bad = stage_rejected(str(staging.path), aside)
    return [{"file": "", "rejected_file": bad, "rows": rows.num_rows, "rejected": len(aside)}]


def _staged_arrays(staging: Home, staged: list[dict[str, Any]]) -> list[Arrays]:
    """What tasks of Spark's have parsed."""
    files = [row["file"] for row in staged if row["file"]]
    found = [staging.file(name) for name in sorted(files)]
    missing = [name for name, file in zip(sorted(files), found, strict=True) if file is None]
    if missing:
        raise StorageError(
            f"{staging.path / missing[0]}: a worker wrote this file, and the driver does not see it; the "
            "store must be on storage that all machines share, or in a bucket"
        )
    return [read_arrays(file)[1] for file in found if file is not None]


def _apply(home: Store, parts: list[Arrays], report: Report, schema: Schema | None = None) -> None:
    """Put parsed rows together, keep the latest row of each id, write one change; codes are the store's,
    or of a schema that has more of them."""
    report.accepted = report.deleted = report.superseded = 0
    if not parts:
        report.version = home.version
        return
    coming, gone, report.superseded = latest(schema or home.schema, parts)
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


def _keep_rejected(subscriptions: DataFrame, kept: Home, staging: Home, staged: list[Any]) -> DataFrame:
    """The rejected rows as a DataFrame; their files stay with the store."""
    spark = subscriptions.sparkSession
    names = [row["rejected_file"] for row in staged if row["rejected_file"]]
    if not names:
        return spark.createDataFrame([], REJECTED_FIELDS)
    kept.prepare()
    tables = []
    for name in names:
        raw = staging.get(name) or b""
        kept.put(name, partial(_write, raw))
        tables.append(pq.read_table(io.BytesIO(raw)))
    if is_address(kept.path):
        # whether Spark itself can read the bucket is not known
        return spark.createDataFrame(pa.concat_tables(tables), REJECTED_FIELDS)
    return spark.read.schema(REJECTED_FIELDS).parquet(str(kept.path))


def _write(raw: bytes, file: BinaryIO) -> None:
    file.write(raw)
