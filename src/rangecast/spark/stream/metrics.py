"""How a stream does: rates, batch times, how far its version is behind the store, what it takes on disk.

All of it can be read from the stream's own files or objects (`stream_status`), by any process and without
Spark. `StreamMetrics` is a listener of Spark's: it is called when a batch is done, adds what only Spark
knows, and hands the numbers to a function.

    number         meaning
    batch          the last batch that is whole
    version, lag   the version it was matched against; how many versions the store has beyond
    events, pairs  of the recent batches, those of the last minute or the last few
    per second     over the time from the first recent batch to the last
    busy           share of that time in which batches ran
    seconds        of a batch: the median and the slowest of the recent ones
    disk           bytes of the store, of the output, of the checkpoint
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rangecast.errors import OptionError
from rangecast.spark.stream.ledger import Commit, Ledger, now
from rangecast.spark.worker import open_store
from rangecast.store.commits import STATE
from rangecast.store.home import home_of

_RECENT_MICROSECONDS = 60_000_000
_AT_LEAST = 10
_LOOK_SECONDS = 10.0


@dataclass(frozen=True)
class StreamStatus:
    """The state of a stream, over its recent batches: those of the last minute, or the last few."""

    batch: int = -1
    """The last batch that is whole; -1 before the first."""
    version: int = 0
    """The version that it was matched against."""
    newest: int = 0
    """The store's newest version."""
    batches: int = 0
    """How many recent batches there are; the counts and times below are theirs."""
    events: int = 0
    """Events that were matched."""
    pairs: int = 0
    """Pairs of an event and a subscription that match."""
    rejected: int = 0
    """Rows that were rejected."""
    span: float = 0.0
    """Seconds from the first recent batch to the last."""
    busy: float = 0.0
    """The share of that time in which batches ran."""
    seconds: float = 0.0
    """The median time of a batch."""
    slowest: float = 0.0
    """The time of the slowest batch."""
    running: int | None = None
    """The batch that is running."""
    running_seconds: float = 0.0
    """Seconds since that batch began."""
    idle_seconds: float = 0.0
    """Seconds since the last batch became whole."""
    last: Commit | None = None
    """The commit of the last batch."""
    disk: dict[str, int] = field(default_factory=dict)
    """Bytes of the store, of the output and of the checkpoint."""
    trigger: dict[str, int] = field(default_factory=dict)
    """What Spark reports of the phases of the last batch, in milliseconds."""

    @property
    def lag(self) -> int:
        """Versions of the store that the last batch has not seen."""
        return self.newest - self.version

    @property
    def events_per_second(self) -> float:
        """Events of the recent batches over their time."""
        return self.events / self.span if self.span else 0.0

    @property
    def pairs_per_second(self) -> float:
        """Matches of the recent batches over their time."""
        return self.pairs / self.span if self.span else 0.0


def stream_status(out: str | os.PathLike[str], batch: int | None = None) -> StreamStatus:
    """The state of the stream that writes to a folder (or has this checkpoint, if it writes to none).

    With `batch`, as it was when that recent batch became whole.
    """
    ledger = find_ledger(out)
    own = ledger.settings()
    commits = [c for c in ledger.recent() if batch is None or c.batch <= batch]
    newest = open_store(own["path"]).version if own and home_of(own["path"]).has("store.json") else 0
    following = (commits[-1].batch if commits else -1) + 1
    pin = ledger.pin(following)
    running = None if pin is None else following
    running_seconds = 0.0 if pin is None else (now() - pin.time) / 1e6
    disk = {"output": _bytes(ledger.out), "checkpoint": _bytes(ledger.checkpoint)}
    if own:
        disk["store"] = _bytes(own["path"])
    if not commits:
        return StreamStatus(newest=newest, disk=disk, running=running, running_seconds=running_seconds)
    last = commits[-1]
    recent = [c for c in commits if c.time >= last.time - _RECENT_MICROSECONDS]
    recent = commits[-_AT_LEAST:] if len(recent) < _AT_LEAST else recent
    taken = [sum(commit.seconds.values()) for commit in recent]
    # the first recent batch began before it was committed
    span = (last.time - recent[0].time) / 1e6 + taken[0]
    return StreamStatus(
        batch=last.batch,
        version=last.version,
        newest=max(newest, last.version),
        batches=len(recent),
        events=sum(c.events for c in recent),
        pairs=sum(c.pairs for c in recent),
        rejected=sum(c.rejected for c in recent),
        span=span,
        busy=min(1.0, sum(taken) / span) if span else 0.0,
        seconds=statistics.median(taken),
        slowest=max(taken),
        running=running,
        running_seconds=running_seconds,
        idle_seconds=(now() - last.time) / 1e6,
        last=last,
        disk=disk,
    )


def find_ledger(out: str | os.PathLike[str]) -> Ledger:
    """The files of a stream, by its output or its checkpoint."""
    place = home_of(out).path
    known = home_of(out).read(f"{STATE}/stream.json")
    if known is None:
        raise OptionError(f"{place}: no stream has written here")
    if "checkpoint" in known:
        return Ledger(known["checkpoint"], str(place))
    return Ledger(str(place))


class StreamMetrics(StreamingQueryListener):
    """Calls a function with the state of a stream whenever Spark says that a batch is done.

    Add it with `watch_stream`. `last` is the last state that was reported, `error` the reason why the query
    ended.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        query_id: str,
        on_batch: Callable[[StreamStatus], None] | None = None,
    ) -> None:
        self.out = os.fspath(out)
        self.last: StreamStatus | None = None
        self.error: str | None = None
        self._ended = threading.Event()
        self._query_id = str(query_id)
        self._on_batch = on_batch

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done, or there was nothing to do for a while."""
        progress = event.progress
        if str(progress.id) != self._query_id:
            return
        status = stream_status(self.out, progress.batchId)
        if status.batch != progress.batchId or (self.last is not None and self.last.batch >= status.batch):
            return  # nothing new: Spark also calls when there is nothing to do
        took = {name: int(taken) for name, taken in dict(progress.durationMs).items()}
        self.last = replace(status, trigger=took)
        if self._on_batch is not None:
            self._on_batch(self.last)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """No new events."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query has ended; by an error, if there is one."""
        if str(event.id) == self._query_id:
            self.error = event.exception
            self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait until Spark has reported everything about a query that has ended."""
        return self._ended.wait(seconds)


def watch_stream(
    spark: SparkSession,
    query: Any,
    out: str | os.PathLike[str],
    on_batch: Callable[[StreamStatus], None] | None = None,
) -> StreamMetrics:
    """Listen to a query that `match_stream` returned; `out` is its output, or its checkpoint if it has
    none."""
    metrics = StreamMetrics(out, query.id, on_batch)
    spark.streams.addListener(metrics)
    return metrics


_sizes: dict[str, tuple[float, int]] = {}


def _bytes(folder: str | None) -> int:
    """Bytes of a folder; counted again only now and then, for it may have many files."""
    if folder is None:
        return 0
    at, size = _sizes.get(folder, (-_LOOK_SECONDS, 0))
    if time.monotonic() - at >= _LOOK_SECONDS:
        size = home_of(folder).size()
        _sizes[folder] = time.monotonic(), size
    return size
