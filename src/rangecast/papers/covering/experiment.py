"""The experiments of Shen and Tirthapura (2012): what an approximate search for covers saves.

The paper's algorithm searches standard cubes one after the other, so its yardstick is the cubes that a
search examines; ours joins neighbours into runs at no cost, so its times would flatter the paper. Lemma 3.4
gives the cubes without a search, so every figure is counted over several seeds; searches are timed beside
them (experiment.py), and examine as many.

Figures 7 to 9, in 4, 6 and 8 dimensions (2, 3 and 4 attributes): 50 extremal rectangles per point with a
fixed number of bits of the shortest side and an aspect ratio. Then the theory: cost by the length of the
sides, the number of dimensions at equal sides, the bounds of the lemmas (theory.py), and other curves than Z
(theory.py). Last what the paper leaves out: how many of the covers an approximate search finds, and what
becomes of routing tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.covering import CoverIndex
from rangecast.covering.searches import Sides
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.covering import theory
from rangecast.papers.measuring import PROCESS, THREAD, take_rounds, timed
from rangecast.papers.report import Claim, ExperimentReport, spread
from rangecast.routing import Network
from rangecast.types.attributes import Int
from rangecast.types.schema import Schema

SOURCE = (
    "Zhenhui Shen and Srikanta Tirthapura: Approximate covering detection among content-based "
    "subscriptions using space filling curves. J. Parallel Distrib. Comput. 72 (2012)."
)
SHORTEST = {4: 6, 6: 3, 8: 3}
ASPECTS = (0, 1, 2, 3)
CUBES = "cubes examined, from Lemma 3.4"
UNSAID = "the paper does not give the lengths of its sides, and the answer turns on them"

Factors = dict[float, list[float]]
"""Speed-ups by coverage, one per seed."""

PAGE = "the page's size"
SAID = ((4, 0.7, 500), (4, 0.9, 20), (8, 0.75, 3))
"""The speed-ups that the paper's text names: dimensions, coverage, factor."""

CLAIMS = {
    "inverse": Claim(
        "the speed-up is above the inverse of the space coverage in every case",
        "section 6",
        "least of speed-up times coverage",
        1,
        by=CUBES,
        why="see the figures",
        at=PAGE,
        counted=True,
    ),
    **{
        f"{d}, {coverage}": Claim(
            f"{d} dimensions, {coverage:.0%} coverage: a speed-up of nearly {wanted}",
            f"section 6, figure {7 if d == 4 else 9}",
            "speed-up at aspect ratio 0",
            wanted / 2,
            wanted * 2,
            by=f"{CUBES}; within a factor of 2 at aspect ratio 0",
            why=UNSAID,
            at=PAGE,
            counted=True,
        )
        for d, coverage, wanted in SAID
    },
    "alike": Claim(
        "these speed-ups are about the same for aspect ratios 0, 1 and 2",
        "section 6",
        "greatest / least of the three, 4 dimensions at 70 %",
        0,
        2,
        by=f"{CUBES}; within a factor of 2 of each other",
        why="with the shortest side held, a larger aspect ratio is a larger rectangle, and these gain more",
        at=PAGE,
        counted=True,
    ),
    "aspect": Claim(
        "the speed-up falls as the aspect ratio grows",
        "section 6",
        "least of one aspect ratio / the next, 4 dimensions at 75 %, longest side held",
        1,
        by=CUBES,
        why="it turns on which side is held: the paper draws rectangles one way and argues the other",
        at=PAGE,
        counted=True,
    ),
    "dimensions": Claim(
        "the speed-up falls with the number of dimensions",
        "section 1.2",
        "least of 4 / 6 and 6 / 8 dimensions at 75 %, over sides of 3 to 7 bits",
        1,
        by=f"{CUBES}, at equal sides and aspect ratio 0",
        why=UNSAID,
        at=PAGE,
        counted=True,
    ),
    "independent": Claim(
        "the cost of an approximate search does not depend on the length of the sides (theorem 3.1)",
        "theorem 3.1",
        "most / fewest cubes at 70 % over sides of 8 to 16 bits",
        0,
        1.5,
        by=f"{CUBES}; within a factor of 1.5 from 8 bits on",
        at=PAGE,
        counted=True,
    ),
    "power": Claim(
        "the cost of an exhaustive search grows as the (d-1)th power of the side (theorem 4.1)",
        "theorem 4.1",
        "the power from length to length, 4 dimensions, from 6 bits on: the farthest from 3",
        2.75,
        3.25,
        by=f"{CUBES}; within 0.25 of 3 from 6 bits on",
        at=PAGE,
        counted=True,
    ),
    "rectangle": Claim(
        "the larger the rectangle with the aspect ratio the same, the larger the speed-up",
        "section 6",
        "least growth of the speed-up at 70 % from length to length, 4 to 16 bits",
        1,
        by=CUBES,
        at=PAGE,
        counted=True,
    ),
    "lemma": Claim(
        "cubes(R^m) is below m * (2^alpha * (2^m - 1))^(d-1) (lemma 3.6)",
        "lemma 3.6",
        "cubes / bound, the greatest of the table (nothing is drawn)",
        0,
        1,
        by="cubes counted one by one",
        why="case 2.1 of the proof assumes 2^alpha > d - 1 and its last line drops a term; with a factor d "
        "before it the bound holds (theory.py has the proof), and theorem 3.1 keeps its order in epsilon",
        at=PAGE,
        counted=True,
    ),
    "curves": Claim(
        "Z and Hilbert curve are within a constant fraction of each other (section 1.1, from Moon et al.)",
        "section 1.1",
        "greatest / least of runs of Z / of Hilbert over the sizes, the greatest of 2, 3 and 4 dimensions",
        0,
        2,
        by="runs per rectangle; the ratio changes by less than 2 over the sizes",
        why="the ratio grows with the rectangle",
        at=PAGE,
        counted=True,
    ),
    "blocks": Claim(
        "approximate covering gives much of the benefit at a fraction of the cost",
        "section 1.2",
        "exact search by blocks / search at 90 % coverage",
        1,
        by="time of a search in 4 dimensions beside the cheapest exact search, and share of the covers found",
        why="beside an exhaustive search along the same curve it does; an exact search that does not go "
        "along a curve costs less than either, and where subscriptions are alike in size few covers are "
        "found",
        at="100,000 subscriptions, as on the page",
    ),
}


