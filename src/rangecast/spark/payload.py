"""The users' own columns of a store's subscriptions as a DataFrame, to be joined with matches."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rangecast.model.user_columns import narrowed
from rangecast.store.store import Store


def payload(
    spark: SparkSession,
    store: Store | str | os.PathLike[str],
    names: Sequence[str] | None = None,
    *,
    version: int | None = None,
) -> DataFrame:
    """`subscription_id` and the payload of all subscriptions of a store, or the columns of it that are named.

    `rs.match(events, store).join(rs.payload(spark, store, ["owner"]), "subscription_id")` tells the owners.
    """
    home = store if isinstance(store, Store) else Store.open(store)
    return spark.createDataFrame(payload_table(home, names, version))


def payload_table(store: Store, names: Sequence[str] | None = None, version: int | None = None) -> pa.Table:
    """The same as an Arrow table."""
    subs = store.subscriptions(version)
    if not len(subs):  # none have no payload either
        return pa.table({name: pa.array([], pa.string()) for name in ("subscription_id", *(names or ()))})
    table = narrowed(subs.beside.table(names))
    ids = subs.ids.arrow()
    ids = ids.cast(pa.string()) if subs.ids.textual else ids
    return table.add_column(0, "subscription_id", ids)
