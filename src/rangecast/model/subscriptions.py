"""Subscriptions in the normal form: ids and boxes.

    array    type          shape            meaning
    ids      Ids           n_subscriptions  (ids.py)
    boxes    SparseBoxes   n_boxes          the attributes that each box bounds, and its owner (boxes.py)
    beside   UserColumns   n_subscriptions  conditions as written, and columns of users (user_columns.py)

No match reads what is beside: it is for people, who want to see what they wrote, and whom to tell.

A subscription has as many boxes as its condition needs: one for a conjunction, IN and != included, several
for OR across attributes, none for a contradiction. Boxes that come as dense arrays (d, n) stay so until their
entries are asked for. Structures that know one interval per attribute take `dense()`, which multiplies sets
out, up to DENSE_LIMIT boxes per subscription.

Rows that cannot be loaded are rejected with their reasons (`rejected`) under on_error="collect", and stop the
load under on_error="raise".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import CapacityError, OddConditionWarning, SubscriptionError, warn
from rangecast.language.compiler import compile_conditions
from rangecast.language.lint import describe_doubts
from rangecast.memory import check_rows
from rangecast.model import boxes as sparse
from rangecast.model import kernels
from rangecast.model.boxes import DenseBoxes, SparseBoxes
from rangecast.model.ids import Ids
from rangecast.model.texts import Texts
from rangecast.model.user_columns import UserColumns, expiry_times
from rangecast.types.attributes import HIGH, LAST, LOW, MISSING, Category, Codes
from rangecast.types.columns import is_unicode
from rangecast.types.frames import table_of
from rangecast.types.schema import Schema

DENSE_LIMIT = 1_024
"""How many dense boxes the sets of one subscription may be multiplied out into."""


class Subscriptions:
    """Subscriptions of one schema.

    >>> from rangecast import Int, Schema
    >>> schema = Schema(Int("price"))
    >>> subs = Subscriptions.parse(schema, {7: "price between 10 and 20", 8: "price in (1, 5)"})
    >>> len(subs), subs.n_boxes, subs.dense().owners.tolist()
    (2, 2, [0, 1, 1])
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
        low_ends = np.array(lows, np.int64, order="C", copy=copy or None)
        high_ends = np.array(highs, np.int64, order="C", copy=copy or None)
        n_boxes = low_ends.shape[1] if low_ends.ndim == 2 else -1
        if low_ends.shape != (len(schema), n_boxes) or high_ends.shape != low_ends.shape:
            raise SubscriptionError(
                f"lows and highs must be ({len(schema)}, n_boxes), got {low_ends.shape}, {high_ends.shape}"
            )
        own = (
            np.arange(n_boxes, dtype=np.int32)
            if owners is None
            else np.array(owners, np.int32, order="C", copy=copy or None)
        )
        self._sparse: SparseBoxes | None = None
        self._dense: DenseBoxes | None = DenseBoxes(low_ends, high_ends, own)
        self._take(schema, Ids.of(ids), own, n_boxes, rejected, texts)
        if owners is None and n_boxes != len(self.ids):
            raise SubscriptionError(
                f"each box must have one owner, got {n_boxes} boxes and {len(self.ids)} ids"
            )

    def _take(
        self,
        schema: Schema,
        ids: Ids,
        owners: npt.NDArray[np.int32],
        n_boxes: int,
        rejected: Sequence[Rejected],
        texts: Any,
    ) -> None:
        self.schema = schema
        self.ids = ids
        self.owners = owners
        """The row of `ids` of each box, ascending."""
        check_rows(max(len(ids), n_boxes), "subscriptions and their boxes")
        if len(owners) != n_boxes:
            raise SubscriptionError(f"each box must have one owner, got {n_boxes} and {len(owners)} owners")
        if len(owners) and (
            bool((np.diff(owners) < 0).any()) or owners[0] < 0 or owners[-1] >= len(self.ids)
        ):
            raise SubscriptionError("owners must ascend and name rows of ids")
        self.rejected = list(rejected)
        self.beside = UserColumns.of(len(ids), texts)

    @property
    def texts(self) -> Texts | None:
        """The conditions as they were written, or None."""
        return self.beside.texts

    @property
    def payload(self) -> pa.Table:
        """The users' own columns, a row for each subscription.

        >>> from rangecast import Int, Schema
        >>> subs = Subscriptions.parse(Schema(Int("price")), {7: "price < 10"})
        >>> subs.with_payload({"owner": ["ann"]}).payload.to_pylist()
        [{'owner': 'ann'}]
        """
        return self.beside.table()

    @property
    def expires(self) -> npt.NDArray[np.int64] | None:
        """When each expires, in microseconds since 1970 UTC, 0 for never; None where none does."""
        return self.beside.expires

    def with_payload(self, payload: Any) -> Subscriptions:
        """The same with columns of the users' own: a table, or a mapping of names to columns."""
        out = self._like(self.schema, self.rejected)
        out.beside = UserColumns.of(len(self), self.beside, payload)
        return out

    @classmethod
    def of_boxes(
        cls,
        schema: Schema,
        ids: Any,
        boxes: SparseBoxes,
        rejected: Sequence[Rejected] = (),
        texts: Any = None,
    ) -> Subscriptions:
        """Subscriptions from sparse boxes, whose arrays must not change any more.

        >>> from rangecast import Int, Schema
        >>> subs = Subscriptions.parse(Schema(Int("price")), {7: "price in (1, 5)"})
        >>> Subscriptions.of_boxes(subs.schema, [8], subs.boxes)
        Subscriptions(1 subscriptions, 1 boxes)
        """
        out = cls.__new__(cls)
        out._sparse, out._dense = boxes, None
        out._take(schema, Ids.of(ids), boxes.owners, len(boxes.starts) - 1, rejected, texts)
        return out

    def _like(self, schema: Schema, rejected: Sequence[Rejected]) -> Subscriptions:
        """The same ids, boxes, texts and payload."""
        out = type(self).__new__(type(self))
        out._sparse, out._dense = self._sparse, self._dense
        if self._dense is not None and len(self._dense.lows) < len(schema):
            out._dense = sparse.widened(self._dense, len(schema))
        out._take(schema, self.ids, self.owners, self.n_boxes, rejected, self.beside)
        return out

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        set_aside = f", {len(self.rejected):,} rejected" if self.rejected else ""
        return f"Subscriptions({len(self):,} subscriptions, {self.n_boxes:,} boxes{set_aside})"

    @property
    def boxes(self) -> SparseBoxes:
        """The boxes by their entries."""
        if self._sparse is None:
            assert self._dense is not None
            self._sparse = sparse.from_dense(self._dense)
        return self._sparse

    @property
    def has_sets(self) -> bool:
        """Whether a box has a set of several intervals on an attribute."""
        return self._dense is None and self._sparse is not None and len(self._sparse.sets) > 0

    def dense(self) -> DenseBoxes:
        """The boxes with one interval per attribute: sets are multiplied out.

        CapacityError beyond DENSE_LIMIT boxes for one subscription.
        """
        if self._dense is not None:
            return self._dense
        boxes = self.boxes
        if len(boxes.sets):
            own = np.unique(boxes.owners[np.searchsorted(boxes.starts, boxes.sets, "right") - 1])
            counts = np.bincount(boxes.owners, sparse.count_pieces(boxes), len(self))[own]
            many = np.flatnonzero(counts > DENSE_LIMIT)
            if len(many):
                row = int(own[many[0]])
                raise CapacityError(
                    f"subscription {self.ids[row]!r} is {counts[many[0]]:,.0f} boxes of one interval per "
                    f"attribute, and this structure takes at most {DENSE_LIMIT:,} ({len(many):,} of "
                    f"{len(self):,} subscriptions); the indexes 'auto' and 'scan' take its sets as they are, "
                    "or cut it into several subscriptions"
                )
        dense = sparse.cut(boxes, len(self.schema), np.ones(len(boxes.sets), np.uint8))[0]
        if not len(boxes.sets):
            self._dense = dense
        return dense

    def expanded(self) -> Subscriptions:
        """The same subscriptions without sets; CapacityError as in `dense`."""
        if not self.has_sets:
            return self
        return Subscriptions(
            self.schema, self.ids, *self.dense(), rejected=self.rejected, texts=self.beside, copy=False
        )

    @property
    def lows(self) -> Codes:
        """The low ends of dense boxes, (d, n_boxes); SubscriptionError where a box has a set."""
        return self._without_sets().lows

    @property
    def highs(self) -> Codes:
        """The high ends of dense boxes, (d, n_boxes); SubscriptionError where a box has a set."""
        return self._without_sets().highs

    def _without_sets(self) -> DenseBoxes:
        if self.has_sets:
            raise SubscriptionError("some boxes have sets of intervals; take expanded(), dense() or boxes")
        return self.dense()

    @property
    def n_boxes(self) -> int:
        """How many boxes all subscriptions have together."""
        return len(self.owners)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that are matched; `beside.nbytes` is apart."""
        arrays = {id(a): a.nbytes for held in (self._dense, self._sparse) if held is not None for a in held}
        return self.ids.nbytes + sum(arrays.values())

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
        texts = self.beside.select(rows)
        if self.single:
            owners = np.arange(len(rows), dtype=np.int32)
            return self._chosen(ids, rows, owners, texts=texts)
        first = self.box_starts()
        owners = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(first)[rows])
        return self._chosen(ids, sparse.ragged(first, rows), owners, texts=texts)

    def _chosen(
        self,
        ids: Ids,
        numbers: npt.NDArray[np.int64],
        owners: npt.NDArray[np.int32],
        rejected: Sequence[Rejected] = (),
        texts: UserColumns | None = None,
    ) -> Subscriptions:
        """Some of the boxes, with the owners that they get."""
        if self._dense is None:
            boxes = sparse.select(self.boxes, numbers, owners)
            return Subscriptions.of_boxes(self.schema, ids, boxes, rejected, texts)
        lows, highs = self._dense.lows[:, numbers], self._dense.highs[:, numbers]
        return Subscriptions(self.schema, ids, lows, highs, owners, rejected, texts, copy=False)

    def select_boxes(self, numbers: npt.NDArray[np.int64]) -> Subscriptions:
        """Some of the boxes (ascending) and the subscriptions that have them, without texts and payload."""
        rows, owners = np.unique(self.owners[numbers], return_inverse=True)
        return self._chosen(self.ids.select(rows), numbers, owners.astype(np.int32))

    def overlapping(self) -> npt.NDArray[np.uint8]:
        """Per subscription, 1 when two of its boxes share a point, so that it could match twice."""
        if not bool((self.owners[1:] == self.owners[:-1]).any()):
            return np.zeros(len(self), np.uint8)
        if self._dense is None:
            return sparse.flag_overlapping(self.boxes, len(self))
        out = np.zeros(len(self), np.uint8)
        kernels.flag_overlapping(*self._dense, out)
        return out

    def reconciled(self, schema: Schema) -> Subscriptions:
        """These subscriptions for an index of `schema`, whose dictionaries take over their strings.

        Where their conditions use more hidden attributes, they come with as wide a schema.
        """
        if schema is self.schema:
            return self
        schema = schema.taking_over(self.schema, "subscriptions")
        return self._like(schema, self.rejected)

    @classmethod
    def concat(cls, several: Iterable[Subscriptions], *, distinct: bool = True) -> Subscriptions:
        """Several Subscriptions as one, in their order, with texts and payload; their ids must differ.

        The schema is that of the first, whose dictionaries take over the strings of the others. With
        distinct=False ids may repeat, for callers that then select the rows that count.

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
        for subs in given:  # the widest of them
            schema = subs.reconciled(schema).schema
        parts = [subs.reconciled(schema) for subs in given if len(subs)]
        rejected = [row for subs in given for row in subs.rejected]
        if len(parts) < 2:
            return (parts[0] if parts else given[0])._like(schema, rejected)
        if len({subs.ids.textual for subs in parts}) > 1:
            raise SubscriptionError("concat: ids must be all whole numbers or all strings, got both")
        ids = Ids.of(pa.concat_arrays([subs.ids.arrow() for subs in parts]))
        repeated = ids.repeats() if distinct else np.empty(0, np.int64)
        if len(repeated):
            raise SubscriptionError(
                f"concat: ids must differ, got {ids[int(repeated[0])]!r} twice "
                f"({len(repeated):,} of {len(ids):,} subscriptions)"
            )
        texts = UserColumns.concat(subs.beside for subs in parts)
        firsts = np.cumsum([0, *(len(subs) for subs in parts)])[:-1].tolist()
        if any(subs._dense is None for subs in parts):
            boxes = sparse.concat([subs.boxes for subs in parts], firsts)
            return cls.of_boxes(schema, ids, boxes, rejected, texts)
        return cls(
            schema,
            ids,
            np.concatenate([subs.lows for subs in parts], axis=1),
            np.concatenate([subs.highs for subs in parts], axis=1),
            np.concatenate(
                [subs.owners + np.int32(first) for subs, first in zip(parts, firsts, strict=True)]
            ),
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
        payload: Any = None,
        expires: Any = None,
        on_error: str = "raise",
        remarks: bool = True,
    ) -> Subscriptions:
        """Subscriptions from condition texts: a mapping or pairs id -> text, or two columns.

        `payload` holds the user's own columns, as a table or a mapping of names to columns; `expires` says
        when they expire, as in `Store.insert`: one time, or one for each row that is given here. With
        `remarks`, a condition that was probably meant otherwise causes an OddConditionWarning.
        """
        if conditions is not None:
            pairs = list(conditions.items() if isinstance(conditions, Mapping) else conditions)
            ids, texts = [i for i, _ in pairs], [t for _, t in pairs]
        if ids is None or texts is None:
            raise SubscriptionError("parse takes conditions, or ids= and texts=")
        if isinstance(texts, pa.Array | pa.ChunkedArray):
            texts = texts.to_pylist()
        load = Load(schema, ids, on_error)
        texts = list(texts)
        load.check_length(len(texts), "texts")
        compiled = compile_conditions(schema, texts)
        for row, error in compiled.errors:
            load.reject(row, str(error), error)
        loaded = load.finish(UserColumns.of(load.n, as_written(texts), payload), expires)
        if remarks and compiled.doubts:
            said = describe_doubts(schema, texts, compiled.doubts, load.id_of)
            if said is not None:
                warn(said, OddConditionWarning)
        boxes = SparseBoxes(*compiled[:-2])
        if loaded.good is not None:
            kept = np.flatnonzero(loaded.good[boxes.owners])
            rank = (np.cumsum(loaded.good) - 1).astype(np.int32)
            boxes = sparse.select(boxes, kept, rank[boxes.owners[kept]])
        return cls.of_boxes(schema.widest(), loaded.ids, boxes, loaded.rejected, loaded.beside)

    @classmethod
    def from_arrays(
        cls,
        schema: Schema,
        ids: Any,
        lows: Any,
        highs: Any,
        *,
        payload: Any = None,
        expires: Any = None,
        on_error: str = "raise",
    ) -> Subscriptions:
        """Subscriptions of one box each, from inclusive bounds.

        `lows` and `highs` are (n, d) values in the schema's order, or a dict of columns by name; NaN,
        None and NaT mean that a side is not bounded, and an attribute bounded on neither side is
        ignored. A category takes the same value on both sides.
        """
        schema = schema.declared
        load = Load(schema, ids, on_error)
        low_codes, high_codes = bound_codes(load, lows, highs)
        loaded = load.finish(UserColumns.of(load.n, None, payload), expires)
        if loaded.good is not None:
            low_codes, high_codes = low_codes[:, loaded.good], high_codes[:, loaded.good]
        return cls(
            schema, loaded.ids, low_codes, high_codes, None, loaded.rejected, loaded.beside, copy=False
        )

    @classmethod
    def from_arrow(cls, schema: Schema, table: Any, **options: Any) -> Subscriptions:
        """Subscriptions from an Arrow table or another frame: `id`, with a `condition` or with bounds.

        Bound columns are named after their attribute: `price_low` and `price_high`, or `price` for equality.
        Without `condition=` a column of that name is taken when there is one. The columns in `payload` stay
        with the subscriptions, and the one named by `expires` says when each expires.
        """
        table = table_of(table, "subscriptions")
        columns = {name: table[name] for name in table.column_names}
        return cls._from_columns(schema, columns, "the table", **options)

    @classmethod
    def _from_columns(
        cls,
        schema: Schema,
        columns: dict[str, Any],
        what: str,
        *,
        id: str = "id",
        condition: str | None = None,
        payload: Sequence[str] = (),
        expires: str | None = None,
        on_error: str = "raise",
    ) -> Subscriptions:
        if condition is None and "condition" in columns and "condition" not in schema:
            condition = "condition"
        there = ", ".join(columns)
        for kind, needed in (("id ", id), ("", condition), ("", expires), *(("", name) for name in payload)):
            if needed is not None and needed not in columns:
                raise SubscriptionError(f"{what} must have the {kind}column {needed!r}, got {there}")
        options: dict[str, Any] = {
            "payload": {name: columns[name] for name in payload},
            "expires": None if expires is None else columns[expires],
            "on_error": on_error,
        }
        if condition is not None:
            return cls.parse(schema, ids=columns[id], texts=columns[condition], **options)
        bounds = {name: column for name, column in columns.items() if name not in (expires, *payload)}
        lows = {name: bounds.get(f"{name}_low", bounds.get(name)) for name in schema.names}
        highs = {name: bounds.get(f"{name}_high", bounds.get(name)) for name in schema.names}
        if not any(column is not None for column in (*lows.values(), *highs.values())):
            raise SubscriptionError(
                f"{what} must have a condition column, or bounds such as "
                f"{schema.names[0]}_low and {schema.names[0]}_high, got {there}"
            )
        return cls.from_arrays(schema, columns[id], lows, highs, **options)

    @classmethod
    def from_pandas(cls, schema: Schema, frame: Any, **options: Any) -> Subscriptions:
        """As `from_arrow`, for a pandas DataFrame."""
        return cls.from_arrow(schema, frame, **options)

    @classmethod
    def from_rows(cls, schema: Schema, rows: Sequence[Mapping[str, Any]], **options: Any) -> Subscriptions:
        """As `from_arrow`, for a list of dicts."""
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        return cls._from_columns(schema, columns, "each row", **options) if rows else cls.empty(schema)


