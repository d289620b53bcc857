"""`rangecast store`: durable subscriptions from the command line, also while others read them."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rangecast.cli.console import OK, REJECTED, options_of, print_table, say, say_summary
from rangecast.cli.match import read_subscriptions, report_rejects
from rangecast.errors import OptionError, SubscriptionError, visible
from rangecast.language.evaluation import one_line
from rangecast.loading import Rejects
from rangecast.loading.ids import parse_id
from rangecast.loading.rejected import SHOWN
from rangecast.memory import readable
from rangecast.model.boxes import entries_of
from rangecast.model.explanation import describe_spans
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import instant
from rangecast.store.store import Store
from rangecast.types.schema import Schema

app = typer.Typer(no_args_is_help=True, help="Keep subscriptions durably: add, remove, inspect, compact.")

Place = Annotated[
    str, typer.Argument(metavar="STORE", help="Folder of the store, or its address in a bucket (s3://...).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


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
    ttl: Annotated[
        str | None,
        typer.Option(help="How long they are kept, as in '90s', '2h' or '1d12h'.", show_default="forever"),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When they expire, as in 2026-12-24T18:00+01:00; UTC without a zone.")
    ] = None,
    expires_column: Annotated[
        str | None, typer.Option(help="Column of the file that says when each expires.", show_default="none")
    ] = None,
    payload: Annotated[
        list[str] | None, typer.Option(help="Column of the file that is kept with them; repeat for more.")
    ] = None,
    rejects: Annotated[Path | None, typer.Option(help="CSV file for rows that were rejected.")] = None,
    index: Annotated[
        str | None, typer.Option(help="Index of the snapshots, when the store is made.", show_default="auto")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Option of that index, as in 'on=price'; repeat for more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add subscriptions as one version; one whose id is already there is replaced.

    Those with --ttl or --expires are deleted by 'rangecast store expire', or by a stream, once their
    time has come.

    \b
    Example:
      rangecast store add alerts/ --schema schema.toml --subscriptions alerts.csv
      rangecast store add alerts/ --subscriptions alerts.csv --payload owner --expires-column until
      rangecast store add alerts/ --id 7 --condition "price < 10 and symbol = 'IBM'" --ttl 2h
    """
    if (subscriptions is None) == (condition is None):
        raise OptionError("store add takes --subscriptions FILE, or --id ID and --condition TEXT")
    ends = _end(ttl, expires)
    beside: dict[str, Any] = {"payload": payload or [], "expires": expires_column}
    if any(beside.values()) and (subscriptions is None or (ends and expires_column)):
        raise OptionError("--payload and --expires-column are of a file, which ends by one or the other")
    options = options_of(option or [])
    model = Schema.from_toml(schema) if schema is not None else None
    home = Store.open(store, model, index=index, options=options or None)
    remarks: list[str] = []

    def load() -> tuple[Rejects, Subscriptions, int]:
        # with the words that the store has at this moment; again, if another process was faster in a bucket
        with Rejects(rejects, most=SHOWN) as aside:
            if subscriptions is not None:
                remark = remarks.append if as_json else say
                subs = read_subscriptions(home.schema, subscriptions, aside, id=id, remark=remark, **beside)
            else:
                subs = Subscriptions.parse(home.schema, [(stored_id(home, id), str(condition))])
            return aside, subs, home.insert(subs, expires=ends)

    aside, subs, version = home.exclusively(load)
    if as_json:
        done = {"version": version, "added": len(subs), "ends": _written(ends) if ends else None}
        _tell(home, **done, rejected=aside.counts, rejects=_side(aside), remarks=remarks)
    else:
        say(f"{home.path}: version {version}, {len(subs):,} subscriptions added or replaced{_until(ends)}")
        report_rejects(aside)
    raise typer.Exit(REJECTED if len(aside) else OK)


@app.command()
def remove(
    store: Place,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of the subscriptions to remove.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Remove those whose own columns fulfil this, as in \"owner = 'ann'\".")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove subscriptions by id or by their own columns, as one version.

    \b
    Example:
      rangecast store remove alerts/ 7 8 9
      rangecast store remove alerts/ --where "owner = 'ann'"
    """
    home = Store.open(store)
    if (where is None) == (not ids):
        raise OptionError("store remove takes ids, or --where CONDITION")
    if where is not None:
        n, unknown = len(home.delete(where=where)), []
    else:
        wanted = [stored_id(home, id) for id in ids or ()]
        unknown = home.delete(wanted)
        n = len(set(wanted)) - len(set(unknown))
    if as_json:
        _tell(home, version=home.version, removed=n, not_there=unknown)
        raise typer.Exit(REJECTED if unknown else OK)
    say(f"{home.path}: version {home.version}, {n:,} subscriptions removed")
    if unknown:
        say(f"not there: {', '.join(visible(str(id)) for id in unknown)}")
    raise typer.Exit(REJECTED if unknown else OK)


@app.command(name="list")
def list_(
    store: Place,
    version: Annotated[int | None, typer.Option(help="A version.", show_default="the newest")] = None,
    limit: Annotated[
        int, typer.Option(min=0, help="How many subscriptions to print at most; 0 for all.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Print the subscriptions: id and condition as it was written, or the bounds of those that had no text.

    \b
    Example:
      rangecast store list alerts/ --limit 10
      rangecast store list alerts/ --limit 0 --json
    """
    home = Store.open(store)
    subs = home.subscriptions(version)
    shown = subs if limit == 0 else subs.select(np.arange(min(limit, len(subs))))
    # when one ends is known of the newest version
    ends = home.expires_at(shown.ids) if version is None else None
    if as_json:
        for one in _objects(shown, None if ends is None else ends.tolist()):
            say_summary(one, on_stdout=True)
        return
    heads = ["id", "condition"]
    rows = [[shown.ids[row], condition] for row, condition in enumerate(conditions_of(shown))]
    if ends is not None and ends.any():
        heads.append("ends")
        rows = [[*row, _written(end) if end else ""] for row, end in zip(rows, ends.tolist(), strict=True)]
    print_table(heads, rows)
    if len(shown) < len(subs):
        say(f"and {len(subs) - len(shown):,} more; --limit 0 prints all")


