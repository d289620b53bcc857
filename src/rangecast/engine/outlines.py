"""Boxes grouped by outline, and the outlines that sorted lists (nested.py) suit better than other paths.

The outline of a box is which attributes it bounds, and how. Subscriptions of people come in a few outlines,
for they are made by a few forms and screens:

    bound     low end       high end
    equal     the same code at both ends
    rising    a value       none
    falling   none          a value
    closed    a value       a larger value
    odd       any other: those that hold a missing value and some others

For each outline with FEWEST boxes or more it is counted on samples, as in weighing.py, how many boxes an
event would look at in lists by one of its equalities, sorted by one of its other attributes. In nanoseconds
per event, judged by runs of `market` with 200,000 boxes, and not fitted:

    sorted lists     100 + 12 per halving of the list + 0.4 per member read, 0.8 if closed, + 1.3 per check
    lists by value   40 + 1.5 per member

Sorted lists are taken unless lists by value, `cells` or a `bitmap` over the same boxes promise to be UNSURE
times cheaper: what sorted lists cost is what is read of them, while what cells cost depends on how boxes lie
in them, of which a sample says less.

What `market` took, 200,000 boxes of four outlines, 5,000 events per batch, in turns: 4.4 us per event by
this, 19 by a bitmap, 197 by cells on two attributes; the scan, for 100 of the events, 464. One event at a
time it is 97 us beside 76 of the bitmap: sorted lists have no path for few events yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes import Boxes
from rangecast.engine.costs import Weighed, draw_boxes, invent_events, least_roughly
from rangecast.engine.layouts.sorted_lists_kernels import CLOSED, FALLING, RISING
from rangecast.types.attributes import LAST, MISSING, PRESENT, Codes

FEWEST = 1024
MOST_OUTLINES = 16
MOST_ATTRIBUTES = 32
MANY_ALONE = 16_384
SAMPLE = 8192
UNSURE = 1.5
_NONE, _EQUAL, _RISING, _FALLING, _CLOSED, _ODD = range(6)
_FORMS = {_RISING: RISING, _FALLING: FALLING, _CLOSED: CLOSED}


class Outline(NamedTuple):
    """Some boxes of one outline, about how many there are, and how they bound each attribute, by number."""

    sample: npt.NDArray[np.int64]
    n: int
    bounds: dict[int, int]


class SortedChoice(NamedTuple):
    """Sorted lists for the boxes of an outline: by value of `on` (-1 for one list), sorted by `by`."""

    bounds: dict[int, int]
    on: int
    by: int
    form: int
    checked: list[int]
    ns: float

    @property
    def attributes(self) -> tuple[int, ...]:
        """The attributes that they go by."""
        return (self.by,) if self.on < 0 else (self.on, self.by)


def find_outlines(boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int]) -> list[Outline]:
    """The outlines of many boxes, those with most first, as far as a sample tells."""
    sample = numbers[:: max(1, len(numbers) // SAMPLE)]
    kinds = np.stack([_kinds(*boxes.column(j, sample)) for j in used])
    outlines, of_boxes, counts = np.unique(kinds, axis=1, return_inverse=True, return_counts=True)
    found = []
    for k in np.argsort(-counts, kind="stable")[:MOST_OUTLINES].tolist():
        n = int(counts[k] * (len(numbers) / len(sample)))
        if n >= FEWEST:
            own = zip(used, outlines[:, k].tolist(), strict=True)
            found.append(
                Outline(sample[of_boxes.ravel() == k], n, {j: kind for j, kind in own if kind != _NONE})
            )
    return found


def assign_boxes(
    boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int], choices: list[SortedChoice]
) -> list[npt.NDArray[np.int64]]:
    """The boxes of each choice: those of its outline, exactly."""
    if not choices:
        return []
    masks = np.ones((len(choices), len(numbers)), bool)
    for j in used:
        kinds = _kinds(*boxes.column(j, numbers))
        for mask, choice in zip(masks, choices, strict=True):
            mask &= kinds == choice.bounds.get(j, _NONE)
    return [numbers[mask] for mask in masks]


def _kinds(lows: Codes, highs: Codes) -> npt.NDArray[np.int8]:
    kinds = np.full(len(lows), _CLOSED, np.int8)
    kinds[lows == MISSING] = _ODD
    kinds[(lows == PRESENT) & (highs < LAST)] = _FALLING
    kinds[highs == LAST] = _RISING
    kinds[lows == highs] = _EQUAL
    kinds[(lows == MISSING) & (highs == LAST)] = _NONE
    return kinds


def choose_sorted(
    boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int], events: Codes | None
) -> list[SortedChoice]:
    """The outlines for which sorted lists are best, and how they are laid out."""
    if not 2 <= len(used) <= MOST_ATTRIBUTES or len(numbers) < FEWEST:
        return []
    chosen = []
    for outline in find_outlines(boxes, numbers, used):
        if len(outline.bounds) < 2:
            # one attribute has paths of its own
            continue
        own = tuple(outline.bounds)
        seen = events
        if seen is None:
            seen = invent_events(boxes, draw_boxes(numbers, 0.5), own, centres=False)
        weighed = Weighed.of(boxes, draw_boxes(outline.sample), outline.n, own, seen)
        best = _best_sorted(outline.bounds, weighed)
        if best is not None and best.ns < UNSURE * _other_ns(boxes, outline, weighed, seen):
            chosen.append(best)
    return chosen


def _best_sorted(bounds: dict[int, int], weighed: Weighed) -> SortedChoice | None:
    """The cheapest sorted lists for boxes that bound attributes in this way."""
    places = {j: k for k, j in enumerate(bounds)}
    best: SortedChoice | None = None
    for on in [j for j, kind in bounds.items() if kind == _EQUAL] + [-1]:
        listed = () if on < 0 else (places[on],)
        length = max(weighed.holders(listed), 2.0)
        for by, kind in bounds.items():
            if kind not in _FORMS:
                continue
            held = (*listed, places[by])
            left = weighed.holders(held)
            ns = 100 + 12 * float(np.log2(length)) + (0.8 if kind == _CLOSED else 0.4) * left
            # the most selective of the others first
            checked = sorted(
                (j for j in bounds if j not in (on, by)), key=lambda j: weighed.shares[places[j]]
            )
            for j in checked:
                ns += 1.3 * left
                held = (*held, places[j])
                left = weighed.holders(held)
            if best is None or ns < best.ns:
                best = SortedChoice(bounds, on, by, _FORMS[kind], checked, ns)
    return best


def _other_ns(boxes: Boxes, outline: Outline, weighed: Weighed, events: Codes) -> float:
    """What the boxes of an outline cost on the path that they would have otherwise."""
    own = tuple(outline.bounds)
    best = least_roughly(boxes, draw_boxes(outline.sample), outline.n, own, events)
    for k, j in enumerate(own):
        if outline.bounds[j] == _EQUAL:
            best = min(best, 40 + 1.5 * weighed.holders((k,)))
    return best


def alone_on(boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int]) -> npt.NDArray[np.int32]:
    """The attribute that each box bounds, if it bounds no other of those in use; -1 for any other box."""
    found = np.full(len(numbers), -1, np.int32)
    several = np.zeros(len(numbers), bool)
    for j in used:
        for first, lows, highs in boxes.column_pieces(j, numbers):
            rows = first + np.flatnonzero((lows != MISSING) | (highs != LAST))
            several[rows] |= found[rows] >= 0
            found[rows] = j
    found[several] = -1
    return found


def many_alone(boxes: Boxes, numbers: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Attributes that many boxes bound and nothing else, with these boxes: a path of one attribute for each,
    where one layout for all would look at the other attributes as well. None where one path will do."""
    if len(numbers) < MANY_ALONE:
        return []
    used = boxes.bounded(numbers)
    if not 1 < len(used) <= MOST_ATTRIBUTES:
        return []
    of_boxes = alone_on(boxes, numbers, used)
    counts = np.bincount(of_boxes + 1, minlength=max(used) + 2)[1:]
    return [(j, numbers[of_boxes == j]) for j in used if counts[j] >= MANY_ALONE]
