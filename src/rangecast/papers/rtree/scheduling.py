"""The order in which a batch of events is answered, and the level at which an R-tree is asked for it.

Source: Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system based
on extended R-tree search algorithm with multiple inputs" (2004). When many events arrive at once, each
waits for those before it; the mean response is least when the shortest go first (sec. 3), for which an
index must say beforehand which are short. `ShortestFirst` does this over every index that can estimate.

In a tree the estimate is the better the deeper it looks, and costs the more (sec. 4.1). `AdaptiveLevel`
finds the level with the least mean response while batches come and subscriptions change (sec. 4.2). It
is pure logic: it is told means and says levels. Where we depart from the paper:

- At the root and at the leaves one neighbour is missing; a loop there tries two levels, not three.
- A tie counts as stable: the paper's strict comparison would go on for ever on a flat curve. Where the
  current level is worse than both neighbours, for which the paper has no rule, we take the better one.
- The paper keeps a state per batch size. Since sizes vary freely, we keep one for each doubling of the
  size (8 to 15, 16 to 31, ...), unless `exact_sizes`; a mean counts by its share of the size, to which
  it is nearly proportional.
- Nothing says where to start; we start in the middle of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy.typing as npt

from rangecast.engine.answers import Estimate
from rangecast.engine.index import Index
from rangecast.errors import OptionError
from rangecast.model.events import Events
from rangecast.papers.measuring import WALL, Clock


class Response(NamedTuple):
    """One event's answer; `seconds` from the arrival of its batch, without the reader's own time."""

    event: int
    ids: npt.NDArray[Any]
    seconds: float


class BatchTimes(NamedTuple):
    """What a batch took: the estimate, the mean response of its events, and all of it together."""

    events: int
    level: int | None
    estimate_seconds: float
    mean_seconds: float
    total_seconds: float


class ShortestFirst:
    """Answers batches event by event, the one with the least work first.

    `level` is the level of the estimate in an index that has levels: a number, None for the index's own
    choice, or an AdaptiveLevel, which is then told of each batch that is read to its end. `clock` may be
    any counter that only grows, such as an R-tree's `node_visits`.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> index = rc.open_index("direct", schema)
    >>> texts = {i: "price < 10" for i in range(600)} | {600: "price = 50"}
    >>> index.insert(rc.Subscriptions.parse(schema, texts))
    >>> schedule = rc.ShortestFirst(index)
    >>> batch = rc.Events.from_rows(schema, [{"price": 5}, {"price": 50}])
    >>> [(response.event, len(response.ids)) for response in schedule.match_each(batch)]
    [(1, 1), (0, 600)]
    >>> schedule.last.mean_seconds <= schedule.last.total_seconds
    True
    """

    def __init__(self, index: Index, level: int | AdaptiveLevel | None = None, clock: Clock = WALL) -> None:
        self.index = index
        self.level = level
        self.last: BatchTimes | None = None
        self._clock = clock

    def match_each(self, events: Events) -> Iterator[Response]:
        """The answers in the order of their completion."""
        size = len(events)
        level = self.level
        if isinstance(level, AdaptiveLevel):
            height = getattr(self.index, "height", None)
            if height is None:
                raise OptionError(f"index {self.index.name!r} has no levels to adapt; rtree has")
            level = level.choose(size, height, self.index.updates)
        began = self._clock()
        estimate = self.index.estimate(events, level)
        estimated = self._clock() - began
        total, spent = 0.0, estimated
        for response in respond(self.index, events, estimate, self._clock, estimated):
            total += response.seconds
            spent = response.seconds
            yield response
        mean = total / size if size else 0.0
        self.last = BatchTimes(size, estimate.level, estimated, mean, spent)
        if isinstance(self.level, AdaptiveLevel) and level is not None:
            self.level.record(size, level, mean)


def respond(
    index: Index,
    events: Events,
    estimate: Estimate | None = None,
    clock: Clock = WALL,
    spent: float = 0.0,
) -> Iterator[Response]:
    """Time an index's `match_each`: in the order of arrival, or by an estimate that took `spent`."""
    steps = index.match_each(events, estimate)
    while True:
        began = clock()
        step = next(steps, None)
        spent += clock() - began
        if step is None:
            return
        yield Response(*step, spent)


