"""Slots whose pieces hold more than their boxes: what a structure finds of them is checked by the boxes.

A structure knows one interval per attribute. A box may say more than that: sets of intervals
(said_boxes.py), and regions of the earth (types/regions.py), which a structure has as their coverings in
longitude and latitude. The slots of such boxes are noted in the catalog, with the boxes as they were said,
and whoever reads a structure drops what no box of a slot holds.

Where an attribute is one of points, an entry of a box names regions by their codes. It holds an event whose
point is in one of them, by the areas themselves; so exactness is in this one place, for every index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.engine import places as place_kernels
from rangecast.kernels.types.places import RegionArrays
from rangecast.language import kernels as box_kernels
from rangecast.language.kernels import SET, ListedValues
from rangecast.model import boxes as sparse
from rangecast.model.boxes import SparseBoxes
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import LAST, Codes
from rangecast.types.regions import joined
from rangecast.types.schema import Schema

if TYPE_CHECKING:
    from rangecast.engine.answers import Rows
    from rangecast.engine.catalog import Catalog
    from rangecast.engine.said_boxes import SaidBoxes


class NamedRegions(NamedTuple):
    """The regions of all attributes of points: those of attribute j are bases[j] .. bases[j] + counts[j];
    a base is -1 where an attribute is of something else."""

    bases: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    regions: RegionArrays
    position: int
    """The attribute that slots have a region of in `lone`."""
    lone: npt.NDArray[np.int32]
    """For each slot the region that alone decides, or 0 (said_boxes.py)."""
    checked: npt.NDArray[np.uint8]
    """For each slot a bit: whether it is checked at all."""


class SlotChecks(NamedTuple):
    """Which slots are checked, and the boxes that they are checked by (said_boxes.py)."""

    checks: npt.NDArray[np.int32]
    boxes: SparseBoxes
    lists: ListedValues
    tail: int
    """From this slot on they are in no layout."""
    places: NamedRegions | None

    def held(self, codes: Codes, offsets: npt.NDArray[np.int64], slots: npt.NDArray[np.int32]) -> Rows:
        """The matches without those of checked slots of which no box holds the event, in place."""
        if not len(slots):
            return offsets, slots
        kept = np.empty_like(offsets)
        if self.places is None:
            n = box_kernels.drop_unheld(codes, offsets, slots, *self[:4], kept)
        else:
            spheres = np.zeros((len(codes), 4))
            n = place_kernels.drop_outside(codes, offsets, slots, *self[:4], *self.places, spheres, kept)
        return kept, slots[:n]


def checked_slots(catalog: Catalog, tail: int = 0) -> SlotChecks | None:
    """What matches of a catalog are checked by, if any are, when slots from `tail` on are in no layout."""
    said = catalog.said
    if said is None or not said.needs_checks(tail):
        return None
    checks, places = said.checks(catalog.n_slots), _places(catalog.schema, said, catalog.n_slots)
    return SlotChecks(checks, said.boxes, said.lists.arrays, tail, places)


def _places(schema: Schema, said: SaidBoxes, n_slots: int) -> NamedRegions | None:
    if not schema.points:
        return None
    bases = np.full(len(schema), -1, np.int64)
    counts = np.zeros(len(schema), np.int64)
    tables = []
    base = 0
    for position, attribute in schema.points:
        tables.append(attribute.regions())
        bases[position], counts[position] = base, len(tables[-1].starts) - 1
        base += int(counts[position])
    # with several attributes of points, whatever was found is compared with its boxes
    position = schema.points[0][0]
    lone = said.lone_regions(n_slots, position) if len(tables) == 1 else np.zeros(n_slots, np.int32)
    return NamedRegions(bases, counts, joined(tables), position, lone, said.checked_bits(n_slots))


def without_regions(subs: Subscriptions) -> tuple[Subscriptions, npt.NDArray[np.uint8]] | None:
    """The subscriptions without what their boxes ask of points beyond being there, and which of them do; None
    where none does."""
    schema = subs.schema
    if not schema.points:
        return None
    boxes = subs.boxes
    place = np.zeros(len(schema), bool)
    place[[position for position, _ in schema.points]] = True
    # a point is there, or is not: any other entry names regions
    asked = place[boxes.attributes & ~np.int32(SET)] & (boxes.highs >= 0) & (boxes.highs != LAST)
    if not asked.any():
        return None
    owners = np.repeat(boxes.owners, np.diff(boxes.starts))
    marked = np.zeros(len(subs), np.uint8)
    marked[owners[asked]] = 1
    kept = ~asked
    before = sparse.starts_of(kept)
    sets: npt.NDArray[Any] = kept[boxes.sets]
    chosen = np.flatnonzero(sets)
    spans = sparse.ragged(boxes.set_starts, chosen)
    rest = SparseBoxes(
        boxes.owners,
        before[boxes.starts],
        boxes.attributes[kept],
        boxes.lows[kept],
        boxes.highs[kept],
        before[boxes.sets[chosen]],
        sparse.starts_of(np.diff(boxes.set_starts)[chosen]),
        boxes.set_lows[spans],
        boxes.set_highs[spans],
    )
    return Subscriptions.of_boxes(schema, subs.ids, rest), marked
