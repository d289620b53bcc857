"""Events as codes: one column per attribute.

    array   dtype   shape           meaning
    codes   int64   (d, n_events)   codes[j] is attribute j of every event; MISSING where it has no value
    owners  int64   n_columns       None, or the event of each column of codes where some have several

A cell may be a list: then a predicate on that attribute holds when one of the values is in its set. Such an
event has a column for each choice of one of its values (several_values.py), and `codes` has more columns
than there are events. Whoever reads `codes` by event looks at `owners` first; every index joins what the
columns of an event match, without repeats.

A string that no subscription has named yet gets the unknown code. Since a later subscription may
name it, an `Events` remembers which rows those are and looks them up again when the dictionary has
grown by the time it is matched.

Matching changes no event: `codes` and the strangers stay as they were made. What was looked up last is kept
in one immutable `CodeView`, which is replaced as a whole, so that any number of threads may match one
`Events`. A view says how many strings the dictionaries had before it was made, so it holds for as long as
they have no more.

Where the schema is wide and events say little of it they are kept by what they say (event_entries.py), and
`codes` is made when somebody asks. Hidden attributes are no part of it: they are computed when an index asks
for them (hidden_columns.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import EventError
from rangecast.memory import check_rows
from rangecast.model import several_values
from rangecast.model.boxes import ragged
from rangecast.model.event_columns import (
    CodeView,
    RejectedEvent,
    Strangers,
    check_on_error,
    columns_alike,
    columns_of,
    common_length,
    row_columns,
    said_rows,
    strangers_of,
    warn_of_points,
    words_at,
)
from rangecast.model.hidden_columns import CodeColumns, HiddenColumns, values_of
from rangecast.model.marshalled_rows import read_rows
from rangecast.model.wide_events import WIDE, CodeTarget, EventEntries
from rangecast.types.attributes import MISSING, Category, Codes, Encoded
from rangecast.types.column_names import ObjectNames, named_columns, row_keys
from rangecast.types.columns import Column, arrow_of, as_column
from rangecast.types.derived import Values
from rangecast.types.frames import kind_of, table_of
from rangecast.types.lists import list_codes
from rangecast.types.places import degrees_from
from rangecast.types.schema import Schema
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

    @classmethod
    def coded(cls, schema: Schema, codes: Codes, owners: npt.NDArray[np.int64] | None = None) -> Events:
        """Events from what `spread_for` gave; no code says which string an unknown one was."""
        out, n = cls(schema, codes[: len(schema.names)], copy=False), len(schema.names)
        out.owners = owners
        out._hidden.given = {a.name: row for a, row in zip(schema.attributes[n:], codes[n:], strict=False)}
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

    def entries_for(self, schema: Schema) -> EventEntries | None:
        """The events' entries, where they are kept that way and an index of `schema` sees the same codes."""
        entries = self._entries
        if entries is None or schema is not self.schema:
            return None
        return None if self._strangers and self._came_words() else entries

    def _came_words(self) -> bool:  # to a dictionary, since a string was not in it
        return any(len(self._vocabulary(at)) != one.known for at, one in self._strangers.items())

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
            return schema[position].decode(int(self.codes_for(schema)[position, event]))
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
            firsts = self.first_columns()
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

    def first_columns(self) -> npt.NDArray[np.int64]:
        """Where the columns of each event begin in `codes`, and where the last one's end."""
        if self.owners is None:
            return np.arange(len(self) + 1)
        return np.searchsorted(self.owners, np.arange(len(self) + 1)).astype(np.int64)

    def codes_for(self, schema: Schema) -> Codes:
        """The codes as an index of `schema` must see them now; to be read, never written.

        Every string that the dictionaries held at the time of the call is looked up. A caller that matches
        must therefore take the subscriptions first and the codes second: then each string that one of them
        names has its code. A string that is named later has a code of its own by then, which lies in the same
        intervals of those subscriptions as the unknown one.
        """
        if schema.n_hidden:
            declared = self.codes_for(schema.declared)
            return self._hidden.widened(schema, declared, self._values, self.owners)
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

    def single_for(self, schema: Schema, entries: bool = False) -> Codes | EventEntries | None:
        """As `columns_for`, where this is one event and nothing of it has to be computed, or None."""
        if schema is not self.schema or self.owners is not None:
            return None
        said = self._entries
        if said is not None:
            return self.entries_for(schema) if entries and len(said.starts) == 2 else None
        if self._codes.shape[1] != 1:
            return None
        return self.codes_for(schema) if self._strangers and self._came_words() else self._codes

    @property
    def computing(self) -> dict[str, Any]:
        """How long the expressions and patterns of these events have taken so far, for `stats`."""
        seconds = self._hidden.seconds
        return {"last_computed_seconds": dict(seconds)} if seconds else {}

    def columns_for(self, schema: Schema, entries: bool = False) -> CodeColumns:
        """As `codes_for`, with the bundles of traits that hold: this is what an index matches. An index that
        reads `entries` gets those instead of columns where events are kept that way."""
        said = self.entries_for(schema) if entries else None
        if said is not None:
            return CodeColumns(said, None)
        codes, owners = self.spread_for(schema)
        if owners is None:
            return CodeColumns(codes, None)
        return CodeColumns(codes, np.searchsorted(owners, np.arange(len(self) + 1)).astype(np.int64))

    def spread_for(self, schema: Schema) -> tuple[Codes, npt.NDArray[np.int64] | None]:
        """The codes of `columns_for`, and the event of each column where some have several."""
        return self._hidden.spread(schema, self.codes_for(schema), self._values, self.owners)

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
                if len(encoded.bad) and not point and several_values.as_lists(as_column(column)) is not None:
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
            column, lists = several_values.read(attribute, values)
            encoded = attribute.encode(column)
            columns[position] = column, encoded.codes, known
            rows = encoded.bad
            if lists is not None:
                rows = np.searchsorted(lists.starts, rows, "right") - 1
                starts[position] = lists.starts
            encoded.note(reasons, rows, every=on_error == "collect")
        kept = {}
        for position, own in list(starts.items()):
            kept[position], starts[position] = several_values.without_nulls(columns[position][1], own)
        counts = several_values.count_variants(starts, n)
        for row in np.flatnonzero(counts > several_values.MOST_VARIANTS).tolist():
            most = f"an event must have at most {several_values.MOST_VARIANTS:,} choices of its values"
            reasons.setdefault(row, f"{most}, got {counts[row]:,.0f}")
        variants = several_values.spread(starts, n)
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
