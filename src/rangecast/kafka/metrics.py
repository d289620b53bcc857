"""How a worker does, for Prometheus: counts, lag, rate and times of batches.

    name                                    kind        meaning
    rangecast_kafka_events_total            counter     events that were matched
    rangecast_kafka_matches_total           counter     pairs of event and subscription
    rangecast_kafka_messages_total          counter     messages that were sent
    rangecast_kafka_rejected_total          counter     events that were rejected, to the dead letters if any
    rangecast_kafka_batches_total           counter     batches that were committed
    rangecast_kafka_aborted_total           counter     batches that were taken back and done again
    rangecast_kafka_match_seconds_total     counter     time within the index
    rangecast_kafka_batch_seconds           histogram   from a batch's messages to its commit
    rangecast_kafka_events_per_second       gauge       over the last minute
    rangecast_kafka_version                 gauge       the store's version of the last batch
    rangecast_kafka_lag{partition}          gauge       messages still to be read, of this worker

Counts are read when somebody asks, so that nothing is done for them in between.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from rangecast.errors import OptionError, SetupError, extra_hint
from rangecast.kafka.worker import TopicWorker

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
    """The metrics of a worker, served on HOST:PORT as long as it is open."""

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
        for name, what in _COUNTERS.items():
            yield core.CounterMetricFamily(f"{_PREFIX}_{name}", what, value=getattr(counts, name))
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
