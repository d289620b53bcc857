"""Which sizes of cells to use, chosen from the widths of what is to be stored.

Every interval or rectangle is put into the cells of one level: those of 2**shift fine cells per side
(one shift per attribute). Small cells list a wide one often; large cells make many events look at a
narrow one. Boxes are grouped by the logarithm of their widths, and levels are taken one at a time,
each the one that lowers the cost most, where

    cost = nanoseconds per event (a constant per level, and what is read needlessly)
           + price * bytes per box

and the price of memory is raised until the budget of bytes per box is kept. A level where a box would be
listed more often than MOST_ENTRIES is as good as ruled out, so that a giant among many has a level of
its own however little it would cost the others.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MOST_LEVELS = 6
FEW_BOXES = 256  # fewer may have tables as large as those of so many
MOST_ENTRIES = (16, 64)  # of one box, on one and on two attributes
# on one and on two attributes, where entries are compared eight at a time and what is read is asked for ahead
_LEVEL_NS = (60.0, 40.0)
_LOOK_NS = (4.8, 0.5)
_COPY_NS = 0.2


class Levels(NamedTuple):
    """The levels in use: shifts (n_levels, n_axes), and the level of each class of boxes."""

    shifts: npt.NDArray[np.int64]
    level_of_class: npt.NDArray[np.int8]
    bytes_per_box: float


def choose_levels(
    classes: npt.NDArray[np.int64],
    widths: list[npt.NDArray[np.float64]],
    counts: npt.NDArray[np.float64],
    n_cells: list[int],
    crowding: float,
    budget: float,
) -> Levels:
    """Levels for classes of boxes: mean widths per axis in fine cells, and how many each has.

    `crowding` is how many times more boxes lie near an event than if they were spread evenly.
    """
    n = counts.sum()
    tops = [max(1, int(size - 1).bit_length()) for size in n_cells]
    shifts = np.array(list(itertools.product(*(range(top + 1) for top in tops))), np.int64)
    looks, copies, held, touches = _costs(widths, n_cells, shifts, crowding)
    cells = np.prod([(size >> shifts[:, k]) + 1 for k, size in enumerate(n_cells)], axis=0)
    headers = cells * 8.0 + 8.0 * n_cells[0] if len(n_cells) == 1 else cells * 8.0
    # a table of more than four cells per box is not worth building, but some level there must be
    usable = np.flatnonzero(headers <= max(32.0 * max(n, FEW_BOXES), headers.min()))
    ns = (looks * _LOOK_NS[len(n_cells) - 1] + copies * _COPY_NS) * counts[:, None]
    # runs of a line are copied whole whatever the cell, so there smaller is better from the start
    ns += np.where(touches > MOST_ENTRIES[len(n_cells) - 1], 1e3, 0.0) * counts[:, None]
    price = 16.0 if len(n_cells) == 1 else 0.25
    while True:
        chosen = _greedy(usable, ns, held * counts[:, None], headers, price / n, _LEVEL_NS[len(n_cells) - 1])
        picked = np.argmin((ns + price / n * held * counts[:, None])[:, chosen], axis=1)
        per_box = float(
            (held[np.arange(len(counts)), np.array(chosen)[picked]] * counts).sum() / n
            + headers[sorted({chosen[k] for k in picked})].sum() / n
        )
        if per_box <= budget or price > 1e7:
            break
        price *= 1.7
    used = sorted(set(picked.tolist()))
    rank = {level: at for at, level in enumerate(used)}
    level_of_class = np.zeros(int(classes.max()) + 1, np.int8)
    level_of_class[classes] = [rank[int(k)] for k in picked]
    return Levels(np.ascontiguousarray(shifts[[chosen[k] for k in used]]), level_of_class, per_box)


def _costs(
    widths: list[npt.NDArray[np.float64]],
    n_cells: list[int],
    shifts: npt.NDArray[np.int64],
    crowding: float,
) -> tuple[npt.NDArray[np.float64], ...]:
    """Per class and level, of one box: entries looked at and copied by an event, bytes, and cells touched."""
    sides = [np.exp2(shifts[:, k])[None, :] for k in range(len(widths))]
    # how many cells an interval of w fine cells touches, and how many of those it fills, on average
    touched = [(w[:, None] - 1) / s + 1 for w, s in zip(widths, sides, strict=True)]
    filled = [
        np.maximum(t - 2, 0.0) + (s == 1) * np.minimum(t, 2.0) for t, s in zip(touched, sides, strict=True)
    ]
    if len(widths) == 1:
        # an edge list is sorted, so only what lies within one cell is looked at
        inside = np.maximum(sides[0] - widths[0][:, None] + 1, 0.0) / sides[0]
        inside = np.where(sides[0] == 1, 0.0, inside)
        looks = inside * np.minimum(sides[0] / n_cells[0] * crowding, 1.0)
        edges = np.where(sides[0] == 1, 0.0, 2.0 * (1 - inside))
        return looks, np.zeros_like(looks), inside * 12 + edges * 4 + filled[0] * 4, touched[0]
    whole = filled[0] * filled[1]
    crossing = touched[0] * touched[1] - whole
    area = sides[0] * sides[1] / (n_cells[0] * n_cells[1]) * crowding
    looks, copies = np.minimum(crossing * area, 1.0), np.minimum(whole * area, 1.0)
    return looks, copies, crossing * 8 + whole * 4, crossing + whole


def _greedy(
    usable: npt.NDArray[np.int64],
    ns: npt.NDArray[np.float64],
    held: npt.NDArray[np.float64],
    headers: npt.NDArray[np.float64],
    price: float,
    level_ns: float,
) -> list[int]:
    cost = (ns + price * held)[:, usable]
    fixed = level_ns + price * headers[usable]
    best = np.full(len(cost), np.inf)
    chosen: list[int] = []
    total = np.inf
    while len(chosen) < MOST_LEVELS:
        totals = np.minimum(cost, best[:, None]).sum(axis=0) + fixed
        k = int(np.argmin(totals))
        spent = float(sum(level_ns + price * headers[level] for level in chosen))
        if totals[k] + spent >= total:
            break
        total = float(totals[k]) + spent
        best = np.minimum(best, cost[:, k])
        chosen.append(int(usable[k]))
    return chosen
