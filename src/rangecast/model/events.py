"""Events as codes: one column per attribute.

    array   dtype   shape           meaning
    codes   int64   (d, n_events)   codes[j] is attribute j of every event; MISSING where it has no value
    owners  int64   n_columns       None, or the event of each column of codes where some have several

A cell may be a list: then a predicate on that attribute holds when one of the values is in its set. Such an
event has a column for each choice of one of its values (wide_events.py), and `codes` has more columns
than there are events. Whoever reads `codes` by event looks at `owners` first; every index joins what the
columns of an event match, without repeats.

A string that no subscription has named yet gets the unknown code. Since a later subscription may
name it, an `Events` remembers which rows those are and looks them up again when the dictionary has
grown by the time it is matched.

Matching changes no event: `codes` and the strangers stay as they were made. What was looked up last is kept
in one immutable `CodeView`, which is replaced as a whole, so that any number of threads may match one
`Events`. A view says how many strings the dictionaries had before it was made, so it holds for as long as
they have no more.

Where the schema is wide and events say little of it they are kept by what they say (wide_events.py), and
`codes` is made when somebody asks. Hidden attributes are no part of it: they are computed when an index asks
for them (events.py).
"""

from __future__ import annotations

import itertools
import marshal
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import EventError, RangecastWarning
from rangecast.memory import check_rows
from rangecast.model import kernels_rows as kernels
from rangecast.model import wide_events
from rangecast.model.boxes import ragged
from rangecast.model.kernels_rows import RowCodes, RowKeys
from rangecast.model.wide_events import WIDE, CodeTarget, EventEntries
from rangecast.types.attributes import (
    LAST,
    MISSING,
    Attribute,
    Bool,
    Category,
    Codes,
    Encoded,
    Float,
    Int,
    Text,
    Timestamp,
    decoded_floats,
    list_codes,
)
from rangecast.types.columns import LISTS, Column, arrow_of, as_column
from rangecast.types.derived import Look, Values, codes_of, evaluate
from rangecast.types.expressions import parse_expression
from rangecast.types.frames import (
    NamedColumns,
    ObjectNames,
    key_of,
    kind_of,
    named_columns,
    row_keys,
    struct_inside,
    table_of,
    value_inside,
)
from rangecast.types.kernels import WordTable
from rangecast.types.patterns import HELD, HeldBundle, SourceWords, TraitBundles, names
from rangecast.types.places import degrees_from
from rangecast.types.schema import Schema
from rangecast.types.strings import (
    StrangeStrings,
    arrow_numbers,
    arrow_words,
    strings_of_spans,
    without_views,
)
from rangecast.types.vocabulary import UNKNOWN, Vocabulary

RowNumbers = npt.NDArray[np.int64]


