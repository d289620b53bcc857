"""Ingest: a DataFrame of subscriptions becomes a new version of a store.

    rows --by id--> tasks: parse, check, latest per id --> fragments of one change --> snapshot, or stripes
                      |
                      +--> rejected rows (rangecast.loading.rejected)

Rows are conditions in text, or bounds in columns (`price_low`, `price_high`, or `price` for equality).
A row that cannot be loaded is rejected and stops no other; it never takes effect, so an earlier
good row of the same id stands. Of several good rows of an id the one with the largest sequence wins,
or without a sequence the last in the order of the input.

Tasks parse in two passes where there are categories or expressions (ingest_tasks.py). A small input is
read once (ingest.py) and parsed once, in the driver and by the same functions: a single parser gives
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from rangecast.durable.bucket import is_address, seekable_file
from rangecast.errors import OptionError, SchemaError, SubscriptionError
from rangecast.loading import format_of
from rangecast.loading.ids import INT64, STRING
from rangecast.loading.rejected import REJECTED
from rangecast.loading.subscriptions import OWN, survey_rows, text_rows, wanted_columns
from rangecast.model.user_columns import PAYLOAD_TYPES, wider_kind
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
from rangecast.spark.stripes import prepare_stripes
from rangecast.spark.worker import told
from rangecast.store.change import EXPRESSIONS, FragmentEntry, gathered
from rangecast.store.change_log import FRAGMENTS, ChangePiece
from rangecast.store.home import Home, home_of
from rangecast.store.store import Store
from rangecast.store.versions import check_fragments, drop_fragments, new_stem
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


# Small inputs, which the driver takes as one Arrow table instead of handing them to Python workers.
#
# The first job of Python workers takes seconds to start them, and the first job of a JVM takes seconds too.
# So an input is taken here if it is known to be small before it is read: its plan must begin with files,
# local data or caches, whose size Spark knows, and all steps of it must be such that give at most as many
# rows as they get. Everything else is left to the workers: a join, a UDTF, an explode, a source of Python's,
# and whatever is asked for over Spark Connect, which shows no plan.
#
# One Parquet file that nothing is done to is read by PyArrow, without a job, if that gives just what Spark
# would give: the same columns, of types that both read alike. What is large after all goes back to the
# workers.

# bytes as Spark estimates them, then rows
SMALL_BYTES = 8_000_000
SMALL_ROWS = 500_000
# steps that give at most as many rows as they get, and leaves whose size Spark knows
_NO_MORE_ROWS = {
    *("Project", "Filter", "Sort", "Repartition", "RepartitionByExpression", "GlobalLimit", "LocalLimit"),
    *("Aggregate", "Window", "Union", "ArrowEvalPython", "BatchEvalPython"),
}
_SIZED = {"LogicalRelation", "LocalRelation", "InMemoryRelation"}
# columns that Spark and PyArrow read alike from Parquet; times only of files that Arrow has written, since
# Spark may count those of other writers by another calendar
_PLAIN = (
    *(T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    *(T.FloatType, T.DoubleType, T.BooleanType, T.StringType),
)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_ARROW = "parquet-cpp-arrow"


def collect_small(frame: DataFrame, order: str) -> pa.Table | None:
    """The rows of a small input, with their order in a column of this name; None for any other input."""
    try:
        plan = frame._jdf.queryExecution().optimizedPlan()
    except AttributeError:  # Connect
        return None
    size = _known_bytes(plan)
    if size is None or size > SMALL_BYTES:
        return None
    rows = file_rows(frame, plan)
    if rows is not None:
        rows = rows.append_column(order, pa.array(np.arange(len(rows))))
    else:
        names = [*frame.columns, order]
        numbered = frame.withColumn(order, F.monotonically_increasing_id())
        rows = numbered.toDF(*(f"c{i}" for i in range(len(names)))).toArrow().rename_columns(names)
    return rows if rows.num_rows <= SMALL_ROWS else None


def _known_bytes(plan: Any) -> int | None:
    """The size of what a plan reads, if it adds no rows to that."""
    steps = [plan]
    size = 0
    while steps:
        step = steps.pop()
        name, below = step.getClass().getSimpleName(), step.children()
        if name not in (_NO_MORE_ROWS if below.size() else _SIZED):
            return None
        size += 0 if below.size() else int(step.stats().sizeInBytes())
        steps += [below.apply(i) for i in range(below.size())]
    return size


def file_rows(frame: DataFrame, plan: Any) -> pa.Table | None:
    """The rows of a frame that is one Parquet file as it is, as `toArrow` gives them; otherwise None."""
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    if relation.fileFormat().toString() != "Parquet" or relation.partitionSchema().length():
        return None
    place = [urlparse(file) for file in frame.inputFiles()]
    if len(place) != 1 or place[0].scheme != "file" or place[0].netloc:
        return None
    utc = frame.sparkSession.conf.get("spark.sql.session.timeZone") == "UTC"
    taken = _PLAIN + (_TIMES if utc else ())
    kinds = [field.dataType for field in frame.schema.fields]
    if not all(isinstance(kind, taken) for kind in kinds):
        return None
    try:
        with pq.ParquetFile(unquote(place[0].path)) as file:
            by_arrow = str(file.metadata.created_by).startswith(_ARROW)
            if not by_arrow and any(isinstance(kind, _TIMES) for kind in kinds):
                return None
            if any(file.schema_arrow.names.count(name) != 1 for name in frame.columns):
                return None
            return file.read().select(frame.columns).cast(to_arrow_schema(frame.schema, timezone="UTC"))
    except (OSError, pa.ArrowException):  # Spark has its own words for it
        return None


# Files of subscriptions as a DataFrame for `ingest` and `reduce`.
#
# Parquet has types, and Spark reads it. CSV and JSON lines are read in the workers by the reader of the
# library, a file per task, so that ids follow the one rule and a row that cannot be read is a rejected row:
# once for the columns and for whether all ids are whole numbers, then for the rows.

_SURVEY = T.StructType(
    [
        T.StructField("name", T.StringType()),
        T.StructField("whole", T.BooleanType()),
        T.StructField("kind", T.StringType()),
    ]
)


def read_subscriptions(
    spark: SparkSession,
    files: Sequence[str],
    schema: Schema,
    *,
    id: str = "id",
    condition: str | None = None,
    sequence: str | None = None,
    op: str | None = None,
    payload: Sequence[str] = (),
    expires: str | None = None,
    format: str | None = None,
) -> DataFrame:
    """Files of subscriptions as a DataFrame: the columns that subscriptions of this schema may have.

    Ids of text files are long when all of them are whole numbers, and strings otherwise; so is a sequence.
    Columns of the users' own have the type of their values in all files (rangecast.model.user_columns).
    """
    kinds = {format_of(path, format) for path in files}
    if len(kinds) > 1:
        raise OptionError(f"files of one ingest must have one format, got {', '.join(sorted(kinds))}")
    kind = kinds.pop()
    if kind == "parquet":
        return spark.read.parquet(*files)
    wanted = wanted_columns(schema, id, condition)
    numbers = [name for name in (id, sequence) if name is not None]
    wanted |= dict.fromkeys(numbers) | ({} if op is None else {op: STRING})
    wanted |= dict.fromkeys(payload) | ({} if expires is None else {expires: STRING})
    paths, own = tuple(files), tuple(payload)

    def survey(path: str) -> Iterator[pa.Table]:
        found = survey_rows(path, wanted, numbers, kind, own)
        whole = pa.array([found.whole.get(name) for name in found.names], pa.bool_())
        kinds = pa.array([found.kinds.get(name) for name in found.names], STRING)
        yield pa.table({"name": pa.array(found.names, STRING), "whole": whole, "kind": kinds})

    # a task per file, in the order of the files: without a sequence, the last row of an id counts
    positions = spark.range(0, len(paths), 1, len(paths)).toDF("file")
    rows = positions.mapInArrow(_each_file(paths, survey), _SURVEY).collect()
    there = [name for name in wanted if any(row.name == name for row in rows)]
    words = {row.name for row in rows if row.whole is False}
    types = {name: INT64 if name in numbers and name not in words else STRING for name in there}
    for name in {*payload} & {*there}:
        found = PAYLOAD_TYPES[wider_kind({row.kind for row in rows if row.name == name})]
        types[name] = STRING if pa.types.is_large_string(found) else found
    kept = tuple(name for name in payload if name in there)

    def read(path: str) -> Iterator[pa.Table]:
        return text_rows(path, wanted, id, types, kind, kept)

    fields = from_arrow_schema(pa.schema([*types.items(), *((OWN + f.name, f.type) for f in REJECTED)]))
    return positions.mapInArrow(_each_file(paths, read), fields)


def _each_file(
    paths: tuple[str, ...], read: Callable[[str], Iterator[pa.Table]]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for mapInArrow: what a reader gives for the files at some positions."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for position in batch.column(0).to_pylist():
                for table in read(paths[position]):
                    yield from table.combine_chunks().to_batches()

    return work


# Parquet objects as a DataFrame, read by the workers with Arrow: Spark itself need not know the bucket.

BATCH = "batch_id"
_ROWS = 65_536
_PLACES = T.StructType([T.StructField("place", T.StringType()), T.StructField(BATCH, T.LongType())])


def read_parts(
    spark: SparkSession, parts: Sequence[tuple[str, int]], fields: T.StructType, *, by_batch: bool = True
) -> DataFrame:
    """The rows of objects, by their addresses and the batch of each, which is the last column if `by_batch`.

    An object that is not there, or whose columns are others, ends the job that reads it.
    """
    whole = T.StructType([*fields, T.StructField(BATCH, T.LongType())]) if by_batch else fields
    places = spark.createDataFrame(list(parts), _PLACES)
    return places.mapInArrow(_reader(to_arrow_schema(fields, timezone="UTC"), by_batch), whole)


def _reader(fields: pa.Schema, by_batch: bool) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for mapInArrow."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place, number in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                with pq.ParquetFile(seekable_file(place)) as file:
                    for piece in file.iter_batches(_ROWS, columns=fields.names):
                        table = pa.Table.from_batches([piece]).cast(fields)
                        if by_batch:
                            table = table.append_column(BATCH, pa.array([number] * len(piece), pa.int64()))
                        yield from table.combine_chunks().to_batches()

    return work
