"""The command line: one app, a module per command in this folder."""

from __future__ import annotations

from typing import Annotated

import typer

from rangecast import __version__
from rangecast.cli import (
    broker,
    check,
    demo,
    experiment,
    explain,
    generate,
    indexes,
    kafka,
    match,
    schema,
    serve_demo,
    spark,
    spark_stream,
    store,
    stream_demo,
)
from rangecast.cli.console import CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rangecast {__version__}")
        raise typer.Exit


@app.callback()
def rangecast(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which of many stored subscriptions does each event match?

    Data goes to stdout or files, everything for people to stderr.
    """


app.command()(match.match)
app.command()(explain.explain)
app.command()(check.check)
app.add_typer(schema.app, name="schema")
app.add_typer(store.app, name="store")
spark.app.command()(spark_stream.stream)
app.add_typer(spark.app, name="spark")
app.command()(broker.serve)
app.command()(broker.token)
app.command()(broker.publish)
app.command()(broker.subscribe)
app.command()(broker.tail)
app.add_typer(kafka.app, name="kafka")
app.command()(generate.generate)
app.command()(indexes.indexes)
app.command()(experiment.experiment)
app.command()(demo.demo)
app.command()(stream_demo.stream_demo)
app.command()(serve_demo.serve_demo)


def main() -> None:
    """The entry point `rangecast`."""
    app()
