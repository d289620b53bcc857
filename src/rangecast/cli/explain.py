"""`rangecast explain`: why one subscription does or does not match one event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.cli.console import OK, REJECTED, say
from rangecast.cli.store import stored_id
from rangecast.engine import open_index
from rangecast.errors import EventError, OptionError, RangecastError, SubscriptionError, visible
from rangecast.loading import RejectedRow, Rejects, load_subscriptions
from rangecast.loading.ids import parse_id
from rangecast.model.explanation import Explanation
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.pins import pinned_batch
from rangecast.store.store import Store
from rangecast.types.column_names import ObjectNames
from rangecast.types.schema import Schema


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
