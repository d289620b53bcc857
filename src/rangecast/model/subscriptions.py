"""Subscriptions in the normal form: ids and boxes of closed code intervals.

    array    dtype   shape            meaning
    ids      Ids     n_subscriptions  (ids.py)
    lows     int64   (d, n_boxes)     column-major: lows[j] is attribute j of every box
    highs    int64   (d, n_boxes)     closed; MISSING..LAST where the attribute is ignored
    owners   int32   n_boxes          ascending: the row of `ids` that a box belongs to
    texts    Texts   n_subscriptions  the conditions as they were written (texts.py), or None

No match reads the texts: they are for people, who want to see what they wrote.

A subscription has as many boxes as its condition needs: one for a conjunction, several for OR, IN
and !=, none for a contradiction. Rows that cannot be loaded are rejected with their reasons
(`rejected`) under on_error="collect", and stop the load under on_error="raise".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import SchemaError, SubscriptionError
from rangecast.kernels.model import subscriptions as kernels
from rangecast.language.compiler import compile_conditions
from rangecast.model.ids import Ids
from rangecast.model.texts import Texts
from rangecast.types.attributes import HIGH, LAST, LOW, MISSING, Category, Codes
from rangecast.types.columns import is_unicode
from rangecast.types.schema import Schema


class Rejected(NamedTuple):
    """A row that was not loaded."""

    row: int
    id: Any
    reason: str


class Subscriptions:
    """Subscriptions of one schema.

    >>> from rangecast import Int, Schema
    >>> schema = Schema(Int("price"))
    >>> subs = Subscriptions.parse(schema, {7: "price between 10 and 20", 8: "price in (1, 5)"})
    >>> len(subs), subs.n_boxes, subs.owners.tolist()
    (2, 3, [0, 1, 1])
    """

    def __init__(
        self,
        schema: Schema,
        ids: Any,
        lows: Codes,
        highs: Codes,
        owners: npt.NDArray[np.int32] | None = None,
        rejected: Sequence[Rejected] = (),
        texts: Any = None,
        *,
        copy: bool = True,
    ) -> None:
        """Subscriptions from codes, which are copied; with copy=False the arrays must not change any more."""
        self.schema = schema
        self.ids = Ids.of(ids)
        self.lows = np.array(lows, np.int64, order="C", copy=copy or None)
        self.highs = np.array(highs, np.int64, order="C", copy=copy or None)
        n_boxes = self.lows.shape[1] if self.lows.ndim == 2 else -1
        if self.lows.shape != (len(schema), n_boxes) or self.highs.shape != self.lows.shape:
            raise SubscriptionError(
                f"lows and highs must be ({len(schema)}, n_boxes), got {self.lows.shape}, {self.highs.shape}"
            )
        self.owners = (
            np.arange(n_boxes, dtype=np.int32)
            if owners is None
            else np.array(owners, np.int32, order="C", copy=copy or None)
        )
        if len(self.owners) != n_boxes or (owners is None and n_boxes != len(self.ids)):
            raise SubscriptionError(
                f"each box must have one owner, got {n_boxes} boxes and {len(self.ids)} ids"
            )
        if len(self.owners) and (
            bool((np.diff(self.owners) < 0).any()) or self.owners[0] < 0 or self.owners[-1] >= len(self.ids)
        ):
            raise SubscriptionError("owners must ascend and name rows of ids")
        self.rejected = list(rejected)
        self.texts = None if texts is None else Texts.of(texts)
        if self.texts is not None and len(self.texts) != len(self.ids):
            raise SubscriptionError(
                f"texts must have one row per id, got {len(self.texts)} for {len(self.ids)} ids"
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        set_aside = f", {len(self.rejected):,} rejected" if self.rejected else ""
        return f"Subscriptions({len(self):,} subscriptions, {self.n_boxes:,} boxes{set_aside})"

    @property
    def n_boxes(self) -> int:
        """How many boxes all subscriptions have together."""
        return int(self.lows.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that are matched; `texts.nbytes` is apart."""
        return self.ids.nbytes + self.lows.nbytes + self.highs.nbytes + self.owners.nbytes

    @property
    def single(self) -> bool:
        """Whether each subscription has one box, so that rows and boxes have the same numbers."""
        return self.n_boxes == len(self) and not bool((self.owners[1:] == self.owners[:-1]).any())

    def box_starts(self) -> npt.NDArray[np.int64]:
        """Where the boxes of each subscription begin, and where the last one's end."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.owners, minlength=len(self)))])

    def select(self, rows: Any) -> Subscriptions:
        """Some of the subscriptions, by row."""
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        ids = self.ids.select(rows)
        texts = None if self.texts is None else self.texts.select(rows)
        if self.single:
            return Subscriptions(
                self.schema, ids, self.lows[:, rows], self.highs[:, rows], texts=texts, copy=False
            )
        first = self.box_starts()
        counts = np.diff(first)[rows]
        owners = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        starts = np.repeat(first[rows] - (np.cumsum(counts) - counts), counts)
        boxes = starts + np.arange(len(owners))
        lows, highs = self.lows[:, boxes], self.highs[:, boxes]
        return Subscriptions(self.schema, ids, lows, highs, owners, texts=texts, copy=False)

    def overlapping(self) -> npt.NDArray[np.uint8]:
        """Per subscription, 1 when two of its boxes share a point, so that it could match twice."""
        out = np.zeros(len(self), np.uint8)
        if bool((self.owners[1:] == self.owners[:-1]).any()):
            kernels.flag_overlapping(self.lows, self.highs, self.owners, out)
        return out

    def reconciled(self, schema: Schema) -> Subscriptions:
        """These subscriptions for an index of `schema`, whose dictionaries take over their strings."""
        if schema is self.schema:
            return self
        schema.check_same(self.schema, "subscriptions")
        for (_, ours), (_, theirs) in zip(schema.categories(), self.schema.categories(), strict=True):
            if not ours.vocabulary.agrees_with(theirs.vocabulary):
                raise SchemaError(
                    f"the subscriptions were made with another schema object, whose {ours.name!r} has "
                    "other codes; make them with the index's own schema (index.schema)"
                )
            ours.vocabulary.extend_from(theirs.vocabulary)
        return Subscriptions(
            schema, self.ids, self.lows, self.highs, self.owners, self.rejected, self.texts, copy=False
        )

    @classmethod
    def concat(cls, several: Iterable[Subscriptions], *, distinct: bool = True) -> Subscriptions:
        """Several Subscriptions as one, in their order, each with its texts; their ids must differ.

        The schema is that of the first, whose dictionaries take over the strings of the others. With
        distinct=False ids may repeat, for who selects afterwards the rows that count.

        >>> from rangecast import Int, Schema
        >>> schema = Schema(Int("price"))
        >>> some, more = (Subscriptions.parse(schema, {i: f"price < {i}"}) for i in (7, 8))
        >>> both = Subscriptions.concat([some, more])
        >>> both.ids.values.tolist(), both.texts.to_list()
        ([7, 8], ['price < 7', 'price < 8'])
        """
        given = list(several)
        if not given:
            raise SubscriptionError("concat takes at least one Subscriptions, for its schema, got none")
        schema = given[0].schema
        parts = [subs.reconciled(schema) for subs in given if len(subs)]
        rejected = [row for subs in given for row in subs.rejected]
        if len(parts) < 2:
            one = parts[0] if parts else given[0]
            return cls(schema, one.ids, one.lows, one.highs, one.owners, rejected, one.texts, copy=False)
        if len({subs.ids.textual for subs in parts}) > 1:
            raise SubscriptionError("concat: ids must be all whole numbers or all strings, got both")
        ids = Ids.of(pa.concat_arrays([subs.ids.arrow() for subs in parts]))
        repeated = ids.repeats() if distinct else np.empty(0, np.int64)
        if len(repeated):
            raise SubscriptionError(
                f"concat: ids must differ, got {ids[int(repeated[0])]!r} twice "
                f"({len(repeated):,} of {len(ids):,} subscriptions)"
            )
        texts = None
        if any(subs.texts is not None for subs in parts):
            texts = Texts.concat(
                Texts.absent(len(subs)) if subs.texts is None else subs.texts for subs in parts
            )
        firsts = np.cumsum([0, *(len(subs) for subs in parts)]).astype(np.int32)
        return cls(
            schema,
            ids,
            np.concatenate([subs.lows for subs in parts], axis=1),
            np.concatenate([subs.highs for subs in parts], axis=1),
            np.concatenate([subs.owners + first for subs, first in zip(parts, firsts, strict=False)]),
            rejected,
            texts,
            copy=False,
        )

    @classmethod
    def empty(cls, schema: Schema) -> Subscriptions:
        """No subscriptions."""
        none = np.empty((len(schema), 0), np.int64)
        return cls(schema, np.empty(0, np.int64), none, none)

    @classmethod
    def parse(
        cls,
        schema: Schema,
        conditions: Mapping[Any, str] | Iterable[tuple[Any, str]] | None = None,
        *,
        ids: Any = None,
        texts: Any = None,
        on_error: str = "raise",
    ) -> Subscriptions:
        """Subscriptions from condition texts: a mapping or pairs id -> text, or two columns."""
        if conditions is not None:
            pairs = list(conditions.items() if isinstance(conditions, Mapping) else conditions)
            ids, texts = [i for i, _ in pairs], [t for _, t in pairs]
        if ids is None or texts is None:
            raise SubscriptionError("parse takes conditions, or ids= and texts=")
        if isinstance(texts, pa.Array | pa.ChunkedArray):
            texts = texts.to_pylist()
        load = _Load(schema, ids, on_error)
        texts = list(texts)
        load.check_length(len(texts), "texts")
        compiled = compile_conditions(schema, texts)
        for row, error in compiled.errors:
            load.reject(row, str(error), error)
        n_boxes = len(compiled.owners)
        lows = np.full((len(schema), n_boxes), MISSING, np.int64)
        highs = np.full((len(schema), n_boxes), LAST, np.int64)
        where = compiled.entry_attributes, compiled.entry_boxes
        lows[where] = compiled.entry_lows
        highs[where] = compiled.entry_highs
        return load.finish(lows, highs, compiled.owners.astype(np.int32), _as_written(texts))

    @classmethod
    def from_arrays(
        cls, schema: Schema, ids: Any, lows: Any, highs: Any, *, on_error: str = "raise"
    ) -> Subscriptions:
        """Subscriptions of one box each, from inclusive bounds.

        `lows` and `highs` are (n, d) values in the schema's order, or a dict of columns by name; NaN,
        None and NaT mean that a side is not bounded, and an attribute bounded on neither side is
        ignored. A category takes the same value on both sides.
        """
        load = _Load(schema, ids, on_error)
        n = load.n
        low_codes = np.full((len(schema), n), MISSING, np.int64)
        high_codes = np.full((len(schema), n), LAST, np.int64)
        low_columns, high_columns = _columns(schema, lows, "lows"), _columns(schema, highs, "highs")
        for j, attribute in enumerate(schema):
            low, high = low_columns.get(j), high_columns.get(j)
            if low is None and high is None:
                continue
            for column in (low, high):
                if column is not None:
                    load.check_length(len(column), f"bounds of {attribute.name!r}")
            grow = isinstance(attribute, Category)
            a = attribute.encode(low, LOW, grow) if low is not None else None
            b = attribute.encode(high, HIGH, grow) if high is not None else None
            for encoded in (a, b):
                if encoded is not None:
                    for row, reason in zip(encoded.bad.tolist(), encoded.reasons, strict=True):
                        load.reject(row, reason)
            low_row, high_row = low_codes[j], high_codes[j]
            if a is not None:
                low_row[:] = a.codes
            if b is not None:
                high_row[:] = b.codes
            kernels.close_bounds(low_row, high_row, b is not None)
            wrong = low_row > high_row
            if isinstance(attribute, Category):
                wrong |= (low_row != high_row) & ~((low_row == MISSING) & (high_row == LAST))
            if wrong.any():
                rows = np.flatnonzero(wrong)
                for row in rows.tolist():
                    ends = f"[{attribute.decode(low_row[row])}, {attribute.decode(high_row[row])}]"
                    if isinstance(attribute, Category):
                        reason = f"low must equal high on the category {attribute.name!r}, got {ends}"
                    else:
                        reason = f"low must not exceed high on {attribute.name!r}, got {ends}"
                    load.reject(row, reason)
        return load.finish(low_codes, high_codes, None)

    @classmethod
    def from_arrow(
        cls,
        schema: Schema,
        table: pa.Table,
        *,
        id: str = "id",
        condition: str | None = None,
        on_error: str = "raise",
    ) -> Subscriptions:
        """Subscriptions from a table: `id` with a `condition` column, or with bound columns.

        Bound columns are named after their attribute: `price_low` and `price_high`, or `price` for
        equality. Without `condition=` a column of that name is taken when there is one.
        """
        names = set(table.column_names)
        if id not in names:
            raise SubscriptionError(
                f"the table must have the id column {id!r}, got {', '.join(table.column_names)}"
            )
        if condition is None and "condition" in names and "condition" not in schema:
            condition = "condition"
        if condition is not None:
            if condition not in names:
                raise SubscriptionError(
                    f"the table must have the column {condition!r}, got {', '.join(sorted(names))}"
                )
            return cls.parse(schema, ids=table[id], texts=table[condition], on_error=on_error)
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        for name in schema.names:
            if name in names:
                lows[name] = highs[name] = table[name]
            if f"{name}_low" in names:
                lows[name] = table[f"{name}_low"]
            if f"{name}_high" in names:
                highs[name] = table[f"{name}_high"]
        if not lows and not highs:
            raise SubscriptionError(
                "the table must have a condition column, or bounds such as "
                f"{schema.names[0]}_low and {schema.names[0]}_high, got {', '.join(table.column_names)}"
            )
        return cls.from_arrays(schema, table[id], lows, highs, on_error=on_error)

    @classmethod
    def from_pandas(cls, schema: Schema, frame: Any, **options: Any) -> Subscriptions:
        """As `from_arrow`, from a pandas DataFrame."""
        return cls.from_arrow(schema, pa.Table.from_pandas(frame, preserve_index=False), **options)

    @classmethod
    def from_rows(cls, schema: Schema, rows: Sequence[Mapping[str, Any]], **options: Any) -> Subscriptions:
        """As `from_arrow`, from a list of dicts."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: [row.get(name) for row in rows] for name in names}
        id_name = options.pop("id", "id")
        if rows and id_name not in names:
            raise SubscriptionError(f"each row must have the id {id_name!r}, got {', '.join(names)}")
        if not rows:
            return cls.empty(schema)
        condition = options.pop("condition", None)
        if condition is None and "condition" in names and "condition" not in schema:
            condition = "condition"
        if condition is not None:
            return cls.parse(schema, ids=columns[id_name], texts=columns[condition], **options)
        lows = {n: columns.get(f"{n}_low", columns.get(n)) for n in schema.names}
        highs = {n: columns.get(f"{n}_high", columns.get(n)) for n in schema.names}
        return cls.from_arrays(schema, columns[id_name], lows, highs, **options)


