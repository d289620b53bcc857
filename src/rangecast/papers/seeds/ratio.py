"""What decides a claim of a paper, as one number that can be taken with any seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rangecast.papers.measuring import PROCESS, take_turns

ROUNDS = 5

SeedRatios = dict[str, float]


class Ratio(NamedTuple):
    """A claim agrees with a seed when its number lies between least and most.

    `at` says with how much it is taken. `why` is the reason where seeds and the run of the page part.
    """

    claim: str
    what: str
    least: float
    most: float = float("inf")
    at: str = ""
    why: str = ""

    def agrees(self, value: float) -> bool:
        """Whether a seed's number supports the claim."""
        return self.least < value < self.most

    @property
    def when(self) -> str:
        """When a number agrees.

        >>> Ratio("", "", 2).when, Ratio("", "", 0, 1.5).when, Ratio("", "", 1, 2).when
        ('above 2', 'below 1.5', '1 to 2')
        """
        if self.most == float("inf"):
            return f"above {self.least:,.3g}"
        return f"{self.least:,.3g} to {self.most:,.3g}" if self.least > 0 else f"below {self.most:,.3g}"


def best_micros(calls: dict[str, Callable[[], Any]], n: int) -> dict[str, float]:
    """Microseconds of processor time per event of each call, in turns, the first of which does not count."""
    taken = take_turns(calls, ROUNDS, clock=PROCESS, warm_up=1, pause_collector=True)
    return {name: 1e6 * rounds.best / n for name, rounds in taken.items()}
