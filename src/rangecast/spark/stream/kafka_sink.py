"""Matches of a stream to a Kafka topic, each of them once.

    matched files of batch N  --rename-->  ready/batch_id=N  --a transaction for each file-->  topic
                                           marks.json: where the topic ended before the first one

Each message of a file has the token `stream/batch/file` in the header `rangecast-token`. A transaction has
all of a file's messages, so a reader of committed messages sees a token when, and only when, its file was
sent. When a batch is run again, the files are still there, the topic is read from the marks on, and what
has its token there is not sent again. A batch is committed, and its files go, when all were sent.

A stream has one transactional id. Whoever takes it (`init_transactions`) ends what another process has
begun under it, and that process can send nothing more; only then tokens are read. So of two drivers that
think they run the same batch one is fenced, and no token is missed.

Where the topic has lost messages since the marks, nobody can tell what was sent, and the batch is refused.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.durable.documents import read_document, write_document
from rangecast.errors import OptionError, StorageError
from rangecast.kafka.connection import PATIENCE, client, make_producer, what
from rangecast.kafka.messages import BY_EVENT, BY_SUBSCRIPTION, PAIRS, VERSION_HEADER, texts_of
from rangecast.kafka.spans import MessagesGone, SpanReader, TopicEnds, TopicSpan

TOKEN_HEADER = "rangecast-token"
_MARKS = "marks.json"
_TRIES = 5
_FULL_SECONDS = 0.05
# how long readers wait at most for what a killed driver has begun; the next driver ends it at once
_TRANSACTION_MS = 300_000
_ROWS = 65_536


@dataclass(frozen=True)
class KafkaSink:
    """Where the matches of a stream go: made by `kafka_sink`."""

    topic: str
    bootstrap: str
    key: str = BY_EVENT
    settings: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"topic {self.topic}"

    def check(self, form: str) -> None:
        """Raise unless rows of this form have the key, and the cluster answers and has the topic."""
        if self.key == BY_SUBSCRIPTION and form != PAIRS:
            raise OptionError(
                f"a message of form {form} has no single subscription: take form {PAIRS} for that key"
            )
        TopicEnds(self.bootstrap, self.topic, dict(self.settings)).close()

    def send(self, stream: str, batch: int, folder: Path, version: int | None) -> None:
        """Send the files of a batch that were not sent yet."""
        files = sorted(path.name for path in folder.glob("*.parquet"))
        if not files:
            return
        # a file that was sent in part is taken back here, before anything is read or sent
        producer, topic = _connect(self, stream)
        try:
            sent = self._sent(topic, f"{stream}/{batch}/", folder)
            for name in files:
                if name not in sent:
                    headers = [(TOKEN_HEADER, f"{stream}/{batch}/{name}".encode())]
                    if version is not None:
                        headers.append((VERSION_HEADER, str(version).encode()))
                    self._send_file(producer, folder / name, headers)
        except BaseException:
            # whoever comes next takes the transactional id anew; readers need not wait until then
            del _connections[self, stream]
            with contextlib.suppress(client().KafkaException):
                producer.abort_transaction(PATIENCE)
            raise

    def _sent(self, topic: TopicEnds, prefix: str, folder: Path) -> set[str]:
        """The files whose tokens stand in the topic behind the marks; makes the marks the first time."""
        ends = {partition: end for partition, (_, end) in topic.ends().items()}
        marks = read_document(folder / _MARKS)
        if marks is None:
            offsets = {str(partition): end for partition, end in ends.items()}
            write_document(folder / _MARKS, {"cluster": topic.cluster, "offsets": offsets})
            return set()
        if marks["cluster"] != topic.cluster:
            raise StorageError(
                f"{self.bootstrap}: a batch was begun to be sent to the cluster {marks['cluster']}, and this "
                f"is {topic.cluster}; name that one"
            )
        reader = SpanReader(self.bootstrap, self.topic, dict(self.settings))
        found: set[str] = set()
        try:
            for partition, end in ends.items():
                first = marks["offsets"].get(str(partition), 0)
                for messages in reader.read(TopicSpan(partition, first, end)):
                    for message in messages:
                        token = dict(message.headers() or ()).get(TOKEN_HEADER, b"").decode()
                        if token.startswith(prefix):
                            found.add(token.removeprefix(prefix))
        except MessagesGone as error:
            raise StorageError(
                f"{error}. So nobody can tell which matches of an unfinished batch were sent: to send all of "
                f"them again, some maybe twice, delete {folder / _MARKS}"
            ) from error
        finally:
            reader.close()
        return found

    def _send_file(self, producer: Any, path: Path, headers: list[tuple[str, bytes]]) -> None:
        """One file in one transaction."""
        kafka = client()
        for attempt in range(_TRIES):
            try:
                producer.begin_transaction()
                for key, value in messages_of(path, self.key):
                    _produce(producer, self.topic, key, value, headers)
                _finish(producer.commit_transaction)
                return
            except kafka.KafkaException as error:
                inner = error.args[0]
                if inner.fatal() or not inner.txn_requires_abort() or attempt + 1 == _TRIES:
                    raise StorageError(f"{self.bootstrap}: {self.topic}: {what(error)}") from error
                _finish(producer.abort_transaction)
                time.sleep(0.1 * 2**attempt)


def kafka_sink(
    topic: str, *, bootstrap: str, key: str = BY_EVENT, settings: Mapping[str, str] | None = None
) -> KafkaSink:
    """A sink for `match_stream`: its matches go to a topic, each exactly once for readers of committed
    messages.

    A message is a row of the matches as JSON: {"event_id": ..., "subscription_id": ..., kept columns}. Its
    key is the event's id, or with `key` "subscription" (form pairs) the subscription's. `settings` are
    those of the client, as in {"security.protocol": "SSL"}.

    >>> str(kafka_sink("matches", bootstrap="127.0.0.1:9092"))
    'topic matches'
    """
    if key not in (BY_EVENT, BY_SUBSCRIPTION):
        raise OptionError(f"key must be {BY_EVENT} or {BY_SUBSCRIPTION}, got {key!r}")
    client()
    return KafkaSink(topic, bootstrap, key, tuple(sorted((settings or {}).items())))


# a process keeps its connections: to take a transactional id anew for every batch costs rounds of the cluster
_connections: dict[tuple[KafkaSink, str], tuple[Any, TopicEnds]] = {}


def _connect(sink: KafkaSink, stream: str) -> tuple[Any, TopicEnds]:
    found = _connections.get((sink, stream))
    if found is None:
        own = {
            "transactional.id": f"rangecast-stream-{stream}",
            "transaction.timeout.ms": _TRANSACTION_MS,
            "delivery.report.only.error": True,
        }
        topic = TopicEnds(sink.bootstrap, sink.topic, dict(sink.settings))
        producer = make_producer(sink.bootstrap, dict(sink.settings), own)
        try:
            _finish(producer.init_transactions)
        except client().KafkaException as error:
            raise StorageError(f"{sink.bootstrap}: no transactions: {what(error)}") from error
        found = _connections[sink, stream] = producer, topic
    return found


def _finish(step: Callable[[float], Any]) -> None:
    """A step of a transaction; one that takes its time is asked for again, for its outcome must be known."""
    kafka = client()
    for _ in range(_TRIES):
        try:
            step(PATIENCE)
            return
        except kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise
    step(PATIENCE)


def _produce(producer: Any, topic: str, key: str | None, value: str, headers: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, key, headers=headers)
        except BufferError:
            producer.poll(_FULL_SECONDS)
        else:
            return


def messages_of(path: Path, key: str) -> Iterator[tuple[str | None, str]]:
    """Keys and values of the messages for a file of matches."""
    with contextlib.closing(pq.ParquetFile(path)) as file:
        names = file.schema_arrow.names
        by = "event_id" if key == BY_EVENT else "subscription_id"
        shape = "{{" + ", ".join(_escaped(json.dumps(name)) + ": {}" for name in names) + "}}"
        for batch in file.iter_batches(_ROWS):
            keys = batch.column(names.index(by)).cast(pa.string()).to_pylist()
            columns = [json_texts(column) for column in batch.columns]
            for own, row in zip(keys, zip(*columns, strict=True), strict=True):
                yield own, shape.format(*row)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def json_texts(column: pa.Array[Any]) -> list[str]:
    """The values of a column as JSON; times as ISO texts, what is no number as null.

    >>> json_texts(pa.array([1.5, float("nan")])), json_texts(pa.array([[1, 2], None]))
    (['1.5', 'null'], ['[1, 2]', 'null'])
    """
    values = column.to_pylist()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind):
        return texts_of(values)
    if pa.types.is_floating(kind):
        return [json.dumps(v if v is not None and math.isfinite(v) else None) for v in values]
    return [json.dumps(value, default=_plain) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
