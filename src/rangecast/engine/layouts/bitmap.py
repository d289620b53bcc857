"""`bitmap`: blocks of boxes, and per block, attribute and cell a bitset of who overlaps the cell.

An event picks one bitset per attribute and ANDs them; what is left are candidates, compared by fields of a
byte that tell the middle cells of their ends; where an end shares the event's middle cell, by as many bytes
more that tell the fine cell in it, and where it shares that too, by codes. A batch runs block
by block, so that a block's bitsets stay in cache. The attributes of a block go in the order of how
few bits they leave, twelve at once and then eight at a time, until nothing is left, or all at once where most
events of the last block had something left after twelve; one that no box of the block bounds has no bitsets
and costs nothing. Whether an event has bits left follows no pattern, so that is no branch: those who have
stand in a queue, and so do the words of theirs that are not empty, and the candidates in these, which are
compared some hundreds at a time, with their fields asked for ahead; where a batch asks for many boxes of a
block, word by word, with all fields asked for while the block before is compared
(engine/layouts/bitmap_kernels.py).

The same idea one floor up: per attribute and cell a bitset of blocks that have somebody there. An
event ANDs these first and looks only at the blocks left. Boxes are put in an order that makes them
few, as told below.

    array                dtype    shape                  meaning
    boxes                int32    n                      the box of each row, in clustered order
    bounds               uint8    (n, width)             its fields, two per attribute, by middle cells
    rests                uint8    (n or 0, width)        how far into its middle cell each end is
    tables               uint8    sum of fine cells      middle cell of each fine cell, per attribute
    coarse               uint8    n_tops                 coarse cell of each middle cell, per attribute
    table_starts         int64    k + 1                  where an attribute's table begins
    bits                 uint64   (n_rows, WORDS)        the bitsets
    row_bases            int32    (n_blocks, k)          row of cell 0; there are rows from the first cell on
                                                         that somebody of the block is in, to the last
    block_attributes     int32    (n_blocks, k)          the block's attributes, most selective first
    n_block_attributes   int32    n_blocks
    block_rows           int64    n_blocks + 1           where a block's rows begin
    tops                 uint64   (n_tops, n_block_words)   the bitsets of blocks, by middle cell
    top_bases            int64    k                      row of the middle cell 0 in `tops`
    middle_firsts        int32    n_tops                 the first fine cell of each middle cell
    unsure               uint8    (2, width)             1 where an end in the event's middle cell, in its
                                                         fine cell, needs a closer look

Tried on a million boxes of 12 attributes and on REIN's workload (20 attributes, 10 of them half the
domain wide), batches of 200 events, on a busy machine, before blocks were cut as below:

    blocks in order of arrival       2.0 and 1.1 times the time of clustered ones
    rows of 64 words, not 16         1.35 and 1.2 times, 1.5 and 1.1 in batches of 2,000: the rows of a block
                                     lie in the second cache and not the first, and 31 % of the blocks are
                                     looked at instead of 22
    rows of 16 words, not 32         1.5 and 0.94 times, 1.2 and 0.97 in batches of 2,000, and of 8 words 1.4
                                     and 0.94, 1.6 and 1.2, when all of this was as it is now
    rows not asked for a block ahead 1.25 times on 12 attributes, 1.1 on REIN's

Boxes are cut in two again and again, each set at an end of its own: where fewest are looked at afterwards,
were an event as likely in one cell of an attribute as in another (engine/layouts/bitmap_kernels.py).
Microseconds per event on a machine alone, caches emptied before each batch, on 12 attributes and on REIN's
workload:

                                                              batches of 200    of 2,000
    before: all sets of a depth cut at medians of one end,
    candidates compared block by block, 20 cells              17.5 and 126      8.9 and 101
    candidates collected                                      14.6     124      7.6     101
    and sets cut by themselves, a queue, rows at whole lines   14.3     101      4.7      71
    the same, 14 cells                                        11.6              4.8
    10 cells                                                  10.3              5.4
    8 cells                                                   10.8              6.7
    12 and 32 cells                                                    126, 104          92, 62

A batch of 200 is bound by memory, which delivers 15 bytes per nanosecond here, and all bitsets to each
batch: on 12 attributes every further cell is 7,500 bytes per event. So there are fewer cells where bitsets
exceed the caches and candidates are few, and never more than CELLS, for they are bytes of a subscription.

    rows for cells that nobody of a block is in           1.14 and 1.01 times in batches of 200
    rows of bits asked for into the first cache, or read   1.0 times in batches of 200
    in order before a block is begun
    rows that do not begin at a line                      1.14 and 1.09 times in batches of 2,000

Before, a candidate was 15 bits per end, two attributes to a word: 80 bytes on REIN's workload, compared word
by word. Microseconds per event of a million of its boxes, the least of six turns on a busy machine, without
writing ids; the last three lines on a machine alone:

                                                              batches of 200    of 2,000
    ANDing bitsets                                                 23               12
    listing words that are not empty                                4                4
    listing the candidates in these, 2,540 per event                7                8
    comparing fields of a byte, two vectors per row                32               16
    a closer look at the 200 with an end in the event's cell        7                6
    words and candidates found by loops that end with the bits     +9               +5
    fields not asked for ahead                                    +39               +5
    the first line of each row alone asked for                    +13               +0
    asked for as soon as a candidate is listed                     +3               +1
    a block's fields not asked for in order                        +2               +1
    closer looks collected over calls, 128 at a time               +2               -1

Other orders and sizes of blocks were only counted, by the share of blocks that events look at:

                                       blocks of 1,024    of 256    of 64
    as it is, 12 attributes                    15 %         10 %      6 %
    grouped by the narrowest side, then cut    15 %          9 %      5 %
    by the two narrowest                       32 %         14 %      5 %
    as it is, REIN's workload                  36 %         28 %
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine import packed_kernels
from rangecast.engine.answers import ALL, Counted, Found, Request
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.grid import bounded_attributes
from rangecast.engine.layouts import bitmap_kernels as building
from rangecast.engine.layouts import bitmap_kernels as kernels
from rangecast.engine.layouts.bitmap_kernels import TOP, BitmapBlocks, cut_blocks
from rangecast.engine.packed import Packed
from rangecast.engine.parts import ROOM, FewEvents, Part, StaticIndex
from rangecast.engine.small_kernels import stab_bitmap
from rangecast.errors import OptionError
from rangecast.memory import check_fits, check_numbered
from rangecast.simd.bytes import SHORTEST
from rangecast.simd.lanes import WORDS
from rangecast.simd.memory import Views
from rangecast.types.attributes import Codes

CELLS = 20
MIDDLE = 255
TELLING, WEAK = 0.75, 0.98
BLOCK = WORDS * 64
CACHED = 8 << 20
FEWEST_CELLS = 8
DELIVERED_NS, COMPARED_NS = 1 / (500 * 15), 25.0
"""What a byte of bitsets costs an event in batches of 500, and what a candidate does."""
CLUSTERED = 32
"""Attributes that boxes are put in order by, at most."""


@dataclass(eq=False)
class BitmapPart(Part):
    """Bitsets of blocks; see the module head for the arrays."""

    packed: Packed
    identical: bool
    blocks: BitmapBlocks

    exact = True

    def __post_init__(self) -> None:
        # as stab_bitmap reads them; a block is begun only where there is room for all of its boxes
        views = Views(*self.blocks, self.packed.views)
        self.few = FewEvents(stab_bitmap, views, BLOCK + ROOM)

    def check(self, boxes: Boxes, n_slots: int) -> None:
        b, k, n = self.blocks, len(self.packed.attributes), len(self.blocks.boxes)
        self.packed.check(boxes.n_attributes)
        hold("that bitmaps have grids", None not in self.packed.grids)
        n_blocks, n_tops = -(-n // BLOCK), len(b.coarse)
        within("boxes of bitmaps", b.boxes, boxes.n)
        shaped("bounds of bitmaps", b.bounds, n, row_width(k))
        shaped("cells that need a look", b.unsure, 2, row_width(k))
        within("cells that need a look", b.unsure, 2)
        shaped("rests of bitmaps", b.rests, n if b.unsure[0].any() else len(b.rests), row_width(k))
        shaped("fine cells of bitmaps", b.middle_firsts, n_tops)
        shaped("attributes of blocks", b.n_block_attributes, n_blocks)
        within("attributes of blocks", b.n_block_attributes, k + 1)
        shaped("attributes of blocks", b.block_attributes, n_blocks, k)
        shaped("rows of blocks", b.row_bases, n_blocks, k)
        shaped("bitsets of blocks", b.tops, n_tops, max(1, -(-n_blocks // 64)))
        shaped("bitsets", b.bits, len(b.bits), WORDS)
        ascending("rows of blocks", b.block_rows, len(b.bits), n_blocks + 1)
        ascending("tables of bitmaps", b.table_starts, len(b.tables), k + 1)
        shaped("cells of bitmaps", b.top_bases, k)
        within("cells of bitmaps", b.top_bases, n_tops)
        for j in range(k):
            table = b.tables[b.table_starts[j] : b.table_starts[j + 1]]
            hold("that every cell has a bitset", len(table) >= self.packed.grid(j).n_cells)
            cells = b.top_bases[j] + table.astype(np.int64)
            within("cells of bitmaps", cells, n_tops)
            used = ((b.block_attributes == j) & (np.arange(k) < b.n_block_attributes[:, None])).any(axis=1)
            # events look at a block from cells that `tops` says somebody of it is in
            middles = np.unique(cells)
            bits = np.unpackbits(b.tops[middles].view(np.uint8), axis=1, bitorder="little")[:, :n_blocks]
            rows = b.row_bases[used, j] + b.coarse[middles].astype(np.int64)[:, None]
            here = (rows >= b.block_rows[:-1][used]) & (rows < b.block_rows[1:][used])
            # the rows of another block have bits of boxes that the last one has not
            hold("that a block reads its own bitsets", (here | (bits[:, used] == 0)).all())
        within("attributes of blocks", b.block_attributes, max(k, 1))
        if n % BLOCK and n_blocks and len(b.bits):
            # the last block has fewer boxes than bits
            own, word, bit = b.bits[int(b.block_rows[-2]) :], n % BLOCK // 64, n % 64
            rest = own[:, word + 1 :].any() or (bit and (own[:, word] >> np.uint64(bit)).any())
            hold("that bits are of boxes", not rest and (bit or not own[:, word].any()))

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return len(self.blocks.n_block_attributes)

    def stab(self, request: Request) -> Found:
        codes, boxes = request.codes, request.boxes
        if codes.shape[1] == 1 and request.limit == ALL:
            offsets, out = self.few.stab(codes, boxes)
            if not self.identical:
                packed_kernels.to_slots(out, len(out), boxes.slots)
            return offsets, out
        return self._stab(codes, boxes, request.limit)

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return self.few.stab_one(codes, boxes, None if self.identical else boxes.slots)

    def _stab(self, codes: Codes, boxes: Boxes, limit: int) -> Counted:
        blocks = self.blocks
        m = codes.shape[1]
        values, cells, points, chosen = self._room(codes)
        state = np.array([0, 0, 0, 0, limit], np.int64)
        # room that is not touched costs nothing
        pairs = memory.empty(64 * BLOCK + min(64 * m, 1 << 22), np.uint64)
        room = np.empty(m + 2 * cells.shape[1] + len(chosen), np.int64)
        while not kernels.stab_blocks(
            blocks, values, cells, points, chosen, codes, boxes.table, state, room, pairs
        ):
            # as much as it takes if the other blocks give as many as those so far
            block, n = int(state[0]), int(state[1])
            more = memory.empty(max(2 * len(pairs), n * self.n_blocks * 9 // (8 * (block + 1))), np.uint64)
            more[:n] = pairs[:n]
            pairs = more
        n = int(state[1])
        counts = np.zeros(m, np.int64)
        kernels.count_events(pairs, n, counts)
        slots = blocks.boxes
        if not self.identical:
            kernels.name_boxes(pairs, n, blocks.boxes)
            slots = boxes.slots

        def fill(places: npt.NDArray[np.int64], out: npt.NDArray[Any], add: int) -> None:
            kernels.place_rows(pairs, n, slots, places.copy(), out.dtype.type(add), out)

        return Counted(counts, fill)

    def _room(
        self, codes: Codes
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
        """Per event its packed values, and room for its coarse cells, its fields and the blocks that may hold
        it."""
        m, width = codes.shape[1], self.blocks.bounds.shape[1]
        cells = np.empty((m, len(self.packed.grids)), np.uint8)
        points = memory.empty(2 * m * width, np.uint8).reshape(2, m, width)
        chosen = np.empty((self.blocks.tops.shape[1], m), np.uint64)
        return self.packed.pack_events(codes), cells, points, chosen

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        values, cells, points, chosen = self._room(codes)
        kernels.choose_blocks(values, self.blocks, cells, points, np.empty(len(chosen), np.uint64), chosen)
        counts: npt.NDArray[np.int64] = np.bitwise_count(chosen).sum(axis=0, dtype=np.int64)
        # without attributes all bits are set, those beyond the last block too
        return np.minimum(counts, self.n_blocks) * BLOCK

    def without(self, dead: npt.NDArray[np.uint8]) -> BitmapPart | None:
        if not self.identical:
            return None
        # their bits stay; bounds that nothing meets keep them out
        bounds = self.blocks.bounds.copy()
        bounds[dead[self.blocks.boxes] != 0] = TOP
        return BitmapPart(self.packed, self.identical, self.blocks._replace(bounds=bounds))

    def stats(self) -> dict[str, int]:
        return {"blocks": self.n_blocks, "bitsets": len(self.blocks.bits)}


class BitmapIndex(StaticIndex):
    """Bitsets per block, attribute and cell.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("a"), rc.Int("b"), rc.Int("c"))
    >>> index = rc.open_index("bitmap", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "a > 3 and b < 8 and c between 2 and 5"}))
    >>> index.match(rc.Events.from_rows(schema, [{"a": 4, "b": 0, "c": 5}, {"a": 4, "b": 8, "c": 5}])).counts
    array([1, 0])
    """

    name = "bitmap"
    expands = False

    def _configure(
        self, cells: int | None = None, memory_limit: int | None = None, clustered: bool = True
    ) -> None:
        if cells is not None and not 4 <= cells <= 255:
            raise OptionError(f"cells must be within 4 and 255, got {cells}")
        self._cells = cells
        self._memory_limit = memory_limit
        self._clustered = clustered

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        return build_bitmap(boxes, numbers, self._cells, self._memory_limit, self._clustered)


def estimate_bytes(n: int, n_attributes: int, cells: int = CELLS) -> int:
    """About how many bytes a bitmap over n boxes takes when every block bounds all attributes."""
    return n * (4 + 2 * row_width(n_attributes) + n_attributes * cells // 8)


def build_bitmap(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    cells: int | None = None,
    memory_limit: int | None = None,
    clustered: bool = True,
) -> BitmapPart:
    """Bitsets over the boxes with these numbers; of as many cells as seem best by default."""
    n = len(numbers)
    used = bounded_attributes(boxes, numbers)
    check_fits(
        estimate_bytes(n, len(used), cells or CELLS),
        memory_limit,
        f"'bitmap' for {n:,} boxes on {len(used)} attributes",
        f"cells=16 needs {estimate_bytes(n, len(used), 16):,} bytes, the index 'scan' nearly none",
    )
    packed = Packed.fit(boxes, numbers, used)
    fields = _ByteFields.fit(boxes, numbers, packed)
    bounds, sizes, top_bases = fields.bounds, fields.sizes, fields.bases[:-1].copy()
    counts = np.zeros((len(used), 2, MIDDLE), np.int64)
    building.count_cells(bounds, sizes, counts)
    order = np.arange(n, dtype=np.int64)
    if clustered and used:
        bounds = _clustered(bounds, sizes, counts, order)
    if cells is None:
        ends = np.array([_cuts_of(own, size).sum() for own, size in zip(counts, sizes, strict=True)])
        cells = choose_cells(_shares(counts, sizes, n), ends / max(n, 1), n)
    coarse = [_cut(_cuts_of(own, size), cells) for own, size in zip(counts, sizes.tolist(), strict=True)]
    n_cells = np.array([table[-1] + 1 for table in coarse], np.int64)
    of_middles = np.concatenate([*coarse, np.empty(0)]).astype(np.uint8)
    n_blocks = -(-n // BLOCK)
    spans = np.zeros((len(used), n_blocks))
    ends = np.zeros((2, len(used), n_blocks), np.int64)
    ends[0] = n_cells[:, None]
    building.block_spans(bounds, sizes, top_bases, of_middles, n_cells, spans, ends)
    shares = spans / np.maximum(np.minimum(n - BLOCK * np.arange(n_blocks), BLOCK), 1)
    bounded = _worth_a_row(shares)
    # rows of a block lie together, so that they stay in cache together
    rows = np.where(bounded, ends[1] - ends[0] + 1, 0).T
    check_numbered(int(rows.sum()), "the bitsets of 'bitmap'", "fewer cells= need fewer")
    row_bases = ((np.cumsum(rows.ravel()) - rows.ravel()).reshape(rows.shape) - ends[0].T).astype(np.int32)
    bits = _zeros(int(rows.sum()), WORDS, np.uint64)
    building.fill_rows(bounds, sizes, top_bases, of_middles, ends, bounded, row_bases, bits)
    tops = np.zeros((int(fields.bases[-1]), max(1, -(-n_blocks // 64))), np.uint64)
    building.fill_tops(bounds, sizes, top_bases, tops)
    ranked = np.argsort(np.where(bounded, shares, 2.0).T, axis=1, kind="stable")
    blocks = BitmapBlocks(
        boxes=numbers[order].astype(np.int32),
        bounds=bounds,
        rests=fields.rests[order] if fields.unsure[0].any() else fields.rests[:0].copy(),
        tables=np.concatenate([*fields.tables, np.empty(0, np.uint8)]).astype(np.uint8),
        table_starts=np.concatenate([[0], np.cumsum([len(t) for t in fields.tables])]).astype(np.int64),
        bits=bits,
        row_bases=row_bases,
        block_attributes=np.ascontiguousarray(ranked).astype(np.int32),
        n_block_attributes=bounded.sum(axis=0).astype(np.int32),
        block_rows=np.concatenate([[0], np.cumsum(rows.sum(axis=1))]).astype(np.int64),
        tops=tops,
        top_bases=top_bases,
        coarse=of_middles,
        middle_firsts=fields.firsts,
        unsure=fields.unsure,
    )
    identical = boxes.are_slots(numbers)
    return BitmapPart(packed, identical, blocks)


def row_width(k: int) -> int:
    """Bytes of the fields of k attributes."""
    return max(SHORTEST, -(-2 * k // 8) * 8)


class _ByteFields(NamedTuple):
    """Fields of boxes in their own order, and the middle cells that they are of."""

    bounds: npt.NDArray[np.uint8]
    rests: npt.NDArray[np.uint8]
    tables: list[npt.NDArray[np.int32]]
    sizes: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    firsts: npt.NDArray[np.int32]
    unsure: npt.NDArray[np.uint8]

    @classmethod
    def fit(cls, boxes: Boxes, numbers: npt.NDArray[np.int64], packed: Packed) -> _ByteFields:
        """Middle cells for the bounds of these boxes, attribute by attribute."""
        n, k = len(numbers), len(packed.attributes)
        bounds, rests = (_zeros(n, row_width(k), np.uint8) for _ in range(2))
        fines = np.empty((2, n), np.int32)
        tables, firsts = [], [np.empty(0, np.int32)]
        unsure = np.zeros((2, row_width(k)), np.uint8)
        for i, j in enumerate(packed.attributes.tolist()):
            grid = packed.grid(i)
            counts = np.zeros(grid.n_cells, np.int64)
            lows, highs = boxes.column(j, numbers)
            building.locate_ends(lows, highs, grid.cuts, grid.origin, grid.shift, fines, counts)
            table = _cut(counts, MIDDLE)
            tables.append(table)
            firsts.append(np.flatnonzero(np.diff(table, prepend=-1)).astype(np.int32))
            longest = int(np.diff(firsts[-1], append=grid.n_cells).max())
            exact = packed.exact[i]
            unsure[0, 2 * i : 2 * i + 2] = not exact or np.count_nonzero(counts) >= MIDDLE
            unsure[1, 2 * i : 2 * i + 2] = not exact or longest > building.MOST_REST + 1
            building.put_fields(fines, table, firsts[-1], i, bounds, rests)
        sizes = np.array([table[-1] + 1 for table in tables], np.int64)
        bases = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(bounds, rests, tables, sizes, bases, np.concatenate(firsts), unsure)


def _worth_a_row(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which attributes get bitsets in which blocks, (k, n_blocks) as the shares are: where others leave
    little, one that takes out nearly nothing is left to comparing bounds."""
    telling = np.count_nonzero(shares < TELLING, axis=0) >= 2
    kept: npt.NDArray[np.bool_] = (shares < 1.0) & ((shares < WEAK) | ~telling)
    return kept


