"""The page of all papers: how many claims agree, differ and are open, and why some do not agree.

It is made from the papers' pages and from the spread over seeds (seeds/), and rewritten whenever one
of them is: `rangecast experiment NAME --docs` ends with it.
"""

from __future__ import annotations

from pathlib import Path

from rangecast.papers.claims import settle_pages
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
    """Settle the verdicts of the papers' pages in a folder, and write the page of all once they are there."""
    settle_pages(folder, PAPERS)
    if not all((folder / f"{name}.md").exists() for name in PAPERS):
        return None
    claims = {name: read_page(folder / f"{name}.md")[1] for name in PAPERS}
    path = folder / NAME
    path.write_text(describe(claims), encoding="utf-8")
    return path


def describe(claims: dict[str, list[PageClaim]]) -> str:
    """The page's text."""
    counts = {
        name: (len(own), *(sum(claim.verdict == case for claim in own) for case in CASES))
        for name, own in claims.items()
    }
    table = [[PAPERS[name], *numbers, f"[{name}]({name}.md)"] for name, numbers in counts.items()]
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