def run(report: ExperimentReport) -> None:
    """Count, time, weigh the claims, write the page."""
    # a page's draws are those below 10; each run with another seed has ten of its own
    first = 10 * report.seed if report.repeats else 0
    seeds = range(first, first + report.extent(10, 10, 3))
    say_departures(report, seeds)
    figures = {d: count_figure(report, d, SHORTEST[d], seeds) for d in SHORTEST}
    longest = count_longest(report, seeds)
    timed = time_figures(report, first)
    weigh_figures(report, figures, longest, timed)
    by_dims = count_dimensions(report, seeds)
    weigh_dimensions(report, by_dims)
    weigh_sides(report, seeds)
    weigh_bounds(report)
    weigh_curves(report, seeds)
    found = {} if report.repeats else find_covers(report)
    weigh_thesis(report, timed, found)
    if not report.repeats:
        route(report)
    report.write("Covering: approximate and exact search for covers", SOURCE)


def say_departures(report: ExperimentReport, seeds: range) -> None:
    """Every parameter that is not the paper's."""
    report.departs(
        "length of the shortest side",
        "fixed, not given",
        "6 bits in 4 dimensions, 3 bits in 6 and 8",
        "6 bits bring aspect ratio 0 near the paper's factors in 4 dimensions; an exhaustive search of more "
        "than "
        "3 bits in 8 dimensions is not affordable",
    )
    report.departs(
        "longest side",
        "no longer than the aspect ratio allows",
        "exactly as long",
        "so that the ratio is reached",
    )
    report.departs(
        "queries per point",
        "50",
        f"50 with each of {len(seeds)} seeds (counted)",
        "the spread is shown beside the mean",
    )
    report.departs(
        "cost",
        "time of a search",
        "cubes examined; times stand beside them",
        "our search joins cubes into runs",
    )
    report.departs(
        "timed searches",
        "50 per point",
        f"at most 50, and as many as examine {MOST_CUBES:,} cubes together",
        "minutes per search beyond",
    )
    report.departs(
        "aspect ratios of timed searches",
        "0 to 3",
        "0 to 2, in 8 dimensions 0 and 1",
        "one search of a larger one examines more cubes than all others together; all are counted",
    )
    report.departs(
        "universe",
        "2^k in every dimension, k not given",
        f"k = {BITS}; for covers found and routing 5",
        "a side of 8 bits and more fits",
    )
    report.departs(
        "one end of a rectangle",
        "drawn at random",
        "the universe's corner",
        "a search for covers asks for an extremal rectangle, of which the sides alone matter",
    )
    report.departs(
        "covers found, routing, curves besides Z, an exact search",
        "not measured",
        "measured",
        "the thesis is weighed by them",
    )
    report.departs(
        "stored subscriptions",
        "not given",
        f"{n_stored(report):,}",
        "none covers what is asked for, as in the paper",
    )


