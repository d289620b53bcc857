"""How far a group of workers is behind its topic."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from rangecast.kafka.connection import PATIENCE, answered, client, make_consumer, partitions_of


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
