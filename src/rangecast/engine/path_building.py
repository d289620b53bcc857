"""Which boxes of `auto` get which access path, and the building of those paths.

Lists come first: sorted ones for outlines where they are worth it, then lists by two values, then by one,
then a path of its own for an attribute that many boxes bound alone. What is left goes together: runs, windows
or cells on one attribute, cells or bitmap on several, as the planner says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine.access_paths import AccessPath
from rangecast.engine.boxes import Boxes
from rangecast.engine.boxes_kernels import drop_marked
from rangecast.engine.costs import Corrections, draw_boxes
from rangecast.engine.equalities import Coupled, EqualitiesPart, build_equalities, choose_couples
from rangecast.engine.grid import Grid
from rangecast.engine.layouts.bitmap import build_bitmap, estimate_bytes
from rangecast.engine.layouts.cells import BUDGET, build_cells
from rangecast.engine.layouts.leads import are_sparse, build_leads
from rangecast.engine.layouts.lists import EqualityPart
from rangecast.engine.layouts.runs import FEWEST_CELLS, MOST_CELLS, build_runs
from rangecast.engine.layouts.scan import ScanPart
from rangecast.engine.layouts.sorted_lists import NestedPart, build_nested
from rangecast.engine.layouts.windows import build_windows
from rangecast.engine.listed_paths import build_listed, led_boxes
from rangecast.engine.outlines import SortedChoice, assign_boxes, choose_sorted, many_alone
from rangecast.engine.packed import span_of_ends
from rangecast.engine.planner import choose_layout
from rangecast.engine.selectivity import bounded_attributes
from rangecast.engine.threads import runner
from rangecast.engine.value_lists import ask_values, choose_equalities
from rangecast.engine.word_lists import WordListsPart, build_lists
from rangecast.errors import CapacityError
from rangecast.memory import check_fits
from rangecast.types.attributes import LAST, PRESENT, Codes

TINY = 192
_LINE_SAMPLE = 256
# Of cells on two attributes where there is no third. With 72, as the index `cells` has it, heaped rectangles
# of mixed sizes take 63 bytes each instead of 42, and an event 0.94 of the time.
_PLANE_BUDGET = 46


def listed_paths(
    boxes: Boxes, numbers: npt.NDArray[np.int64], memory_limit: int | None
) -> tuple[list[AccessPath], npt.NDArray[np.int64]]:
    """Lists by value of those boxes that are led by long lists, and the numbers of the others."""
    led = led_boxes(boxes, numbers)
    paths = [
        AccessPath("listed", (own.on,), len(own.numbers), build_listed(boxes, own, memory_limit))
        for own in led
    ]
    return paths, without([own.numbers for own in led], numbers)


def build_paths(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    memory_limit: int | None = None,
    events: Codes | None = None,
    threads: int = 1,
) -> list[AccessPath]:
    """Access paths for the boxes with these numbers, for events like these if some were seen.

    The numbers are used up: those of the boxes that are left after each path overwrite them, for one more
    array of them would be a third of what is built of ten million intervals.
    """
    n = len(numbers)
    if n == 0:
        return []
    # a scan looks at a range of boxes, so only when no dead one lies between them
    if n <= TINY and int(numbers[-1]) - int(numbers[0]) == n - 1:
        return [AccessPath("scan", (), n, ScanPart(int(numbers[0]), int(numbers[-1]) + 1))]
    used = bounded_attributes(boxes, numbers)
    if are_sparse(n, boxes.count_entries(numbers), len(used)):
        return [AccessPath("leads", (), n, build_leads(boxes, numbers, memory_limit))]
    check_fits(
        estimate_bytes(n, len(used), 4),
        memory_limit,
        f"'auto' for {n:,} boxes on {len(used)} attributes",
        "the index 'scan' needs nearly nothing beyond the subscriptions",
    )
    building: list[Callable[[], AccessPath]] = []
    around = draw_boxes(numbers, 0.5)
    choices = choose_sorted(boxes, numbers, used, events)
    taken = assign_boxes(boxes, numbers, used, choices)
    for choice, own in zip(choices, taken, strict=True):
        if len(own):
            building.append(partial(_nested_path, boxes, own, choice, memory_limit))
    rest = _drop(taken, numbers)
    if building:
        used = bounded_attributes(boxes, rest)
    asked = ask_values(boxes, rest, used, threads)
    listed = choose_equalities(asked, rest)
    coupled = choose_couples(boxes, rest, asked, [on for on, _ in listed])
    if coupled is not None:
        building.append(partial(_equalities_path, boxes, coupled))
        rest = _drop(coupled.numbers, rest)
        listed = choose_equalities(ask_values(boxes, rest, bounded_attributes(boxes, rest), threads), rest)
    building += [partial(_equality_path, boxes, own, on) for on, own in listed]
    rest = _drop([own for _, own in listed], rest)
    alone_on = many_alone(boxes, rest)
    building += [partial(_line_path, boxes, own, on, memory_limit, 1) for on, own in alone_on]
    rest = _drop([own for _, own in alone_on], rest)
    # a path of most boxes shares out its own work, and must not wait for threads that wait for it
    alone = 2 * len(rest) > n
    if len(rest):
        many = threads if alone else 1
        building.append(partial(rest_path, boxes, rest, around, memory_limit, events, threads=many))
    run = map if alone else runner(threads)
    return list(run(lambda build: build(), building))


def _nested_path(
    boxes: Boxes, own: npt.NDArray[np.int64], choice: SortedChoice, memory_limit: int | None
) -> AccessPath:
    part = build_nested(boxes, own, *choice[1:5], memory_limit)
    return AccessPath("nested", choice.attributes, len(own), part)


def _equality_path(boxes: Boxes, own: npt.NDArray[np.int64], on: int) -> AccessPath:
    return AccessPath("equality", (on,), len(own), build_lists(boxes, own, on))


def _equalities_path(boxes: Boxes, coupled: Coupled) -> AccessPath:
    on = tuple(sorted({j for couple in coupled.couples for j in couple}))
    return AccessPath("equalities", on, sum(map(len, coupled.numbers)), build_equalities(boxes, coupled))


def not_in_lists(paths: list[AccessPath], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The boxes that are in no list by value."""
    held = []
    for path in paths:
        part = path.part
        if isinstance(part, WordListsPart):
            held.append(part.members)
            continue
        assert isinstance(part, EqualitiesPart | EqualityPart | NestedPart)
        held.append(part.lists.boxes)
    return without(held, numbers)