def drawn(n_dims: int, shortest: int, longest: int, seed: int, n: int = 50) -> list[list[int]]:
    """Rectangles of one shape and seed."""
    rng = np.random.default_rng([SEED, n_dims, shortest, longest, seed])
    rows: list[list[int]] = draw_sides(n_dims, shortest, longest, n, rng).T.tolist()
    return rows


def mean_cubes(rectangles: list[list[int]], coverage: float) -> float:
    """Cubes per search that hold a share of the volume."""
    return float(np.mean([theory.cubes_until(sides, 1 - coverage) for sides in rectangles]))


def factors_of(
    n_dims: int, shortest: int, longest: int, seeds: range
) -> tuple[dict[float, list[float]], Factors]:
    """Cubes and speed-ups in cubes by coverage, one value per seed."""
    sets = [drawn(n_dims, shortest, longest, seed) for seed in seeds]
    cubes = {c: [mean_cubes(rectangles, c) for rectangles in sets] for c in COVERAGES}
    speedups = {c: [a / b for a, b in zip(cubes[1.0], own, strict=True)] for c, own in cubes.items()}
    return cubes, speedups


def count_figure(report: ExperimentReport, n_dims: int, shortest: int, seeds: range) -> dict[int, Factors]:
    """Figure 7, 8 or 9 in cubes, a line per aspect ratio."""
    number = {4: 7, 6: 8, 8: 9}[n_dims]
    title = f"Figure {number}: {n_dims} dimensions, shortest side of {shortest} bits, counted"
    report.say(title)
    rows: list[list[Any]] = []
    found = {}
    for aspect in ASPECTS:
        cubes, found[aspect] = factors_of(n_dims, shortest, shortest + aspect, seeds)
        rows += [
            [aspect, c, float(np.mean(cubes[c])), float(np.mean(f)), min(f), max(f)]
            for c, f in found[aspect].items()
        ]
    columns = ["aspect ratio", "coverage", "cubes per search", "speed-up", "least seed", "greatest seed"]
    report.table(f"figure-{number}", title, columns, rows)
    plot_factors(report, f"figure-{number}", title, found)
    return found


def count_longest(report: ExperimentReport, seeds: range) -> dict[int, Factors]:
    """As figure 7 with the longest side held, so that a larger aspect ratio is a smaller rectangle."""
    title = "4 dimensions, longest side of 8 bits, counted"
    found = {aspect: factors_of(4, 8 - aspect, 8, seeds)[1] for aspect in ASPECTS}
    rows = [[a, c, float(np.mean(f)), min(f), max(f)] for a, own in found.items() for c, f in own.items()]
    columns = ["aspect ratio", "coverage", "speed-up", "least seed", "greatest seed"]
    report.table("figure-7-longest", title, columns, rows)
    plot_factors(report, "figure-7-longest", title, found)
    return found


def plot_factors(report: ExperimentReport, figure: str, title: str, found: dict[int, Factors]) -> None:
    """Speed-up over coverage, and the inverse of the coverage."""
    lines = {
        f"aspect ratio {a}": (list(own), [float(np.mean(f)) for f in own.values()])
        for a, own in found.items()
    }
    inverse = {"1 / coverage": (list(COVERAGES), [1 / c for c in COVERAGES])}
    report.plot(figure, title, "space coverage", "speed-up in cubes", lines | inverse, log_y=True)


