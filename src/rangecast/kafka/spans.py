"""Spans of a topic: which offsets there are, which of them a batch takes, and reading them again at any time.

    TopicSpan  partition, first, last: the messages with offsets first, ..., last - 1, as far as there are any
    TopicEnds  where the partitions of a topic begin and end now, and where a start (earliest, latest, a
    time) is SpanReader reads spans, outside of any group

Readers see what was committed (`read_committed`), and a partition ends before the first message of a
transaction that is open; so a span has the same messages whenever it is read. Offsets within it may be
without a message: markers of transactions, what was taken back, what compaction removed. A span is read
when a message beyond it came, or when the client says that it has reached the partition's end there.

Messages that were there and are gone, by retention or with a topic that was made again, are `MessagesGone`.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rangecast.errors import StorageError
from rangecast.kafka.connection import (
    LATEST,
    PATIENCE,
    client,
    make_consumer,
    partitions_of,
    start_time,
    what,
)

AT_ONCE = 20_000
"""Messages that are read, decoded and matched at once."""
_LEAST = 10_000


class TopicSpan(NamedTuple):
    """Offsets [first, last) of a partition."""

    partition: int
    first: int
    last: int


class MessagesGone(StorageError):
    """Messages of a span are not there any more; `first` is the first that is."""

    def __init__(self, text: str, first: int) -> None:
        super().__init__(text)
        self.first = first


class TopicEnds:
    """Where the partitions of a topic begin and end."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._kafka = client()
        self._consumer = make_consumer(bootstrap, settings, {"group.id": f"rangecast-{uuid.uuid4().hex}"})
        try:
            self.partitions()
            self.cluster = str(self._consumer.list_topics(topic, timeout=PATIENCE).cluster_id)
        except BaseException:
            self._consumer.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def partitions(self) -> list[int]:
        """The numbers of the partitions that there are now."""
        return partitions_of(self._consumer, self.topic, self.bootstrap)

    def ends(self) -> dict[int, tuple[int, int]]:
        """For each partition the first offset that there is, and the one after the last."""
        out = {}
        for partition in self.partitions():
            place = self._kafka.TopicPartition(self.topic, partition)
            try:
                out[partition] = self._consumer.get_watermark_offsets(place, PATIENCE)
            except self._kafka.KafkaException as error:
                raise StorageError(f"{self.bootstrap}: {self.topic}: {what(error)}") from error
        return out

    def starts(self, start: str) -> dict[int, int]:
        """The offset of each partition that a start names."""
        moment = start_time(start)
        ends = self.ends()
        if moment is None:
            return {p: end if start == LATEST else first for p, (first, end) in ends.items()}
        asked = [self._kafka.TopicPartition(self.topic, p, moment) for p in ends]
        try:
            found = self._consumer.offsets_for_times(asked, PATIENCE)
        except self._kafka.KafkaException as error:
            raise StorageError(f"{self.bootstrap}: {self.topic}: {what(error)}") from error
        # no message is as young: what comes next will be
        return {p.partition: p.offset if p.offset >= 0 else ends[p.partition][1] for p in found}


