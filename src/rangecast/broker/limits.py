"""The limits of a space, and how fast somebody may go."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from typing import Any

from rangecast.broker.errors import BusyError
from rangecast.errors import OptionError


@dataclass(frozen=True)
class SpaceLimits:
    """What a space takes; 0 for a rate means that it is not limited.

    >>> SpaceLimits(boxes=10).changed()
    {'boxes': 10}
    """

    subscriptions: int = 10_000_000
    """Subscriptions of the space."""
    consumer_subscriptions: int = 1_000_000
    """Subscriptions of one consumer."""
    consumer_expressions: int = 64
    """Expressions that one consumer was the first to use; a space has 256 of all consumers together."""
    boxes: int = 1_024
    """Boxes of one condition."""
    connections: int = 20_000
    """Connections of all consumers together."""
    consumer_connections: int = 64
    """Connections of one consumer."""
    body_bytes: int = 64 << 20
    """Bytes of a request, also after it was decompressed."""
    line_bytes: int = 1 << 20
    """Bytes of one event."""
    request_events: int = 1_000_000
    """Events of one request."""
    match_pairs: int = 1_000_000
    """Pairs of an event and a subscription in one answer of `match`."""
    backlog: int = 400_000
    """Events that may wait to be matched."""
    events_per_second: int = 0
    """Per token."""
    changes_per_second: int = 0
    """Changed subscriptions, per token."""
    log_bytes: int = 4 << 30
    """Bytes of the event log; beyond them, its oldest segments are removed."""
    keep_seconds: int = 86_400
    """How long the event log keeps events."""
    segment_bytes: int = 64 << 20
    """Bytes after which the event log begins a new segment."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise OptionError(
                    f"the limit {name!r} must be a whole number and not negative, got {value!r}"
                )

    def changed(self) -> dict[str, int]:
        """The limits that differ from what is usual."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def of(cls, given: dict[str, Any]) -> SpaceLimits:
        """Limits by name; OptionError names one that there is not."""
        known = {f.name for f in fields(cls)}
        extra = sorted(set(given) - known)
        if extra:
            raise OptionError(
                f"there is no limit {', '.join(extra)}; the limits are {', '.join(sorted(known))}"
            )
        return cls(**given)


class Pacer:
    """How much each name has used of its rate: a bucket holds one second, or one request."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def spend(self, name: str, limit: str, rate: int, amount: int, now: float | None = None) -> None:
        """Take from a bucket; BusyError when it is empty."""
        if not rate:
            return
        moment = time.monotonic() if now is None else now
        left, since = self._buckets.get((name, limit), (float(rate), moment))
        left = min(float(rate), left + (moment - since) * rate)
        if left <= 0:
            wait = max(1, int(-left / rate) + 1)
            raise BusyError(f"the limit {limit!r} is {rate:,} per second; send again in {wait} s", wait)
        # one request may be larger than the bucket: what is owed is waited for by the next
        self._buckets[name, limit] = left - amount, moment