def time_figures(report: ExperimentReport, seed: int) -> dict[tuple[int, int], TimedSearch]:
    """The searches themselves, as many as can be afforded."""
    # one search in 8 dimensions with aspect ratio 2 examines more cubes than all others together
    page = [(d, SHORTEST[d], a) for d in SHORTEST for a in (0, 1, 2) if (d, a) != (8, 2)]
    shapes = report.extent(page, page[:1], [(4, 4, 0), (4, 4, 1)])
    n = 10 if report.quick else 50
    timed: dict[tuple[int, int], TimedSearch] = {}
    rows: list[list[Any]] = []
    for d, shortest, aspect in shapes:
        search = report.measured(
            f"searches in {d} dimensions, aspect ratio {aspect}",
            partial(time_searches, d, shortest, shortest + aspect, n, n_stored(report), seed),
        )
        timed[d, aspect] = search
        rows += [
            [
                *(d, aspect, search.n, c, search.micros[c], search.cubes[c], search.runs[c]),
                *(search.micros[1.0] / search.micros[c], search.cubes[1.0] / search.cubes[c], search.blocks),
            ]
            for c in COVERAGES
        ]
    columns = [
        "dimensions",
        "aspect ratio",
        "searches",
        "coverage",
        "us per search",
        "cubes per search",
        "runs per search",
        "speed-up in time",
        "speed-up in cubes",
        "us by blocks, exact",
    ]
    report.table("times", "Searches of figures 7 to 9, timed", columns, rows)
    report.text(
        "Neighbouring cubes are one run here, found at no cost, so the speed-up in time is larger than the "
        "one in "
        "cubes where runs are long. `blocks` is our exact search on the same queries."
    )
    lines = {
        f"{d} dimensions, aspect ratio {a}": (list(s.micros), list(s.micros.values()))
        for (d, a), s in timed.items()
        if a == 0
    }
    exact = {
        f"{d} dimensions: blocks, exact": ([0.5, 1.0], [s.blocks] * 2)
        for (d, a), s in timed.items()
        if a == 0
    }
    title = "Time of a search, by the curve and exactly"
    report.plot("times", title, "space coverage", "us per search", lines | exact, log_y=True)
    return timed


def weigh_figures(
    report: ExperimentReport,
    figures: dict[int, dict[int, Factors]],
    longest: dict[int, Factors],
    timed: dict[tuple[int, int], TimedSearch],
) -> None:
    """What section 6 says of figures 7 to 9."""
    cases = [(c, f) for own in figures.values() for line in own.values() for c, f in line.items() if c < 1]
    above = sum(min(f) > 1 / c for c, f in cases)
    in_time = [(c, s.micros[1.0] / s.micros[c]) for s in timed.values() for c in COVERAGES if c < 1]
    report.weigh(
        CLAIMS["inverse"],
        min(c * min(f) for c, f in cases),
        f"with every seed in {above} of {len(cases)} cases; in time in {sum(f > 1 / c for c, f in in_time)} "
        f"of {len(in_time)}",
    )
    for d, coverage, _ in SAID:
        own = [figures[d][a][coverage] for a in (0, 1, 2)]
        report.weigh(
            CLAIMS[f"{d}, {coverage}"],
            float(np.mean(own[0])),
            f"aspect ratio 0: {spread(own[0])}; 1: {spread(own[1])}; 2: {spread(own[2])}",
        )
    alike = [figures[4][a][0.7] for a in (0, 1, 2)]
    means = [float(np.mean(f)) for f in alike]
    report.weigh(
        CLAIMS["alike"],
        max(means) / min(means),
        "4 dimensions at 70 %: " + "; ".join(spread(f) for f in alike),
    )
    held = [float(np.mean(own[0.75])) for own in longest.values()]
    drawn_so = [float(np.mean(own[0.75])) for own in figures[4].values()]
    falls = min(a / b for a, b in itertools.pairwise(held))
    rises = all(a < b for a, b in itertools.pairwise(drawn_so))
    report.weigh(
        CLAIMS["aspect"],
        falls,
        "4 dimensions at 75 %, longest side held: "
        + ", ".join(f"{v:,.0f}" for v in held)
        + "; shortest side held, as section 6 draws them: "
        + ", ".join(f"{v:,.0f}" for v in drawn_so),
        divided=falls > 1 and rises,
    )


def count_dimensions(report: ExperimentReport, seeds: range) -> dict[int, dict[int, list[float]]]:
    """Speed-up at 75 % by the number of dimensions, at equal sides: by bits, then dimensions."""
    found = {
        bits: {d: factors_of(d, bits, bits, seeds)[1][0.75] for d in (2, 4, 6, 8)} for bits in (3, 4, 5, 6, 7)
    }
    rows = [[b, d, float(np.mean(f)), min(f), max(f)] for b, own in found.items() for d, f in own.items()]
    title = "Speed-up at 75 % by dimensions, all sides of the same number of bits"
    columns = ["bits of every side", "dimensions", "speed-up in cubes", "least seed", "greatest seed"]
    report.table("dimensions", title, columns, rows)
    lines = {f"{b} bits": (list(own), [float(np.mean(f)) for f in own.values()]) for b, own in found.items()}
    report.plot("dimensions", title, "dimensions", "speed-up in cubes", lines, log_y=True)
    report.text(
        "With short sides there is hardly a large cube to begin with, and more dimensions leave even "
        "fewer. With longer sides the exhaustive search, which grows as the (d-1)th power of the side, "
        "falls behind the approximate one faster as dimensions are added."
    )
    return found


