"""`rangecast check`: what is wrong or odd about the conditions of a file, before anybody relies on them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.cli.console import OK, REJECTED, print_table, say
from rangecast.cli.store import stored_id
from rangecast.engine import open_index
from rangecast.errors import (
    EventError,
    OptionError,
    RangecastError,
    RangecastWarning,
    SchemaError,
    SubscriptionError,
    visible,
)
from rangecast.language.lint import lint
from rangecast.loading import RejectedRow, Rejects, load_subscriptions, open_rows
from rangecast.loading.ids import parse_id
from rangecast.loading.infer import column_names, infer_schema
from rangecast.model.explanation import Explanation
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.keep import pinned_batch
from rangecast.store.store import Store
from rangecast.types.frames import ObjectNames
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


# `rangecast schema`: make a schema file from events, and look at one.

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


# `rangecast explain`: why one subscription does or does not match one event.


def explain(
    event: Annotated[str, typer.Option(help="The event, as a JSON object.")],
    schema: Annotated[Path | None, typer.Option(help="Schema file (TOML); a store has its own.")] = None,
    condition: Annotated[str | None, typer.Option(help="The condition, as text.")] = None,
    subscriptions: Annotated[
        str | None, typer.Option(help="File of subscriptions: .csv, .jsonl or .parquet.")
    ] = None,
    subscription: Annotated[str | None, typer.Option(help="Id of the subscription in that file.")] = None,
    id: Annotated[
        str | None,
        typer.Option(help="Column of the ids of that file; with --store the id itself.", show_default="id"),
    ] = None,
    condition_column: Annotated[
        str | None,
        typer.Option(help="Column of the subscriptions' conditions.", show_default="condition, if there"),
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="STORE", help="Folder or address (s3://...) of a store.")
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Version of the store.", show_default="the newest")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Take the version that this batch of a stream was matched against.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Output of that stream, a folder or an address.")] = None,
    boxes: Annotated[
        bool, typer.Option("--boxes", help="Explain the boxes that the condition became.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print both views as JSON.")] = False,
) -> None:
    """Explain, predicate by predicate, why a subscription does or does not match an event.

    The explanation uses the words of the condition; a subscription given as bounds is explained by those.

    \b
    Example:
      rangecast explain --schema schema.toml --event '{"price": 12}' \\
                        --condition "price between 10 and 20 and symbol = 'IBM'"
      rangecast explain --schema schema.toml --event '{"price": 12}' \\
                        --subscriptions alerts.csv --subscription 17
      rangecast explain --store alerts/ --id 17 --event '{"price": 12}' --version 3
      rangecast explain --store alerts/ --id 17 --event '{"price": 12}' --batch 12 --out matches/

    \b
    Exit code: 0 it matches, 1 it does not, 2 wrong usage or unreadable input.
    """
    ways = (condition is not None, subscriptions is not None, store is not None)
    if sum(ways) != 1 or (subscriptions is None) != (subscription is None):
        raise OptionError(
            "explain takes --condition TEXT, or --subscriptions FILE with --subscription ID, or "
            "--store STORE with --id ID"
        )
    if store is not None:
        found = _in_store(store, id, event, version, batch, out)
    elif version is not None or batch is not None or out is not None:
        raise OptionError("--version, --batch and --out are of a store; give it with --store")
    elif schema is None:
        raise OptionError("explain needs --schema FILE, unless it takes the subscription from a --store")
    else:
        model = Schema.from_toml(schema)
        values = _event(model, event)
        if condition is not None:
            subs = Subscriptions.parse(model, {condition: condition})
        else:
            subs = _find(model, str(subscriptions), str(subscription), id or "id", condition_column)
        found = open_index("scan", model).explain(subs, values)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1, ensure_ascii=False))
    else:
        typer.echo(visible(found.in_boxes() if boxes else str(found), lines=True))
    raise typer.Exit(OK if found else REJECTED)


def _in_store(
    store: str, id: str | None, event: str, version: int | None, batch: int | None, out: str | None
) -> Explanation:
    """The explanation for a subscription of a store, in the version asked for."""
    if id is None:
        raise OptionError("explain --store needs --id ID, the subscription")
    if (batch is None) != (out is None) or (batch is not None and version is not None):
        raise OptionError("explain --store takes --version N, or --batch N with the stream's --out FOLDER")
    home = Store.open(store)
    if batch is not None:
        assert out is not None
        version = _pinned_version(home, out, batch)
    version = home.version if version is None else version
    index = home.index(version, verify=None)
    values = _event(index.schema, event)
    wanted = stored_id(home, id)
    if wanted not in index:
        raise SubscriptionError(f"{home.path}: no subscription has the id {wanted!r} in version {version}")
    return index.explain(wanted, values)


def _pinned_version(home: Store, out: str, batch: int) -> int:
    """The version that a batch of a stream was matched against."""
    pin = pinned_batch(out, batch)
    if pin.store not in (None, home.id):
        raise OptionError(f"{out}: holds the matches of another store than {home.path}")
    if pin.by_time:
        raise OptionError(
            f"{out}: each event of batch {batch} was matched against the version at its time, "
            f"{pin.version} or older; say which with --version"
        )
    if pin.by_time is None:
        say(f"{out}: its checkpoint is not there, so it is not known whether events chose versions by time")
    say(f"batch {batch} was matched against version {pin.version}")
    return pin.version


def _event(schema: Schema, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise EventError(f"--event must be a JSON object such as '{{\"price\": 12}}': {error}") from None
    if not isinstance(values, dict):
        raise EventError(f"--event must be a JSON object such as '{{\"price\": 12}}', got {text}")
    strange = ObjectNames(schema.read_names).kind_of(tuple(values)).unused
    if strange:
        say(f"not attributes of the schema, and ignored: {', '.join(strange)}")
    return values


class _Sought(Rejects):
    """Remembers why the row with one id was rejected."""

    def __init__(self, id: str) -> None:
        super().__init__()
        self._id = id
        self.found: RejectedRow | None = None

    def add(self, rejected: RejectedRow, error: type[RangecastError] = EventError) -> None:
        if rejected.id == self._id:
            self.found = self.found or rejected.in_one_line()


def _find(schema: Schema, path: str, id: str, id_column: str, condition: str | None) -> Subscriptions:
    aside = _Sought(id)
    subs = load_subscriptions(schema, path, aside, id=id_column, condition=condition)
    ids = subs.ids.arrow()
    wanted = id if subs.ids.textual else parse_id(id)
    row = -1 if subs.ids.textual != isinstance(wanted, str) else ids.index(wanted).as_py()
    if row < 0 and aside.found is not None:
        raise SubscriptionError(f"{path}: it could not be loaded: {aside.found}")
    if row < 0:
        raise SubscriptionError(f"{path}: no subscription has the id {id!r}")
    return subs.select([row])
