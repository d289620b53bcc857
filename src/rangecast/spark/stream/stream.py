"""Match a stream of events against subscriptions that change while it flows: each batch against one version.

    events --micro-batch N--> pin N (a version of the store) --match--> out/batch_id=N --commit N-->

Works with every streaming source that can be read again (files, Kafka, ...). Spark writes down which
events are in batch N before it runs; we write down which version they are matched against
(spark/version_policy.py says which, ledger.py writes it down). So a batch that is run again after a crash
finds the same events and the same subscriptions, gives the same matches, and puts them in the place of what
the crash left. Nothing is lost and nothing is doubled.

All of this happens in `foreachBatch`, which over Spark Connect runs in a process of the server's: the
`Stream` that it gets (micro_batch.py) is plain data, and what it must remember is in files.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack, cast

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from rangecast.durable.bucket import is_address, local_place
from rangecast.errors import EventError, OptionError, SetupError
from rangecast.loading import format_of
from rangecast.spark.batch.files import check_files
from rangecast.spark.ingest import read_parts
from rangecast.spark.output import Answer, Output, OutputKeywords, check_frame, tells_capitals, type_at
from rangecast.spark.report import REJECTED_FIELDS
from rangecast.spark.stream.kafka_sink import KafkaSink
from rangecast.spark.stream.ledger import Commit, Ledger
from rangecast.spark.stream.micro_batch import (
    Deliver,
    Stream,
    StreamOptions,
    absolute_place,
    check_order,
    check_pin,
    check_store,
    run_batch,
)
from rangecast.spark.stream.tasks import StreamEvents
from rangecast.spark.stream.tracking import Tracking, default_parts
from rangecast.spark.version_policy import EVENT_TIME, NEWEST, VersionPolicy, check_newer
from rangecast.store.commits import STATE
from rangecast.store.store import Store
from rangecast.types.schema import Schema

FILE, CORRUPT = "_rangecast_file", "_corrupt_record"
_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")


class StreamKeywords(OutputKeywords, total=False):
    """What `match_stream` takes as keywords: those of an output, and the column of the events' time."""

    time: str | None


def match_stream(  # noqa: PLR0913 - each is an option of whoever calls it
    events: DataFrame,
    store: Store | str | os.PathLike[str],
    output: Output | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str],
    trigger: Mapping[str, Any] | None = None,
    version: str | int | VersionPolicy = NEWEST,
    sink: str | Deliver | KafkaSink = "parquet",
    rejects: str | os.PathLike[str] | None = None,
    query_name: str | None = None,
    stripes: int | None = None,
    **keywords: Unpack[StreamKeywords],
) -> StreamingQuery:
    """Start matching a streaming DataFrame against a store; returns the StreamingQuery.

    Each micro-batch is matched against the version that is the newest when it is planned, or against one
    `version` by its number; by `version` "event-time", each event against the version that was the newest at
    the time in its column `time` (the schema's only timestamp by default), so that a backfill gives what the
    live stream gave. `out` gets a folder batch_id=N for each batch (`read_matches` reads those that are
    whole), `checkpoint` is Spark's; both are folders that driver and workers see, or addresses of a bucket,
    where Spark needs a file system of Hadoop's for the checkpoint. `output` and its keywords are those of
    `match`; text columns are taken for every attribute, and `text_ids` is needed while the store has no
    subscription yet. `trigger` is Spark's, as in {"processingTime": "1 second"} or {"availableNow": True}.
    `sink` "console" prints instead; a function gets the matches of a batch as a DataFrame, and the batch's
    id, which is the same when a batch is run again after a crash; `kafka_sink` sends them to a topic, each
    once. Events that cannot be matched go to `rejects` (out/_rejects by default) with their reason. With
    `stripes`, the workers cut the store into that many, and each holds those that its events need; the number
    may change when a stream is resumed.
    """
    check_frame(events, "match_stream", "read files with spark.readStream or rs.read_events, as they arrive")
    options = StreamOptions(checkpoint, out, rejects, sink, trigger, query_name, stripes)
    versions = VersionPolicy.parse(version, keywords.pop("time", None))
    if stripes is not None:
        if versions.choice == EVENT_TIME:
            raise OptionError("stripes go with one version per batch; version must not be 'event-time'")
        versions = replace(versions, whole=False)
    said = Output.of(output, cast(OutputKeywords, keywords))
    return _begin(events, store, said, versions, options)


