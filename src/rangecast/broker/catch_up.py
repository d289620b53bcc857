"""The catch-up thread of a space: it serves those that are behind from the log, round by round (replay.py).

A listener waits here until it is served, is served again when its connection has taken the bytes, and goes to
the matcher thread (pump.py) when it has come to where that one is.

Those who are live go first, so catching up has a budget:

    a round      takes about `_ROUND_SECONDS` of a processor while anybody is live: rounds that take longer
                 are followed by smaller ones. It does not matter whether events come just now: who is live
                 would wait for a large round that began before they came. Nor are small ones better: each
                 has a write to everybody who is behind, and with rounds of half the time the event loop came
                 to nothing else (p99 of the live 1.5 s, where it was 0.2)
    a rest       follows it while events are matched for those who are live: as long as the round and the
                 writing of what it made, and longer the later the live have their messages, up to ten times
                 as long. A rest follows also when most of those who are behind are still taking what they
                 were given: they gather, and one pass over the log serves all of them
    the loop     gets what a round made in slices, between which it writes what is live

Every second round begins with the one that is furthest behind, so that groups meet; the other ones with who
has waited longest, so that one who is a second behind does not wait for one who is a day behind.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rangecast.broker.frames import notice
from rangecast.broker.listener import Listener
from rangecast.broker.replay import ROUND, Replay, Served

if TYPE_CHECKING:
    from rangecast.broker.space import Space

_ROUND_SECONDS = 0.1
_BUSY_SECONDS = 1.0  # after a match
_LEAST_EVENTS = 8_192  # of a round: fewer would not keep up with what is published on a slow machine
_LATE = 0.05  # seconds to a live message; from there on a rest grows with them
_MOST_RESTS = 10.0  # times the round, however late they are: who is behind must get on as well
_LONGEST_REST = 1.0
_SLICE = 64  # listeners that are given bytes before others have their turn
_TOLD_SECONDS = 1.0  # between two messages of progress to one for whom nothing matches


class CatchUp:
    """The thread that serves listeners from the log."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._behind: deque[Listener] = deque()
        self._taking: set[Listener] = set()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._furthest = True
        self._matched, self._match_seen = 0, 0.0
        # of the event loop's time, what writing took so far, and what of it has been rested for; the first
        # is written by the loop alone, the other by the thread
        self._writing = self._rested = 0.0
        self._replay = Replay(space.log, space.directory, space.schema, space.lock, space.index)
        self._thread = threading.Thread(target=self._run, name=f"catch-up-{space.name}", daemon=True)

    @property
    def running(self) -> bool:
        """Whether it was started, and not stopped."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def add(self, listeners: Sequence[Listener]) -> None:
        """Serve listeners from their positions on."""
        if listeners:
            self._behind.extend(listeners)
            self._wake.set()

    def give(self, several: Sequence[Served]) -> None:
        """Hand over what was made for some; each is served again when it has taken it."""
        self._space.post(self._send, several, 0)

    def _send(self, several: Sequence[Served], first: int) -> None:
        again: list[Listener] = []
        start = time.thread_time()
        for served in several[first : first + _SLICE]:
            listener = served.listener
            if served.data:
                listener.send(served.data, served.position)
                listener.told = time.monotonic()
            else:
                listener.position = max(listener.position, served.position)
            if not listener.closed and not listener.stalled:
                again.append(listener)
        self._writing += time.thread_time() - start
        # all of a slice at once, or the thread would begin with the first of them alone
        self._behind.extend(again)
        if first + _SLICE < len(several):
            self._space.post(self._send, several, first + _SLICE)
        else:
            self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(0.5)
            self._wake.clear()
            while self._behind and not self._stop.is_set():
                self._wake.clear()
                start = time.thread_time()
                try:
                    n = self._serve_some()
                except Exception as error:
                    self._space.log_error("catching up", error)
                    self._stop.wait(0.1)
                    continue
                if n:
                    self._rest(time.thread_time() - start, n, self._is_busy())

    def _is_busy(self) -> bool:
        """Whether events were matched lately; a round may be shorter than the time between two matches."""
        now, matched = time.monotonic(), self._space.pump.matched
        if matched != self._matched:
            self._matched, self._match_seen = matched, now
        return now - self._match_seen < _BUSY_SECONDS

    def _rest(self, took: float, n: int, busy: bool) -> None:
        """Leave time to others after a round for `n` listeners; `busy` says that events were matched."""
        replay, pump = self._replay, self._space.pump
        live = bool(pump.live)
        if live and took > _ROUND_SECONDS:
            replay.most = max(_LEAST_EVENTS, replay.most // 2)
        elif not live or took < _ROUND_SECONDS / 2:
            replay.most = min(ROUND, 2 * replay.most)
        replay.size = min(replay.size, replay.most)
        writing = self._writing
        took += writing - self._rested
        self._rested = writing
        if live and busy:
            took *= min(max(1.0, pump.late / _LATE), _MOST_RESTS)
        elif 2 * n >= len(self._taking):
            # until all of them have it: to serve those who had it first takes two passes for what one does
            self._wake.wait(took)
            return
        self._stop.wait(min(took, _LONGEST_REST))

    def _serve_some(self) -> int:
        """One round; how many it served."""
        waiting: list[Listener] = []
        while self._behind:
            listener = self._behind.popleft()
            if not listener.closed and not listener.stalled:
                waiting.append(listener)
        self._taking = {one for one in self._taking.difference(waiting) if not one.closed}
        space, replay = self._space, self._replay
        # what is on disk is read, and may be beyond what is matched: who is as far as that can join
        head = space.pump.matched
        for listener in waiting:
            if listener.position >= head:
                space.pump.join(listener)
        waiting = [one for one in waiting if one.position < head]
        if not waiting:
            return 0
        self._furthest = not self._furthest
        group = replay.group(waiting, None if self._furthest else waiting[0].position)
        chosen = set(group)
        rest = [one for one in waiting if one not in chosen]
        try:
            gaps, events = replay.gaps, replay.events
            served = replay.serve(group)
            space.metrics.gaps.inc(replay.gaps - gaps)
            space.metrics.replayed.inc(replay.events - events)
        except Exception:
            self._behind.extend(group)
            raise
        finally:
            self._behind.extendleft(reversed(rest))
        now = time.monotonic()
        for one in served:
            told = now - one.listener.told > _TOLD_SECONDS
            if told and not one.data and one.position > one.listener.position:
                one.data = notice("progress", {"sequence": one.position - 1}, one.position - 1)
        self._taking |= chosen
        self.give(served)
        return len(group)