class Events:
    """Events of one schema.

    >>> from rangecast import Int, Schema
    >>> events = Events.from_rows(Schema(Int("price"), Int("size")), [{"price": 5}, {"size": 2}])
    >>> len(events), events.value("price", 0), events.value("price", 1)
    (2, 5, None)
    """

    def __init__(
        self,
        schema: Schema,
        codes: Codes | EventEntries,
        rejected: Sequence[RejectedEvent] = (),
        *,
        copy: bool = True,
    ) -> None:
        """Events from codes, which are copied; with copy=False the array must not change any more."""
        self.schema = schema.declared
        self._entries: EventEntries | None = None
        if isinstance(codes, EventEntries):
            self._entries = codes
        else:
            self._codes = np.array(codes, np.int64, order="C", copy=copy or None)
        if len(codes.shape) != 2 or codes.shape[0] not in (len(schema), len(self.schema)):
            raise EventError(f"codes must be ({len(schema)}, n_events), got {codes.shape}")
        check_rows(codes.shape[1], "the events of a batch")
        self.owners: npt.NDArray[np.int64] | None = None
        if self._entries is None and len(codes) > len(self.schema):  # hidden attributes are computed
            self._codes = np.ascontiguousarray(self._codes[: len(self.schema)])
        self._hidden = HiddenColumns()
        self.rejected = list(rejected)
        self._strangers: dict[int, Strangers] = {}
        self._view: CodeView | None = None
        self._plain: EventCodes | None = None

    @classmethod
    def coded(cls, schema: Schema, codes: Codes, owners: npt.NDArray[np.int64] | None = None) -> Events:
        """Events from what `encoded` gave for a schema or, where that had fewer hidden attributes, for the
        schema of then; no code says which string an unknown one was.

        Expressions that came since are computed from the codes. Of patterns that came since none is taken to
        hold: they concern later subscriptions alone.
        """
        n = len(schema.names)
        out = cls(schema, codes[:n], copy=False)
        out.owners = owners
        hidden = schema.attributes[n:]
        given = {attribute.name: row for attribute, row in zip(hidden, codes[n:], strict=False)}
        for attribute in hidden[len(given) :]:
            if isinstance(attribute, HeldBundle):
                given[attribute.name] = _held_nowhere(attribute, codes.shape[1])
        out._hidden.given = given
        return out

    def note_strangers(self, position: int, strangers: Strangers) -> None:
        """Note the strings of an attribute that are in no dictionary."""
        self._strangers[position] = strangers

    def __len__(self) -> int:
        if self.owners is not None:
            return int(self.owners[-1]) + 1 if len(self.owners) else 0
        return int(self._said.shape[1])

    @property
    def codes(self) -> Codes:
        """One row per attribute and one column per event, or per variant of it; to be read, never written."""
        return self._codes if self._entries is None else self._entries.columns()

    @property
    def _said(self) -> Codes | EventEntries:
        return self._codes if self._entries is None else self._entries

    def _came_words(self) -> bool:
        """Whether words came to a dictionary since a string was not in it."""
        return any(len(self._vocabulary(at)) != some.known for at, some in self._strangers.items())

    def __repr__(self) -> str:
        return f"Events({len(self):,} events of {', '.join(self.schema.names)})"

    def value(self, name: str, event: int) -> Any:
        """The value of an attribute in one event, None when it is missing; a list where there are several."""
        return self.value_at(self.schema.position(name), event)

    def value_at(self, position: int, event: int, schema: Schema | None = None) -> Any:
        """As `value`, by position, which may be that of a hidden attribute of a schema."""
        if self.owners is None:
            return self._value_in(position, event, schema)
        own = range(*np.searchsorted(self.owners, [event, event + 1]).tolist())
        several = list(dict.fromkeys(self._value_in(position, at, schema) for at in own))
        return several if len(several) > 1 else several[0]

    def _value_in(self, position: int, event: int, schema: Schema | None) -> Any:
        if schema is not None and position >= len(self.schema):
            return schema[position].decode(int(self._widened(schema)[position, event]))
        code = int(self.codes[position, event])
        if code == UNKNOWN and position in self._strangers:
            word = self._strangers[position].word(event)
            if word is not None:
                return word
        return self.schema[position].decode(code)

    def select(self, rows: Any) -> Events:
        """Some of the events, by row."""
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        owners = None
        if self.owners is not None:
            firsts = _first_columns(self.owners, len(self))
            wanted = np.where(rows < 0, rows + len(self), rows)
            owners = np.repeat(np.arange(len(rows)), np.diff(firsts)[wanted])
            rows = ragged(firsts, wanted)
        out = Events(self.schema, self._said[:, rows], copy=False)
        out.owners = owners
        out._hidden.given = {name: row[rows] for name, row in dict(self._hidden.given).items()}
        for position, strangers in self._strangers.items():
            kept = strangers.among(rows, self._said.shape[1])
            if kept is not None:
                out._strangers[position] = kept
        return out

    def encoded(self, schema: Schema, entries: bool = False) -> EventCodes:
        """The codes as an index of `schema` must see them now, with expressions computed and patterns looked
        up; to be read, never written. An index that reads `entries` gets those instead of columns where
        events are kept that way.

        Every string that the dictionaries held at the time of the call is looked up. A caller that matches
        must therefore take the subscriptions first and the codes second: then each string that one of them
        names has its code. A string that is named later has a code of its own by then, which lies in the same
        intervals of those subscriptions as the unknown one.
        """
        # first what most events are, for this shows in a match of one: all is there already
        if schema is self.schema and not (self._strangers and self._came_words()):
            if self._entries is not None and not entries:
                return EventCodes(self._entries.columns(), None)
            if self.owners is None:
                if self._plain is None:
                    self._plain = EventCodes(self._said, None)
                return self._plain
        wide = self._widened(schema)
        codes, owners = self._hidden.spread(schema, wide, self._values, self.owners)
        return EventCodes(codes, None if owners is None else _first_columns(owners, len(self)))

    def _widened(self, schema: Schema) -> Codes:
        """The codes for a schema with those of its expressions; patterns hold nowhere yet."""
        if not schema.n_hidden:
            return self._looked_up(schema)
        return self._hidden.widened(schema, self._looked_up(schema.declared), self._values, self.owners)

    def _looked_up(self, schema: Schema) -> Codes:
        """The codes of declared attributes, by the dictionaries of a schema as they are now."""
        if schema is self.schema and not self._strangers:
            return self.codes
        view = self._view
        if view is None or view.schema is not schema:
            view = self._first_view(schema)
        # counted before the look-up: a string that comes in between is looked up once more
        known = tuple(map(len, view.vocabularies))
        if known != view.known:
            view = self._own_view(view, known) if schema is self.schema else self._translated(view, known)
        self._view = view
        return view.codes

    @property
    def computing(self) -> dict[str, Any]:
        """How long the expressions and patterns of these events have taken so far, for `stats`."""
        seconds = self._hidden.seconds
        return {"last_computed_seconds": dict(seconds)} if seconds else {}

    def _values(self, name: str) -> Values:
        """A declared attribute as values, for expressions."""
        position = self.schema.position(name)
        strangers = self._strangers.get(position)
        rows, words = (None, None) if strangers is None else strangers.found()
        return values_of(self.schema[position], self.codes[position], rows, words)

    def _first_view(self, schema: Schema) -> CodeView:
        if schema is self.schema:
            known = tuple(strangers.known for strangers in self._strangers.values())
            vocabularies = tuple(map(self._vocabulary, self._strangers))
            return CodeView(schema, vocabularies, known, self.codes, self._strangers)
        schema.check_same(self.schema, "events")
        return CodeView(
            schema, tuple(ours.vocabulary for _, ours in schema.categories()), (-1,), self.codes, {}
        )

    def _own_view(self, view: CodeView, known: tuple[int, ...]) -> CodeView:
        """As `view`, with the strangers that have got a code since."""
        codes = view.codes.copy()
        strangers: dict[int, Strangers] = {}
        for (position, one), now in zip(view.strangers.items(), known, strict=True):
            strangers[position] = one.named(self._vocabulary(position), codes[position], now)
        return CodeView(view.schema, view.vocabularies, known, codes, strangers)

    def _vocabulary(self, position: int) -> Vocabulary:
        attribute = self.schema[position]
        assert isinstance(attribute, Category)
        return attribute.vocabulary

    def _translated(self, view: CodeView, known: tuple[int, ...]) -> CodeView:
        codes = self.codes
        for (position, ours), (_, theirs) in zip(
            view.schema.categories(), self.schema.categories(), strict=True
        ):
            same = ours.vocabulary is theirs.vocabulary and position not in self._strangers
            if same or not isinstance(ours, Category):  # what an event has of a point is no word
                continue
            codes = codes.copy() if codes is self.codes else codes
            row = codes[position]
            if ours.vocabulary is not theirs.vocabulary:
                table = ours.vocabulary.translation_from(theirs.vocabulary)
                named = row > UNKNOWN
                row[named] = table[row[named]]
            strangers = self._strangers.get(position)
            if strangers is not None and len(strangers.rows):
                row[strangers.rows] = ours.vocabulary.encode(strangers.words, grow=False)
        return view._replace(known=known, codes=codes)

    @classmethod
    def from_arrays(cls, schema: Schema, columns: Mapping[str, Any], *, on_error: str = "raise") -> Events:
        """Events from columns by name; an attribute without a column is missing in every event.

        With on_error="collect" an event with a bad value is left out and listed in `rejected`.
        """
        check_on_error(on_error)
        schema = schema.declared
        given = {schema.position(name): arrow_of(column) for name, column in columns.items()}
        n = common_length(schema, given)
        all_of = {position: (None, column) for position, column in given.items()}
        return cls._encoded(schema, all_of, n, on_error) or cls._from_lists(schema, given, n, on_error)

    @classmethod
    def _encoded(
        cls, schema: Schema, given: Mapping[int, tuple[RowNumbers | None, Any]], n: int, on_error: str
    ) -> Events | None:
        """Events from columns by position, each of all events or of the rows named; None where cells are
        lists, which `_from_lists` reads."""
        target = CodeTarget(len(schema), n, whole=any(point.columns for _, point in schema.points))
        strangers: dict[int, Strangers] = {}
        reasons: dict[int, str] = {}
        for position, (own, column) in given.items():
            attribute = schema[position]
            known = len(attribute.vocabulary) if isinstance(attribute, Category) else 0
            told = None
            codes = list_codes(attribute, column) if type(column) is list else None
            if codes is None:
                point = attribute.kind == "point"  # whose lists are one value
                if not isinstance(column, pa.Array | pa.ChunkedArray) and not point:
                    column = as_column(column)
                encoded: Encoded = target.encode(position, own, attribute, column)
                if len(encoded.bad) and not point and wide_events.as_lists(as_column(column)) is not None:
                    return None
                codes, told = encoded.codes, encoded.strange
                encoded.note(reasons, own if own is None else own[encoded.bad], every=on_error == "collect")
            target.put(position, own, codes)
            noted = strangers_of(attribute, column, codes, known, told)
            if noted is not None:
                strangers[position] = noted if own is None else noted.placed(own)
        out = cls(schema, target.codes(), copy=False)
        out._strangers = strangers
        out._make_points(reasons, on_error)
        return out._without(reasons, on_error)

    def _make_points(self, reasons: dict[int, str], on_error: str) -> None:
        """Fill the codes of points that are made of two other attributes."""
        for position, point in self.schema.points:
            if point.columns is None:
                continue
            places = [self.schema.position(name) for name in point.columns]
            encoded = point.joined(*(degrees_from(self.schema[at], self.codes[at]) for at in places))
            self.codes[position] = encoded.codes
            rows = encoded.bad if self.owners is None else self.owners[encoded.bad]
            encoded.note(reasons, rows, every=on_error == "collect")

    def _without(self, reasons: dict[int, str], on_error: str) -> Events:
        """These events without bad ones, or an error that names the first of them."""
        if not reasons:
            return self
        if on_error == "raise":
            first = min(reasons)
            raise EventError(f"event {first}: {reasons[first]} ({len(reasons)} of {len(self)} events)")
        rejected = [RejectedEvent(row, reasons[row]) for row in sorted(reasons)]
        good = np.ones(len(self), bool)
        good[list(reasons)] = False
        out = self.select(good)
        out.rejected = rejected
        return out

    @classmethod
    def _from_lists(cls, schema: Schema, given: Mapping[int, Any], n: int, on_error: str) -> Events:
        """As `from_arrays`, where cells of some columns are lists."""
        reasons: dict[int, str] = {}
        columns: dict[int, tuple[Column, Codes, int]] = {}
        starts: dict[int, npt.NDArray[np.int64]] = {}
        for position, values in given.items():
            attribute = schema[position]
            known = len(attribute.vocabulary) if isinstance(attribute, Category) else 0
            column, lists = wide_events.read(attribute, values)
            encoded = attribute.encode(column)
            columns[position] = column, encoded.codes, known
            rows = encoded.bad
            if lists is not None:
                rows = np.searchsorted(lists.starts, rows, "right") - 1
                starts[position] = lists.starts
            encoded.note(reasons, rows, every=on_error == "collect")
        kept = {}
        for position, own in list(starts.items()):
            kept[position], starts[position] = wide_events.without_nulls(columns[position][1], own)
        counts = wide_events.count_variants(starts, n)
        for row in np.flatnonzero(counts > wide_events.MOST_VARIANTS).tolist():
            most = f"an event must have at most {wide_events.MOST_VARIANTS:,} choices of its values"
            reasons.setdefault(row, f"{most}, got {counts[row]:,.0f}")
        variants = wide_events.spread(starts, n)
        codes = np.full((len(schema), len(variants.owners)), MISSING, np.int64)
        out = cls(schema, codes, copy=False)
        for position, (column, own, known) in columns.items():
            sources = variants.owners
            if position in kept:
                sources = variants.sources[position]
                sources = np.where(sources < 0, -1, np.append(kept[position], -1)[sources])
            out.codes[position] = np.append(own, MISSING)[sources]
            if isinstance(schema[position], Category):
                strange = np.flatnonzero(out.codes[position] == UNKNOWN)
                if len(strange):
                    found = strange, words_at(column, sources[strange])
                    out.note_strangers(position, Strangers(known, found))
        out.owners = variants.owners
        out._make_points(reasons, on_error)
        return out._without(reasons, on_error)

    @classmethod
    def from_arrow(
        cls,
        schema: Schema,
        table: Any,
        *,
        on_error: str = "raise",
        strict: bool = False,
    ) -> Events:
        """Events from the columns of an Arrow table, or of another frame, that are attributes; others are
        ignored.

        A table is a Table or RecordBatch of PyArrow, or any object that hands its columns over through
        Arrow's C interface (`__arrow_c_stream__` or `__arrow_c_array__`): a frame of Polars, a relation of
        DuckDB, and the like.

        An ignored column that looks like an attribute without a column causes a RangecastWarning; with
        `strict`, an attribute without a column raises EventError.
        """
        if not isinstance(table, pa.Table | pa.RecordBatch):
            table = table_of(table, "events")
        columns = columns_of(schema, table.column_names, "table", strict, table.column)
        return cls.from_arrays(schema, columns, on_error=on_error)

    @classmethod
    def of(cls, schema: Schema, events: Any, *, strict: bool = False) -> Events:
        """Events from whatever holds them: Events, one event as a dict, or a frame with one event per row.

        >>> from rangecast import Int
        >>> Events.of(Schema(Int("price")), pa.table({"price": [3, 4]}))
        Events(2 events of price)
        """
        if isinstance(events, Events):
            return events
        if isinstance(events, Mapping):
            return cls.from_rows(schema, [events], strict=strict)
        match kind_of(events):
            case "rows":
                return cls.from_rows(schema, events, strict=strict)
            case "pandas":
                return cls.from_pandas(schema, events, strict=strict)
        return cls.from_arrow(schema, events, strict=strict)

    @classmethod
    def _of_one(cls, schema: Schema, row: Mapping[str, Any], strict: bool) -> Events | None:
        """One event by the coders of its attributes; None where columns must say what it means, or is bad."""
        made = len(schema.coders) < len(schema)  # a point that is made of two others
        if made or len(schema) >= WIDE or not isinstance(row, Mapping):
            return None
        objects = schema.object_names
        settled = row if row.keys() <= objects.plain_keys else objects.settled(row)
        # counted before the look-up: a string that comes in between is looked up once more
        known = [len(a.vocabulary) if isinstance(a, Category) else 0 for a in schema]
        n = 1
        choices: list[list[tuple[int, Any]]] = []
        try:
            for _, name, attribute, code in schema.coders:
                value = settled.get(name)
                if isinstance(value, LISTS) and attribute.kind != "point":  # whose lists are one value
                    coded = [(code(item), item) for item in value]
                    coded = [pair for pair in coded if pair[0] != MISSING] or [(MISSING, None)]
                    n *= len(coded)
                else:
                    coded = [(code(value), value)]
                choices.append(coded)
        except EventError:
            return None
        if n > wide_events.MOST_VARIANTS:
            return None
        objects.check(row, strict=strict, stacklevel=4)
        columns = list(itertools.product(*choices))
        out = cls(schema, np.array([[code for code, _ in column] for column in columns], np.int64).T)
        out.owners = np.zeros(n, np.int64) if n > 1 else None
        for position, attribute in schema.categories():
            if isinstance(attribute, Category):
                rows = [k for k, column in enumerate(columns) if column[position][0] == UNKNOWN]
                if rows:
                    words = arrow_words([attribute.word_of(columns[k][position][1]) for k in rows])
                    out._strangers[position] = Strangers(known[position], (np.array(rows), words))
        return out

    @classmethod
    def from_pandas(
        cls, schema: Schema, frame: Any, *, on_error: str = "raise", strict: bool = False
    ) -> Events:
        """As `from_arrow`, for a pandas DataFrame."""
        columns = columns_of(schema, list(frame.columns), "frame", strict, frame.__getitem__)
        return cls.from_arrays(schema, columns, on_error=on_error)

    @classmethod
    def from_rows(
        cls,
        schema: Schema,
        rows: Sequence[Mapping[str, Any]],
        *,
        on_error: str = "raise",
        strict: bool = False,
    ) -> Events:
        """Events from dicts; a key that is not an attribute is ignored, an absent one is missing.

        Keys are treated as columns are in `from_arrow`: one that looks like an attribute that no row has
        causes a RangecastWarning, and with `strict` such an attribute raises EventError.
        """
        schema = schema.declared
        if len(rows) == 0:
            return cls(schema, np.empty((len(schema), 0), np.int64), copy=False)
        check_on_error(on_error)
        if len(rows) == 1 and (found := cls._of_one(schema, rows[0], strict)) is not None:
            return found
        plain = len(schema) < WIDE and not schema.points and not any("." in name for name in schema.names)
        read = read_rows(schema, rows) if plain else None
        if read is not None:
            if read.named is not None:
                read.named.check(strict=strict, every=False)
            out = cls(schema, read.codes, copy=False)
            out._strangers = read.strangers
            return out
        alike = columns_alike(rows, schema.read_names) if plain else None
        if alike is not None and (not strict or len(alike) == len(schema.read_names)):
            return cls.from_arrays(schema, alike, on_error=on_error)
        names = row_keys(rows)
        warn_of_points(schema, names)
        objects = ObjectNames(schema.read_names)
        if objects.needs_settling(names):
            rows, named = objects.settled_rows(rows)
            keys = {name: name for name in named.columns}
        else:
            named = named_columns(schema.read_names, names)
            keys = named.columns
        named.check(strict=strict, every=False)
        if len(schema) >= WIDE and set(map(type, rows)) == {dict}:
            own = said_rows(rows, keys).items()
            said = {schema.position(name): (np.array(at, np.int64), values) for name, (at, values) in own}
            found = cls._encoded(schema, said, len(rows), on_error)
            if found is not None:
                return found
        keys = {name: keys.get(name, name) for name in schema.read_names}
        return cls.from_arrays(schema, row_columns(rows, keys), on_error=on_error)


