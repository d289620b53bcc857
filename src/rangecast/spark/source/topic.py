"""The source "rangecast-kafka": matches of a topic's events, matched while it is read.

    topic    --ends of its partitions-->    offset {partitions, version}  --tasks-->  read, match  --> matches
    store/   --newest version when planned-->

Tasks read their spans of the topic with confluent-kafka, so no event crosses into the JVM and Spark needs
no jar of Kafka's. A micro-batch is two offsets in Spark's own log: which messages it has, and which version
they are matched against, are fixed before anything is read, and done again it gives the same rows. Where
the topic has nothing new the offset stays as it was.

    offset       meaning
    partitions   for each partition the offset that is read next
    version, oldest, store, stream   as those of every source (store_source.py)
    topic, cluster   what the checkpoint goes with
    began        where the first micro-batch began: Spark does not write down what `initialOffset` gave, and
                 `latest` is another place when it asks again after a crash
    fresh        that an offset is one of `initialOffset`

A partition that is added to the topic is read from its beginning.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Unpack, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from rangecast.errors import OptionError, StorageError
from rangecast.kafka.connection import EARLIEST
from rangecast.kafka.spans import TopicEnds, TopicSpan, admit, cut, gone
from rangecast.kafka.values import JSON
from rangecast.spark.output import Output, OutputKeywords
from rangecast.spark.source.options import FAIL, local_folder
from rangecast.spark.source.store_source import (
    Offset,
    StoreReader,
    StoreSource,
    StoreStreamReader,
    share_out,
)
from rangecast.spark.source.tasks import Task
from rangecast.spark.source.topic_options import CLIENT, TopicSettings, read_topic_options, topic_fields
from rangecast.spark.source.topic_tasks import read_topic_task
from rangecast.spark.stream.stream import StreamKeywords
from rangecast.spark.version_policy import NEWEST, Pinned, VersionPolicy
from rangecast.store.store import Store

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
    """What Spark asks for by the name "rangecast-kafka"; topic_options.py has the options."""

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
