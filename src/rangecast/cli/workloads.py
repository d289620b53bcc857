"""`rangecast generate`: write a named workload to files that `rangecast match` reads."""

from __future__ import annotations

import inspect
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import typer

from rangecast.cli.console import OK, options_of, print_table, say
from rangecast.engine import index_names, index_type
from rangecast.errors import OptionError
from rangecast.loading import OutputFile
from rangecast.papers import EXPERIMENTS, TITLES, ExperimentReport, code_of, made_by
from rangecast.papers import experiment as find
from rangecast.papers.claims import write_overview
from rangecast.papers.figures import draw_figure, figures_of
from rangecast.papers.provenance import mark_page
from rangecast.papers.report import Unfinished
from rangecast.types.attributes import Category, Int
from rangecast.workloads import SEED, Workload, describe, workload
from rangecast.workloads.warm_up import warm_up as compile_all


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


# `rangecast experiment`: run a paper's experiment and weigh its claims.

DOCS = Path("docs") / "experiments"


def experiment(
    name: Annotated[str | None, typer.Argument(help="Name of the experiment.", show_default=False)] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small sizes, to check that everything works.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for tables, plots and the page.", show_default="experiment-output/NAME"),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Stop between two steps after this long; the same command continues."),
    ] = None,
    docs: Annotated[bool, typer.Option("--docs", help="Write to docs/experiments of this clone.")] = False,
    figure: Annotated[
        str | None, typer.Option(help="Draw only this figure, as in 6; --list names them.")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", min=2, help="Subscriptions of that figure.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Parameter of that figure, as in L=32; repeat for more.")
    ] = None,
    mark: Annotated[
        bool, typer.Option("--mark", help="Say on all pages of this clone which code has changed since.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments with their papers.")] = False,
) -> None:
    """Run the experiment of a paper: tables, plots, and a page that assesses its claims.

    Plots need Matplotlib, which comes with the bench extra.

    \b
    Example:
      rangecast experiment --list
      rangecast experiment NAME --quick --out results
      rangecast experiment vci --figure 6a --n 200000 --option L=32
    """
    if list_:
        rows = [[name, TITLES.get(name, ""), " ".join(figures_of(name))] for name in EXPERIMENTS]
        print_table(["experiment", "paper", "figures"], rows)
        return
    if docs and out is not None:
        raise OptionError("experiment takes --out or --docs, not both")
    if (docs or mark) and not DOCS.parent.is_dir():
        raise OptionError("--docs and --mark must run in the root of a clone, where docs/ is")
    if mark:
        for page in EXPERIMENTS:
            count = mark_page(DOCS / f"{page}.md", made_by(page))
            say(f"{page}: {count} of its modules have changed or moved since it was made")
        return
    if name is None:
        raise OptionError("experiment takes a NAME; --list shows them")
    run = find(name)
    if figure is None and (n is not None or option):
        raise OptionError("--n and --option are of one figure; name it with --figure")
    if figure is not None and docs:
        raise OptionError("the pages in docs/ have all figures of a paper; --figure writes to --out")
    folder = DOCS if docs else out or Path("experiment-output") / name
    report = ExperimentReport(name, folder, quick, say, code_of(name), seconds, made_by(name))
    if figure is not None:
        draw_figure(report, figure, n, options_of(option or []))
        say(f"figure {figure} of {name!r}, which weighs no claim; written to {folder}")
        return
    try:
        run(report)
    except Unfinished as step:
        say(f"the time is over before {step}; run the same command again to go on")
        raise typer.Exit(3) from None
    if docs:
        write_overview(folder)
    counts = ", ".join(f"{n} {case}" for case, n in report.counts().items())
    say(f"{len(report.weighed)} claims: {counts}; written to {folder}")


# `rangecast indexes`: what `--index` takes.

# for whoever chooses one; the first line of a class says how it works, to whoever reads its code
USES = {
    "auto": "The one to take: it looks at your subscriptions and chooses a way for each of them.",
    "scan": "Looks at every subscription for every event. Good up to a few thousand, and the baseline.",
    "direct": "One attribute with short ranges over few different values; fast, and takes much memory.",
    "islist": "One attribute, subscriptions that come and go one by one. Slower than vci; to compare with.",
    "vci": "One attribute with ranges of any width, also when an event matches very many.",
    "vcr": "Two attributes at once, such as longitude and latitude, with areas that overlap.",
    "counting": "Equality on many attributes with many different values.",
    "ubtree": "Many attributes, most of them bounded narrowly, with steady changes.",
    "rtree": "Areas in a few attributes, with changes in place; can answer its cheapest events first.",
    "hint": "One attribute with ranges of any width; to compare with.",
    "cei": "One attribute with ranges that are not too long; to compare with.",
    "rein": "Wide ranges on many attributes, where most subscriptions match most events.",
    "opindex": "Thousands of attributes of which an event has few.",
    "cells": "One or two attributes; larger answers than an index by value can give as fast.",
    "bitmap": "Many attributes of which no single one tells much.",
}


def indexes() -> None:
    """List the indexes and what each is good for.

    All give the same answer; they differ in speed and memory. Take auto unless you have a reason to choose
    another. Indexes of other packages are listed after ours.

    \b
    Example:
      rangecast indexes
    """
    rows = []
    for name in index_names():
        summary = USES.get(name) or (inspect.getdoc(index_type(name)) or "").partition("\n")[0]
        rows.append([name, summary])
    print_table(["index", "good for"], rows)


# `rangecast warm-up`: the kernels of matching, compiled before anybody waits for them.


def warm_up() -> None:
    """Compile what matching needs, once per machine or image.

    Run it when a service or an image is built, so that no first event waits. Compiled code is kept in the
    user's cache, or in NUMBA_CACHE_DIR where that is set. On an empty cache this takes minutes; a line on
    stderr says which step has begun.
    """
    seconds = compile_all()
    say(f"compiled for {seconds:.1f} s" if seconds else "everything was compiled before")
    raise SystemExit(OK)