def weigh_dimensions(report: ExperimentReport, found: dict[int, dict[int, list[float]]]) -> None:
    """Section 1.2: effect of the number of dimensions."""
    means = {b: [float(np.mean(own[d])) for d in (4, 6, 8)] for b, own in found.items()}
    fall = [b for b, own in means.items() if own[0] > own[1] > own[2]]
    rise = [b for b, own in means.items() if own[0] < own[1] < own[2]]
    report.weigh(
        CLAIMS["dimensions"],
        min(a / b for own in means.values() for a, b in itertools.pairwise(own)),
        "4, 6 and 8 dimensions at 75 %, "
        + "; ".join(f"{b} bits: {', '.join(f'{v:,.3g}' for v in own)}" for b, own in means.items()),
        why=f"it falls with sides of {shown(fall)} bits and rises with {shown(rise)}; {UNSAID}",
        divided=bool(fall and rise),
    )


def weigh_sides(report: ExperimentReport, seeds: range) -> None:
    """Theorems 3.1 and 4.1: cost by the length of the sides."""
    lengths = [4, 6, 8, 10, 12, 14, 16]
    cost = {b: factors_of(4, b, b, seeds)[0] for b in lengths}
    near = {b: cost[b][0.7] for b in lengths}
    whole = {b: cost[b][1.0] for b in lengths}
    bound = theory.approximate_bound([(1 << 16) - 1] * 4, 0.3)
    rows = [
        [b, float(np.mean(near[b])), min(near[b]), max(near[b]), float(np.mean(whole[b])), bound]
        for b in lengths
    ]
    title = "Cubes of a search by the length of the sides, 4 dimensions, aspect ratio 0"
    columns = [
        "bits",
        "70 % coverage",
        "least seed",
        "greatest seed",
        "exhaustive",
        "bound of Theorem 3.1, mended",
    ]
    report.table("sides", title, columns, rows)
    lines = {
        "70 % coverage": (lengths, [float(np.mean(near[b])) for b in lengths]),
        "exhaustive": (lengths, [float(np.mean(whole[b])) for b in lengths]),
        "bound of Theorem 3.1, mended": (lengths, [float(bound)] * len(lengths)),
    }
    report.plot("sides", title, "bits of every side", "cubes per search", lines, log_y=True)
    settled = [float(np.mean(near[b])) for b in lengths[2:]]
    report.weigh(
        CLAIMS["independent"],
        max(settled) / min(settled),
        f"8 to 16 bits at 70 %: {', '.join(f'{v:,.0f}' for v in settled)} cubes; at 12 bits "
        f"{spread(near[12])} beside {np.mean(whole[12]):.2g} in all",
    )
    powers = [
        float(np.log2(np.mean(whole[b]) / np.mean(whole[a])) / (b - a))
        for a, b in itertools.pairwise(lengths)
    ]
    report.weigh(
        CLAIMS["power"],
        max(powers[1:], key=lambda power: abs(power - 3)),
        "from length to length by the power " + ", ".join(f"{power:.2f}" for power in powers),
    )
    gains = [float(np.mean(whole[b]) / np.mean(near[b])) for b in lengths]
    report.weigh(
        CLAIMS["rectangle"],
        min(b / a for a, b in itertools.pairwise(gains)),
        f"at 70 %, {lengths[0]} to {lengths[-1]} bits: " + ", ".join(f"{v:,.3g}" for v in gains),
    )


def weigh_bounds(report: ExperimentReport) -> None:
    """The lemma that fails as it is printed."""
    rows = []
    for d, m in itertools.product((2, 3, 4, 6, 8), (1, 2, 4, 8)):
        cubes = theory.count_cubes(theory.widest([m] * d))
        rows.append([d, m, cubes, theory.printed_bound(d, m, 0), theory.mended_bound(d, m, 0)])
    columns = ["dimensions", "m", "most cubes", "Lemma 3.6 as printed", "mended"]
    report.table("bounds", "Cubes of the worst rectangle, aspect ratio 0, and the bounds", columns, rows)
    failing = [row for row in rows if row[2] >= row[3]]
    report.weigh(
        CLAIMS["lemma"],
        max(row[2] / row[3] for row in rows),
        f"sides 3, 3, 3, 3 with m = 2: {theory.count_cubes([3] * 4)} cubes, bound "
        f"{theory.printed_bound(4, 2, 0)}; {len(failing)} of {len(rows)} cases of the table exceed it",
    )
    report.checked(
        "the bound of lemma 3.6 with a factor d",
        all(r[2] <= r[4] for r in rows),
        f"in {len(rows)} of {len(rows)} cases",
    )