# What of an input are the columns of events: by name of frames, and by key of rows; and what is kept of the
# strings that no subscription had named (events.py).

_NOBODY = np.empty(0, np.int64)


StrangeWords = tuple[npt.NDArray[np.int64], "pa.Array[Any]"]
"""Rows, and a string for each."""


class RejectedEvent(NamedTuple):
    """An event that was not loaded."""

    row: int
    reason: str


class Strangers:
    """Rows of a category whose string had no code when the dictionary had `known` words, ascending, and their
    strings.

    Mostly nobody asks who they are, since the dictionary has not grown; so they may be given by what makes
    them, which is called once somebody does.
    """

    __slots__ = ("_given", "known")

    def __init__(self, known: int, given: StrangeWords | Callable[[], StrangeWords]) -> None:
        self.known = known
        self._given = given

    def __reduce__(self) -> tuple[Any, ...]:
        return Strangers, (self.known, self.found())

    def found(self) -> StrangeWords:
        """The rows and their strings."""
        given = self._given
        if not isinstance(given, tuple):
            given = self._given = given()
        return given

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The rows, ascending."""
        return self.found()[0]

    @property
    def words(self) -> pa.Array[Any]:
        """The string of each."""
        return self.found()[1]

    def placed(self, places: npt.NDArray[np.int64]) -> Strangers:
        """The same where row k of these is row places[k] of all."""
        rows, words = self.found()
        return Strangers(self.known, (places[rows], words))

    def word(self, row: int) -> str | None:
        """The string of one row, None where it is no stranger's."""
        rows, words = self.found()
        at = int(np.searchsorted(rows, row))
        return words[at].as_py() if at < len(rows) and rows[at] == row else None

    def among(self, rows: npt.NDArray[np.int64], n: int) -> Strangers | None:
        """Those who are in some rows of n, by their number among these; None where nobody is."""
        own, words = self.found()
        where = np.full(n, -1, np.int64)
        where[own] = np.arange(len(own))
        held = where[rows]
        kept = np.flatnonzero(held >= 0)
        return Strangers(self.known, (kept, words.take(arrow_numbers(held[kept])))) if len(kept) else None

    def named(self, vocabulary: Vocabulary, codes: Codes, known: int) -> Strangers:
        """Look them up in a dictionary that has `known` words by now; those who are strangers to it still."""
        rows, words = self.found()
        codes[rows] = found = vocabulary.encode(words, grow=False)
        rest = np.flatnonzero(found == UNKNOWN)
        return Strangers(known, (rows[rest], words.take(arrow_numbers(rest))))


