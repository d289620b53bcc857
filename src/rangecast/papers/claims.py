"""Verdicts from two sources: the run of a paper's page, and runs with other seeds.

A page is written with the verdicts of its own run. `settle_pages` then puts beside each what the seeds say,
and makes the verdict of both: "agrees" or "differs" where they concur, "open" where they do not. It can be
done again whenever a page or the seeds are made again.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rangecast.papers.covering import experiment as covering
from rangecast.papers.report import (
    CASES,
    Claim,
    ExperimentReport,
    PageClaim,
    SeedReport,
    as_markdown,
    claims_table,
    read_page,
    spread,
)
from rangecast.papers.rtree import experiment as batch
from rangecast.papers.ubtree import experiment as ubtree
from rangecast.papers.vci import experiment as vci
from rangecast.papers.vcr import experiment as vcr

_PARTED = re.compile(r"this run (?:agrees|differs), \d+ of \d+ seeds agree(?:: (?P<own>.*))?$")


class SeedSpread(NamedTuple):
    """What seeds say of a claim."""

    ratio: str
    seen: str
    when: str
    at: str
    agreeing: int
    taken: int
    why: str = ""

    def __str__(self) -> str:
        """As a page shows it."""
        return f"{self.agreeing} of {self.taken}: {self.ratio} {self.seen}, {self.when} ({self.at})"


def settle(run: str, agreeing: int, taken: int) -> str:
    """The verdict of a page's run and of seeds: where most seeds say otherwise, the claim is open.

    >>> settle("agrees", 3, 3), settle("agrees", 1, 3), settle("differs", 0, 3), settle("differs", 2, 3)
    ('agrees', 'open', 'differs', 'open')
    """
    if run == "open":
        return run
    return run if (2 * agreeing > taken) == (run == "agrees") else "open"


def read_spread(path: Path) -> dict[str, SeedSpread]:
    """What seeds say, by claim; nothing where the file is not there."""
    if not path.exists():
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        agreeing, _, taken = row["seeds that agree"].partition(" of ")
        found[row["claim"]] = SeedSpread(
            row["ratio"],
            row["seen"],
            row["agrees when"],
            row["taken with"],
            int(agreeing),
            int(taken),
            row["why not"],
        )
    return found


def settled(claim: PageClaim, spread: SeedSpread | None) -> PageClaim:
    """A claim with the verdict of its run and of seeds, whatever was settled before."""
    parted = _PARTED.match(claim.why)
    own = (parted["own"] or "") if parted else claim.why
    if claim.run == "agrees":
        own = ""
    if spread is None:
        return claim._replace(verdict=claim.run, seeds="", why=own)
    verdict = settle(claim.run, spread.agreeing, spread.taken)
    if verdict != claim.run:
        told = f"this run {claim.run}, {spread.agreeing} of {spread.taken} seeds agree"
        own = ": ".join(filter(None, (told, spread.why or own)))
    return claim._replace(verdict=verdict, seeds=str(spread), why=own)


def settle_pages(folder: Path, names: Iterable[str]) -> None:
    """Settle the claims of the pages in a folder, of those that are there."""
    spreads = read_spread(folder / "seeds-ratios.csv")
    for name in names:
        path = folder / f"{name}.md"
        if path.exists():
            path.write_text(settled_text(path, spreads), encoding="utf-8")


def settled_text(path: Path, spreads: Mapping[str, SeedSpread]) -> str:
    """A page's text with its claims settled."""
    text = path.read_text(encoding="utf-8")
    claims = [settled(claim, spreads.get(claim.text)) for claim in read_page(path)]
    if not claims:
        return text
    before, _, rest = text.partition("## Claims\n")
    after = rest.partition("\n## ")[2]
    return "\n".join([f"{before}## Claims", "", *claims_table(claims), "", f"## {after}"])


# How far the numbers that decide the papers' claims vary from seed to seed: `rangecast experiment seeds`.
#
# A page is drawn with one seed. Here the same experiments run with others, at the page's sizes or as near to
# them as several seeds allow, and only the numbers of their claims are kept.

SEEDS = 3
PAPERS = {"vci": vci, "vcr": vcr, "ubtree": ubtree, "batch": batch, "covering": covering}
COLUMNS = ["paper", "claim", "in the paper", "ratio", "agrees when", "taken with", "seen", "seeds that agree",
           "why not"]  # fmt: skip


