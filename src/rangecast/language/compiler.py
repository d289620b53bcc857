"""From texts to boxes: `parse` for one tree, `clauses_of` and `boxes_of` for the normal form of one text,
`compile_conditions` for a column of texts.

In bulk, texts of one shape are parsed once and compiled together: see `templates.py`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import LanguageError, RangecastError
from rangecast.language.kernels import SET
from rangecast.language.long_lists import SHORTEST, LongLists, put_lists
from rangecast.language.normal_form import Clause, Expander
from rangecast.language.parser import read
from rangecast.language.templates import Filled, fill, split
from rangecast.language.tree import Condition, Likeness, likenesses_of
from rangecast.types.attributes import Codes, Interval
from rangecast.types.columns import describe
from rangecast.types.schema import Schema

__all__ = ["Compiled", "boxes_of", "clauses_of", "compile_conditions", "parse"]

_log = logging.getLogger(__name__)

Box = dict[int, Interval]

BOX_LIMIT = 1_024
"""How many boxes `boxes_of` multiplies the spans of a condition out into."""

_CHUNK = 65_536
_SHAPE_LIMIT = 16_384
# Shapes of long IN lists hold a tree of as many literals: so many are remembered for all shapes of a load.
_LITERAL_LIMIT = 1 << 20
# Arrays cost some 200 to 400 us per shape, filling its tree some 25 to 60 us per text.
_FEW_TEXTS = 8


class Compiled(NamedTuple):
    """The clauses of many texts as the arrays of SparseBoxes (model/boxes.py), and the rows that failed.

    `owners` are the rows of the texts, ascending; a text may have no box. `doubts` are the rows that lint.py
    should look at, ascending.
    """

    owners: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    attributes: npt.NDArray[np.int32]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    sets: npt.NDArray[np.int64]
    set_starts: npt.NDArray[np.int64]
    set_lows: npt.NDArray[np.int64]
    set_highs: npt.NDArray[np.int64]
    errors: list[tuple[int, LanguageError]]
    doubts: list[int]


def parse(text: str, schema: Schema) -> Condition:
    """The tree of a condition; LanguageError for a text that cannot be read.

    >>> from rangecast.types.attributes import Category, Int
    >>> print(parse("10<=price<20 and not symbol in('IBM')", Schema(Int("price"), Category("symbol"))))
    10 <= price < 20 AND NOT symbol IN ('IBM')
    """
    return read(text, schema)[0]


def clauses_of(schema: Schema, text: str) -> list[Clause]:
    """The normal form of a condition: {attribute position: spans} per clause, none if it can never hold.

    >>> from rangecast.types.attributes import Int
    >>> clauses_of(Schema(Int("price"), Int("volume")), "price in (3, 4, 5, 9) and volume = 1")
    [{0: ((3, 5), (9, 9)), 1: ((1, 1),)}]
    """
    expander = Expander(schema)
    return _clauses(expander, *read(text, schema, expander.literals), text)


def boxes_of(schema: Schema, text: str) -> list[Box]:
    """The clauses multiplied out into boxes of one span per attribute: {attribute position: (low, high)}.

    LanguageError beyond BOX_LIMIT of them: this is for people to read, and no index needs it.

    >>> from rangecast.types.attributes import Int
    >>> boxes_of(Schema(Int("price"), Int("volume")), "price in (3, 4, 5, 9) and volume = 1")
    [{0: (3, 5), 1: (1, 1)}, {0: (9, 9), 1: (1, 1)}]
    """
    clauses = clauses_of(schema, text)
    needed = sum(math.prod(map(len, clause.values())) for clause in clauses)
    if needed > BOX_LIMIT:
        raise LanguageError(
            f"the condition is {needed:,} boxes of one interval per attribute, and the limit is "
            f"{BOX_LIMIT:,}; take its clauses",
            text,
            0,
        )
    return [
        dict(zip(clause, spans, strict=True)) for clause in clauses for spans in product(*clause.values())
    ]


def compile_conditions(schema: Schema, texts: Sequence[str]) -> Compiled:
    """The boxes of a column of texts; rows that fail are returned and do not stop the others.

    That holds for a text that makes this code fail, too: its error says so and has what was raised as its
    cause, and the first of a column is logged with its traceback.

    >>> from rangecast.types.attributes import Int
    >>> compiled = compile_conditions(Schema(Int("price")), ["price > 5", "price >", "price != 7"])
    >>> compiled.owners.tolist(), [row for row, error in compiled.errors]
    ([0, 2], [1])
    """
    compiler = _Compiler(schema)
    if len(texts) == 1:
        compiler.add_alone(texts[0])
        return compiler.result()
    for start in range(0, len(texts), _CHUNK):
        compiler.add(start, texts[start : start + _CHUNK], texts)
    return compiler.result()


class _Shape:
    """A shape and the texts of it that wait for their boxes. Where texts must be alike in more than the
    shape, there is one for each of the keys that they have."""

    __slots__ = ("condition", "likenesses", "literals", "rows")

    def __init__(self, condition: Condition, likenesses: tuple[Likeness, ...]) -> None:
        self.condition = condition
        self.likenesses = likenesses
        self.rows: list[int] = []
        self.literals: list[str] = []


class _Compiler:
    """Collects the boxes of texts: as arrays from shapes, and one by one from trees."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.expander = Expander(schema)
        self.shapes: dict[tuple[object, ...], _Shape | None] = {}
        self.errors: list[tuple[int, LanguageError]] = []
        self.doubts: list[int] = []
        self.held = 0
        self.single: list[tuple[int, Clause]] = []
        self.whole: list[tuple[Codes, Filled]] = []
        self.lists: LongLists | None = None
        self.fault_logged = False

    def add_alone(self, text: str) -> None:
        """Compile a text that shares its shape with no other, so that it needs none."""
        try:
            text = self._without_list(0, text, [text])
            self._expand(0, *self._read(text), text)
        except Exception as error:
            self._refuse(0, text, error)

    def add(self, start: int, texts: Sequence[str], every: Sequence[str]) -> None:
        """Compile a chunk whose first text is row `start` of `every` text of the load."""
        for row, text in enumerate(texts, start):
            try:
                self._assign_to_shape(row, self._without_list(row, text, every))
            except Exception as error:
                self._refuse(row, text, error)
        for shape in self.shapes.values():
            if shape is not None and shape.rows:
                self._fill(shape, start, texts)
                shape.rows, shape.literals = [], []
        if len(self.shapes) > _SHAPE_LIMIT or self.held > _LITERAL_LIMIT:
            self.shapes.clear()
            self.held = 0

    def _without_list(self, row: int, text: str, every: Sequence[str]) -> str:
        """A text without its long list, if it is long enough to have one."""
        if not isinstance(text, str):
            raise LanguageError(f"a condition must be a string, got {describe(text)}")
        if len(text) < SHORTEST:
            return text
        if self.lists is None:
            self.lists = LongLists(self.schema)
            self.lists.expect(every)
        return self.lists.without(row, text)

    def _read(self, text: str) -> tuple[Condition, list[str]]:
        return read(text, self.schema, self.expander.literals)

    def _assign_to_shape(self, row: int, text: str) -> None:
        """Note a row at its shape, or expand its text at once where a shape would not do."""
        key: tuple[object, ...]
        key, literals = split(text)
        shape = self.shapes.get(key)
        if shape is not None and shape.likenesses:
            keys = [one.key(literals) for one in shape.likenesses]
            if None in keys:
                self._expand(row, *self._read(text), text)
                return
            key = (key, *keys)
            shape = self.shapes.get(key)
        if shape is None:
            condition, found = self._read(text)
            if key not in self.shapes and self.held <= _LITERAL_LIMIT:
                self.held += len(literals)
                # where a name in double quotes or a date with a space misled `split`, all are parsed
                shape = _Shape(condition, likenesses_of(condition)) if found == literals else None
                self.shapes[key] = shape
                if shape is not None and shape.likenesses and isinstance(key[0], str):
                    self.shapes[key, *(one.key(literals) for one in shape.likenesses)] = shape
            if shape is None:
                self._expand(row, condition, found, text)
                return
        shape.rows.append(row)
        shape.literals += literals

    def _fill(self, shape: _Shape, start: int, texts: Sequence[str]) -> None:
        rows = np.array(shape.rows)
        doubtful = np.ones(len(rows), bool)
        if len(rows) >= _FEW_TEXTS:
            try:
                filled = fill(self.schema, shape.condition, len(rows), shape.literals)
            except Exception as error:  # each text by itself says which of them it is
                self._log_fault(texts[shape.rows[0] - start], error)
            else:
                doubtful = filled.doubtful
                self.whole.append((rows, filled))
                self.doubts += rows[filled.odd & ~doubtful].tolist()
        n_literals = len(shape.literals) // len(rows)
        for i in np.flatnonzero(doubtful).tolist():
            row, literals = shape.rows[i], shape.literals[i * n_literals : (i + 1) * n_literals]
            try:
                self._from_tree(row, shape.condition, literals, texts[row - start])
            except Exception as error:
                self._refuse(row, texts[row - start], error)

    def _refuse(self, row: int, text: str, error: Exception) -> None:
        """Note why a row fails; an error that nobody raised on purpose is a fault, and is told as one."""
        if isinstance(error, LanguageError):
            self.errors.append((row, error))
            return
        if isinstance(error, RangecastError):
            refusal = LanguageError(str(error), text, 0)
        elif isinstance(error, MemoryError):  # says something about the machine and nothing about the text
            raise error
        else:
            self._log_fault(text, error)
            raised = f"{type(error).__name__}: {error}"
            refusal = LanguageError(f"this is a fault of rangecast, please report it ({raised})", text, 0)
        refusal.__cause__ = error
        self.errors.append((row, refusal))

    def _log_fault(self, text: str, error: Exception) -> None:
        if not self.fault_logged:  # a load may have a million texts of this kind
            _log.error("a condition that rangecast fails to compile: %.200r", text, exc_info=error)
        self.fault_logged = True

    def _from_tree(self, row: int, condition: Condition, literals: list[str], text: str) -> None:
        """Take the tree that another text of the shape has left, or parse what does not fit into it."""
        try:
            clauses = self.expander.clauses(condition, literals)
        except ValueError:
            self._expand(row, *self._read(text), text)
        else:
            self._add(row, clauses)

    def _expand(self, row: int, condition: Condition, literals: list[str], text: str) -> None:
        self._add(row, _clauses(self.expander, condition, literals, text))

    def _add(self, row: int, clauses: list[Clause]) -> None:
        self.single += [(row, clause) for clause in clauses]
        if self.expander.doubtful:
            self.doubts.append(row)

    def result(self) -> Compiled:
        """All boxes, by the row of their text."""
        entries = _CompiledEntries()
        entries.add_clauses(self.single)
        for rows, filled in self.whole:
            entries.add_columns(rows, filled)
        errors = sorted(self.errors, key=lambda pair: pair[0])
        compiled = entries.result(self.schema.width, errors, sorted(self.doubts))
        if self.lists is None or not self.lists.found:
            return compiled
        return Compiled(
            *compiled[:5],
            *put_lists(self.lists, *compiled[:2], compiled[2:5], compiled[5:9]),
            *compiled[9:],
        )