def track(  # noqa: PLR0913 - each is an option of whoever calls it
    events: DataFrame,
    store: Store | str | os.PathLike[str],
    *,
    key: str,
    time: str,
    out: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str],
    event_id: str = "id",
    expires: float | dt.timedelta | None = None,
    stays: bool = False,
    parts: int | None = None,
    trigger: Mapping[str, Any] | None = None,
    version: str | int = NEWEST,
    sink: str | Deliver = "parquet",
    rejects: str | os.PathLike[str] | None = None,
    query_name: str | None = None,
    absent: Sequence[str] = (),
    text_ids: bool | None = None,
) -> StreamingQuery:
    """Start reporting which subscriptions the objects of a stream enter and leave; returns the
    StreamingQuery.

    An event is a state of the object that its column `key` names, at the time in its column `time`: rows of
    a DataFrame have no order of their own, so within a batch they count by their times, and by their ids
    where those are equal. Each change is a row: `event_id`, the key, `change` ("entered", "left", and "stays"
    if asked for), `subscription_id`. An event that is older than the last one of its object is rejected as
    late. An object without an event for as long as `expires` (seconds or a timedelta), by the newest event
    of the batches before, leaves what it was in, in a row without an event.

    Objects are spread over `parts` by their key; the number stays what it was when the stream began. The
    other options are those of `match_stream`, and so is the promise: each change once, also after a crash.
    """
    check_frame(events, "track", "read files with spark.readStream, as they arrive")
    versions = VersionPolicy.parse(version)
    if versions.choice == EVENT_TIME:
        raise OptionError("track matches each batch against one version; version must not be 'event-time'")
    if isinstance(sink, KafkaSink):
        raise OptionError("track writes files or calls a function; send the changes from there")
    if isinstance(expires, dt.timedelta):
        expires = expires.total_seconds()
    if expires is not None and not 0 < expires < 2**62 / 1e6:
        raise OptionError(f"expires must be a time above 0, got {expires}")
    if key in ("event_id", "change", "subscription_id") or event_id in (key, time):
        raise OptionError(
            "key and time must be columns beside the id, and no columns of the answer, got "
            f"{key!r} and {time!r}"
        )
    if FilesOfEvents.of(events) is not None:
        raise OptionError(
            "track takes events by their columns: read them with spark.readStream.schema(...) instead of "
            "read_events"
        )
    for name, what in ((key, "key"), (time, "time")):
        if type_at(events.schema, name) is None:
            has = ", ".join(events.schema.names)
            raise EventError(f"{what}: the events have no column {name!r}; they have {has}")
    kind = type_at(events.schema, key)
    if not isinstance(kind, T.StringType | T.ByteType | T.ShortType | T.IntegerType | T.LongType):
        raise EventError(f"key: column {key!r} must be whole numbers or strings, got {kind}")
    options = StreamOptions(checkpoint, out, rejects, sink, trigger, query_name)
    known = options.ledger.settings() or {}
    fixed = (known.get("tracking") or {}).get("parts")
    if parts is not None and parts < 1:
        raise OptionError(f"parts must be at least 1, got {parts}")
    tracking = Tracking(
        key, time, parts or fixed or default_parts(events), expires, stays, isinstance(kind, T.StringType)
    )
    said = Output(event_id, (key, time), absent=absent, text_ids=text_ids)
    return _begin(events, store, said, versions, options, tracking)


