"""`ubtree`: boxes as points of twice as many dimensions, in a B+tree along the Z curve.

Source: Wang, Zhang and Kitsuregawa, "UB-tree based efficient predicate index with dimension transform
for pub/sub system" (2004). An interval [start, end] of one attribute is a point of two coordinates, and
an event's value v asks for the points in [first, v] x [v, last] (sec. 3). So:

    predicate             point
    =                     on the diagonal
    one side bounded      on the border
    not used              the corner (first, last)
    start > end           nowhere: dead space, which no event's box meets

A box of d attributes is a point of 2 d coordinates; its Z-address is the key of a B+tree (zorder/tree.py).
The search goes from region to region of the curve (a region is what a leaf holds): filter the leaf's
entries, then jump to the next address that is in the event's box (zorder/curve.py).

Two forms, as in the paper. `plain` filters by decoding addresses. `optimised` (sec. 4.2, 4.3) keeps with
the entry its coordinates and its cell in each of a few grid tables; a table covers a group of attributes,
each cut into parts, and has one cell for each combination of (start part, end part) that is not dead.
Per event the cells that its box meets are set, and an entry whose cell is not set in some table is not
filtered at all.

    array     dtype    shape               meaning
    tree      ZTree                        entries are box numbers; columns: cell ids, then starts and ends
    grids     Grid     d                   the cells of each attribute, at most `cells`
    members   int64    (tables, longest)   the attributes of each grid table, then -1
    parts     int64    (tables, longest)   into how many parts each is cut
    checked   int64    <= d                the attributes that some box bounds, most selective first

Where we depart: coordinates are cells of a Grid, so any type, missing values and values outside a domain
have theirs; one cell per code where a domain has up to 65,536 values (the paper's shorts), and where a cell
holds more, a box that begins or ends in it is compared with the event's code. A leaf is stored by
column, so a grid table's pass reads two bytes per entry. A table has at most 65,536 cells (15^4 = 50,625 in
the paper), so that a cell id takes two bytes, and a group of fewer attributes is cut finer. Deleting is
exact: equal addresses are ordered by box number. When there are four times as many boxes as when grids
and tables were chosen from the data, they are chosen again and the tree is loaded again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.durable.arrays import Arrays
from rangecast.engine.answers import Numbers, Request, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, counted, flat, hold, linked, shaped, within
from rangecast.engine.grid import Grid, estimate_selectivity
from rangecast.engine.index import Index
from rangecast.engine.parts import Part, StaticIndex
from rangecast.errors import OptionError
from rangecast.memory import check_fits
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.ubtree import kernels
from rangecast.papers.ubtree.kernels import CellEvents, IntervalTrees, Tables
from rangecast.types.attributes import LAST, MISSING, Attribute, Codes
from rangecast.zorder.curve import ZCurve
from rangecast.zorder.kernels import HEIGHT, MAX_HEIGHT, N_STATE, ROOT, TreeArrays
from rangecast.zorder.tree import FANOUT, ZTree

FORMS = {"plain": kernels.PLAIN, "optimised": kernels.OPTIMISED}
LEAF = 768
"""Entries a leaf holds: in the paper's best range; up to 2,048 searching costs the same, inserting more."""
MAX_CELLS = 2**16
GROUPS, GROUP = 2, 4
"""Grid tables by default, and attributes of each: the paper's choice."""
MAX_PARTS = 64
_REFIT = 4


class _StoredUBTree(NamedTuple):
    """What a file holds: what was chosen for how many boxes, and the tree."""

    fitted: int
    grids: list[Grid]
    members: npt.NDArray[np.int64]
    parts: npt.NDArray[np.int64]
    checked: npt.NDArray[np.int64]
    tree: TreeArrays


