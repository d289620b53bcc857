"""How a Kafka cluster is reached: settings, consumers and producers of confluent-kafka.

confluent-kafka is an extra, and is imported at the first use. A cluster that does not answer is a
`StorageError` that names its address, instead of a client that waits for ever.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rangecast.errors import OptionError, SetupError, StorageError

PATIENCE = 15.0
"""Seconds to wait for an answer of the cluster."""
EARLIEST, LATEST = "earliest", "latest"


def client() -> Any:
    """The module confluent_kafka."""
    try:
        import confluent_kafka
    except ImportError:
        raise SetupError(
            "Kafka needs the package confluent-kafka: install rangecast with its extra kafka "
            "(from a clone: pip install '.[kafka]' -c constraints.txt)"
        ) from None
    return confluent_kafka


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """`name=value` settings of the client.

    >>> parse_settings(["security.protocol=SSL", "ssl.ca.location=ca.pem"])
    {'security.protocol': 'SSL', 'ssl.ca.location': 'ca.pem'}
    """
    out = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"a setting of the client is name=value, got {setting!r}")
        out[name.strip()] = value
    return out


def make_consumer(bootstrap: str, settings: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    """A consumer; the user's settings win over ours where both say something."""
    return _make("Consumer", bootstrap, settings, {"enable.auto.commit": False, **own})


def make_producer(bootstrap: str, settings: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    """A producer that keeps the order of what it sends and does not repeat it."""
    # a message that waits for company costs a fraction of one that goes alone
    ours = {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4"}
    return _make("Producer", bootstrap, settings, {**ours, **own})


def _make(kind: str, bootstrap: str, settings: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    kafka = client()
    try:
        return getattr(kafka, kind)({"bootstrap.servers": bootstrap, **own, **settings})
    except (kafka.KafkaException, ValueError, TypeError) as error:
        raise OptionError(f"a setting of the client was refused: {what(error)}") from None


def what(error: BaseException) -> str:
    """An error of the client in one line."""
    inner = error.args[0] if error.args else error
    return inner.str() if hasattr(inner, "str") else str(inner)


def answered(question: Callable[[], Any], where: str) -> Any:
    """An answer of the cluster; one that is busy electing or loading is asked again for a while.

    StorageError, which begins with `where`, when that does not help.
    """
    kafka = client()
    kinds = kafka.KafkaError
    passing = (
        kinds._TIMED_OUT,
        kinds._WAIT_COORD,
        kinds.COORDINATOR_LOAD_IN_PROGRESS,
        kinds.COORDINATOR_NOT_AVAILABLE,
        kinds.NOT_COORDINATOR,
    )
    deadline = time.monotonic() + 2 * PATIENCE
    while True:
        try:
            return question()
        except kafka.KafkaException as error:
            inner = error.args[0]
            if not (inner.retriable() or inner.code() in passing) or time.monotonic() > deadline:
                raise StorageError(f"{where}: {what(error)}") from error
            time.sleep(0.2)


def partitions_of(connected: Any, topic: str, bootstrap: str) -> list[int]:
    """The partitions of a topic; StorageError when the cluster does not answer or has no such topic."""
    kafka = client()
    try:
        found = connected.list_topics(topic, timeout=PATIENCE).topics.get(topic)
    except kafka.KafkaException as error:
        raise StorageError(f"{bootstrap}: no Kafka cluster answers here: {what(error)}") from None
    if found is None or found.error is not None or not found.partitions:
        raise StorageError(f"{bootstrap}: there is no topic {topic!r}; create it first")
    return sorted(found.partitions)


def start_time(start: str) -> int | None:
    """Milliseconds since 1970 that a start names; None for earliest and latest.

    >>> start_time("earliest") is None, start_time("1970-01-02T00:00:00Z")
    (True, 86400000)
    """
    if start in (EARLIEST, LATEST):
        return None
    try:
        moment = dt.datetime.fromisoformat(start)
    except ValueError:
        raise OptionError(
            f"the start must be earliest, latest or a time such as 2026-01-31T08:00:00Z, got {start!r}"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)
