"""Verdicts from two sources: the run of a paper's page, and several seeds (papers/seeds).

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

from rangecast.papers.report import PageClaim, claims_table, read_page

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
    claims = [settled(claim, spreads.get(claim.text)) for claim in read_page(path)[1]]
    if not claims:
        return text
    before, _, rest = text.partition("## Claims\n")
    after = rest.partition("\n## ")[2]
    return "\n".join([f"{before}## Claims", "", *claims_table(claims), "", f"## {after}"])