class CodeView(NamedTuple):
    """The codes for a schema whose dictionaries have `known` words, and who is still a stranger to them."""

    schema: Schema
    vocabularies: tuple[Vocabulary, ...]
    known: tuple[int, ...]
    codes: Codes
    strangers: dict[int, Strangers]


def check_on_error(on_error: str) -> None:
    """Raise EventError unless it is one of the two."""
    if on_error not in ("raise", "collect"):
        raise EventError(f"on_error must be 'raise' or 'collect', got {on_error!r}")


def common_length(schema: Schema, columns: Mapping[int, Any]) -> int:
    """How long these columns by position are, all of them."""
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        shown = ", ".join(f"{schema[at].name} {len(column)}" for at, column in columns.items())
        raise EventError(f"event columns must be equally long, got {shown}")
    return lengths.pop() if lengths else 0


def said_rows(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> dict[str, tuple[list[int], list[Any]]]:
    """By attribute, the rows that have its key, and the values there."""
    # a walk over what is said, where a column per attribute would ask every row for every name
    found: dict[Any, tuple[list[int], list[Any]]] = {key: ([], []) for key in names.values()}
    look = found.get
    for number, row in enumerate(rows):
        for key, value in row.items():
            own = look(key)
            if own is not None and value is not None:
                own[0].append(number)
                own[1].append(value)
    return {name: found[key] for name, key in names.items() if found[key][0]}


def columns_alike(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]] | None:
    """The columns of rows that all have the same keys, each of them one of these names, or None.

    >>> columns_alike([{"a": 1, "b": 2}, {"b": 3, "a": 4}], ["a", "b", "c"])
    {'a': [1, 4], 'b': [2, 3]}
    >>> columns_alike([{"a": 1}, {"b": 2}], ["a", "b"]), columns_alike([{"A": 1}], ["a"])
    (None, None)
    """
    keys = rows[0]
    if set(map(type, rows)) != {dict} or not keys or not keys.keys() <= set(names):
        return None
    # as many keys as the first row, and among them all of its own: no row has another one. That is told in a
    # quarter of the time of comparing the keys
    if set(map(len, rows)) != {len(keys)}:
        return None
    try:
        return {name: list(map(itemgetter(name), rows)) for name in names if name in keys}
    except KeyError:
        return None


