"""The source "rangecast-kafka": matches of a topic's events, matched while it is read.

    topic    --ends of its partitions-->    offset {partitions, version}  --tasks-->  read, match  --> matches
    store/   --newest version when planned-->

Tasks read their spans of the topic with confluent-kafka, so no event crosses into the JVM and Spark needs
no jar of Kafka's. A micro-batch is two offsets in Spark's own log: which messages it has, and which version
they are matched against, are fixed before anything is read, and done again it gives the same rows. Where
the topic has nothing new the offset stays as it was.

    offset       meaning
    partitions   for each partition the offset that is read next
    version, oldest, store, stream   as those of every source (source.py)
    topic, cluster   what the checkpoint goes with
    began        where the first micro-batch began: Spark does not write down what `initialOffset` gave, and
                 `latest` is another place when it asks again after a crash
    fresh        that an offset is one of `initialOffset`

A partition that is added to the topic is read from its beginning.
"""

from __future__ import annotations

import functools
import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Unpack, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from rangecast.errors import OptionError, StorageError
from rangecast.kafka.connection import EARLIEST, start_time
from rangecast.kafka.formats import JSON, MessageValues, ValueFormat
from rangecast.kafka.messages import KEY, OFFSET, read_events
from rangecast.kafka.spans import MessagesGone, SpanReader, TopicEnds, TopicSpan, admit, cut, gone
from rangecast.loading.events import EventBatch, EventColumns
from rangecast.loading.ids import INT64, STRING
from rangecast.loading.pairs import Pace
from rangecast.loading.rejected import RejectedRow
from rangecast.spark.batch.file_tasks import FileBatch
from rangecast.spark.output import ALL, Answer, Output, OutputKeywords
from rangecast.spark.source.options import FAIL, REJECT, answer_of, choice, local_folder, whole_number
from rangecast.spark.source.source import Offset, StoreReader, StoreSource, StoreStreamReader, share_out
from rangecast.spark.source.tasks import Task, answer_batch, check_ids, keep_rejects
from rangecast.spark.stream.stream import StreamKeywords
from rangecast.spark.version_policy import NEWEST, Pinned, PinnedStore, VersionPolicy
from rangecast.store.store import Store

# One task of the source "rangecast-kafka", inside a worker: read spans of a topic, match, give the pairs.
#
# A worker keeps its connection for the tasks to come. Events that are rejected go to the same files as those
# of the source of files (tasks.py); their source is topic:partition, and their row is the message's offset.
# Messages that were gone before they could be read are one such row without a number, where the option
# lostMessages says so.

_MOST_KEPT = 4


