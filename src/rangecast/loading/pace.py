"""How many events are matched at once, so that the pairs in memory stay near a bound.

What an event matches is not known before: the first step is small, and each step sets the size of the next
one by what it found. The command line, file mode, streams and the source all go at this pace.
"""

from __future__ import annotations

from collections.abc import Iterator

# 20 bytes per pair on their way into a file: 40 MB
PAIRS_AT_ONCE = 2_000_000
_FIRST_EVENTS = 1_000
# the next events may match far more than the last ones
_GROWTH = 8


class Pace:
    """Cuts batches by the matches that events have had so far; `largest` is the most events of a step."""

    def __init__(self, largest: int | None = None) -> None:
        self._largest = largest
        self.events = min(_FIRST_EVENTS, largest or _FIRST_EVENTS)

    def cut(self, n: int) -> Iterator[tuple[int, int]]:
        """Ranges over a batch of n events; call `seen` before the next one is taken."""
        first = 0
        while first < n:
            last = min(first + self.events, n)
            yield first, last
            first = last

    def seen(self, n_events: int, n_pairs: int) -> None:
        """Learn from a step."""
        if n_events:
            fitting = PAIRS_AT_ONCE * n_events // max(n_pairs, 1)
            self.events = max(1, min(fitting, _GROWTH * self.events, self._largest or fitting))
