"""The language of conditions: from texts to the closed code intervals that indexes store.

    text --parser.py--> Condition (conditions.py) --normal_form.py--> boxes

`docs/language.md` says what a text means. This module has the three ways in: `parse` for one tree,
`boxes_of` for the boxes of one text, `compile_conditions` for a column of texts.

In bulk, texts are sorted by shape. The shape is the text without its literals, so
`price < 10 and symbol = 'IBM'` and `price < 25 and symbol = 'HAL'` have the same: it is parsed once,
and the tree is filled with the literals of each text. Anything odd about a literal sends the text
through the parser after all, which alone makes the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.columns import describe
from rangecast.conditions import Condition
from rangecast.errors import LanguageError
from rangecast.normal_form import Box, Expander
from rangecast.parser import LITERALS, read
from rangecast.schema import Schema

__all__ = ["Compiled", "boxes_of", "compile_conditions", "parse"]

_SHAPE_LIMIT = 4_096
_TEXT_LIMIT = 16_384


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

    >>> from rangecast.attributes import Category, Int
    >>> print(parse("10<=price<20 and not symbol in('IBM')", Schema(Int("price"), Category("symbol"))))
    10 <= price < 20 AND NOT symbol IN ('IBM')
    """
    return read(text, schema)[0]


def boxes_of(schema: Schema, text: str) -> list[Box]:
    """The boxes of a condition: {attribute position: (low, high)}, none if it can never hold.

    >>> from rangecast.attributes import Int
    >>> boxes_of(Schema(Int("price"), Int("volume")), "price in (3, 4, 5, 9) and volume = 1")
    [{0: (3, 5), 1: (1, 1)}, {0: (9, 9), 1: (1, 1)}]
    """
    return _boxes(text, schema, Expander(schema))


def compile_conditions(schema: Schema, texts: Sequence[str]) -> Compiled:
    """The boxes of a column of texts; rows that fail are given back and stop no other.

    >>> from rangecast.attributes import Int
    >>> compiled = compile_conditions(Schema(Int("price")), ["price > 5", "price >", "price != 7"])
    >>> compiled.owners.tolist(), [row for row, error in compiled.errors]
    ([0, 2, 2], [1])
    """
    compiler = _Compiler(schema)
    owners: list[int] = []
    sizes: list[int] = []
    positions: list[int] = []
    ends: list[tuple[int, int]] = []
    errors: list[tuple[int, LanguageError]] = []
    for row, text in enumerate(texts):
        try:
            boxes = compiler.boxes(text)
        except LanguageError as error:
            errors.append((row, error))
            continue
        for box in boxes:
            owners.append(row)
            sizes.append(len(box))
            positions += box
            ends += box.values()
    bounds = np.array(ends, np.int64).reshape(-1, 2)
    return Compiled(
        np.array(owners, np.int64),
        np.repeat(np.arange(len(sizes), dtype=np.int64), np.array(sizes, np.int64)),
        np.array(positions, np.int64),
        np.ascontiguousarray(bounds[:, 0]),
        np.ascontiguousarray(bounds[:, 1]),
        errors,
    )


def _boxes(text: str, schema: Schema, expander: Expander) -> list[Box]:
    condition, literals = read(text, schema)
    return _expand(expander, condition, literals, text)


def _expand(expander: Expander, condition: Condition, literals: list[str], text: str) -> list[Box]:
    try:
        return expander.boxes(condition, literals)
    except LanguageError as error:  # too many boxes: of the whole text, not of a place in it
        raise LanguageError(str(error), text, 0) from None


class _Compiler:
    """Compiles texts over one schema, each shape parsed once."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.expander = Expander(schema)
        self.shapes: dict[tuple[str, ...], Condition | None] = {}
        self.texts: dict[str, list[Box]] = {}

    def boxes(self, text: str) -> list[Box]:
        if not isinstance(text, str):
            raise LanguageError(f"a condition must be a string, got {describe(text)}")
        known = self.texts.get(text)
        if known is None:
            known = self._filled(text) if '"' not in text else None
            if known is None:
                known = _boxes(text, self.schema, self.expander)
            if len(self.texts) >= _TEXT_LIMIT:
                self.texts.clear()
            self.texts[text] = known
        return known

    def _filled(self, text: str) -> list[Box] | None:
        """The boxes by the shape of the text, or None when the parser has to look at it."""
        pieces = LITERALS.split(text)
        shape, literals = tuple(pieces[::2]), pieces[1::2]
        condition = self.shapes.get(shape)
        if condition is None:
            if shape in self.shapes:
                return None
            if len(self.shapes) >= _SHAPE_LIMIT:
                self.shapes.clear()
            condition, found = read(text, self.schema)
            # the two regular expressions could differ on a text; such a shape is parsed each time
            self.shapes[shape] = condition if found == literals else None
            return _expand(self.expander, condition, found, text)
        try:
            return self.expander.boxes(condition, literals)
        except ValueError:
            return None
