"""Which attributes get lists by value in `auto`, and which boxes stand in them.

An attribute costs every event a look-up, and a list costs by how many of its boxes an event meets; a box
without a list costs what it does in the layout of the rest, in nanoseconds per event:

    a look-up                          PROBE_NS
    a box of a list                    LIST_NS, times the share of events that read it
    a box of the rest                  _REST_NS, and where they are few _REST_BLOCK_NS per block of them
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes import Boxes
from rangecast.engine.layouts.bitmap import BLOCK
from rangecast.engine.layouts.lists import COUNTED, span_of
from rangecast.engine.threads import runner
from rangecast.types.attributes import Codes

_NEARLY = 1.5
LIST_NS = 1.5
PROBE_NS = 40.0
_REST_NS = 0.03
_REST_BLOCK_NS = 1000.0


class AskedValues(NamedTuple):
    """Which of n boxes ask for one value of an attribute, for attributes on which many do.

    The places of those that do on any, ascending, and per attribute what each would cost an event in the list
    of its value, in nanoseconds; infinitely much where it asks for no value.
    """

    n: int
    places: npt.NDArray[np.int64]
    costs: dict[int, npt.NDArray[np.float32]]


def ask_values(
    boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int], threads: int = 1
) -> AskedValues:
    """What boxes ask for on the attributes that they bound."""
    n = len(numbers)
    asked: dict[int, tuple[npt.NDArray[np.int64], Codes]] = {}
    for j in used:
        rows, values = _equal_rows(boxes, numbers, j, threads)
        if len(rows) * rest_ns(len(rows)) >= PROBE_NS / 8 or len(rows) >= max(n // 2, 1):
            asked[j] = rows, values
    # boxes without any of these values are in no list, whatever is chosen
    marks = np.zeros(n, bool)
    for rows, _ in asked.values():
        marks[rows] = True
    some = np.flatnonzero(marks)
    costs = {j: np.full(len(some), np.inf, np.float32) for j in asked}
    for j, (rows, values) in asked.items():
        places = rows if len(some) == n else np.searchsorted(some, rows)
        costs[j][places] = _shares(values) * np.float32(LIST_NS)
    return AskedValues(n, some, costs)


def choose_equalities(
    asked: AskedValues, numbers: npt.NDArray[np.int64]
) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Attributes with lists by value, and the boxes of each.

    Attributes are taken one at a time, each the one that saves most; a box is listed under the first of them
    whose value is about as rare as its rarest.
    """
    n, some, costs = asked
    best = np.full(len(some), np.inf, np.float32)
    chosen: list[int] = []
    while len(chosen) < len(costs):
        # those without a list share a path, in which few cost more each than many do
        unlisted_ns = rest_ns(n - len(some) + int(np.count_nonzero(best == np.inf)))
        now = np.minimum(best, np.float32(unlisted_ns))
        gains = {j: float(np.maximum(now - cost, 0).sum()) for j, cost in costs.items() if j not in chosen}
        j = max(gains, key=lambda k: gains[k])
        # the first attribute pays for itself even with few boxes if it takes most of them
        if gains[j] < PROBE_NS and not (not chosen and gains[j] > 0.5 * n * unlisted_ns):
            break
        chosen.append(j)
        best = np.where(costs[j] < now, costs[j], best)
    if not chosen:
        return []
    # the first that is nearly as rare: one long list is read faster than several short ones
    winner = np.full(len(some), -1, np.int32)
    for k in reversed(range(len(chosen))):
        winner[costs[chosen[k]] <= _NEARLY * best] = k
    winner[best == np.inf] = -1
    return [(j, numbers[some[winner == k]]) for k, j in enumerate(chosen) if (winner == k).any()]


def _equal_rows(
    boxes: Boxes, numbers: npt.NDArray[np.int64], j: int, threads: int
) -> tuple[npt.NDArray[np.int64], Codes]:
    """Which of the boxes give one value to an attribute, and the values."""

    def look(piece: tuple[int, int]) -> tuple[npt.NDArray[np.int64], Codes]:
        lows, highs = boxes.column(j, numbers[slice(*piece)])
        own = np.flatnonzero(lows == highs)
        return own + piece[0], lows[own]

    none = np.empty(0, np.int64)
    rows, values = zip((none, none), *runner(threads)(look, boxes.pieces(len(numbers))), strict=True)
    return np.concatenate(rows), np.concatenate(values)


def rest_ns(n: int) -> float:
    """What one of n boxes without a list costs an event, where it is not passed over with its block."""
    return max(_REST_NS, _REST_BLOCK_NS / max(n, BLOCK))


def _shares(values: Codes) -> npt.NDArray[np.float32]:
    """For each value, the share of all that are equal to it; rare ones count as their average."""
    if not len(values):
        return np.empty(0, np.float32)
    low, span = span_of(values)
    if span <= COUNTED * len(values):
        held = np.bincount(values - low)
        each = ((held + 1.0) / (len(values) + np.count_nonzero(held))).astype(np.float32)
        return each[values - low]
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    smoothed = (counts + 1.0) / (len(values) + len(distinct))
    return smoothed[inverse].astype(np.float32)