def row_columns(rows: Sequence[Mapping[str, Any]], keys: Mapping[str, str]) -> dict[str, list[Any]]:
    """The values of each attribute, by its key; one that some row lacks is None there."""
    # a plain dict neither makes up a value nor keeps one that was asked for
    plain = set(map(type, rows)) == {dict}
    columns: dict[str, list[Any]] = {}
    for name, key in keys.items():
        try:
            columns[name] = list(map(itemgetter(key), rows)) if plain else [row.get(key) for row in rows]
        except KeyError:
            columns[name] = [row.get(key) for row in rows]
    return columns


def warn_of_points(schema: Schema, names: Iterable[str]) -> None:
    """Warn of a column that is ignored, since its attribute is made of two others."""
    for _, point in schema.points:
        if point.columns is not None and point.name in names:
            message = (
                f"{point.name!r} is ignored: it is made of {point.columns[0]!r} and {point.columns[1]!r}"
            )
            warnings.warn(message, RangecastWarning, stacklevel=4)


def columns_of(
    schema: Schema, names: Sequence[str], what: str, strict: bool, column: Callable[[str], Any]
) -> dict[str, Any]:
    """The values of each attribute that has a column, or a field inside of one, by its name."""
    warn_of_points(schema, names)
    objects = ObjectNames(schema.read_names)
    kind = objects.kind_of(tuple(names))
    found = {name: column(key) for name, key in kind.columns.items()}
    for name, path in kind.inside.items():
        key = key_of(path[0], names)
        assert key is not None
        values = _inside(column(key), path[1:], objects.folds(name))
        if values is not None:
            found[name] = values
    absent = [name for name in schema.read_names if name not in found]
    named = NamedColumns({name: kind.columns.get(name, name) for name in found}, absent, kind.unused)
    if not found:
        near = ", ".join(f"{name!r} for {key!r}" for name, key in named.near_misses().items())
        raise EventError(
            f"the {what} must have a column of the schema ({', '.join(schema.read_names)}), "
            f"got {', '.join(map(str, names))}" + (f"; did you mean {near}?" if near else "")
        )
    named.check(strict=strict, every=False, stacklevel=4)
    return found