def admit(first: Mapping[int, int], ends: Mapping[int, int], most: int | None) -> dict[int, int]:
    """How far a batch goes that begins at `first`, when it may have `most` messages.

    Each partition gets its share by what it is behind, one message at least; those that are the furthest
    behind are served first, so that the same offsets always give the same batch.

    >>> admit({0: 0, 1: 0}, {0: 10, 1: 30}, 8), admit({0: 5}, {0: 5}, 8)
    ({0: 2, 1: 6}, {0: 5})
    """
    behind = {p: max(0, end - first.get(p, 0)) for p, end in ends.items()}
    total = sum(behind.values())
    out = {p: max(end, first.get(p, 0)) for p, end in ends.items()}
    if most is None or total <= most:
        return out
    room = most
    for p in sorted(behind, key=lambda p: (-behind[p], p)):
        taken = min(behind[p], max(1, behind[p] * most // total), room) if behind[p] else 0
        out[p] = first.get(p, 0) + taken
        room -= taken
    return out


def cut(first: Mapping[int, int], last: Mapping[int, int], tasks: int) -> list[TopicSpan]:
    """The spans between offsets, large ones in pieces so that all tasks have something to do.

    >>> [tuple(span) for span in cut({0: 0}, {0: 60_000, 1: 5}, 2)]
    [(0, 0, 30000), (0, 30000, 60000), (1, 0, 5)]
    """
    total = sum(end - first.get(p, 0) for p, end in last.items())
    size = max(_LEAST, -(-total // max(tasks, 1)))
    out = []
    for p, end in sorted(last.items()):
        begin = first.get(p, 0)
        pieces = -(-(end - begin) // size)
        edges = [begin + (end - begin) * k // pieces for k in range(pieces + 1)] if pieces else []
        out += [TopicSpan(p, a, b) for a, b in itertools.pairwise(edges)]
    return out


class SpanReader:
    """Reads spans of a topic; one connection for as many as it takes."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._kafka = client()
        own = {
            "group.id": f"rangecast-{uuid.uuid4().hex}",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # not to begin elsewhere without a word
            "auto.offset.reset": "error",
            # a span ends somewhere, and what is fetched beyond it is thrown away
            "queued.min.messages": 2 * AT_ONCE,
            # when so many wait, the client would rest for a second, and then be waited for
            "fetch.queue.backoff.ms": 2,
            # what is asked for is there already; a request that waits for more holds up the next span
            "fetch.wait.max.ms": 10,
        }
        self._consumer = make_consumer(bootstrap, settings, own)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def read(self, span: TopicSpan, most: int = AT_ONCE) -> Iterator[list[Any]]:
        """The messages of a span in their order, some at a time."""
        if span.first >= span.last:
            return
        self._consumer.assign([self._kafka.TopicPartition(self.topic, span.partition, span.first)])
        try:
            deadline = time.monotonic() + 2 * PATIENCE
            at, done = span.first, False
            while not done:
                got = self._consumer.consume(min(most, span.last - at), timeout=0.2)
                found = []
                for message in got:
                    if message.error() is not None:
                        done = done or self._ends(message, span)
                    elif message.offset() >= span.last:
                        done = True
                    else:
                        found.append(message)
                if found:
                    at = found[-1].offset() + 1
                    done = done or at >= span.last
                    deadline = time.monotonic() + 2 * PATIENCE
                    yield found
                elif not done and time.monotonic() > deadline:
                    raise StorageError(
                        f"{self.bootstrap}: {self.topic}: partition {span.partition} gave no message from "
                        f"offset {at} on in {2 * PATIENCE:.0f} s, and must go to {span.last}"
                    )
        finally:
            self._consumer.unassign()

    def _ends(self, message: Any, span: TopicSpan) -> bool:
        """Whether what came instead of a message says that the span is read."""
        error, kinds = message.error(), self._kafka.KafkaError
        if error.code() == kinds._PARTITION_EOF:
            # before the span's end: the broker that answers may be behind, so it is asked again for a while
            return bool(message.offset() >= span.last)
        if error.code() in (kinds._AUTO_OFFSET_RESET, kinds.OFFSET_OUT_OF_RANGE):
            place = self._kafka.TopicPartition(self.topic, span.partition)
            first, end = self._consumer.get_watermark_offsets(place, PATIENCE)
            raise MessagesGone(gone(self.bootstrap, self.topic, span, first, end), first)
        if error.fatal() or not error.retriable():
            raise StorageError(f"{self.bootstrap}: {self.topic}: {error.str()}")
        return False


def gone(bootstrap: str, topic: str, span: TopicSpan, first: int, end: int) -> str:
    """The message about messages that are no longer there."""
    return (
        f"{bootstrap}: {topic}: partition {span.partition} has the offsets {first} to {end}, and "
        f"{span.first} to {span.last} were to be read: messages are gone, or it is another topic of that name"
    )
