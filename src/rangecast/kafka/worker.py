"""One process of a group that matches the events of a topic: consume, match, produce.

    consume --> read values --> match at the newest version of the store --> produce matches, dead letters
                                                                       +---> offsets, in the same transaction

Exactly once: what a batch sends and how far it has read are one transaction, so a reader with
`isolation.level=read_committed` sees all of a batch or nothing of it, and a batch that was cut off is
consumed again. A process that is thought dead and is not is fenced by the group's generation, which goes
with the offsets. Without `exactly_once` offsets follow when all was delivered: nothing is lost, and a batch
that was cut off is sent again, maybe against a newer version.

Partitions may move to another process within `consume`. Two rules keep the offsets right through that:
messages of a partition that is no longer ours are dropped, and one whose offset is below the next one
expected of its partition is passed over.

Each batch is matched against one version, the newest when it begins; the header `rangecast-version` has it.
The index follows the store by its changes (rangecast.store.follower).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rangecast.errors import OptionError, SetupError, StorageError, extra_hint
from rangecast.kafka.connection import (
    EARLIEST,
    LATEST,
    PATIENCE,
    answered,
    client,
    make_consumer,
    make_producer,
    partitions_of,
    start_time,
    what,
)
from rangecast.kafka.formats import ValueFormat
from rangecast.kafka.messages import (
    VERSION_HEADER,
    MessageForm,
    dead_letter,
    matches_to_messages,
    read_events,
)
from rangecast.store.follower import Follower
from rangecast.store.store import Store

_log = logging.getLogger(__name__)
_MOST_FAILURES = 5
_FULL_SECONDS = 0.05
_partition_of = operator.methodcaller("partition")


@dataclass(frozen=True)
class TopicMatch:
    """What a worker does: which store, which topics, which group, and how."""

    store: str
    """The store's path."""
    bootstrap: str
    """`host:port` of the cluster; several are separated by commas."""
    source: str
    """The topic of events."""
    out: str
    """The topic for matches."""
    group: str
    """The consumer group; the workers of a group share the partitions."""
    dead_letters: str | None = None
    """The topic for rejected events; None logs them."""
    start: str = EARLIEST
    """Where a new group begins: earliest, latest, or a time."""
    shape: MessageForm = field(default_factory=MessageForm)
    """What a message for matches looks like."""
    exactly_once: bool = False
    """Whether matches and offsets are committed in one transaction."""
    batch_events: int = 5_000
    """How many events a batch has at most."""
    linger: float = 0.02
    """How many seconds a batch waits for more events."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the Kafka client."""
    values: ValueFormat = field(default_factory=ValueFormat)
    """The format of the events."""
    worker: str | None = None
    """A name of its own that stays the same through restarts lets what a killed worker has begun be ended at
    once, instead of after `transaction.timeout.ms`."""

    def __post_init__(self) -> None:
        self.shape.check()
        start_time(self.start)
        if self.batch_events < 1 or self.linger < 0:
            raise OptionError(
                f"a batch has at least one event and waits no negative time, got {self.batch_events} and "
                f"{self.linger} s"
            )
        names = [self.source, self.out, *([self.dead_letters] if self.dead_letters else [])]
        if len(set(names)) < len(names):
            raise OptionError(f"the topics must differ, got {', '.join(names)}")


@dataclass
class WorkerCounts:
    """What a worker has done so far."""

    batches: int = 0
    events: int = 0
    matches: int = 0
    messages: int = 0
    rejected: int = 0
    repeated: int = 0
    """Messages that were received again, and left out."""
    aborted: int = 0
    """Batches that failed and were done again."""
    version: int = 0
    """The store's version that the last batch was matched against."""
    match_seconds: float = 0.0