# One bulk load of subscriptions: columns as given, and which rows are rejected and why.


class Rejected(NamedTuple):
    """A row that was not loaded."""

    row: int
    id: Any
    reason: str


class Loaded(NamedTuple):
    """What a load took: ids, a mask of the rows (None: all of them), the rejected rows, what is beside."""

    ids: Ids
    good: npt.NDArray[np.bool_] | None
    rejected: list[Rejected]
    beside: UserColumns


def as_written(texts: list[Any]) -> Texts:
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


def columns_of(schema: Schema, bounds: Any, what: str) -> dict[int, Any]:
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


def bound_codes(load: Load, lows: Any, highs: Any) -> tuple[Codes, Codes]:
    """Inclusive bounds as codes (d, n); rows whose bounds cannot be are rejected."""
    schema, n = load.schema, load.n
    low_codes = np.full((len(schema), n), MISSING, np.int64)
    high_codes = np.full((len(schema), n), LAST, np.int64)
    low_columns, high_columns = columns_of(schema, lows, "lows"), columns_of(schema, highs, "highs")
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
                encoded.note(load.reasons, every=load.collect)
        low_row, high_row = low_codes[j], high_codes[j]
        if a is not None:
            low_row[:] = a.codes
        if b is not None:
            high_row[:] = b.codes
        kernels.close_bounds(low_row, high_row, b is not None)
        wrong = low_row > high_row
        if isinstance(attribute, Category):
            wrong |= (low_row != high_row) & ~((low_row == MISSING) & (high_row == LAST))
        rows = np.flatnonzero(wrong).tolist()
        for row in rows if load.collect else rows[:1]:
            ends = f"[{attribute.decode(low_row[row])}, {attribute.decode(high_row[row])}]"
            if isinstance(attribute, Category):
                reason = f"low must equal high on the {attribute.kind} {attribute.name!r}, got {ends}"
            else:
                reason = f"low must not exceed high on {attribute.name!r}, got {ends}"
            load.reject(row, reason)
        for row in rows:  # where nothing is collected they are counted
            load.reject(row, "")
    return low_codes, high_codes