def _inside(column: Any, path: Sequence[str], fold: bool) -> Any:
    """The values at a path in a column of structs, of dicts or of nulls; None where it has other values."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return struct_inside(column, path, fold)
    values = list(column)
    if not any(isinstance(value, Mapping) for value in values):
        return values if all(value is None for value in values) else None
    return [value_inside(value, path, fold) for value in values]


def strangers_of(
    attribute: Attribute, column: Any, codes: Codes, known: int, told: StrangeStrings | tuple[()] | None
) -> Strangers | None:
    """The rows of a column whose string no subscription names, with their strings, or None where there are
    none; `told` is what encoding has said of them, if it has."""
    if told is not None:
        return Strangers(known, told) if told else None
    strange = np.flatnonzero(codes == UNKNOWN) if isinstance(attribute, Category) else _NOBODY
    return Strangers(known, (strange, words_at(column, strange))) if len(strange) else None


def words_at(column: Any, rows: npt.NDArray[np.int64]) -> pa.Array[Any]:
    """The strings of some rows of a column."""
    if type(column) is list:
        return arrow_words([column[row] for row in rows.tolist()])
    if isinstance(column, Column):
        words, _ = column.strings()
        return words.take(arrow_numbers(rows))
    return as_column(without_views(column).take(arrow_numbers(rows))).strings()[0]


# The columns of hidden attributes for a batch of events: expressions, and bundles of traits.
#
# Expressions (types/derived.py) have one value in each column of codes. Trait sets (types/patterns.py) have
# any number: a column becomes as many copies as it needs, which belong to the event of the column, as the
# choices among several values do (wide_events.py). What is computed is kept for the next who asks with the
# same schema; the sets are looked up again when the schema's dictionary of them has grown since.

_EventNumbers = npt.NDArray[np.int64]


class EventCodes(NamedTuple):
    """The codes of events as an index of a schema sees them: columns, or EventEntries (wide_events.py) for
    whoever reads those; and where the columns of each event begin, None where each has one."""

    codes: Any
    firsts: _EventNumbers | None

    @property
    def owners(self) -> _EventNumbers | None:
        """The event of each column, None where each has one."""
        firsts = self.firsts
        return None if firsts is None else np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))


def _first_columns(owners: _EventNumbers, n_events: int) -> _EventNumbers:
    """Where the columns of each event begin and where the last one's end."""
    return np.searchsorted(owners, np.arange(n_events + 1)).astype(np.int64)


def _held_nowhere(bundle: HeldBundle, n: int) -> Codes:
    """The codes of a bundle of traits of which none holds."""
    return np.full(n, LAST if bundle.name == names[2] else 0, np.int64)


class _SpreadColumns(NamedTuple):
    wide: Codes
    known: int
    codes: Codes
    owners: _EventNumbers | None


class HiddenColumns:
    """Hidden attributes of one batch: `given` codes by name, and what was computed."""

    def __init__(self) -> None:
        self.given: dict[str, Codes] = {}
        self.seconds: dict[str, float] = {}
        """How long each expression took, and all patterns together."""
        self._wide: tuple[Schema, Codes, Codes] | None = None
        self._spread: _SpreadColumns | None = None

    def widened(self, schema: Schema, declared: Codes, look: Look, owners: _EventNumbers | None) -> Codes:
        """The codes of declared attributes with those of expressions; bundles of traits hold nowhere yet."""
        wide = self._wide
        if wide is not None and wide[0] is schema and wide[1] is declared:
            return wide[2]
        hidden = schema.attributes[len(schema.names) :]
        memo: dict[str, Values] = {}
        n = declared.shape[1]
        rows = []
        for attribute in hidden:
            found = self.given.get(attribute.name)
            if found is None and isinstance(attribute, HeldBundle):
                found = _held_nowhere(attribute, n)
            elif found is None:
                start = time.perf_counter()
                found = _having(attribute, look, owners)
                if found is None:
                    found = codes_of(attribute, look, n, memo)
                self.given[attribute.name] = found
                self.seconds[attribute.name] = time.perf_counter() - start
            rows.append(found)
        codes = np.concatenate([declared, np.stack(rows)])
        self._wide = schema, declared, codes
        return codes

    def spread(
        self, schema: Schema, wide: Codes, look: Look, owners: _EventNumbers | None
    ) -> tuple[Codes, _EventNumbers | None]:
        """The codes with the bundles of traits that hold, and the event of each column of them."""
        at = schema.hidden_position(HELD)
        if at is None or at >= len(schema) or HELD in self.given:
            return wide, owners
        # counted before the search: a set that comes in between is looked for once more
        known = len(schema.traits.vocabulary)
        last = self._spread
        if last is None or last.wide is not wide or last.known != known:
            start = time.perf_counter()
            codes, of_columns = _spread(
                schema.traits, at, wide, _BatchWords(schema, look, wide.shape[1]), owners
            )
            self.seconds["patterns"] = time.perf_counter() - start
            last = self._spread = _SpreadColumns(wide, known, codes, of_columns)
        return last.codes, last.owners


