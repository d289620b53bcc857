"""What one match reads, taken once, and how several threads share a batch."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from rangecast.attributes import Codes
from rangecast.ids import Ids
from rangecast.indexes.catalog import Catalog
from rangecast.indexes.estimate import Estimate
from rangecast.kernels import matches as kernels
from rangecast.matches import Matches

Rows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]
"""Offsets and slots: the matches of a batch in rows, one per event."""


class Reading:
    """What one match reads: taken once, so that a writer can go on meanwhile."""

    def __init__(self, catalog: Catalog) -> None:
        self.names: Ids = catalog.ids
        self.flagged = catalog.overlapping[: catalog.n_slots] if catalog.n_overlapping else None

    def stab(self, codes: Codes) -> Rows:
        """The matches of a batch, as slots; a slot may repeat only if it is flagged."""
        raise NotImplementedError

    def stab_from(self, codes: Codes, event: int, estimate: Estimate) -> Rows:
        """The matches of one event (d, 1) of a batch whose work was estimated."""
        return self.stab(codes)

    def pieces(self, codes: Codes, threads: int) -> list[Callable[[], Rows]] | None:
        """The work for a batch cut into calls that find a part of every event's matches, where that costs
        less than cutting the batch; `join` puts what they find together."""
        return None

    def join(self, rows: list[Rows], n_events: int) -> Rows:
        """The matches of a batch from those of its pieces, each once."""
        raise NotImplementedError

    def match(self, codes: Codes) -> Matches:
        """The matches of a batch, each once."""
        return Matches(*without_repeats(*self.stab(codes), self.flagged), self.names)


def stab_threaded(reading: Reading, codes: Codes, threads: int) -> Rows:
    """The matches of a batch, each once, found by several threads."""
    run = _pool(threads).map
    pieces = reading.pieces(codes, threads)
    if pieces is not None:
        return reading.join(list(run(lambda piece: piece(), pieces)), codes.shape[1])
    n = codes.shape[1]
    # Twice as many pieces as threads evens out events that match more than others; but an index
    # that reads all of itself for a batch reads it once per piece, so small batches are cut less.
    pieces_wanted = threads if n < 4096 else 2 * threads
    cuts = np.linspace(0, n, min(n, pieces_wanted) + 1).astype(np.int64)
    parts = [np.ascontiguousarray(codes[:, a:b]) for a, b in itertools.pairwise(cuts)]
    return joined(list(run(lambda one: without_repeats(*reading.stab(one), reading.flagged), parts)))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: starting them costs as much as a small batch."""
    return ThreadPoolExecutor(threads, "rangecast")


# a forked process has none of its parent's threads
os.register_at_fork(after_in_child=_pool.cache_clear)


def joined(rows: Sequence[Rows]) -> Rows:
    """The rows of pieces of a batch, one piece after the other."""
    ends = np.cumsum([0, *(len(slots) for _, slots in rows)])
    offsets = [np.zeros(1, np.int64), *(piece[1:] + end for (piece, _), end in zip(rows, ends, strict=False))]
    return np.concatenate(offsets), np.concatenate([slots for _, slots in rows])


def without_repeats(
    offsets: npt.NDArray[np.int64], slots: npt.NDArray[np.int32], flagged: npt.NDArray[np.uint8] | None
) -> Rows:
    """Rows in which each slot stands once; only flagged slots can repeat."""
    if flagged is None or not len(slots):
        return offsets, slots
    stamps = np.full(len(flagged), -1, np.int64)
    kept = np.empty_like(offsets)
    n = kernels.drop_repeats(offsets, slots, flagged, stamps, kept)
    return kept, slots[:n]
