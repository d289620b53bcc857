"""`rangecast generate`: write a named workload to files that `rangecast match` reads."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import typer

from rangecast.cli.console import options_of, print_table, say
from rangecast.errors import OptionError
from rangecast.loading import OutputFile
from rangecast.types.attributes import Category, Int
from rangecast.workloads import SEED, Workload, describe, workload


class Format(StrEnum):
    """The formats that workloads are written in."""

    parquet = "parquet"
    csv = "csv"


def generate(
    name: Annotated[
        str | None, typer.Argument(metavar="WORKLOAD", help="Name of the workload.", show_default=False)
    ] = None,
    subscriptions: Annotated[
        int | None, typer.Option(min=0, help="How many subscriptions.", show_default="the workload's own")
    ] = None,
    events: Annotated[
        int | None, typer.Option(min=0, help="How many events.", show_default="the workload's own")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to.", show_default="the workload's name")
    ] = None,
    format: Annotated[Format, typer.Option(help="Format of the files.")] = Format.parquet,
    text: Annotated[
        bool, typer.Option("--text", help="Write subscriptions as conditions instead of bounds.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Another seed draws other data.")] = SEED,
    option: Annotated[
        list[str] | None, typer.Option(help="Parameter of the workload, such as skew=0.5; repeat for more.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the workloads.")] = False,
) -> None:
    """Draw a named workload and write schema.toml, subscriptions and events.

    \b
    Example:
      rangecast generate --list
      rangecast generate stock-alerts --subscriptions 10000 --events 50000 --out alerts
      rangecast match --schema alerts/schema.toml --subscriptions alerts/subscriptions.parquet \\
                      --events alerts/events.parquet --out alerts/matches.parquet
    """
    if list_:
        rows = [[e.name, f"{e.n_subscriptions:,}", f"{e.n_events:,}", e.trait] for e in describe()]
        print_table(["workload", "subscriptions", "events", "trait"], rows)
        return
    if name is None:
        raise OptionError("generate takes the name of a WORKLOAD; --list shows them")
    drawn = workload(name, subscriptions, events, seed, **options_of(option or []))
    if drawn.has_lists and not text:
        raise OptionError("lists of values have no low and high end; write these subscriptions with --text")
    folder = out or Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.toml").write_text(drawn.schema.to_toml(), encoding="utf-8")
    subs = conditions_table(drawn) if text else bounds_table(drawn)
    for stem, table in (("subscriptions", subs), ("events", events_table(drawn))):
        write_table(table, folder / f"{stem}.{format.value}")
    say(f"{drawn.n_subscriptions:,} subscriptions and {drawn.n_events:,} events of {name!r} in {folder}")


def bounds_table(drawn: Workload, start: int = 0, stop: int | None = None) -> pa.Table:
    """Subscriptions as bounds: `price_low` and `price_high`, or `price` where they are always equal."""
    columns: dict[str, Any] = {"id": pa.array(drawn.ids[start:stop])}
    for attribute in drawn.schema:
        name = attribute.name
        low, high = drawn.lows.get(name), drawn.highs.get(name)
        equal = low is high or (low is not None and high is not None and isinstance(attribute, Category))
        if low is not None:
            columns[name if equal else f"{name}_low"] = _column(low[start:stop], attribute)
        if high is not None and not equal:
            columns[f"{name}_high"] = _column(high[start:stop], attribute)
    return pa.table(columns)


def conditions_table(drawn: Workload, start: int = 0, stop: int | None = None) -> pa.Table:
    """Subscriptions as texts."""
    texts = drawn.conditions(start, stop)
    return pa.table(
        {"id": pa.array(texts.keys(), pa.int64()), "condition": pa.array(texts.values(), pa.string())}
    )


def events_table(drawn: Workload) -> pa.Table:
    """Events, with row numbers from 1 as ids."""
    numbers = np.arange(1, drawn.n_events + 1, dtype=np.int64)
    columns = {name: _column(values, drawn.schema[name]) for name, values in drawn.columns.items()}
    return pa.table({"id": pa.array(numbers), **columns})


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as CSV or Parquet, by its suffix."""
    with OutputFile(path) as file:
        if path.suffix == ".csv":
            file.stream.write((",".join(table.column_names) + "\n").encode())
            pacsv.write_csv(table, file.stream, pacsv.WriteOptions(include_header=False))
        else:
            # several row groups, so that workers can share a file
            pq.write_table(table, file.stream, row_group_size=131_072)


def _column(values: Any, attribute: Any) -> pa.Array[Any]:
    """A column with nulls for NaN; whole numbers that NaN made floats are whole again."""
    column = pa.array(values, from_pandas=True)
    if isinstance(attribute, Int) and pa.types.is_floating(column.type):
        return column.cast(pa.int64())
    return column