class UBTreeIndex(Index):
    """Boxes as points along the Z curve; see the module head.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99), rc.Category("symbol"))
    >>> index = rc.open_index("ubtree", schema, tables=[["price", "symbol"]])
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price > 9 and symbol = 'A'", 8: "price < 3"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 10, "symbol": "A"}, {"price": 2}])).counts.tolist()
    [1, 1]
    """

    name = "ubtree"

    def _configure(
        self,
        form: str = "optimised",
        tables: Sequence[Sequence[str]] | None = None,
        parts: int | None = None,
        leaf: int = LEAF,
        fanout: int = FANOUT,
        cells: int = MAX_CELLS,
        memory_limit: int | None = None,
    ) -> None:
        if form not in FORMS:
            raise OptionError(f"form must be one of {', '.join(map(repr, FORMS))}, got {form!r}")
        if not 5 <= cells <= MAX_CELLS:
            raise OptionError(f"cells must be within 5 and {MAX_CELLS}, got {cells}")
        if parts is not None and not 1 <= parts <= MAX_PARTS:
            raise OptionError(f"parts must be within 1 and {MAX_PARTS}, got {parts}")
        self._form = FORMS[form]
        self._parts = parts
        self._groups = None if tables is None else self._named_groups(tables)
        self._leaf, self._fanout, self._cells = leaf, fanout, cells
        self._memory_limit = memory_limit
        self._tally = threading.Lock()
        self._counters: Numbers = np.zeros(kernels.N_COUNTERS, np.int64)
        ZTree(1, 0, leaf, fanout)  # refuses sizes that no tree can have

    def _named_groups(self, tables: Sequence[Sequence[str]]) -> list[list[int]]:
        if isinstance(tables, str) or any(isinstance(group, str) for group in tables):
            raise OptionError(f"tables= takes groups of attribute names, got {tables!r}")
        groups = [[self.schema.position(name) for name in group] for group in tables]
        named = [j for group in groups for j in group]
        if len(set(named)) != len(named) or not all(groups):
            raise OptionError(f"tables= names each attribute once, in groups of one or more, got {tables!r}")
        for group in groups:
            if _pairs(self._parts or 1) ** len(group) > MAX_CELLS:
                raise OptionError(
                    f"a grid table has at most {MAX_CELLS:,} cells, got {len(group)} attributes of "
                    f"{_pairs(self._parts or 1)} cells each; take smaller groups or fewer parts"
                )
        return groups

    def _reset(self) -> None:
        d = len(self.schema)
        self._grids: list[Grid] = [Grid.cut_at([]) for _ in range(d)]
        self._members = np.empty((0, 0), np.int64)
        self._table_parts = np.empty((0, 0), np.int64)
        self._checked: Numbers = np.empty(0, np.int64)
        self._fitted = 0
        self._follow()
        self._tree = ZTree(self._curve.n_words, self._n_columns, self._leaf, self._fanout)

    def _follow(self) -> None:
        """What follows from the grids and tables."""
        self._n_cells = np.array([grid.n_cells for grid in self._grids], np.int64)
        self._wide = [wide_cells(grid) for grid in self._grids]
        self._curve = ZCurve([(grid.n_cells - 1).bit_length() for grid in self._grids for _ in range(2)])
        places = np.full((self._curve.n_dims, max(self._curve.bits)), -1, np.int32)
        for p, (k, shift) in enumerate(zip(self._curve.dims, self._curve.shifts, strict=True)):
            places[k, self._curve.bits[k] - 1 - shift] = p
        self._places = places
        sizes = [np.prod([_pairs(int(k)) for k in row if k > 0], dtype=np.int64) for row in self._table_parts]
        self._table_size = int(max(sizes, default=1))

    @property
    def _n_columns(self) -> int:
        return len(self._members) + 2 * len(self.schema) if self._form == kernels.OPTIMISED else 0

    def _check_capacity(self, subs: Subscriptions) -> None:
        d = len(self.schema)
        columns = 4 * d + 2 * GROUPS if self._form == kernels.OPTIMISED else 0
        needed = int((len(self._tree) + subs.n_boxes) * (4 * d + 8 + 4 + columns) * 1.3)
        check_fits(
            needed, self._memory_limit, f"'ubtree' of {d} attributes", "'counting' or 'scan' need less"
        )

    def _add(self, first: int, last: int) -> None:
        catalog = self._catalog
        chosen = self._groups is None or any(_from_data(attribute) for attribute in self.schema.attributes)
        total = len(self._tree) + last - first
        if not self._fitted or (chosen and total > _REFIT * self._fitted):
            self._load(np.flatnonzero(catalog.alive[catalog.box_slots[: catalog.n_boxes]]))
            return
        numbers = np.arange(first, last)
        lows, highs = catalog.lows[:, numbers], catalog.highs[:, numbers]
        bounded = np.flatnonzero(((lows != MISSING) | (highs != LAST)).any(axis=1))
        self._checked = np.concatenate([self._checked, np.setdiff1d(bounded, self._checked)])
        points = self._points(numbers)
        self._tree.insert(self._curve.encode(points), numbers, self._columns(points))

    def _load(self, numbers: Numbers) -> None:
        """Choose grids and tables for these boxes and lay them out again."""
        boxes = self._catalog.boxes
        shares = estimate_selectivity(boxes, numbers)
        order = np.argsort(shares, kind="stable")
        self._grids = [
            fit_grid(attribute, boxes.lows[j, numbers], boxes.highs[j, numbers], self._cells)
            for j, attribute in enumerate(self.schema.attributes)
        ]
        bounded = np.array(
            [
                bool((boxes.lows[j, numbers] != MISSING).any() or (boxes.highs[j, numbers] != LAST).any())
                for j in range(len(self.schema))
            ],
            np.bool_,
        )
        self._checked = order[bounded[order]].astype(np.int64)
        self._lay_tables(self._groups if self._groups is not None else self._chosen_groups())
        self._follow()
        self._fitted = max(len(numbers), 1)
        points = self._points(numbers)
        self._tree = ZTree(self._curve.n_words, self._n_columns, self._leaf, self._fanout)
        self._tree.insert(self._curve.encode(points), numbers, self._columns(points))

    def _chosen_groups(self) -> list[list[int]]:
        """The most selective attributes in groups of four, the best ones together."""
        best = self._checked[: GROUPS * GROUP].tolist()
        return [best[a : a + GROUP] for a in range(0, len(best), GROUP)]

    def _lay_tables(self, groups: list[list[int]]) -> None:
        if self._form == kernels.PLAIN:
            groups = []
        longest = max(map(len, groups), default=0)
        self._members = np.full((len(groups), longest), -1, np.int64)
        self._table_parts = np.zeros((len(groups), longest), np.int64)
        for t, group in enumerate(groups):
            self._members[t, : len(group)] = group
            self._table_parts[t, : len(group)] = self._parts or finest_parts(len(group))

    def _points(self, numbers: Numbers) -> npt.NDArray[np.uint16]:
        """Boxes as points: rows 2 j and 2 j + 1 are the cells of start and end of attribute j."""
        out = np.empty((2 * len(self._grids), len(numbers)), np.uint16)
        for j, grid in enumerate(self._grids):
            out[2 * j] = grid.locate(self._catalog.lows[j, numbers])
            out[2 * j + 1] = grid.locate(self._catalog.highs[j, numbers])
        return out

    def _columns(self, points: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16] | None:
        if self._form == kernels.PLAIN:
            return None
        ids = np.empty((len(self._members), points.shape[1]), np.uint16)
        kernels.cell_ids(points, self._members, self._table_parts, self._n_cells, ids)
        return np.concatenate([ids, points])

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        firsts, lasts = self._catalog.first_boxes[slots], self._catalog.first_boxes[slots + 1]
        counts = lasts - firsts
        numbers = np.repeat(lasts - np.cumsum(counts), counts) + np.arange(counts.sum())
        self._tree.delete(self._curve.encode(self._points(numbers)), numbers)

    def match(
        self, events: Events | Mapping[str, Any], threads: int = 1, limit: int | None = None
    ) -> Matches:
        with self._lock:
            self._counters[:] = 0
            found = super().match(events, threads, limit)
            self._last.update(
                last_jumps=int(self._counters[kernels.JUMPS]),
                last_regions=int(self._counters[kernels.REGIONS]),
                last_entries=int(self._counters[kernels.ENTERED]),
                last_candidates=int(self._counters[kernels.FILTERED]),
            )
            return found

    def _stab(self, codes: Codes) -> Rows:
        return self._search(codes, self._form)

    def _search(self, codes: Codes, form: int) -> Rows:
        cells = np.empty(codes.shape, np.int64)
        wides = np.empty(codes.shape, np.bool_)
        for j, grid in enumerate(self._grids):
            cells[j] = grid.locate(codes[j])
            wides[j] = self._wide[j][cells[j]]
        events = CellEvents(codes, cells, wides)
        tables = Tables(
            self._curve.dims,
            self._curve.shifts,
            self._places,
            self._n_cells,
            self._checked,
            self._members,
            self._table_parts,
            self._table_size,
        )
        tree, boxes = self._tree.arrays, self._catalog.boxes
        offsets = np.zeros(codes.shape[1] + 1, np.int64)
        out = np.empty(max(4096, 16 * codes.shape[1]), np.int32)
        counters = np.zeros_like(self._counters)
        done = 0
        while True:
            at = int(offsets[done])
            done = int(
                kernels.stab(form, tree, tables, events, boxes.arrays, done, at, offsets, out, counters)
            )
            if done == codes.shape[1]:
                break
            out = np.concatenate([out, np.empty(len(out), np.int32)])
        with self._tally:
            self._counters += counters
        return offsets, out[: offsets[-1]]

    def _structure_stats(self) -> dict[str, Any]:
        return {
            "bytes": self._tree.nbytes + sum(grid.cuts.nbytes for grid in self._grids),
            "address_bits": len(self._curve.dims),
            "grid_tables": len(self._members),
            "grid_table_cells": self._table_size if len(self._members) else 0,
            **self._tree.stats(),
        }

    def _structure(self) -> _StoredUBTree:
        members, parts = self._members, self._table_parts
        return _StoredUBTree(self._fitted, self._grids, members, parts, self._checked, self._tree.arrays)

    def _take_structure(self, structure: _StoredUBTree) -> None:
        self._fitted, self._grids, self._members, self._table_parts, self._checked, tree = structure
        d = len(self.schema)
        flat(structure, members=2, parts=2)
        hold("that each attribute has a grid", len(self._grids) == d)
        for grid in self._grids:
            grid.check()
            hold("that cells are numbered in 16 bits", grid.n_cells <= MAX_CELLS)
        shaped("parts of tables", self._table_parts, *self._members.shape)
        within("attributes of tables", self._members, d, -1)
        within("parts of tables", self._table_parts, MAX_PARTS + 1)
        hold("that attributes of tables have parts", ((self._members >= 0) == (self._table_parts > 0)).all())
        within("attributes to be checked", self._checked, d)
        self._follow()
        hold("that tables have as many cells as can be", self._table_size <= MAX_CELLS)
        self._tree = ZTree.of(tree)

    def _check_structure(self) -> None:
        tree = self._tree.arrays
        flat(tree, keys=3, entries=2, columns=3, children=2, node_keys=3, node_ties=2)
        n_leaves, capacity = tree.entries.shape
        n_nodes, fanout = tree.children.shape
        n_words, n_columns = self._curve.n_words, self._n_columns
        shaped("states of the tree", tree.state, N_STATE)
        shaped("entries of leaves", tree.counts, n_leaves)
        shaped("leaves that follow", tree.nexts, n_leaves)
        shaped("addresses of leaves", tree.keys, n_leaves, capacity, n_words)
        shaped("columns of leaves", tree.columns, n_leaves, n_columns, capacity)
        shaped("children of nodes", tree.node_counts, n_nodes)
        shaped("bounds of nodes", tree.node_keys, n_nodes, fanout, n_words)
        shaped("bounds of nodes", tree.node_ties, n_nodes, fanout)
        within("the height of the tree", tree.state[[HEIGHT]], MAX_HEIGHT)
        # level by level, and no block twice: what is used of the room, and no more than there is
        blocks = tree.state[[ROOT]]
        for _ in range(int(tree.state[HEIGHT])):
            within("nodes of the tree", blocks, n_nodes)
            within("children of nodes", tree.node_counts[blocks], fanout + 1, 1)
            held = np.arange(fanout) < tree.node_counts[blocks][:, None]
            blocks = tree.children[blocks][held]
            linked("children of nodes", max(n_nodes, n_leaves), blocks)
        within("leaves of the tree", blocks, n_leaves)
        # a search follows leaves of the tree alone; how many it does is bounded in the kernel
        leaves = np.zeros(n_leaves + 1, np.bool_)
        leaves[blocks] = leaves[-1] = True
        within("leaves that follow", tree.nexts[blocks], n_leaves, -1)
        hold("that leaves of the tree follow one another", leaves[tree.nexts[blocks]].all())
        within("entries of leaves", tree.counts[blocks], capacity + 1)
        held = np.arange(capacity) < tree.counts[blocks][:, None]
        within("boxes of leaves", tree.entries[blocks][held], self._catalog.n_boxes)
        for t in range(len(self._members)):
            within("cells of tables", tree.columns[blocks, t][held], self._table_size)