class Load:
    """One bulk load: which rows were rejected and why; by default it raises at the first one."""

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
        items = [str(item) if isinstance(item, uuid.UUID) else item for item in items]
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

    def finish(self, beside: UserColumns, expires: Any = None) -> Loaded:
        """Which rows were taken, once all were looked at; raises for the first bad one unless collecting."""
        if expires is not None:
            times, bad = expiry_times(expires, self.n)
            for row, reason in bad.items():
                self.reject(row, f"expires: {reason}")
            beside = UserColumns(self.n, beside.texts, beside.payload, times)
        self._reject_repeats()
        if not self.reasons:
            return Loaded(self.ids, None, [], beside)
        if not self.collect:
            row = min(self.reasons)
            tail = f" ({len(self.reasons)} of {self.n} subscriptions)" if self.n > 1 else ""
            # the count goes to the end of the first line: a language error draws a caret below it
            headline, *below = self.reasons[row].split("\n")
            message = "\n".join([f"subscription {self.id_of(row)!r}: {headline}{tail}", *below])
            raise SubscriptionError(message) from self.first_error
        rejected = [Rejected(row, self.id_of(row), self.reasons[row]) for row in sorted(self.reasons)]
        good = np.ones(self.n, bool)
        good[list(self.reasons)] = False
        rows = np.flatnonzero(good)
        return Loaded(self.ids.select(rows), good, rejected, beside.select(rows))
