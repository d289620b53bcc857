"""`rangecast store`: durable subscriptions from the command line, also while others read them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.commands.console import OK, REJECTED, options_of, print_table, say
from rangecast.commands.loading import load_subscriptions
from rangecast.commands.match import report_rejects
from rangecast.errors import OptionError
from rangecast.explanation import describe_interval
from rangecast.files import Rejects
from rangecast.memory import readable
from rangecast.schema import Schema
from rangecast.store import Store
from rangecast.subscriptions import Subscriptions

app = typer.Typer(no_args_is_help=True, help="Keep subscriptions durably: add, remove, look, tidy up.")

Place = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the store.")]


@app.command()
def add(
    store: Place,
    subscriptions: Annotated[
        str | None, typer.Option("--subscriptions", help="File of subscriptions: .csv, .jsonl or .parquet.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Schema file (TOML); needed when the store is made.")
    ] = None,
    id: Annotated[str, typer.Option(help="Column of ids; with --condition the id itself.")] = "id",
    condition: Annotated[str | None, typer.Option(help="One condition, for the subscription --id.")] = None,
    rejects: Annotated[Path | None, typer.Option(help="CSV file for rows that were set aside.")] = None,
    index: Annotated[
        str | None, typer.Option(help="Index of the snapshots, when the store is made.", show_default="auto")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Option of that index, as in 'on=price'; repeat for more.")
    ] = None,
) -> None:
    """Add subscriptions as one version; one whose id is there takes the other's place.

    \b
    Example:
      rangecast store add alerts/ --schema schema.toml --subscriptions alerts.csv
      rangecast store add alerts/ --id 7 --condition "price < 10 and symbol = 'IBM'"
    """
    if (subscriptions is None) == (condition is None):
        raise OptionError("store add takes --subscriptions FILE, or --id ID and --condition TEXT")
    options = options_of(option or [])
    model = Schema.from_toml(schema) if schema is not None else None
    home = Store.open(store, model, index=index, options=options or None)
    aside = Rejects(rejects)
    with home.writing():
        if subscriptions is not None:
            subs = load_subscriptions(home.schema, subscriptions, aside, id=id)
        else:
            subs = Subscriptions.parse(home.schema, [(_id(home, id), str(condition))])
        version = home.insert(subs)
    aside.close(finished=True)
    say(f"{home.path}: version {version}, {len(subs):,} subscriptions added or replaced")
    report_rejects(aside)
    raise typer.Exit(REJECTED if len(aside) else OK)


@app.command()
def remove(
    store: Place,
    ids: Annotated[list[str], typer.Argument(help="Ids of the subscriptions to remove.")],
) -> None:
    """Remove subscriptions by id, as one version.

    \b
    Example:
      rangecast store remove alerts/ 7 8 9
    """
    home = Store.open(store)
    wanted = [_id(home, id) for id in ids]
    unknown = home.delete(wanted)
    say(f"{home.path}: version {home.version}, {len(wanted) - len(unknown):,} subscriptions removed")
    if unknown:
        say(f"not there: {', '.join(map(str, unknown))}")
    raise typer.Exit(REJECTED if unknown else OK)


@app.command(name="list")
def list_(
    store: Place,
    version: Annotated[int | None, typer.Option(help="A version.", show_default="the newest")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most subscriptions to print; 0 for all.")] = 100,
) -> None:
    """Print the subscriptions: id and condition, as the boxes that it became.

    \b
    Example:
      rangecast store list alerts/ --limit 10
    """
    subs = Store.open(store).subscriptions(version)
    shown = range(len(subs) if limit == 0 else min(limit, len(subs)))
    print_table(["id", "condition"], [[subs.ids[row], condition_of(subs, row)] for row in shown])
    if len(shown) < len(subs):
        say(f"and {len(subs) - len(shown):,} more; --limit 0 prints all")


@app.command()
def show(
    store: Place,
    id: Annotated[str | None, typer.Argument(help="A subscription; without one, the store itself.")] = None,
) -> None:
    """Print what the store holds, or one subscription.

    \b
    Example:
      rangecast store show alerts/
      rangecast store show alerts/ 7
    """
    home = Store.open(store)
    if id is not None:
        subs = home.subscriptions()
        wanted = _id(home, id)
        if wanted not in home:
            raise OptionError(f"{home.path}: no subscription has the id {wanted!r}")
        row = next(row for row in range(len(subs)) if subs.ids[row] == wanted)
        print_table(["id", "condition"], [[wanted, condition_of(subs, row)]])
        return
    snapshots = home.snapshots()
    rows: list[list[Any]] = [
        ["version", home.version],
        ["oldest version", home.oldest],
        ["subscriptions", f"{len(home):,}"],
        ["attributes", ", ".join(f"{a.name} {a.kind}" for a in home.schema)],
        ["index", home.kind],
        ["snapshots", ", ".join(map(str, snapshots)) or "none yet"],
        ["change log", readable(sum(p.stat().st_size for p in (home.path / "log").glob("*.log")))],
    ]
    if home.version > home.oldest:
        rows.insert(1, ["changed", home.time_of(home.version).isoformat(sep=" ", timespec="seconds")])
    print_table(["", ""], rows)


@app.command()
def compact(
    store: Place,
    keep: Annotated[
        int | None, typer.Option(help="Oldest version that somebody still uses.", show_default="the newest")
    ] = None,
) -> None:
    """Remove snapshots and changes that no version from --keep on needs.

    \b
    Example:
      rangecast store compact alerts/ --keep 40
    """
    home = Store.open(store)
    gone = home.compact(keep)
    say(
        f"{home.path}: {gone['snapshots']:,} snapshots and {gone['segments']:,} log files removed, "
        f"{readable(gone['bytes'])} freed"
    )


@app.command()
def verify(store: Place) -> None:
    """Read everything and check it against its sums; exit code 1 when something is damaged.

    \b
    Example:
      rangecast store verify alerts/
    """
    home = Store.open(store)
    problems = home.verify()
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(REJECTED)
    say(f"{home.path}: versions {home.oldest} to {home.version} are sound")


def condition_of(subs: Subscriptions, row: int) -> str:
    """The boxes of a subscription in words of the language.

    >>> from rangecast import Int, Schema
    >>> condition_of(Subscriptions.parse(Schema(Int("price")), {7: "price in (1, 5)"}), 0)
    'price = 1 or price = 5'
    """
    boxes = []
    for box in (subs.owners == row).nonzero()[0].tolist():
        lows, highs = subs.lows[:, box].tolist(), subs.highs[:, box].tolist()
        said = [
            f"{attribute.name} {describe_interval(attribute, low, high)}"
            for attribute, low, high in zip(subs.schema, lows, highs, strict=True)
        ]
        bounded = [words for words in said if not words.endswith(" is missing or present")]
        boxes.append(" and ".join(bounded) or "anything")
    return " or ".join(boxes) or "nothing"


def _id(home: Store, text: str) -> int | str:
    """An id as the store has them: a whole number unless its ids are strings."""
    if home.ids_are_text:
        return text
    try:
        return int(text)
    except ValueError:
        if home.ids_are_text is None:
            return text
        raise OptionError(f"{home.path}: ids are whole numbers, got {text!r}") from None
