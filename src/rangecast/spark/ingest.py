"""Ingest: a DataFrame of subscriptions becomes a new version of a store.

    rows --by id--> tasks: parse, check, latest per id --> fragments of one change --> snapshot, or stripes
                      |
                      +--> rejected rows (rangecast.loading.rejected)

Rows are conditions in text, or bounds in columns (`price_low`, `price_high`, or `price` for equality).
A row that cannot be loaded is rejected and stops no other; it never takes effect, so an earlier
good row of the same id stands. Of several good rows of an id the one with the largest sequence wins,
or without a sequence the last in the order of the input.

Tasks parse in two passes where there are categories or expressions (ingest_tasks.py). A small input is
read once (small_inputs.py) and parsed once, in the driver and by the same functions: a single parser gives
words their codes as it meets them. It begins again, as the store's only writer, if another process has given
the store words meanwhile.

What tasks have put is written into the store's log where it is small; of a large change the log names the
fragments that the workers have put, and the driver holds none of it. A snapshot is built by the driver; with
`stripes`, the workers build those instead.
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
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from rangecast.durable.bucket import is_address
from rangecast.errors import SchemaError, SubscriptionError
from rangecast.loading.subscriptions import OWN
from rangecast.spark.failures import told
from rangecast.spark.ingest_tasks import (
    ORDER,
    STAGED,
    Columns,
    SchemaPlace,
    StagedFragment,
    latest,
    loader,
    parsed,
    stage_rejected,
    word_finder,
)
from rangecast.spark.output import ArrowWork, check_frame, column_named, map_arrow
from rangecast.spark.report import REJECTED_FIELDS, Report
from rangecast.spark.small_inputs import collect_small
from rangecast.spark.stripes import prepare_stripes
from rangecast.store.change import EXPRESSIONS, FragmentEntry, gathered
from rangecast.store.entries import FRAGMENTS, ChangePiece
from rangecast.store.fragments import check_fragments, drop_fragments, new_stem
from rangecast.store.home import Home, home_of
from rangecast.store.store import Store
from rangecast.types.patterns import DICTIONARY
from rangecast.types.schema import Schema

_WORDS = T.StructType([T.StructField("position", T.IntegerType()), T.StructField("word", T.StringType())])
# a change that names at most so many subscriptions is written into the log, and read from there at once
_IN_RECORD = 500_000
_STAGED_FIELDS = from_arrow_schema(STAGED)
_IDS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.StringType)
_SEQUENCES = (*_IDS[:-1], T.TimestampType, T.TimestampNTZType, T.DateType)
_PAYLOAD = (*_SEQUENCES, T.StringType, T.BooleanType, T.FloatType, T.DoubleType, T.DecimalType)


def ingest(  # noqa: PLR0913 - each is an option of whoever calls it
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
    stripes: int | None = None,
) -> Report:
    """Load subscriptions into a store as one version, and publish its snapshot.

    `store` is a Store or a path, where a store is made if there is none (then `schema` is needed).
    `condition` names the column of texts ("condition" by default, if there is one); without it, bounds are
    taken from columns named after the attributes. `sequence` orders rows of one id, `op` says upsert or
    delete. The columns in `payload` are kept with the subscriptions, and the one named by `expires` says when
    each expires. With `stripes`, the workers build that many stripes instead of one snapshot in the driver,
    for more subscriptions than one machine should hold; `match` and `match_stream` find them. The report has
    version, rows, accepted, deleted, superseded, rejected_rows, and the rejected rows as a DataFrame
    (rangecast.loading.rejected).
    """
    check_frame(subscriptions, "ingest", "read files with spark.read")
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
    home_of(home.path / FRAGMENTS).prepare()
    stem, living = new_stem(), frozenset[str]()
    try:
        with report.timed("read"):
            rows = collect_small(subscriptions, ORDER)
        if rows is not None:
            try:
                staged = [_take_rows(home, rows, columns, staging, report)]
            except SchemaError:
                staged = [home.exclusively(lambda: _take_rows(home, rows, columns, staging, report))]
        else:
            if columns.condition is not None or any(home.schema.categories()):
                with report.timed("words"):
                    words = find_words(subscriptions, home.schema, str(home.path), columns, str(staging.path))
                    home.learn(words)
            with report.timed("parse"):
                task = loader(str(home.path), str(staging.path), stem, columns)
                found = run_tasks(keyed(numbered, columns.id), task, _STAGED_FIELDS)
                staged = [StagedFragment(**row) for row in found.to_pylist()]
            with report.timed("store"):
                fragments = [row.entry for row in staged if row.name]
                check_fragments(home_of(home.path), fragments)
                if sum(fragment.named for fragment in fragments) > _IN_RECORD:
                    # before the record is written: if that fails, nobody knows whether it is on disk
                    living = frozenset(fragment.name for fragment in fragments)
                    report.version = home.apply_fragments(fragments)
                else:
                    report.version = _apply_small(home, fragments)
        report.rows = sum(row.rows for row in staged)
        report.rejected_rows = sum(row.rejected for row in staged)
        report.accepted = sum(row.accepted for row in staged)
        report.deleted = sum(row.deleted for row in staged)
        report.superseded = sum(row.superseded for row in staged)
        kept = home_of(home.path / "rejected" / name)
        report.rejected = _keep_rejected(subscriptions, kept, staging, staged)
    finally:
        staging.clear()
        drop_fragments(home_of(home.path), stem, living)
    if publish:
        with report.timed("publish"):
            if stripes is None:
                report.index_bytes = home.snapshot(report.version).stat().st_size
            else:
                assert report.version is not None
                made = prepare_stripes(subscriptions.sparkSession, home, report.version, stripes)
                report.index_bytes = made.n_bytes
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
        if not isinstance(types[name], (*taken, T.NullType)):
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
        if not isinstance(types[name], (*taken, T.NullType)):
            got = types[name].simpleString()
            raise SubscriptionError(f"{what}: the column {name!r} must have {words}, got {got}")
    return replace(columns, payload=tuple(payload), expires=expires)


def run_tasks(rows: DataFrame, task: ArrowWork, fields: T.StructType) -> pa.Table:
    """What tasks of Spark's give for their rows; what goes wrong in one is raised here."""
    with told():
        return map_arrow(rows, task, fields).toArrow()