class _BatchWords:
    """The words of the sources of traits, each computed once."""

    def __init__(self, schema: Schema, look: Look, n: int) -> None:
        self._operands = schema.operands
        self._n = n
        self._look = look
        self._found: dict[str, SourceWords] = {}
        self._memo: dict[str, Values] = {}

    def __call__(self, source: str) -> SourceWords:
        found = self._found.get(source)
        if found is None:
            if source.startswith("has "):
                values = self._look(unquoted_source(source.removeprefix("has ")))
            else:
                values = evaluate(parse_expression(source, self._operands), self._look, self._n, self._memo)
            assert values.words is not None
            where = np.where(values.missing, -1, values.data).astype(np.int64)
            found = self._found[source] = SourceWords(values.words, where)
        return found


def unquoted_source(name: str) -> str:
    """The name of an attribute as an expression writes it."""
    return name[1:-1].replace('""', '"') if name[0] == '"' else name


def _spread(
    sets: TraitBundles, at: int, wide: Codes, finder: _BatchWords, owners: _EventNumbers | None
) -> tuple[Codes, _EventNumbers | None]:
    n = wide.shape[1]
    copies, own = sets.find(finder, n, owners).spread()
    if len(own[0]) == n:
        codes = wide.copy()
    else:
        columns = np.repeat(np.arange(n), copies)
        codes = wide[:, columns]
        owners = columns if owners is None else owners[columns]
    codes[at : at + len(own)] = own
    return codes, owners


def _having(attribute: Attribute, look: Look, owners: _EventNumbers | None) -> Codes | None:
    """For has(tags, 'x'): 1 where one of an event's values is the string, 0 where it has others."""
    expression = attribute.expression
    if expression is None or expression.op != "has":
        return None
    values = look(expression.args[0].value)
    places = [k for k, word in enumerate(values.words or ()) if word == expression.value]
    held = np.isin(values.data, places) & ~values.missing
    if owners is not None and len(owners):
        found = np.zeros(int(owners[-1]) + 1, bool)
        found[owners[held]] = True
        held = found[owners]
    return np.where(values.missing, MISSING, held).astype(np.int64)


def values_of(
    attribute: Attribute, codes: Codes, rows: _EventNumbers | None, words: pa.Array[Any] | None
) -> Values:
    """A declared attribute as values, for expressions; `rows` have strings that are in no dictionary."""
    missing = codes == MISSING
    if attribute.kind == "float":
        return Values(decoded_floats(codes), missing)
    if not isinstance(attribute, Category):
        return Values(codes, missing)
    used, where = np.unique(codes, return_inverse=True)
    known = [attribute.vocabulary.word(int(code)) or "" for code in used]
    where = where.astype(np.int64)
    # without its string there is nothing to compute from
    missing = missing | (codes == UNKNOWN)
    if rows is not None and words is not None and len(rows):
        once = words.dictionary_encode()
        where[rows] = len(known) + once.indices.to_numpy(zero_copy_only=False)
        known += once.dictionary.to_pylist()
        missing[rows] = False
    return Values(where, missing, known)


# Lists of dicts as codes, by way of `marshal` and a kernel (model/kernels_rows.py).
#
# A column per attribute takes a pass over all dicts for each of them, one over its values for their types and
# one that looks them up: 0.15 us per value. `marshal` walks over the dicts once, in C, and writes down each
# value with its exact type: 0.06 us per key and value together. What the kernel does not take is left to
# columns, all rows of it: instants, nested values, whole numbers that are no int64, keys that are no strings,
# mappings that are no dicts, and types that an attribute does not commonly have. So nothing is decided here
# about meaning.
#
# The kernel takes 15 ms to load, so a process begins with columns; and where most keys of the first row
# belong to no attribute, columns are faster, since they do not look at those.
#
# Of `pickle` every value would have to be found behind opcodes that depend on what was written before, and it
# takes as long; `json.dumps` takes five times as long.

PATIENCE = 20_000
"""Rows that a process reads before the kernel is loaded for lists of fewer."""
FEW = 64  # rows: fewer are read sooner as columns
_AT_ONCE = 4_096  # rows: what is written of them stays in the processor's caches
MOST_KEYS = 256
_VERSION = 4  # of what marshal writes
_KINDS: dict[type[Attribute], int] = {
    Int: kernels.ROW_INT,
    Float: kernels.ROW_FLOAT,
    Bool: kernels.ROW_BOOL,
    Category: kernels.ROW_WORD,
    Text: kernels.ROW_WORD,
    Timestamp: kernels.ROW_INT,
}
_TYPES = {int, float, str, bool, type(None)}
# the kernel reads eight letters of a key at once
_PADDING = b"\0" * 8
# values with the letters that marshal may give them, and what follows
_WRITTEN: tuple[tuple[Any, bytes, bytes], ...] = (
    ([], b"[", b"\0\0\0\0"),
    ({}, b"{", b"0"),
    ("ab", b"zZ", b"\2ab"),
    ("b" * 256, b"aA", b"\0\1\0\0" + b"b" * 256),
    ("é", b"ut", b"\2\0\0\0\xc3\xa9"),
    (-2, b"i", b"\xfe\xff\xff\xff"),
    (-(1 << 40), b"l", b"\xfd\xff\xff\xff\0\0\0\0\0\4"),
    (0.5, b"g", b"\0\0\0\0\0\0\xe0\x3f"),
    (None, b"N", b""),
    (True, b"T", b""),
    (False, b"F", b""),
)


class MarshalledRows(NamedTuple):
    """Codes of rows, the strings without one by position, and whose their keys are unless it is each
    attribute that has one."""

    codes: Codes
    strangers: dict[int, Strangers]
    named: NamedColumns | None


