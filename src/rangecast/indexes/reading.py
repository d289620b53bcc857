"""What one match reads, taken once, and how several threads share a batch."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.attributes import Codes
from rangecast.ids import Ids
from rangecast.indexes.catalog import Catalog
from rangecast.indexes.estimate import Estimate
from rangecast.kernels import matches as kernels
from rangecast.matches import Matches

LEAST_PIECE = 16_384

Rows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]
"""Offsets and slots: the matches of a batch in rows, one per event."""

Run = Callable[..., Iterable[Any]]
"""What calls a function with each of some arguments, one after the other or side by side, like `map`."""


class Cut(NamedTuple):
    """Some events of a batch, from the first to before the last."""

    batch: Codes
    first: int
    last: int

    def codes(self) -> Codes:
        """Their codes, copied by whoever looks for them."""
        return np.ascontiguousarray(self.batch[:, self.first : self.last])


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

    def match(self, codes: Codes, threads: int) -> Matches:
        """The matches of a batch, each once."""
        if threads == 1:
            return Matches(*without_repeats(*self.stab(codes), self.flagged), self.names)
        found = pool(threads)(
            lambda cut: without_repeats(*self.stab(cut.codes()), self.flagged), cut_batch(codes, threads)
        )
        return Matches(*joined(list(found)), self.names)


def cut_batch(codes: Codes, threads: int) -> list[Cut]:
    """A batch in pieces for several threads."""
    n = codes.shape[1]
    # Several pieces a thread even out events that match more than others. But many indexes do in order what
    # a large batch asks for, or read all of themselves for any batch, and a small piece gains less by that.
    each = max(1, min(4, n // (threads * LEAST_PIECE)))
    ends = np.linspace(0, n, min(n, threads * each) + 1).astype(np.int64).tolist()
    return [Cut(codes, a, b) for a, b in itertools.pairwise(ends)]


def pool(threads: int) -> Run:
    """A `map` that runs its calls in so many threads."""
    return _pool(threads).map


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