def _cut(counts: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int32]:
    """Group cells into at most `most` that hold about equally many ends, of which `counts` has those that a
    group may begin with: the group of each."""
    if np.count_nonzero(counts) < most:
        return np.cumsum(counts > 0).astype(np.int32)
    # a group begins with the cell that crosses the next multiple of the share
    marks = np.cumsum(counts) * (most - 1) // int(counts.sum())
    return np.cumsum(np.concatenate([[0], np.diff(marks)]) > 0).astype(np.int32)


def _cuts_of(counts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Per middle cell, how many boxes begin in it or end just before it, the outer ends left out."""
    cuts = counts[0, :size].copy()
    cuts[1:] += counts[1, : size - 1]
    cuts[0] = 0
    return cuts


def choose_cells(shares: npt.NDArray[np.float64], ends: npt.NDArray[np.float64], n: int) -> int:
    """How many cells an attribute should have: fewer leave more boxes to compare, and more are more bytes
    that memory must deliver to a batch; CELLS where caches hold them all.

    Per attribute there is the share of it that a box covers, and how many ends a box has on it, in the mean.
    """
    k = len(shares)
    if n * k * CELLS // 8 < CACHED:
        return CELLS
    options = np.arange(FEWEST_CELLS, CELLS + 1)
    # who has an end in the event's cell is beyond it in half of the cases
    left = np.minimum(shares[:, None] + ends[:, None] / (2 * options), 1.0)
    taken = DELIVERED_NS * n * k * options / 8 + COMPARED_NS * n * left.prod(axis=0)
    return int(options[np.argmin(taken)])


def _shares(counts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.float64]:
    """Per attribute, the share of its middle cells that a box covers, in the mean."""
    places = np.arange(MIDDLE)
    lengths = (counts[:, 1] - counts[:, 0]) @ places / n + 1
    covered: npt.NDArray[np.float64] = lengths / sizes
    return covered


def _clustered(
    bounds: npt.NDArray[np.uint8],
    sizes: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint8]:
    """Put boxes into an order in which those of a block lie near each other, by the attributes of which they
    cover least; returns their fields in that order."""
    n, k = len(bounds), len(sizes)
    if n <= BLOCK:
        return bounds
    best = np.argsort(_shares(counts, sizes, n), kind="stable")[:CLUSTERED]
    keys = np.stack([2 * best, 2 * best + 1], axis=1).ravel()
    if k <= CLUSTERED:
        # they are moved along
        cut_blocks(bounds, keys, sizes, order)
        return bounds
    cut_blocks(np.ascontiguousarray(bounds[:, keys]), np.arange(len(keys)), sizes[best], order)
    return bounds[order]


def _zeros(n: int, width: int, dtype: Any) -> npt.NDArray[Any]:
    """Zeros of which the first begins with a line of memory."""
    out = memory.aligned(n * width, dtype)
    # not zeros(): that comes in small pages
    out.fill(0)
    return out.reshape(n, width)
