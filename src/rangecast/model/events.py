"""Events as codes: one column per attribute.

    array   dtype   shape           meaning
    codes   int64   (d, n_events)   codes[j] is attribute j of every event; MISSING where it has no value

A string that no subscription has named yet gets the unknown code. Since a later subscription may
name it, an `Events` remembers which rows those are and looks them up again when the dictionary has
grown by the time it is matched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import EventError
from rangecast.types.attributes import MISSING, Category, Codes, Encoded
from rangecast.types.columns import as_column
from rangecast.types.schema import Schema
from rangecast.types.vocabulary import UNKNOWN


class RejectedEvent(NamedTuple):
    """An event that was not loaded."""

    row: int
    reason: str


class _Strangers(NamedTuple):
    """Rows of a category whose string had no code when the dictionary had `known` words."""

    known: int
    rows: npt.NDArray[np.int64]
    words: pa.Array[Any]


class Events:
    """Events of one schema.

    >>> from rangecast import Int, Schema
    >>> events = Events.from_rows(Schema(Int("price"), Int("size")), [{"price": 5}, {"size": 2}])
    >>> len(events), events.value("price", 0), events.value("price", 1)
    (2, 5, None)
    """

    def __init__(self, schema: Schema, codes: Codes, rejected: Sequence[RejectedEvent] = ()) -> None:
        self.schema = schema
        self.codes = np.ascontiguousarray(codes, np.int64)
        if self.codes.ndim != 2 or self.codes.shape[0] != len(schema):
            raise EventError(f"codes must be ({len(schema)}, n_events), got {self.codes.shape}")
        self.rejected = list(rejected)
        self._strangers: dict[int, _Strangers] = {}

    def __len__(self) -> int:
        return int(self.codes.shape[1])

    def __repr__(self) -> str:
        return f"Events({len(self):,} events of {', '.join(self.schema.names)})"

    def value(self, name: str, event: int) -> Any:
        """The value of an attribute in one event, None when it is missing."""
        position = self.schema.position(name)
        code = int(self.codes[position, event])
        if code == UNKNOWN and position in self._strangers:
            strangers = self._strangers[position]
            at = int(np.searchsorted(strangers.rows, event))
            if at < len(strangers.rows) and strangers.rows[at] == event:
                return strangers.words[at].as_py()
        return self.schema[position].decode(code)

    def select(self, rows: Any) -> Events:
        """Some of the events, by row."""
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        out = Events(self.schema, self.codes[:, rows])
        for position, strangers in self._strangers.items():
            where = np.full(len(self), -1, np.int64)
            where[strangers.rows] = np.arange(len(strangers.rows))
            held = where[rows]
            kept = np.flatnonzero(held >= 0)
            words = strangers.words.take(pa.array(held[kept]))
            out._strangers[position] = _Strangers(strangers.known, kept, words)
        return out

    def codes_for(self, schema: Schema) -> Codes:
        """The codes as an index of `schema` must see them now; never changes this object's answer."""
        if schema is not self.schema:
            return self._translated(schema)
        if not self._strangers:
            return self.codes
        stale = [p for p, s in self._strangers.items() if s.known < len(self._vocabulary(p))]
        if stale:
            codes = self.codes.copy()
            for position in stale:
                known, rows, words = self._strangers[position]
                vocabulary = self._vocabulary(position)
                known = len(vocabulary)
                found = vocabulary.encode(words, grow=False)
                codes[position, rows] = found
                rest = np.flatnonzero(found == UNKNOWN)
                self._strangers[position] = _Strangers(known, rows[rest], words.take(pa.array(rest)))
            self.codes = codes
        return self.codes

    def _vocabulary(self, position: int) -> Any:
        attribute = self.schema[position]
        assert isinstance(attribute, Category)
        return attribute.vocabulary

    def _translated(self, schema: Schema) -> Codes:
        schema.check_same(self.schema, "events")
        codes = self.codes
        for (position, ours), (_, theirs) in zip(schema.categories(), self.schema.categories(), strict=True):
            if ours.vocabulary is theirs.vocabulary:
                continue
            codes = codes.copy() if codes is self.codes else codes
            table = ours.vocabulary.translation_from(theirs.vocabulary)
            row = codes[position]
            named = row > UNKNOWN
            row[named] = table[row[named]]
            strangers = self._strangers.get(position)
            if strangers is not None and len(strangers.rows):
                row[strangers.rows] = ours.vocabulary.encode(strangers.words, grow=False)
        return codes

    @classmethod
    def from_arrays(cls, schema: Schema, columns: Mapping[str, Any], *, on_error: str = "raise") -> Events:
        """Events from columns by name; an attribute without a column is missing in every event.

        With on_error="collect" an event with a bad value is left out and listed in `rejected`.
        """
        if on_error not in ("raise", "collect"):
            raise EventError(f"on_error must be 'raise' or 'collect', got {on_error!r}")
        given = {schema.position(name): column for name, column in columns.items()}
        lengths = {len(column) for column in given.values()}
        if len(lengths) > 1:
            shown = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
            raise EventError(f"event columns must be equally long, got {shown}")
        n = lengths.pop() if lengths else 0
        codes = np.full((len(schema), n), MISSING, np.int64)
        reasons: dict[int, str] = {}
        strangers: dict[int, _Strangers] = {}
        for position, column in given.items():
            attribute = schema[position]
            known = len(attribute.vocabulary) if isinstance(attribute, Category) else 0
            encoded: Encoded = attribute.encode(column)
            codes[position] = encoded.codes
            for row, reason in zip(encoded.bad.tolist(), encoded.reasons, strict=True):
                reasons.setdefault(row, reason)
            if isinstance(attribute, Category):
                rows = np.flatnonzero(codes[position] == UNKNOWN)
                if len(rows):
                    strangers[position] = _Strangers(known, rows, _words_at(column, rows))
        rejected = [RejectedEvent(row, reasons[row]) for row in sorted(reasons)]
        if rejected and on_error == "raise":
            first = rejected[0]
            raise EventError(f"event {first.row}: {first.reason} ({len(rejected)} of {n} events)")
        out = cls(schema, codes, rejected)
        out._strangers = strangers
        if rejected:
            good = np.ones(n, bool)
            good[list(reasons)] = False
            out = out.select(good)
            out.rejected = rejected
        return out

    @classmethod
    def from_arrow(
        cls, schema: Schema, table: pa.Table | pa.RecordBatch, *, on_error: str = "raise"
    ) -> Events:
        """Events from the columns of an Arrow table that are attributes; other columns are not looked at."""
        names = [name for name in table.column_names if name in schema]
        if not names:
            raise EventError(
                f"the table must have a column of the schema ({', '.join(schema.names)}), "
                f"got {', '.join(table.column_names)}"
            )
        return cls.from_arrays(schema, {name: table.column(name) for name in names}, on_error=on_error)

    @classmethod
    def from_pandas(cls, schema: Schema, frame: Any, *, on_error: str = "raise") -> Events:
        """As `from_arrow`, from a pandas DataFrame."""
        columns = {name: frame[name] for name in frame.columns if name in schema}
        if not columns:
            raise EventError(f"the frame must have a column of the schema ({', '.join(schema.names)})")
        return cls.from_arrays(schema, columns, on_error=on_error)

    @classmethod
    def from_rows(
        cls, schema: Schema, rows: Sequence[Mapping[str, Any]], *, on_error: str = "raise"
    ) -> Events:
        """Events from dicts; a key that is no attribute is not looked at, an absent one is missing."""
        if len(rows) == 0:
            return cls(schema, np.empty((len(schema), 0), np.int64))
        columns = {name: [row.get(name) for row in rows] for name in schema.names}
        return cls.from_arrays(schema, columns, on_error=on_error)


def _words_at(column: Any, rows: npt.NDArray[np.int64]) -> pa.Array[Any]:
    words, _ = as_column(column).strings()
    return words.take(pa.array(rows))
