"""The claims of the interval paper, with one seed: its storage counted, its searches timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rangecast.engine import open_index
from rangecast.papers.report import ExperimentReport
from rangecast.papers.seeds.ratio import Ratio, SeedRatios, best_micros
from rangecast.papers.vci import experiment as vci
from rangecast.papers.vci.closed import paper_bytes
from rangecast.workloads import workload

SIZES = (1_000, 128_000)
CROSSING = (16_000, 32_000, 64_000, 128_000, 256_000)
AT = f"{SIZES[0]:,} and {SIZES[1]:,} predicates"
MOST = f"{SIZES[1]:,} predicates"
PAGE = "the page's size"

RATIOS = {
    "less": Ratio("LCI needs less than SCI", "greatest LCI / SCI, L from 8 on", 0, 1, PAGE),
    "clip": Ratio(
        "Clipping the bitmap is critical for both", "lesser of SCI / SCI-BC and LCI / LCI-BC", 5, at=PAGE
    ),
    "up to 128": Ratio(
        "For L up to 128, SCI-BC needs less than LCI", "greatest SCI-BC / LCI, L to 128", 0, 1, PAGE
    ),
    "apart": Ratio(
        "On a small domain LCI-BC and LCI-BV can hardly be told apart, and need the least",
        "greatest distance / height of the figure",
        0,
        0.01,
        PAGE,
    ),
    "cross": Ratio(
        "Dlist needs more than LCI from about 32,000 predicates on, IS-lists from about 128,000",
        "the farther of both crossings from the paper's, as a factor",
        0,
        1.5,
        f"{CROSSING[0]:,} to {CROSSING[-1]:,} predicates",
    ),
    "largest": Ratio("Dlist is the largest", "Dlist / largest other", 1, at=f"{CROSSING[-1]:,} predicates"),
    "few": Ratio(
        "On a small domain LCI-BC and LCI-BV need less than IS-lists, for few predicates too",
        "IS-lists / larger of LCI-BC and LCI-BV",
        1,
        at=f"{SIZES[0]:,} predicates",
    ),
    "wide": Ratio(
        "On a large domain IS-lists need less for few predicates, and more for many",
        "predicates from which IS-lists need more than LCI-BV(DT)",
        SIZES[0],
        at=f"{CROSSING[0]:,} to {CROSSING[-1]:,} predicates",
    ),
    "find Dlist": Ratio("Finding is fastest with Dlist", "fastest other scheme / Dlist", 1, at=MOST),
    "find LCI": Ratio(
        "Finding with LCI takes about the same time for any number of predicates",
        "LCI, most / fewest predicates",
        0,
        10,
        AT,
    ),
    "find BC": Ratio("LCI-BC is only a little slower than LCI", "LCI-BC / LCI", 1, 1.5, MOST),
    "find BV": Ratio(
        "LCI-BV is much slower than LCI when many constructs are active", "LCI-BV / LCI", 2, at=MOST
    ),
    "find DT": Ratio(
        "The distance table makes virtual bitmaps faster than bitmaps",
        "faster of LCI and LCI-BV / LCI-BV(DT)",
        1,
        at=MOST,
    ),
    "grow IS": Ratio(
        "IS-lists degrade quickly as n grows, and LCI does not",
        "growth of IS-lists, collecting / growth of LCI, finding",
        10,
        at=AT,
    ),
    "deliver DT": Ratio(
        "LCI-BV(DT) is better than IS-lists in storage and search time for many predicates (conclusion 4)",
        "IS-lists / LCI-BV(DT), lesser of bytes and delivering",
        1,
        at=MOST,
    ),
}


def take(report: ExperimentReport, seed: int) -> SeedRatios:
    """All of them."""
    sizes = (200, 2_000) if report.quick else SIZES
    return _figure_5(seed) | _storage(report, seed, sizes[0]) | _searches(seed, sizes)


def _figure_5(seed: int) -> SeedRatios:
    drawn = workload("intervals", 10_000, 1, r=5_000, w=500, seed=seed)
    lows, highs = drawn.lows["value"], drawn.highs["value"]
    lengths = [2**k for k in range(1, 9)]
    held = {
        name: {length: paper_bytes(name, lows, highs, 5_000, length) for length in lengths}
        for name in ("SCI", "SCI-BC", "LCI", "LCI-BC", "LCI-BV")
    }
    top = lengths[-1]
    return {
        "less": max(held["LCI"][x] / held["SCI"][x] for x in lengths if x >= 8),
        "clip": min(held[name][top] / held[f"{name}-BC"][top] for name in ("SCI", "LCI")),
        "up to 128": max(held["SCI-BC"][x] / held["LCI"][x] for x in lengths if x <= 128),
        "apart": max(held["LCI-BC"][x] - held["LCI-BV"][x] for x in lengths)
        / max(max(curve.values()) for curve in held.values()),
    }


def _bytes(r: int, n: int, seed: int, names: tuple[str, ...]) -> dict[str, vci.SchemePoint]:
    drawn = workload("intervals", n, 1, r=r, w=200, seed=seed)
    index = open_index("islist", drawn.schema)
    index.insert(drawn.subscriptions())
    bounds = drawn.lows["value"], drawn.highs["value"]
    held = {name: paper_bytes(name, *bounds, r, vci.LENGTH) for name in names}
    held["IS-lists"] = vci.own_bytes(index)
    return {name: vci.SchemePoint(0, 0, size / 1e6, 0, 0) for name, size in held.items()}


def _storage(report: ExperimentReport, seed: int, few: int) -> SeedRatios:
    schemes = ("LCI", "LCI-BC", "LCI-BV", "LCI-BV(DT)", "Dlist")
    sizes = (16_000, 256_000) if report.quick else CROSSING
    small = {n: _bytes(5_000, n, seed, schemes) for n in (few, *sizes)}
    wide = {n: _bytes(250_000, n, seed, schemes[-2:-1]) for n in sizes}
    curves = {name: {n: small[n][name] for n in sizes} for name in small[few]}
    far = [
        max(at / said, said / at)
        for name, said in (("Dlist", 32_000), ("IS-lists", 128_000))
        for at in [vci.crossing(curves["LCI"], curves[name]) or 1.0]
    ]
    most = {name: point.megabytes for name, point in small[sizes[-1]].items()}
    first = {name: point.megabytes for name, point in small[few].items()}
    crossed = vci.crossing(*({n: wide[n][name] for n in sizes} for name in ("LCI-BV(DT)", "IS-lists")))
    return {
        "cross": max(far),
        "largest": most["Dlist"] / max(size for name, size in most.items() if name != "Dlist"),
        "few": first["IS-lists"] / max(first["LCI-BC"], first["LCI-BV"]),
        "wide": crossed or 0.0,
    }


def _searches(seed: int, sizes: tuple[int, int]) -> SeedRatios:
    finding: dict[int, dict[str, float]] = {}
    delivering: dict[int, dict[str, float]] = {}
    bytes_of: dict[str, int] = {}
    for n in sizes:
        drawn = workload("intervals", n, 1_000, r=5_000, w=200, seed=seed)
        subs, events = drawn.subscriptions(), drawn.events()
        finders: dict[str, Callable[[], Any]] = {}
        deliverers: dict[str, Callable[[], Any]] = {}
        for name, (kind, options) in vci.SCHEMES.items():
            if name == "runs":
                continue
            index = open_index(kind, drawn.schema, **options)
            index.insert(subs)
            finders[name] = vci.finder(index, events)
            deliverers[name] = partial(vci.deliver, index, drawn.events(0, 50))
            bytes_of[name] = vci.own_bytes(index)
        bounds = drawn.lows["value"], drawn.highs["value"]
        bytes_of["LCI-BV(DT)"] = paper_bytes("LCI-BV(DT)", *bounds, 5_000, vci.LENGTH)
        finding[n] = best_micros(finders, len(events))
        delivering[n] = best_micros(deliverers, 50)
    few, many = (finding[n] for n in sizes)
    first, last = (delivering[n] for n in sizes)
    return {
        "find Dlist": min(us for name, us in many.items() if name != "Dlist") / many["Dlist"],
        "find LCI": many["LCI"] / few["LCI"],
        "find BC": many["LCI-BC"] / many["LCI"],
        "find BV": many["LCI-BV"] / many["LCI"],
        "find DT": min(many["LCI"], many["LCI-BV"]) / many["LCI-BV(DT)"],
        "grow IS": last["IS-lists"] / first["IS-lists"] / (many["LCI"] / few["LCI"]),
        "deliver DT": min(
            last["IS-lists"] / last["LCI-BV(DT)"], bytes_of["IS-lists"] / bytes_of["LCI-BV(DT)"]
        ),
    }