def weigh_curves(report: ExperimentReport, seeds: range) -> None:
    """Runs of the same rectangles on three curves."""
    rows: list[list[Any]] = []
    ratios: dict[int, list[float]] = {}
    for d, lengths in {2: (4, 6, 8), 3: (3, 4, 5), 4: (2, 3, 4)}.items():
        for bits in lengths:
            rectangles = drawn(d, bits, bits, seeds[0], 20)
            runs = [
                float(np.mean([theory.count_curve_runs(curve, sides, bits) for sides in rectangles]))
                for curve in theory.CURVES
            ]
            cubes = float(np.mean([theory.count_cubes(sides) for sides in rectangles]))
            rows.append([d, bits, cubes, *runs])
            ratios.setdefault(d, []).append(runs[0] / runs[2])
    columns = ["dimensions", "bits of every side", "cubes", *(f"runs of {curve}" for curve in theory.CURVES)]
    report.table("curves", "Runs of 20 extremal rectangles on three curves", columns, rows)
    worst = [max(own) / min(own) for own in ratios.values()]
    report.weigh(
        CLAIMS["curves"],
        max(worst),
        "; ".join(
            f"{d} dimensions: Z {', '.join(f'{r:.2f}' for r in own)} times Hilbert"
            for d, own in ratios.items()
        ),
    )


def weigh_thesis(
    report: ExperimentReport, timed: dict[tuple[int, int], TimedSearch], found: dict[str, dict[float, float]]
) -> None:
    """The thesis of the paper, beside an exact search that does without the curve."""
    first = timed[min(timed)]
    shares = {name: own[0.9] for name, own in found.items() if name != "what even spread would give"}
    report.weigh(
        CLAIMS["blocks"],
        first.blocks / first.micros[0.9],
        f"at 90 % coverage a search takes {first.micros[0.9]:,.0f} us, an exhaustive one along the curve "
        f"{first.micros[1.0]:,.0f}, our exact one by blocks {first.blocks:,.1f}; covers found: "
        + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()),
    )


def shown(values: list[int]) -> str:
    """Numbers in a sentence."""
    return " and ".join(map(str, values)) if values else "none"


# What the covering experiment takes times of: searches along the curve and by blocks, covers found, routing.
#
# The cubes of a search need no run (theory.py); here the searches are made, on an index in which none ends
# early, and the cubes that they examined must be as many as the lemmas say.

BITS = 10
COVERAGES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
SEED = 2012
ATTEMPTS = 3
MOST_CUBES = 5_000_000


def n_stored(report: ExperimentReport) -> int:
    """How many subscriptions a search is made in."""
    return 5_000 if report.quick else 100_000


def draw_sides(n_dims: int, shortest: int, longest: int, n: int, rng: np.random.Generator) -> Sides:
    """Rectangles whose shortest side has `shortest` bits and whose longest has `longest`."""
    out = np.empty((n_dims, n), np.int64)
    for i in range(n):
        bits = rng.integers(shortest, longest + 1, n_dims)
        ends = rng.permutation(n_dims)[:2]
        bits[ends[0]], bits[ends[1]] = shortest, longest
        out[:, i] = rng.integers(1 << (bits - 1), 1 << bits)
    return out


def subscriptions_of(schema: Schema, sides: Sides, first_id: int) -> Subscriptions:
    """The subscriptions whose extremal rectangles have these sides (`covering/searches.py` has the cells)."""
    ids = np.arange(first_id, first_id + sides.shape[1])
    return Subscriptions(schema, ids, sides[0::2] - 3, (1 << BITS) - 2 - sides[1::2])


