"""Frames of every kind as Arrow tables, and tables as frames of the same kind.

A frame is known by the module of its type, so that no library of frames is imported before somebody has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rangecast.errors import OptionError
from rangecast.model.events import Events
from rangecast.types.columns import describe
from rangecast.types.schema import Schema

ARROW, PANDAS, POLARS, DUCKDB, ROWS = "pyarrow", "pandas", "polars", "duckdb", "rows"


def kind_of(frame: Any) -> str | None:
    """Which library a frame is of; ROWS for a list of dicts, None for what is no frame.

    >>> kind_of(pa.table({"a": [1]})), kind_of([{"a": 1}]), kind_of(5)
    ('pyarrow', 'rows', None)
    """
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return ARROW
    if isinstance(frame, Sequence) and not isinstance(frame, str | bytes):
        return ROWS if all(isinstance(row, Mapping) for row in frame) else None
    library, name = type(frame).__module__.partition(".")[0].lstrip("_"), type(frame).__name__
    known = {(PANDAS, "DataFrame"), (POLARS, "DataFrame"), (DUCKDB, "DuckDBPyRelation")}
    return library if (library, name) in known else None


def table_of(frame: Any, what: str) -> pa.Table:
    """A frame as an Arrow table; OptionError for what is no frame."""
    match kind_of(frame):
        case "pyarrow":
            return frame if isinstance(frame, pa.Table) else pa.Table.from_batches([frame])
        case "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        case "polars":
            return frame.to_arrow()
        case "duckdb":
            return frame.to_arrow_table()
        case "rows":
            names = dict.fromkeys(name for row in frame for name in row)
            return pa.table({name: [row.get(name) for row in frame] for name in names})
    raise OptionError(
        f"{what} must be a DataFrame of pandas or Polars, an Arrow table, a DuckDB relation or a list of "
        f"dicts, got {describe(frame)}"
    )


def events_of(schema: Schema, events: Any) -> Events:
    """Events of whatever has them: Events, one event as a dict, or a frame with one in each row."""
    if isinstance(events, Events):
        return events
    if isinstance(events, Mapping):
        return Events.from_rows(schema, [events])
    if kind_of(events) == ROWS:
        return Events.from_rows(schema, events)
    return Events.from_arrow(schema, table_of(events, "events"))


def frame_like(table: pa.Table, frame: Any) -> Any:
    """A table as a frame of the kind that `frame` is."""
    match kind_of(frame):
        case "pandas":
            return table.to_pandas()
        case "polars":
            import polars

            return polars.from_arrow(table)
        case "duckdb":
            import duckdb

            return duckdb.from_arrow(table)
        case "rows":
            return table.to_pylist()
    return table
