"""Matching a stream of events against an index and writing the pairs: the work behind `match` and `demo`.

A batch is matched in slices, so that the pairs in memory stay near a bound whatever an event matches:
the first slice is small, and each sets the size of the next by what it found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rangecast.cli.console import bar
from rangecast.cli.streaming import EventStream
from rangecast.engine import Index
from rangecast.loading import PairWriter
from rangecast.model.matches import Matches

# 20 bytes a pair on their way into a file: 80 MB
PAIRS_AT_ONCE = 4_000_000
_FIRST_SLICE = 1_000
_GROWTH = 8


@dataclass
class Outcome:
    """What a run did, and how long it took to match alone and in all."""

    n_events: int = 0
    n_pairs: int = 0
    match_seconds: float = 0.0
    seconds: float = 0.0


class Slices:
    """Cuts batches by the matches that events have had so far."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._size = min(_FIRST_SLICE, largest)

    def cut(self, n: int) -> Iterator[tuple[int, int]]:
        """Ranges over a batch of n events."""
        first = 0
        while first < n:
            last = min(first + self._size, n)
            yield first, last
            first = last

    def learn(self, n_events: int, n_pairs: int) -> None:
        """Take what a slice found into account."""
        fitting = n_events * PAIRS_AT_ONCE // max(1, n_pairs)
        self._size = max(1, min(fitting, _GROWTH * self._size, self._largest))


def match_stream(
    index: Index, events: EventStream, writer: PairWriter, *, threads: int, batch: int, sort: bool = False
) -> Outcome:
    """Match all events and write the pairs, columns `event` and `subscription`."""
    began = time.perf_counter()
    outcome = Outcome()
    slices = Slices(batch)
    with bar("events", events.size) as progress:
        before = 0
        for part in events:
            for first, last in slices.cut(len(part.events)):
                some = part.events.select(np.arange(first, last))
                start = time.perf_counter()
                matches = index.match(some, threads=threads)
                outcome.match_seconds += time.perf_counter() - start
                outcome.n_pairs += matches.n_pairs
                slices.learn(last - first, matches.n_pairs)
                writer.write((matches.sort() if sort else matches).to_arrow(part.ids[first:last]))
                outcome.n_events += last - first
                done = before + (part.position - before) * last // len(part.events)
                progress.move(done, f"{outcome.n_events:,} events, {outcome.n_pairs:,} matches")
            before = part.position
    none = Matches(np.zeros(1, np.int64), np.empty(0, np.int32), index.subscriptions().ids).to_arrow()
    writer.close(pa.schema([("event", events.id_type), none.schema.field("subscription")]))
    outcome.seconds = time.perf_counter() - began
    return outcome
