"""Boxes that are alike, kept once: many users hold the same alert.

One box of each group stands for all of them, in arrays of boxes of their own, numbered by group; an index
is built over those alone. Where it finds a group, the slots of its members are copied, a run each. So an
event pays for what it finds by the group, and by a copy for each member.

    array     dtype   shape          meaning
    bounds    EntryArrays            the bounds of each group (engine/boxes.py)
    starts    int64   n_groups + 1   where the members of a group begin
    members   int32   n              their slots

It needs FEWEST members a group on average, FEWEST_ON_TWO on two attributes, where cells copy much of an
answer without a look. Beside the same 100,000 boxes laid out one by one a batch of 500 events took

    members a group           4           8           16          100
    two attributes            0.8 - 1.2   1.1 - 1.2   0.7         0.3 - 0.5
    five attributes           0.4         0.35        0.25        0.1

of the time. On one attribute runs are copied without a look anyway. Whether it is worth hashing all boxes
is seen on one in SAMPLED.

A member that dies is dropped from the answers like any other slot, and the group goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine import kernels
from rangecast.engine.answers import Counted, Found, write_rows
from rangecast.engine.boxes import BoxEntries, Boxes, EntryArrays
from rangecast.engine.boxes_kernels import BoxArrays
from rangecast.engine.checks import ascending, within

FEWEST, FEWEST_ON_TWO = 4, 12
SAMPLED = 16
_REPEATS = 0.05


@dataclass(eq=False)
class Groups:
    """Groups of boxes that are alike, and their members."""

    bounds: EntryArrays
    starts: npt.NDArray[np.int64]
    members: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        b = self.bounds
        none = np.empty(0, np.int32)
        self.boxes = Boxes(BoxArrays(b.words, b.heads, b.starts, b.bases, none, b.n, b.stride))

    def check(self, n_attributes: int, n_slots: int) -> None:
        """Raise StorageError unless groups have bounds and members."""
        n = self.boxes.n
        BoxEntries.take(self.bounds, n_attributes)
        ascending("members of groups", self.starts, len(self.members), n + 1)
        within("members of groups", self.members, n_slots)

    def stats(self) -> dict[str, int]:
        """How many boxes stand in how many groups."""
        return {"grouped_boxes": len(self.members), "groups": self.boxes.n}

    def expand(self, found: Found) -> Counted:
        """What was found among the groups, as their members."""
        offsets, groups = write_rows(found)
        starts, members = self.starts, self.members
        counts = np.empty(len(offsets) - 1, np.int64)
        kernels.count_group_members(offsets, groups, starts, counts)

        def fill(places: npt.NDArray[np.int64], out: npt.NDArray[Any], add: int) -> None:
            kernels.copy_members(offsets, groups, starts, members, places, out.dtype.type(add), out)

        return Counted(counts, fill)

    def without(self, dead: npt.NDArray[np.uint8]) -> Groups:
        """The groups without dead members; one that has none left stays, and gives nothing."""
        living = dead[self.members] == 0
        before = np.concatenate([[0], np.cumsum(living, dtype=np.int64)])
        return Groups(self.bounds, before[self.starts], self.members[living])


def find_groups(boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int]) -> Groups | None:
    """The groups of the boxes with these numbers, if there are few beside the boxes."""
    n = len(numbers)
    if len(used) < 2:
        return None
    # drawn at random: those that are alike may stand together, or at regular distances
    sample = np.unique(np.random.default_rng(n).integers(0, n, max(n // SAMPLED, 2048)))
    if len(np.unique(_hash(boxes, numbers[sample]))) > (1 - _REPEATS) * len(sample):
        return None
    hashes = _hash(boxes, numbers)
    ordered = numbers[np.argsort(hashes, kind="stable")]
    firsts = np.zeros(n, np.uint8)
    firsts[:1] = 1
    kernels.mark_firsts(boxes.arrays, ordered, firsts)
    starts = np.flatnonzero(firsts)
    if len(starts) * (FEWEST_ON_TWO if len(used) == 2 else FEWEST) > n:
        return None
    # in the order of arrival, so that what came together stays together
    order = np.argsort(ordered[starts], kind="stable")
    sizes = np.diff(np.append(starts, n))[order]
    ends = np.cumsum(sizes)
    taken = np.arange(n) + np.repeat(starts[order] - (ends - sizes), sizes)
    first_boxes = ordered[starts[order]]
    bounds = BoxEntries(boxes.n_attributes)
    bounds.add(boxes.entries(first_boxes, np.arange(len(first_boxes), dtype=np.int32)))
    return Groups(
        bounds=bounds.stored(),
        starts=np.concatenate([[0], ends]).astype(np.int64),
        members=boxes.slots_of(ordered[taken]),
    )


def _hash(boxes: Boxes, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    hashes = np.empty(len(numbers), np.uint64)
    kernels.hash_boxes(boxes.arrays, numbers, hashes)
    return hashes
