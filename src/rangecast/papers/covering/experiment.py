"""The experiments of Shen and Tirthapura (2012): what an approximate search for covers saves.

The paper's algorithm searches standard cubes one after the other, so its yardstick is the cubes that a
search examines; ours joins neighbours into runs at no cost, so its times would flatter the paper. Lemma 3.4
gives the cubes without a search, so every figure is counted over several seeds; searches are timed beside
them (searches.py), and examine as many.

Figures 7 to 9, in 4, 6 and 8 dimensions (2, 3 and 4 attributes): 50 extremal rectangles per point with a
fixed number of bits of the shortest side and an aspect ratio. Then the theory: cost by the length of the
sides, the number of dimensions at equal sides, the bounds of the lemmas (theory.py), and other curves than Z
(curves.py). Last what the paper leaves out: how many of the covers an approximate search finds, and what
becomes of routing tables.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

from rangecast.papers.covering import curves, extremal, searches, theory
from rangecast.papers.covering.searches import COVERAGES, TimedSearch, draw_sides, n_stored, time_searches
from rangecast.papers.report import ExperimentReport, spread

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


def run(report: ExperimentReport) -> None:
    """Count, time, weigh the claims, write the page."""
    seeds = 3 if report.quick else 10
    say_departures(report, seeds)
    figures = {d: count_figure(report, d, SHORTEST[d], seeds) for d in SHORTEST}
    longest = count_longest(report, seeds)
    timed = time_figures(report)
    weigh_figures(report, figures, longest, timed)
    by_dims = count_dimensions(report, seeds)
    weigh_dimensions(report, by_dims)
    weigh_sides(report, seeds)
    weigh_bounds(report)
    weigh_curves(report)
    found = searches.find_covers(report)
    weigh_thesis(report, timed, found)
    searches.route(report)
    report.write("Covering: approximate and exact search for covers", SOURCE)


def say_departures(report: ExperimentReport, seeds: int) -> None:
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
        f"50 with each of {seeds} seeds (counted)",
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
        f"at most 50, and as many as examine {searches.MOST_CUBES:,} cubes together",
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
        f"k = {searches.BITS}; for covers found and routing 5",
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
    rng = np.random.default_rng([searches.SEED, n_dims, shortest, longest, seed])
    rows: list[list[int]] = draw_sides(n_dims, shortest, longest, n, rng).T.tolist()
    return rows


def mean_cubes(rectangles: list[list[int]], coverage: float) -> float:
    """Cubes per search that hold a share of the volume."""
    return float(np.mean([extremal.cubes_until(sides, 1 - coverage) for sides in rectangles]))


def factors_of(
    n_dims: int, shortest: int, longest: int, seeds: int
) -> tuple[dict[float, list[float]], Factors]:
    """Cubes and speed-ups in cubes by coverage, one value per seed."""
    sets = [drawn(n_dims, shortest, longest, seed) for seed in range(seeds)]
    cubes = {c: [mean_cubes(rectangles, c) for rectangles in sets] for c in COVERAGES}
    speedups = {c: [a / b for a, b in zip(cubes[1.0], own, strict=True)] for c, own in cubes.items()}
    return cubes, speedups


def count_figure(report: ExperimentReport, n_dims: int, shortest: int, seeds: int) -> dict[int, Factors]:
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


def count_longest(report: ExperimentReport, seeds: int) -> dict[int, Factors]:
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


def time_figures(report: ExperimentReport) -> dict[tuple[int, int], TimedSearch]:
    """The searches themselves, as many as can be afforded."""
    shapes = (
        [(4, 4, 0), (4, 4, 1)] if report.quick else [(d, SHORTEST[d], a) for d in SHORTEST for a in (0, 1, 2)]
    )
    if not report.quick:
        # one search of this shape examines more cubes than all others together
        shapes.remove((8, 3, 2))
    n = 10 if report.quick else 50
    timed: dict[tuple[int, int], TimedSearch] = {}
    rows: list[list[Any]] = []
    for d, shortest, aspect in shapes:
        search = report.measured(
            f"searches in {d} dimensions, aspect ratio {aspect}",
            partial(time_searches, d, shortest, shortest + aspect, n, n_stored(report), 0),
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
    report.claim(
        "the speed-up is above the inverse of the space coverage in every case",
        above == len(cases),
        f"with every seed in {above} of {len(cases)} cases; in time in {sum(f > 1 / c for c, f in in_time)} "
        "of "
        f"{len(in_time)}",
        by=CUBES,
        why="see the figures",
        counted=True,
    )
    for d, coverage, wanted in ((4, 0.7, 500), (4, 0.9, 20), (8, 0.75, 3)):
        own = [figures[d][a][coverage] for a in (0, 1, 2)]
        least = float(np.mean(own[0]))
        report.claim(
            f"{d} dimensions, {coverage:.0%} coverage: a speed-up of nearly {wanted}",
            wanted / 2 <= least <= wanted * 2,
            f"aspect ratio 0: {spread(own[0])}; 1: {spread(own[1])}; 2: {spread(own[2])}",
            by=f"{CUBES}; within a factor of 2 at aspect ratio 0",
            why=UNSAID,
            counted=True,
        )
    alike = [figures[4][a][0.7] for a in (0, 1, 2)]
    report.claim(
        "these speed-ups are about the same for aspect ratios 0, 1 and 2",
        max(np.mean(f) for f in alike) < 2 * min(np.mean(f) for f in alike),
        "4 dimensions at 70 %: " + "; ".join(spread(f) for f in alike),
        by=f"{CUBES}; within a factor of 2 of each other",
        why="with the shortest side held, a larger aspect ratio is a larger rectangle, and these gain more",
        counted=True,
    )
    held = [float(np.mean(own[0.75])) for own in longest.values()]
    drawn_so = [float(np.mean(own[0.75])) for own in figures[4].values()]
    falls = all(a > b for a, b in itertools.pairwise(held))
    rises = all(a < b for a, b in itertools.pairwise(drawn_so))
    report.claim(
        "the speed-up falls as the aspect ratio grows",
        None if falls and rises else falls,
        "4 dimensions at 75 %, longest side held: "
        + ", ".join(f"{v:,.0f}" for v in held)
        + "; shortest side held, as section 6 draws them: "
        + ", ".join(f"{v:,.0f}" for v in drawn_so),
        by=CUBES,
        why="it turns on which side is held: the paper draws rectangles one way and argues the other",
        counted=True,
    )


def count_dimensions(report: ExperimentReport, seeds: int) -> dict[int, dict[int, list[float]]]:
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
    report.claim(
        "the speed-up falls with the number of dimensions",
        None if fall and rise else bool(fall),
        "4, 6 and 8 dimensions at 75 %, "
        + "; ".join(f"{b} bits: {', '.join(f'{v:,.3g}' for v in own)}" for b, own in means.items()),
        by=f"{CUBES}, at equal sides and aspect ratio 0",
        why=f"it falls with sides of {shown(fall)} bits and rises with {shown(rise)}; {UNSAID}",
        counted=True,
    )


def weigh_sides(report: ExperimentReport, seeds: int) -> None:
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
    report.claim(
        "the cost of an approximate search does not depend on the length of the sides (theorem 3.1)",
        max(settled) < 1.5 * min(settled),
        f"8 to 16 bits at 70 %: {', '.join(f'{v:,.0f}' for v in settled)} cubes; at 12 bits "
        f"{spread(near[12])} "
        f"beside {np.mean(whole[12]):.2g} in all",
        by=f"{CUBES}; within a factor of 1.5 from 8 bits on",
        counted=True,
    )
    powers = [
        float(np.log2(np.mean(whole[b]) / np.mean(whole[a])) / (b - a))
        for a, b in itertools.pairwise(lengths)
    ]
    report.claim(
        "the cost of an exhaustive search grows as the (d-1)th power of the side (theorem 4.1)",
        all(abs(power - 3) < 0.25 for power in powers[1:]),
        "from length to length by the power " + ", ".join(f"{power:.2f}" for power in powers),
        by=f"{CUBES}; within 0.25 of 3 from 6 bits on",
        counted=True,
    )
    gains = [float(np.mean(whole[b]) / np.mean(near[b])) for b in lengths]
    report.claim(
        "the larger the rectangle with the aspect ratio the same, the larger the speed-up",
        all(a < b for a, b in itertools.pairwise(gains)),
        f"at 70 %, {lengths[0]} to {lengths[-1]} bits: " + ", ".join(f"{v:,.3g}" for v in gains),
        by=CUBES,
        counted=True,
    )


def weigh_bounds(report: ExperimentReport) -> None:
    """The lemma that fails as it is printed."""
    rows = []
    for d, m in itertools.product((2, 3, 4, 6, 8), (1, 2, 4, 8)):
        cubes = extremal.count_cubes(theory.widest([m] * d))
        rows.append([d, m, cubes, theory.printed_bound(d, m, 0), theory.mended_bound(d, m, 0)])
    columns = ["dimensions", "m", "most cubes", "Lemma 3.6 as printed", "mended"]
    report.table("bounds", "Cubes of the worst rectangle, aspect ratio 0, and the bounds", columns, rows)
    failing = [row for row in rows if row[2] >= row[3]]
    report.claim(
        "cubes(R^m) is below m * (2^alpha * (2^m - 1))^(d-1) (lemma 3.6)",
        not failing,
        f"sides 3, 3, 3, 3 with m = 2: {extremal.count_cubes([3] * 4)} cubes, bound "
        f"{theory.printed_bound(4, 2, 0)}; "
        f"{len(failing)} of {len(rows)} cases of the table exceed it",
        by="cubes counted one by one",
        why="case 2.1 of the proof assumes 2^alpha > d - 1 and its last line drops a term; with a factor d "
        "before it the "
        "bound holds (theory.py has the proof), and theorem 3.1 keeps its order in epsilon",
        counted=True,
    )
    report.checked(
        "the bound of lemma 3.6 with a factor d",
        all(r[2] <= r[4] for r in rows),
        f"in {len(rows)} of {len(rows)} cases",
    )


def weigh_curves(report: ExperimentReport) -> None:
    """Runs of the same rectangles on three curves."""
    rows: list[list[Any]] = []
    ratios: dict[int, list[float]] = {}
    for d, lengths in {2: (4, 6, 8), 3: (3, 4, 5), 4: (2, 3, 4)}.items():
        for bits in lengths:
            rectangles = drawn(d, bits, bits, 0, 20)
            runs = [
                float(np.mean([curves.count_runs(curve, sides, bits) for sides in rectangles]))
                for curve in curves.CURVES
            ]
            cubes = float(np.mean([extremal.count_cubes(sides) for sides in rectangles]))
            rows.append([d, bits, cubes, *runs])
            ratios.setdefault(d, []).append(runs[0] / runs[2])
    columns = ["dimensions", "bits of every side", "cubes", *(f"runs of {curve}" for curve in curves.CURVES)]
    report.table("curves", "Runs of 20 extremal rectangles on three curves", columns, rows)
    worst = [max(own) / min(own) for own in ratios.values()]
    report.claim(
        "Z and Hilbert curve are within a constant fraction of each other (section 1.1, from Moon et al.)",
        max(worst) < 2,
        "; ".join(
            f"{d} dimensions: Z {', '.join(f'{r:.2f}' for r in own)} times Hilbert"
            for d, own in ratios.items()
        ),
        by="runs per rectangle; the ratio changes by less than 2 over the sizes",
        why="the ratio grows with the rectangle",
        counted=True,
    )


def weigh_thesis(
    report: ExperimentReport, timed: dict[tuple[int, int], TimedSearch], found: dict[str, dict[float, float]]
) -> None:
    """The thesis of the paper, beside an exact search that does without the curve."""
    first = timed[min(timed)]
    shares = {name: own[0.9] for name, own in found.items() if name != "what even spread would give"}
    report.claim(
        "approximate covering gives much of the benefit at a fraction of the cost",
        None if report.quick else first.micros[0.9] < first.blocks,
        f"at 90 % coverage a search takes {first.micros[0.9]:,.0f} us, an exhaustive one along the curve "
        f"{first.micros[1.0]:,.0f}, our exact one by blocks {first.blocks:,.1f}; covers found: "
        + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()),
        by="time of a search in 4 dimensions beside the cheapest exact search, and share of the covers found",
        why="beside an exhaustive search along the same curve it does; an exact search that does not go "
        "along a curve "
        "costs less than either, and where subscriptions are alike in size few covers are found",
    )


def shown(values: list[int]) -> str:
    """Numbers in a sentence."""
    return " and ".join(map(str, values)) if values else "none"
