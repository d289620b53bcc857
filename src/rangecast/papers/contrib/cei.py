"""`cei`: intervals cut into constructs whose numbers say which holds which.

Source: Wu, Chen and Yu, "Query indexing with containment-encoded intervals for efficient stream processing"
(CIKM 2004; Knowledge and Information Systems 9, 2006): the construct intervals of `vci` once more, with
fewer of them. The domain is cut into segments of L = 2**k values; a segment has one construct of the length
L, two of L/2, and so on down to L of the length 1, numbered as the nodes of a heap: the halves of c are 2c
and 2c + 1. So the k + 1 constructs that hold a value are its leaf, and what shifting the leaf's number
gives: no table of distances and no covering segment. An interval is cut into whole segments and the fewest
constructs of its two ends.

    array    dtype   shape                                  meaning
    starts   int64   1 + n_cells + 2L * n_segments + 1      where each list begins: the boxes that hold every
                                                            cell; per cell those that hold it in part; then 2L
                                                            per segment, of which number 0 is not used
    slots    int32   n_entries                              the slot of each entry
    boxes    int32   n_entries                              its box
    checked  int64   <= d                                   the other attributes that some box bounds

Where we depart. Values are cells of a Grid, so any attribute will do; a box that holds a cell in part is
listed there and checked. A box that holds every cell is in one list instead of one per segment. The lists
are one array and not linked; live changes go through engine/parts.py. Predicates on other attributes are
checked per candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Request, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, flat, hold, shaped, within
from rangecast.engine.grid import Grid, choose_attributes, named_attributes
from rangecast.engine.parts import Part, StaticIndex
from rangecast.errors import OptionError
from rangecast.memory import check_fits
from rangecast.papers.contrib import kernels
from rangecast.papers.contrib.kernels import EncodedLists

DEFAULT_CELLS = 65_536
DEFAULT_LENGTH = 1_024


@dataclass(eq=False)
class CeiPart(Part):
    """Lists per construct over some boxes."""

    grid: Grid
    lists: EncodedLists

    def check(self, boxes: Boxes, n_slots: int) -> None:
        lists, d = self.lists, boxes.n_attributes
        flat(lists)
        self.grid.check()
        hold("that constructs are on an attribute", 0 <= lists.on < d)
        hold("that a segment has a length", 0 <= lists.k <= 24)
        n_lists = count_lists(self.grid.n_cells, lists.k)
        ascending("lists of constructs", lists.starts, len(lists.slots), n_lists + 1)
        within("slots of constructs", lists.slots, n_slots)
        shaped("boxes of constructs", lists.boxes, len(lists.slots))
        within("boxes of constructs", lists.boxes, boxes.n)
        within("attributes of constructs", lists.checked, d)

    def stab(self, request: Request) -> Rows:
        codes, boxes = request.codes, request.boxes
        offsets = np.empty(codes.shape[1] + 1, np.int64)
        cells = self.grid.locate(codes[self.lists.on])
        # one place more: an entry is written before it is known whether it counts
        out = np.empty(kernels.count_encoded(cells, self.grid.n_cells, self.lists) + 1, np.int32)
        n = kernels.stab_encoded(codes, cells, self.grid.n_cells, self.lists, boxes.arrays, offsets, out)
        return offsets, out[:n]

    def stats(self) -> dict[str, int]:
        constructs = len(self.lists.starts) - 2 - self.grid.n_cells
        return {"constructs": constructs, "entries": len(self.lists.slots)}


class CeiIndex(StaticIndex):
    """Containment-encoded intervals of one attribute; see the module head.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> index = rc.open_index("cei", schema, L=16)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price between 10 and 20"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 20}, {"price": 21}])).counts.tolist()
    [1, 0]
    """

    name = "cei"

    def _configure(
        self,
        on: Any = None,
        L: int = DEFAULT_LENGTH,
        cells: int = DEFAULT_CELLS,
        memory_limit: int | None = None,
    ) -> None:
        if L < 1 or L & (L - 1) or L > 1 << 20:
            raise OptionError(f"L must be a power of two up to {1 << 20:,}, got {L}")
        if not 5 <= cells <= 2**24:
            raise OptionError(f"cells must be within 5 and {2**24}, got {cells}")
        self._on = None if on is None else named_attributes(self.schema, on, 1)
        self._k = L.bit_length() - 1
        self._cells = cells
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        (on,) = self._on or choose_attributes(self.schema, None, 1, boxes, numbers)
        lows, highs = boxes.column(on, numbers)
        grid = Grid.fit(self.schema[on], lows, highs, self._cells)
        firsts, lasts = grid.locate(lows), grid.locate(highs)
        none = np.empty(0, np.int32)
        checked = np.array([j for j in boxes.bounded(numbers) if j != on], np.int64)
        lists = EncodedLists(on, self._k, np.empty(0, np.int64), none, none, checked)
        starts = np.zeros(count_lists(grid.n_cells, self._k) + 1, np.int64)
        given = (lows, highs, firsts, lasts, grid.cuts, numbers, boxes.slots)
        kernels.enter_all(*given, False, starts, lists)
        n = int(starts[-1])
        check_fits(
            8 * n + 2 * starts.nbytes,
            self._memory_limit,
            f"'cei' on {self.schema[on].name!r} with {n:,} entries",
            "fewer cells=, or the index 'cells', needs less",
        )
        lists = lists._replace(starts=starts, slots=np.empty(n, np.int32), boxes=np.empty(n, np.int32))
        kernels.enter_all(*given, True, starts[:-1].copy(), lists)
        return CeiPart(grid, lists)


def count_lists(n_cells: int, k: int) -> int:
    """How many lists there are over a number of cells.

    >>> count_lists(10, 2)
    35
    """
    return 1 + n_cells + (2 << k) * -(-n_cells >> k)
