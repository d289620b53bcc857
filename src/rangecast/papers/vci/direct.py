"""`direct`: for each value the list of subscriptions that cover it.

Source: Wu, Chen, Yu and Mei, "Efficient interval indexing for content-based subscription e-commerce
and services" (IBM Research Report, 2004), sec. 5.1, where it is called Dlist: the fastest look-up of
that paper and the one that needs the most memory, since a subscription is listed once for every value
it covers. We build the lists at once as one array in the order of the values instead of linked lists,
and take live changes through engine/parts.py.

    array    dtype   shape            meaning
    starts   int64   2 * n_cells + 1  lists of cell c: whole ones [starts[2c], starts[2c + 1]), then
                                      crossing ones [starts[2c + 1], starts[2c + 2])
    slots    int32   n_entries        the slot of each entry
    boxes    int32   n_entries or 0   its box, kept only when candidates must be checked
    checked  int64   <= d             the other attributes that some box bounds

A domain of more than `cells` values is laid on a Grid: an entry of a cell that its box covers whole
needs no check on this attribute, one that it crosses does. `on=` names the attribute; by default the
most selective one. Predicates on other attributes are checked per candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, flat, hold, shaped, within
from rangecast.engine.grid import Grid
from rangecast.engine.parts import StaticIndex
from rangecast.engine.selectivity import choose_attributes, named_attributes
from rangecast.engine.static_part import Part
from rangecast.errors import OptionError
from rangecast.kernels.papers.vci import direct as kernels
from rangecast.kernels.papers.vci.direct import DirectLists
from rangecast.memory import check_fits
from rangecast.types.attributes import LAST, MISSING, Codes

DEFAULT_CELLS = 65_536


@dataclass(eq=False)
class DirectPart(Part):
    """Lists of entries, one pair of lists per cell."""

    grid: Grid
    lists: DirectLists

    def check(self, boxes: Boxes, n_slots: int) -> None:
        lists, d = self.lists, boxes.n_attributes
        flat(lists)
        self.grid.check()
        hold("that lists are on an attribute", 0 <= lists.on < d)
        ascending("starts of lists", lists.starts, len(lists.slots), 2 * self.grid.n_cells + 1)
        within("slots of lists", lists.slots, n_slots)
        within("attributes of lists", lists.checked, d)
        within("boxes of lists", lists.boxes, boxes.n)
        if len(lists.boxes):
            shaped("boxes of lists", lists.boxes, len(lists.slots))
        else:
            nothing = not len(lists.checked) and (lists.starts[1::2] == lists.starts[2::2]).all()
            hold("that checked entries have boxes", nothing)

    def stab(self, codes: Codes, boxes: Boxes) -> Rows:
        offsets = np.empty(codes.shape[1] + 1, np.int64)
        cells = self.grid.locate(codes[self.lists.on])
        out = np.empty(kernels.count(cells, self.lists.starts), np.int32)
        n = kernels.stab(codes, cells, self.lists, boxes.lows, boxes.highs, offsets, out)
        return offsets, out[:n]

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64]:
        cells = self.grid.locate(codes[self.lists.on])
        counts: npt.NDArray[np.int64] = self.lists.starts[2 * cells + 2] - self.lists.starts[2 * cells]
        return counts

    def stats(self) -> dict[str, int]:
        return {"cells": self.grid.n_cells, "entries": len(self.lists.slots)}


class DirectIndex(StaticIndex):
    """An id list per value of one attribute.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> index = rc.open_index("direct", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price between 10 and 20"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 20}, {"price": 21}])).counts.tolist()
    [1, 0]
    """

    name = "direct"

    def _configure(self, on: Any = None, cells: int = DEFAULT_CELLS, memory_limit: int | None = None) -> None:
        if not 5 <= cells <= 2**24:
            raise OptionError(f"cells must be within 5 and {2**24}, got {cells}")
        self._on = None if on is None else named_attributes(self.schema, on, 1)
        self._cells = cells
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        (on,) = self._on or choose_attributes(self.schema, None, 1, boxes, numbers)
        lows, highs = boxes.lows[on, numbers], boxes.highs[on, numbers]
        grid = Grid.fit(self.schema[on], lows, highs, self._cells)
        others = [j for j in range(len(self.schema)) if j != on]
        checked = [
            j
            for j in others
            if (boxes.lows[j, numbers] != MISSING).any() or (boxes.highs[j, numbers] != LAST).any()
        ]
        firsts, lasts = grid.locate(lows), grid.locate(highs)
        starts = np.zeros(2 * grid.n_cells + 1, np.int64)
        crossing = kernels.count_entries(lows, highs, firsts, lasts, grid.cuts, starts)
        n = int(starts[-1])
        keep_boxes = crossing > 0 or bool(checked)
        check_fits(
            n * (8 if keep_boxes else 4) + starts.nbytes,
            self._memory_limit,
            f"'direct' on {self.schema[on].name!r} with {n:,} list entries",
            "fewer cells=, or the index 'vci' or 'cells', need less",
        )
        lists = DirectLists(
            on=on,
            starts=starts,
            slots=np.empty(n, np.int32),
            boxes=np.empty(n if keep_boxes else 0, np.int32),
            checked=np.array(checked, np.int64),
        )
        cursors = starts[:-1].copy()
        kernels.fill_entries(lows, highs, firsts, lasts, grid.cuts, cursors, numbers, boxes.slots, lists)
        return DirectPart(grid, lists)
