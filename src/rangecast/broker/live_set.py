"""The live listeners of a space, by consumer; used by the matcher thread alone.

listeners   the live ones of each consumer, by its number
mask        whether a consumer has any; the last place stands for entries of nobody, whose owner is -1
ahead       those that have read more of the log than is matched, and what they must see next: of what a
            match makes for them, only that is sent
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rangecast.broker.frames import OwnerFrames
from rangecast.broker.listener import Listener


class LiveSet:
    """Who is live, and from which sequence number on."""

    def __init__(self) -> None:
        self._listeners: dict[int, list[Listener]] = {}
        self._ahead: dict[Listener, int] = {}
        self.mask = np.zeros(1, bool)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def of(self, consumer: int) -> list[Listener]:
        """The live listeners of a consumer."""
        return self._listeners.get(consumer, [])

    def turn(self, number: int, turns: int) -> Iterator[Listener]:
        """One of so many parts of all of them."""
        for consumer in [consumer for consumer in self._listeners if consumer % turns == number]:
            yield from self._listeners[consumer]

    def next_of(self, listener: Listener, matched: int) -> int:
        """What a listener must see next, when everything before `matched` is matched."""
        return max(matched, self._ahead.get(listener, 0))

    def add(self, listener: Listener, position: int, matched: int) -> None:
        """Make a listener live from a sequence number on, which is not below what is matched."""
        self.make_room(listener.number + 1)
        self._listeners.setdefault(listener.number, []).append(listener)
        self.mask[listener.number] = True
        if position > matched:
            self._ahead[listener] = position

    def make_room(self, consumers: int) -> None:
        """See that the mask has a place for each consumer, and one more."""
        if consumers >= len(self.mask):
            mask = np.zeros(max(64, 2 * len(self.mask), consumers + 1), bool)
            mask[: len(self.mask) - 1] = self.mask[:-1]
            self.mask = mask

    def remove(self, listener: Listener) -> None:
        """Make a listener live no more, if it is."""
        self._ahead.pop(listener, None)
        others = self._listeners.get(listener.number)
        if others is not None and listener in others:
            others.remove(listener)
            if not others:
                del self._listeners[listener.number]
                self.mask[listener.number] = False

    def clear(self) -> list[Listener]:
        """Make nobody live; those who were."""
        gone = [listener for several in self._listeners.values() for listener in several]
        self._listeners.clear()
        self._ahead.clear()
        self.mask[:] = False
        return gone

    def sends(
        self, made: Iterable[OwnerFrames], matched: int
    ) -> tuple[list[tuple[Listener, OwnerFrames]], int]:
        """Who receives what of the frames of a match up to `matched`, and how many frames there are."""
        found: list[tuple[Listener, OwnerFrames]] = []
        cut: list[tuple[Listener, OwnerFrames]] = []
        ahead, n = self._ahead, 0
        for frames in made:
            n += frames.n
            for listener in self._listeners[frames.owner]:
                if not ahead or listener not in ahead:
                    found.append((listener, frames))
                else:
                    rest = frames.since(ahead[listener])
                    if rest is not None:
                        cut.append((listener, rest))
        if ahead:
            self._ahead = {one: position for one, position in ahead.items() if position > matched}
        return found + cut, n
