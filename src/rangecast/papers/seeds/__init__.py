"""How far the numbers that decide the papers' claims vary from seed to seed: `rangecast experiment seeds`.

The experiments draw with one seed. Here the number that decides each claim is taken again with several:
subscriptions and events are drawn again, and contenders take turns, round by round, in processor time. Sizes
are the page's, or as near to them as several seeds allow. A verdict is "agrees" or "differs" only where the
page's run and most seeds say the same (papers/verdicts.py), so none of them rests on one draw.

Each paper has a module with its RATIOS and `take(report, seed)`.
"""

from __future__ import annotations

from functools import partial

from rangecast.papers.report import ExperimentReport, spread
from rangecast.papers.seeds import batch, covering, ubtree, vci, vcr
from rangecast.papers.seeds.ratio import Ratio

SEEDS = 3
PAPERS = {"vci": vci, "vcr": vcr, "ubtree": ubtree, "batch": batch, "covering": covering}
RATIOS: dict[tuple[str, str], Ratio] = {
    (paper, key): ratio for paper, module in PAPERS.items() for key, ratio in module.RATIOS.items()
}
COLUMNS = ["paper", "claim", "ratio", "agrees when", "taken with", "seen", "seeds that agree", "why not"]


def run(report: ExperimentReport) -> None:
    """Take every ratio with every seed and say how many of them agree."""
    seeds = 2 if report.quick else SEEDS
    found: dict[tuple[str, str], list[float]] = {key: [] for key in RATIOS}
    for seed in range(1, seeds + 1):
        for paper, module in PAPERS.items():
            values = report.measured(f"{paper}, seed {seed}", partial(module.take, report, seed))
            for key, value in values.items():
                found[paper, key].append(value)
    rows = [
        [
            f"[{key[0]}]({key[0]}.md)",
            ratio.claim,
            ratio.what,
            ratio.when,
            ratio.at,
            spread(found[key], ",.3g"),
            f"{sum(map(ratio.agrees, found[key]))} of {len(found[key])}",
            ratio.why,
        ]
        for key, ratio in RATIOS.items()
    ]
    report.table("ratios", f"Mean, least and greatest over {seeds} seeds", COLUMNS, rows)
    report.departs(
        "sizes",
        "those of the papers' pages",
        "the column `taken with`",
        "several seeds; smaller where the page's size would take minutes per seed",
    )
    report.departs("events", "those of the papers' pages", "20 to 2,000 per point", "several seeds")
    report.write(
        "The claims, from seed to seed",
        "The number that decides each claim of the five papers, taken again with several seeds: [ubtree]"
        "(ubtree.md), [covering](covering.md), [vci](vci.md), [vcr](vcr.md), [batch](batch.md). Contenders "
        "take turns in processor time. A verdict is `agrees` or `differs` only where the run of the paper's "
        "page and most seeds say the same; where they disagree it is open.",
    )


__all__ = ["COLUMNS", "PAPERS", "RATIOS", "SEEDS", "Ratio", "run"]
