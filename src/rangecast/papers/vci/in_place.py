"""Structures on one attribute that change in place: what `vci`'s look-ups and `islist` share.

Such a structure finds candidates on one attribute; predicates on the others are checked per candidate.
A kind of it provides `_lay_out` (an empty structure for these boxes), `_enter`, `_leave` and `_emit`.
The attribute, unless `on=` names it, and whatever else is chosen from the data is chosen at the first
insert. A first insert may say little of what is to come, so the choice is made again, and the structure
rebuilt, whenever there are REFIT times as many boxes as at the last choice: on average a box is
moved less than once for it. A kind that has nothing to choose says so in `_adapts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Numbers, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import flat, hold, within
from rangecast.engine.index import Index
from rangecast.engine.selectivity import bounded_attributes, choose_attributes, named_attributes
from rangecast.types.attributes import Codes

REFIT = 8


class Head(NamedTuple):
    """What a file holds of every such index: the attribute (-1 before the first insert), how many boxes there
    were at the last choice and are now, whether slots are box numbers, and the attributes to be checked."""

    on: int
    fitted: int
    entered: int
    plain: bool
    checked: npt.NDArray[np.int64]


class InPlaceIndex(Index):
    """Candidates on one attribute, from a structure that takes boxes in and out one by one."""

    _on_option: tuple[int, ...] | None = None

    def _configure(self, on: Any = None) -> None:
        self._on_option = None if on is None else named_attributes(self.schema, on, 1)

    # what a kind of it provides

    def _adapts(self) -> bool:
        """Whether more data could change what was chosen at the first insert."""
        return self._on_option is None and len(self.schema) > 1

    def _lay_out(self, boxes: Boxes, numbers: Numbers) -> None:
        """Make an empty structure on attribute `self._on`, fit for these boxes."""
        raise NotImplementedError

    def _enter(self, boxes: Boxes, numbers: Numbers) -> None:
        """Take boxes in."""
        raise NotImplementedError

    def _leave(self, boxes: Boxes, numbers: Numbers) -> None:
        """Take boxes out."""
        raise NotImplementedError

    def _emit(self, codes: Codes, boxes: Boxes) -> Rows:
        """The matches of a batch; there is at least one box."""
        raise NotImplementedError

    def _take_laid_out(self, laid_out: Any) -> None:
        """Take the second half of what `_structure` gave: a head, and the structure unless it is empty."""
        raise NotImplementedError

    def _check_laid_out(self, n_boxes: int) -> None:
        """`_check_structure` of that half."""
        raise NotImplementedError

    # hooks of Index

    def _reset(self) -> None:
        self._on = -1
        self._fitted = 0
        self._entered = 0
        self._plain = True
        self._checked: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def _add(self, first: int, last: int) -> None:
        if first == last:
            return
        boxes = self._catalog.boxes
        numbers = np.arange(first, last)
        if self._on < 0:
            self._choose(boxes, numbers)
        elif self._adapts() and self._entered + len(numbers) >= REFIT * self._fitted:
            numbers = np.flatnonzero(self._catalog.alive[boxes.slots[: boxes.n]])
            self._choose(boxes, numbers)
        others = np.array(bounded_attributes(boxes, numbers, (self._on,)), np.int64)
        self._checked = np.union1d(self._checked, others)
        self._plain = self._plain and bool((boxes.slots[numbers] == numbers).all())
        self._enter(boxes, numbers)
        self._entered += len(numbers)

    def _choose(self, boxes: Boxes, numbers: Numbers) -> None:
        (self._on,) = self._on_option or choose_attributes(self.schema, None, 1, boxes, numbers)
        self._fitted = len(numbers)
        self._entered = 0
        self._checked = np.empty(0, np.int64)
        self._lay_out(boxes, numbers)

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        numbers = self._catalog.box_numbers(slots)
        if len(numbers):
            self._leave(self._catalog.boxes, numbers)
            self._entered -= len(numbers)

    def _stab(self, codes: Codes) -> Rows:
        if not self._entered:
            return np.zeros(codes.shape[1] + 1, np.int64), np.empty(0, np.int32)
        return self._emit(codes, self._catalog.boxes)

    def _head(self) -> Head:
        return Head(self._on, self._fitted, self._entered, self._plain, self._checked)

    def _check_structure(self) -> None:
        if self._on < 0:
            hold("that nothing is in a structure on no attribute", not self._entered)
            return
        d, catalog = len(self.schema), self._catalog
        hold("that a structure is on an attribute", self._on < d)
        flat(self._head())
        within("attributes of a structure", self._checked, d)
        hold("that slots number boxes", not self._plain or catalog.n_boxes <= catalog.n_slots)
        self._check_laid_out(catalog.n_boxes)

    def _take_structure(self, structure: Any) -> None:
        head, laid_out = structure
        self._on, self._fitted, self._entered, self._plain, self._checked = head
        if laid_out is not None:
            self._take_laid_out(laid_out)


def grow_rows(n_events: int, run: Callable[..., int]) -> Rows:
    """Rows from a kernel that writes them in order and stops, giving the event to go on with, when
    `out` is full; it gives n_events when it is done."""
    offsets = np.zeros(n_events + 1, np.int64)
    out = np.empty(max(1024, 8 * n_events), np.int32)
    event = 0
    while (event := run(event, offsets, out)) < n_events:
        larger = np.empty(2 * len(out), np.int32)
        larger[: offsets[event]] = out[: offsets[event]]
        out = larger
    return offsets, out[: offsets[n_events]]