def _as_written(texts: list[Any]) -> Texts:
    """The texts of a load; what is no text, or none that UTF-8 can write, is absent."""
    try:
        return Texts.of(texts)
    except (SubscriptionError, UnicodeEncodeError):
        return Texts.of([text if _is_text(text) else None for text in texts])


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _columns(schema: Schema, bounds: Any, what: str) -> dict[int, Any]:
    """Bounds as columns by attribute position."""
    if isinstance(bounds, Mapping):
        return {schema.position(name): column for name, column in bounds.items() if column is not None}
    matrix = bounds if isinstance(bounds, np.ndarray) else np.asarray(bounds, dtype=_matrix_dtype(bounds))
    if matrix.ndim == 1 and len(schema) == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.shape[1] != len(schema):
        if matrix.size == 0:
            return {}
        raise SubscriptionError(
            f"{what} must be (n, {len(schema)}) values or a dict of columns, got {matrix.shape}"
        )
    return {j: np.ascontiguousarray(matrix[:, j]) for j in range(len(schema))}


def _matrix_dtype(bounds: Any) -> Any:
    """Object when there are nulls or mixed types, so that whole numbers stay exact."""
    flat = [value for row in bounds for value in (row if isinstance(row, list | tuple) else [row])]
    kinds = {type(value) for value in flat}
    return None if kinds <= {int} or kinds <= {float} else object


