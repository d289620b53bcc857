"""Intervals of one attribute sorted by their low end, in classes of doubling width: a path of `auto`.

An interval that holds a value v begins at most as far before v as the widest of its class is wide. So an
event reads, in each class, the entries whose low end lies in that window: a slice. Those that begin less than
the narrowest width before v hold it for sure and are copied; the others are compared. Widths within a class
differ by a factor of two at most, so that half of what is read matches or more. Where the slice begins and
ends is found by a table of buckets of low ends, of which each holds one or two entries.

A large batch goes by ascending values, bucket by bucket, so that neighbours read the same lines, and its
rows are put back into the order of the events. Intervals that are open at one side stand in sorted lists of
their own, of which an event copies the beginning or the end and compares nothing.

    array         dtype             shape       meaning
    base, origin  int, uint64       1           the least low end, and the same as an unsigned number
    lows, highs   uint32 / uint64   n           ends, as distances from `base`: class after class, each by low
    slots         int32             n           whose interval it is
    tables        int32             n_buckets   where the entries of each bucket begin, class after class
    classes       int64             (k, 5)      first bucket in tables, buckets, bits of a bucket, narrowest
                                                and widest interval of the class
    rising        int64             n_rising    low ends of intervals without a high end, ascending
    falling       int64             n_falling   high ends of intervals without a low end, ascending
    odd           int64             n_odd       high ends of those that hold a missing value too, ascending
    *_slots       int32                         whose they are
    every         int32             n_every     slots of intervals that hold every value, and none

On a domain of 10^9 and a million intervals, batches of 20,000 to 100,000 events, beside `cells` and beside
runs on a grid of a cell per interval, in microseconds per event on a busy machine:

    matches per event     1      10     40     100    400
    windows               0.07   0.11   0.20   0.36   0.95
    cells                 0.18   0.26   0.39   0.56   1.23
    runs                  0.11   0.22   0.36   0.60   1.23

with 16 bytes per interval where those take 19 to 83. Classes whose widths differ by a factor of 1.1 or 1.25
compare less and were slower everywhere: each class costs four reads of its table. Entries that begin before
the event are compared by their high ends alone, four at a time (simd/lanes.py): 0.81 us
became 0.60 at 400 matches, and 0.111 became 0.093 at 10, after the table above was made. Eight at a time,
with nothing left over to be taken one by one, the search at 400 matches takes 0.37 us instead of 0.47, and
0.34 where it asks for what the eighth event from there reads. Writing ids then takes 0.6, as a copy of them
does: that is what the memory takes. Tried against it, at 400 matches, per event: counting first and then
writing ids straight to their places (0.24 + 0.77; level with this), events in their own order (1.3, for want
of what neighbours share), keeping only what was compared and writing the sure ones from where they stand
(level), and rows written in the order of events (level).

Low ends that crowd in few buckets (floats over many magnitudes, clusters in a huge domain) make an event read
whole buckets needlessly; `crowded` tells, and `auto` takes `cells` then.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine.answers import ALL, Counted, Found, Request, Rows, event_order, restore_order
from rangecast.engine.boxes import AT_ONCE, Boxes
from rangecast.engine.checks import hold, shaped, within
from rangecast.engine.kernels import sort_by_cell
from rangecast.engine.layouts import windows_kernels as kernels
from rangecast.engine.layouts.windows_kernels import CLOSED, EVERY, FALLING, ODD, RISING, Windows
from rangecast.engine.parts import FEW_EVENTS, FewEvents, Part
from rangecast.engine.threads import Run, runner
from rangecast.memory import check_fits
from rangecast.simd.lanes import EIGHT
from rangecast.simd.memory import Views
from rangecast.types.attributes import Codes

Intervals = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int32]]
"""Where intervals begin and end, as distances, and whose they are."""

SORTED = 4096
_ORDER_BITS = 14
_MOST_CLASSES = 40
_SAMPLE = 16_384
_HEAP = 4096
_FEW_CANDIDATES = 8.0
_BYTES = 36
_MOST_WASTED = 4
_MOST_READ = 32


@dataclass(eq=False)
class WindowsPart(Part):
    """Intervals by low end; see the module head."""

    on: int
    windows: Windows

    exact = True
    ratio = 32

    def __post_init__(self) -> None:
        w = self.windows
        few = kernels.stab_few_32 if w.lows.dtype == np.uint32 else kernels.stab_few_64
        # as the kernel reads them
        self._few = FewEvents(few, Views(np.array([self.on, w.base], np.int64), *w[1:]))

    def check(self, boxes: Boxes, n_slots: int) -> None:
        w = self.windows
        hold("that windows are on an attribute", 0 <= self.on < boxes.n_attributes)
        n = len(w.slots)
        shaped("lows of windows", w.lows, n)
        shaped("highs of windows", w.highs, n)
        hold("that ends of windows are unsigned", w.lows.dtype.kind == w.highs.dtype.kind == "u")
        hold("that windows have an origin", w.origin.shape == (1,))
        shaped("classes of windows", w.classes, len(w.classes), 5)
        within("tables of windows", w.tables, n + 1)
        tables, buckets, shifts = w.classes[:, 0], w.classes[:, 1], w.classes[:, 2]
        within("tables of classes", tables, len(w.tables))
        within("buckets of classes", buckets, len(w.tables))
        within("tables and buckets of classes", tables + buckets, len(w.tables))
        within("shifts of classes", shifts, 64)
        widths = w.classes[:, 3:].view(np.uint64)
        hold("that a class is no wider than its widest", (widths[:, 0] <= widths[:, 1]).all())
        falls = np.flatnonzero(w.tables[1:] < w.tables[:-1]) + 1
        hold("that tables of windows ascend", np.isin(falls, tables).all())
        for name in ("rising", "falling", "odd"):
            slots = getattr(w, f"{name}_slots")
            shaped(f"{name} of windows", getattr(w, name), len(slots))
            within(f"{name} slots of windows", slots, n_slots)
        within("slots of windows", w.slots, n_slots)
        within("slots of windows over everything", w.every, n_slots)

    def stab(self, request: Request) -> Found:
        values = request.codes[self.on]
        m = len(values)
        if request.counts and request.limit == ALL:
            counts = np.empty(m, np.int64)
            kernels.count_holders(event_order(m), values, self.windows, counts)
            return Counted(counts)
        if request.limit < ALL:
            return self._stab_some(values, request.limit)
        if m < FEW_EVENTS:
            return self._few.stab(request.codes, None)
        turned = m >= SORTED
        order = self._order(values) if turned else event_order(m)
        counts = memory.empty(m, np.int64)
        total = int(kernels.count_candidates(order, values, self.windows, counts))
        offsets = np.empty(m + 1, np.int64)
        # more: entries that do not match are written before that is known
        out = memory.empty(total + EIGHT, np.int32)
        n = int(kernels.stab(order, values, self.windows, ALL, offsets, out))
        return restore_order(order, m, offsets, out[:n]) if turned else (offsets, out[:n])

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return self._few.stab_one(codes, None)

    def _stab_some(self, values: Codes, limit: int) -> Rows:
        counts = memory.empty(len(values), np.int64)
        order = event_order(len(values))
        kernels.count_candidates(order, values, self.windows, counts)
        offsets = np.empty(len(values) + 1, np.int64)
        # more than the limit where a run is copied whole or a window is compared whole
        out = memory.empty(int(counts.sum()) + 1, np.int32)
        n = int(kernels.stab(order, values, self.windows, limit, offsets, out))
        return offsets, out[:n]

    def _order(self, values: Codes) -> npt.NDArray[np.int64]:
        """The events by ascending value, as far as it matters: by its highest bits."""
        low = max(int(values.min()), self.windows.base)
        span = max(int(values.max()) - low, 0) + 1
        shift = max(0, span.bit_length() - _ORDER_BITS)
        distances = np.maximum(values, low).view(np.uint64) - _unsigned(low)
        order = memory.empty(len(values), np.int64)
        cells = (distances >> np.uint64(shift)).astype(np.int64)
        sort_by_cell(cells, np.zeros((span >> shift) + 2, np.int64), order)
        return order

    def crowded(self, sample: Codes) -> bool:
        """Whether events at these values would read much more than they match."""
        order, offsets = np.arange(len(sample)), np.empty(len(sample) + 1, np.int64)
        total = int(kernels.count_candidates(order, sample, self.windows, np.empty_like(order)))
        found = int(kernels.stab(order, sample, self.windows, ALL, offsets, np.empty(total + 1, np.int32)))
        return total > _MOST_WASTED * found + _MOST_READ * len(sample)

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        counts = np.empty(codes.shape[1], np.int64)
        kernels.count_candidates(event_order(len(counts)), codes[self.on], self.windows, counts)
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> WindowsPart:
        w = self.windows
        living = dead[w.slots] == 0
        before = np.concatenate([[0], np.cumsum(living)])
        rising, falling, odd = (dead[slots] == 0 for slots in (w.rising_slots, w.falling_slots, w.odd_slots))
        swept = w._replace(
            lows=w.lows[living],
            highs=w.highs[living],
            slots=w.slots[living],
            tables=before[w.tables].astype(np.int32),
            rising=w.rising[rising],
            rising_slots=w.rising_slots[rising],
            falling=w.falling[falling],
            falling_slots=w.falling_slots[falling],
            odd=w.odd[odd],
            odd_slots=w.odd_slots[odd],
            every=w.every[dead[w.every] == 0],
        )
        return WindowsPart(self.on, swept)

    def stats(self) -> dict[str, int]:
        w = self.windows
        return {"classes": len(w.classes), "open_ended": len(w.rising) + len(w.falling) + len(w.odd)}


def build_windows(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    on: int,
    memory_limit: int | None = None,
    threads: int = 1,
) -> WindowsPart:
    """Windows over the boxes with these numbers, which bound no attribute but `on`."""
    check_fits(
        _BYTES * len(numbers),
        memory_limit,
        f"windows over {len(numbers):,} boxes",
        "the index 'scan' needs nearly nothing beyond the subscriptions",
    )
    if boxes.stand_in_columns and len(numbers) > AT_ONCE:
        whole = _build_closed(boxes, numbers, on, threads)
        if whole is not None:
            return whole
    lows, highs = boxes.column(on, numbers)
    slots = boxes.slots_of(numbers)
    kinds = np.empty(len(numbers), np.uint8)
    if kernels.sort_out(lows, highs, kinds):
        rest = {kind: np.empty(0, np.int64) for kind in (RISING, FALLING, ODD, EVERY)}
    else:
        rest = {kind: np.flatnonzero(kinds == kind) for kind in (RISING, FALLING, ODD, EVERY)}
    ended = (
        *_sorted_ends(lows[rest[RISING]], slots[rest[RISING]]),
        *_sorted_ends(highs[rest[FALLING]], slots[rest[FALLING]]),
        *_sorted_ends(highs[rest[ODD]], slots[rest[ODD]]),
        slots[rest[EVERY]],
    )
    if any(map(len, rest.values())):
        closed = np.flatnonzero(kinds == CLOSED)
        lows, highs, slots = lows[closed], highs[closed], slots[closed]
    base = int(lows.min()) if len(lows) else 0
    span = int(highs.max()) - base + 1 if len(lows) else 1
    dtype = np.uint32 if span < 2**32 else np.uint64
    # unsigned, since the difference of two codes may be none
    origin = np.array([_unsigned(base)])
    ends = [np.empty(len(lows), dtype) for _ in range(2)]
    np.subtract(lows.view(np.uint64), origin, out=ends[0], casting="unsafe")
    np.subtract(highs.view(np.uint64), origin, out=ends[1], casting="unsafe")
    # what is not needed any more goes before the others are sorted
    del lows, highs, kinds
    return WindowsPart(on, Windows._make((base, origin, *lay_out(ends[0], ends[1], slots, threads), *ended)))


def _build_closed(boxes: Boxes, numbers: npt.NDArray[np.int64], on: int, threads: int) -> WindowsPart | None:
    """The same, if all intervals have both ends, reading some at a time: their codes would be as large as all
    that is built of them."""

    each = max(1, len(numbers) // _SAMPLE)

    def look(piece: tuple[int, int]) -> tuple[int, int, int, int, npt.NDArray[np.uint64]] | None:
        lows, highs = boxes.column(on, numbers[slice(*piece)])
        closed, *span = kernels.span_closed(lows, highs)
        own = slice(-piece[0] % each, None, each)
        widths = highs[own].view(np.uint64) - lows[own].view(np.uint64)
        return (*map(int, span), widths) if closed else None  # type: ignore[return-value]

    spans = [one for one in runner(threads)(look, _pieces(len(numbers))) if one is not None]
    if len(spans) < len(_pieces(len(numbers))):
        return None
    least, last_starts, tops, widest, sample = zip(*spans, strict=True)
    base = min(least)
    origin = np.array([_unsigned(base)])
    dtype = np.uint32 if max(tops) - base + 1 < 2**32 else np.uint64

    def read(first: int, last: int) -> Intervals:
        own = numbers[first:last]
        return *boxes.distances(on, own, base, dtype), boxes.slots_of(own)

    codes, none = np.empty(0, np.int64), np.empty(0, np.int32)
    seen = max(last_starts) - base, max(widest), np.concatenate(sample).astype(dtype)
    laid_out = _lay_out(read, len(numbers), dtype, threads, seen)
    return WindowsPart(
        on, Windows._make((base, origin, *laid_out, codes, none, codes, none, codes, none, none))
    )


def _unsigned(code: int) -> np.uint64:
    return np.uint64(code & (2**64 - 1))


def _sorted_ends(ends: Codes, slots: npt.NDArray[np.int32]) -> tuple[Codes, npt.NDArray[np.int32]]:
    order = np.argsort(ends, kind="stable")
    return ends[order], slots[order]


def lay_out(
    starts: npt.NDArray[Any], stops: npt.NDArray[Any], slots: npt.NDArray[np.int32], threads: int = 1
) -> tuple[npt.NDArray[Any], ...]:
    """Lows, highs, slots, tables and classes of closed intervals."""

    def read(first: int, last: int) -> Intervals:
        return starts[first:last], stops[first:last], slots[first:last]

    widths = stops - starts
    n = len(widths)
    seen = int(starts.max(initial=0)), int(widths.max(initial=0)), widths[:: max(1, n // _SAMPLE)].copy()
    del widths
    return _lay_out(read, n, starts.dtype, threads, seen)


def _lay_out(
    read: Callable[[int, int], Intervals],
    n: int,
    dtype: Any,
    threads: int,
    seen: tuple[int, int, npt.NDArray[Any]],
) -> tuple[npt.NDArray[Any], ...]:
    """The same of what can be read piece by piece: put into heaps by class and first digit, and each sorted.

    Numbers of all of them sorted digit by digit, and the intervals put in that order, took 2.5 times as long
    for four million, since every digit looks at starts all over memory, and 12 bytes more per interval.
    Pieces are read, and heaps sorted, by several threads where they are asked for. `seen` is the last start,
    the largest width and a sample of the widths.
    """
    run, pieces = runner(threads), _pieces(n)
    largest, widest, sample = seen
    span = largest + 1
    edges = choose_edges(sample, n, widest, span)
    # a shift by 64 bits or more is none
    bits = min(max(0, largest.bit_length() - min(kernels.DIGIT, (n // _HEAP).bit_length())), 63)
    n_digits = (largest >> bits) + 1
    by = edges, bits, n_digits

    def count(piece: tuple[int, int]) -> npt.NDArray[np.int32]:
        counts = np.zeros(len(edges) * n_digits, np.int32)
        kernels.count_heaps(*read(*piece)[:2], *by, counts)
        return counts

    counts = np.array(list(run(count, pieces)), np.int32).reshape(len(pieces), len(edges) * n_digits)
    ends = np.cumsum(counts.sum(axis=0, dtype=np.int64))
    # where each piece begins in each heap
    cursors = (ends - counts.sum(axis=0)) + np.cumsum(counts, axis=0) - counts
    lows, highs, slots = np.empty(n, dtype), np.empty(n, dtype), np.empty(n, np.int32)
    parts = run(
        lambda k: kernels.fill_heaps(*read(*pieces[k]), *by, cursors[k], lows, highs, slots),
        range(len(pieces)),
    )
    deque(parts, 0)
    most = int(counts.sum(axis=0).max(initial=0))
    cuts = np.searchsorted(ends, np.linspace(0, n, threads + 1)[1:-1], "right")
    shares = list(itertools.pairwise([0, *cuts.tolist(), len(ends)]))

    def sort(share: tuple[int, int]) -> None:
        digits, copies = np.empty(1 << kernels.DIGIT, np.int64), np.empty((3, most), np.int32)
        kernels.sort_heaps(
            ends,
            *share,
            bits,
            lows,
            highs,
            slots,
            digits,
            copies[0],
            copies[1],
            np.empty(most, dtype),
            copies[2],
        )

    deque(run(sort, shares), 0)
    return lows, highs, slots, *_rank(lows, highs, ends[n_digits - 1 :: n_digits], span, run)


def _rank(
    lows: npt.NDArray[Any], highs: npt.NDArray[Any], ends: npt.NDArray[np.int64], span: int, run: Run
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Tables and classes of sorted intervals, of which each class ends at one of the ends."""
    owns = [own for own in itertools.pairwise([0, *ends.tolist()]) if own[0] < own[1]]
    # a shift by 64 bits or more is none
    shifts = [min((span // (last - first)).bit_length(), 63) for first, last in owns]
    firsts = np.cumsum([0, *((span >> shift) + 2 for shift in shifts)]).tolist()
    tables = np.empty(firsts[-1], np.int32)

    def rank(piece: tuple[int, int, int]) -> tuple[int, int]:
        """Fill some buckets of a class; the least and the largest width of some of its intervals."""
        k, bucket, place = piece
        own = slice(*owns[k])
        table = tables[firsts[k] : firsts[k + 1]]
        kernels.rank_buckets(lows[own], owns[k][0], shifts[k], bucket, bucket + AT_ONCE, table)
        some = slice(place, min(place + AT_ONCE, own.stop))
        return tuple(map(int, kernels.span_widths(lows[some], highs[some])))  # type: ignore[return-value]

    pieces = []
    for k, (first, last) in enumerate(owns):
        n_pieces = -(-max(last - first, firsts[k + 1] - firsts[k]) // AT_ONCE)
        pieces += [(k, at * AT_ONCE, min(first + at * AT_ONCE, last - 1)) for at in range(n_pieces)]
    widths = np.array(list(run(rank, pieces)), np.uint64).reshape(-1, 2)
    of_class = np.array([piece[0] for piece in pieces], np.int64)
    classes = [
        (
            firsts[k],
            firsts[k + 1] - firsts[k] - 1,
            shift,
            int(widths[of_class == k, 0].min()),
            int(widths[of_class == k, 1].max()),
        )
        for k, shift in enumerate(shifts)
    ]
    return tables, np.array(classes, np.uint64).reshape(-1, 5).view(np.int64)


def _pieces(n: int) -> list[tuple[int, int]]:
    return [(first, min(first + AT_ONCE, n)) for first in range(0, n, AT_ONCE)]


def choose_edges(sample: npt.NDArray[Any], n: int, widest: int, span: int) -> npt.NDArray[np.uint64]:
    """The widest interval of each class, ascending: halved as long as the narrower half is worth a class.

    It is when an event would read some of it needlessly, and more than reading another table costs.

    >>> choose_edges(np.array([3, 900, 1000] * 1000, np.uint32), 3000, 1000, 10_000).tolist()
    [125, 250, 500, 1000]
    """
    sample = np.sort(sample)
    edges = [widest]
    while len(edges) < _MOST_CLASSES and edges[-1]:
        half = edges[-1] >> 1
        share = float(np.searchsorted(sample, sample.dtype.type(half), "right")) / len(sample)
        if n * share * (half + 1) / span < _FEW_CANDIDATES:
            break
        edges.append(half)
    return np.array(edges[::-1], np.uint64)
