"""`rangecast explain`: why one subscription does or does not match one event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.cli.console import OK, REJECTED, say
from rangecast.cli.loading import load_subscriptions
from rangecast.engine import open_index
from rangecast.errors import EventError, OptionError, SubscriptionError
from rangecast.loading import RejectedRow, Rejects
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema


def explain(
    schema: Annotated[Path, typer.Option(help="Schema file (TOML).")],
    event: Annotated[str, typer.Option(help="The event, as a JSON object.")],
    condition: Annotated[str | None, typer.Option(help="The condition, as text.")] = None,
    subscriptions: Annotated[
        str | None, typer.Option(help="File of subscriptions: .csv, .jsonl or .parquet.")
    ] = None,
    subscription: Annotated[str | None, typer.Option(help="Id of the subscription in that file.")] = None,
    id: Annotated[str, typer.Option(help="Column of the subscriptions' ids.")] = "id",
    condition_column: Annotated[
        str | None,
        typer.Option(help="Column of the subscriptions' conditions.", show_default="condition, if there"),
    ] = None,
) -> None:
    """Say predicate by predicate why a subscription does or does not match an event.

    \b
    Example:
      rangecast explain --schema schema.toml --event '{"price": 12}' \\
                        --condition "price between 10 and 20 and symbol = 'IBM'"
      rangecast explain --schema schema.toml --event '{"price": 12}' \\
                        --subscriptions alerts.csv --subscription 17

    \b
    Exit code: 0 it matches, 1 it does not, 2 wrong usage or unreadable input.
    """
    model = Schema.from_toml(schema)
    values = _event(model, event)
    if (condition is None) == (subscriptions is None) or (subscriptions is None) != (subscription is None):
        raise OptionError("explain takes --condition TEXT, or --subscriptions FILE with --subscription ID")
    if condition is not None:
        subs = Subscriptions.parse(model, {condition: condition})
    else:
        assert subscriptions is not None
        assert subscription is not None
        subs = _find(model, subscriptions, subscription, id, condition_column)
    found = open_index("scan", model).explain(subs, values)
    typer.echo(str(found))
    raise typer.Exit(OK if found else REJECTED)


def _event(schema: Schema, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise EventError(f"--event must be a JSON object such as '{{\"price\": 12}}': {error}") from None
    if not isinstance(values, dict):
        raise EventError(f"--event must be a JSON object such as '{{\"price\": 12}}', got {text}")
    strange = [name for name in values if name not in schema]
    if strange:
        say(f"not attributes of the schema, and not looked at: {', '.join(strange)}")
    return values


class _Sought(Rejects):
    """Remembers why the row with one id was set aside."""

    def __init__(self, id: str) -> None:
        super().__init__()
        self._id = id
        self.found: RejectedRow | None = None

    def add(self, rejected: RejectedRow) -> None:
        if str(rejected.id) == self._id:
            self.found = self.found or rejected._replace(reason=rejected.reason.partition("\n")[0])


def _find(schema: Schema, path: str, id: str, id_column: str, condition: str | None) -> Subscriptions:
    aside = _Sought(id)
    subs = load_subscriptions(schema, path, aside, id=id_column, condition=condition)
    ids = subs.ids.arrow()
    row = ids.index(id if subs.ids.textual else _whole(id)).as_py()
    if row < 0 and aside.found is not None:
        raise SubscriptionError(f"{path}: it could not be loaded: {aside.found}")
    if row < 0:
        raise SubscriptionError(f"{path}: no subscription has the id {id!r}")
    return subs.select([row])


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
