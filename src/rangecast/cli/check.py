"""`rangecast check`: what is wrong or odd about the conditions of a file, before anybody relies on them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.cli.console import OK, REJECTED, say
from rangecast.errors import OptionError, RangecastWarning, visible
from rangecast.language.lint import lint
from rangecast.loading import Rejects, load_subscriptions
from rangecast.store.store import Store
from rangecast.types.schema import Schema


def check(
    file: Annotated[str, typer.Argument(help="Subscriptions: .csv, .jsonl or .parquet.")],
    schema: Annotated[Path | None, typer.Option(help="Schema file (TOML); a store has its own.")] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="Folder or address of the store for which they are meant."),
    ] = None,
    id: Annotated[str, typer.Option(help="Column of the subscriptions' ids.")] = "id",
    condition: Annotated[
        str | None,
        typer.Option(help="Column of the subscriptions' conditions.", show_default="condition, if there"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Look for conditions that cannot be read, can never match, or were probably meant otherwise.

    Prints a line for each: the row, the id, what is odd, and what was probably meant. Nothing is stored.

    \b
    Example:
      rangecast check alerts.csv --schema schema.toml
      rangecast check alerts.csv --store alerts/ --json

    \b
    Exit code: 0 nothing was found, 1 something was, 2 wrong usage or unreadable input.
    """
    if (schema is None) == (store is None):
        raise OptionError("check takes --schema FILE, or --store STORE, which has a schema")
    model = Schema.from_toml(schema) if schema is not None else Store.open(str(store)).schema
    aside = Rejects()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangecastWarning)  # all of them are said below
        subs = load_subscriptions(model, file, aside, id=id, condition=condition, remark=say)
    rejected = [row.in_one_line() for row in aside.first]
    bad = {row.row for row in rejected}
    rows = (row for row in range(1, len(subs) + len(bad) + 1) if row not in bad)
    findings: list[dict[str, Any]] = []
    for k, (row, text) in enumerate(zip(rows, subs.texts or (), strict=False)):
        if text is not None:
            findings += [
                {"row": row, "id": subs.ids[k], "condition": text, **found._asdict()}
                for found in lint(model, text)
            ]
    if as_json:
        said = {
            "file": file,
            "subscriptions": len(subs),
            "rejected": [row._asdict() for row in rejected],
            "findings": findings,
        }
        typer.echo(json.dumps(said, indent=1, ensure_ascii=False))
    else:
        for refused in rejected:
            typer.echo(str(refused))
        for found in findings:
            place = f"{file} row {found['row']:,}, id {found['id']}, column {found['start'] + 1}"
            typer.echo(visible(f"{place}: {found['what']}; probably meant: {found['meant']}"))
        if subs.texts is None and len(subs):
            say("these are bounds: they were loaded, and there is no condition to look at")
        odd = len({found["row"] for found in findings})
        say(f"{len(subs):,} subscriptions, {odd:,} of them odd; {len(rejected):,} rejected")
    raise typer.Exit(REJECTED if findings or rejected else OK)