def without(taken: Sequence[npt.NDArray[Any]], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers, which ascend, that are not among those taken."""
    if not taken or not len(numbers):
        return numbers
    marks = np.zeros(int(numbers[-1]) + 1, bool)
    for held in taken:
        marks[held[held < len(marks)]] = True
    return numbers[~marks[numbers]]


def _drop(taken: Sequence[npt.NDArray[Any]], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same, in the place of the numbers."""
    if not any(map(len, taken)) or not len(numbers):
        return numbers
    marks = np.zeros(int(numbers[-1]) + 1, np.uint8)
    for held in taken:
        marks[held] = 1
    return numbers[: int(drop_marked(numbers, marks))]


def rest_path(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    around: npt.NDArray[np.int64],
    memory_limit: int | None,
    events: Codes | None,
    factors: Corrections | None = None,
    threads: int = 1,
) -> AccessPath:
    """Runs, cells or bitmap, for boxes that no equality tells apart, among all those `around` them."""
    n = len(numbers)
    used = bounded_attributes(boxes, numbers)
    if len(used) < 2:
        return _line_path(boxes, numbers, used[0] if used else 0, memory_limit, threads)
    plan = choose_layout(boxes, numbers, used, around, events, factors)
    kind, on, _ = plan.chosen
    try:
        if kind == "cells":
            budget = _PLANE_BUDGET if len(used) == 2 and len(on) == 2 else BUDGET
            return AccessPath(kind, on, n, build_cells(boxes, numbers, on, budget, memory_limit), plan)
        return AccessPath(kind, on, n, build_bitmap(boxes, numbers, memory_limit=memory_limit), plan)
    except CapacityError:
        # fewer and larger cells before giving up
        return AccessPath("bitmap", (), n, build_bitmap(boxes, numbers, 8, memory_limit))


def _line_path(
    boxes: Boxes, numbers: npt.NDArray[np.int64], on: int, memory_limit: int | None, threads: int
) -> AccessPath:
    """Runs, windows or cells, for boxes that bound one attribute at most."""
    n = len(numbers)
    at = np.linspace(0, n - 1, min(n, _LINE_SAMPLE)).astype(np.int64)
    sample = np.concatenate(boxes.column(on, numbers[at]))
    # a value per cell: nothing is compared then, and lists are slices whatever the widths; a small part may
    # have as many cells as beside the large one do not matter
    most = min(max(4 * n, boxes.n // 2, FEWEST_CELLS), MOST_CELLS)
    low, high = span_of_ends(boxes, numbers, on, threads)
    try:
        if PRESENT < low <= high < LAST and high - low + 4 <= most:
            grid = Grid.uniform(low, high, most)
            return AccessPath("runs", (on,), n, build_runs(boxes, numbers, on, grid, None, memory_limit))
        windows = build_windows(boxes, numbers, on, memory_limit, threads)
        if not windows.crowded(sample):
            return AccessPath("windows", (on,), n, windows)
        return AccessPath("cells", (on,), n, build_cells(boxes, numbers, (on,), BUDGET, memory_limit))
    except CapacityError:
        return AccessPath("bitmap", (on,), n, build_bitmap(boxes, numbers, 8, memory_limit))
