"""The claims of the covering paper, with one seed: cubes counted, one search timed."""

from __future__ import annotations

import itertools

import numpy as np

from rangecast.papers.covering import curves, extremal, theory
from rangecast.papers.covering.experiment import ASPECTS, SHORTEST, drawn, mean_cubes
from rangecast.papers.covering.searches import COVERAGES, time_searches
from rangecast.papers.report import ExperimentReport
from rangecast.papers.seeds.ratio import Ratio, SeedRatios

PAGE = "the page's size"
FIRST_SEED = 100  # the page counts with those below
SHAPES = {"4, 0.7": (4, 0.7, 500), "4, 0.9": (4, 0.9, 20), "8, 0.75": (8, 0.75, 3)}
STORED = 100_000
MANY = 500

RATIOS = {
    "inverse": Ratio(
        "the speed-up is above the inverse of the space coverage in every case",
        "least of speed-up times coverage",
        1,
        at=PAGE,
    ),
    **{
        key: Ratio(
            f"{d} dimensions, {coverage:.0%} coverage: a speed-up of nearly {wanted}",
            "speed-up at aspect ratio 0",
            wanted / 2,
            wanted * 2,
            PAGE,
        )
        for key, (d, coverage, wanted) in SHAPES.items()
    },
    "alike": Ratio(
        "these speed-ups are about the same for aspect ratios 0, 1 and 2",
        "greatest / least of the three, 4 dimensions at 70 %",
        0,
        2,
        PAGE,
    ),
    "aspect": Ratio(
        "the speed-up falls as the aspect ratio grows",
        "aspect ratio 0 / 3, 4 dimensions at 75 %, shortest side held",
        1,
        at=PAGE,
    ),
    "dimensions": Ratio(
        "the speed-up falls with the number of dimensions",
        "4 / 8 dimensions at 75 %, least over sides of 3 to 6 bits",
        1,
        at=PAGE,
    ),
    "independent": Ratio(
        "the cost of an approximate search does not depend on the length of the sides (theorem 3.1)",
        "most / fewest cubes at 70 % over sides of 8, 12 and 16 bits",
        0,
        1.5,
        f"{MANY} rectangles, as on the page",
    ),
    "power": Ratio(
        "the cost of an exhaustive search grows as the (d-1)th power of the side (theorem 4.1)",
        "the power, 4 dimensions, from 6 to 16 bits",
        2.75,
        3.25,
        f"{MANY} rectangles, as on the page",
    ),
    "rectangle": Ratio(
        "the larger the rectangle with the aspect ratio the same, the larger the speed-up",
        "least growth of the speed-up at 70 % over sides of 4, 8, 12 and 16 bits",
        1,
        at=f"{MANY} rectangles, as on the page",
    ),
    "lemma": Ratio(
        "cubes(R^m) is below m * (2^alpha * (2^m - 1))^(d-1) (lemma 3.6)",
        "cubes / bound, sides 3, 3, 3, 3 (nothing is drawn)",
        0,
        1,
        PAGE,
    ),
    "curves": Ratio(
        "Z and Hilbert curve are within a constant fraction of each other (section 1.1, from Moon et al.)",
        "greatest / least of runs of Z / of Hilbert over the sizes, 2 and 3 dimensions",
        0,
        2,
        PAGE,
    ),
    "blocks": Ratio(
        "approximate covering gives much of the benefit at a fraction of the cost",
        "exact search by blocks / search at 90 % coverage",
        1,
        at=f"{STORED:,} subscriptions, as on the page",
    ),
}


def take(report: ExperimentReport, seed: int) -> SeedRatios:
    """All of them."""
    own = FIRST_SEED + seed
    dimensions = (4, 6) if report.quick else tuple(SHORTEST)
    figures = {(d, a): _speedups(d, SHORTEST[d], SHORTEST[d] + a, own) for d in dimensions for a in ASPECTS}
    figures |= {(8, 0): _speedups(8, 3, 3, own)}
    alike = [figures[4, a][0.7] for a in (0, 1, 2)]
    by_bits = [_speedups(4, b, b, own)[0.75] / _speedups(8, b, b, own)[0.75] for b in (3, 4, 5, 6)]
    lengths = (4, 6, 8, 12, 16)
    sets = {b: drawn(4, b, b, own, MANY) for b in lengths}
    near = {b: mean_cubes(sets[b], 0.7) for b in lengths}
    whole = {b: mean_cubes(sets[b], 1.0) for b in lengths}
    gains = [whole[b] / near[b] for b in (4, 8, 12, 16)]
    settled = [near[b] for b in (8, 12, 16)]
    side, n = (4, 5) if report.quick else (6, 50)
    timed = time_searches(4, side, side, n, 500 if report.quick else STORED, own)
    return {
        "inverse": min(c * speedup for line in figures.values() for c, speedup in line.items() if c < 1),
        **{key: figures[d, 0][coverage] for key, (d, coverage, _) in SHAPES.items()},
        "alike": max(alike) / min(alike),
        "aspect": figures[4, 0][0.75] / figures[4, 3][0.75],
        "dimensions": min(by_bits),
        "independent": max(settled) / min(settled),
        "power": float(np.log2(whole[16] / whole[6]) / 10),
        "rectangle": min(b / a for a, b in itertools.pairwise(gains)),
        "lemma": extremal.count_cubes([3] * 4) / theory.printed_bound(4, 2, 0),
        "curves": _curves(own),
        "blocks": timed.blocks / timed.micros[0.9],
    }


def _speedups(n_dims: int, shortest: int, longest: int, seed: int) -> dict[float, float]:
    rectangles = drawn(n_dims, shortest, longest, seed)
    cubes = {c: mean_cubes(rectangles, c) for c in COVERAGES}
    return {c: cubes[1.0] / own for c, own in cubes.items()}


def _curves(seed: int) -> float:
    worst = []
    for d, lengths in {2: (4, 6, 8), 3: (3, 4, 5)}.items():
        ratios = []
        for bits in lengths:
            rectangles = drawn(d, bits, bits, seed, 20)
            runs = [
                float(np.mean([curves.count_runs(curve, sides, bits) for sides in rectangles]))
                for curve in (curves.CURVES[0], curves.CURVES[2])
            ]
            ratios.append(runs[0] / runs[1])
        worst.append(max(ratios) / min(ratios))
    return max(worst)