def _begin(
    events: DataFrame,
    store: Store | str | os.PathLike[str],
    said: Output,
    versions: VersionPolicy,
    options: StreamOptions,
    tracking: Tracking | None = None,
) -> StreamingQuery:
    """Check all that can be checked, and start the stream."""
    home = store if isinstance(store, Store) else Store.open(store)
    if not events.isStreaming:
        name = "match_stream" if tracking is None else "track"
        raise EventError(f"{name} takes a streaming DataFrame (spark.readStream); rs.match takes others")
    if isinstance(options.sink, KafkaSink):
        options.sink.check(said.form)
    versions = versions.on(home.schema)
    if said.order is not None:
        said.check_index(home.empty_index())
    ledger = options.ledger
    if is_address(ledger.checkpoint) and (tracking is not None or isinstance(options.sink, KafkaSink)):
        what = "track" if tracking is not None else "a sink to Kafka"
        raise OptionError(
            f"{what} keeps files in its checkpoint, which must be a folder, got {ledger.checkpoint}"
        )
    files = FilesOfEvents.of(events)
    events, file = _with_file(events) if files is None else (events, PATH)
    given = events.schema if files is None else files.fields
    if home.ids_are_text is None and said.text_ids is None:
        raise OptionError(
            f"{home.path}: has no subscription yet, so the type of its ids is not known: insert one, or say "
            "text_ids=True (strings) or text_ids=False (whole numbers)"
        )
    answer = said.expanded([name for name in given.names if name not in (file, CORRUPT)]).answer(
        home.schema, home.ids_are_text
    )
    answer.check_id_type(None if files is None else files.id_type)
    capitals = tells_capitals(events.sparkSession)
    answer.check_columns(given, home.schema, texts=True, case_sensitive=capitals)
    fields = answer.fields(given) if tracking is None else _change_fields(answer, given, tracking)
    if versions.time is not None and versions.time not in given.names:
        has = ", ".join(given.names)
        raise EventError(f"time: the events have no column {versions.time!r}; they have {has}")
    settings = {
        "store": home.id,
        "path": str(home.path),
        "schema": home.schema.to_dict(),
        "fields": fields.jsonValue(),
        "sink": str(options.sink) if isinstance(options.sink, str | KafkaSink) else "a function",
        "version": str(versions),
        "tracking": None if tracking is None else asdict(tracking),
    }
    if files is None:
        read = StreamEvents(answer, file, CORRUPT if CORRUPT in events.columns else None)
    else:
        # the first file says the types of the columns that come along
        typed = to_arrow_schema(fields, timezone="UTC")
        types = {name: typed.field(name).type for name in answer.keep}
        read = StreamEvents(answer, file, format=files.format, id_type=files.id_type, types=types)
    stream = Stream(
        id=ledger.adopt(settings),
        store=str(home.path),
        store_id=home.id,
        options=options,
        versions=versions,
        events=read,
        fields=fields.jsonValue(),
        tracking=tracking,
    )
    check_store(stream, home)
    whole = ledger.recent()
    check_newer(home, whole[-1].version if whole else 0)
    check_order(ledger, ledger.next_of_spark())
    unfinished = ledger.pin(ledger.last() + 1)
    if unfinished is not None:
        check_pin(stream, home, unfinished)
    writer = events.writeStream.foreachBatch(_runner(stream)).option("checkpointLocation", ledger.checkpoint)
    if options.query_name is not None:
        writer = writer.queryName(options.query_name)
    if options.trigger is not None:
        writer = writer.trigger(**options.trigger)
    try:
        return writer.start()
    except Exception as error:
        if not is_address(ledger.checkpoint) or not _NO_FILE_SYSTEM.search(str(error)):
            raise
        raise SetupError(
            f"{ledger.checkpoint}: Spark keeps its own part of a checkpoint in a file system of Hadoop's and "
            "has none for this address: start it with the jars for it, such as hadoop-aws for s3a://, or "
            "name a folder"
        ) from error


def _change_fields(answer: Answer, given: T.StructType, tracking: Tracking) -> T.StructType:
    """The columns of changes with their types."""
    ids = T.StringType() if answer.textual else T.LongType()
    keys = T.StringType() if tracking.textual_keys else T.LongType()
    columns = {
        "event_id": type_at(given, answer.event_id) or T.NullType(),
        tracking.key: keys,
        "change": T.StringType(),
        "subscription_id": ids,
    }
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


def read_matches(spark: SparkSession, out: str | os.PathLike[str]) -> DataFrame:
    """The matches of all batches that are whole when this is called, each with its batch_id."""
    place = absolute_place(out, "out")
    ledger = Ledger("", place)
    known = ledger.shown()
    if known is None:
        raise OptionError(f"{place}: holds no matches of a stream")
    fields = T.StructType.fromJson(known["fields"])
    if is_address(place):
        parts = [(f"{place}/{name}", commit.batch) for commit in ledger.commits() for name in commit.parts]
        return read_parts(spark, parts, fields)
    whole = T.StructType([*fields.fields, T.StructField("batch_id", T.LongType())])
    # batches follow one another without a gap, so those up to the last commit are all that are whole
    return spark.read.schema(whole).parquet(place).where(F.col("batch_id") <= ledger.last())


def read_rejects(spark: SparkSession, out: str | os.PathLike[str]) -> DataFrame:
    """The events that were rejected in `out`, or in the folder that was rejects=, with their reasons."""
    place = absolute_place(out, "out")
    if is_address(place):
        commits = Ledger("", place).commits()
        parts = [(f"{place}/_rejects/{name}", c.batch) for c in commits for name in c.rejected_parts]
        return read_parts(spark, parts, REJECTED_FIELDS)
    folder = Path(place)
    if (folder / STATE).exists():
        folder /= "_rejects"
    fields = T.StructType([*REJECTED_FIELDS.fields, T.StructField("batch_id", T.LongType())])
    # not the folder itself: its name is one that Spark warns of
    folders = [str(path) for path in folder.glob("batch_id=*")]
    if not folders:
        return spark.createDataFrame([], fields)
    return spark.read.schema(fields).option("basePath", str(folder)).parquet(*folders)


def committed(out: str | os.PathLike[str]) -> list[Commit]:
    """The batches of an output (or of a checkpoint, without one) that are whole: versions and counts."""
    return list(Ledger("", absolute_place(out, "out")).commits())


def _runner(stream: Stream) -> Deliver:
    def run(frame: DataFrame, batch: int) -> None:
        run_batch(stream, frame, batch)

    return run


