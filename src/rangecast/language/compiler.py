"""From texts to boxes: `parse` for one tree, `boxes_of` for the boxes of one text, `compile_conditions` for
a column of texts.

In bulk, texts of one shape are parsed once and compiled together: see `templates.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import LanguageError
from rangecast.language.normal_form import Box, Expander
from rangecast.language.parser import read
from rangecast.language.templates import Bounds, bounds_of, conjunction, split
from rangecast.language.tree import Condition
from rangecast.types.attributes import Codes
from rangecast.types.columns import describe
from rangecast.types.schema import Schema

__all__ = ["Compiled", "boxes_of", "compile_conditions", "parse"]

_CHUNK = 65_536
_SHAPE_LIMIT = 16_384
# Arrays cost some 100 us per shape, filling its tree some 30 us per text.
_FEW_TEXTS = 4


class Compiled(NamedTuple):
    """Boxes of many texts: which text each came from, and the attributes that each bounds.

    array              dtype   shape       meaning
    owners             int64   n_boxes     the text's row, ascending; a text may have none
    entry_boxes        int64   n_entries   the box that a bound belongs to, ascending
    entry_attributes   int64   n_entries   the attribute's position
    entry_lows         int64   n_entries   the closed interval of codes
    entry_highs        int64   n_entries
    errors             the rows that failed, with the reason
    """

    owners: npt.NDArray[np.int64]
    entry_boxes: npt.NDArray[np.int64]
    entry_attributes: npt.NDArray[np.int64]
    entry_lows: npt.NDArray[np.int64]
    entry_highs: npt.NDArray[np.int64]
    errors: list[tuple[int, LanguageError]]


def parse(text: str, schema: Schema) -> Condition:
    """The tree of a condition; LanguageError for a text that cannot be read.

    >>> from rangecast.types.attributes import Category, Int
    >>> print(parse("10<=price<20 and not symbol in('IBM')", Schema(Int("price"), Category("symbol"))))
    10 <= price < 20 AND NOT symbol IN ('IBM')
    """
    return read(text, schema)[0]


def boxes_of(schema: Schema, text: str) -> list[Box]:
    """The boxes of a condition: {attribute position: (low, high)}, none if it can never hold.

    >>> from rangecast.types.attributes import Int
    >>> boxes_of(Schema(Int("price"), Int("volume")), "price in (3, 4, 5, 9) and volume = 1")
    [{0: (3, 5), 1: (1, 1)}, {0: (9, 9), 1: (1, 1)}]
    """
    condition, literals = read(text, schema)
    return _boxes(Expander(schema), condition, literals, text)


def compile_conditions(schema: Schema, texts: Sequence[str]) -> Compiled:
    """The boxes of a column of texts; rows that fail are given back and stop no other.

    >>> from rangecast.types.attributes import Int
    >>> compiled = compile_conditions(Schema(Int("price")), ["price > 5", "price >", "price != 7"])
    >>> compiled.owners.tolist(), [row for row, error in compiled.errors]
    ([0, 2, 2], [1])
    """
    compiler = _Compiler(schema)
    for start in range(0, len(texts), _CHUNK):
        compiler.add(start, texts[start : start + _CHUNK])
    return compiler.result()


class _Shape:
    """A shape and the texts of it that wait for their boxes."""

    __slots__ = ("condition", "literals", "rows", "steps")

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self.steps = conjunction(condition)
        self.rows: list[int] = []
        self.literals: list[str] = []


class _Compiler:
    """Collects the boxes of texts: as arrays from shapes, and one by one from trees."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.expander = Expander(schema)
        self.shapes: dict[tuple[str, ...], _Shape | None] = {}
        self.errors: list[tuple[int, LanguageError]] = []
        self.single: list[tuple[int, Box]] = []
        self.whole: list[tuple[Codes, Bounds]] = []

    def add(self, start: int, texts: Sequence[str]) -> None:
        """Compile a chunk whose first text is row `start`."""
        for row, text in enumerate(texts, start):
            try:
                self._assign_to_shape(row, text)
            except LanguageError as error:
                self.errors.append((row, error))
        for shape in self.shapes.values():
            if shape is not None and shape.rows:
                self._fill(shape, start, texts)
                shape.rows, shape.literals = [], []
        if len(self.shapes) > _SHAPE_LIMIT:
            self.shapes.clear()

    def _assign_to_shape(self, row: int, text: str) -> None:
        """Note a row at its shape, or expand its text at once where a shape would not do."""
        if not isinstance(text, str):
            raise LanguageError(f"a condition must be a string, got {describe(text)}")
        key, literals = split(text)
        shape = self.shapes.get(key)
        if shape is None:
            condition, found = read(text, self.schema)
            if key not in self.shapes:
                # where a name in double quotes or a date with a space misled `split`, all are parsed
                shape = self.shapes[key] = _Shape(condition) if found == literals else None
            if shape is None:
                self._expand(row, condition, found, text)
                return
        if shape.steps is None:
            self._from_tree(row, shape.condition, literals, text)
        else:
            shape.rows.append(row)
            shape.literals += literals

    def _fill(self, shape: _Shape, start: int, texts: Sequence[str]) -> None:
        assert shape.steps is not None
        rows = np.array(shape.rows)
        doubtful = np.ones(len(rows), bool)
        if len(rows) >= _FEW_TEXTS:
            bounds = bounds_of(self.schema, shape.steps, len(rows), shape.literals)
            doubtful = bounds.doubtful
            self.whole.append((rows, bounds))
        n_literals = len(shape.literals) // len(rows)
        for i in np.flatnonzero(doubtful).tolist():
            row, literals = shape.rows[i], shape.literals[i * n_literals : (i + 1) * n_literals]
            try:
                self._from_tree(row, shape.condition, literals, texts[row - start])
            except LanguageError as error:
                self.errors.append((row, error))

    def _from_tree(self, row: int, condition: Condition, literals: list[str], text: str) -> None:
        """Take the tree that another text of the shape has left, or parse what does not fit into it."""
        try:
            boxes = self.expander.boxes(condition, literals)
        except ValueError:
            self._expand(row, *read(text, self.schema), text)
        else:
            self.single += [(row, box) for box in boxes]

    def _expand(self, row: int, condition: Condition, literals: list[str], text: str) -> None:
        self.single += [(row, box) for box in _boxes(self.expander, condition, literals, text)]

    def result(self) -> Compiled:
        """All boxes, by the row of their text."""
        owners = [np.array([row for row, _ in self.single], np.int64)]
        sizes = np.array([len(box) for _, box in self.single], np.int64)
        boxes = [np.repeat(np.arange(len(sizes)), sizes)]
        attributes = [np.array([position for _, box in self.single for position in box], np.int64)]
        ends = np.array([span for _, box in self.single for span in box.values()], np.int64).reshape(-1, 2)
        lows, highs = [ends[:, 0]], [ends[:, 1]]
        count = len(sizes)
        for rows, bounds in self.whole:
            good = ~bounds.doubtful
            owners.append(rows[good])
            n = len(owners[-1])
            for position, low in bounds.lows.items():
                boxes.append(np.arange(count, count + n))
                attributes.append(np.full(n, position))
                lows.append(low[good])
                highs.append(bounds.highs[position][good])
            count += n
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        entry_boxes = rank[np.concatenate(boxes)]
        entries = np.argsort(entry_boxes, kind="stable")
        return Compiled(
            owner[order],
            entry_boxes[entries],
            np.concatenate(attributes)[entries],
            np.concatenate(lows)[entries],
            np.concatenate(highs)[entries],
            sorted(self.errors, key=lambda pair: pair[0]),
        )


def _boxes(expander: Expander, condition: Condition, literals: list[str], text: str) -> list[Box]:
    try:
        return expander.boxes(condition, literals)
    except LanguageError as error:  # too many boxes: of the whole text, not of a place in it
        raise LanguageError(str(error), text, 0) from None
