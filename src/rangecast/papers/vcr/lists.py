"""`vcr` as in its paper: a linked list of subscriptions per construct, changed in place.

Source: Wu, Chen and Yu 2004 (index.py). `storage="array"` keeps a header for each of the B Rx Ry
constructs, `storage="hash"` only those in use, in a table whose size is prime; the id is mixed
before the division, because ids in use lie close together (sec. 2.2.3). New entries go to the head
of a list; taking out walks the list (sec. 2.4).

    array      dtype   shape          meaning
    heads      int32   B Rx Ry, or H  first node of a construct's list, -1 when it is empty
    keys       int64   0, or H        hash: the id of the construct that has this place, -1 for none
    nodes      int32   (>= n, 2)      a box, and the node that follows in its list, -1 at the end
    needs      uint8   n_boxes        1 when a candidate must be compared with the box
    distances  int64   |Cov|          the distance table (constructs.py)
    state      int64   5              kernels/papers/vcr/lists.py

Departures. Coordinates are cells of a plane (plane.py), so that any value has one; a box that crosses
cells, or bounds other attributes too, is compared. A rectangle of width or height 0 has no construct:
it is listed as if it were 1 wide, and compared. ConstructRectangles share seams and, under "od", overlap, so
a point can meet a box twice: each event stamps the boxes it has met and skips those with its stamp.
A point near the left or lower border works out the ids of its constructs one by one. Open addressing
instead of chains: the table grows, to twice the size, before it is fuller than `max_load`. When a
large share is taken out at once, one sweep over all lists does it.

The plane and the sides are chosen when the first boxes come, and again when there are eight times as
many. Lx and Ly are by default the powers of two next below the median width and height, which is what
sec. 3.2 finds best.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Numbers, Rows
from rangecast.engine.boxes import Boxes, ExpandedBoxes, grown
from rangecast.engine.checks import flat, hold, listed, shaped, within
from rangecast.errors import CapacityError, OptionError
from rangecast.kernels.papers.vcr import lists as kernels
from rangecast.kernels.papers.vcr.lists import Cutting, RectangleLists
from rangecast.memory import check_fits
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.vcr.constructs import ConstructRectangles
from rangecast.papers.vcr.index import VcrIndex
from rangecast.papers.vcr.plane import (
    LEAST_AUTOMATIC,
    Plane,
    Rectangles,
    check_cells,
    check_entries,
    default_cells,
    log_of_side,
    plane_attributes,
)
from rangecast.types.attributes import LAST, MISSING, Codes

DEFAULT_CELLS = 4096
MOST_SIDE = 5
REFIT = 8
SWEEP_SHARE = 8

_NONE = np.empty(0, np.uint8)


class _StoredRectangleLists(NamedTuple):
    """What a file holds: what was chosen for how many boxes, how many are to be compared, and the lists."""

    plane: Plane | None
    constructs: tuple[int, int, int, int]
    fitted: int
    n_needs: int
    lists: RectangleLists


class RectangleListsIndex(VcrIndex):
    """The rectangle index of the paper; see the module head."""

    def _configure(
        self,
        storage: str = "array",
        on: Any = None,
        decomposition: str = "sd",
        Lx: int | None = None,
        Ly: int | None = None,
        lookup: str = "distance",
        cells: int | None = None,
        table: int | None = None,
        max_load: float = 0.5,
        memory_limit: int | None = None,
    ) -> None:
        check_cells(cells)
        if decomposition not in ("sd", "od"):
            raise OptionError(f"decomposition must be 'sd' or 'od', got {decomposition!r}")
        if lookup not in ("distance", "enumerate"):
            raise OptionError(f"lookup must be 'distance' or 'enumerate', got {lookup!r}")
        if table is not None and (storage != "hash" or not 1 <= table < 2**31):
            raise OptionError(f"table= takes a size below 2**31, with storage='hash', got {table!r}")
        if not 0 < max_load < 1:
            raise OptionError(f"max_load must lie between 0 and 1, got {max_load!r}")
        self._hashed = storage == "hash"
        self._on = plane_attributes(self.schema, on)
        self._overlapped = decomposition == "od"
        self._sides = log_of_side("Lx", Lx), log_of_side("Ly", Ly)
        self._by_distance = lookup == "distance"
        self._cells = cells
        self._table_size = table
        self._max_load = max_load
        self._memory_limit = memory_limit

    def _reset(self) -> None:
        self._plane: Plane | None = None
        self._constructs = ConstructRectangles(1, 1, 0, 0)
        self._fitted = 0
        self._n_needs = 0
        self._lists = RectangleLists(
            heads=np.empty(0, np.int32),
            keys=np.empty(0, np.int64),
            nodes=np.empty((0, 2), np.int32),
            needs=np.empty(0, np.uint8),
            distances=np.empty(0, np.int64),
            state=np.array([-1, 0, 0, 0, 0], np.int64),
        )

    def _check_capacity(self, subs: Subscriptions) -> None:
        boxes, numbers = (
            ExpandedBoxes(subs.lows, subs.highs, subs.owners, subs.n_boxes),
            np.arange(subs.n_boxes),
        )
        plane, constructs = self._plane, self._constructs
        if plane is None:
            plane, constructs = self._choose(boxes, numbers)
        self._check_room(plane.rectangles(boxes, numbers), constructs, int(self._lists.state[2]))

    def _add(self, first: int, last: int) -> None:
        numbers = np.arange(first, last)
        catalog = self._catalog
        boxes = catalog.boxes
        if self._plane is None or last > REFIT * self._fitted + 1024:
            living = np.flatnonzero(catalog.alive[catalog.box_slots[:last]])
            plane, constructs = self._choose(boxes, living)
            try:
                self._check_room(plane.rectangles(boxes, living), constructs, 0)
            except CapacityError:
                if self._plane is None:
                    raise
                # what is there works, only less well; better than to fail after all was checked
                self._fitted = len(living)
            else:
                self._start(plane, constructs, len(living))
                self._lists = self._lists._replace(needs=np.zeros(last, np.uint8))
                numbers = living
        assert self._plane is not None
        self._lists = self._lists._replace(needs=grown(self._lists.needs, first, last))
        held = self._plane.rectangles(boxes, numbers)
        needs = ~held.exact | (held.x0 == held.x1)
        if len(self._plane.on) == 2:
            needs |= held.y0 == held.y1
        for j in self._plane.others(boxes, numbers):
            needs |= (boxes.lows[j, numbers] != MISSING) | (boxes.highs[j, numbers] != LAST)
        self._lists.needs[numbers] = needs
        self._n_needs += int(np.count_nonzero(needs))
        self._insert(held, numbers)

    def _choose(self, boxes: Boxes, numbers: Numbers) -> tuple[Plane, ConstructRectangles]:
        """The plane and the sides for these boxes."""
        cells = self._cells or DEFAULT_CELLS
        room = max(2**24, 1024 * len(numbers))
        while True:
            plane = Plane.fit(self.schema, self._on, boxes, numbers, cells)
            held = plane.rectangles(boxes, numbers)
            kx = _side(held.x0, held.x1) if self._sides[0] is None else self._sides[0]
            ky = _side(held.y0, held.y1) if self._sides[1] is None else self._sides[1]
            constructs = ConstructRectangles(*plane.shape, kx, ky if len(plane.on) == 2 else 0)
            fine = self._cells is None and cells > LEAST_AUTOMATIC
            if fine and not held.mostly_exact and cells > default_cells(len(numbers)) >> 2:
                # edges cross cells however fine these are, and each more is more nodes
                cells >>= 1
            elif fine and not self._hashed and 4 * constructs.n_constructs > room:
                cells >>= 1
            else:
                return plane, constructs

    def _check_room(self, held: Rectangles, constructs: ConstructRectangles, listed: int) -> None:
        """Raise CapacityError unless headers and nodes of these rectangles fit, beside those listed."""
        if not self._hashed:
            n = constructs.n_constructs
            check_fits(
                4 * n,
                self._memory_limit,
                f"'vcr' with a header for each of {n:,} constructs",
                "fewer cells=, storage='hash' or storage='runs' need less",
            )
        wanted = listed + self._count(held, constructs)
        check_entries(wanted)
        check_fits(
            8 * wanted,
            self._memory_limit,
            f"'vcr' with {wanted:,} list entries, {len(held.x0):,} rectangles being added,",
            "larger Lx= and Ly=, fewer cells= or storage='runs' need less",
        )

    def _count(self, held: Rectangles, constructs: ConstructRectangles) -> int:
        counts = np.empty(len(held.x0), np.int64)
        kernels.count_pieces(*held[:4], constructs.kx, constructs.ky, self._overlapped, counts)
        return int(counts.sum())

    def _start(self, plane: Plane, constructs: ConstructRectangles, n_boxes: int) -> None:
        """Make empty lists."""
        self._reset()
        self._plane, self._constructs, self._fitted = plane, constructs, n_boxes
        n = constructs.n_constructs
        if self._hashed:
            n = next_prime(self._table_size or 1024)
        self._lists = self._lists._replace(
            heads=np.full(n, -1, np.int32),
            keys=np.full(n if self._hashed else 0, -1, np.int64),
            distances=constructs.distances() if self._by_distance else np.empty(0, np.int64),
        )

    def _insert(self, held: Rectangles, numbers: Numbers) -> None:
        listed, used = int(self._lists.state[2]), int(self._lists.state[1])
        wanted = max(listed + self._count(held, self._constructs), used)
        self._lists = self._lists._replace(nodes=_with_room(self._lists.nodes, used, wanted))
        cutting = self._cutting()
        at = 0
        while at < len(numbers):
            most = int(self._max_load * len(self._lists.keys))
            at = kernels.insert(*held[:4], numbers, at, cutting, most, self._lists)
            if at < len(numbers):
                self._rehash(2 * len(self._lists.keys))

    def _rehash(self, size: int) -> None:
        size = next_prime(size)
        keys, heads = np.full(size, -1, np.int64), np.full(size, -1, np.int32)
        kernels.rehash(self._lists.keys, self._lists.heads, keys, heads, self._lists.state)
        self._lists = self._lists._replace(keys=keys, heads=heads)

    def _cutting(self) -> Cutting:
        c = self._constructs
        rooms = [np.empty((n >> k) + k + 2, np.int64) for n, k in ((c.rx, c.kx), (c.ry, c.ky)) for _ in "xy"]
        return Cutting(c.rx, c.kx, c.ky, self._overlapped, *rooms)

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        catalog = self._catalog
        numbers = catalog.box_numbers(slots)
        if self._plane is None or not len(numbers):
            return
        if SWEEP_SHARE * len(numbers) > catalog.n_living:
            flags = np.zeros(catalog.n_boxes, np.uint8)
            flags[numbers] = 1
            kernels.sweep(flags, self._lists)
            return
        held = self._plane.rectangles(catalog.boxes, numbers)
        kernels.remove(*held[:4], numbers, self._cutting(), self._lists)

    def _stab(self, codes: Codes) -> Rows:
        n = codes.shape[1]
        offsets = np.zeros(n + 1, np.int64)
        out = np.empty(max(1024, 16 * n), np.int32)
        if self._plane is None:
            return offsets, out[:0]
        boxes, constructs = self._catalog.boxes, self._constructs
        xs, ys = self._plane.locate(codes)
        others = [j for j in range(len(codes)) if j not in self._plane.on]
        tested = np.array([*self._plane.on, *others], np.int64)
        stamps = np.zeros(boxes.n, np.int32)
        progress = np.zeros(3, np.int64)
        lists = self._lists if self._n_needs else self._lists._replace(needs=_NONE)
        rx, _, kx, ky = constructs
        while not kernels.stab(
            codes, xs, ys, rx, kx, ky, lists, tested, boxes.arrays, stamps, progress, offsets, out
        ):
            used = int(progress[1])
            more = np.empty(2 * len(out), np.int32)
            more[:used] = out[:used]
            out = more
        return offsets, out[: progress[1]]

    def _structure(self) -> _StoredRectangleLists:
        used = int(self._lists.state[1])
        lists = self._lists._replace(nodes=self._lists.nodes[:used])
        rx, ry, kx, ky = self._constructs
        return _StoredRectangleLists(self._plane, (rx, ry, kx, ky), self._fitted, self._n_needs, lists)

    def _take_structure(self, structure: _StoredRectangleLists) -> None:
        self._plane, constructs, self._fitted, self._n_needs, self._lists = structure
        self._constructs = ConstructRectangles(*constructs)

    def _check_structure(self) -> None:
        if self._plane is None:
            return
        lists, constructs, n_boxes = self._lists, self._constructs, self._catalog.n_boxes
        flat(lists, nodes=2)
        self._plane.check(len(self.schema))
        rx, ry, kx, ky = constructs
        hold("that constructs are those of a plane", (rx, ry) == self._plane.shape)
        hold("that constructs have sides", 0 <= kx < 16 and 0 <= ky < 16)
        if self._hashed:
            shaped("keys of lists", lists.keys, len(lists.heads))
            hold("that a table has room", bool((lists.keys == -1).any()))
        else:
            shaped("keys of lists", lists.keys, 0)
            shaped("heads of lists", lists.heads, constructs.n_constructs)
        # in a smaller plane no event is far enough from the border to use them
        if rx > 1 << kx and ry > 1 << ky:
            pivot = constructs.id(rx - 1 - (1 << kx), ry - 1 - (1 << ky), 1, 1)
            within("distances of constructs", lists.distances, constructs.n_constructs - pivot)
        shaped("nodes of lists", lists.nodes, len(lists.nodes), 2)
        shaped("states of lists", lists.state, 5)
        listed("lists", lists.nodes, 1, n_boxes, lists.heads, lists.state[:1])
        hold("that boxes are to be compared or not", not self._n_needs or len(lists.needs) >= n_boxes)

    def _structure_stats(self) -> dict[str, Any]:
        own = self._lists
        _, _, listed, _, active = own.state.tolist()
        c = self._constructs
        lists = 8 * int(self._lists.state[1])
        rest = (own.heads, own.keys, own.needs[: self._catalog.n_boxes], own.distances, own.state)
        stats: dict[str, Any] = {
            "bytes": lists + sum(array.nbytes for array in rest),
            "entries": listed,
            "activated": active,
            "headers": len(own.heads),
            "sides": (1 << c.kx, 1 << c.ky),
        }
        if self._hashed and len(own.keys):
            probes = np.zeros(2, np.int64)
            kernels.measure_probes(own.keys, own.heads, probes)
            stats["load_factor"] = round(active / len(own.keys), 4)
            stats["mean_probes"] = round(int(probes[0]) / max(active, 1), 3)
            stats["max_probes"] = int(probes[1])
        return stats


def next_prime(n: int) -> int:
    """The smallest prime that is not below n.

    >>> next_prime(1_800_000), next_prime(1)
    (1800017, 2)
    """
    n = max(n, 2)
    while any(n % d == 0 for d in range(2, int(n**0.5) + 1)):
        n += 1
    return n


def _with_room(nodes: npt.NDArray[np.int32], used: int, wanted: int) -> npt.NDArray[np.int32]:
    if wanted <= len(nodes):
        return nodes
    out = np.empty((max(wanted, len(nodes) * 3 // 2) if used else wanted, 2), np.int32)
    out[:used] = nodes[:used]
    return out


def _side(firsts: npt.NDArray[np.int32], lasts: npt.NDArray[np.int32]) -> int:
    """The logarithm of a maximal side for rectangles: next below the median."""
    if not len(firsts):
        return 0
    return min(max(int(np.median(lasts - firsts)), 1).bit_length() - 1, MOST_SIDE)