def fit_grid(attribute: Attribute, lows: Codes, highs: Codes, n_cells: int) -> Grid:
    """Grid.fit, but a domain that is up to three values too large keeps one value per cell.

    The values at its upper end share the outer cell, and only there codes are compared: so the 65,536
    values of a short are exact in 16 bits although two cells lie outside.
    """
    if attribute.domain is not None and not _from_data(attribute):
        low, high = attribute.domain
        if n_cells - 3 < high - low + 1 <= n_cells:
            return Grid.uniform(low, low + n_cells - 4, n_cells)
    return Grid.fit(attribute, lows, highs, n_cells)


def wide_cells(grid: Grid) -> npt.NDArray[np.bool_]:
    """Which cells hold more than one code."""
    firsts = grid.cuts
    lasts = np.append(firsts[1:] - 1, LAST)
    return np.asarray(firsts != lasts)


def finest_parts(n_attributes: int) -> int:
    """Into how many parts each of a group's attributes can be cut: the paper's 5 for a group of 4.

    >>> [finest_parts(k) for k in (1, 2, 3, 4, 8, 16)]
    [64, 22, 8, 5, 2, 1]
    """
    parts = 1
    while parts < MAX_PARTS and _pairs(parts + 1) ** n_attributes <= MAX_CELLS:
        parts += 1
    return parts