def _index(n_dims: int, queries: Sides, n: int, rng: np.random.Generator) -> CoverIndex:
    """An index of random subscriptions, none of which covers any of the queries."""
    span = (1 << BITS) - 4
    schema = Schema(*(Int(f"a{j}", 0, span) for j in range(n_dims // 2)))
    ends = np.sort(rng.integers(0, span + 1, (2, n_dims // 2, n)), axis=0)
    asked = subscriptions_of(schema, queries, 0)
    for q in range(queries.shape[1]):
        above = (ends[0] <= asked.lows[:, [q]]).all(0) & (ends[1] >= asked.highs[:, [q]]).all(0)
        ends = ends[:, :, ~above]
    index = CoverIndex(schema, bits=BITS, max_cubes=1 << 40)
    index.insert(Subscriptions(schema, np.arange(ends.shape[2]), ends[0], ends[1]))
    return index


def _seconds(work: Callable[[], Any]) -> float:
    return take_rounds(work, ATTEMPTS, clock=THREAD, enough=0.3).best


class TimedSearch(NamedTuple):
    """Searches of one shape: how many, and of each by coverage the microseconds, cubes and runs."""

    n: int
    micros: dict[float, float]
    cubes: dict[float, float]
    runs: dict[float, float]
    blocks: float


def time_searches(
    n_dims: int, shortest: int, longest: int, n_queries: int, n_boxes: int, seed: int
) -> TimedSearch:
    """Searches of one shape by the curve at every coverage, and by blocks, where nothing is to be found."""
    rng = np.random.default_rng([SEED, n_dims, longest - shortest, shortest, seed])
    sides = draw_sides(n_dims, shortest, longest, n_queries, rng)
    cubes = np.cumsum([theory.count_cubes(column) for column in sides.T.tolist()])
    sides = sides[:, : max(3, int(np.searchsorted(cubes, MOST_CUBES)))]
    n = sides.shape[1]
    index = _index(n_dims, sides, n_boxes, rng)
    asked = subscriptions_of(index.schema, sides, 1 << 40)
    index.covers(asked, 0.9, "curve")
    index.covers(asked)
    found = TimedSearch(n, {}, {}, {}, 1e6 * _seconds(lambda: index.covers(asked)) / n)
    for coverage in COVERAGES:
        epsilon = 1 - coverage
        seconds = _seconds(lambda e=epsilon: index.covers(asked, e, "curve"))  # type: ignore[misc]
        stats = index.stats()
        assert stats["last_hits"] == 0
        assert stats["last_share"] >= coverage - 1e-9
        found.micros[coverage] = 1e6 * seconds / n
        found.cubes[coverage] = stats["last_cubes"] / n
        found.runs[coverage] = stats["last_runs"] / n
    # the paper's count is the search's
    assert round(found.cubes[1.0] * n) == cubes[n - 1]
    return found


def clustered(
    schema: Schema, n: int, centres: int, narrowest: int, widest: int, rng: np.random.Generator
) -> Subscriptions:
    """Boxes around some centres, half as wide as between narrowest and widest, evenly in logarithms."""
    span = (1 << BITS) - 4
    d = len(schema)
    middle = rng.integers(0, span + 1, (d, centres))[:, rng.integers(0, centres, n)]
    half = (2 ** rng.uniform(np.log2(narrowest), np.log2(widest), (d, n))).astype(np.int64)
    return Subscriptions(schema, np.arange(n), np.maximum(middle - half, 0), np.minimum(middle + half, span))


def _schema(n_attributes: int) -> Schema:
    return Schema(*(Int(f"a{j}", 0, (1 << BITS) - 4) for j in range(n_attributes)))


def find_covers(report: ExperimentReport) -> dict[str, dict[float, float]]:
    """How many of the true covers an approximate search finds."""
    n, n_asked = (2_000, 60) if report.quick else (100_000, 300)
    rows: list[list[Any]] = []
    series: dict[str, tuple[list[float], list[float]]] = {}
    for name, centres, narrowest, widest in (
        ("clustered", 50, 1, 200),
        ("scattered", n, 1, 200),
        ("alike in size", n, 8, 20),
    ):
        report.say(f"covers found: {name}")
        rng = np.random.default_rng(SEED)
        schema = _schema(2)
        subs = clustered(schema, n + n_asked, centres, narrowest, widest, rng)
        index = CoverIndex(schema, bits=5, max_cubes=1 << 40)
        index.insert(subs.select(np.arange(n)))
        asked = subs.select(np.arange(n, n + n_asked))
        truth = index.covered(asked)
        exact = _seconds(lambda index=index, asked=asked: index.covered(asked))  # type: ignore[misc]
        found = []
        for coverage in COVERAGES:
            epsilon = 1 - coverage
            got = index.covered(asked, epsilon, "curve")
            taken = _seconds(lambda index=index, asked=asked, e=epsilon: index.covered(asked, e, "curve"))  # type: ignore[misc]
            assert not (got & ~truth).any()
            share = float(got.sum() / truth.sum())
            found.append(share)
            rows.append([name, coverage, share, 1e6 * taken / n_asked, 1e6 * exact / n_asked])
        assert found[-1] == 1
        series[name] = (list(COVERAGES), found)
    series["what even spread would give"] = (list(COVERAGES), list(COVERAGES))
    columns = [
        "subscriptions",
        "coverage",
        "share of the covered found",
        "us per search",
        "us by blocks, exact",
    ]
    report.table("found", f"Covers found, 2 attributes, {n:,} subscriptions", columns, rows)
    report.plot("found", "Covered subscriptions that are found", "space coverage", "share found", series)
    report.text(
        "Not in the paper: the share of the volume that is searched is not the share of covers that are "
        "found. The largest cubes lie far from the query's point, where boxes much larger than the query "
        "are: where sizes vary widely (clustered, scattered) covers are found sooner than an even spread "
        "would suggest. Where subscriptions are alike in size, a cover is only a little larger than what "
        "it covers, near the query's corner, which is cut into the smallest cubes and searched last."
    )
    return {name: dict(zip(*line, strict=True)) for name, line in series.items()}


def route(report: ExperimentReport) -> None:
    """Routing tables and messages over epsilon, and without and with covering in a larger network."""
    size = (5, 60, 20) if report.quick else (40, 1_000, 20)
    modes = (None, 0.5, 0.3, 0.1, 0.0)
    # a small network first: compiling is not routing
    _route(report, [], "clustered", modes, 3, 40, 20)
    rows: list[list[Any]] = []
    tables: dict[str, tuple[list[float], list[float]]] = {}
    for name in ("clustered", "scattered"):
        entries = _route(report, rows, name, modes, *size)
        tables[name] = ([1.0, *modes[1:]], [e / size[1] for e in entries])
    if not report.quick:
        _route(report, rows, "clustered", (None, 0.0), 100, 2_000, 40)
    columns = [
        "subscriptions",
        "routers",
        "epsilon",
        "table entries a router",
        "of all subscriptions",
        "subscription messages",
        "event messages",
        "notifications",
        "us per subscription, all routers",
    ]
    report.table("routing", "Random trees of routers", columns, rows)
    report.plot(
        "routing",
        f"Routing tables of {size[0]} routers (1: no covering, 0: exact)",
        "epsilon",
        "table entries a router / subscriptions",
        tables,
    )
    report.text(
        "Every row of one workload has the same notifications: covering saves table entries and messages "
        "and changes nothing else. `none` means without covering; epsilon 0 is the exact search by blocks, "
        "and the others are searches along the curve with 5 bits per coordinate. Times are processor time."
    )


def _route(
    report: ExperimentReport,
    rows: list[list[Any]],
    name: str,
    modes: tuple[float | None, ...],
    n_routers: int,
    n: int,
    batch: int,
) -> list[float]:
    """One workload in each mode: table entries a router; a row of the table each."""
    schema = _schema(2)
    centres = 20 if name == "clustered" else n
    subs = clustered(schema, n, centres, 1, 200, np.random.default_rng(SEED))
    homes = np.random.default_rng(SEED + 1).integers(0, n_routers, n // batch).tolist()
    events = _events(schema, subs, np.random.default_rng(SEED + 2))
    entries = []
    answers = set()
    for epsilon in modes:
        mode = "none" if epsilon is None else f"{epsilon:g}"
        report.say(f"routing: {name}, {n_routers} routers, epsilon {mode}")
        method = "curve" if epsilon else None
        network = Network.random_tree(
            schema, n_routers, SEED, epsilon=epsilon, method=method, bits=5, max_cubes=1 << 40
        )
        parts = [subs.select(np.arange(i * batch, (i + 1) * batch)) for i in range(len(homes))]
        seconds, _ = timed(_subscribe, network, homes, parts, clock=PROCESS)
        notified = network.publish(0, events)
        answers.add((notified.n_pairs, int(notified.ids.sum())))
        stats = network.stats()
        entries.append(stats["table_entries"] / n_routers)
        rows.append(
            [
                f"{name}, {n:,}",
                n_routers,
                mode,
                entries[-1],
                entries[-1] / n,
                stats["subscription_messages"],
                stats["event_messages"],
                stats["notifications"],
                1e6 * seconds / n,
            ]
        )
    # covering never changes who hears of what
    assert len(answers) == 1
    return entries


def _subscribe(network: Network, homes: list[int], parts: list[Subscriptions]) -> None:
    for home, part in zip(homes, parts, strict=True):
        network.subscribe(home, part)


def _events(schema: Schema, subs: Subscriptions, rng: np.random.Generator) -> Events:
    """Events in the middle of some subscriptions, so that they find someone."""
    picked = rng.integers(0, len(subs), 200)
    return Events(schema, (subs.lows[:, picked] + subs.highs[:, picked]) // 2)
