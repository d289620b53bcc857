"""The catch-up thread of a space: it serves those that are behind from the log, round by round (replay.py).

A listener waits here until it is served, is served again when its connection has taken the bytes, and goes to
the matcher thread (pump.py) when it has come to the end of the log.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rangecast.broker.frames import notice
from rangecast.broker.listener import Listener
from rangecast.broker.replay import Replay, Served

if TYPE_CHECKING:
    from rangecast.broker.space import Space


class CatchUp:
    """The thread that serves listeners from the log."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._behind: deque[Listener] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._replay = Replay(space.log, space.directory, space.schema, space.lock)
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
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def add(self, listeners: Sequence[Listener]) -> None:
        """Serve listeners from their positions on."""
        if listeners:
            self._behind.extend(listeners)
            self._wake.set()

    def give(self, several: Sequence[Served]) -> None:
        """Hand over what was made for some; each is served again when it has taken it."""
        self._space.post(self._send, several)

    def _send(self, several: Sequence[Served]) -> None:
        for served in several:
            listener = served.listener
            if served.data:
                listener.send(served.data, served.position)
            else:
                listener.position = max(listener.position, served.position)
            if not listener.closed and not listener.stalled:
                self._behind.append(listener)
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(0.5)
            self._wake.clear()
            while self._behind and not self._stopping:
                try:
                    self._serve_some()
                except Exception as error:
                    self._space.log_error("catching up", error)
                    time.sleep(0.1)

    def _serve_some(self) -> None:
        waiting: list[Listener] = []
        while self._behind:
            listener = self._behind.popleft()
            if not listener.closed and not listener.stalled:
                waiting.append(listener)
        space, replay = self._space, self._replay
        head = space.log.durable
        for listener in waiting:
            if listener.position >= head:
                space.pump.join(listener)
        waiting = [one for one in waiting if one.position < head]
        if not waiting:
            return
        group = replay.group(waiting)
        chosen = {id(one) for one in group}
        rest = [one for one in waiting if id(one) not in chosen]
        try:
            gaps, events = replay.gaps, replay.events
            served = replay.serve(group)
            space.metrics.gaps.inc(replay.gaps - gaps)
            space.metrics.replayed.inc(replay.events - events)
        except Exception:
            self._behind.extend(group)
            raise
        finally:
            self._behind.extend(rest)
        for one in served:
            if not one.data and one.position > one.listener.position:
                one.data = notice("progress", {"sequence": one.position - 1}, one.position - 1)
        self.give(served)
