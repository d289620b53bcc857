"""Matching from SQL: `SELECT * FROM match_events(TABLE(events), 'store')`.

An Arrow table function. Spark has it say its columns before it knows its arguments, so ids come as
strings from `match_events`; `match_events_long` gives whole numbers and takes no others. The event's
id is the column `id`, unless a third argument names another. It costs 1.4 times what `match` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf

from rangecast.errors import EventError
from rangecast.loading.pace import Pace
from rangecast.spark.snapshots import resolve
from rangecast.spark.worker import Answer, answers, mapped


def register_sql(spark: SparkSession, name: str = "match_events") -> None:
    """Make `match_events` and `match_events_long` known to a session, or the same under another name."""
    texts: Any = arrow_udtf(MatchEvents, returnType="event_id string, subscription_id string")
    longs: Any = arrow_udtf(MatchEventsLong, returnType="event_id bigint, subscription_id bigint")
    spark.udtf.register(name, texts)
    spark.udtf.register(f"{name}_long", longs)


class _Match:
    """What both functions do; they differ in the type of ids."""

    kind: pa.DataType

    def match(self, table: pa.RecordBatch, places: pa.Array[Any], names: Any) -> Iterator[pa.Table]:
        if not table.num_rows:
            return
        place = places[0].as_py()
        event_id = names[0].as_py() if names is not None else "id"
        snapshot = resolve(place)
        index = mapped(snapshot.path)
        have = set(table.schema.names)
        for wanted in (event_id, *index.schema.names):
            if wanted not in have:
                raise EventError(
                    f"match_events: the table has no column {wanted!r}; it has {', '.join(sorted(have))}"
                )
        answer = Answer(event_id, index.schema.names, textual=snapshot.textual)
        for batch in answers(index, table, answer, Pace()):
            out = pa.Table.from_batches([batch])
            yield out.cast(pa.schema([(name, self.kind) for name in out.column_names]))


class MatchEvents(_Match):
    """match_events: ids as strings."""

    kind = pa.string()

    def eval(self, table: pa.RecordBatch, places: pa.Array, names: pa.Array = None) -> Iterator[pa.Table]:
        return self.match(table, places, names)


class MatchEventsLong(_Match):
    """match_events_long: ids as whole numbers."""

    kind = pa.int64()

    def eval(self, table: pa.RecordBatch, places: pa.Array, names: pa.Array = None) -> Iterator[pa.Table]:
        return self.match(table, places, names)
