"""`hint`: a hierarchy of partitions of one attribute, an interval in at most two of each level.

Source: Christodoulou, Bouros and Mamoulis, "HINT: A hierarchical index for intervals in main memory" (SIGMOD
2022). Level l cuts the domain into 2**l partitions, from the whole domain down to the cells of level m. An
interval is cut into the fewest partitions (their Algorithm 1), and stands in one of four lists of each:

    list    begins                ends                  what is left to compare with a value in the partition
    O_in    in the partition      in the partition      both ends
    O_aft   in the partition      behind it             its begin
    R_in    before it             in the partition      its end
    R_aft   before it             behind it             nothing

An event looks at one partition per level.

    array    dtype   shape                   meaning
    starts   int64   4 * (2**(m+1) - 1) + 1  where each list begins: levels from the top, partitions from the
                                             left, four lists each
    slots    int32   n_entries               the slot of each entry
    boxes    int32   n_entries               its box
    checked  int64   <= d                    the other attributes that some box bounds

Where we depart. The paper answers ranges; an event is a range of one value. The cells of level m are those
of a Grid, which takes values of any kind and size, so a first or last cell may be held in part; the paper
has whole numbers for that or prefixes of them. The entries that the paper compares are compared here too,
though its flags (sec. 3.2.2) would spare some on upper levels; m follows from the number of intervals and
not from a model of the costs (its sec. 3.2.3); the arrays of all partitions of a level are one, as its sec.
4.2 has it; its sorted subdivisions (4.1) are left out. Predicates on other attributes are checked per
candidate. Live changes go through engine/parts.py.
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
from rangecast.papers.contrib.kernels import Hierarchy

MOST_LEVELS = 20


@dataclass(eq=False)
class HintPart(Part):
    """The hierarchy over some boxes."""

    grid: Grid
    tree: Hierarchy

    def __post_init__(self) -> None:
        self._compared = np.zeros(1, np.int64)

    def check(self, boxes: Boxes, n_slots: int) -> None:
        tree, d = self.tree, boxes.n_attributes
        flat(tree)
        self.grid.check()
        hold("that a hierarchy is on an attribute", 0 <= tree.on < d)
        hold("that a hierarchy has levels", 0 <= tree.bottom <= MOST_LEVELS)
        hold("that every cell is in the hierarchy", self.grid.n_cells <= 1 << tree.bottom)
        ascending("lists of partitions", tree.starts, len(tree.slots), 4 * ((2 << tree.bottom) - 1) + 1)
        within("slots of partitions", tree.slots, n_slots)
        shaped("boxes of partitions", tree.boxes, len(tree.slots))
        within("boxes of partitions", tree.boxes, boxes.n)
        within("attributes of partitions", tree.checked, d)

    def stab(self, request: Request) -> Rows:
        codes, boxes = request.codes, request.boxes
        offsets = np.empty(codes.shape[1] + 1, np.int64)
        cells = self.grid.locate(codes[self.tree.on])
        # one place more: an entry is written before it is known whether it counts
        out = np.empty(kernels.count_partitions(cells, self.tree) + 1, np.int32)
        n = kernels.stab_partitions(codes, cells, self.tree, boxes.arrays, offsets, out, self._compared)
        return offsets, out[:n]

    def stats(self) -> dict[str, int]:
        return {
            "levels": self.tree.bottom + 1,
            "entries": len(self.tree.slots),
            "compared": int(self._compared[0]),
        }


class HintIndex(StaticIndex):
    """A hierarchy of partitions of one attribute; see the module head.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> index = rc.open_index("hint", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price between 10 and 20"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 20}, {"price": 21}])).counts.tolist()
    [1, 0]
    """

    name = "hint"

    def _configure(self, on: Any = None, m: int | None = None, memory_limit: int | None = None) -> None:
        if m is not None and not 3 <= m <= MOST_LEVELS:
            raise OptionError(f"m must be within 3 and {MOST_LEVELS}, got {m}")
        self._on = None if on is None else named_attributes(self.schema, on, 1)
        self._m = m
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        (on,) = self._on or choose_attributes(self.schema, None, 1, boxes, numbers)
        lows, highs = boxes.column(on, numbers)
        # about as many cells as intervals: fewer leave more to compare, more only empty lists
        m = min(16, max(3, len(numbers).bit_length())) if self._m is None else self._m
        grid = Grid.fit(self.schema[on], lows, highs, 1 << m)
        bottom = max(1, (grid.n_cells - 1).bit_length())
        firsts, lasts = grid.locate(lows), grid.locate(highs)
        starts = np.zeros(4 * ((2 << bottom) - 1) + 1, np.int64)
        kernels.count_entries(firsts, lasts, bottom, starts)
        n = int(starts[-1])
        check_fits(
            8 * n + 2 * starts.nbytes,
            self._memory_limit,
            f"'hint' on {self.schema[on].name!r} with {n:,} entries",
            "a smaller m=, or the index 'cells', needs less",
        )
        tree = Hierarchy(
            on=on,
            bottom=bottom,
            starts=starts,
            slots=np.empty(n, np.int32),
            boxes=np.empty(n, np.int32),
            checked=np.array([j for j in boxes.bounded(numbers) if j != on], np.int64),
        )
        kernels.fill_entries(firsts, lasts, numbers, boxes.slots, starts[:-1].copy(), tree)
        return HintPart(grid, tree)
