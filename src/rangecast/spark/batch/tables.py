"""A table of matches that is kept up to date by changes: what one refresh after another must merge into it.

    table at version 40  --begin_refresh-->  refresh: since 40, version 43, both held in the store
    known events x changed subscriptions, new events x all of them  --table_changes-->  changes
    MERGE by (event_id, subscription_id)  -->  table at version 43  --finish-->  version 43 is held

The table holds a row for each pair of an event and a subscription of one version of the store. Of the events
that it has already, only subscriptions that changed since can gain or lose pairs; so those alone are matched
again, as they were and as they are now, in one pass over the events: an index holds both forms, each with a
number of its own, and a row is an insert, an update or a delete by which of the two an event matches. A pair
that both match is an update only if a column of the payload has changed. Events that are new are matched
against the version as a whole.

A refresh has a name, such as its day. It is pinned to its two versions by holds of the store, so one that
broke off anywhere gives the same changes when it is begun again, and merging them twice is merging them once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rangecast.engine import open_index
from rangecast.errors import OptionError
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import narrowed
from rangecast.spark.batch.match import match
from rangecast.spark.output import PAIRS, Output, OutputKeywords
from rangecast.spark.snapshots import payload_table
from rangecast.store.home import Home, home_of
from rangecast.store.store import Store

KEYS = ("event_id", "subscription_id")
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_SLOT, _SIDE, _NEW = "_rangecast_slot", "_rangecast_side", 1


@dataclass(frozen=True)
class TableRefresh:
    """What brings a table from version `since` of a store to `version`; `since` is None while the table is
    empty."""

    store: Store
    table: str
    name: str
    since: int | None
    version: int

    def finish(self) -> None:
        """Say that the changes are merged: the next refresh begins where this one ended."""
        self.store.hold(_held(self.table), self.version, self.name)
        self.store.release(_pinned(self.table))
        self._home.clear()

    @property
    def _home(self) -> Home:
        return home_of(self.store.path / "tables" / self.table)


def begin_refresh(store: Store | str | os.PathLike[str], table: str, *, name: str) -> TableRefresh:
    """Begin to bring a table of matches up to date, or continue one that was interrupted.

    `name` is that of this refresh, such as "2026-03-01". It keeps its versions until it is finished, so
    another one is refused before that; and so is the name of the one that was finished last.
    """
    home = store if isinstance(store, Store) else Store.open(store)
    if not name:
        raise OptionError("a refresh must have a name, such as its day, got ''")
    holds = {hold.name: hold for hold in home.holds()}
    done, begun = holds.get(_held(table)), holds.get(_pinned(table))
    if done is not None and done.note == name:
        raise OptionError(
            f"{home.path}: the refresh {name!r} of the table {table!r} is finished, at version {done.version}"
        )
    since = None if done is None else done.version
    if begun is not None and done is not None and begun.note == done.note:
        begun = None  # it was finished, and broke off before it said so here
    if begun is not None and begun.note != name:
        raise OptionError(
            f"{home.path}: the refresh {begun.note!r} of the table {table!r} is not finished; begin "
            f"and finish that one before {name!r}"
        )
    version = home.hold(_pinned(table), note=name) if begun is None else begun.version
    return TableRefresh(home, table, name, since, version)


def table_changes(
    spark: SparkSession,
    refresh: TableRefresh,
    *,
    new: DataFrame | None = None,
    known: DataFrame | None = None,
    payload: Sequence[str] = (),
    output: Output | None = None,
    **keywords: Unpack[OutputKeywords],
) -> DataFrame:
    """What must be merged into a table of matches, one row for each pair that is new, gone or changed.

    `new` are events that the table does not have yet, `known` those that it has; without `known` its old
    rows stay as they were, also those of subscriptions that have changed. Ids of events must be unique. The
    columns are event_id, subscription_id, those of the events in `keep`, those of the subscriptions in
    `payload`, `change` ("insert", "update" or "delete") and `version`. A row to delete has the columns
    that it had. Evaluate it before `finish`, which removes what it reads. `output` and its keywords are those
    of `match`, in the form "pairs" and without `outer`.
    """
    said = Output.of(output, keywords)
    if said.form != PAIRS or said.outer:
        raise OptionError(f"a table has pairs: form must be {PAIRS!r} without outer, got {said.form!r}")
    frames = [frame for frame in (new, known) if frame is not None]
    if not frames:
        raise OptionError("table_changes needs events: new=, known= or both")
    taken = set(KEYS) | {"change", "version"}
    for name in (*said.keep, *payload):
        if name in taken:
            raise OptionError(f"columns of a table must differ, got {name!r} twice")
        taken.add(name)
    wanted = tuple(payload)
    if refresh.since is None:
        parts = [_inserts(spark, refresh, frame, said, wanted) for frame in frames]
    else:
        parts = [] if new is None else [_inserts(spark, refresh, new, said, wanted)]
        changed = None if known is None else _changed(refresh, wanted)
        if known is not None and changed is not None:
            parts.append(_of_changed(spark, refresh, known, said, wanted, changed))
        if not parts:
            parts = [_inserts(spark, refresh, frames[0].limit(0), said, wanted)]
    out = parts[0]
    for part in parts[1:]:
        out = out.unionByName(part)
    return out


def _inserts(
    spark: SparkSession, refresh: TableRefresh, events: DataFrame, said: Output, wanted: tuple[str, ...]
) -> DataFrame:
    """All pairs of some events."""
    found = match(events, refresh.store, said, version=refresh.version)
    if wanted:
        table = payload_table(refresh.store, wanted, refresh.version)
        found = found.join(spark.createDataFrame(table), "subscription_id", "left")
    return _columns(found, F.lit(INSERT), wanted, refresh)


def _columns(found: DataFrame, change: Any, wanted: tuple[str, ...], refresh: TableRefresh) -> DataFrame:
    kept = [F.col(f"`{name}`") for name in found.columns if name not in (*KEYS, *wanted, "change")]
    ours = [F.col(f"`{name}`") for name in wanted]
    return found.select(
        *KEYS, *kept, *ours, change.alias("change"), F.lit(refresh.version).cast("long").alias("version")
    )


def _changed(refresh: TableRefresh, wanted: tuple[str, ...]) -> tuple[Subscriptions, pa.Table] | None:
    """The subscriptions that changed, as they were and as they are now; which row is what, with payload."""
    assert refresh.since is not None
    ids = [
        part.arrow()
        for change in refresh.store.changes(refresh.since, refresh.version)
        for part in (change.deleted, change.inserted.ids)
        if len(part)
    ]
    if not ids:
        return None
    touched = pc.unique(pa.chunked_array([part.cast(ids[0].type) for part in ids]))
    sides = []
    for version in (refresh.since, refresh.version):
        subs = refresh.store.subscriptions(version)
        sides.append(subs.select(np.asarray(pc.is_in(subs.ids.arrow().cast(touched.type), touched))))
    both = Subscriptions.concat(sides, distinct=False)
    own = both.ids.arrow()
    names = pa.table(
        {
            _SLOT: pa.array(np.arange(len(both))),
            "subscription_id": own.cast(pa.string()) if both.ids.textual else own,
            _SIDE: pa.array(np.repeat([0, _NEW], [len(side) for side in sides])),
        }
    )
    if wanted and len(both):
        columns = narrowed(both.beside.table(wanted))
        for name in wanted:
            names = names.append_column(name, columns[name])
    return (both, names) if len(both) else None


def _of_changed(
    spark: SparkSession,
    refresh: TableRefresh,
    known: DataFrame,
    said: Output,
    wanted: tuple[str, ...],
    changed: tuple[Subscriptions, pa.Table],
) -> DataFrame:
    """What known events gain and lose by the subscriptions that changed."""
    both, names = changed
    index = open_index("auto", both.schema)
    index.insert(Subscriptions.of_boxes(both.schema, np.arange(len(both)), both.boxes))
    home = refresh._home
    home.prepare()
    place = f"{refresh.since}-{refresh.version}.index"
    home.save(index, place)
    numbered = replace(said, text_ids=False)
    found = match(known, str(home.path / place), numbered).withColumnRenamed("subscription_id", _SLOT)
    kept = [name for name in found.columns if name not in ("event_id", _SLOT)]
    rows = found.join(F.broadcast(spark.createDataFrame(names)), _SLOT)
    ours = F.struct(*(F.col(f"`{name}`") for name in wanted), F.lit(0).alias(_SLOT))
    told = rows.groupBy(*KEYS).agg(
        *(F.first(F.col(f"`{name}`")).alias(name) for name in kept),
        F.min(_SIDE).alias("_first"),
        F.max(_SIDE).alias("_last"),
        F.min_by(ours, F.col(_SIDE)).alias("_old"),
        F.max_by(ours, F.col(_SIDE)).alias("_now"),
    )
    same = (F.col("_first") != F.col("_last")) & F.col("_old").eqNullSafe(F.col("_now"))
    change = F.when(F.col("_last") != _NEW, DELETE).when(F.col("_first") == _NEW, INSERT).otherwise(UPDATE)
    flat = told.where(~same).select(
        *KEYS,
        *(F.col(f"`{name}`") for name in kept),
        *(F.col(f"_now.`{name}`").alias(name) for name in wanted),
        change.alias("change"),
    )
    return _columns(flat, F.col("change"), wanted, refresh)


def _held(table: str) -> str:
    return f"table-{table}"


def _pinned(table: str) -> str:
    return f"table-{table}-next"
