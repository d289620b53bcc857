"""What an experiment leaves behind: a CSV and a PNG per figure, and a page that weighs the claims.

    out/NAME/FIGURE.csv     the numbers
    out/NAME/FIGURE.png     the plot
    out/NAME/NAME.md        the page: each claim of the paper with a verdict, the yardstick it was judged by,
                            what was seen, and why not where it is not "agrees"; what we checked besides;
                            every parameter in which the run departs from the paper's; the figures

`rangecast experiment NAME --docs` writes the page and its figures to docs/experiments instead, so the
page in the docs is always one that a run has written. The page names its commit and lists the modules that
its figures ran through by hash (provenance.py); a test compares them, so that no module changes without a
word on the page.

A run may take long. `measured` keeps what a step has found in out/NAME/.measured, under the same hash: a run
with a limit of seconds stops between two steps, and the next one goes on from there.
"""

from __future__ import annotations

import csv
import itertools
import pickle
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rangecast.errors import OptionError, extra_hint
from rangecast.papers.provenance import commit_of, write_modules
from rangecast.workloads import SEED

Measured = TypeVar("Measured")
Amount = TypeVar("Amount")

CASES = ("agrees", "differs", "open")
_VERDICTS = {True: "agrees", False: "differs", None: "open"}


class Claim(NamedTuple):
    """A sentence of a paper, the number that decides it, and the bounds between which it agrees.

    One declaration serves the run of the paper's page, the runs with other seeds and the quick run of the
    tests: each takes the number in the same function, from curves of its own sizes.
    """

    text: str
    where: str
    """The place in the paper: its figure or section."""
    number: str
    """What decides: a ratio, a share or a distance."""
    least: float
    most: float = float("inf")
    by: str = ""
    """The yardstick that the page names."""
    why: str = ""
    """The reason where the verdict is not "agrees"."""
    seeds_why: str = ""
    """The reason where the page's run and the seeds disagree."""
    at: str = ""
    """The sizes of the runs with other seeds."""
    counted: bool = False
    """Whether the number rests on counted things alone (cubes, nodes, bytes, not seconds): it is then the
    same in every run of the same size, and a quick run decides it as well."""

    def agrees(self, number: float) -> bool:
        """Whether a number supports the claim."""
        return self.least < number < self.most

    @property
    def when(self) -> str:
        """When a number agrees.

        >>> [Claim("", "", "", *bounds).when for bounds in ((2,), (0, 1.5), (1, 2))]
        ['above 2', 'below 1.5', '1 to 2']
        """
        if self.most == float("inf"):
            return f"above {self.least:,.3g}"
        return f"{self.least:,.3g} to {self.most:,.3g}" if self.least > 0 else f"below {self.most:,.3g}"


class WeighedClaim(NamedTuple):
    """A claim with what a run has found: its number, the verdict, and the figures that the page shows."""

    claim: Claim
    number: float
    agrees: bool | None
    evidence: str
    why: str

    @property
    def verdict(self) -> str:
        """agrees, differs or open."""
        return _VERDICTS[self.agrees]


class Unfinished(Exception):
    """The seconds of a run are over; what it has measured is kept for the next one."""


