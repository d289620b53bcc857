"""Frames of every kind as Arrow tables, and tables as frames of the same kind.

A frame is known by the module of its type, so that no library of frames is imported before somebody has one.
Any other object that hands out Arrow data (`__arrow_c_stream__`, or `__arrow_c_array__` of a struct) is taken
as well, and what comes back for it is an Arrow table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import OptionError
from rangecast.types.column_names import key_of
from rangecast.types.columns import describe

_WAYS = ("__arrow_c_stream__", "__arrow_c_array__")
ARROW, PANDAS, POLARS, DUCKDB, ROWS = "pyarrow", "pandas", "polars", "duckdb", "rows"
_KNOWN = {
    (PANDAS, "DataFrame"),
    (POLARS, "DataFrame"),
    (POLARS, "LazyFrame"),
    (DUCKDB, "DuckDBPyRelation"),
}


def kind_of(frame: Any) -> str | None:
    """Which library a frame is of; ARROW for what hands out Arrow data, ROWS for a list of dicts, None for
    what is no frame.

    >>> kind_of(pa.table({"a": [1]})), kind_of([{"a": 1}]), kind_of(5)
    ('pyarrow', 'rows', None)
    """
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return ARROW
    if isinstance(frame, Sequence) and not isinstance(frame, str | bytes):
        return ROWS if all(isinstance(row, Mapping) for row in frame) else None
    library, name = type(frame).__module__.partition(".")[0].lstrip("_"), type(frame).__name__
    if (library, name) in _KNOWN:
        return library
    return ARROW if any(hasattr(frame, way) for way in _WAYS) else None


def table_of(frame: Any, what: str) -> pa.Table:
    """A frame as an Arrow table; OptionError for what is no frame."""
    match kind_of(frame):
        case "pyarrow":
            return _arrow_table(frame, what)
        case "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        case "polars":
            return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
        case "duckdb":
            return frame.to_arrow_table()
        case "rows":
            names = dict.fromkeys(name for row in frame for name in row)
            return pa.table({name: _column([row.get(name) for row in frame], name, what) for name in names})
    raise OptionError(
        f"{what} must be a DataFrame of pandas or Polars, an Arrow table, a DuckDB relation or a list of "
        f"dicts, got {describe(frame)}"
    )


def _arrow_table(frame: Any, what: str) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    try:
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise OptionError(f"{what} must have rows of named columns, got {describe(frame)}: {error}") from None


def _column(values: list[Any], name: str, what: str) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise OptionError(f"{what}: the values of {name!r} are of several types: {error}") from None


def struct_inside(column: Any, path: Sequence[str], fold: bool = True) -> Any:
    """The values at a path of fields in a column of structs, by Arrow; None where there is no such field.

    >>> struct_inside(pa.array([{"mag": 5.1}, None]), ["mag"]).to_pylist()
    [5.1, None]
    """
    for step in path:
        if not pa.types.is_struct(column.type):
            return None
        names = [field.name for field in column.type]
        key = key_of(step, names) if fold else step
        if key is None or names.count(key) != 1:
            return None
        column = pc.struct_field(column, names.index(key))
    return column


def flat_table(table: pa.Table) -> pa.Table:
    """A table with the fields of its structs as columns whose names are the paths to them.

    >>> flat_table(pa.table({"user": [{"country": "DE", "age": 40}]})).column_names
    ['user.country', 'user.age']
    """
    columns: dict[str, Any] = {}
    given = set(table.column_names)
    for name, column in zip(table.column_names, table.columns, strict=True):
        ahead = [(name, column)]
        while ahead:
            path, values = ahead.pop(0)
            if not pa.types.is_struct(values.type):
                # a column of that name is what the name means
                if path == name or path not in given:
                    columns[path] = values
                continue
            # a field with a dot in its own name is reached by no path
            fields = [(k, field) for k, field in enumerate(values.type) if "." not in field.name]
            ahead[:0] = [(f"{path}.{field.name}", pc.struct_field(values, k)) for k, field in fields]
    return pa.table(columns) if columns else table.select([])


def frame_like(table: pa.Table, frame: Any) -> Any:
    """A table as a frame of the kind that `frame` is."""
    match kind_of(frame):
        case "pandas":
            return table.to_pandas()
        case "polars":
            import polars

            made: Any = polars.from_arrow(table)
            return made.lazy() if hasattr(frame, "collect") else made
        case "duckdb":
            import duckdb

            return duckdb.from_arrow(table)
        case "rows":
            return table.to_pylist()
    return table