def run(report: ExperimentReport) -> None:
    """Run every paper's experiment with every seed, and say how many of them support each claim."""
    seeds = 2 if report.quick else SEEDS
    found: dict[tuple[str, Claim], list[float]] = {}
    for seed in range(1, seeds + 1):
        for paper, module in PAPERS.items():
            own = SeedReport(report, paper, seed)
            module.run(own)
            for weighed in own.weighed:
                found.setdefault((paper, weighed.claim), []).append(weighed.number)
    rows = [
        [
            f"[{paper}]({paper}.md)",
            claim.text,
            claim.where,
            claim.number,
            claim.when,
            claim.at,
            spread(numbers, ",.3g"),
            f"{sum(map(claim.agrees, numbers))} of {len(numbers)}",
            claim.seeds_why,
        ]
        for (paper, claim), numbers in found.items()
    ]
    report.table("ratios", f"Mean, least and greatest over {seeds} seeds", COLUMNS, rows)
    report.departs(
        "sizes",
        "those of the papers' pages",
        "the column `taken with`",
        "several seeds; smaller where the page's size would take minutes per seed",
    )
    report.write(
        "The claims, from seed to seed",
        "The number that decides each claim of the five papers, taken again with several seeds: [ubtree]"
        "(ubtree.md), [covering](covering.md), [vci](vci.md), [vcr](vcr.md), [batch](batch.md). Each "
        "experiment runs again as it does for its page, with subscriptions and events drawn again. A verdict "
        "is `agrees` or `differs` only where the run of the paper's page and most seeds say the same; where "
        "they disagree it is open.",
    )


# The page of all papers: how many claims agree, differ and are open, and why some do not agree.
#
# It is made from the papers' pages and from the spread over seeds, and rewritten whenever one
# of them is: `rangecast experiment NAME --docs` ends with it.

SOURCES = {
    "vcr": "000: Wu, Chen, Yu 2004, *VCR indexing for fast event matching*",
    "vci": "001: Wu, Chen, Yu, Mei 2004, *Efficient interval indexing for content-based subscription*",
    "ubtree": "002: Wang, Zhang, Kitsuregawa 2004, *UB-tree based efficient predicate index*",
    "batch": "003: Wang, Zhang, Kitsuregawa 2004, *Adaptively improving average response time*",
    "covering": "004: Shen, Tirthapura 2012, *Approximate covering detection*",
}
NAME = "README.md"


def write_overview(folder: Path) -> Path | None:
    """Settle the verdicts of the papers' pages in a folder, and write the page of all once they are there."""
    settle_pages(folder, SOURCES)
    if not all((folder / f"{name}.md").exists() for name in SOURCES):
        return None
    claims = {name: read_page(folder / f"{name}.md") for name in SOURCES}
    path = folder / NAME
    path.write_text(describe(claims), encoding="utf-8")
    return path


def describe(claims: dict[str, list[PageClaim]]) -> str:
    """The page's text."""
    counts = {
        name: (len(own), *(sum(claim.verdict == case for claim in own) for case in CASES))
        for name, own in claims.items()
    }
    table = [[SOURCES[name], *numbers, f"[{name}]({name}.md)"] for name, numbers in counts.items()]
    table.append(["all", *map(sum, zip(*counts.values(), strict=True)), ""])
    every = [(name, claim) for name, own in claims.items() for claim in own]
    lines = [
        "# The claims of the papers, tested",
        "",
        "This library grew out of five papers. For each of them, a page repeats the paper's experiments and "
        "says which of its claims agree with what was measured here. Each verdict names the yardstick by "
        "which it was reached. `rangecast experiment NAME --docs` runs the experiments of one paper, and "
        "writes its page and this one; `make experiments` does so for all of them.",
        "",
        *as_markdown(("paper", "claims", "agree", "differ", "open", "page"), table),
        "",
        "## Claims that do not agree, and why",
        "",
        *as_markdown(
            ("page", "the paper says", "verdict", "why not"),
            [(name, c.text, c.verdict, c.why) for name, c in every if c.verdict != "agrees"],
        ),
        "",
        "## Every verdict, its yardstick, and its spread over seeds",
        "",
        "A verdict has two sources: the run of the paper's page, and the number that decides the claim, "
        "measured again with several seeds (on [seeds](seeds.md) you find with how many subscriptions). It "
        "is `agrees` or `differs` if the run and most seeds say the same, and `open` if they disagree.",
        "",
        *as_markdown(
            ("page", "the paper says", "verdict", "yardstick", "seeds that agree"),
            [(name, c.text, c.verdict, c.by, c.seeds) for name, c in every],
        ),
        "",
    ]
    return "\n".join(lines)
