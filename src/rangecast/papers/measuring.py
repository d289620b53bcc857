"""How experiments and benchmarks take times: one clock per figure, rounds in turns, answers that agree.

    clock     what it counts                               when it is the right one
    PROCESS   processor time of all threads of this        contenders on a machine that others use too;
              process, the system's for it included        a contender of two threads is charged for both
    THREAD    processor time of the calling thread alone   one thread, while others of the process work
    WALL      what a person waits                          threads beside each other, files, Spark

Contenders take turns round by round, so that a busy moment slows all of them. A caller says which figure it
shows: `best`, which other work on the machine disturbs least, or `median`. Rounds before the first that
counts (`warm_up`) are for kernels that compile and memory that has to be touched once.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rangecast.engine.planner import lay_out_at_once

Clock = Callable[[], float]
PROCESS: Clock = time.process_time
THREAD: Clock = time.thread_time
WALL: Clock = time.perf_counter

Name = TypeVar("Name")


@dataclass
class Rounds:
    """Seconds of each round of one call, and what was counted in its answer."""

    seconds: list[float] = field(default_factory=list)
    count: Any = None

    @property
    def best(self) -> float:
        """The shortest round."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The round in the middle."""
        return statistics.median(self.seconds)


def timed(
    call: Callable[..., Any], *arguments: Any, clock: Clock, pause_collector: bool = False
) -> tuple[float, Any]:
    """Seconds of one call, and its answer.

    With `pause_collector` garbage is collected before the call and not during it.

    >>> seconds, answer = timed(sum, [1, 2], clock=WALL)
    >>> seconds >= 0, answer
    (True, 3)
    """
    if not pause_collector:
        start = clock()
        answer = call(*arguments)
        return clock() - start, answer
    gc.collect()
    gc.disable()
    try:
        return timed(call, *arguments, clock=clock)
    finally:
        gc.enable()


def take_turns(
    calls: Mapping[Name, Callable[[], Any]],
    rounds: int,
    *,
    clock: Clock,
    warm_up: int = 0,
    pause_collector: bool = False,
    count: Callable[[Any], Any] | None = None,
    expected: Any = None,
    enough: float = float("inf"),
    where: str = "measuring",
) -> dict[Name, Rounds]:
    """The rounds of each call, the calls taking turns; no further round once all took over `enough` seconds.

    What `count` gives for an answer must be `expected`, or else what the first answer gave, in every round
    of every call; a count of None is not compared. An answer is dropped before the next call, since one that
    is kept makes the next take fresh memory.

    >>> found = take_turns({"sum": lambda: 3, "loop": lambda: 3}, 2, clock=WALL, count=int)
    >>> len(found["sum"].seconds), found["loop"].count
    (2, 3)
    """
    if rounds < 1:
        raise ValueError(f"rounds must be 1 or more, got {rounds}")
    lay_out_at_once()  # or the first run on a machine would measure a scan
    taken: dict[Name, Rounds] = {name: Rounds() for name in calls}
    known, origin = expected, "as the caller expects"
    for turn in range(-warm_up, rounds):
        for name, call in calls.items():
            seconds, answer = timed(call, clock=clock, pause_collector=pause_collector)
            counted = None if count is None else count(answer)
            del answer
            if known is None and counted is not None:
                known, origin = counted, f"as {name} had first"
            if counted is not None and counted != known:
                raise AssertionError(
                    f"{where}, round {turn + 1}: every answer must have {known}, {origin}, "
                    f"got {counted} from {name}"
                )
            taken[name].count = counted
            if turn >= 0:
                taken[name].seconds.append(seconds)
        if turn >= 0 and all(measured.best > enough for measured in taken.values()):
            break
    return taken


def take_rounds(call: Callable[[], Any], rounds: int, **how: Any) -> Rounds:
    """The rounds of one call alone; `take_turns` says what else can be asked for."""
    return take_turns({"call": call}, rounds, **how)["call"]


def check_agreement(where: str, answers: Mapping[str, Any]) -> None:
    """All answers must be equal, or the measurement ends here.

    >>> check_agreement("figure 1", {"scan": 3, "auto": 3})
    """
    if any(answer != first for first in list(answers.values())[:1] for answer in answers.values()):
        said = ", ".join(f"{name} has {answer}" for name, answer in answers.items())
        raise AssertionError(f"{where}: all answers must be the same, got {said}")
