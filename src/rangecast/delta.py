"""Subscriptions that are kept in a Delta table, into a store: what changed since it was read last.

    table, versions 4 to 9 --change data feed--> rows --parse, last good row per id--> a change of the store
                                                    with the note {"delta:<table>": {table, version: 9}}

The rows of the table are subscriptions: an id, with a condition or bounds, and columns of the users' own. The
first time the table is read as it is. From then on its change data feed (`delta.enableChangeDataFeed`) tells
what was inserted, updated and deleted; without one, the files that came and went are read as a whole, as long
as they are there. How far the table was read is a note of the same change of the store: both are there or
neither, so nothing is taken twice or lost, whenever the process ends.

Of several rows of an id the last good one counts, by the table's versions; within one version what comes
counts more than what goes. One that cannot be read is rejected with its reason, and an earlier one stands. So
is one whose id stands in several rows of one version: nobody could tell which of them is meant.

Delta's reader is the package deltalake, in Rust: no Spark and no Java. Its table may be in a bucket.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.durable.bucket import place_of
from rangecast.errors import SetupError, StorageError, SubscriptionError, extra_hint
from rangecast.loading.rejected import RejectedRow
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.store import Store
from rangecast.types.strings import without_views

__all__ = ["DeltaProgress", "follow_table"]
_CHANGE, _VERSION = "_change_type", "_commit_version"
_ROW = "rangecast_row"
_COMING = ("insert", "update_postimage")


class DeltaProgress(NamedTuple):
    """What a call took in: versions of store and table, and what came, went and was rejected."""

    version: int
    table_version: int
    upserts: int = 0
    deletes: int = 0
    rejected: tuple[RejectedRow, ...] = ()


def follow_table(
    store: Store | str | os.PathLike[str],
    table: str | os.PathLike[str],
    *,
    id: str = "id",
    condition: str | None = None,
    payload: Sequence[str] = (),
    expires: str | None = None,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaProgress:
    """Bring a store to the newest version of a Delta table of subscriptions, or to one that is named.

    Columns are those of `Subscriptions.from_arrow`: `id`, `condition` or bounds, `payload` and `expires`.
    What the table has in several versions becomes one version of the store; if nothing is new, none is made.
    `storage_options` are those of deltalake, for a table in a bucket.
    """
    home = store if isinstance(store, Store) else Store.open(store)
    place = str(table) if "://" in str(table) else os.path.abspath(place_of(table))
    found = _open(place, version, dict(storage_options or {}))
    columns = {"id": id, "condition": condition, "payload": tuple(payload), "expires": expires}
    return home.exclusively(lambda: _take(home, place, found, columns))


def _open(place: str, version: int | None, options: dict[str, str]) -> Any:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise SetupError(f"{place}: a Delta table needs deltalake; {extra_hint('delta')}") from None
    try:
        return DeltaTable(place, version=version, storage_options=options or None)
    except (DeltaError, OSError) as error:
        raise StorageError(f"{place}: cannot be read as a Delta table: {error}") from None


def _take(store: Store, place: str, table: Any, columns: dict[str, Any]) -> DeltaProgress:
    """One change of the store, with all that is new in the table."""
    name = f"delta:{place}"
    own, newest = str(table.metadata().id), int(table.version())
    note = store.notes.get(name)
    if note is None:
        rows = _whole(place, table)
    else:
        if note["table"] != own:
            raise StorageError(
                f"{place}: {store.path} was filled from the table {note['table']}, and this is the table "
                f"{own}; give that one, or fill a new store"
            )
        if note["version"] > newest:
            raise StorageError(
                f"{place}: {store.path} has read its version {note['version']}, and the table ends at "
                f"{newest}: it is an older copy"
            )
        if note["version"] == newest:
            return DeltaProgress(store.version, newest)
        rows = _feed(place, table, int(note["version"]) + 1, newest)
    coming, gone, rejected = _sorted_out(store, place, rows, columns)
    noted = {name: {"table": own, "version": newest}}
    return DeltaProgress(
        store.apply(coming, gone, note=noted), newest, len(coming), len(gone), tuple(rejected)
    )


def _whole(place: str, table: Any) -> pa.Table:
    """All rows of a table, as what has come."""
    rows = _arrow(place, table.to_pyarrow_table)
    n = len(rows)
    rows = rows.append_column(_CHANGE, pa.array(["insert"] * n, pa.string()))
    return rows.append_column(_VERSION, pa.array(np.full(n, int(table.version()))))


def _feed(place: str, table: Any, first: int, last: int) -> pa.Table:
    """What has come and gone in some versions, in their order; what goes stands before what comes."""
    rows = _arrow(place, lambda: pa.table(table.load_cdf(starting_version=first, ending_version=last)))
    rows = rows.filter(pc.not_equal(rows[_CHANGE], "update_preimage"))
    order = pa.table(
        {"version": rows[_VERSION], "comes": pc.is_in(rows[_CHANGE], pa.array(_COMING)).cast("int8")}
    )
    return rows.take(pc.sort_indices(order, [("version", "ascending"), ("comes", "ascending")]))


def _arrow(place: str, read: Any) -> pa.Table:
    from deltalake.exceptions import DeltaError

    try:
        found = read()
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise StorageError(
            f"{place}: what changed in the table cannot be read: {error}: files that it had since the "
            "version that was read last must still be there (vacuum); if not, fill a new store"
        ) from None
    columns = {name: without_views(found[name]) for name in found.column_names}
    return pa.table(columns)


def _sorted_out(
    store: Store, place: str, rows: pa.Table, columns: dict[str, Any]
) -> tuple[Subscriptions, list[Any], list[RejectedRow]]:
    """The subscriptions that come, the ids that go, and the rows that are rejected."""
    schema, id = store.schema, columns["id"]
    if id not in rows.column_names:
        there = ", ".join(name for name in rows.column_names if name not in (_CHANGE, _VERSION))
        raise SubscriptionError(f"{place}: the table must have the id column {id!r}, got {there}")
    numbers = pa.array(np.arange(len(rows)))
    comes = pc.is_in(rows[_CHANGE], pa.array(_COMING)).combine_chunks()
    reasons = _ambiguous(rows, id, comes)
    parsed = np.asarray(comes) & ~np.isin(np.arange(len(rows)), list(reasons))
    given = rows.append_column(_ROW, numbers).filter(pa.array(parsed))
    missing = np.flatnonzero(np.asarray(pc.is_null(given[id])))
    for row in np.asarray(given[_ROW])[missing].tolist():
        reasons[row] = "a subscription must have an id, got null"
    given = given.filter(pc.is_valid(given[id]))
    subs = Subscriptions.empty(schema)
    if len(given):
        # rows are named by their numbers, so that each can be told from others of its id
        subs = Subscriptions.from_arrow(
            schema, given.drop_columns([id]), **{**columns, "id": _ROW}, on_error="collect"
        )
        reasons |= {int(rejected.id): rejected.reason for rejected in subs.rejected}
    good = ~np.isin(np.arange(len(rows)), list(reasons))
    kept = pa.table({"id": rows[id], "row": numbers}).filter(pa.array(good))
    kept = kept.filter(pc.is_valid(kept["id"]))
    last = np.sort(np.asarray(kept.group_by("id").aggregate([("row", "max")])["row_max"]))
    stays = np.asarray(comes)[last]
    at = np.full(len(rows), -1, np.int64)
    at[np.asarray(subs.ids.values)] = np.arange(len(subs))
    ids = rows[id].combine_chunks()
    chosen = subs.select(at[last[stays]])
    named = Ids.of(ids.take(pa.array(last[stays])))
    coming = Subscriptions.of_boxes(subs.schema, named, chosen.boxes, texts=chosen.beside)
    gone = ids.take(pa.array(last[~stays])).to_pylist()
    rejected = [_rejected(place, rows, row, id, reasons[row]) for row in sorted(reasons)]
    return coming, gone, rejected


def _ambiguous(rows: pa.Table, id: str, comes: Any) -> dict[int, str]:
    """Rows whose id comes more than once in one version of the table."""
    some = pa.table({"id": rows[id], "version": rows[_VERSION], "row": np.arange(len(rows))}).filter(comes)
    some = some.filter(pc.is_valid(some["id"]))
    found = some.group_by(["id", "version"]).aggregate([("row", "count"), ("row", "list")])
    found = found.filter(pc.greater(found["row_count"], 1))
    reasons: dict[int, str] = {}
    for own, n in zip(found["row_list"].to_pylist(), found["row_count"].to_pylist(), strict=True):
        reasons |= dict.fromkeys(
            own, f"an id must stand in one row of the table, got {n} rows of it in one version"
        )
    return reasons


def _rejected(place: str, rows: pa.Table, row: int, id: str, reason: str) -> RejectedRow:
    raw = rows.slice(row, 1).to_pylist()[0]
    version = raw.pop(_VERSION)
    shown = {key: value for key, value in raw.items() if not key.startswith("_")}
    own = None if raw[id] is None else str(raw[id])
    return RejectedRow(f"{place}, version {version}", None, None, own, reason, str(shown))
