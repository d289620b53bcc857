"""`auto`: an access path for each subscription, chosen from statistics.

    path       holds                                                   module
    leads      all boxes of a wide schema, by one entry of each        engine/layouts/leads.py
    listed     boxes with long lists of values, once for each value    engine/layouts/lists.py
    nested     boxes that bound the same attributes in the same way,   engine/layouts/sorted_lists.py
               in sorted lists, where those are worth it               (costs.py)
    equalities boxes that ask for one value of two attributes each,    engine/layouts/lists.py
               where lists by one of them would be read for little
    equality   boxes that ask for one value of an attribute where      engine/layouts/lists.py
               events seldom have that value
    runs       the rest, when they bound one attribute of few values   engine/layouts/runs.py
    windows    the rest, when they bound one attribute of many values  engine/layouts/windows.py
    cells      the rest, on one or two of their attributes, or         engine/layouts/cells.py
    bitmap     the rest, on all of them: whichever costs less          engine/layouts/bitmap.py
    scan       everything, when it is little

How often events have a value is taken to be how often subscriptions ask for it. So a value that one
in fifty asks for is no equality worth a list: its boxes go with the rest, where their other bounds tell
them apart and clustering keeps them together. An attribute with the same value in 99 of 100 boxes is such a
case too. But a rest of a few thousand boxes costs more a box than one of a million, and the first of it most:
in `predicates-16` 1,873 boxes of 1.2 million took half the time, before lists on three more attributes
left 173 of them.

What costs less is estimated on samples (costs.py): of boxes, and of events once some were seen. A part
that was built before, or for other events, is rebuilt when what it loses beside the best layout
exceeds what building costs (planner.py). One that came from a file or a pickle stays as it is: it may be
mapped into several processes, and a private copy in each would take their memory.

Where many boxes are alike, paths are laid out over one of each kind, and what they find is the slots of all
of them (engine/layouts/shared.py).

A part of `auto` is one part per path. Their answers are joined row by row. Each path counts the time
it took, so that `stats` and `explain_plan` say what the last batches cost where.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine import small_kernels
from rangecast.engine.answers import ALL, Found, Request, join_found, one_row
from rangecast.engine.boxes import Boxes
from rangecast.engine.catalog import Catalog
from rangecast.engine.checks import within
from rangecast.engine.costs import (
    Corrections,
    Layout,
    alone_on,
    many_alone,
)
from rangecast.engine.grid import Grid, bounded_attributes
from rangecast.engine.layouts import lists_kernels as equality_kernels
from rangecast.engine.layouts import sorted_lists_kernels as nested_kernels
from rangecast.engine.layouts.bitmap import BitmapPart, build_bitmap, estimate_bytes
from rangecast.engine.layouts.cells import BUDGET, CellsPart, build_cells
from rangecast.engine.layouts.leads import claim_leads
from rangecast.engine.layouts.lists import (
    EqualitiesPart,
    EqualityPart,
    WordListsPart,
    build_listed,
    claim_lists,
    led_boxes,
)
from rangecast.engine.layouts.runs import FEWEST_CELLS, MOST_CELLS, build_runs
from rangecast.engine.layouts.scan import ScanPart
from rangecast.engine.layouts.shared import Groups, find_groups
from rangecast.engine.layouts.sorted_lists import NestedPart, claim_sorted
from rangecast.engine.layouts.windows import build_windows
from rangecast.engine.packed import span_of_ends
from rangecast.engine.parts import ROOM, FewEvents, Part, StaticIndex, _Covered, _CoveredParts, part_bytes
from rangecast.engine.planner import (
    COLD_BOXES,
    COLD_WORK,
    ClaimedBoxes,
    Left,
    PartHistory,
    Plan,
    Replanner,
    are_layouts_compiled,
    choose_layout,
    note_layout,
)
from rangecast.engine.reading import stab_in_turn
from rangecast.engine.threads import runner
from rangecast.errors import CapacityError, OptionError
from rangecast.memory import check_fits
from rangecast.model.wide_events import EventEntries
from rangecast.simd.memory import Views
from rangecast.types.attributes import LAST, PRESENT, Codes
from rangecast.types.schema import Schema

_NO_SLOTS, _LISTS = np.empty(0, np.int32), ("nested", "equalities", "equality")


@dataclass(eq=False)
class AutoPart(Part):
    """A part per access path."""

    paths: list[AccessPath]
    groups: Groups | None = None

    exact = True

    def __post_init__(self) -> None:
        # building lists of thousands of values costs by the value, and not by the box
        ratios = [Part.ratio if path.kind == "listed" else path.part.ratio for path in self.paths]
        self.ratio = min(ratios, default=Part.ratio)
        self._apart = [path.kind == "listed" for path in self.paths]
        self.seconds = [0.0] * len(self.paths)
        self._asked = asked_by_one(self.paths)
        self._reads_entries = self.groups is None and [path.kind for path in self.paths] == ["leads"]
        self.events = 0
        self.history = PartHistory()

    def check(self, boxes: Boxes, n_slots: int) -> None:
        own, n = boxes, n_slots
        if self.groups is not None:
            self.groups.check(boxes.n_attributes, n_slots)
            own, n = self.groups.boxes, self.groups.boxes.n
        for path, apart in zip(self.paths, self._apart, strict=True):
            within("attributes of paths", np.array(path.on, np.int64), boxes.n_attributes)
            path.part.check(*((boxes, n_slots) if apart else (own, n)))

    def planned(self) -> AccessPath | None:
        """The path that was chosen by an estimate; there is one at most."""
        return next((path for path in self.paths if path.plan is not None), None)

    def spent(self) -> float:
        """Seconds spent on the path that was chosen by an estimate."""
        return sum(s for s, path in zip(self.seconds, self.paths, strict=True) if path.plan is not None)

    def stab(self, request: Request) -> Found:
        if isinstance(request.events, EventEntries) and not self._reads_entries:
            request = request._replace(events=request.codes)
        if len(self.paths) > 1 or self.groups is not None:
            # only a path that is alone may write ids
            request = request._replace(base=None)
        n = request.events.shape[1]
        if self.groups is None and request.limit < ALL and len(self.paths) > 1:
            return stab_in_turn([path.part for path in self.paths], request)
        if n == 1 and (self.groups is None or not any(self._apart)) and not self._reads_entries:
            boxes = request.boxes if self.groups is None else self.groups.boxes
            slots = self._slots(request.codes, boxes)
            if slots is not None:
                rows = one_row(slots)
                return rows if self.groups is None else self.groups.expand(rows)
        found = [self._timed(k, request) for k in range(len(self.paths))]
        self.events += n
        if self.groups is not None:
            grouped = [own for own, apart in zip(found, self._apart, strict=True) if not apart]
            found = [own for own, apart in zip(found, self._apart, strict=True) if apart]
            found.append(self.groups.expand(join_found(grouped, n)))
        return found[0] if len(found) == 1 else join_found(found, n)

    def _timed(self, k: int, request: Request) -> Found:
        """What a path finds, among groups where it is laid out over those; its time is noted."""
        path, several = self.paths[k], request.several
        if self.groups is not None and not self._apart[k]:
            request = request._replace(boxes=self.groups.boxes, limit=ALL, counts=False)
        # one that reads nothing in which the columns of one event differ looks at one of them
        alone = several is not None and path.reads is not None and not several.varies[list(path.reads)].any()
        if several is not None and alone:
            request = request._replace(events=several.alone, several=None)
        start = perf_counter()
        found = path.part.stab(request)
        took = perf_counter() - start
        self.seconds[k] += took
        if path.plan is not None:
            self.history.took(took, request.events.shape[1])
        return found if several is None or not alone else several.spread(found)

    def stab_one(self, codes: Any, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        if self.groups is not None or (type(codes) is EventEntries and not self._reads_entries):
            return None
        return self._slots(codes, boxes)

    def _slots(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        """What one event matches, or None where it is much: nothing is joined that is not there."""
        found = None
        start = perf_counter()
        if len(self._asked) == 1:
            ((k, ask),) = self._asked
            found = ask(codes, boxes)
            if found is not None:
                self.seconds[k] += perf_counter() - start
                self.events += 1
            return found
        for k, ask in self._asked:
            slots = ask(codes, boxes)
            if slots is None:  # many, or of a path that knows batches alone
                return None
            # not for the history: what one event takes tells little of a layout
            now = perf_counter()
            self.seconds[k] += now - start
            start = now
            if found is None or not len(found):
                found = slots
            elif len(slots):
                found = np.concatenate((found, slots))
        self.events += 1
        return _NO_SLOTS if found is None else found

    def cost(self, codes: Codes) -> npt.NDArray[np.int64] | None:
        total = np.zeros(codes.shape[1], np.int64)
        for path in self.paths:
            counts = path.part.cost(codes)
            if counts is None:
                return None
            total += counts
        return total

    def stats(self) -> dict[str, int]:
        return {} if self.groups is None else self.groups.stats()

    def without(self, dead: npt.NDArray[np.uint8]) -> AutoPart | None:
        swept = [
            (path, path.part if self.groups is not None and not apart else path.part.without(dead))
            for path, apart in zip(self.paths, self._apart, strict=True)
        ]
        if any(part is None for _, part in swept):
            return None
        groups = None if self.groups is None else self.groups.without(dead)
        paths = [path._replace(part=part) for path, part in swept if part is not None]
        return self._anew(AutoPart(paths, groups))

    def _anew(self, swept: AutoPart) -> AutoPart:
        swept.history, swept.seconds, swept.events = self.history, self.seconds, self.events
        return swept


class AutoIndex(StaticIndex):
    """The index to open unless there is a reason for another.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Category("symbol"), rc.Float("price"))
    >>> index = rc.open_index("auto", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "symbol = 'IBM' and price > 120"}))
    >>> index.match(rc.Events.from_rows(schema, [{"symbol": "IBM", "price": 121.5}])).row(0).tolist()
    [7]
    """

    name = "auto"
    expands = False
    reads_entries = True
    sets = "listed"
    # 2,048 boxes are scanned in 6 us by one event, where lists take 3, and are ready at once: the kernels of
    # paths take a fifth of a second to load; where they are not compiled yet, planner.py has more
    tail_alone = 4

    def _configure(self, memory_limit: int | None = None, build_threads: int = 1) -> None:
        if isinstance(build_threads, bool) or not isinstance(build_threads, int) or build_threads < 1:
            raise OptionError(f"build_threads must be a whole number of at least 1, got {build_threads!r}")
        self._memory_limit = memory_limit
        self._threads = build_threads
        self._catalog = self._new_catalog()
        self._replanner = Replanner(len(self.schema))

    def _new_catalog(self) -> Catalog:
        catalog = super()._new_catalog()
        if catalog.entries is not None:
            catalog.entries.threads = getattr(self, "_threads", 1)
        return catalog

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        seen = self._replanner.seen
        listed, numbers = listed_paths(boxes, numbers, self._memory_limit)
        groups = (
            find_groups(boxes, numbers, bounded_attributes(boxes, numbers)) if len(numbers) > TINY else None
        )
        if groups is not None:
            boxes, numbers = groups.boxes.again(), np.arange(groups.boxes.n)
        paths = build_paths(boxes, numbers, self._memory_limit, seen.sample(), self._threads)
        part = AutoPart([*listed, *paths], groups)
        part.history.since = seen.n
        self._replanner.wait()
        note_layout()
        return part

    def _tail_limit(self) -> int:
        return super()._tail_limit() if are_layouts_compiled() else COLD_BOXES

    def _is_worth_a_part(self, work: int) -> bool:
        return work > COLD_WORK or are_layouts_compiled()

    def _passes(self) -> bool:
        seen = self._replanner.seen
        if self._read.state.tail or self._filtered or seen.n + 1 >= self._replanner.busy_at:
            return False
        seen.n += 1
        return True

    def _prepare(self, codes: Codes) -> None:
        if codes.shape[1] == 1 and self._passes():
            return
        if len(codes) != len(self.schema.attributes):  # it was widened meanwhile
            return
        due = self._replanner.notice(codes)
        super()._prepare(codes)
        if due:
            self._reconsider()

    def _reconsider(self) -> None:
        """Rebuild parts that lose more by their layout than building costs, unless a writer is at work."""
        soonest = min((self._events_to_go(covered) for covered in self._state.parts), default=np.inf)
        self._replanner.wait(soonest)
        events = self._replanner.seen.sample()
        if soonest > 0 or events is None or not self._lock.acquire(blocking=False):
            return
        try:
            self._resume()
            for covered in self._parts:
                if not self._events_to_go(covered):
                    self._weigh(covered, events)
        finally:
            self._lock.release()

    def _events_to_go(self, covered: _Covered) -> float:
        part = covered.part
        assert isinstance(part, AutoPart)
        path = part.planned()
        plan = None if path is None else path.plan
        return self._replanner.events_to_go(plan, part.history, part.spent())

    def _weigh(self, covered: _Covered, events: Codes) -> None:
        part = covered.part
        assert isinstance(part, AutoPart)
        path, groups, replanner = part.planned(), part.groups, self._replanner
        boxes = self._catalog.boxes if groups is None else groups.boxes.again()
        assert path is not None
        assert path.plan is not None
        if not replanner.pays(boxes, path.plan, path.size, part.history, part.spent(), events):
            return
        living = self._living(covered.first, covered.last) if groups is None else np.arange(boxes.n)
        if groups is None:
            living = without([own.numbers for own in led_boxes(boxes, living)], living)
        others = [other for other in part.paths if other is not path]
        lines = [other.on[0] for other in others if other.kind not in (*_LISTS, "listed")]
        rest = not_in_lists([other for other in others if other.kind in _LISTS], living)
        if lines:
            rest = rest[~np.isin(alone_on(boxes, rest, boxes.bounded(rest)), lines)]
        try:
            if len(rest):
                limit, factors = self._memory_limit, part.history.factors
                others.append(rest_path(boxes, rest, living, limit, events, factors))
        except MemoryError:
            # a match must not fail for want of room to do better
            part.history.settled = True
            return
        fresh = AutoPart(others, groups)
        fresh.history = part.history.laid_out_anew(replanner.seen.n)
        replanner.replans += 1
        # how many were alive when the part was built is left as it was: other paths may hold dead ones
        self._parts = tuple(one._replace(part=fresh) if one is covered else one for one in self._parts)
        self._publish()

    def _take_structure(self, structure: _CoveredParts) -> None:
        super()._take_structure(structure)
        for covered in self._parts:
            assert isinstance(covered.part, AutoPart)
            covered.part.history.settled = True

    def plan(self) -> list[dict[str, Any]]:
        """Per access path: its kind, the attributes it goes by, boxes, bytes, time spent, and why it was
        chosen."""
        spent = []
        for covered in self._state.parts:
            part = covered.part
            assert isinstance(part, AutoPart)
            spent += [(path, part.seconds[k], part.events) for k, path in enumerate(part.paths)]
        return report_paths(self.schema, spent)

    def explain_plan(self) -> str:
        """The access paths in use and why, for a person.

        >>> import rangecast as rc
        >>> print(rc.open_index("auto", rc.Schema(rc.Int("a"))).explain_plan())
        0 subscriptions in 0 parts, 0 boxes in the unsorted tail
        """
        stats = self._structure_stats()
        head = (
            f"{len(self):,} subscriptions in {len(self._state.parts)} parts, "
            f"{stats['tail_boxes']:,} boxes in the unsorted tail"
        )
        if "groups" in stats:
            head += f"\n  {stats['grouped_boxes']:,} boxes are kept as {stats['groups']:,} that differ"
        return "\n".join([head, *explain_paths(stats["paths"])])

    def _structure_stats(self) -> dict[str, Any]:
        return {**super()._structure_stats(), "paths": self.plan(), "replans": self._replanner.replans}


# Which boxes of `auto` get which access path, and the building of those paths.
#
# LAYOUTS has them in their order. Each claims the boxes that it suits, and says how they are built. Sorted
# lists come before lists by value, then comes a path of its own for an attribute that many boxes bound alone.
# What is left goes together: runs, windows or cells on one attribute, cells or bitmap on several, as the
# planner says.

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
    """Access paths for the boxes with these numbers, which are used up, for events like these if some were
    seen."""
    if not len(numbers):
        return []
    left = Left(boxes, numbers, memory_limit, events, threads)
    for layout in LAYOUTS:
        if len(left.numbers):
            layout(left)
            left.settle()
    # the rest shares out its own work if it is most boxes, and must not wait for threads that wait for it
    alone = any(claim.kind == "rest" and 2 * claim.size > left.n for claim in left.claims)
    run = map if alone else runner(threads)
    return list(run(_built, left.claims))


def _built(claim: ClaimedBoxes) -> AccessPath:
    found = claim.build()
    if isinstance(found, AccessPath):
        return found
    return AccessPath(claim.kind, claim.on, claim.size, found)


def _claim_few(left: Left) -> None:
    """A scan, which looks at a range of boxes, so only where no dead one lies between them."""
    first, last = int(left.numbers[0]), int(left.numbers[-1])
    if left.n <= TINY and last - first == left.n - 1:
        left.claim("scan", (), left.numbers, lambda: ScanPart(first, last + 1))


def _check_room(left: Left) -> None:
    """No layout: those that follow need memory."""
    used = left.used
    check_fits(
        estimate_bytes(left.n, len(used), 4),
        left.memory_limit,
        f"'auto' for {left.n:,} boxes on {len(used)} attributes",
        "the index 'scan' needs nearly nothing beyond the subscriptions",
    )


def _claim_lines(left: Left) -> None:
    """A path of its own for each attribute that many boxes bound and nothing else."""
    for on, own in many_alone(left.boxes, left.numbers):
        left.claim("line", (on,), own, partial(_line_path, left.boxes, own, on, left.memory_limit, 1))


def _claim_rest(left: Left) -> None:
    """All that is left, in the layout that costs least by the planner."""
    # threads where it is most of the boxes, for then it is built by itself
    threads = left.threads if 2 * len(left.numbers) > left.n else 1
    own = left.numbers
    left.claim(
        "rest", (), own,
        partial(
            rest_path, left.boxes, own, left.around, left.memory_limit, left.events, threads=threads
        ),
    )  # fmt: skip


LAYOUTS: tuple[Callable[[Left], None], ...] = (
    _claim_few,
    claim_leads,
    _check_room,
    claim_sorted,
    claim_lists,
    _claim_lines,
    _claim_rest,
)
"""Who claims boxes, in this order: each takes those that it suits from what those before have left."""


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


# Access paths of `auto`: what one is, how one event asks them, and how those in use are described.

SMALL_BITMAP = 32
"""Blocks of a bitmap that is asked together with lists."""

Ask = Callable[[Codes, Boxes], npt.NDArray[np.int32] | None]
"""What gives the slots that one event matches, or None where they are many."""


class AccessPath(NamedTuple):
    """One access path of a part: its kind, its attributes, how many boxes it holds, and why."""

    kind: str
    on: tuple[int, ...]
    size: int
    part: Part
    plan: Plan | None = None

    @property
    def reads(self) -> tuple[int, ...] | None:
        """The attributes by which it decides, where it goes by all that its boxes bound."""
        part = self.part
        alone = (isinstance(part, CellsPart) and part.checked is None) or (
            isinstance(part, EqualityPart) and part.alone
        )
        return self.on if alone or self.kind in ("runs", "windows") else None


def asked_by_one(paths: list[AccessPath]) -> list[tuple[int, Ask]]:
    """What one event asks: the place of a path, and what gives slots.

    Lists are asked in one call, and a small bitmap with them, which counts as the time of the first of them:
    14.9 us instead of 17.7 for three lists and a bitmap of 37,868 boxes. What such a bitmap takes is as
    estimated then. That of a larger one decides whether it is laid out again (planner.py), so it is asked by
    itself.
    """
    together: dict[type[Part], list[int]] = {NestedPart: [], EqualityPart: [], BitmapPart: []}
    for k, path in enumerate(paths):
        part = path.part
        if isinstance(part, NestedPart) and part.identical:
            together[NestedPart].append(k)
        elif isinstance(part, EqualitiesPart | EqualityPart | WordListsPart) and part.identical:
            together[EqualityPart].append(k)
        elif isinstance(part, BitmapPart) and part.identical and part.n_blocks <= SMALL_BITMAP:
            together[BitmapPart].append(k)
    places = list(itertools.chain.from_iterable(together.values()))
    if len(places) < 2 or len(together[BitmapPart]) > 1:
        return [(k, path.part.stab_one) for k, path in enumerate(paths)]
    joined = _asked_together([paths[k].part for k in places])
    first = min(places)
    return [
        (k, joined if k == first else path.part.stab_one)
        for k, path in enumerate(paths)
        if k == first or k not in places
    ]


def _asked_together(parts: list[Part]) -> Ask:
    """One call for several parts: sorted lists, then lists by value, then a bitmap."""
    joined = NestedPart | EqualitiesPart | EqualityPart | WordListsPart | BitmapPart
    views = [part.few.views for part in parts if isinstance(part, joined)]
    if isinstance(parts[-1], BitmapPart):
        kernel, room = small_kernels.stab_lists_and_bitmap, parts[-1].few.room + ROOM
    elif not isinstance(parts[0], NestedPart):
        return FewEvents(equality_kernels.stab_one, Views(*views)).stab_one
    elif isinstance(parts[-1], NestedPart):
        return FewEvents(nested_kernels.stab_one, Views(*views)).stab_one
    else:
        kernel, room = small_kernels.stab_lists, ROOM
    n_sorted = np.array([sum(isinstance(part, NestedPart) for part in parts)], np.int64)
    return FewEvents(kernel, Views(n_sorted, *views), room).stab_one


def report_paths(schema: Schema, spent: Iterable[tuple[AccessPath, float, int]]) -> list[dict[str, Any]]:
    """Paths of several parts, with their seconds and events, summed by kind and attributes; those with most
    boxes first. An estimate is that of the largest."""
    merged: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    largest: dict[tuple[str, tuple[int, ...]], int] = {}
    for path, seconds, events in spent:
        key = path.kind, path.on
        named = {"path": path.kind, "on": [schema[j].name for j in path.on]}
        entry = merged.setdefault(key, {**named, "boxes": 0, "bytes": 0, "seconds": 0.0, "events": 0})
        entry["boxes"] += path.size
        entry["bytes"] += part_bytes(path.part)
        entry["seconds"] += seconds
        entry["events"] = max(entry["events"], events)
        if path.plan is not None and path.size > largest.get(key, 0):
            largest[key] = path.size
            entry.update(_reasons(schema, path.plan))
    return sorted(merged.values(), key=lambda entry: -int(entry["boxes"]))


def _reasons(schema: Schema, plan: Plan) -> dict[str, Any]:
    reasons: dict[str, Any] = {"estimated_ns": round(plan.chosen.ns), "chosen_by": plan.basis}
    if plan.runner_up is not None:
        reasons["runner_up"] = _named(schema, plan.runner_up)
        reasons["runner_up_ns"] = round(plan.runner_up.ns)
    return reasons


def _named(schema: Schema, layout: Layout) -> str:
    names = ", ".join(schema[j].name for j in layout.on)
    return f"{layout.kind} on {names}" if names else layout.kind


def explain_paths(entries: list[dict[str, Any]]) -> list[str]:
    """The same as lines for a person."""
    lines = []
    for entry in entries:
        by = f" on {', '.join(entry['on'])}" if entry["on"] else ""
        per_box = entry["bytes"] / max(entry["boxes"], 1)
        cost = f", {entry['seconds'] / entry['events'] * 1e6:.2f} us per event" if entry["events"] else ""
        lines.append(f"  {entry['path']}{by}: {entry['boxes']:,} boxes, {per_box:.0f} bytes each{cost}")
        if "estimated_ns" in entry:
            line = f"    by {entry['chosen_by']}: {entry['estimated_ns'] / 1e3:.2f} us per event estimated"
            if "runner_up" in entry:
                line += f", {entry['runner_up_ns'] / 1e3:.2f} for {entry['runner_up']}"
            lines.append(line)
    return lines