def find_words(
    subscriptions: DataFrame,
    schema: Schema,
    place: SchemaPlace,
    columns: Columns,
    staging: str | None = None,
) -> dict[str, list[str]]:
    """For each attribute, the strings that have no code yet; also new expressions and bundles of traits."""
    found = run_tasks(subscriptions, word_finder(place, columns, staging), _WORDS)
    # each task has its words once; sorted, so that the codes do not depend on which worker was first
    order = [("position", "ascending"), ("word", "ascending")]
    found = found.group_by(["position", "word"]).aggregate([]).sort_by(order)
    words = found["word"].to_pylist()
    # as `word_finder` numbers them
    keys = [DICTIONARY, EXPRESSIONS, *schema.names]
    cuts = np.searchsorted(found["position"].to_numpy(), np.arange(-2, len(schema.names) + 1))
    return {key: words[cuts[j] : cuts[j + 1]] for j, key in enumerate(keys)}


def keyed(rows: DataFrame, id: str, partitions: int | None = None) -> DataFrame:
    """The same rows with all of an id in one partition; by default Spark decides how many there are."""
    key = column_named(id, rows.schema)
    return rows.repartition(key) if partitions is None else rows.repartition(partitions, key)


def _take_rows(
    home: Store, rows: pa.Table, columns: Columns, staging: Home, report: Report
) -> StagedFragment:
    """Parse rows here and write them as one change, with their words; returns the counts.

    SchemaError when the store has got words from another process since it was asked for its own.
    """
    with report.timed("parse"):
        home.refresh()
        # a copy, for what is not written in the end
        schema = Schema.from_dict(home.schema.to_dict(words=True))
        pieces, aside = [], []
        for piece, rejected in parsed(schema, iter(rows.to_batches()), columns, learning=True):
            pieces.append(piece)
            aside += rejected
    counted = StagedFragment(rows=rows.num_rows, rejected=len(aside))
    with report.timed("store"):
        report.version = home.version
        if pieces:
            coming, gone, superseded = latest(schema, pieces)
            report.version = home.apply(coming, gone)
            counted = counted._replace(accepted=len(coming), deleted=len(gone), superseded=superseded)
    return counted._replace(rejected_file=stage_rejected(str(staging.path), aside))


def _apply_small(home: Store, fragments: list[FragmentEntry]) -> int:
    """One version of what the tasks have put, written into the log; returns it."""
    pieces = [ChangePiece(0, fragment.named, fragment.name) for fragment in fragments]
    whole = list(gathered(home.read_pieces(pieces), _IN_RECORD + 1))
    if not whole:
        return home.version
    [change] = whole
    return home.apply(change.inserted, change.deleted)


def _keep_rejected(
    subscriptions: DataFrame, kept: Home, staging: Home, staged: list[StagedFragment]
) -> DataFrame:
    """The rejected rows as a DataFrame; their files stay with the store."""
    spark = subscriptions.sparkSession
    names = [row.rejected_file for row in staged if row.rejected_file]
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
