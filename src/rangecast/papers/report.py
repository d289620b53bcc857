"""What an experiment leaves behind: a CSV and a PNG per figure, and a page that weighs the claims.

    out/NAME/FIGURE.csv     the numbers
    out/NAME/FIGURE.png     the plot
    out/NAME/NAME.md        the page: what was run, each figure, each claim of the paper with a verdict

`rangecast experiment NAME --docs` writes the page and its figures to docs/experiments instead, so the
page in the docs is always one that a run has written.
"""

from __future__ import annotations

import csv
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rangecast.errors import OptionError


class Claim(NamedTuple):
    """A claim of the paper, whether our figures agree with it, and what they are."""

    text: str
    agrees: bool | None
    evidence: str


class ExperimentReport:
    """Collects an experiment's figures and claims and writes them."""

    def __init__(self, name: str, out: Path, quick: bool = False, echo: Any = None) -> None:
        self.name = name
        self.quick = quick
        self.folder = Path(out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.claims: list[Claim] = []
        self._sections: list[str] = []
        self._echo = echo or (lambda line: None)

    def say(self, line: str) -> None:
        """Tell the person who waits what is being measured."""
        self._echo(line)

    def text(self, markdown: str) -> None:
        """A paragraph of the page."""
        self._sections.append(markdown.strip())

    def table(self, figure: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Numbers: into FIGURE.csv and as a table on the page."""
        path = self.folder / f"{self.name}-{figure}.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)
        lines = [f"### {title}", "", f"Numbers: [{path.name}]({path.name})", ""]
        lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(_shown(cell) for cell in row) + " |" for row in rows]
        self._sections.append("\n".join(lines))

    def plot(
        self,
        figure: str,
        title: str,
        x: str,
        y: str,
        series: Mapping[str, tuple[Sequence[Any], Sequence[float]]],
        log_x: bool = False,
        log_y: bool = False,
    ) -> Path:
        """One line a series, into FIGURE.png and onto the page; x values may be words, evenly spaced."""
        try:
            import matplotlib as mpl
        except ImportError:
            raise OptionError("experiments draw with Matplotlib: pip install 'rangecast[bench]'") from None
        mpl.use("Agg")
        from matplotlib import pyplot as plt

        path = self.folder / f"{self.name}-{figure}.png"
        drawing, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
        for marker, (label, (xs, ys)) in zip("osv^Dx*Pph<>+" * 3, series.items(), strict=False):
            axes.plot(xs, ys, marker=marker, markersize=5, linewidth=1.4, label=label)
        axes.set(title=title, xlabel=x, ylabel=y)
        if log_x:
            axes.set_xscale("log", base=2)
        if log_y:
            axes.set_yscale("log")
        axes.grid(True, which="major", alpha=0.3)
        # beside the plot: inside, it would hide lines where there are many; long labels go below it
        if max((len(label) for label in series), default=0) <= 32:
            drawing.legend(loc="outside right upper", fontsize=8)
        else:
            drawing.legend(loc="outside lower center", fontsize=8, ncols=2)
        drawing.savefig(path, dpi=130)
        plt.close(drawing)
        self._sections.append(f"![{title}]({path.name})")
        return path

    def claim(self, text: str, agrees: bool | None, evidence: str) -> None:
        """Weigh one claim of the paper; None when it could not be decided."""
        self.claims.append(Claim(text, agrees, evidence))
        self.say(f"{_VERDICTS[agrees]}: {text} ({evidence})")

    def write(self, title: str, source: str) -> Path:
        """Write the page and return its path."""
        mode = " --quick" if self.quick else ""
        lines = [
            f"# {title}",
            "",
            source,
            "",
            f"Written by `rangecast experiment {self.name}{mode} --docs` on {platform.machine()}, Python "
            f"{platform.python_version()}. Times are of one run on a shared machine: read the ratios, not "
            "the times.",
            "",
            "## Claims",
            "",
            "| the paper says | ours | seen here |",
            "|---|---|---|",
            *(f"| {c.text} | {_VERDICTS[c.agrees]} | {c.evidence} |" for c in self.claims),
            "",
            "## Figures",
            "",
            "\n\n".join(self._sections),
            "",
        ]
        path = self.folder / f"{self.name}.md"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path


_VERDICTS = {True: "agrees", False: "differs", None: "open"}


def _shown(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
