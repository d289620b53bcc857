"""Sparse boxes: a box holds the attributes that it bounds and no others.

    array               dtype   shape         meaning
    owners              int32   n_boxes       ascending: the subscription (a row of ids) of each box
    starts              int64   n_boxes + 1   where the entries of a box begin
    attributes          int32   n_entries     the position in the schema, ascending within a box; the bit SET
                                              is set where the entry has a set
    lows, highs         int64   n_entries     the closed interval of codes, or the hull of the set
    sets                int64   n_sets        the entries that have a set, ascending
    set_starts          int64   n_sets + 1    where the spans of a set begin
    set_lows, set_highs int64   n_spans       ascending and disjoint, with a gap between any two

A set is what IN, NOT IN, != and OR on one attribute allow: two spans or more. So `a != 1 and b != 2` is one
box of two entries and four spans, where boxes of one interval per attribute would be four, and twenty such
predicates a million.

Dense boxes are arrays (d, n) of low and high ends, MISSING..LAST where an attribute is ignored. A box with
sets becomes several of them, one for each choice of a span per set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.language import kernels
from rangecast.language.kernels import SET
from rangecast.types.attributes import LAST, MISSING, Codes


class SparseBoxes(NamedTuple):
    """Boxes by their entries; see the module head."""

    owners: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    attributes: npt.NDArray[np.int32]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    sets: npt.NDArray[np.int64]
    set_starts: npt.NDArray[np.int64]
    set_lows: npt.NDArray[np.int64]
    set_highs: npt.NDArray[np.int64]


class DenseBoxes(NamedTuple):
    """Boxes of one closed interval per attribute: (d, n_boxes) ends, and the subscription of each box."""

    lows: Codes
    highs: Codes
    owners: npt.NDArray[np.int32]


def ragged(starts: npt.NDArray[np.int64], rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where the items of some rows stand, row after row; row r is starts[r] .. starts[r + 1].

    >>> ragged(np.array([0, 2, 5]), np.array([1, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    firsts = starts[rows]
    counts = starts[rows + 1] - firsts
    return np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))


def starts_of(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where each row begins, and where the last one ends, by how many items each has."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def from_dense(dense: DenseBoxes) -> SparseBoxes:
    """The entries of dense boxes.

    >>> dense = DenseBoxes(np.array([[3, 4]]), np.array([[3, 9]]), np.array([0, 1], np.int32))
    >>> from_dense(dense).highs.tolist()
    [3, 9]
    """
    n = dense.lows.shape[1]
    starts = np.empty(n + 1, np.int64)
    kernels.count_entries(dense.lows, dense.highs, starts)
    n_entries = int(starts[-1])
    attributes = np.empty(n_entries, np.int32)
    lows, highs = np.empty(n_entries, np.int64), np.empty(n_entries, np.int64)
    cursors = np.empty(n, np.int64)
    kernels.fill_entries(dense.lows, dense.highs, starts, cursors, attributes, lows, highs)
    none = np.empty(0, np.int64)
    return SparseBoxes(dense.owners, starts, attributes, lows, highs, none, np.zeros(1, np.int64), none, none)


def cut(
    boxes: SparseBoxes, n_attributes: int, chosen: npt.NDArray[np.uint8]
) -> tuple[DenseBoxes, npt.NDArray[np.int64]]:
    """The boxes as dense pieces, cut along the chosen sets, and how many each has; other sets as hulls."""
    counts = count_pieces(boxes, chosen).astype(np.int64)
    firsts = starts_of(counts)
    lows, highs = (np.empty((n_attributes, int(firsts[-1])), np.int64) for _ in range(2))
    kernels.fill_pieces(boxes, chosen, firsts, lows, highs)
    return DenseBoxes(lows, highs, np.repeat(boxes.owners, counts)), counts


def cut_entries(boxes: SparseBoxes, chosen: npt.NDArray[np.uint8]) -> SparseBoxes:
    """As `cut`, by entry: each piece has the attributes of its box, and no set."""
    counts = count_pieces(boxes, chosen).astype(np.int64)
    sizes = np.diff(boxes.starts)
    starts = starts_of(np.repeat(sizes, counts))
    n = int(starts[-1])
    attributes, lows, highs = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
    kernels.fill_piece_entries(boxes, chosen, counts, attributes, lows, highs)
    none = np.empty(0, np.int64)
    owners = np.repeat(boxes.owners, counts)
    return SparseBoxes(owners, starts, attributes, lows, highs, none, np.zeros(1, np.int64), none, none)


def hulls(boxes: SparseBoxes, n_attributes: int) -> DenseBoxes:
    """One dense box for each, which holds it: exact where it has no set."""
    return cut(boxes, n_attributes, np.zeros(len(boxes.sets), np.uint8))[0]


def count_pieces(boxes: SparseBoxes, chosen: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.float64]:
    """How many dense boxes each is when cut along the chosen sets, or all; floats, for these may be many."""
    out = np.ones(len(boxes.owners))
    if len(boxes.sets):
        sizes = np.diff(boxes.set_starts).astype(np.float64)
        if chosen is not None:
            sizes[chosen == 0] = 1.0
        own = np.searchsorted(boxes.starts, boxes.sets, "right") - 1
        with np.errstate(over="ignore"):
            np.multiply.at(out, own, sizes)
    return out


def select(boxes: SparseBoxes, numbers: npt.NDArray[Any], owners: npt.NDArray[np.int32]) -> SparseBoxes:
    """Some boxes in the order of their numbers, with the owners that they get."""
    numbers = np.asarray(numbers, np.int64)
    entries = ragged(boxes.starts, numbers)
    starts = starts_of(boxes.starts[numbers + 1] - boxes.starts[numbers])
    attributes = boxes.attributes[entries]
    sets = np.flatnonzero(attributes & SET)
    chosen = np.searchsorted(boxes.sets, entries[sets])
    spans = ragged(boxes.set_starts, chosen)
    return SparseBoxes(
        owners,
        starts,
        attributes,
        boxes.lows[entries],
        boxes.highs[entries],
        sets,
        starts_of(boxes.set_starts[chosen + 1] - boxes.set_starts[chosen]),
        boxes.set_lows[spans],
        boxes.set_highs[spans],
    )


def concat(several: Sequence[SparseBoxes], firsts: Sequence[int]) -> SparseBoxes:
    """Several boxes after each other; firsts[k] is added to the owners of the k-th."""
    entries = starts_of(np.array([len(boxes.lows) for boxes in several])).tolist()
    spans = starts_of(np.array([len(boxes.set_lows) for boxes in several])).tolist()
    return SparseBoxes(
        np.concatenate(
            [boxes.owners + np.int32(first) for boxes, first in zip(several, firsts, strict=True)]
        ),
        np.concatenate([[0], *(boxes.starts[1:] + n for boxes, n in zip(several, entries, strict=False))]),
        np.concatenate([boxes.attributes for boxes in several]),
        np.concatenate([boxes.lows for boxes in several]),
        np.concatenate([boxes.highs for boxes in several]),
        np.concatenate([boxes.sets + n for boxes, n in zip(several, entries, strict=False)]),
        np.concatenate([[0], *(boxes.set_starts[1:] + n for boxes, n in zip(several, spans, strict=False))]),
        np.concatenate([boxes.set_lows for boxes in several]),
        np.concatenate([boxes.set_highs for boxes in several]),
    )


def merge(some: SparseBoxes, others: SparseBoxes) -> SparseBoxes:
    """The boxes of both by their owners; those of one owner in their order, the first ones first."""
    both = concat([some, others], [0, 0])
    order = np.argsort(both.owners, kind="stable")
    return select(both, order, both.owners[order])


def flag_overlapping(
    boxes: SparseBoxes, n_subscriptions: int, *, by_hulls: bool = False
) -> npt.NDArray[np.uint8]:
    """Per subscription, 1 when two of its boxes share a point; by the hulls of sets alone if told."""
    out = np.zeros(n_subscriptions, np.uint8)
    if bool((boxes.owners[1:] == boxes.owners[:-1]).any()):
        kernels.flag_meeting(boxes, by_hulls, out)
    return out


def entries_of(boxes: SparseBoxes, box: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """The entries of a box as plain values: positions and spans."""
    out = []
    for i in range(int(boxes.starts[box]), int(boxes.starts[box + 1])):
        position = int(boxes.attributes[i])
        spans = [(int(boxes.lows[i]), int(boxes.highs[i]))]
        if position & SET:
            number = int(np.searchsorted(boxes.sets, i))
            own = slice(int(boxes.set_starts[number]), int(boxes.set_starts[number + 1]))
            spans = list(zip(boxes.set_lows[own].tolist(), boxes.set_highs[own].tolist(), strict=True))
        out.append((position & ~SET, spans))
    return out


def widened(boxes: DenseBoxes, d: int) -> DenseBoxes:
    """The same boxes among d attributes, of which they do not bound the last."""
    lows, highs, owners = boxes
    more = (d - len(lows), lows.shape[1])
    return DenseBoxes(
        np.concatenate([lows, np.full(more, MISSING)]), np.concatenate([highs, np.full(more, LAST)]), owners
    )


__all__ = [
    "SET",
    "DenseBoxes",
    "SparseBoxes",
    "concat",
    "count_pieces",
    "cut",
    "cut_entries",
    "entries_of",
    "flag_overlapping",
    "from_dense",
    "hulls",
    "merge",
    "ragged",
    "select",
    "starts_of",
    "widened",
]
