"""`rangecast experiment`: run a paper's experiment and weigh its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.console import options_of, print_table, say
from rangecast.errors import OptionError
from rangecast.papers import EXPERIMENTS, TITLES, ExperimentReport, code_of
from rangecast.papers import experiment as find
from rangecast.papers.figures import draw_figure, figures_of
from rangecast.papers.overview import write_overview
from rangecast.papers.report import Unfinished

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
    if name is None:
        raise OptionError("experiment takes a NAME; --list shows them")
    run = find(name)
    if docs and out is not None:
        raise OptionError("experiment takes --out or --docs, not both")
    if docs and not DOCS.parent.is_dir():
        raise OptionError("--docs must run in the root of a clone, where docs/ is")
    if figure is None and (n is not None or option):
        raise OptionError("--n and --option are of one figure; name it with --figure")
    if figure is not None and docs:
        raise OptionError("the pages in docs/ have all figures of a paper; --figure writes to --out")
    folder = DOCS if docs else out or Path("experiment-output") / name
    report = ExperimentReport(name, folder, quick, say, code_of(name), seconds)
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
    say(f"{len(report.claims)} claims: {counts}; written to {folder}")
