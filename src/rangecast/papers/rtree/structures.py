"""`rtree`: a main-memory R*-tree over the boxes, and searching it for a batch of events at once.

Sources: Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system based
on extended R-tree search algorithm with multiple inputs" (2004), for the batch search; Beckmann and
others (1990) for the R*-tree; Leutenegger and others (1997) for loading at once. A node has up to
`node_capacity` children (10, the paper's default), a leaf up to `leaf_capacity` boxes (20).

    array           dtype    shape              meaning
    header          int64    4                  root, nodes ever used, head and length of the free list
    lows, highs     int64    (n, d, width)      closed boxes of a node's entries, attribute by attribute
    children        int32    (n, width)         nodes below, or in a leaf box numbers of the catalog
    counts          int32    n                  entries in use
    levels          int32    n                  0 in leaves, one more in each level above
    parents         int32    n                  the node above, -1 at the root; the next one if free
    leaves          int32    >= n_boxes         the leaf that holds a box, -1 when none does
    floors, scales  float64  d                  the data's span, for volumes and margins only

Every node but the root keeps 40 % of its capacity, so the number of nodes is bounded by that of boxes:
room for that many is reserved, and pages of it that were never written cost nothing.

A first load is packed by sort-tile-recursive, later ones are inserted one by one, unless they are so many
that packing all again is quicker (`load="pack"`). `load="insert"` always inserts, as the paper does.

The batch search is in structures.py.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Estimate, Rows, each_once, join_rows
from rangecast.engine.boxes import ExpandedBoxes, grown
from rangecast.engine.checks import flat, hold, linked, shaped, within
from rangecast.engine.grid import estimate_selectivity
from rangecast.engine.index import Index
from rangecast.errors import OptionError, SubscriptionError
from rangecast.memory import check_fits, check_numbered
from rangecast.model import kernels as match_kernels
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.measuring import WALL, Clock
from rangecast.papers.rtree import kernels
from rangecast.papers.rtree.kernels import N_FREE, ROOT, USED, Tree
from rangecast.types.attributes import LAST, PRESENT, Codes

LOADS = ("pack", "insert")
_LEAST_SHARE = 0.4
# packed nodes keep some room, so that the first insertions do not split every one of them
_PACKED_SHARE = 0.9
# packing takes some 2 us per box and inserting 20 to 40 (12 attributes, a million boxes)
_REPACK = 8
# below _TOGETHER events there is little to share; 64 at a time are 60 % slower than _PIECE, 256 some 20 %
_TOGETHER = 8
_PIECE = 1024
_NODE_ARRAYS = ("lows", "highs", "children", "counts", "levels", "parents")


class _StoredTree(NamedTuple):
    """What a file holds: how many boxes the tree has, and its nodes without spare room."""

    held: int
    tree: Tree


class RTreeIndex(Index):
    """An R*-tree with batch search.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"), rc.Int("size"))
    >>> index = rc.open_index("rtree", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price < 10 and size > 2", 8: "price >= 5"}))
    >>> events = rc.Events.from_rows(schema, [{"price": 7, "size": 3}, {"price": 7}])
    >>> index.match(events).sort().ids.tolist(), index.height, index.estimate(events).workloads.tolist()
    ([7, 8, 8], 1, [1, 1])
    """

    name = "rtree"

    def _configure(
        self,
        node_capacity: int = 10,
        leaf_capacity: int = 20,
        load: str = "pack",
        memory_limit: int | None = None,
    ) -> None:
        for option, capacity in (("node_capacity", node_capacity), ("leaf_capacity", leaf_capacity)):
            if not 4 <= capacity <= 1024:
                raise OptionError(f"{option} must be within 4 and 1024, got {capacity}")
        if load not in LOADS:
            raise OptionError(f"load must be one of {', '.join(LOADS)}, got {load!r}")
        self._capacities = (node_capacity, leaf_capacity)
        self._leasts = tuple(max(2, int(c * _LEAST_SHARE)) for c in self._capacities)
        self._width = max(self._capacities) + 1
        self._load = load
        self._memory_limit = memory_limit
        self._version = 0
        self._visits = 0
        self._counting = threading.Lock()

    def _reset(self) -> None:
        d = len(self.schema)
        self._tree = self._room(64, np.zeros(4, np.int64), np.full(0, -1, np.int32), np.zeros(d), np.ones(d))
        self._tree.header[ROOT] = kernels.new_node(self._tree, 0)
        self._n_held = 0
        self._version += 1

    def _room(
        self,
        n_nodes: int,
        header: npt.NDArray[np.int64],
        leaves: npt.NDArray[np.int32],
        floors: npt.NDArray[np.float64],
        scales: npt.NDArray[np.float64],
    ) -> Tree:
        """A tree without nodes and room for some."""
        d, width = len(self.schema), self._width
        (capacity, leaf_capacity), (least, leaf_least) = self._capacities, self._leasts
        return Tree(
            header=header,
            sizes=np.array([capacity, least, leaf_capacity, leaf_least], np.int64),
            lows=np.empty((n_nodes, d, width), np.int64),
            highs=np.empty((n_nodes, d, width), np.int64),
            children=np.empty((n_nodes, width), np.int32),
            counts=np.empty(n_nodes, np.int32),
            levels=np.empty(n_nodes, np.int32),
            parents=np.empty(n_nodes, np.int32),
            leaves=leaves,
            floors=floors,
            scales=scales,
        )

    def _nodes_for(self, n_boxes: int) -> int:
        """The most nodes that a tree of so many boxes can have."""
        least, leaf_least = self._leasts
        return n_boxes // leaf_least * least // (least - 1) + 64

    @property
    def height(self) -> int:
        """How many levels of nodes there are; an empty tree has one."""
        with self._lock:
            self._resume()
            return self._height()

    def _height(self) -> int:
        tree = self._tree
        return int(tree.levels[tree.header[ROOT]]) + 1

    # changes

    def _check_capacity(self, subs: Subscriptions) -> None:
        per_node = self._node_bytes()
        nodes = 1.6 * subs.n_boxes / self._capacities[1] + 64
        check_fits(
            int(nodes * per_node),
            self._memory_limit,
            f"'rtree' with {subs.n_boxes:,} more boxes of {len(self.schema)} attributes",
            "a smaller leaf_capacity=, or the index 'bitmap' or 'scan', needs less",
        )

    def _add(self, first: int, last: int) -> None:
        self._version += 1
        k = last - first
        if self._load == "pack" and k * _REPACK >= self._n_held + k:
            held = np.flatnonzero(self._tree.leaves[:first] >= 0)
            self._pack(np.concatenate([held, np.arange(first, last)]))
            return
        if self._n_held == 0:
            self._measure_span(np.arange(first, last))
        self._reserve(self._n_held + k, last)
        self._change(np.empty(0, np.int64), first, last)
        self._n_held += k

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        self._version += 1
        boxes = self._catalog.box_numbers(slots)
        if self._load == "pack" and len(boxes) * _REPACK > self._n_held:
            self._tree.leaves[boxes] = -1
            self._pack(np.flatnonzero(self._tree.leaves >= 0))
            return
        # dissolved nodes are freed before their entries split others, so no room is needed
        self._change(boxes, 0, 0)
        self._n_held -= len(boxes)

    def _pack(self, numbers: npt.NDArray[np.int64]) -> None:
        """Rebuild the tree from these boxes, by sort-tile-recursive."""
        catalog = self._catalog
        self._reset()
        if not len(numbers):
            return
        self._measure_span(numbers)
        self._reserve(len(numbers), catalog.n_boxes)
        tree = self._tree
        tree.header[USED] = 0
        lows, highs = catalog.lows, catalog.highs
        level = 0
        while True:
            capacity, least = self._capacities[level == 0], self._leasts[level == 0]
            n_pages = -(-len(numbers) // max(int(capacity * _PACKED_SHARE), 2 * least - 1))
            columns = numbers if level == 0 else np.arange(len(numbers))
            centres = np.empty((len(lows), len(numbers)))
            kernels.box_centres(tree, lows, highs, columns, centres)
            widths = estimate_selectivity(
                ExpandedBoxes(lows, highs, catalog.box_slots, lows.shape[1]), columns
            )
            narrowest = np.argsort(widths, kind="stable")
            order = np.empty(len(numbers), np.int64)
            kernels.tile(centres[narrowest], widths[narrowest], n_pages, order)
            first = int(tree.header[USED])
            kernels.fill_pages(tree, level, lows, highs, numbers, order, n_pages)
            if n_pages == 1:
                break
            last = int(tree.header[USED])
            lows, highs = (np.empty((len(lows), n_pages), np.int64) for _ in range(2))
            kernels.node_covers(tree, first, last, lows, highs)
            numbers = np.arange(first, last)
            level += 1
        self._n_held = int((tree.leaves >= 0).sum())

    def _measure_span(self, numbers: npt.NDArray[np.int64]) -> None:
        """Take the span of each attribute's bounds, those that are open apart."""
        tree = self._tree
        for j in range(len(self.schema)):
            bounds = np.concatenate([self._catalog.lows[j, numbers], self._catalog.highs[j, numbers]])
            bounds = bounds[(bounds > PRESENT) & (bounds < LAST)]
            floor, ceiling = (float(bounds.min()), float(bounds.max())) if len(bounds) else (0.0, 0.0)
            tree.floors[j] = floor
            tree.scales[j] = 1 / (ceiling - floor) if ceiling > floor else 1.0

    def _reserve(self, n_held: int, n_boxes: int) -> None:
        """Room for a tree of so many boxes, whose numbers are below n_boxes."""
        tree = self._tree
        used, room = int(tree.header[USED]), len(tree.counts)
        if len(tree.leaves) < n_boxes:
            was = len(tree.leaves)
            leaves = grown(tree.leaves, was, n_boxes)
            leaves[was:] = -1
            tree = tree._replace(leaves=leaves)
        wanted = self._nodes_for(n_held)
        check_numbered(wanted, "the nodes of 'rtree'", "a larger leaf_capacity= needs fewer")
        if room < wanted:
            fresh = self._room(
                max(wanted, room + room // 2), tree.header, tree.leaves, tree.floors, tree.scales
            )
            for name in _NODE_ARRAYS:
                getattr(fresh, name)[:used] = getattr(tree, name)[:used]
            tree = fresh
        self._tree = tree

    def _change(self, gone: npt.NDArray[np.int64], first: int, last: int) -> None:
        # a third of a node, or all but one of its least, may wait at each level
        n, d = 32 * self._width, len(self.schema)
        pending = kernels.PendingEntries(
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty((n, d), np.int64),
            np.empty((n, d), np.int64),
        )
        catalog = self._catalog
        kernels.change_boxes(self._tree, gone, catalog.lows, catalog.highs, first, last, pending)

    # searches

    def _stab(self, codes: Codes) -> Rows:
        n = codes.shape[1]
        if n < _TOGETHER:
            return self._search(codes, codes, np.arange(n), *self._from_root(n))
        # a whole batch goes down together, past the leaves to the boxes: each node is read once for all
        # events that meet it, 5 times as fast as one by one in twelve attributes and 300,000 boxes
        rows = []
        for first in range(0, n, _PIECE):
            piece = np.ascontiguousarray(codes[:, first : first + _PIECE])
            descent = self._counted(descend(self._tree, piece, self._height(), self._version))
            rows.append((descent.firsts, self._catalog.box_slots[descent.nodes]))
        return join_rows(rows)

    def _counted(self, descent: Descent) -> Descent:
        with self._counting:
            self._visits += descent.visits
        return descent

    def _stab_from(self, codes: Codes, event: int, estimate: Estimate) -> Rows:
        # the nodes of an estimate are of no use once the tree has changed
        if not isinstance(estimate, Descent) or estimate.version != self._version:
            return self._stab(codes)
        firsts = estimate.firsts[event : event + 2]
        return self._search(codes, codes, np.zeros(1, np.int64), firsts, estimate.nodes)

    def _from_root(self, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        return np.arange(n + 1), np.full(n, self._tree.header[ROOT], np.int32)

    def _search(
        self,
        lows: Codes,
        highs: Codes,
        events: npt.NDArray[np.int64],
        firsts: npt.NDArray[np.int64],
        nodes: npt.NDArray[np.int32],
    ) -> Rows:
        state = np.zeros(2, np.int64)
        offsets = np.zeros(len(events) + 1, np.int64)
        visits = np.zeros(len(events), np.int64)
        out = np.empty(max(1024, 8 * len(events)), np.int32)
        tree, slots = self._tree, self._catalog.box_slots
        while not kernels.search(
            tree, slots, lows, highs, events, firsts, nodes, state, offsets, out, visits
        ):
            out = np.concatenate([out, np.empty_like(out)])
        with self._counting:
            self._visits += int(visits.sum())
        return offsets, out[: state[1]]

    def _estimate(self, codes: Codes, level: int | None) -> Descent:
        height = self._height()
        if level is None:
            level = max(0, height - 3)
        if level < 0:
            raise OptionError(f"level must be 0 for the root, or the steps down from it, got {level}")
        return self._counted(descend(self._tree, codes, min(level, height - 1), self._version))

    def overlapping(self, subs: Subscriptions) -> Matches:
        """For each of these subscriptions, the ids of those in the index that share an event with it.

        >>> import rangecast as rc
        >>> schema = rc.Schema(rc.Int("price"))
        >>> index = rc.open_index("rtree", schema)
        >>> index.insert(rc.Subscriptions.parse(schema, {7: "price < 10", 8: "price > 20"}))
        >>> index.overlapping(rc.Subscriptions.parse(schema, {1: "price between 10 and 30"})).row(0).tolist()
        [8]
        """
        if not isinstance(subs, Subscriptions):
            raise SubscriptionError(f"overlapping takes Subscriptions, got {type(subs).__name__}")
        subs = subs.reconciled(self.schema).expanded()
        n = subs.n_boxes
        lows, highs = np.ascontiguousarray(subs.lows), np.ascontiguousarray(subs.highs)
        with self._lock:
            self._resume()
            by_box, slots = self._search(lows, highs, np.arange(n), *self._from_root(n))
            names = self._catalog.ids
        return Matches(*each_once(by_box[subs.box_starts()], slots), names)

    @property
    def node_visits(self) -> int:
        """How many nodes all searches and estimates have looked at so far, each event by itself."""
        return self._visits

    # files and counts

    def _node_bytes(self) -> int:
        return self._width * (16 * len(self.schema) + 4) + 12

    def _structure_stats(self) -> dict[str, Any]:
        tree = self._tree
        nodes = int(tree.header[USED] - tree.header[N_FREE])
        counts, levels = tree.counts[: tree.header[USED]], tree.levels[: tree.header[USED]]
        # free nodes count nothing, and so does the one leaf of an empty tree
        leaves = max(int(((levels == 0) & (counts > 0)).sum()), 1)
        return {
            "bytes": int(tree.header[USED]) * self._node_bytes() + tree.leaves.nbytes,
            "height": self._height(),
            "nodes": nodes,
            "leaves": leaves,
            "leaf_fill": round(self._n_held / leaves / self._capacities[1], 3),
            "node_visits": self._visits,
        }

    def _structure(self) -> _StoredTree:
        tree, used = self._tree, int(self._tree.header[USED])
        nodes = {name: getattr(tree, name)[:used] for name in _NODE_ARRAYS}
        leaves = tree.leaves[: self._catalog.n_boxes]
        return _StoredTree(self._n_held, tree._replace(**nodes, leaves=leaves))

    def _take_structure(self, structure: _StoredTree) -> None:
        self._n_held, self._tree = structure
        self._version += 1

    def _check_structure(self) -> None:
        tree, d, width = self._tree, len(self.schema), self._width
        flat(tree, lows=3, highs=3, children=2)
        n = len(tree.counts)
        shaped("the header of a tree", tree.header, 4)
        shaped("lows of nodes", tree.lows, n, d, width)
        shaped("highs of nodes", tree.highs, n, d, width)
        shaped("children of nodes", tree.children, n, width)
        shaped("levels of nodes", tree.levels, n)
        within("the root", tree.header[:1], n)
        within("entries of nodes", tree.counts, width + 1)
        within("levels of nodes", tree.levels, 64)
        held = np.arange(width) < tree.counts[:, None]
        inner = tree.levels > 0
        below = tree.children[inner][held[inner]]
        # one parent each, so that no search comes to a node twice
        linked("children of nodes", n, below)
        within("children of nodes", below, n)
        above = np.repeat(tree.levels[inner], tree.counts[inner])
        hold("that children are one level below", (tree.levels[below] == above - 1).all())
        within("boxes of leaves", tree.children[~inner][held[~inner]], self._catalog.n_boxes)


# The order in which a batch of events is answered, and the level at which an R-tree is asked for it.
#
# Source: Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system based
# on extended R-tree search algorithm with multiple inputs" (2004). When many events arrive at once, each
# waits for those before it; the mean response is least when the shortest go first (sec. 3), for which an
# index must say beforehand which are short. `ShortestFirst` does this over every index that can estimate.
#
# In a tree the estimate is the better the deeper it looks, and costs the more (sec. 4.1). `AdaptiveLevel`
# finds the level with the least mean response while batches come and subscriptions change (sec. 4.2). It
# is pure logic: it is told means and says levels. Where we depart from the paper:
#
# - At the root and at the leaves one neighbour is missing; a loop there tries two levels, not three.
# - A tie counts as stable: the paper's strict comparison would go on for ever on a flat curve. Where the
#   current level is worse than both neighbours, for which the paper has no rule, we take the better one.
# - The paper keeps a state per batch size. Since sizes vary freely, we keep one for each doubling of the
#   size (8 to 15, 16 to 31, ...), unless `exact_sizes`; a mean counts by its share of the size, to which
#   it is nearly proportional.
# - Nothing says where to start; we start in the middle of the tree.


class Response(NamedTuple):
    """One event's answer; `seconds` from the arrival of its batch, without the reader's own time."""

    event: int
    ids: npt.NDArray[Any]
    seconds: float


class BatchTimes(NamedTuple):
    """What a batch took: the estimate, the mean response of its events, and all of it together."""

    events: int
    level: int | None
    estimate_seconds: float
    mean_seconds: float
    total_seconds: float


class ShortestFirst:
    """Answers batches event by event, the one with the least work first.

    `level` is the level of the estimate in an index that has levels: a number, None for the index's own
    choice, or an AdaptiveLevel, which is then told of each batch that is read to its end. `clock` may be
    any counter that only grows, such as an R-tree's `node_visits`.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> index = rc.open_index("direct", schema)
    >>> texts = {i: "price < 10" for i in range(600)} | {600: "price = 50"}
    >>> index.insert(rc.Subscriptions.parse(schema, texts))
    >>> schedule = rc.ShortestFirst(index)
    >>> batch = rc.Events.from_rows(schema, [{"price": 5}, {"price": 50}])
    >>> [(response.event, len(response.ids)) for response in schedule.match_each(batch)]
    [(1, 1), (0, 600)]
    >>> schedule.last.mean_seconds <= schedule.last.total_seconds
    True
    """

    def __init__(self, index: Index, level: int | AdaptiveLevel | None = None, clock: Clock = WALL) -> None:
        self.index = index
        self.level = level
        self.last: BatchTimes | None = None
        self._clock = clock

    def match_each(self, events: Events) -> Iterator[Response]:
        """The answers in the order of their completion."""
        size = len(events)
        level = self.level
        if isinstance(level, AdaptiveLevel):
            height = getattr(self.index, "height", None)
            if height is None:
                raise OptionError(f"index {self.index.name!r} has no levels to adapt; rtree has")
            level = level.choose(size, height, self.index.updates)
        began = self._clock()
        estimate = self.index.estimate(events, level)
        estimated = self._clock() - began
        total, spent = 0.0, estimated
        for response in respond(self.index, events, estimate, self._clock, estimated):
            total += response.seconds
            spent = response.seconds
            yield response
        mean = total / size if size else 0.0
        self.last = BatchTimes(size, estimate.level, estimated, mean, spent)
        if isinstance(self.level, AdaptiveLevel) and level is not None:
            self.level.record(size, level, mean)


def respond(
    index: Index,
    events: Events,
    estimate: Estimate | None = None,
    clock: Clock = WALL,
    spent: float = 0.0,
) -> Iterator[Response]:
    """Time an index's `match_each`: in the order of arrival, or by an estimate that took `spent`."""
    steps = index.match_each(events, estimate)
    while True:
        began = clock()
        step = next(steps, None)
        spent += clock() - began
        if step is None:
            return
        yield Response(*step, spent)


@dataclass
class LevelState:
    """What AdaptiveLevel knows of one batch size: its level, and the loop that checks it."""

    level: int
    height: int
    stable: bool = False
    updates: int = 0
    batches: int = 0
    sums: dict[int, float] = field(default_factory=dict)

    @property
    def candidates(self) -> list[int]:
        """The levels of a loop, in the order of their turns: the current one, the upper, the lower."""
        around = (self.level, self.level - 1, self.level + 1)
        return [level for level in around if 0 <= level < self.height]

    def restart(self, level: int) -> None:
        """Begin a new loop around a level."""
        self.level = level
        self.stable = False
        self.batches = 0
        self.sums = {}


class AdaptiveLevel:
    """Finds the level of the least mean response, and finds it again after updates.

    A loop gives each of three levels `loops` batches in turn, then compares the sums. When the current
    level is the best it is stable: it is used until `threshold` updates have come; otherwise the better
    neighbour becomes the current level and another loop begins.

    >>> adaptive = AdaptiveLevel(threshold=1_000, loops=1)
    >>> def batch(updates):
    ...     level = adaptive.choose(100, height=6, updates=updates)
    ...     adaptive.record(100, level, abs(level - 4) + 1.0)
    ...     return level
    >>> [batch(updates=0) for _ in range(8)]
    [3, 2, 4, 4, 3, 5, 4, 4]
    >>> [batch(updates=1_000) for _ in range(4)]
    [4, 3, 5, 4]
    """

    def __init__(
        self, threshold: int = 300_000, loops: int = 16, start: int | None = None, exact_sizes: bool = False
    ) -> None:
        for option, value, least in (("threshold", threshold, 1), ("loops", loops, 1), ("start", start, 0)):
            if value is not None and value < least:
                raise OptionError(f"{option} must be at least {least}, got {value}")
        self.threshold = threshold
        self.loops = loops
        self._start = start
        self._exact = exact_sizes
        self._states: dict[int, LevelState] = {}

    def _key(self, size: int) -> int:
        return size if self._exact else size.bit_length()

    def state(self, size: int) -> LevelState | None:
        """What is known of batches of a size; None before the first one."""
        return self._states.get(self._key(size))

    def choose(self, size: int, height: int, updates: int) -> int:
        """The level for the next batch of a size, in a tree of this height that has seen this many
        updates."""
        state = self._states.get(self._key(size))
        if state is None:
            start = height // 2 if self._start is None else self._start
            state = LevelState(min(start, height - 1), height, updates=updates)
            self._states[self._key(size)] = state
        if state.stable and updates - state.updates >= self.threshold:
            state.restart(state.level)
        if state.height != height:
            # other levels are there to try than the loop has begun with
            moved = min(state.level, height - 1)
            if not state.stable or moved != state.level:
                state.restart(moved)
            state.height = height
        if state.stable:
            return state.level
        # a loop that is under way when updates come ends with them counted
        state.updates = updates
        return state.candidates[state.batches % len(state.candidates)]

    def record(self, size: int, level: int, mean: float) -> None:
        """Record the mean response of a batch that was searched at the level that `choose` gave."""
        state = self._states.get(self._key(size))
        if state is None or state.stable or size == 0:
            return
        levels = state.candidates
        if level != levels[state.batches % len(levels)]:
            # of a batch that was chosen before the loop was restarted
            return
        state.sums[level] = state.sums.get(level, 0.0) + mean / size
        state.batches += 1
        if state.batches < self.loops * len(levels):
            return
        # the current level comes first, and min keeps the first of equals
        best = min(levels, key=lambda each: state.sums[each])
        if best == state.level:
            state.stable = True
        else:
            state.restart(best)


# The batch search of an R-tree: how much work each event of a batch will be, and where to go on.
#
# Source: Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system based
# on extended R-tree search algorithm with multiple inputs" (2004), sec. 3. It has two steps. The estimate
# takes all events of a batch down the tree together, to a given level: each node on the way is read once,
# with the list of events that meet it, and the number of nodes where an event ends is its workload. The
# events are then searched one by one from those nodes, the least workload first, so that cheap events do
# not wait for expensive ones (structures.py).
#
# Where we depart:
#
# - The paper recurses node by node with an intersect buffer per level; we go level by level, which reads
#   the same nodes with the same lists and keeps one buffer for a whole level.
# - `level` counts the steps down from the root, so 0 is the root alone, and height - 1 the leaves. The
#   paper's pseudo-code numbers the root 1, so that its levels 0 and 1 are alike.
# - Nodes that the estimate has passed are not searched again. So the work is that of an ordinary search,
#   node for node, but for putting the lists of nodes in order (`Descent.visits` and `node_visits` say).


class Descent(Estimate):
    """The workload table of a batch: the nodes of one level at which each event's search goes on."""

    def __init__(
        self,
        firsts: npt.NDArray[np.int64],
        nodes: npt.NDArray[np.int32],
        level: int,
        visits: int,
        version: int,
    ) -> None:
        super().__init__(np.diff(firsts), level)
        self.firsts = firsts
        self.nodes = nodes
        self.visits = visits
        self.version = version


class _Frontier(NamedTuple):
    """Nodes of one level, with the events that meet each: the intersect buffers of the whole level."""

    nodes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    events: npt.NDArray[np.int32]

    def descended(self, tree: Tree, codes: Codes) -> _Frontier:
        """The frontier one level further down."""
        state = np.zeros(3, np.int64)
        n, width = len(self.nodes), tree.children.shape[1]
        nodes = np.empty(n * width, np.int32)
        offsets = np.empty(n * width + 1, np.int64)
        # what one node may give at most must fit, however few events go on
        widest = int(np.diff(self.offsets).max(initial=0)) * width
        events = np.empty(max(2 * len(self.events), widest), np.int32)
        while not kernels.descend(tree, codes, codes, *self, state, nodes, offsets, events):
            events = np.concatenate([events, np.empty_like(events)])
        k, m = state[1:]
        return _Frontier(nodes[:k], offsets[: k + 1], events[:m])


def descend(tree: Tree, codes: Codes, level: int, version: int) -> Descent:
    """The workload table of a batch at a level, which must be one of the tree's."""
    n = codes.shape[1]
    frontier = _Frontier(
        np.full(min(n, 1), tree.header[ROOT], np.int32),
        np.array([0, n] if n else [0]),
        np.arange(n, dtype=np.int32),
    )
    visits = 0
    for _ in range(level):
        visits += len(frontier.events)
        frontier = frontier.descended(tree, codes)
    spread = np.empty(len(frontier.events), np.int32)
    kernels.spread(frontier.nodes, frontier.offsets, spread)
    firsts = np.zeros(n + 1, np.int64)
    nodes = np.empty(len(spread), np.int32)
    match_kernels.group_pairs(frontier.events, spread, len(spread), firsts, nodes)
    return Descent(firsts, nodes, level, visits, version)


# Events that arrive one by one: what shortest first does to the mean, to the tail and to long events.
#
# The batch search paper (Wang, Zhang and Kitsuregawa, 2004) weighs the mean response of a batch that is there
# at once. Here events arrive as a process and wait for one server, which takes the next one when it is done
# with the last: the one that came first, or the one with the least work of those that wait. Shortest first
# has the least mean of all orders that do not interrupt; who pays for it are the longest events, which may be
# passed again and again.
#
#     process    arrivals
#     poisson    gaps drawn from an exponential distribution
#     bursts     groups of some events at once, groups as a Poisson process

EventTimes = npt.NDArray[np.float64]
ORDERS = ("arrival", "shortest")


class ResponseTimes(NamedTuple):
    """Response times of many events: mean, tail, the longest, and the mean of the tenth with most work."""

    mean: float
    p99: float
    longest: float
    long_events: float


def poisson(n: int, load: float, service: EventTimes, rng: np.random.Generator) -> EventTimes:
    """Arrivals of n events that keep a server busy for a share `load` of the time."""
    _check_load(load)
    times: EventTimes = np.cumsum(rng.exponential(float(service.mean()) / load, n))
    return times


def bursts(n: int, load: float, service: EventTimes, size: int, rng: np.random.Generator) -> EventTimes:
    """The same load in groups of `size` events that arrive together."""
    _check_load(load)
    if size < 1:
        raise OptionError(f"size must be at least 1, got {size}")
    groups = np.cumsum(rng.exponential(size * float(service.mean()) / load, -(-n // size)))
    times: EventTimes = np.repeat(groups, size)[:n]
    return times


def respond_in(order: str, arrivals: EventTimes, service: EventTimes, estimates: Any = None) -> EventTimes:
    """The response time of each event; the order goes by `estimates`, or else by the service itself.

    >>> respond_in("arrival", np.zeros(2), np.array([5.0, 1.0])).tolist()
    [5.0, 6.0]
    >>> respond_in("shortest", np.zeros(2), np.array([5.0, 1.0])).tolist()
    [6.0, 1.0]
    """
    if order not in ORDERS:
        raise OptionError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    keys = service if estimates is None else np.asarray(estimates, np.float64)
    waiting: list[tuple[float, int]] = []
    responses = np.zeros(len(service))
    now, came = 0.0, 0
    for _ in range(len(service)):
        if not waiting:
            now = max(now, float(arrivals[came]))
        while came < len(arrivals) and arrivals[came] <= now:
            heapq.heappush(waiting, (float(keys[came]) if order == "shortest" else 0.0, came))
            came += 1
        _, event = heapq.heappop(waiting)
        now += float(service[event])
        responses[event] = now - arrivals[event]
    return responses


def summed_up(responses: EventTimes, service: EventTimes) -> ResponseTimes:
    """Mean and tail of the responses, and what the tenth of the events with the most work waits."""
    long = service >= np.quantile(service, 0.9)
    return ResponseTimes(
        float(responses.mean()),
        float(np.quantile(responses, 0.99)),
        float(responses.max()),
        float(responses[long].mean()),
    )


def _check_load(load: float) -> None:
    if not 0 < load < 1:
        raise OptionError(f"load must be above 0 and below 1, got {load}")