_Strange = tuple[bytes, npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""What marshal wrote of some rows, and `spans` and `counts` of the kernel."""


class _Read:
    n = 0  # rows of this process


def read_rows(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> MarshalledRows | None:
    """The codes of rows, or None where columns have to say what they mean.

    >>> found = read_rows(Schema(Int("a"), Float("b")), [{"b": 0.0, "a": k} for k in range(20_000)])
    >>> found.codes[:, 7].tolist()
    [7, 0]
    """
    _Read.n += len(rows)
    if len(rows) < FEW or _Read.n < PATIENCE or type(rows) not in (list, tuple):
        return None
    kinds = tuple([_KINDS.get(type(attribute), -1) for attribute in schema])
    keys = _first_keys(schema, kinds, rows[0])
    if keys is None or not _is_known_format():
        return None
    coder = _Coder(schema, kinds, keys)
    codes = np.full((len(kinds), len(rows)), MISSING, np.int64)
    if not coder.read(rows, codes):
        return None
    met = coder.met_keys()
    named = None if len(met) == len(kinds) == len(coder.keys) else named_columns(schema.read_names, met)
    # a key in other capitals than its attribute may be what its row has of it, beside or without the other
    if named is not None:
        folds = {name.casefold() for name in schema.read_names}
        if any(key not in schema and key.casefold() in folds for key in met):
            return None
    return MarshalledRows(codes, coder.strangers(), named)


def _first_keys(schema: Schema, kinds: Sequence[int], row: Any) -> tuple[str, ...] | None:
    """The attributes and the other keys of a row, or None where rows like this one are read as columns."""
    if type(row) is not dict or not _TYPES.issuperset(map(type, row.values())):
        return None
    if -1 in kinds or any(isinstance(a, Timestamp) and a.unit != "us" for a in schema):
        return None
    others = [key for key in row if key not in schema]
    if 2 * len(others) > len(row) or not all(type(key) is str for key in row):
        return None
    return (*schema.names, *others)


class _Coder:
    """Reads lists of dicts, with the keys that it has met so far."""

    def __init__(self, schema: Schema, kinds: tuple[int, ...], keys: tuple[str, ...]) -> None:
        self._kinds = kinds
        self.keys = keys
        self._met = np.zeros(MOST_KEYS, np.uint8)
        self._strange: list[_Strange] = []
        self._tables: dict[int, WordTable] = {}
        places = np.zeros((3 * len(kinds), 3), np.int64)
        for k, attribute in enumerate(schema):
            if isinstance(attribute, Category):
                self._tables[k], places[3 * k : 3 * k + 3] = attribute.vocabulary.placed_table()
        spelled = _spelled(keys, kinds)
        self._known = RowKeys(spelled[0], spelled[1], places)

    def met_keys(self) -> list[str]:
        """The keys that some row has."""
        return [key for key, there in zip(self.keys, self._met.tolist(), strict=False) if there]

    def strangers(self) -> dict[int, Strangers]:
        """The strings that are in no table, by attribute."""
        return {
            k: Strangers(len(self._tables[k].starts) - 1, partial(_words_of, k, self._strange))
            for k in self._tables
            if any(counts[k] for _, _, counts in self._strange)
        }

    def read(self, rows: Sequence[Mapping[str, Any]], codes: Codes) -> bool:
        """Read all rows, some at once; returns whether the kernel takes them."""
        for first in range(0, len(rows), _AT_ONCE):
            some = rows if len(rows) <= _AT_ONCE else rows[first : first + _AT_ONCE]
            try:
                written = marshal.dumps(some if type(some) is list else list(some), _VERSION)
            except (ValueError, RecursionError):  # what marshal does not write
                return False
            if not self._read(written, first, len(some), codes):
                return False
        return True

    def _read(self, written: bytes, first: int, n: int, codes: Codes) -> bool:
        words = len(self._kinds) if self._tables else 0
        out = RowCodes(
            codes,
            np.empty((words, 3, n), np.int32),
            np.zeros(words, np.int64),
            np.full(MOST_KEYS, -1, np.int64),
            self._met,
            # an object that has a number is written in two bytes at least
            np.empty(len(written) // 2 + 1, np.int32),
            np.zeros(5, np.int64),
        )
        text = _place(written)
        while (said := kernels.read_rows(text, first, self._known, out)) == kernels.NEW_KEY:
            if len(self.keys) == MOST_KEYS:
                return False
            self.keys = (*self.keys, marshal.loads(written[out.state[4] :]))
            spelled = _spelled(self.keys, self._kinds)
            self._known = RowKeys(spelled[0], spelled[1], self._known.tables)
        if out.counts.any():
            self._strange.append((written, out.spans, out.counts))
        return bool(said == kernels.DONE)


def _words_of(column: int, strange: Sequence[_Strange]) -> StrangeWords:
    """The rows of a column's strange strings, and these."""
    pieces = []
    for written, spans, counts in strange:
        rows, begins, sizes = spans[column, :, : counts[column]]
        pieces.append((rows.astype(np.int64), strings_of_spans(_place(written), begins, sizes)))
    return np.concatenate([rows for rows, _ in pieces]), pa.concat_arrays([words for _, words in pieces])


def _place(written: bytes) -> npt.NDArray[np.int64]:
    return np.array([(np.frombuffer(written, np.uint8).ctypes.data, len(written), 1)], np.int64)


@lru_cache(maxsize=64)
def _spelled(
    keys: tuple[str, ...], kinds: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each key lies and its kind, and the letters of all."""
    letters = [key.encode("utf-8", "surrogatepass") for key in keys]
    ends = np.cumsum([0, *map(len, letters)])
    kinds += (kernels.ROW_SKIPPED,) * (len(keys) - len(kinds))
    table = np.stack([ends[:-1], ends[1:], kinds], 1).astype(np.int64)
    return table, np.frombuffer(bytearray(b"".join(letters) + _PADDING), np.uint8)


@cache
def _is_known_format() -> bool:
    """Whether this Python writes what the kernel reads."""
    written = ((marshal.dumps(value, _VERSION), letters, rest) for value, letters, rest in _WRITTEN)
    return all(raw[0] & 0x7F in letters and raw[1:] == rest for raw, letters, rest in written)
