"""What people see, and what scripts can rely on.

Data goes to stdout and everything for people to stderr; bars and colours appear on a terminal only.

    exit code   meaning
    0           all is well (`explain`: it matches)
    1           finished, but rows were rejected (`explain`: it does not match)
    2           wrong usage or input that cannot be read; nothing was written
    130, 141    interrupted; the reader of stdout went away
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer.core import TyperGroup

from rangecast.errors import OptionError, RangecastError, RangecastWarning, visible

OK, REJECTED, FAILED, INTERRUPTED, CUT_OFF = 0, 1, 2, 130, 141

_stderr = Console(stderr=True, highlight=False, markup=False)


def say(line: str = "") -> None:
    """A line for people."""
    _stderr.print(visible(line, lines=True), soft_wrap=True)


def say_summary(values: dict[str, Any], on_stdout: bool) -> None:
    """What a run did, as one line of JSON: on stdout unless that has the data."""
    typer.echo(json.dumps(values, ensure_ascii=False, default=_plain), err=not on_stdout)


def _plain(value: Any) -> Any:
    """What JSON has no form for: numbers of numpy as numbers, instants and decimals as texts."""
    return value.item() if hasattr(value, "item") else str(value)


class CommandGroup(TyperGroup):
    """Turns errors that are not bugs into one line and an exit code; a bug keeps its traceback."""

    def get_params(self, ctx: Any) -> Any:
        """The options of `rangecast` itself, tidied in the same way."""
        return _tidy(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            with _said_warnings():
                return super().invoke(ctx)
        except BrokenPipeError:
            _abandon_stdout()
            raise typer.Exit(CUT_OFF) from None
        except RangecastError as error:
            say(f"rangecast: {error}")
            raise typer.Exit(FAILED) from None
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            say(f"rangecast: {place}{error.strerror or error}")
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            say("rangecast: interrupted")
            raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _said_warnings() -> Iterator[None]:
    """What the library warns of, as lines for people."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, RangecastWarning):
                say(f"rangecast: warning: {message}")
            else:
                before(message, category, *rest, **more)

        warnings.simplefilter("always", RangecastWarning)
        warnings.showwarning = cast(Any, show)
        yield


def tidy_help(command: Any, ctx: Any) -> None:
    """Have the help of a command, and of those below it, show flags as flags."""
    if command is not None:
        _tidy(command.get_params(ctx))
    for inner in getattr(command, "commands", {}).values():
        tidy_help(inner, ctx)


def _tidy(params: Any) -> Any:
    """No <bool> behind a flag, and no line for the variable that every option has (docs/cli.md)."""
    for param in params:
        if getattr(param, "is_flag", False) and not param.metavar:
            param.metavar = ""
        elif getattr(param, "multiple", False) and not param.metavar:
            param.metavar = "<text>"
        if getattr(param, "envvar", None) is None:
            param.show_envvar = False
    return params


class Bar:
    """Tells a progress bar how far the work is."""

    def __init__(self, progress: Progress, task: Any) -> None:
        self._progress = progress
        self._task = task

    def move(self, position: int, note: str = "") -> None:
        """Set the bar; a note stands behind it."""
        self._progress.update(self._task, completed=position, note=note)

    def reach(self, position: int, size: int | None) -> None:
        """Set the bar where its end is known by now."""
        self._progress.update(self._task, completed=position, total=size)


@contextmanager
def bar(what: str, size: int | None) -> Iterator[Bar]:
    """A progress bar on stderr while the block runs; nothing where stderr is no terminal."""
    columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
    note = TextColumn("{task.fields[note]}")
    shown = _stderr.is_terminal
    with Progress(*columns, note, console=_stderr, transient=True, disable=not shown) as progress:
        yield Bar(progress, progress.add_task(what, total=size or None, note=""))


class LiveTable:
    """A table of two columns that is redrawn on a terminal; `shown` is False elsewhere."""

    def __init__(self, live: Live, title: str, shown: bool) -> None:
        self.shown = shown
        self._live = live
        self._title = title

    def show(self, rows: Sequence[Sequence[str]]) -> None:
        """Draw the table with these rows."""
        table = Table("", "", title=self._title, show_header=False)
        for row in rows:
            table.add_row(*row)
        self._live.update(table, refresh=True)


@contextmanager
def live_table(title: str) -> Iterator[LiveTable]:
    """A table on stderr that is kept up to date while the block runs; nothing where stderr is no terminal."""
    shown = _stderr.is_terminal
    live = Live(console=_stderr, auto_refresh=False)
    with live if shown else nullcontext():
        yield LiveTable(live, title, shown)


def table_lines(header: Sequence[str], rows: Sequence[Sequence[Any]], numbers: bool = False) -> Iterator[str]:
    """Aligned columns, as wide as they need to be: a pipe has no width to fit into.

    With `numbers`, all columns but the first are aligned on the right.

    >>> for line in table_lines(["name", "is"], [["scan", "all boxes"], ["direct", "lists"]]):
    ...     print(line)
    name    is
    scan    all boxes
    direct  lists
    """
    cells = [list(header), *([visible(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    aligned = [str.ljust, *[str.rjust if numbers else str.ljust] * (len(header) - 1)]
    for row in cells:
        parts = zip(aligned, row, widths, strict=True)
        yield "  ".join(align(cell, width) for align, cell, width in parts).rstrip()


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]], numbers: bool = False) -> None:
    """A table on stdout."""
    typer.echo("\n".join(table_lines(header, rows, numbers)))


def options_of(settings: Sequence[str]) -> dict[str, Any]:
    """`name=value` settings as keyword options; numbers are read as such, commas make several.

    >>> options_of(["on=price,symbol", "cells=4096"])
    {'on': ('price', 'symbol'), 'cells': 4096}
    """
    options: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise OptionError(f"--option takes name=value, got {setting!r}")
        parts = tuple(_number_or_text(part) for part in value.split(","))
        options[name] = parts if len(parts) > 1 else parts[0]
    return options


def _number_or_text(text: str) -> Any:
    if text.casefold() in ("true", "false"):
        return text.casefold() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _abandon_stdout() -> None:
    # Python would complain when it flushes stdout on its way out
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
