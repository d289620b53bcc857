"""`rein`: mark every box that an event rules out; those without a mark match.

Source: Qian, Cao, Zhu and Li, "REIN: A fast event matching approach for content-based publish/subscribe
systems" (INFOCOM 2014). Each attribute has two lists of buckets over its values: one with the low ends of
the intervals, one with the high ends. An event's value rules out whoever begins in a later bucket or ends in
an earlier one, without a comparison, and some of its own bucket, by comparing. What is left in a bitset of
all subscriptions matches: the search goes for what does not match, so it is the better the more does.

    array        dtype   shape           meaning
    used         int64   k               the attributes that some box bounds
    cuts         int64   n_cuts          where buckets begin, per attribute, ascending; the first has no cut
    cut_starts   int64   k + 1           the cuts of each attribute
    low_starts   int64   n_cuts + k + 1  the low ends of each bucket
    low_keys     int64   n_lows          low ends
    low_boxes    int32   n_lows          their boxes
    high_starts  int64   n_cuts + k + 1  the high ends of each bucket
    high_keys    int64   n_highs         high ends
    high_boxes   int32   n_highs         their boxes
    slots        int32   n               the slot of each box

Where we depart. Buckets are cut at quantiles of the ends, so that they are about equally full; the paper
cuts the domain evenly, and has one. An end that says nothing (any value up, any value down) is in no list.
The lists are arrays and not linked. A missing value is the smallest code and needs no case of its own. Boxes
are numbered within their part; live changes go through engine/parts.py.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Request, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, flat, hold, shaped, within
from rangecast.engine.parts import Part, StaticIndex
from rangecast.errors import OptionError
from rangecast.memory import check_fits
from rangecast.papers.contrib import kernels
from rangecast.papers.contrib.kernels import BucketLists
from rangecast.types.attributes import LAST, MISSING


@dataclass(eq=False)
class ReinPart(Part):
    """Bucket lists over some boxes."""

    lists: BucketLists

    def __post_init__(self) -> None:
        self._tally = threading.Lock()
        self._counters = np.zeros(2, np.int64)

    def check(self, boxes: Boxes, n_slots: int) -> None:
        own, n = self.lists, len(self.lists.slots)
        flat(own)
        within("attributes of buckets", own.used, boxes.n_attributes)
        within("slots of buckets", own.slots, n_slots)
        ascending("cuts of buckets", own.cut_starts, len(own.cuts), len(own.used) + 1)
        hold("that every cut is an attribute's", int(own.cut_starts[-1]) == len(own.cuts))
        n_lists = len(own.cuts) + len(own.used)
        for name in ("low", "high"):
            held = getattr(own, f"{name}_boxes")
            ascending(f"{name} ends", getattr(own, f"{name}_starts"), len(held), n_lists + 1)
            shaped(f"{name} ends", getattr(own, f"{name}_keys"), len(held))
            within(f"boxes of {name} ends", held, n)

    def stab(self, request: Request) -> Rows:
        codes = request.codes
        offsets = np.zeros(codes.shape[1] + 1, np.int64)
        out = np.empty(max(4096, len(self.lists.slots)), np.int32)
        counters = np.zeros(2, np.int64)
        done = 0
        while True:
            done = int(
                kernels.stab_buckets(codes, self.lists, done, int(offsets[done]), offsets, out, counters)
            )
            if done == codes.shape[1]:
                break
            out = np.concatenate([out, np.empty_like(out)])
        with self._tally:
            self._counters += counters
        return offsets, out[: offsets[-1]]

    def stats(self) -> dict[str, int]:
        return {
            "ends": len(self.lists.low_boxes) + len(self.lists.high_boxes),
            "buckets": len(self.lists.cuts) + len(self.lists.used),
            "compared": int(self._counters[0]),
            "marked": int(self._counters[1]),
        }


class ReinIndex(StaticIndex):
    """Marks who does not match; see the module head.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"), rc.Int("volume"))
    >>> index = rc.open_index("rein", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price > 9 and volume = 5", 8: "price < 30"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 10, "volume": 5}, {"price": 10}])).counts.tolist()
    [2, 1]
    """

    name = "rein"

    def _configure(self, buckets: int = 1_000, memory_limit: int | None = None) -> None:
        if not 1 <= buckets <= 1 << 20:
            raise OptionError(f"buckets must be within 1 and {1 << 20:,}, got {buckets}")
        self._buckets = buckets
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        used = boxes.bounded(numbers)
        sides: dict[str, list[npt.NDArray[Any]]] = {
            f"{side}_{what}": [] for side in ("low", "high") for what in ("counts", "keys", "boxes")
        }
        cuts: list[npt.NDArray[np.int64]] = []
        for j in used:
            lows, highs = boxes.column(j, numbers)
            below, above = np.flatnonzero(lows != MISSING), np.flatnonzero(highs != LAST)
            cuts.append(_cuts(np.concatenate([lows[below], highs[above]]), self._buckets))
            for side, own, keys in (("low", below, lows[below]), ("high", above, highs[above])):
                of = np.searchsorted(cuts[-1], keys, "right")
                order = np.argsort(of, kind="stable")
                sides[f"{side}_counts"].append(np.bincount(of, minlength=len(cuts[-1]) + 1))
                sides[f"{side}_keys"].append(keys[order])
                sides[f"{side}_boxes"].append(own[order].astype(np.int32))
        n_ends = sum(len(keys) for side in ("low", "high") for keys in sides[f"{side}_keys"])
        check_fits(
            12 * n_ends + 4 * len(numbers),
            self._memory_limit,
            f"'rein' of {len(numbers):,} boxes with {n_ends:,} ends",
            "'scan' needs less",
        )
        arrays: dict[str, npt.NDArray[Any]] = {}
        for side in ("low", "high"):
            counts = np.concatenate([np.zeros(1, np.int64), *sides[f"{side}_counts"]])
            arrays[f"{side}_starts"] = np.cumsum(counts)
            arrays[f"{side}_keys"] = np.concatenate([np.empty(0, np.int64), *sides[f"{side}_keys"]])
            arrays[f"{side}_boxes"] = np.concatenate([np.empty(0, np.int32), *sides[f"{side}_boxes"]])
        sizes = [len(own) for own in cuts]
        return ReinPart(
            BucketLists(
                used=np.array(used, np.int64),
                cuts=np.concatenate([np.empty(0, np.int64), *cuts]),
                cut_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
                **arrays,
                slots=boxes.slots_of(numbers).copy(),
            )
        )


def _cuts(ends: npt.NDArray[np.int64], buckets: int) -> npt.NDArray[np.int64]:
    """Where buckets begin, so that ends fall about evenly into them."""
    if not len(ends) or buckets == 1:
        return np.empty(0, np.int64)
    ends = np.sort(ends)
    places = np.linspace(0, len(ends) - 1, buckets + 1).astype(np.int64)[1:-1]
    return np.unique(ends[places])