class ExperimentReport:
    """Collects an experiment's figures and claims and writes them."""

    def __init__(
        self,
        name: str,
        out: Path,
        quick: bool = False,
        echo: Any = None,
        code: str = "",
        seconds: float | None = None,
        modules: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.quick = quick
        self.folder = Path(out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.weighed: list[WeighedClaim] = []
        self.seed = SEED
        self.repeats = False
        self.code = code
        self.modules = modules or {}
        self._checks: list[tuple[str, bool, str]] = []
        self._departures: list[tuple[str, str, str, str]] = []
        self._sections: list[str] = []
        self._echo = echo or (lambda line: None)
        self._until = None if seconds is None else time.monotonic() + seconds

    def extent(self, page: Amount, seeds: Amount, quick: Amount) -> Amount:
        """How much is measured: for the paper's page, in a run with another seed, in a quick run."""
        return quick if self.quick else seeds if self.repeats else page

    def say(self, line: str) -> None:
        """Tell the person who waits what is being measured."""
        self._echo(line)

    def measured(self, step: str, work: Callable[[], Measured]) -> Measured:
        """What `work` gives, or what it gave in an earlier run of the same code that was cut short."""
        if self._until is None:
            self.say(step)
            return work()
        kept = (
            self.folder / ".measured" / f"{self.name}-{self.code}-{'quick-' * self.quick}{_file_name(step)}"
        )
        if kept.exists():
            found: Measured = pickle.loads(kept.read_bytes())
            return found
        if time.monotonic() > self._until:
            raise Unfinished(step)
        self.say(step)
        found = work()
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(pickle.dumps(found))
        return found

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
        lines += as_markdown(columns, rows)
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
        whole_y: bool = False,
    ) -> Path:
        """One line a series, into FIGURE.png and onto the page; x values may be words, evenly spaced."""
        try:
            import matplotlib as mpl
        except ImportError:
            raise OptionError(f"experiments draw with Matplotlib: {extra_hint('bench')}") from None
        mpl.use("Agg")
        from matplotlib import pyplot as plt
        from matplotlib.ticker import MaxNLocator, StrMethodFormatter

        path = self.folder / f"{self.name}-{figure}.png"
        drawing, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
        for marker, (label, (xs, ys)) in zip("osv^Dx*Pph<>+" * 3, series.items(), strict=False):
            # a line that later ones would hide is drawn broad below them
            over = count_hiding(series, label)
            axes.plot(xs, ys, marker=marker, markersize=5 + 5 * over, linewidth=1.4 + 4 * over,
                      alpha=0.45 if over else 1.0, label=label)  # fmt: skip
        axes.set(xlabel=x, ylabel=y)
        # small and to the left: a long one would run under the legend
        axes.set_title(title, fontsize=10 if len(title) <= 60 else 8, loc="left")
        values = [value for xs, _ in series.values() for value in xs]
        if log_x:
            axes.set_xscale("log", base=2)
        elif not any(isinstance(value, str) for value in values):
            # more numbers of six digits would run into each other, and there are no half events or levels
            whole = all(isinstance(value, int) for value in values)
            axes.xaxis.set_major_locator(MaxNLocator(5 if max(values) >= 100_000 else 6, integer=whole))
            if whole:
                axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        if log_y:
            axes.set_yscale("log")
        if whole_y:
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
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

    def weigh(
        self, claim: Claim, number: float, evidence: str, *, why: str = "", divided: bool = False
    ) -> None:
        """Weigh a claim by the number that was found for it, beside the figures that the page shows.

        The claim is open where the figures are `divided`, and in a quick run unless its number is counted.
        `why` is a reason that names figures; otherwise the claim's own is shown where it does not agree.
        """
        undecided = divided or (self.quick and not claim.counted)
        agrees = None if undecided else claim.agrees(number)
        why = why or claim.why
        if not why or (self.quick and undecided and not divided):
            why = "a run with --quick is too small to tell" if self.quick else "the figures say otherwise"
        self.weighed.append(WeighedClaim(claim, number, agrees, evidence, "" if agrees else why))
        self.say(f"{_VERDICTS[agrees]}: {claim.text} ({evidence})")

    def checked(self, text: str, holds: bool, evidence: str) -> None:
        """Something that we hold ourselves to and that the paper does not say: no claim of it."""
        self._checks.append((text, holds, evidence))
        self.say(f"{'holds' if holds else 'does not hold'}: {text} ({evidence})")

    def departs(self, parameter: str, paper: str, here: str, why: str) -> None:
        """A parameter in which this run is not the paper's."""
        self._departures.append((parameter, paper, here, why))

    def counts(self) -> dict[str, int]:
        """How many claims agree, differ and are open."""
        return {case: sum(weighed.verdict == case for weighed in self.weighed) for case in CASES}

    def write(self, title: str, source: str) -> Path:
        """Write the page and return its path."""
        mode = " --quick" if self.quick else ""
        made = ""
        if self.modules:
            listed = f"{self.name}-code.csv"
            write_modules(self.folder / listed, self.modules)
            made = f", at commit `{commit_of()}`; its figures ran through the modules of [{listed}]({listed})"
        lines = [
            f"# {title}",
            "",
            source,
            "",
            f"This page was written by `rangecast experiment {self.name}{mode} --docs` on "
            f"{platform.machine()}, Python {platform.python_version()}{made}. Times come "
            "from one run on a shared machine, so read the ratios rather than the times.",
            "",
        ]
        if self.weighed:
            claims = [
                PageClaim(w.claim.text, w.verdict, w.verdict, "", w.claim.by, w.evidence, w.why)
                for w in self.weighed
            ]
            lines += ["## Claims", "", *claims_table(claims), ""]
        if self._checks:
            rows = [(text, "yes" if holds else "no", seen) for text, holds, seen in self._checks]
            lines += ["## What we also check", "", *as_markdown(("what", "holds", "seen here"), rows), ""]
        if self._departures:
            lines += ["## Departures from the paper's parameters", ""]
            lines += [*as_markdown(("parameter", "the paper", "here", "why"), self._departures), ""]
        lines += ["## Figures", "", "\n\n".join(self._sections), ""]
        path = self.folder / f"{self.name}.md"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path


class SeedReport(ExperimentReport):
    """A run of an experiment with another seed, for the numbers that decide its claims: it leaves no page."""

    def __init__(self, parent: ExperimentReport, name: str, seed: int) -> None:
        super().__init__(name, parent.folder, parent.quick, parent.say)
        self.seed = seed
        self.repeats = True
        self._parent = parent

    def measured(self, step: str, work: Callable[[], Measured]) -> Measured:
        """Have the report of all seeds keep what a step has found."""
        return self._parent.measured(f"{self.name}, seed {self.seed}: {step}", work)

    def text(self, markdown: str) -> None:
        """Drop a paragraph."""

    def table(self, figure: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Drop a table."""

    def plot(self, figure: str, *_: Any, **__: Any) -> Path:
        """Draw nothing."""
        return self.folder

    def write(self, title: str, source: str) -> Path:
        """Write nothing."""
        return self.folder


def count_hiding(series: Mapping[str, tuple[Sequence[Any], Sequence[float]]], label: str) -> int:
    """How many later lines of a plot go through two points of a line, one after the other.

    >>> count_hiding({"a": ([1, 2, 3], [5, 5, 4]), "b": ([1, 2, 3], [5, 5, 2])}, "a")
    1
    """
    labels = list(series)
    points = list(zip(*series[label], strict=True))
    later = [set(zip(*series[other], strict=True)) for other in labels[labels.index(label) + 1 :]]
    pairs = list(itertools.pairwise(points))
    return sum(any(a in other and b in other for a, b in pairs) for other in later)


class PageClaim(NamedTuple):
    """A claim as a page has it: `run` is the verdict of the page's own run (claims.py)."""

    text: str
    verdict: str
    run: str
    seeds: str
    by: str
    evidence: str
    why: str


_COLUMNS = ("the paper says", "verdict", "this run", "seeds that agree", "yardstick", "seen here", "why not")


def claims_table(claims: Sequence[PageClaim]) -> list[str]:
    """The lines of a page about its claims."""
    agree, differ, still_open = (sum(claim.verdict == case for claim in claims) for case in CASES)
    return [
        f"Of {len(claims)} claims in the paper, {agree} agree{'s' * (agree == 1)}, "
        f"{differ} differ{'s' * (differ == 1)} and {still_open} {'is' if still_open == 1 else 'are'} open.",
        "",
        *as_markdown(_COLUMNS, claims),
    ]


def read_page(path: Path) -> list[PageClaim]:
    """The claims of a page."""
    text = path.read_text(encoding="utf-8")
    rows = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.partition("## Claims")[2].partition("\n## ")[0].splitlines()
    ]
    return [PageClaim(*row) for row in rows if len(row) == len(_COLUMNS) and row[1] in CASES]


def spread(values: Sequence[float], form: str = ",.4g") -> str:
    """The mean of some seeds and how far they lie apart.

    >>> spread([1.0, 2.0, 3.0]), spread([41234.5])
    ('2 (1 to 3)', '41,234')
    """
    mean, least, most = (
        f"{value:,.0f}" if abs(value) >= 1000 else f"{value:{form}}"
        for value in (statistics.fmean(values), min(values), max(values))
    )
    return mean if len(values) == 1 else f"{mean} ({least} to {most})"


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(_shown(cell) for cell in row) + " |" for row in rows]


def _file_name(step: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in step) + ".pickle"


def _shown(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    # a bar would end the cell
    return f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|")
