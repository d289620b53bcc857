"""What the tasks of ingest do: find the words of subscriptions, then parse them and stage what is good.

A category's strings have codes, and a condition such as `symbol != 'IBM'` is a range of codes: tasks
that each named strings on their own could not be put together again. So the first pass only finds
the strings, the store gives them codes for good (`Store.learn`), and the second pass parses with
those. Without categories, the first pass looks at conditions with expressions alone. What it has made of
polygons, whose reading takes the most, is staged for the second. The driver, which is alone with a small
input, needs no first pass.

All rows of an id come to one task of the second pass, so each task keeps the latest good row of its ids by
itself, and puts what is left into the store as fragments of the change that will be (store/versions.py): the
store is where both workers and driver can write and read. Rejected rows go to a file of the store's staging
folder. A row for each fragment comes back, and one for the task; so the driver holds counts, and no
subscription.
"""

from __future__ import annotations

import functools
import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangecast.errors import StorageError
from rangecast.loading import RejectedRow, RowBatch
from rangecast.loading.events import reject_rows
from rangecast.loading.formats import table_raw
from rangecast.loading.rejected import REJECTED, rejected_table
from rangecast.loading.subscriptions import OWN
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import UserColumns
from rangecast.spark.worker import beside_driver, creation_of, open_store
from rangecast.store.change import FragmentEntry
from rangecast.store.change_log import FRAGMENTS
from rangecast.store.home import home_of
from rangecast.store.store import Store
from rangecast.store.versions import n_words, put_fragment
from rangecast.types.places import MOST_REMEMBERED, MapExtent, PolygonMemory, remembering
from rangecast.types.schema import Schema

ORDER = "rangecast_order"
# what a condition with an expression has: an operator, a call, or a name on the right; others may too
_EXPRESSION = r"(?i)[*/+(]|-\s|[\w\"`]\s*-|[<>=]\s*[^\s0-9'.+-]|(between|and)\s+[^\s0-9'.+-]"
_UPSERTS, _DELETES = ("upsert", "insert", "update"), ("delete", "remove")
_BOXES_AT_ONCE = 500_000
_POLYGONS = "polygons-"
_ArrowMap = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
STAGED = pa.schema(
    [
        *(("name", pa.string()), ("named", pa.int64()), ("expiring", pa.bool_()), ("textual", pa.bool_())),
        ("rejected_file", pa.string()),
        *((name, pa.int64()) for name in ("rows", "rejected", "accepted", "deleted", "superseded")),
    ]
)
"""A row of StagedFragment."""
# where a worker takes the schema and its codes from: the path of a store, or Schema.to_dict(words=True)
SchemaPlace = str | dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Columns:
    """Which columns of the input mean what; without a condition, bounds are found by name."""

    id: str
    condition: str | None
    sequence: str | None
    op: str | None
    payload: tuple[str, ...] = ()
    expires: str | None = None


def schema_of(place: SchemaPlace) -> Schema:
    """The schema with the codes that are known so far."""
    if not isinstance(place, str):
        return Schema.from_dict(place)
    creation_of(place)  # says well what is wrong with a store that is not here
    # not the store that this process keeps: parsing may add words to a schema
    return Store.open(place).schema


