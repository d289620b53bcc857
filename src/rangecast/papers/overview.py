"""The page of all papers: how many claims agree, differ and are open, and why those that do not agree.

It is made from the papers' pages and from the spread over seeds (seeds.py), and written anew whenever one
of them is: `rangecast experiment NAME --docs` ends with it.
"""

from __future__ import annotations

import csv
from pathlib import Path

from rangecast.papers.report import CASES, PageClaim, as_markdown, read_page

PAPERS = {
    "vcr": "000: Wu, Chen, Yu 2004, *VCR indexing for fast event matching*",
    "vci": "001: Wu, Chen, Yu, Mei 2004, *Efficient interval indexing for content-based subscription*",
    "ubtree": "002: Wang, Zhang, Kitsuregawa 2004, *UB-tree based efficient predicate index*",
    "batch": "003: Wang, Zhang, Kitsuregawa 2004, *Adaptively improving average response time*",
    "covering": "004: Shen, Tirthapura 2012, *Approximate covering detection*",
}
NAME = "README.md"


def write_overview(folder: Path) -> Path | None:
    """Write the page from those of the papers in a folder, once all of them are there."""
    if not all((folder / f"{name}.md").exists() for name in PAPERS):
        return None
    claims = {name: read_page(folder / f"{name}.md")[1] for name in PAPERS}
    path = folder / NAME
    path.write_text(describe(claims, read_spread(folder / "seeds-ratios.csv")), encoding="utf-8")
    return path


def read_spread(path: Path) -> dict[str, tuple[str, str]]:
    """By claim: the ratio's name and values over seeds, and in how many of these it agrees."""
    if not path.exists():
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["claim"]: (f"{row['ratio']}: {row['seen']}", row["seeds that agree"]) for row in rows}


def describe(claims: dict[str, list[PageClaim]], spread: dict[str, tuple[str, str]]) -> str:
    """The page's text."""
    counts = {
        name: (len(own), *(sum(claim.verdict == case for claim in own) for case in CASES))
        for name, own in claims.items()
    }
    table = [[PAPERS[name], *numbers, f"[{name}]({name}.md)"] for name, numbers in counts.items()]
    table.append(["all", *map(sum, zip(*counts.values(), strict=True)), ""])
    every = [(name, claim) for name, own in claims.items() for claim in own]
    lines = [
        "# The papers, weighed",
        "",
        "Each page runs the experiments of one paper and weighs its claims. A verdict says by which "
        "yardstick it was reached; rows that the papers do not have are no claims. This page is made "
        "from those pages by `rangecast experiment NAME --docs`, and all of them by `make experiments`.",
        "",
        *as_markdown(("paper", "claims", "agree", "differ", "open", "page"), table),
        "",
        "## Why not",
        "",
        *as_markdown(
            ("page", "the paper says", "verdict", "why not"),
            [(name, c.text, c.verdict, c.why) for name, c in every if c.verdict != "agrees"],
        ),
        "",
        "## Every verdict, its yardstick, and its spread over seeds",
        "",
        "The last two columns are of claims that rest on times: the ratio that decides them, taken again "
        "with several seeds at a smaller size ([seeds](seeds.md)). Where seeds and verdict differ, the "
        "verdict turns with the size. What is counted does not vary with the run; where draws matter, the "
        "page has their spread.",
        "",
        *as_markdown(
            ("page", "the paper says", "verdict", "yardstick", "over seeds", "seeds that agree"),
            [(name, c.text, c.verdict, c.by, *spread.get(c.text, ("", ""))) for name, c in every],
        ),
        "",
    ]
    return "\n".join(lines)
