"""A static layout of some boxes: what one is asked for, and the tail of an index as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rangecast.durable.arrays import count_bytes
from rangecast.engine.answers import Found, Rows, SeveralColumns, count_rows, scan_rows, write_rows
from rangecast.engine.boxes import Boxes
from rangecast.model.wide_events import EventEntries
from rangecast.types.attributes import Codes

IdRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Offsets and ids: the matches of a batch in rows, one per event."""


class Part:
    """A static layout of some boxes.

    A kind of it is a dataclass, whose fields are what a file holds (array_file.py): arrays in NamedTuples, as
    kernels take them, and plain values. What follows from them it makes in `__post_init__`.
    """

    exact: ClassVar[bool] = False
    """Whether it holds the boxes it was made of and no others, so that none was dead at that time."""

    ratio: int = 8
    """A newer part that is not this many times smaller is merged with this one: more where building costs
    little beside what a second part costs every event."""

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        """The matches of a batch within this part, dead slots included."""
        raise NotImplementedError

    def stab_entries(self, entries: EventEntries, boxes: Boxes) -> Found:
        """The same of events by what they say."""
        return self.stab(entries.columns(), boxes)

    def find(self, codes: Codes | EventEntries, boxes: Boxes) -> Found:
        """`stab` or `stab_entries`."""
        return self.stab_entries(codes, boxes) if isinstance(codes, EventEntries) else self.stab(codes, boxes)

    def writes_ids(self, codes: Codes) -> bool:
        """Whether `stab_ids` is there for such a batch, so that no slots come first."""
        return False

    def stab_ids(self, codes: Codes, boxes: Boxes, base: int, beside: IdRows | None) -> IdRows:
        """The ids of the matches where they are slots with `base` added, and behind those of each event the
        ones beside."""
        raise NotImplementedError

    def stab_variants(self, variants: SeveralColumns, boxes: Boxes) -> Found:
        """The same of events with several columns each: what is found of an event may stand in any column of
        it that holds it."""
        return self.stab(variants.codes, boxes)

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        """The matches of one event, or None where there are so many that `stab` had better write them."""
        return None

    def stab_one_said(self, entries: EventEntries, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        """The same of one event by what it says, or None where a part does not read that."""
        return None

    def stab_some(self, codes: Codes, boxes: Boxes, limit: int) -> Rows:
        """Matches of a batch, so many of each event at least or all of them, dead slots included."""
        return write_rows(self.stab(codes, boxes))

    def count(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int64]:
        """How many matches each event of a batch has, dead slots included."""
        return count_rows(self.stab(codes, boxes))

    def hold_any(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.bool_]:
        """Whether each event of a batch has a match, dead slots included."""
        return self.count(codes, boxes) > 0

    def check(self, boxes: Boxes, n_slots: int) -> None:
        """Raise StorageError unless all that kernels index by is in range (checks.py)."""

    def loaded(self) -> None:
        """Take note that the part came from a file or a pickle."""

    def without(self, dead: npt.NDArray[np.uint8]) -> Part | None:
        """This part without the entries of dead slots, or None where only a rebuild does that."""
        return None

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64] | None:
        """How many entries each event would look at, None where that is not known before the search."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of the part's own arrays."""
        return count_bytes(self) + self.derived_bytes

    @property
    def derived_bytes(self) -> int:
        """Bytes of arrays that are made from the fields."""
        return 0

    def stats(self) -> dict[str, int]:
        """Counts that add up over parts."""
        return {}


@dataclass(eq=False)
class Tail(Part):
    """The tail as a part, where all are asked alike; it is not kept."""

    first: int
    last: int

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        return scan_rows(codes, boxes, self.first, self.last)

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32]:
        return scan_rows(codes, boxes, self.first, self.last)[1]
