"""`auto`: an access path for each subscription, chosen from statistics.

    path       holds                                                   module
    listed     boxes with long lists of values, once for each value    listed_paths.py
    nested     boxes that bound the same attributes in the same way,   nested.py
               in sorted lists, where those are worth it               (outlines.py)
    equalities boxes that ask for one value of two attributes each,    equalities.py
               where lists by one of them would be read for little
    equality   boxes that ask for one value of an attribute where      equality.py
               events seldom have that value
    runs       the rest, when they bound one attribute of few values   runs.py
    windows    the rest, when they bound one attribute of many values  windows.py
    cells      the rest, on one or two of their attributes, or         cells.py
    bitmap     the rest, on all of them: whichever costs less          bitmap.py
    scan       everything, when it is little

How often events have a value is taken to be how often subscriptions ask for it. So a value that one
in fifty asks for is no equality worth a list: its boxes go with the rest, where their other bounds tell
them apart and clustering keeps them together. An attribute with the same value in 99 of 100 boxes is such a
case too. But a rest of a few thousand boxes costs more a box than one of a million, and the first of it most:
in `predicates-16` 1,873 boxes of 1.2 million took half the time, before lists on three more attributes
left 173 of them.

What costs less is estimated on samples (weighing.py): of boxes, and of events once some were seen. A part
that was built before, or for other events, is rebuilt when what it loses beside the best layout
exceeds what building costs (planner.py). One that came from a file or a pickle stays as it is: it may be
mapped into several processes, and a private copy in each would take their memory.

Where many boxes are alike, paths are laid out over one of each kind, and what they find is the slots of all
of them (shared_boxes.py).

A part of `auto` is one part per path. Their answers are joined row by row. Each path counts the time
it took, so that `stats` and `explain_plan` say what the last batches cost where.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine import path_building
from rangecast.engine.access_paths import AccessPath, asked_by_one, explain_paths, report_paths
from rangecast.engine.answers import Found, Rows, SeveralColumns, join_found, one_row
from rangecast.engine.boxes import Boxes
from rangecast.engine.catalog import Catalog
from rangecast.engine.checks import within
from rangecast.engine.first_layout import COLD_BOXES, COLD_WORK, are_layouts_compiled, note_layout
from rangecast.engine.layouts.shared import Groups, find_groups
from rangecast.engine.limited import count_all, hold_any, stab_in_turn
from rangecast.engine.listed_paths import led_boxes
from rangecast.engine.outlines import alone_on
from rangecast.engine.parts import StaticIndex
from rangecast.engine.path_building import build_paths, listed_paths, not_in_lists, rest_path, without
from rangecast.engine.planner import PartHistory, Replanner
from rangecast.engine.selectivity import bounded_attributes
from rangecast.engine.static_part import IdRows, Part
from rangecast.engine.static_reading import _Covered
from rangecast.errors import OptionError
from rangecast.model.wide_events import EventEntries
from rangecast.types.attributes import Codes

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

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        if codes.shape[1] == 1 and (self.groups is None or not any(self._apart)):
            slots = self._slots(codes, boxes if self.groups is None else self.groups.boxes)
            if slots is not None:
                rows = one_row(slots)
                return rows if self.groups is None else self.groups.expand(rows)
        return self._joined([self._timed(k, codes, boxes) for k in range(len(self.paths))], codes.shape[1])

    def stab_variants(self, variants: SeveralColumns, boxes: Boxes) -> Found:
        """A path that reads nothing in which the columns of one event differ looks at one of them."""
        found: list[Found] = []
        for k, path in enumerate(self.paths):
            reads = path.reads
            if reads is None or variants.varies[list(reads)].any():
                found.append(self._timed(k, variants.codes, boxes))
            else:
                found.append(variants.spread(self._timed(k, variants.alone, boxes)))
        return self._joined(found, variants.codes.shape[1])

    def _timed(self, k: int, codes: Codes, boxes: Boxes) -> Found:
        """What a path finds, among groups where it is laid out over those; its time is noted."""
        path = self.paths[k]
        start = perf_counter()
        found = path.part.stab(codes, boxes if self.groups is None or self._apart[k] else self.groups.boxes)
        took = perf_counter() - start
        self.seconds[k] += took
        if path.plan is not None:
            self.history.took(took, codes.shape[1])
        return found

    def _joined(self, found: list[Found], n_columns: int) -> Found:
        self.events += n_columns
        if self.groups is not None:
            grouped = [own for own, apart in zip(found, self._apart, strict=True) if not apart]
            found = [own for own, apart in zip(found, self._apart, strict=True) if apart]
            found.append(self.groups.expand(join_found(grouped, n_columns)))
        return found[0] if len(found) == 1 else join_found(found, n_columns)

    def stab_entries(self, entries: EventEntries, boxes: Boxes) -> Found:
        if self.groups is not None or [path.kind for path in self.paths] != ["leads"]:
            return self.stab(entries.columns(), boxes)
        start = perf_counter()
        found = self.paths[0].part.stab_entries(entries, boxes)
        self.seconds[0] += perf_counter() - start
        self.events += entries.shape[1]
        return found

    def writes_ids(self, codes: Codes) -> bool:
        return self.groups is None and len(self.paths) == 1 and self.paths[0].part.writes_ids(codes)

    def stab_ids(self, codes: Codes, boxes: Boxes, base: int, beside: IdRows | None) -> IdRows:
        start = perf_counter()
        rows = self.paths[0].part.stab_ids(codes, boxes, base, beside)
        took = perf_counter() - start
        self.seconds[0] += took
        if self.paths[0].plan is not None:
            self.history.took(took, codes.shape[1])
        self.events += codes.shape[1]
        return rows

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return None if self.groups is not None else self._slots(codes, boxes)

    def stab_one_said(self, entries: EventEntries, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        if self.groups is not None or len(self.paths) != 1:
            return None
        start = perf_counter()
        slots = self.paths[0].part.stab_one_said(entries, boxes)
        if slots is not None:
            self.seconds[0] += perf_counter() - start
            self.events += 1
        return slots

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

    def stab_some(self, codes: Codes, boxes: Boxes, limit: int) -> Rows:
        if self.groups is not None:
            return super().stab_some(codes, boxes, limit)
        return stab_in_turn(self._parts(), codes, boxes, limit)

    def count(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int64]:
        if self.groups is not None:
            return super().count(codes, boxes)
        return count_all(self._parts(), codes, boxes)

    def hold_any(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.bool_]:
        if self.groups is not None:
            return super().hold_any(codes, boxes)
        return hold_any(self._parts(), codes, boxes)

    def _parts(self) -> list[Part]:
        return [path.part for path in self.paths]

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64] | None:
        total = np.zeros(codes.shape[1], np.int64)
        for path in self.paths:
            counts = path.part.count_candidates(codes)
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

    @property
    def derived_bytes(self) -> int:
        return sum(path.part.derived_bytes for path in self.paths)

    def loaded(self) -> None:
        self.history.settled = True


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
    # paths take a fifth of a second to load; where they are not compiled yet, first_layout.py has more
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
            find_groups(boxes, numbers, bounded_attributes(boxes, numbers))
            if len(numbers) > path_building.TINY
            else None
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
        return not self._read.state.tail and not self._filtered and self._replanner.passes()

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