@dataclass
class LevelState:
    """What AdaptiveLevel knows of one batch size: its level, and the loop that checks it."""

    level: int
    height: int
    stable: bool = False
    updates: int = 0
    batches: int = 0
    sums: dict[int, float] = field(default_factory=dict)

    @property
    def candidates(self) -> list[int]:
        """The levels of a loop, in the order of their turns: the current one, the upper, the lower."""
        around = (self.level, self.level - 1, self.level + 1)
        return [level for level in around if 0 <= level < self.height]

    def restart(self, level: int) -> None:
        """Begin a new loop around a level."""
        self.level = level
        self.stable = False
        self.batches = 0
        self.sums = {}


class AdaptiveLevel:
    """Finds the level of the least mean response, and finds it again after updates.

    A loop gives each of three levels `loops` batches in turn, then compares the sums. When the current
    level is the best it is stable: it is used until `threshold` updates have come; otherwise the better
    neighbour becomes the current level and another loop begins.

    >>> adaptive = AdaptiveLevel(threshold=1_000, loops=1)
    >>> def batch(updates):
    ...     level = adaptive.choose(100, height=6, updates=updates)
    ...     adaptive.record(100, level, abs(level - 4) + 1.0)
    ...     return level
    >>> [batch(updates=0) for _ in range(8)]
    [3, 2, 4, 4, 3, 5, 4, 4]
    >>> [batch(updates=1_000) for _ in range(4)]
    [4, 3, 5, 4]
    """

    def __init__(
        self, threshold: int = 300_000, loops: int = 16, start: int | None = None, exact_sizes: bool = False
    ) -> None:
        for option, value, least in (("threshold", threshold, 1), ("loops", loops, 1), ("start", start, 0)):
            if value is not None and value < least:
                raise OptionError(f"{option} must be at least {least}, got {value}")
        self.threshold = threshold
        self.loops = loops
        self._start = start
        self._exact = exact_sizes
        self._states: dict[int, LevelState] = {}

    def _key(self, size: int) -> int:
        return size if self._exact else size.bit_length()

    def state(self, size: int) -> LevelState | None:
        """What is known of batches of a size; None before the first one."""
        return self._states.get(self._key(size))

    def choose(self, size: int, height: int, updates: int) -> int:
        """The level for the next batch of a size, in a tree of this height that has seen this many
        updates."""
        state = self._states.get(self._key(size))
        if state is None:
            start = height // 2 if self._start is None else self._start
            state = LevelState(min(start, height - 1), height, updates=updates)
            self._states[self._key(size)] = state
        if state.stable and updates - state.updates >= self.threshold:
            state.restart(state.level)
        if state.height != height:
            # other levels are there to try than the loop has begun with
            moved = min(state.level, height - 1)
            if not state.stable or moved != state.level:
                state.restart(moved)
            state.height = height
        if state.stable:
            return state.level
        # a loop that is under way when updates come ends with them counted
        state.updates = updates
        return state.candidates[state.batches % len(state.candidates)]

    def record(self, size: int, level: int, mean: float) -> None:
        """Record the mean response of a batch that was searched at the level that `choose` gave."""
        state = self._states.get(self._key(size))
        if state is None or state.stable or size == 0:
            return
        levels = state.candidates
        if level != levels[state.batches % len(levels)]:
            # of a batch that was chosen before the loop was restarted
            return
        state.sums[level] = state.sums.get(level, 0.0) + mean / size
        state.batches += 1
        if state.batches < self.loops * len(levels):
            return
        # the current level comes first, and min keeps the first of equals
        best = min(levels, key=lambda each: state.sums[each])
        if best == state.level:
            state.stable = True
        else:
            state.restart(best)