class _Load:
    """One bulk load: which rows were rejected and why; raises at once unless told to collect."""

    def __init__(self, schema: Schema, ids: Any, on_error: str) -> None:
        if on_error not in ("raise", "collect"):
            raise SubscriptionError(f"on_error must be 'raise' or 'collect', got {on_error!r}")
        self.schema = schema
        self.collect = on_error == "collect"
        self.reasons: dict[int, str] = {}
        self.first_error: Exception | None = None
        self.raw = ids
        try:
            self.ids = Ids.of(ids)
        except SubscriptionError:
            if not self.collect:
                raise
            self.ids = self._salvage_ids(ids)
        self.n = len(self.ids)

    def _salvage_ids(self, ids: Any) -> Ids:
        """Ids of a column in which some are no ids; those rows are rejected."""
        items = ids.to_pylist() if isinstance(ids, pa.Array | pa.ChunkedArray) else list(ids)
        kinds = [
            int
            if isinstance(i, int | np.integer) and not isinstance(i, bool) and -(2**63) <= i < 2**63
            else type(i if not isinstance(i, str) or is_unicode(i) else b"")
            for i in items
        ]
        wanted = str if kinds.count(str) > kinds.count(int) else int
        self.raw = items
        for row, kind in enumerate(kinds):
            if kind is not wanted:
                word = "a string" if wanted is str else "an int64"
                self.reasons[row] = (
                    f"a subscription's id must be {word} as in the other rows, got {items[row]!r}"
                )
        taken = [item if kind is wanted else None for item, kind in zip(items, kinds, strict=True)]
        spare: Any = "" if wanted is str else 0
        return Ids.of(pa.array([spare if item is None else item for item in taken]))

    def check_length(self, length: int, what: str) -> None:
        if length != self.n:
            raise SubscriptionError(f"{what} must have one row per id, got {length} for {self.n} ids")

    def id_of(self, row: int) -> Any:
        if row in self.reasons and isinstance(self.raw, list):
            return self.raw[row]
        return self.ids[row]

    def reject(self, row: int, reason: str, error: Exception | None = None) -> None:
        self.reasons.setdefault(row, reason)
        if self.first_error is None:
            self.first_error = error

    def _reject_repeats(self) -> None:
        """Of the rows of one id that are good the first is taken; a bad one before it takes nothing away."""
        if not self.reasons:
            repeats = self.ids.repeats()
        else:
            good = np.setdiff1d(np.arange(self.n), list(self.reasons))
            repeats = good[self.ids.select(good).repeats()]
        for row in repeats.tolist():
            self.reject(row, "this id stands in an earlier row of the load; ids must differ")

    def finish(
        self, lows: Codes, highs: Codes, owners: npt.NDArray[np.int32] | None, texts: Texts | None = None
    ) -> Subscriptions:
        self._reject_repeats()
        if not self.reasons:
            return Subscriptions(self.schema, self.ids, lows, highs, owners, texts=texts, copy=False)
        rejected = [Rejected(row, self.id_of(row), self.reasons[row]) for row in sorted(self.reasons)]
        if not self.collect:
            first = rejected[0]
            tail = f" ({len(rejected)} of {self.n} subscriptions)" if self.n > 1 else ""
            # the count goes to the end of the first line: a language error draws a caret below it
            headline, *below = first.reason.split("\n")
            message = "\n".join([f"subscription {first.id!r}: {headline}{tail}", *below])
            raise SubscriptionError(message) from self.first_error
        good = np.ones(self.n, bool)
        good[list(self.reasons)] = False
        whole = np.arange(self.n, dtype=np.int32) if owners is None else owners
        kept = good[whole]
        rank = (np.cumsum(good) - 1).astype(np.int32)
        return Subscriptions(
            self.schema,
            self.ids.select(np.flatnonzero(good)),
            lows[:, kept],
            highs[:, kept],
            rank[whole[kept]],
            rejected,
            None if texts is None else texts.select(np.flatnonzero(good)),
            copy=False,
        )