def read_topic_task(task: Task, settings: TopicSettings, fields: T.StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a task; what was rejected is on disk when the last one is out."""
    target = to_arrow_schema(fields, timezone="UTC")
    store = PinnedStore(settings.store, task.pinned, settings.versions.time)
    schema = store.schema
    answer = settings.answer(schema, fields)
    check_ids(settings.store, answer)
    time = [store.time] if store.time is not None else []
    keep = tuple(name for name in dict.fromkeys([*answer.keep, *time]) if name != settings.id_field)
    columns = EventColumns(settings.id_field, answer.attributes, keep)
    values = _reader_of(settings.values)
    id_type = STRING if pa.types.is_string(target.field(0).type) else INT64
    aside: list[RejectedRow] = []
    pace = Pace()
    for span in task.units:
        place = f"{settings.topic}:{span.partition}"
        for messages in _read(span, settings, aside):
            for batch in read_events(
                schema,
                messages,
                columns,
                place,
                event_id=answer.event_id,
                id_type=id_type,
                values=values,
            ):
                given = _as_file_batch(batch, messages, answer.event_id, store.time)
                yield from answer_batch(place, given, store, answer, aside, pace, target)
    keep_rejects(aside, task, settings.rejects)


def _read(span: TopicSpan, settings: TopicSettings, aside: list[RejectedRow]) -> Iterator[list[Any]]:
    """The messages of a span; what is gone of it is one rejected row, if that may be."""
    reader = _connection(settings.bootstrap, settings.topic, tuple(sorted(settings.client.items())))
    try:
        yield from reader.read(span)
    except MessagesGone as error:
        if settings.lost_messages == FAIL or error.first <= span.first:
            raise
        last = min(error.first, span.last)
        reason = f"the messages from offset {span.first} to {last - 1} were gone before they were read"
        aside.append(RejectedRow(f"{settings.topic}:{span.partition}", None, None, None, reason, ""))
        yield from reader.read(TopicSpan(span.partition, last, span.last))


def _as_file_batch(batch: EventBatch, messages: list[Any], event_id: str, time: str | None) -> FileBatch:
    """A batch whose rows are offsets, and whose kept columns are texts, but for the events' time."""
    assert batch.rows is not None
    offsets = [messages[row - 1].offset() for row in batch.rows.tolist()]
    rejected = [
        row if row.row is None else row._replace(row=messages[row.row - 1].offset(), line=None)
        for row in batch.rejected
    ]
    kept = {name: column if name == time else column.cast(STRING) for name, column in batch.kept.items()}
    table = batch._replace(kept=kept).table(event_id)
    return FileBatch(batch.events, table, rejected, pa.array(offsets, INT64).to_numpy())


@functools.lru_cache(maxsize=_MOST_KEPT)
def _connection(bootstrap: str, topic: str, client: tuple[tuple[str, str], ...]) -> SpanReader:
    return SpanReader(bootstrap, topic, dict(client))


@functools.lru_cache(maxsize=_MOST_KEPT)
def _reader_of(values: ValueFormat) -> MessageValues:
    return values.reader()


# The options of the source "rangecast-kafka", and the columns that they give.
#
# option              meaning
# store               the folder of the store; must be given
# bootstrap, topic    HOST:PORT of the cluster, and the topic of events; must be given
# start               where a new stream begins: earliest, latest, or a time such as 2026-01-31T08:00:00Z
# format, registry, schemaFile, message
#                     the values (rangecast.kafka.formats): json, avro or protobuf, and where schemas come
#                     from
# event_id            a field of the values, @key (the message's key) or @offset ("3:1041": partition, offset)
# keep, form, outer, absent, order, textIds, idType, version, time, tasks
#                     as those of "rangecast" (options.py); ids of events are strings unless idType says
#                     int64, and what is kept is a string
# maxEventsPerBatch   at most so many messages in a micro-batch
# rejects             folder for the events that are rejected; in the store's folder by default
# lostMessages        fail or reject: what to do about messages that are gone before they were read
# kafka.NAME          a setting of the client, as in kafka.security.protocol

CLIENT = "kafka."
_NAMES = {
    "store", "bootstrap", "topic", "start", "format", "registry", "schemafile", "message", "eventid", "keep",
    "absent", "form", "outer", "order", "textids", "idtype", "version", "time", "maxeventsperbatch",
    "rejects", "tasks", "lostmessages",
}  # fmt: skip


@dataclass(frozen=True)
class TopicSettings:
    """The options, checked; see the module head."""

    store: str
    bootstrap: str
    topic: str
    start: str
    values: ValueFormat
    output: Output
    versions: VersionPolicy
    max_events: int | None
    rejects: str
    tasks: int
    lost_messages: str
    client: dict[str, str]

    def answer(self, schema: Any, fields: T.StructType) -> Answer:
        """What is read of the events and what goes out, for the columns of a DataFrame."""
        return answer_of(self.output, schema, fields)

    @property
    def id_field(self) -> str | None:
        """The field of the values that has the id, if one has."""
        return None if self.output.event_id in (KEY, OFFSET) else self.output.event_id


def read_topic_options(options: Mapping[str, str]) -> TopicSettings:
    """Check the options of a reader."""
    client = {
        name[len(CLIENT) :]: value for name, value in options.items() if name.lower().startswith(CLIENT)
    }
    given = {
        name.lower().replace("_", ""): value
        for name, value in options.items()
        if not name.lower().startswith(CLIENT)
    }
    unknown = sorted(name for name in given if name not in _NAMES)
    if unknown:
        raise OptionError(f"the source has no option {unknown[0]!r}; it has {', '.join(sorted(_NAMES))}")
    for name in ("store", "bootstrap", "topic"):
        if not given.get(name):
            raise OptionError(f"the option {name!r} must be given")
    output = Output.from_options(given)
    if ALL in output.keep:
        raise OptionError("keep names fields of the values: a topic has no columns that '*' could stand for")
    if output.event_id.startswith("@") and output.event_id not in (KEY, OFFSET):
        raise OptionError(f"an event's id is a field, {KEY} or {OFFSET}, got {output.event_id!r}")
    if output.event_id.startswith("@") and output.id_type == "int64":
        raise OptionError(f"ids by {output.event_id} are strings, got idType int64")
    start_time(given.get("start", EARLIEST))
    store = local_folder(given["store"], "store")
    key = hashlib.sha256(f"{given['bootstrap']}/{given['topic']}".encode()).hexdigest()[:16]
    return TopicSettings(
        store=store,
        bootstrap=given["bootstrap"],
        topic=given["topic"],
        start=given.get("start", EARLIEST),
        values=ValueFormat(
            given.get("format", JSON).lower(),
            given.get("registry"),
            given.get("schemafile"),
            given.get("message"),
        ),
        output=output,
        versions=VersionPolicy.parse(given.get("version", NEWEST), given.get("time")),
        max_events=whole_number(given, "maxEventsPerBatch"),
        rejects=local_folder(
            given.get("rejects") or os.path.join(store, "sources", key, "rejects"), "rejects"
        ),
        tasks=whole_number(given, "tasks") or os.cpu_count() or 1,
        lost_messages=choice(given, "lostMessages", (FAIL, REJECT)),
        client=client,
    )


def topic_fields(settings: TopicSettings, store: Store) -> T.StructType:
    """The columns that come out."""
    answer = settings.output.answer(store.schema, store.ids_are_text)
    given = T.StructType([T.StructField(name, T.StringType()) for name in answer.columns])
    if answer.id_type == "int64":
        given[answer.event_id].dataType = T.LongType()
    return answer.fields(given)


NAME = "rangecast-kafka"


def read_kafka(  # noqa: PLR0913 - each is an option of the source
    spark: SparkSession,
    topic: str,
    store: Store | str | os.PathLike[str],
    output: Output | None = None,
    *,
    bootstrap: str,
    start: str = EARLIEST,
    format: str = JSON,
    registry: str | None = None,
    schema_file: str | os.PathLike[str] | None = None,
    message: str | None = None,
    version: str | int | VersionPolicy = NEWEST,
    max_events: int | None = None,
    rejects: str | os.PathLike[str] | None = None,
    tasks: int | None = None,
    lost_messages: str = FAIL,
    settings: Mapping[str, str] | None = None,
    streaming: bool = True,
    **keywords: Unpack[StreamKeywords],
) -> DataFrame:
    """The matches of the events in a topic, as a stream; with streaming=False, those of the events that are
    there now.

    Events are read and matched inside the tasks, by confluent-kafka and without a jar. `start` (earliest,
    latest, a time) is for a new checkpoint. Values are JSON, or Avro or Protobuf by a schema `registry` or
    a `schema_file`. `output` and its keywords are those of `match`; an event's id is a field of the value,
    "@key" or "@offset". `max_events` bounds a micro-batch. Events that cannot be read go to `rejects` with
    their reason. `settings` are those of the client, as in {"security.protocol": "SSL"}.
    """
    spark.dataSource.register(TopicSource)
    policy = VersionPolicy.parse(version, keywords.pop("time", None))
    said = Output.of(output, cast(OutputKeywords, keywords))
    given: dict[str, Any] = {
        **said.options(),
        "store": str(store.path) if isinstance(store, Store) else local_folder(store, "store"),
        "bootstrap": bootstrap,
        "topic": topic,
        "start": start,
        "format": format,
        "registry": registry,
        "schemaFile": None if schema_file is None else local_folder(schema_file, "schemaFile"),
        "message": message,
        "version": str(policy),
        "time": policy.time,
        "maxEventsPerBatch": max_events,
        "rejects": None if rejects is None else local_folder(rejects, "rejects"),
        "tasks": tasks,
        "lostMessages": lost_messages,
        **{f"{CLIENT}{name}": value for name, value in (settings or {}).items()},
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    # what cannot be is said here, and not after a page of Spark's own lines
    read_topic_options(options)
    reader = spark.readStream if streaming else spark.read
    return reader.format(NAME).options(**options).load()


class TopicSource(StoreSource):
    """What Spark asks for by the name "rangecast-kafka"; topic.py has the options."""

    read_settings = staticmethod(read_topic_options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> T.StructType:
        return topic_fields(self.settings, Store.open(self.settings.store))

    def reader(self, schema: T.StructType) -> DataSourceReader:
        return _TopicReader(self, schema)

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:
        return _TopicStreamReader(self, schema)


class _TopicReader(StoreReader):
    def partitions(self) -> list[Task]:
        topic = _ends_of(self.settings)
        try:
            first = topic.starts(self.settings.start)
            last = {p: end for p, (_, end) in topic.ends().items()}
        finally:
            topic.close()
        return _tasks(f"read-{uuid.uuid4().hex}", first, last, self.settings, self.pinned)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_topic_task(partition, self.settings, self.fields)


class _TopicStreamReader(StoreStreamReader[TopicEnds]):
    def __init__(self, source: TopicSource, fields: T.StructType) -> None:
        super().__init__(source, fields)
        self.target: dict[int, int] | None = None
        self._initial: Offset | None = None

    def _open_input(self) -> TopicEnds:
        return _ends_of(self.settings)

    def initialOffset(self) -> Offset:
        # Spark asks again as long as there was no micro-batch, and `latest` must not move on meanwhile
        if self._initial is None:
            store, topic = self._open()
            self._initial = {
                "partitions": _as_json(topic.starts(self.settings.start)),
                "fresh": True,
                "version": 0,
                "store": store.id,
                "stream": uuid.uuid4().hex,
                "topic": topic.topic,
                "cluster": topic.cluster,
            }
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.settings.max_events
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        _, topic = self._open()
        self.target = {p: end for p, (_, end) in topic.ends().items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        _, topic = self._open()
        self._check(start)
        first = _as_numbers(start["partitions"])
        ends = topic.ends()
        self._check_there(first, ends)
        for partition, (begin, _) in ends.items():
            first.setdefault(partition, begin)
        last = {p: end for p, (_, end) in ends.items()} if self.target is None else self.target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        chosen = first | admit(first, last, most)
        if all(chosen[p] <= at for p, at in first.items()):
            return start
        pinned = self._pin(start)
        kept = {name: value for name, value in start.items() if name not in ("fresh", "oldest")}
        began = {"began": start["partitions"]} if start.get("fresh") else {}
        return kept | {"partitions": _as_json(chosen)} | began | pinned

    def reportLatestOffset(self) -> Offset:
        store, topic = self._open()
        ends = {p: end for p, (_, end) in topic.ends().items()}
        return {"partitions": _as_json(ends), "version": store.version}

    def partitions(self, start: Offset, end: Offset) -> list[Task]:
        _, topic = self._open()
        pinned = self._pinned(end)
        begin = end["began"] if start.get("fresh") and "began" in end else start["partitions"]
        first, last = _as_numbers(begin), _as_numbers(end["partitions"])
        new = [partition for partition in last if partition not in first]
        if new:
            ends = topic.ends()
            first |= {partition: ends.get(partition, (0, 0))[0] for partition in new}
        return _tasks(end["stream"], first, last, self.settings, pinned)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_topic_task(partition, self.settings, self.fields)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    @property
    def _note(self) -> str:
        return f"the source over the topic {self.settings.topic}"

    def _check_input(self, offset: Offset) -> None:
        _, topic = self._open()
        for name, has in (("topic", topic.topic), ("cluster", topic.cluster)):
            if offset[name] != has:
                raise OptionError(
                    f"the checkpoint was made with the {name} {offset[name]}, got {has}: name that one, or a "
                    "new checkpoint and output"
                )

    def _check_there(self, first: Mapping[int, int], ends: Mapping[int, tuple[int, int]]) -> None:
        """Refuse a topic that lacks what is to be read next; where it may be lost, the tasks say what was."""
        for partition, at in first.items():
            begin, end = ends.get(partition, (0, 0))
            lost = at < begin and self.settings.lost_messages == FAIL
            if at > end or lost:
                what = gone(
                    self.settings.bootstrap, self.settings.topic, TopicSpan(partition, at, at), begin, end
                )
                otherwise = " Go on without them by lostMessages reject" if lost else ""
                raise StorageError(
                    f"{what}.{otherwise or ' Start afresh with an empty checkpoint and output'}"
                )


def _ends_of(settings: TopicSettings) -> TopicEnds:
    return TopicEnds(settings.bootstrap, settings.topic, settings.client)


def _tasks(
    run: str, first: Mapping[int, int], last: Mapping[int, int], settings: TopicSettings, pinned: Pinned
) -> list[Task]:
    pieces: list[tuple[int, Any]] = [
        (span.last - span.first, span) for span in cut(first, last, settings.tasks)
    ]
    shares = share_out(pieces, settings.tasks)
    return [Task(run, number, share, pinned) for number, share in enumerate(shares)]


def _as_json(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _as_numbers(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in offsets.items()}