class TopicWorker:
    """A worker; `run` works until it is told to stop. `close` leaves the group at once."""

    def __init__(self, job: TopicMatch) -> None:
        self.job = job
        self.counts = WorkerCounts()
        self.on_batch: Callable[[float, int], None] | None = None
        self._values = job.values.reader()
        self._store = Store.open(job.store)
        self._follower = Follower(self._store.path)
        self._next: dict[int, int] = {}
        # partitions that are ours, with what was committed when they became so, negative for nothing
        self._begun: dict[int, int] = {}
        # where those began and ended when messages were last asked for
        self._spans: dict[int, tuple[int, int]] = {}
        self._failures = 0
        self._undelivered: str | None = None
        self._kafka = client()
        # earliest or latest is for a partition without a committed offset; a time is looked up when it is
        # ours
        reset = LATEST if job.start == LATEST else EARLIEST
        # read_committed: what a failed producer took back is no event
        own: dict[str, Any] = {"group.id": job.group, "auto.offset.reset": reset}
        own["isolation.level"] = "read_committed"
        # with its queue full the client rests for a second, in which a worker reads it empty and waits
        own["fetch.queue.backoff.ms"] = 20
        self._consumer = make_consumer(job.bootstrap, job.settings, own)
        sending: dict[str, Any] = {}
        if job.exactly_once:
            sending["transactional.id"] = f"rangecast-{job.group}-{job.worker or uuid.uuid4().hex}"
        try:
            # what was delivered is nobody's concern: a report for each message costs as much as to send it
            sending |= {"delivery.report.only.error": True, "on_delivery": self._delivered}
            self._producer = make_producer(job.bootstrap, job.settings, sending)
            for topic in filter(None, (job.source, job.out, job.dead_letters)):
                partitions_of(self._consumer, topic, job.bootstrap)
            if job.exactly_once:
                self._ask(lambda: self._producer.init_transactions(PATIENCE), "no transactions")
            self._consumer.subscribe([job.source], on_assign=self._assigned, on_revoke=self._revoked)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> TopicWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group; events that were not committed go to other workers."""
        self._consumer.close()
        self._begun.clear()

    def run(self, stopped: Callable[[], bool], *, idle: float | None = None) -> WorkerCounts:
        """Work until `stopped()`, or until no event has come for `idle` seconds."""
        last = time.monotonic()
        while not stopped():
            if self.step():
                last = time.monotonic()
            elif idle is not None and time.monotonic() - last >= idle:
                break
        return self.counts

    def step(self) -> int:
        """One batch, if there is one; returns how many messages it had."""
        messages = self._consume()
        if not messages:
            return 0
        try:
            self._work(messages)
            self._failures = 0
        except self._kafka.KafkaException as error:
            self._give_up(error)
        except BaseException:
            # readers of the topic wait for the end of what was begun
            with contextlib.suppress(self._kafka.KafkaException):
                if self.job.exactly_once:
                    self._producer.abort_transaction(PATIENCE)
            raise
        return len(messages)

    def lag(self) -> dict[int, int]:
        """How many messages are still to be read of each partition that is ours, as the last step left it.

        Other threads may ask at any time. So the client is not asked here: such a call can wait for one that
        consumes, and keep that from going on, for a minute.
        """
        out = {}
        for partition, begun in list(self._begun.items()):
            first, end = self._spans.get(partition, (-1, -1))
            at = self._next.get(partition, begun)
            if end >= 0:
                fresh = end if self.job.start == LATEST else max(first, 0)
                out[partition] = max(0, end - (at if at >= 0 else fresh))
        return out

    # the parts of a step

    def _consume(self) -> list[Any]:
        """Messages of partitions that are ours, none of them twice."""
        # in short steps, so that whoever asks it to stop does not wait
        got = self._consumer.consume(self.job.batch_events, timeout=max(self.job.linger, 0.001))
        self._spans = self._known_spans()
        if not got:
            return []
        ours = {place.partition for place in self._consumer.assignment()}
        taken = []
        for message in got:
            error = message.error()
            if error is not None:
                if error.fatal() or not error.retriable():
                    raise StorageError(f"{self.job.bootstrap}: {self.job.source}: {error.str()}")
                continue
            partition = message.partition()
            if partition not in ours:
                continue
            if message.offset() < self._next.get(partition, 0):
                self.counts.repeated += 1
                continue
            self._next[partition] = message.offset() + 1
            taken.append(message)
        return taken

    def _known_spans(self) -> dict[int, tuple[int, int]]:
        """Where the partitions that are ours begin and end, as far as the client knows without asking."""
        out = {}
        for partition in self._begun:
            place = self._kafka.TopicPartition(self.job.source, partition)
            with contextlib.suppress(RuntimeError, self._kafka.KafkaException):  # never asked for
                out[partition] = self._consumer.get_watermark_offsets(place, cached=True)
        return out

    def _work(self, messages: list[Any]) -> None:
        began = time.perf_counter()
        version = self._store.version
        if self.job.exactly_once:
            self._producer.begin_transaction()
        done = self._match(messages, version)
        # what was taken of a partition reaches up to what is expected next of it
        taken = set(map(_partition_of, messages))
        offsets = [self._kafka.TopicPartition(self.job.source, p, self._next[p]) for p in taken]
        if self.job.exactly_once:
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets, group, PATIENCE)
            self._producer.commit_transaction(PATIENCE)
        else:
            left = self._producer.flush(PATIENCE)
            if left or self._undelivered:
                reason = self._undelivered or f"{left} messages were not delivered in {PATIENCE:.0f} s"
                raise StorageError(f"{self.job.bootstrap}: {self.job.out}: {reason}")
            self._consumer.commit(offsets=offsets, asynchronous=False)
        counts = self.counts
        counts.batches += 1
        counts.version = version
        counts.events += done.events
        counts.matches += done.matches
        counts.messages += done.messages
        counts.rejected += done.rejected
        counts.match_seconds += done.match_seconds
        if self.on_batch is not None:
            self.on_batch(time.perf_counter() - began, done.events)

    def _match(self, messages: list[Any], version: int) -> WorkerCounts:
        """Match a batch and hand what is to be sent to the producer."""
        done = WorkerCounts()
        shape, out, produce = self.job.shape, self.job.out, self._producer.produce
        headers = [(VERSION_HEADER, str(version).encode())]
        with self._follower.reading(version) as index:
            for batch in read_events(
                index.schema,
                messages,
                shape.columns(index.schema),
                self.job.source,
                event_id=shape.event_id,
                id_type=shape.type,
                values=self._values,
            ):
                started = time.perf_counter()
                matches = index.match(batch.events)
                done.match_seconds += time.perf_counter() - started
                done.events += len(batch.events)
                done.matches += matches.n_pairs
                for key, value in matches_to_messages(batch, matches, messages, shape, self._values):
                    try:
                        produce(out, value, key, headers=headers)
                    except BufferError:
                        self._send(out, value, key, headers)
                    done.messages += 1
                for rejected in batch.rejected:
                    assert rejected.row is not None
                    bad = messages[rejected.row - 1]
                    done.rejected += 1
                    if self.job.dead_letters is None:
                        _log.warning(
                            "%s: partition %d, offset %d rejected: %r",
                            self.job.source,
                            bad.partition(),
                            bad.offset(),
                            rejected.reason,
                        )
                    else:
                        self._send(self.job.dead_letters, bad.value(), bad.key(), dead_letter(bad, rejected))
        return done

    def _send(self, topic: str, value: str | bytes | None, key: str | bytes | None, headers: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers)
            except BufferError:
                self._producer.poll(_FULL_SECONDS)
            else:
                return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._undelivered is None:
            self._undelivered = error.str()

    # when something is in the way

    def _give_up(self, error: Any) -> None:
        """Take back a batch that failed and read it again; raise when that does not help."""
        inner = error.args[0]
        self._failures += 1
        if inner.fatal() or self._failures > _MOST_FAILURES:
            raise StorageError(f"{self.job.bootstrap}: {what(error)}") from error
        _log.warning("%s: a batch is done again: %s", self.job.source, what(error))
        self.counts.aborted += 1
        if self.job.exactly_once:
            self._ask(lambda: self._producer.abort_transaction(PATIENCE), "a transaction was not taken back")
        self._undelivered = None
        self._rewind()
        time.sleep(min(0.1 * 2**self._failures, 2.0))

    def _rewind(self) -> None:
        """Read again from what is committed, in the partitions that are ours now."""
        ours = self._consumer.assignment()
        self._next.clear()
        if not ours:
            return
        places = self._ask(lambda: self._consumer.committed(ours, PATIENCE), "no committed offsets")
        for place in self._started(places):
            self._consumer.seek(place)

    def _started(self, places: Any) -> list[Any]:
        """Where to begin in each partition: after what is committed; otherwise as `start` says."""
        out = []
        moment = start_time(self.job.start)
        fresh = [place for place in places if place.offset < 0]
        if fresh and moment is not None:
            asked = [self._kafka.TopicPartition(p.topic, p.partition, moment) for p in fresh]
            found = self._ask(lambda: self._consumer.offsets_for_times(asked, PATIENCE), "no offsets by time")
            out += found
        else:
            other = self._kafka.OFFSET_END if self.job.start == LATEST else self._kafka.OFFSET_BEGINNING
            out += [self._kafka.TopicPartition(p.topic, p.partition, other) for p in fresh]
        return [*out, *(place for place in places if place.offset >= 0)]

    def _ask(self, question: Callable[[], Any], trouble: str) -> Any:
        return answered(question, f"{self.job.bootstrap}: {trouble}")

    def _assigned(self, consumer: Any, places: Any) -> None:
        self._forget(places)
        committed = self._ask(lambda: consumer.committed(places, PATIENCE), "no committed offsets")
        if start_time(self.job.start) is not None:
            committed = self._started(committed)
            consumer.assign(committed)
        self._begun |= {place.partition: place.offset for place in committed}
        _log.info("%s: partitions %s are ours", self.job.source, [p.partition for p in places])

    def _revoked(self, consumer: Any, places: Any) -> None:
        # the messages of this `consume` that belong to them are dropped, and their new owner reads them
        self._forget(places)

    def _forget(self, places: Any) -> None:
        for place in places:
            self._next.pop(place.partition, None)
            self._begun.pop(place.partition, None)


_PREFIX = "rangecast_kafka"
_WINDOW = 60.0
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COUNTERS = {
    "events": "events that were matched",
    "matches": "pairs of event and subscription",
    "messages": "messages that were sent",
    "rejected": "events that were rejected",
    "batches": "batches that were committed",
    "aborted": "batches that were taken back and done again",
    "match_seconds": "time within the index",
}


class WorkerMetrics:
    """The metrics of a worker, served on HOST:PORT as long as it is open.

       name                                    kind        meaning
       rangecast_kafka_events_total            counter     events that were matched
       rangecast_kafka_matches_total           counter     pairs of event and subscription
       rangecast_kafka_messages_total          counter     messages that were sent
       rangecast_kafka_rejected_total          counter     events rejected, to the dead letters if any
       rangecast_kafka_batches_total           counter     batches that were committed
       rangecast_kafka_aborted_total           counter     batches that were taken back and done again
       rangecast_kafka_match_seconds_total     counter     time within the index
       rangecast_kafka_batch_seconds           histogram   from a batch's messages to its commit
       rangecast_kafka_events_per_second       gauge       over the last minute
       rangecast_kafka_version                 gauge       the store's version of the last batch
       rangecast_kafka_lag{partition}          gauge       messages still to be read, of this worker

    Counts are read when somebody asks, so that nothing is done for them in between.
    """

    def __init__(self, worker: TopicWorker, address: str) -> None:
        try:
            import prometheus_client
            import prometheus_client.core
        except ImportError:
            raise SetupError(f"metrics need the package prometheus-client: {extra_hint('kafka')}") from None
        host, _, port = address.rpartition(":")
        if not port.isdigit():
            raise OptionError(f"metrics are served on HOST:PORT, got {address!r}")
        self._worker = worker
        self._prometheus: Any = prometheus_client
        self._batches: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        registry = prometheus_client.CollectorRegistry()
        self._seconds = prometheus_client.Histogram(
            f"{_PREFIX}_batch_seconds",
            "from a batch's messages to its commit",
            buckets=_SECONDS,
            registry=registry,
        )
        registry.register(self)
        worker.on_batch = self._done
        try:
            self._server, self._thread = prometheus_client.start_http_server(
                int(port), host or "127.0.0.1", registry=registry
            )
        except (OSError, OverflowError) as error:
            raise OptionError(f"metrics cannot be served on {address}: {error}") from None

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> WorkerMetrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def collect(self) -> Iterator[Any]:
        """What Prometheus asks for."""
        core, counts = self._prometheus.core, self._worker.counts
        for name, text in _COUNTERS.items():
            yield core.CounterMetricFamily(f"{_PREFIX}_{name}", text, value=getattr(counts, name))
        what = "version of the store that the last batch was matched against"
        yield core.GaugeMetricFamily(f"{_PREFIX}_version", what, value=counts.version)
        what = "events per second over the last minute"
        yield core.GaugeMetricFamily(f"{_PREFIX}_events_per_second", what, value=self._rate())
        lag = core.GaugeMetricFamily(f"{_PREFIX}_lag", "messages still to be read", labels=["partition"])
        for partition, behind in sorted(self._worker.lag().items()):
            lag.add_metric([str(partition)], behind)
        yield lag

    def _done(self, seconds: float, events: int) -> None:
        self._seconds.observe(seconds)
        now = time.monotonic()
        # called by the worker, which is the only one to change it
        while len(self._batches) > 1 and self._batches[0][0] < now - _WINDOW:
            self._batches.popleft()
        self._batches.append((now, events))

    def _rate(self) -> float:
        now = time.monotonic()
        recent = [(at, events) for at, events in self._batches.copy() if at >= now - _WINDOW]
        if not recent:
            return 0.0
        return sum(events for _, events in recent) / max(now - recent[0][0], 1.0)


# How far a group of workers is behind its topic.


class Lag(NamedTuple):
    """One partition: where the group is, where the partition ends; None before the group's first commit."""

    partition: int
    committed: int | None
    first: int
    end: int

    @property
    def behind(self) -> int:
        """How many messages are still to be read."""
        return self.end - max(self.first, self.committed if self.committed is not None else self.first)


def read_lag(bootstrap: str, topic: str, group: str, settings: Mapping[str, str] | None = None) -> list[Lag]:
    """The lag of a group, by partition; takes no part in the group."""
    kafka = client()
    consumer = make_consumer(bootstrap, settings or {}, {"group.id": group})
    try:
        places = [kafka.TopicPartition(topic, p) for p in partitions_of(consumer, topic, bootstrap)]
        out = []
        where = f"{bootstrap}: {topic}"
        for place in answered(lambda: consumer.committed(places, PATIENCE), where):
            first, end = answered(functools.partial(consumer.get_watermark_offsets, place, PATIENCE), where)
            out.append(Lag(place.partition, place.offset if place.offset >= 0 else None, first, end))
        return out
    finally:
        consumer.close()
