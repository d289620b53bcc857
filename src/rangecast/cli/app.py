"""The command line: one app, a module per command in this folder.

A command's module is loaded when the command is called: the help of the app knows the commands by name and
first line alone, since compilers, Arrow and HTTP clients would take seconds to load needlessly.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any, NamedTuple

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]
from typer.core import TyperCommand

from rangecast import __version__
from rangecast.cli.console import CommandGroup, say, tidy_help
from rangecast.errors import OptionError


class _CommandPlace(NamedTuple):
    """Where a command is: a function or a group (`app`) of a module, and the first line of its help."""

    module: str
    name: str
    line: str


COMMANDS = {
    "match": _CommandPlace(
        "match", "match", "Match files of events against a file of subscriptions, or a store."
    ),
    "explain": _CommandPlace(
        "check",
        "explain",
        "Explain, predicate by predicate, why a subscription does or does not match an event.",
    ),
    "check": _CommandPlace(
        "check",
        "check",
        "Look for conditions that cannot be read, can never match, or were probably meant otherwise.",
    ),
    "serve": _CommandPlace(
        "broker", "serve", "Serve subscriptions and events over HTTP, until SIGTERM or Ctrl-C."
    ),
    "token": _CommandPlace(
        "broker",
        "token",
        "Make a token and print it once; the file keeps only its hash.",
    ),
    "publish": _CommandPlace(
        "broker", "publish", "Publish JSON lines from stdin; rejected lines go to stderr, with exit code 1."
    ),
    "subscribe": _CommandPlace(
        "broker", "subscribe", "Add a subscription to a broker, replace it, or delete it."
    ),
    "tail": _CommandPlace(
        "broker",
        "tail",
        "Print the messages of a consumer as JSON lines, as they come; resumes when the connection breaks.",
    ),
    "generate": _CommandPlace(
        "workloads", "generate", "Draw a named workload and write schema.toml, subscriptions and events."
    ),
    "indexes": _CommandPlace("workloads", "indexes", "List the indexes and what each is good for."),
    "experiment": _CommandPlace(
        "workloads",
        "experiment",
        "Run the experiment of a paper: tables, plots, and a page that assesses its claims.",
    ),
    "completion": _CommandPlace(
        "app",
        "completion",
        "Print the script that makes a shell complete commands and options.",
    ),
    "warm-up": _CommandPlace(
        "workloads", "warm_up", "Compile what matching needs, once per machine or image."
    ),
    "demo": _CommandPlace(
        "demo",
        "demo",
        "Match a day of made-up trades against price alerts: a table, a picture, and how fast it was.",
    ),
    "stream-demo": _CommandPlace(
        "demo",
        "stream_demo",
        "Send stock ticks through a stream on Spark while another process adds and removes alerts.",
    ),
    "serve-demo": _CommandPlace(
        "demo",
        "serve_demo",
        "Run a broker with alerts and a made-up market, and print the address of its page.",
    ),
    "schema": _CommandPlace("check", "app", "Make a schema file from events, or look at one."),
    "store": _CommandPlace("store", "app", "Keep subscriptions durably: add, remove, inspect, compact."),
    "spark": _CommandPlace(
        "spark",
        "app",
        "Match on Spark: ingest subscriptions, match files and streams of events, reduce by covering.",
    ),
    "kafka": _CommandPlace("kafka", "app", "Match the events of a Kafka topic; take subscriptions from one."),
}


class LateCommands(CommandGroup):
    """The commands of the table above, each loaded when it is called."""

    _listing = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # by their names, for what is suggested in place of a command that there is not
        names: dict[str, Any] = dict.fromkeys(COMMANDS)
        self.commands = names

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, as the help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or what the help shows of it; None where there is none of this name."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=place.line)
        found = load_command(cmd_name)
        tidy_help(found, ctx)
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the app without loading a command."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def load_command(name: str) -> Any:
    """The command of a name, with its module loaded."""
    place = COMMANDS[name]
    found = getattr(importlib.import_module(f"rangecast.cli.{place.module}"), place.name)
    clock = sys.modules.get("rangecast.simd.compiler")
    if clock is not None and sys.stderr.isatty():
        clock.when_compiling(
            lambda: say("compiling, once per machine (`rangecast warm-up` does it beforehand)")
        )
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_command(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    command.name = name
    return command


app = typer.Typer(
    cls=LateCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "RANGECAST"},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rangecast {__version__}")
        raise typer.Exit


@app.callback()
def rangecast(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, allow_from_autoenv=False, help="Print the version."
        ),
    ] = False,
) -> None:
    """Which of many stored subscriptions does each event match?

    Data goes to stdout or files, and messages for people to stderr. Each option
    can be an environment variable: RANGECAST_MATCH_SCHEMA is match --schema.
    """


def main() -> None:
    """The entry point `rangecast`."""
    prepare()
    app(prog_name="rangecast")


# `rangecast completion`: the script by which a shell completes commands and options.

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_RANGECAST_COMPLETE"


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")],
) -> None:
    """Print the script that makes a shell complete commands and options.

    \b
    Example:
      rangecast completion bash > ~/.local/share/bash-completion/completions/rangecast
      rangecast completion zsh > ~/.zfunc/_rangecast
      rangecast completion fish > ~/.config/fish/completions/rangecast.fish
    """
    if shell not in SHELLS:
        raise OptionError(f"completion is for {', '.join(SHELLS)}, got {shell!r}")
    script = get_completion_script(prog_name="rangecast", complete_var=_VARIABLE, shell=shell)
    typer.echo(script)


def prepare() -> None:
    """Be ready to answer a shell that asks by the script's variable."""
    if _VARIABLE in os.environ:
        completion_init()