def word_finder(place: SchemaPlace, columns: Columns, staging: str | None = None) -> _ArrowMap:
    """The first pass: the strings that conditions name, as (attribute's position, word); an expression has
    the position -1, a bundle of traits -2. What polygons came to is staged for the second pass."""

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with remembering(PolygonMemory()) as memory:
            yield _words_of(batches)
        if staging is not None:
            _stage_polygons(staging, memory)

    def _words_of(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        known = schema_of(place)
        schema = Schema.from_dict(known.to_dict(words=True))
        for batch in batches:
            table = pa.Table.from_batches([batch])
            deleting, _ = _deletes(table, columns)
            table = table.filter(pa.array(~deleting))
            if columns.condition is not None and not (known.computed or any(known.categories())):
                # no strings to find, and few conditions have expressions
                texts = pc.cast(table[columns.condition], pa.string())
                table = table.filter(pc.match_substring_regex(texts, _EXPRESSION).fill_null(False))
            _load(schema, table, columns)
        words = schema.hidden_names()[len(known.hidden_names()) :]
        positions = [-1] * len(words)
        sets = schema.traits.vocabulary.words()[len(known.traits.vocabulary) :]
        words, positions = words + sets, positions + [-2] * len(sets)
        for (position, had), (_, has) in zip(known.categories(), schema.categories(), strict=True):
            fresh = has.vocabulary.words()[len(had.vocabulary) :]
            positions += [position] * len(fresh)
            words += fresh
        columns_out = [pa.array(positions, pa.int32()), pa.array(words, pa.string())]
        return pa.RecordBatch.from_arrays(columns_out, ["position", "word"])

    return find


def _stage_polygons(staging: str, memory: PolygonMemory) -> None:
    """Stage the polygons that a task of the first pass has read."""
    # a polygon that is no subscription's in the end has a word, and no extent
    kept = [(key, word) for key, word in memory.words.items() if word in memory.extents]
    if not kept:
        return
    extents = [memory.extents[word] for _, word in kept]
    table = pa.table(
        {
            "key": pa.array([key for key, _ in kept], pa.binary(16)),
            "word": pa.array([word for _, word in kept], pa.large_string()),
            "longitudes": pa.array([[end for span in e.longitudes for end in span] for e in extents]),
            "south": [extent.south for extent in extents],
            "north": [extent.north for extent in extents],
        }
    )
    with beside_driver(staging):
        home_of(staging).put(f"{_POLYGONS}{uuid.uuid4().hex}", lambda file: pq.write_table(table, file))


@functools.lru_cache(maxsize=1)
def _staged_polygons(staging: str) -> PolygonMemory:
    """The polygons that all tasks of the first pass have staged, up to what a process may well hold."""
    memory, home = PolygonMemory(), home_of(staging)
    for name in home.names(""):
        raw = home.get(name) if name.startswith(_POLYGONS) else None
        if raw is None:
            continue
        table = pq.read_table(io.BytesIO(raw))
        ends = table["longitudes"].to_pylist()
        for key, word, each, south, north in zip(
            table["key"].to_pylist(),
            table["word"].to_pylist(),
            ends,
            table["south"].to_pylist(),
            table["north"].to_pylist(),
            strict=True,
        ):
            memory.note(key, word)
            memory.extents[word] = MapExtent(tuple(zip(each[::2], each[1::2], strict=True)), south, north)
        if len(memory.words) >= MOST_REMEMBERED:
            break
    return memory


class StagedFragment(NamedTuple):
    """What a task gives back: a fragment that it put, or, without a name, what it counted."""

    name: str = ""
    named: int = 0
    expiring: bool = False
    textual: bool = False
    rejected_file: str = ""
    rows: int = 0
    rejected: int = 0
    accepted: int = 0
    deleted: int = 0
    superseded: int = 0

    @property
    def entry(self) -> FragmentEntry:
        """The fragment as the store knows it."""
        return FragmentEntry(self.name, self.named, self.expiring, self.textual)


def loader(store: str, staging: str, stem: str, columns: Columns) -> _ArrowMap:
    """The second pass: parse, and put what is good and what is not; returns rows of StagedFragment."""

    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces: list[ParsedPiece] = []
        aside: list[RejectedRow] = []
        schema = schema_of(store)
        with remembering(_staged_polygons(staging)):
            for piece, rejected in parsed(schema, batches, columns):
                aside += rejected
                if len(piece.ids):
                    pieces.append(piece)
        good = sum(len(piece.ids) for piece in pieces)
        staged: list[StagedFragment] = []
        counted = StagedFragment(rows=good + len(aside), rejected=len(aside))
        if pieces:
            coming, gone, superseded = latest(schema, pieces)
            pieces = []
            counted = counted._replace(accepted=len(coming), deleted=len(gone), superseded=superseded)
            staged = [StagedFragment(*entry) for entry in _put_fragments(store, stem, coming, gone)]
        staged.append(counted._replace(rejected_file=stage_rejected(staging, aside)))
        yield pa.RecordBatch.from_pylist([row._asdict() for row in staged], STAGED)

    return load


def _put_fragments(store: str, stem: str, coming: Subscriptions, gone: Ids) -> Iterator[FragmentEntry]:
    """Put what a task has, in fragments that a process can hold."""
    home, kind = home_of(store), open_store(store).kind
    n = max(1, -(-max(coming.n_boxes, len(gone)) // _BOXES_AT_ONCE))
    with beside_driver(f"{store}/{FRAGMENTS}"):
        for k in range(n):
            some = coming
            if n > 1:
                some = coming.select(np.arange(len(coming) * k // n, len(coming) * (k + 1) // n))
            deletes = gone.select(np.arange(len(gone) * k // n, len(gone) * (k + 1) // n))
            if len(some) or len(deletes):
                yield put_fragment(home, stem, kind, deletes, some)


def latest(schema: Schema, pieces: Sequence[ParsedPiece]) -> tuple[Subscriptions, Ids, int]:
    """The subscriptions and the deleted ids of the latest row of each id, and how many rows were older."""
    ids = Ids.of(pa.concat_arrays([piece.ids for piece in pieces]))
    gone, sequences, orders = (
        np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("gone", "sequences", "orders")
    )
    subs = Subscriptions.concat([piece.subs for piece in pieces], distinct=False)
    newest = latest_rows(ids, sequences, orders)
    deletes = newest[gone[newest] == 1]
    upserts = newest[gone[newest] == 0]
    # the pieces number their rows; from here on subscriptions have their ids
    coming = subs.select(upserts)
    boxes = coming.boxes
    named = Subscriptions.of_boxes(schema.widest(), ids.select(upserts), boxes, texts=coming.beside)
    return named, ids.select(deletes), len(ids) - len(newest)


def latest_rows(
    ids: Ids, sequences: npt.NDArray[np.int64], orders: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """For each id its latest row, in the order of the input.

    >>> latest_rows(Ids.of([5, 6, 5]), np.array([2, 0, 1]), np.array([0, 1, 2])).tolist()
    [0, 1]
    """
    keys = ids.values
    if ids.textual:
        keys = ids.arrow().dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    by_id = np.lexsort((orders, sequences, keys))
    last = np.ones(len(by_id), bool)
    last[:-1] = keys[by_id[1:]] != keys[by_id[:-1]]
    found = by_id[last]
    rows: npt.NDArray[np.int64] = found[np.argsort(orders[found], kind="stable")]
    return rows


@dataclass(frozen=True)
class ParsedPiece:
    """The good rows of a batch."""

    ids: pa.Array[Any]
    gone: npt.NDArray[np.uint8]
    sequences: npt.NDArray[np.int64]
    orders: npt.NDArray[np.int64]
    subs: Subscriptions


def parsed(
    schema: Schema, batches: Iterator[pa.RecordBatch], columns: Columns, *, learning: bool = False
) -> Iterator[tuple[ParsedPiece, list[RejectedRow]]]:
    """The good rows of each batch, and the rejected ones, by a schema that has all codes or learns them."""
    known = n_words(schema)
    for batch in batches:
        yield _parsed_piece(schema, pa.Table.from_batches([batch]), columns)
    if n_words(schema) != known and not learning:
        raise StorageError(
            "the subscriptions changed while they were read: the second pass met strings or expressions "
            "that the first did not; persist the DataFrame first"
        )


def _parsed_piece(schema: Schema, table: pa.Table, columns: Columns) -> tuple[ParsedPiece, list[RejectedRow]]:
    n = table.num_rows
    # what the reader of a file said comes first (rangecast.loading.subscriptions)
    said = table[OWN + "reason"] if OWN + "reason" in table.column_names else pa.nulls(n)
    reasons = {row: said[row].as_py() for row in np.flatnonzero(~_nulls(said)).tolist()}
    deleting, bad_ops = _deletes(table, columns)
    reasons.update(bad_ops)
    for row in np.flatnonzero(_nulls(table[columns.id])).tolist():
        reasons.setdefault(row, "a subscription must have an id, got null")
    sequences = np.zeros(n, np.int64)
    if columns.sequence is not None:
        column = table[columns.sequence].combine_chunks()
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        sequences = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(_nulls(column)).tolist():
            reasons.setdefault(row, f"the sequence {columns.sequence!r} must not be null")
    coming = np.flatnonzero(~deleting)
    subs = _load(schema, table.take(pa.array(coming)), columns)
    for rejected in subs.rejected:
        reasons.setdefault(int(coming[rejected.row]), rejected.reason)
    aside = _rejected(table, reasons, columns)
    good = np.ones(n, bool)
    good[list(reasons)] = False
    # the subscriptions carry their row as id; those whose row was rejected for another reason go
    rows = coming[subs.ids.values]
    subs = subs.select(good[rows])
    rank = np.cumsum(good) - 1
    owners = rank[coming[subs.ids.values]][subs.owners].astype(np.int32) if len(subs) else subs.owners
    kept = pa.array(good)
    ids = table[columns.id].combine_chunks().filter(kept)
    numbers = np.arange(int(good.sum()))
    texts = None
    if columns.condition is not None:
        written = pc.if_else(pa.array(deleting), None, table[columns.condition].combine_chunks())
        texts = written.filter(kept)
    beside = UserColumns.of(len(numbers), texts, table.select(list(columns.payload)).filter(kept))
    if subs.expires is not None:
        beside.expires = np.zeros(len(numbers), np.int64)
        beside.expires[rank[coming[subs.ids.values]]] = subs.expires
    whole = Subscriptions.of_boxes(schema, numbers, subs.boxes._replace(owners=owners), texts=beside)
    orders = table[ORDER].combine_chunks().to_numpy(zero_copy_only=False)
    return ParsedPiece(ids, deleting[good].astype(np.uint8), sequences[good], orders[good], whole), aside


def _rejected(table: pa.Table, reasons: dict[int, str], columns: Columns) -> list[RejectedRow]:
    """The rows with a reason; those of a file with their place in it."""
    hidden = [name for name in table.column_names if name.startswith(OWN)]
    raw = table_raw(table.drop_columns(hidden))
    if OWN + "reason" not in hidden:
        return list(reject_rows(RowBatch(table, None, None, raw), reasons, columns.id, None))
    found = table.select([OWN + field.name for field in REJECTED]).rename_columns(REJECTED.names)
    rows = found.take(pa.array(sorted(reasons), pa.int64())).to_pylist()
    return [
        RejectedRow(**row)._replace(reason=reasons[i], raw=raw(i) if row["raw"] is None else row["raw"])
        for i, row in zip(sorted(reasons), rows, strict=True)
    ]


def _load(schema: Schema, table: pa.Table, columns: Columns) -> Subscriptions:
    """Subscriptions whose ids are row numbers; what is wrong with a row is in `rejected`."""
    rows = np.arange(table.num_rows)
    if not table.num_rows:
        return Subscriptions.empty(schema)
    options: dict[str, Any] = {"on_error": "collect"}
    if columns.condition is not None:
        texts, ends = table[columns.condition], columns.expires
        options["expires"] = None if ends is None else table[ends]
        return Subscriptions.parse(schema, ids=rows, texts=texts, remarks=False, **options)
    name = "rangecast_row"
    numbered = table.append_column(name, pa.array(rows))
    # a column that is kept beside is no bound
    options["payload"] = columns.payload
    return Subscriptions.from_arrow(schema, numbered, id=name, expires=columns.expires, **options)


def _deletes(table: pa.Table, columns: Columns) -> tuple[npt.NDArray[np.bool_], dict[int, str]]:
    """Which rows delete, and the rows whose op is none."""
    if columns.op is None:
        return np.zeros(table.num_rows, bool), {}
    said = table[columns.op].combine_chunks().cast(pa.string())
    words = pc.utf8_lower(pc.utf8_trim_whitespace(said.fill_null(_UPSERTS[0])))
    deleting = pc.is_in(words, value_set=pa.array(_DELETES)).to_numpy(zero_copy_only=False)
    known = pc.is_in(words, value_set=pa.array([*_UPSERTS, *_DELETES])).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~known).tolist()
    return deleting, {row: f"op must be upsert or delete, got {said[row].as_py()!r}" for row in bad}


def stage_rejected(staging: str, aside: list[RejectedRow]) -> str:
    """Stage the rejected rows; returns the name of their file, or "" without any."""
    if not aside:
        return ""
    name = f"{uuid.uuid4().hex}.parquet"
    with beside_driver(staging):
        home_of(staging).put(name, lambda file: pq.write_table(rejected_table(aside), file))
    return name


def _nulls(column: Any) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False))
    return nulls
