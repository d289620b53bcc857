"""`rangecast completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

from rangecast.errors import OptionError

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