def _pairs(parts: int) -> int:
    return parts * (parts + 1) // 2


def _from_data(attribute: Attribute) -> bool:
    """Whether an attribute's grid is fitted to the boxes and not to a stated domain."""
    return attribute.domain is None or attribute.kind == "float"


# A part that counts satisfied predicates: what those of `counting` and `opindex` have in common.


class CountedPart(Part):
    """Matches by counting; a subclass names its kernel and the arrays that this takes."""

    kernel: ClassVar[Callable[..., Any]]
    """Answers events from one on while there is room, and gives the event that it got to."""

    @property
    def arrays(self) -> Any:
        """What the kernel takes, `slots` among it."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        self._tally = threading.Lock()
        self._satisfied = 0

    def stab(self, request: Request) -> Rows:
        codes = request.codes
        offsets = np.zeros(codes.shape[1] + 1, np.int64)
        out = np.empty(max(4096, 16 * codes.shape[1]), np.int32)
        counters = np.zeros(1, np.int64)
        done = 0
        while True:
            done = int(self.kernel(codes, self.arrays, done, int(offsets[done]), offsets, out, counters))
            if done == codes.shape[1]:
                break
            # no event matches more than all boxes, so the room that one needs is bounded
            out = np.concatenate([out, np.empty(max(len(out), len(self.arrays.slots)), np.int32)])
        with self._tally:
            self._satisfied += int(counters[0])
        return offsets, out[: offsets[-1]]


def hold_needed(boxes: npt.NDArray[np.int32], n: int, needed: npt.NDArray[Any]) -> None:
    """Raise unless a counter of each of n boxes, which are in range, comes by what it needs at most once."""
    shaped("predicates that boxes need", needed, n)
    # one that went around would give its box twice, beyond the room for one each
    if len(boxes) > np.iinfo(needed.dtype).max:
        counted("that boxes have the predicates they need", boxes, n, needed)


# `counting`: find the satisfied predicates of each attribute, count them per subscription.
#
# Source: the counting algorithm (Yan and Garcia-Molina, 1999), as Wang, Zhang and Kitsuregawa (2004, sec.
# 5) measure the UB-tree beside it: one index of one dimension per attribute says which predicates an
# event satisfies; each adds one to its box's counter, and a box is a match when its counter reaches the
# number of its predicates. An attribute that a box does not bound has no predicate and costs nothing.
#
#   array          dtype    shape          meaning
#   used           int64    k              the attributes that some box bounds
#   point_starts   int64    k + 1          the points of used attribute k are point_starts[k] ..
#   points         int64    n_points       distinct end points of its predicates, ascending
#   node_starts    int64    n_points + 1   the predicates of each point as a node of the tree
#   low_keys       int64    n_predicates   lows, ascending within a node
#   low_boxes      int32    n_predicates   their boxes
#   high_keys      int64    n_predicates   highs, descending within a node
#   high_boxes     int32    n_predicates   their boxes
#   needed         uint8    n              predicates of each box (16 or 32 bits for more than 255 attributes)
#   always         int32    any            boxes without a predicate
#   slots          int32    n              the slot of each box
#
# The index of one attribute is a static interval tree (Edelsbrunner's, over ranks as in Kriegel, Pötke and
# Seidl's relational interval tree, 2000): equality, half-intervals, intervals and "is missing" alike are
# found exactly, in one slice of a list per level, so a candidate is never checked. The papers leave the
# one-dimensional index open. Boxes are numbered within their part; live changes go through engine/parts.py.

_OF_A_TREE = ("points", "node_starts", "low_keys", "low_boxes", "high_keys", "high_boxes")


@dataclass(eq=False)
class CountingPart(CountedPart):
    """One interval tree per attribute over some boxes."""

    trees: IntervalTrees

    kernel = staticmethod(kernels.stab_trees)

    @property
    def arrays(self) -> IntervalTrees:
        return self.trees

    def check(self, boxes: Boxes, n_slots: int) -> None:
        t = self.trees
        flat(t)
        n, n_predicates = len(t.slots), len(t.low_boxes)
        within("attributes of trees", t.used, boxes.n_attributes)
        ascending("points of trees", t.point_starts, len(t.points), len(t.used) + 1)
        ascending("nodes of trees", t.node_starts, n_predicates, len(t.points) + 1)
        for name in ("low_keys", "high_keys", "high_boxes"):
            shaped(f"{name} of trees", getattr(t, name), n_predicates)
        hold("that counts are whole numbers", t.needed.dtype.kind == "u")
        shaped("counts of trees", t.needed, n)
        within("slots of trees", t.slots, n_slots)
        within("boxes without predicates", t.always, n)
        for name, held in (("low_boxes", t.low_boxes), ("high_boxes", t.high_boxes)):
            within(f"{name} of trees", held, n)
            hold_needed(held, n, t.needed)

    def stats(self) -> dict[str, int]:
        return {
            "predicates": len(self.trees.low_boxes),
            "points": len(self.trees.points),
            "satisfied_predicates": self._satisfied,
        }


class CountingIndex(StaticIndex):
    """Counts satisfied predicates; see the module head.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"), rc.Int("volume"))
    >>> index = rc.open_index("counting", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price > 9 and volume = 5", 8: "price < 30"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 10, "volume": 5}, {"price": 10}])).counts.tolist()
    [2, 1]
    """

    name = "counting"

    def _configure(self, memory_limit: int | None = None) -> None:
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        d, n = len(self.schema), len(numbers)
        needed: npt.NDArray[Any] = np.zeros(n, np.min_scalar_type(d))
        for j in range(d):
            bounded = (boxes.lows[j, numbers] != MISSING) | (boxes.highs[j, numbers] != LAST)
            needed = needed + bounded.astype(needed.dtype)
        check_fits(
            24 * int(needed.sum(dtype=np.int64)) + 6 * n,
            self._memory_limit,
            f"'counting' of {n:,} boxes",
            "'scan' needs less",
        )
        used = []
        trees: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _OF_A_TREE}
        for j in range(d):
            lows, highs = boxes.lows[j, numbers], boxes.highs[j, numbers]
            own = np.flatnonzero((lows != MISSING) | (highs != LAST)).astype(np.int32)
            if len(own):
                used.append(j)
                for name, array in _interval_tree(lows[own], highs[own], own).items():
                    trees[name].append(array)
        sizes = [len(points) for points in trees["points"]]
        # each tree numbers its entries from 0: put them one after the other
        total = 0
        for k, starts in enumerate(trees["node_starts"]):
            trees["node_starts"][k] = starts[:-1] + total
            total += int(starts[-1])
        trees["node_starts"].append(np.array([total], np.int64))
        dtypes = {"low_boxes": np.int32, "high_boxes": np.int32}
        arrays: Arrays = {
            name: np.concatenate([np.empty(0, dtypes.get(name, np.int64)), *parts])
            for name, parts in trees.items()
        }
        return CountingPart(
            IntervalTrees(
                used=np.array(used, np.int64),
                point_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
                **arrays,
                needed=needed,
                always=np.flatnonzero(needed == 0).astype(np.int32),
                slots=boxes.slots[numbers],
            )
        )


def _interval_tree(lows: Codes, highs: Codes, boxes: npt.NDArray[np.int32]) -> Arrays:
    """The points and the two sorted lists of one attribute's predicates."""
    points = np.unique(np.concatenate([lows, highs]))
    nodes = np.empty(len(lows), np.int64)
    low_ranks = np.searchsorted(points, lows) + 1
    high_ranks = np.searchsorted(points, highs) + 1
    kernels.forks(low_ranks, high_ranks, nodes)
    by_low = np.lexsort((low_ranks, nodes))
    by_high = np.lexsort((-high_ranks, nodes))
    node_starts = np.searchsorted(nodes[by_low], np.arange(1, len(points) + 2))
    return {
        "points": points,
        "node_starts": node_starts.astype(np.int64),
        "low_keys": lows[by_low],
        "low_boxes": boxes[by_low],
        "high_keys": highs[by_high],
        "high_boxes": boxes[by_high],
    }
