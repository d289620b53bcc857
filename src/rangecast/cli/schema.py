"""`rangecast schema`: make a schema file from events, and look at one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.console import print_table, say
from rangecast.errors import OptionError, SchemaError
from rangecast.loading import open_rows
from rangecast.loading.infer import column_names, infer_schema
from rangecast.types.schema import Schema

app = typer.Typer(no_args_is_help=True, help="Make a schema file from events, or look at one.")


@app.command()
def infer(
    events: Annotated[str, typer.Argument(help="Events: .csv, .jsonl or .parquet.")],
    id: Annotated[
        str | None,
        typer.Option(help="Column of the events' ids, which is not an attribute.", show_default="id"),
    ] = None,
    skip: Annotated[list[str] | None, typer.Option(help="Column to leave out; repeat for more.")] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="Delimiter of CSV files; tab for a tab.", show_default="by the header"),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Look at this many rows at most.")] = 1_000_000,
    domains: Annotated[
        bool, typer.Option("--domains", help="State the smallest and largest value seen as each domain.")
    ] = False,
) -> None:
    """Infer the schema of a file of events and print it as TOML.

    Numbers, instants (ISO 8601) and categories are told apart by the values. Read the result before
    you rely on it: a product number, say, may be better a category.

    \b
    Example:
      rangecast schema infer trades.csv > schema.toml
    """
    named = (*([id] if id else []), *(skip or ()))
    with open_rows(events, delimiter=delimiter) as source:
        for name in named:
            if source.names is not None and name not in [*source.names, *column_names(source)]:
                raise OptionError(f"{events}: there is no column {name!r}, but {', '.join(source.names)}")
        try:
            inferred = infer_schema(source, ("id", *named) if id is None else named, rows, domains)
        except SchemaError as error:
            raise SchemaError(f"{events}: {error}") from None
    for remark in inferred.remarks:
        say(f"{events}: {remark}")
    typer.echo(inferred.schema.to_toml(), nl=False)


@app.command()
def show(schema: Annotated[Path, typer.Argument(help="Schema file (TOML).")]) -> None:
    """Check a schema file and print its attributes.

    \b
    Example:
      rangecast schema show schema.toml
    """
    entries = Schema.from_toml(schema).to_dict()
    said = {key for entry in entries.values() for key in entry}
    heads = [
        "type",
        "low",
        "high",
        *(key for key in ("unit", "expression", "longitude", "latitude") if key in said),
    ]
    print_table(
        ["attribute", *heads],
        [[name, *(entry.get(key, "") for key in heads)] for name, entry in entries.items()],
    )
