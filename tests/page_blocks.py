"""Blocks of a page that are run: ```python and ```sh, each with the ```text block that follows it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(
    r"^```(?P<kind>python|sh)\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Example(NamedTuple):
    """A block, the line of its first statement, and the output that the page shows."""

    kind: str
    line: int
    code: str
    output: str


def examples_of(text: str, kinds: tuple[str, ...] = ("python",)) -> list[Example]:
    """The examples of a page, in order."""
    return [
        Example(
            found["kind"], text.count("\n", 0, found.start("code")) + 1, found["code"], found["output"] or ""
        )
        for found in BLOCK.finditer(text)
        if found["kind"] in kinds
    ]


def printed_by(example: Example, page: str, names: dict[str, object]) -> str:
    """What an example prints. Python runs here, with the names of the earlier ones."""
    if example.kind == "python":
        # The blank lines let a traceback point at the line of the page.
        compiled = compile("\n" * (example.line - 1) + example.code, page, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compiled, names)
        text = printed.getvalue()
    else:
        # the command itself and no function around it: $! of a function is another process
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "-e", "-c", example.code],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "120", "PATH": path},
        )
        assert ran.returncode == 0, f"{page}, line {example.line}: {ran.stderr}"
        text = ran.stdout
    return "\n".join(row.rstrip() for row in text.splitlines()).rstrip("\n")


def run_examples(text: str, page: str, kinds: tuple[str, ...] = ("python",)) -> int:
    """Run the examples of a page in order, compare what they print, and return how many there were."""
    names: dict[str, object] = {"__name__": "__main__"}
    examples = examples_of(text, kinds)
    for example in examples:
        got = printed_by(example, page, names)
        assert got == example.output.rstrip("\n"), (
            f"{page}, line {example.line}: the output differs from the block shown"
        )
    return len(examples)


def main() -> None:
    """Run the named pages one after the other in this folder; prints how many blocks each has."""
    for name in sys.argv[1:]:
        print(run_examples(Path(name).read_text(), name, ("python", "sh")))


if __name__ == "__main__":
    main()
