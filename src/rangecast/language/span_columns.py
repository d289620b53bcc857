"""Spans of many texts at once: what `normal_form.py` does with the spans of one text, on arrays.

    array    dtype   shape     meaning
    lows     int64   (n, k)    low ends of the spans of each row, ascending, with a gap between any two
    highs    int64   (n, k)    their high ends
    counts   int64   n         how many spans a row has; behind them stand (LAST, MISSING)

A row without a span is one whose predicate can never hold. Rows do not know of each other, so a row
that makes no sense (a literal that is no value) costs nothing but its own result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.types.attributes import LAST, MISSING, PRESENT, Codes
from rangecast.types.numerals import Mask


class SpanColumns(NamedTuple):
    """Spans of n rows (see the module head)."""

    lows: Codes
    highs: Codes
    counts: Codes

    @property
    def valid(self) -> Mask:
        """Which places hold a span, (n, k)."""
        return np.arange(self.lows.shape[1]) < self.counts[:, None]


def one_span(lows: Codes, highs: Codes) -> SpanColumns:
    """One span per row, or none where the low end is above the high end."""
    valid = lows <= highs
    if not valid.all():
        lows, highs = np.where(valid, lows, LAST), np.where(valid, highs, MISSING)
    return SpanColumns(lows[:, None], highs[:, None], valid.astype(np.int64))


def constant(spans: tuple[tuple[int, int], ...], n: int) -> SpanColumns:
    """The same spans in every row."""
    ends = np.array(spans or ((LAST, MISSING),), np.int64)
    shape = (n, len(ends))
    lows, highs = np.broadcast_to(ends[:, 0], shape), np.broadcast_to(ends[:, 1], shape)
    return SpanColumns(lows, highs, np.full(n, len(spans)))


def unite(lows: Codes, highs: Codes) -> SpanColumns:
    """The union of spans (n, k) in any order; spans that touch become one.

    >>> unite(np.array([[5, 1, 3]]), np.array([[6, 2, 3]])).highs.tolist()
    [[3, 6]]
    """
    order = np.argsort(lows, axis=1, kind="stable")
    lows = np.take_along_axis(lows, order, 1)
    own = np.take_along_axis(highs, order, 1)
    reached = np.maximum.accumulate(own, axis=1)
    opens = lows <= own
    # a low end above another is above MISSING, so there is a code before it
    opens[:, 1:] &= (lows[:, 1:] > reached[:, :-1]) & (lows[:, 1:] - 1 > reached[:, :-1])
    rows, places = np.nonzero(opens)
    if not len(rows):
        return _packed(np.zeros_like(opens), lows, own)
    last = np.append(places[1:] - 1, lows.shape[1] - 1)
    last[:-1][rows[1:] != rows[:-1]] = lows.shape[1] - 1
    highs = own.copy()
    highs[rows, places] = reached[rows, last]
    return _packed(opens, lows, highs)


def unite_values(codes: Codes) -> SpanColumns:
    """The union of single codes (n, k); codes that touch become one span.

    >>> unite_values(np.array([[5, 1, 2, 5]])).lows.tolist()
    [[1, 5]]
    """
    codes = np.sort(codes, axis=1)
    parts = np.ones(codes.shape, bool)
    parts[:, 1:] = (codes[:, 1:] > codes[:, :-1]) & (codes[:, 1:] - 1 > codes[:, :-1])
    ends = np.ones(codes.shape, bool)
    ends[:, :-1] = parts[:, 1:]
    firsts, lasts = _packed(parts, codes, codes), _packed(ends, codes, codes)
    return SpanColumns(firsts.lows, lasts.highs, firsts.counts)


def intersect(ours: SpanColumns, theirs: SpanColumns) -> SpanColumns:
    """What both allow.

    >>> both = intersect(constant(((1, 3), (5, 9)), 1), constant(((2, 6),), 1))
    >>> both.lows.tolist(), both.highs.tolist()
    ([[2, 5]], [[3, 6]])
    """
    n = len(ours.lows)
    # pairs in the order of ours, then theirs: what they have in common ascends as it stands
    lows = np.maximum(ours.lows[:, :, None], theirs.lows[:, None, :]).reshape(n, -1)
    highs = np.minimum(ours.highs[:, :, None], theirs.highs[:, None, :]).reshape(n, -1)
    return _packed(lows <= highs, lows, highs)


def complement(spans: SpanColumns) -> SpanColumns:
    """The present values that the spans leave out.

    >>> complement(constant(((PRESENT, 3), (5, LAST)), 1)).lows.tolist()
    [[4]]
    """
    n, k = spans.lows.shape
    lows, highs = np.empty((n, k + 1), np.int64), np.empty((n, k + 1), np.int64)
    lows[:, 0], highs[:, k] = PRESENT, LAST
    lows[:, 1:] = spans.highs + 1  # the code after LAST is none
    highs[:, :k] = spans.lows - 1  # and so is the one before MISSING
    valid = np.ones((n, k + 1), bool)
    valid[:, 1:] = spans.valid & (spans.highs < LAST)
    valid[:, :k] &= ~spans.valid | (spans.lows > MISSING)
    highs[np.arange(n), spans.counts] = LAST
    return _packed(valid & (lows <= highs), lows, highs)


def equal(ours: SpanColumns, theirs: SpanColumns) -> Mask:
    """The rows in which both have the same spans."""
    k = min(ours.lows.shape[1], theirs.lows.shape[1])
    same: Mask = ours.counts == theirs.counts
    same &= (ours.lows[:, :k] == theirs.lows[:, :k]).all(1)
    same &= (ours.highs[:, :k] == theirs.highs[:, :k]).all(1)
    return same


def width(spans: SpanColumns) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """How many codes the spans of each row have: in units of 2**32, and what is left."""
    sizes = np.where(spans.valid, spans.highs.view(np.uint64) - spans.lows.view(np.uint64), 0)
    rest = (sizes & 0xFFFFFFFF).sum(1, dtype=np.uint64) + spans.counts.astype(np.uint64)
    return (sizes >> 32).sum(1, dtype=np.uint64), rest


def _packed(valid: Mask, lows: Codes, highs: Codes) -> SpanColumns:
    """The valid spans of each row, moved to its beginning."""
    counts = valid.sum(1)
    k = lows.shape[1]
    if k == 1 or bool((counts == k).all()):
        if not bool(valid.all()):
            lows, highs = np.where(valid, lows, LAST), np.where(valid, highs, MISSING)
        return SpanColumns(lows, highs, counts)
    shape = (len(lows), max(int(counts.max(initial=0)), 1))
    out_lows, out_highs = np.full(shape, LAST, np.int64), np.full(shape, MISSING, np.int64)
    filled = np.arange(shape[1]) < counts[:, None]
    out_lows[filled], out_highs[filled] = lows[valid], highs[valid]
    return SpanColumns(out_lows, out_highs, counts)