def _with_file(events: DataFrame) -> tuple[DataFrame, str | None]:
    """The events with the file that each came from, if their source has files."""
    # PySpark writes a page to stderr when a column is not found, which is no fault here
    reporter = logging.getLogger("DataFrameQueryContextLogger")
    before, reporter.disabled = reporter.disabled, True
    try:
        # classic Spark looks for the column at once, Connect when it is asked for the columns
        named = events.withColumn(FILE, F.col("_metadata.file_path"))
        named.schema  # noqa: B018
    except AnalysisException:
        return events, None
    finally:
        reporter.disabled = before
    return named, FILE


# A folder of event files as a stream for `match_stream`: Parquet, CSV or JSON lines, as files arrive.
#
# The stream has the names of the files, and the workers read them with the readers of the library: so a
# number that is none is one rejected event with its row and reason, where Spark's own readers would make a
# null of it, which means a missing value. What the files hold (format, columns, type of ids) is told by the
# first of them and goes along in the metadata of the one column. Spark takes a file when its name appears,
# so write it under a name that begins with `.` or `_` and rename it.

PATH = "rangecast_path"
_CONTENT = "rangecast.files"
# as Spark's reader of whole files has it; the content is not read
_NAMES = T.StructType(
    [
        T.StructField("path", T.StringType()),
        T.StructField("modificationTime", T.TimestampType()),
        T.StructField("length", T.LongType()),
        T.StructField("content", T.BinaryType()),
    ]
)


@dataclass(frozen=True)
class FilesOfEvents:
    """What the files of a stream hold: their format, their columns, and the type of ids."""

    format: str
    fields: T.StructType
    id_type: str

    @classmethod
    def of(cls, frame: DataFrame) -> FilesOfEvents | None:
        """What `read_events` wrote down in a stream of files; None for any other stream."""
        if frame.columns != [PATH] or _CONTENT not in frame.schema[PATH].metadata:
            return None
        raw = json.loads(frame.schema[PATH].metadata[_CONTENT])
        return cls(raw["format"], T.StructType.fromJson(raw["fields"]), raw["id_type"])

    def metadata(self) -> dict[str, Any]:
        """The same as metadata of a column."""
        raw = {"format": self.format, "fields": self.fields.jsonValue(), "id_type": self.id_type}
        return {_CONTENT: json.dumps(raw)}


def read_events(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    schema: Schema | Store | str | os.PathLike[str],
    output: Output | None = None,
    *,
    format: str | None = None,
    files_per_batch: int | None = None,
    **keywords: Unpack[OutputKeywords],
) -> DataFrame:
    """Files of events in a folder, as a stream of their names for `match_stream` with this store or schema.

    The format is told by `format` ("parquet", "csv", "jsonl") or by the suffix of the first file, and so
    are the columns of Parquet and CSV; a folder without a file will do for "jsonl" alone. `output`, or
    its keywords, are those of `match_stream`: its columns are read, and its `id_type` says "int64" or
    "string" where the first file would tell otherwise; without a file, ids are whole numbers.
    `files_per_batch` bounds a micro-batch.
    """
    said = Output.of(output, keywords)
    place = Path(local_place(folder, "the folder of events")).absolute()
    if not place.is_dir():
        raise OptionError(f"{place}: events must be a folder that files arrive in; there is none")
    if not isinstance(schema, Schema):
        schema = (schema if isinstance(schema, Store) else Store.open(schema)).schema
    first = first_file(place)
    if first is None and format is None:
        raise OptionError(f"{place}: there is no file yet to tell the format by; say format=")
    kind = format_of(first or place, format)
    if first is None and kind != "jsonl":
        raise OptionError(f"{place}: the first file must be there to tell the columns of {kind}")
    answer = said.answer(schema, textual=None)
    settled = "int64"
    if first is not None:
        settled = check_files([str(first)], {str(first): kind}, schema, answer)
    if kind == "parquet":
        fields = from_arrow_schema(pq.read_schema(str(first)), prefer_timestamp_ntz=True)
    else:
        fields = T.StructType([T.StructField(name, T.StringType()) for name in answer.columns])
    settled = answer.id_type or settled
    fields[answer.event_id].dataType = T.LongType() if settled == "int64" else T.StringType()
    # by default, Spark passes over a file whose time is a week before that of the newest one
    reader = spark.readStream.format("binaryFile").schema(_NAMES).option("maxFileAge", "36500d")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    files = FilesOfEvents(kind, fields, settled)
    return reader.load(str(place)).select(F.col("path").alias(PATH, metadata=files.metadata()))


def first_file(folder: Path) -> Path | None:
    """The first file of data in a folder, by name."""
    paths = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return next((p for p in paths if not p.name.startswith(("_", "."))), None)
