"""An order of boxes in which neighbours lie near each other, so that whole blocks can be skipped.

Boxes are halved again and again, each time at the median of one end on one attribute, as in a k-d
tree whose nodes of one depth all cut alike. The ends to cut at are chosen on a sample: at each
depth the one after which the fewest blocks would be looked at, were an event as likely in one cell
of an attribute as in another.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.kernels.grid import sort_by_cell

_SAMPLE = 4096
Cells = list[npt.NDArray[np.int32]]


def cluster(firsts: Cells, lasts: Cells, n_cells: list[int], n_blocks: int) -> npt.NDArray[np.int64]:
    """An order of the boxes; firsts[k] and lasts[k] are their cells on the k-th attribute."""
    n = len(firsts[0]) if firsts else 0
    depth = int(max(n_blocks, 1) - 1).bit_length()
    if depth == 0 or not firsts:
        return np.arange(n, dtype=np.int64)
    cuts = _choose_cuts(firsts, lasts, n_cells, depth)
    order = np.arange(n, dtype=np.int64)
    nodes = np.zeros(n, np.int64)
    for k, upper in cuts:
        keys = (lasts if upper else firsts)[k]
        order = _sorted_by(keys, n_cells[k], order)
        order = _sorted_by(nodes, int(nodes.max()) + 1, order)
        nodes[order] = _halved(nodes[order])
    return _sorted_by(nodes, int(nodes.max()) + 1, order)


def _sorted_by(
    keys: npt.NDArray[np.integer], n_keys: int, order: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    out = np.empty_like(order)
    sort_by_cell(keys[order], np.zeros(n_keys + 1, np.int64), out)
    return order[out]


def _halved(nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Children of nodes that stand in runs: the first half of each run is 2 k, the second 2 k + 1."""
    starts = np.flatnonzero(np.concatenate([[True], nodes[1:] != nodes[:-1]]))
    sizes = np.diff(np.append(starts, len(nodes)))
    position = np.arange(len(nodes)) - np.repeat(starts, sizes)
    return 2 * nodes + (position >= np.repeat(sizes - sizes // 2, sizes))


def _choose_cuts(firsts: Cells, lasts: Cells, n_cells: list[int], depth: int) -> list[tuple[int, bool]]:
    n = len(firsts[0])
    picked = np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64)
    lows = np.stack([f[picked] for f in firsts])
    highs = np.stack([f[picked] for f in lasts])
    sizes = np.array(n_cells, np.float64)[:, None]
    nodes = np.zeros(len(picked), np.int64)
    spans = np.ones((len(n_cells), 1))
    cuts: list[tuple[int, bool]] = []
    for _ in range(depth):
        best = (np.inf, 0, False)
        for k in range(len(n_cells)):
            others = np.prod(np.delete(spans, k, axis=0), axis=0)
            for upper, keys in ((False, lows[k]), (True, highs[k])):
                order = np.lexsort((keys, nodes))
                children = _halved(nodes[order])
                starts = np.flatnonzero(np.concatenate([[True], children[1:] != children[:-1]]))
                low = np.minimum.reduceat(lows[k][order], starts)
                high = np.maximum.reduceat(highs[k][order], starts)
                looked_at = ((high - low + 1) / sizes[k] * others[children[starts] >> 1]).mean()
                if looked_at < best[0]:
                    best = (float(looked_at), k, upper)
        _, k, upper = best
        order = np.lexsort(((highs if upper else lows)[k], nodes))
        nodes[order] = _halved(nodes[order])
        order = np.argsort(nodes, kind="stable")
        starts = np.flatnonzero(np.concatenate([[True], np.diff(nodes[order]) > 0]))
        present = nodes[order][starts]
        spans = np.zeros((len(n_cells), int(nodes.max()) + 1))
        spans[:, present] = (
            np.maximum.reduceat(highs[:, order], starts, axis=1)
            - np.minimum.reduceat(lows[:, order], starts, axis=1)
            + 1
        ) / sizes
        cuts.append((k, upper))
    return cuts
