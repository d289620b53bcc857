"""What /metrics shows, in the text format of Prometheus."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rangecast.errors import OptionError, visible

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Metrics:
    """The counters of a broker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        space = ("space",)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"rangecast_{name}", text, space, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"rangecast_{name}", text, space, registry=self.registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"rangecast_{name}", text, space, registry=self.registry, buckets=_SECONDS)

        self.published = counter("events_published", "Events that were logged")
        self.rejected = counter("events_rejected", "Events that were rejected")
        self.matched = counter("matches", "Pairs of an event and a subscription that match")
        self.delivered = counter("deliveries", "Messages that were handed to live consumers")
        self.replayed = counter(
            "events_replayed", "Events that were read again for consumers that were behind"
        )
        self.refused = counter("publishes_refused", "Requests that were refused because matching lags")
        self.closed_slow = counter("connections_closed_slow", "Connections closed because they took nothing")
        self.gaps = counter("gaps", "Gaps that consumers were told of")
        self.errors = counter("errors", "Failures inside the broker")
        self.hooks_sent = counter("webhook_deliveries", "Requests to webhooks that were answered well")
        self.hooks_failed = counter("webhook_failures", "Requests to webhooks that failed")
        self.subscriptions = gauge("subscriptions", "Subscriptions")
        self.expressions = gauge("expressions", "Places of expressions that are taken, of 256")
        self.connections = gauge("connections", "Connections of consumers")
        self.live = gauge("connections_live", "Connections that are live")
        self.behind = gauge("connections_behind", "Connections that are catching up")
        self.stalled = gauge("connections_stalled", "Connections that take nothing")
        self.lag = gauge("lag_events", "Events that wait to be matched")
        self.log_bytes = gauge("log_bytes", "Bytes of the event log")
        # of the broker, without a space
        self.open_connections = Gauge(
            "rangecast_open_connections", "Connections of all kinds", registry=self.registry
        )
        self.connections_refused = Counter(
            "rangecast_connections_refused",
            "Connections that were closed since there were too many",
            registry=self.registry,
        )
        self.sync_seconds = histogram("sync_seconds", "Time of one fdatasync")
        self.latency = histogram("publish_to_socket_seconds", "Time from a request to its matches on sockets")

    def text(self, may_see: Callable[[str], bool]) -> bytes:
        """Those of some spaces as text, with those of the broker where all spaces may be seen."""
        return generate_latest(_Seen(self.registry, may_see))


class _Seen(Collector):
    """What a registry collects, without the spaces that somebody may not see."""

    def __init__(self, registry: CollectorRegistry, may_see: Callable[[str], bool]) -> None:
        self._registry = registry
        self._may_see = may_see

    def collect(self) -> Iterator[Metric]:
        """Each metric with the samples that are left of it."""
        for metric in self._registry.collect():
            seen = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            # the broker's own count everybody's, so they are for who may see everything
            seen.samples = [s for s in metric.samples if self._may_see(s.labels.get("space", "*"))]
            if seen.samples or not metric.samples:
                yield seen


class SpaceMetrics:
    """The counters of one space."""

    def __init__(self, metrics: Metrics, space: str) -> None:
        self.published = metrics.published.labels(space)
        self.rejected = metrics.rejected.labels(space)
        self.matched = metrics.matched.labels(space)
        self.delivered = metrics.delivered.labels(space)
        self.replayed = metrics.replayed.labels(space)
        self.refused = metrics.refused.labels(space)
        self.closed_slow = metrics.closed_slow.labels(space)
        self.gaps = metrics.gaps.labels(space)
        self.errors = metrics.errors.labels(space)
        self.hooks_sent = metrics.hooks_sent.labels(space)
        self.hooks_failed = metrics.hooks_failed.labels(space)
        self.subscriptions = metrics.subscriptions.labels(space)
        self.expressions = metrics.expressions.labels(space)
        self.connections = metrics.connections.labels(space)
        self.live = metrics.live.labels(space)
        self.behind = metrics.behind.labels(space)
        self.stalled = metrics.stalled.labels(space)
        self.lag = metrics.lag.labels(space)
        self.log_bytes = metrics.log_bytes.labels(space)
        self.sync_seconds = metrics.sync_seconds.labels(space)
        self.latency = metrics.latency.labels(space)


# What the broker says of itself: one line per message, as text for people or as JSON for programs.
#
#     2026-01-31T12:00:00.000Z WARNING rangecast.broker a request failed
#     {"time": "2026-01-31T12:00:00.000Z", "level": "warning", "logger": "rangecast.broker", "message": "...",
#      "space": "main", "error": "StorageError: ..."}
#
# Whatever a message was given as `extra` is a field of its own in JSON and stands behind the text otherwise.
# Names and values come from others, so control characters are written out: no data begins a line.

FORMATS = ("text", "json")
# color_message is the same message of uvicorn, with escapes of a terminal
_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}


class TextLines(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        fields.pop("logger")
        head = f"{fields.pop('time')} {record.levelname} {record.name} {fields.pop('message')}"
        fields.pop("level")
        # the trace of an error is of several lines, each of them its own
        trace = (
            "" if not record.exc_info else "\n" + visible(self.formatException(record.exc_info), lines=True)
        )
        return visible(" ".join([head, *(f"{key}={value}" for key, value in fields.items())])) + trace


class JsonLines(logging.Formatter):
    """A line for programs."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    fields: dict[str, Any] = {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    fields.update({key: value for key, value in vars(record).items() if key not in _PLAIN})
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = f"{type(error).__name__}: {error}"
    return fields


def log_to(stream: TextIO, form: str) -> None:
    """Let everything that is logged in this process come out as lines of a form."""
    if form not in FORMATS:
        raise OptionError(f"logs are written as {' or '.join(FORMATS)}, got {form!r}")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
