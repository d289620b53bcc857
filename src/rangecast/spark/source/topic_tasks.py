"""One task of the source "rangecast-kafka", inside a worker: read spans of a topic, match, give the pairs.

A worker keeps its connection for the tasks to come. Events that are rejected go to the same files as those
of the source of files (tasks.py); their source is topic:partition, and their row is the message's offset.
Messages that were gone before they could be read are one such row without a number, where the option
lostMessages says so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from rangecast.kafka.messages import read_events
from rangecast.kafka.spans import MessagesGone, SpanReader, TopicSpan
from rangecast.kafka.values import MessageValues, ValueFormat
from rangecast.loading.events import EventBatch, EventColumns
from rangecast.loading.ids import INT64, STRING
from rangecast.loading.pace import Pace
from rangecast.loading.rejected import RejectedRow
from rangecast.spark.batch.file_tasks import FileBatch
from rangecast.spark.source.options import FAIL
from rangecast.spark.source.tasks import Task, answer_batch, check_ids, keep_rejects
from rangecast.spark.source.topic_options import TopicSettings
from rangecast.spark.version_policy import PinnedStore

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