@app.command()
def show(
    store: Place,
    id: Annotated[str | None, typer.Argument(help="A subscription; without one, the store itself.")] = None,
    as_json: AsJson = False,
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
        wanted = stored_id(home, id)
        if wanted not in home:
            raise OptionError(f"{home.path}: no subscription has the id {wanted!r}")
        row = subs.ids.arrow().index(wanted).as_py()
        end = int(home.expires_at([wanted])[0])
        one = subs.select([row])
        if as_json:
            say_summary(_objects(one, [end])[0], on_stdout=True)
            return
        own = one.payload.to_pylist()[0] if one.beside.payload else {}
        heads, cells = ["id", "condition", *own], [wanted, *conditions_of(one), *own.values()]
        print_table(heads + ["ends"] * bool(end), [cells + [_written(end)] * bool(end)])
        return
    snapshots = home.snapshots()
    changed = home.time_of(home.version) if home.version > 0 else None
    ending = home.next_expiry()
    log_bytes = home.log_bytes()
    if as_json:
        counts = {"version": home.version, "oldest": home.oldest, "subscriptions": len(home)}
        attributes = {attribute.name: attribute.kind for attribute in home.schema}
        _tell(
            home,
            **counts,
            changed=changed.isoformat(sep=" ", timespec="seconds") if changed else None,
            attributes=attributes,
            index=home.kind,
            snapshots=snapshots,
            log_bytes=log_bytes,
            next_end=None if ending is None else _written(ending),
            holds=_holds(home),
        )
        return
    rows: list[list[Any]] = [
        ["version", home.version],
        ["oldest version", home.oldest],
        ["subscriptions", f"{len(home):,}"],
        ["attributes", ", ".join(f"{a.name} {a.kind}" for a in home.schema)],
        ["index", home.kind],
        ["snapshots", ", ".join(map(str, snapshots)) or "none yet"],
        ["change log", readable(log_bytes)],
    ]
    if changed is not None:
        rows.insert(1, ["changed", changed.isoformat(sep=" ", timespec="seconds")])
    if ending is not None:
        rows.append(["next to end", _written(ending)])
    rows += [["held", f"version {hold.version} by {hold.name}"] for hold in home.holds()]
    print_table(["", ""], rows)


@app.command()
def compact(
    store: Place,
    keep: Annotated[
        int | None,
        typer.Option(help="Oldest version to keep.", show_default="the oldest that is held, or the newest"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove snapshots and changes that no version from --keep on needs.

    What a stream or a job holds is kept; 'rangecast store holds' says who holds what.

    \b
    Example:
      rangecast store compact alerts/ --keep 40
    """
    home = Store.open(store)
    gone = home.compact(keep)
    if as_json:
        _tell(home, oldest=home.oldest, **gone)
        return
    say(
        f"{home.path}: {gone['snapshots']:,} snapshots and {gone['segments']:,} log files removed, "
        f"{readable(gone['bytes'])} freed"
    )


@app.command()
def expire(
    store: Place,
    now: Annotated[
        str | None, typer.Option(help="The time to use; UTC without a zone.", show_default="the present")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete the subscriptions that have expired, as one version.

    \b
    Example:
      rangecast store expire alerts/
    """
    home = Store.open(store)
    moment = _moment(now, "--now") if now is not None else None

    def end() -> tuple[int, int]:
        before = home.version
        after = home.expire(moment)
        return after, home.changed(before, after)

    after, n = home.exclusively(end)
    if as_json:
        _tell(home, version=after, ended=n)
        return
    say(f"{home.path}: version {after}, {n:,} subscriptions had expired")


@app.command()
def holds(
    store: Place,
    release: Annotated[
        list[str] | None, typer.Option(help="Give up the hold of this name; repeat for more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the holds that keep versions from `compact`, or release those that nobody uses any more.

    A stream holds the versions of batches that it may have to run again, also while it is stopped.

    \b
    Example:
      rangecast store holds alerts/
      rangecast store holds alerts/ --release nightly-match
    """
    home = Store.open(store)
    unknown = [name for name in release or [] if not home.release(name)]
    kept = home.holds()
    if as_json:
        _tell(home, holds=_holds(home), not_there=unknown)
        raise typer.Exit(REJECTED if unknown else OK)
    if kept:
        rows = [[hold.name, hold.version, _written(hold.time), hold.note] for hold in kept]
        print_table(["name", "version", "since", "note"], rows)
    else:
        say(f"{home.path}: no version is held")
    if unknown:
        say(f"not there: {', '.join(map(visible, unknown))}")
    raise typer.Exit(REJECTED if unknown else OK)


@app.command()
def verify(store: Place, as_json: AsJson = False) -> None:
    """Read everything and check it against its sums; exit code 1 when something is damaged.

    \b
    Example:
      rangecast store verify alerts/
    """
    home = Store.open(store)
    problems = home.verify()
    if as_json:
        _tell(home, oldest=home.oldest, version=home.version, problems=problems)
        raise typer.Exit(REJECTED if problems else OK)
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(REJECTED)
    say(f"{home.path}: versions {home.oldest} to {home.version} are sound")


def _tell(home: Store, **values: Any) -> None:
    say_summary({"store": str(home.path), **values}, on_stdout=True)


def _side(aside: Rejects) -> str | None:
    return str(aside.path) if aside.path and len(aside) else None


def _holds(home: Store) -> list[dict[str, Any]]:
    return [
        {"name": hold.name, "version": hold.version, "since": _written(hold.time), "note": hold.note}
        for hold in home.holds()
    ]


def _objects(subs: Subscriptions, ends: list[int] | None) -> list[dict[str, Any]]:
    """Each subscription as an object: what `list` and `show` print as JSON."""
    conditions = conditions_of(subs)
    own = subs.payload.to_pylist() if subs.beside.payload else [None] * len(subs)
    times = ends if ends is not None else [0] * len(subs)
    return [
        {
            "id": subs.ids[row],
            "condition": condition,
            **({} if own[row] is None else {"payload": own[row]}),
            **({"ends": _written(times[row])} if times[row] else {}),
        }
        for row, condition in enumerate(conditions)
    ]


def conditions_of(subs: Subscriptions) -> list[str]:
    """Each condition in one line: as it was written, or the boxes of one that came without a text.

    >>> from rangecast import Int, Schema
    >>> conditions_of(Subscriptions.parse(Schema(Int("price")), {7: "price  in (1, 5)"}))
    ['price in (1, 5)']
    """
    texts = [None] * len(subs) if subs.texts is None else subs.texts.to_list()
    return [condition_of(subs, row) if text is None else one_line(text) for row, text in enumerate(texts)]


def condition_of(subs: Subscriptions, row: int) -> str:
    """The boxes of a subscription in words of the language.

    >>> from rangecast import Int, Schema
    >>> condition_of(Subscriptions.parse(Schema(Int("price")), {7: "price in (1, 5)"}), 0)
    'price in (1, 5)'
    """
    boxes = []
    for box in (subs.owners == row).nonzero()[0].tolist():
        bounded = [
            f"{subs.schema.attributes[j].name} {describe_spans(subs.schema.attributes[j], spans)}"
            for j, spans in entries_of(subs.boxes, box)
        ]
        boxes.append(" and ".join(bounded) or "anything")
    return " or ".join(boxes) or "nothing"


def _end(ttl: str | None, expires: str | None) -> int | None:
    """When subscriptions end, by the options of `add`."""
    if ttl is not None and expires is not None:
        raise OptionError("store add takes --ttl or --expires, not both")
    if ttl is not None:
        return instant() + duration_of(ttl)
    return _moment(expires, "--expires") if expires is not None else None


def duration_of(text: str) -> int:
    """Microseconds of a length of time.

    >>> duration_of("1h30m"), duration_of("0.5s")
    (5400000000, 500000)
    """
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise OptionError(
            f"a length of time must be as in '90s', '2h' or '1d12h' (w d h m s ms), got {text!r}"
        )
    return round(sum(float(number) * _SECONDS[unit] * 1_000_000 for number, unit in parts))


def _moment(text: str, option: str) -> int:
    try:
        return instant(text)
    except (SubscriptionError, ValueError) as error:
        raise OptionError(f"{option} must be a time as in 2026-12-24T18:00+01:00, got {text!r}") from error


def _written(time: int) -> str:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=time)
    return moment.isoformat(sep=" ", timespec="seconds")


def _until(ends: int | None) -> str:
    return f", until {_written(ends)}" if ends else ""


def stored_id(home: Store, text: str) -> int | str:
    """An id as the store has them: a whole number unless its ids are strings."""
    if home.ids_are_text:
        return text
    found = parse_id(text)
    if home.ids_are_text is False and isinstance(found, str):
        raise OptionError(f"{home.path}: ids are whole numbers, got {text!r}")
    return found