class _CompiledEntries:
    """Boxes and their entries in any order: arrays that `result` joins and sorts.

    A box stands by its number in this order; `places` say which of the boxes of its text it is. `counts` say
    how many spans an entry has, and `spans` are those of the entries that have several.
    """

    def __init__(self) -> None:
        self.n_boxes = 0
        self.owners: list[Codes] = [np.empty(0, np.int64)]
        self.places: list[Codes] = [np.empty(0, np.int64)]
        self.boxes: list[Codes] = [np.empty(0, np.int64)]
        self.attributes: list[Codes] = [np.empty(0, np.int64)]
        self.lows: list[Codes] = [np.empty(0, np.int64)]
        self.highs: list[Codes] = [np.empty(0, np.int64)]
        self.counts: list[Codes] = [np.empty(0, np.int64)]
        self.spans: list[tuple[Codes, Codes]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]

    def add_clauses(self, single: list[tuple[int, Clause]]) -> None:
        """Clauses with the rows of their texts; those of one text are in their order."""
        sizes = np.array([len(clause) for _, clause in single], np.int64)
        said = [spans for _, clause in single for spans in clause.values()]
        self.owners.append(np.array([row for row, _ in single], np.int64))
        self.places.append(np.arange(len(single)))
        self.boxes.append(np.repeat(np.arange(len(sizes)), sizes))
        self.attributes.append(np.array([position for _, clause in single for position in clause], np.int64))
        self.lows.append(np.array([spans[0][0] for spans in said], np.int64))
        self.highs.append(np.array([spans[-1][1] for spans in said], np.int64))
        self.counts.append(np.array([len(spans) for spans in said], np.int64))
        ends = np.array([span for spans in said if len(spans) > 1 for span in spans], np.int64).reshape(-1, 2)
        self.spans.append((ends[:, 0], ends[:, 1]))
        self.n_boxes += len(single)

    def add_columns(self, rows: Codes, filled: Filled) -> None:
        """The clauses of the texts of a shape, but for the doubtful ones."""
        good = np.flatnonzero(~filled.doubtful)
        n = len(good)
        for place, clause in enumerate(filled.clauses):
            self.owners.append(rows[good])
            self.places.append(np.full(n, place) if filled.ranks is None else filled.ranks[place][good])
            for position, spans in clause.items():
                lows, highs, counts = (column[good] for column in spans)
                self.boxes.append(np.arange(self.n_boxes, self.n_boxes + n))
                self.attributes.append(np.full(n, position))
                self.counts.append(counts)
                self.lows.append(lows[:, 0])
                if lows.shape[1] == 1:
                    self.highs.append(highs[:, 0])
                else:
                    self.highs.append(highs[np.arange(n), counts - 1])
                    several = (np.arange(lows.shape[1]) < counts[:, None]) & (counts > 1)[:, None]
                    self.spans.append((lows[several], highs[several]))
            self.n_boxes += n

    def result(self, width: int, errors: list[tuple[int, LanguageError]], doubts: list[int]) -> Compiled:
        """All boxes by owner, with their entries by attribute."""
        owner = np.concatenate(self.owners)
        order = np.lexsort((np.concatenate(self.places), owner))
        rank = np.empty(len(owner), np.int64)
        rank[order] = np.arange(len(owner))
        box = rank[np.concatenate(self.boxes)]
        attribute = np.concatenate(self.attributes)
        entries = np.argsort(box * width + attribute, kind="stable")
        counts = np.concatenate(self.counts)
        positions = attribute[entries].astype(np.int32)
        sets = np.flatnonzero(counts[entries] > 1)
        positions[sets] |= SET
        # the spans of sets go where their entries went
        moved = entries[sets]
        several = counts[moved]
        firsts = _starts(np.where(counts > 1, counts, 0))[moved]
        set_starts = _starts(several)
        spans = np.arange(set_starts[-1]) + np.repeat(firsts - set_starts[:-1], several)
        return Compiled(
            owner[order].astype(np.int32),
            _starts(np.bincount(box, minlength=len(owner))),
            positions,
            np.concatenate(self.lows)[entries],
            np.concatenate(self.highs)[entries],
            sets,
            set_starts,
            np.concatenate([lows for lows, _ in self.spans])[spans],
            np.concatenate([highs for _, highs in self.spans])[spans],
            errors,
            doubts,
        )


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _clauses(expander: Expander, condition: Condition, literals: list[str], text: str) -> list[Clause]:
    try:
        return expander.clauses(condition, literals)
    except LanguageError as error:  # too many clauses: of the whole text, not of a place in it
        raise LanguageError(str(error), text, 0) from None
