"""The experiments of "Efficient interval indexing for content-based subscription e-commerce and services".

Wu, Chen, Yu and Mei (IBM Research Report, 2004), sec. 5: storage by the maximal length L (figure 5), search
time (6a, 6b) and storage (7a, 7b) by the number of predicates, on 5,000 and 250,000 values. The paper's
names of the schemes are kept; `runs` is our layout of the same constructs. A search is timed in two
ways: finding the lists whose ids match, and delivering those ids.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rangecast.engine import open_index
from rangecast.engine.index import Index
from rangecast.model.events import Events
from rangecast.papers.measuring import PROCESS, Ratio, SeedRatios, best_micros, check_agreement, take_rounds
from rangecast.papers.report import ExperimentReport
from rangecast.papers.vci.structures import paper_bytes
from rangecast.workloads import workload

TITLE = "Interval indexing by virtual construct intervals"
SOURCE = (
    "Paper: Kun-Lung Wu, Shyh-Kwei Chen, Philip S. Yu, Mark Mei, *Efficient interval indexing for "
    "content-based subscription e-commerce and services*, IBM Research Report, 2004, section 5. SCI and LCI "
    "are bitmaps over simple and logarithmic constructs, BC is bitmap clipping, BV bitmap virtualization, DT "
    "the distance table, Dlist the index `direct`, IS-lists the index `islist`, runs the default of `vci`. "
    "Times are processor time on one thread, the best of several runs."
)
LENGTH = 128
SEARCHES = 10_000
DELIVERED = 2_000_000  # pairs after which a delivering measurement stops: seconds, not minutes, at a million
SCHEMES: dict[str, tuple[str, dict[str, Any]]] = {
    "LCI": ("vci", {"lookup": "bitmap", "L": LENGTH}),
    "LCI-BC": ("vci", {"lookup": "clipped", "L": LENGTH}),
    "LCI-BV": ("vci", {"lookup": "virtual", "L": LENGTH}),
    "LCI-BV(DT)": ("vci", {"lookup": "table", "L": LENGTH}),
    "Dlist": ("direct", {}),
    "IS-lists": ("islist", {}),
    "runs": ("vci", {}),
}
# the storage of bitmaps, and of Dlist, is out of reach on the large domain: the paper leaves them out too
WIDE = tuple(name for name in SCHEMES if name not in ("LCI", "Dlist"))


class SchemePoint(NamedTuple):
    """One scheme with one number of predicates."""

    find_us: float
    deliver_us: float
    megabytes: float
    """Of the paper's structure; of ours for IS-lists and runs."""
    own_megabytes: float
    bytes_each: float


Curves = dict[str, dict[int, SchemePoint]]


def run(report: ExperimentReport) -> None:
    """All figures, then the claims."""
    say_departures(report)
    storage = figure_5(report)
    sizes = [1_000, 16_000] if report.quick else [1_000 << i for i in range(11)]
    small = by_number(report, 5_000, sizes, tuple(SCHEMES))
    wide = by_number(report, 250_000, sizes, WIDE)
    figures_by_number(report, "a", 5_000, small)
    figures_by_number(report, "b", 250_000, wide)
    weigh_figure_5(report, storage)
    weigh_storage(report, small, wide)
    weigh_search(report, small, wide)
    report.write(TITLE, SOURCE)


def say_departures(report: ExperimentReport) -> None:
    """Every parameter that is not the paper's."""
    report.departs(
        "storage of the paper's schemes",
        "measured",
        "counted: headers of 4 bytes, list nodes of 8, bits (papers/vci/structures.py)",
        "closed constructs and linked lists as printed; the tables named ours have the bytes of our indexes",
    )
    report.departs(
        "IS-lists",
        "Hanson's C++, one object per node",
        "the index `islist`, nodes and markers in arrays",
        "the code is not to be had; ours needs fewer bytes and no pointers",
    )
    report.departs(
        "search time", "lists found; of IS-lists ids collected", "both, in figures of their own",
        "the paper does not say which it took; its IS-lists cannot find without collecting",
    )  # fmt: skip
    report.departs(
        "searches per point",
        "10,000",
        f"{SEARCHES:,} to find; to deliver as many, or as few as give {DELIVERED:,} pairs, and 20 at least",
        "at R = 5,000 a million predicates have 20,000 matches per event",
    )
    report.departs(
        "most predicates of Dlist and of IS-lists",
        "128,000 and 512,000, where memory ran out",
        "1,024,000",
        "there is memory for them",
    )
    report.departs(
        "constructs in the timed indexes",
        "closed",
        "half-open",
        "each id is found once, and single values are held",
    )
    if report.quick:
        report.departs("predicates", "1,000 to 1,024,000", "1,000 and 16,000", "--quick")


def figure_5(report: ExperimentReport) -> dict[str, dict[int, float]]:
    """Storage of five schemes by the maximal length of constructs."""
    n, r, w = 10_000, 5_000, 500
    drawn = workload("intervals", n, 1, r=r, w=w)
    lows, highs = drawn.lows["value"], drawn.highs["value"]
    schemes = ("SCI", "SCI-BC", "LCI", "LCI-BC", "LCI-BV")
    lengths = [2**k for k in range(1, 9)]
    found = {
        name: {length: paper_bytes(name, lows, highs, r, length) / 1e6 for length in lengths}
        for name in schemes
    }
    report.text(
        f"**Figure 5.** {n:,} predicates, R = {r:,}, W = {w}. Megabytes of the paper's own structures, "
        "counted: "
        "headers of 4 bytes, list nodes of 8, and the bits."
    )
    rows = [[length, *(found[name][length] for name in schemes)] for length in lengths]
    report.table("figure5", "Figure 5: megabytes by L", ["L", *schemes], rows)
    series = {name: (lengths, list(curve.values())) for name, curve in found.items()}
    report.plot("figure5", "Figure 5: the impact of L on storage", "L", "megabytes", series, True, True)
    return found


def by_number(report: ExperimentReport, r: int, sizes: list[int], schemes: tuple[str, ...]) -> Curves:
    """Search time and storage of each scheme for each number of predicates."""
    curves: Curves = {name: {} for name in schemes}
    for n in sizes:
        found = report.measured(f"R = {r:,}, n = {n:,}", partial(_at, report, r, n, schemes))
        for name in schemes:
            curves[name][n] = found[name]
    return curves


def _at(report: ExperimentReport, r: int, n: int, schemes: tuple[str, ...]) -> dict[str, SchemePoint]:
    drawn = workload("intervals", n, 200 if report.quick else SEARCHES, r=r, w=200)
    subs, events = drawn.subscriptions(), drawn.events()
    per_event = max(n * 100 / r, 1.0)
    delivering = drawn.events(0, int(min(len(events), max(20, DELIVERED / per_event))))
    counts: dict[str, Any] = {}
    found = {}
    for name in schemes:
        kind, options = SCHEMES[name]
        index = open_index(kind, drawn.schema, **options)
        index.insert(subs)
        find = finder(index, events)
        # the first round also compiles and does not count; of the others the best one does
        find_s = take_rounds(find, 3 if report.quick else 12, clock=PROCESS, warm_up=1).best
        delivered = take_rounds(partial(deliver, index, delivering), 3, clock=PROCESS, warm_up=1, count=int)
        counts[name] = delivered.count
        size = own_bytes(index)
        of_paper = size
        if name not in ("IS-lists", "runs"):
            of_paper = paper_bytes(name, drawn.lows["value"], drawn.highs["value"], r, LENGTH)
        found[name] = SchemePoint(
            find_s / len(events) * 1e6,
            delivered.best / len(delivering) * 1e6,
            of_paper / 1e6,
            size / 1e6,
            size / n,
        )
        del index, find
        gc.collect()
    check_agreement(f"R = {r:,}, n = {n:,}, pairs", counts)
    return found


def finder(index: Index, events: Events) -> Callable[[], Any]:
    """A search that finds the lists of each event and reads none."""
    if hasattr(index, "count_lists"):
        codes = events.encoded(index.schema).codes
        return lambda: index.count_lists(codes)
    return lambda: index.estimate(events)


def deliver(index: Index, events: Events) -> int:
    """Match a batch and read all ids."""
    return len(index.match(events).ids)


def own_bytes(index: Index) -> int:
    """Bytes of an index without the catalog of ids and bounds that every index has."""
    stats = index.stats()
    return int(stats["bytes"] - stats["catalog_bytes"])


def figures_by_number(report: ExperimentReport, letter: str, r: int, curves: Curves) -> None:
    """Figures 6 and 7 for one domain."""
    sizes = list(next(iter(curves.values())))
    names = list(curves)
    report.text(
        f"**R = {r:,}**, W = 200, L = {LENGTH}. Finding is timed on {SEARCHES:,} events as in the paper; "
        f"delivering on as many, or on as few as give {DELIVERED:,} pairs."
    )
    measures: tuple[tuple[str, str, str, str, Callable[[SchemePoint], float]], ...] = (
        ("find", f"6{letter}", "finding the lists", "microseconds per event", lambda p: p.find_us),
        ("deliver", f"6{letter}", "delivering the ids", "microseconds per event", lambda p: p.deliver_us),
        ("storage", f"7{letter}", "storage", "megabytes", lambda p: p.megabytes),
        ("bytes", f"7{letter}", "storage of our indexes per predicate", "bytes", lambda p: p.bytes_each),
    )
    for key, number, what, unit, value in measures:
        figure = f"figure{number}-{key}"
        title = f"Figure {number}: {what}, R = {r:,}"
        rows = [[n, *(value(curves[name][n]) for name in names)] for n in sizes]
        report.table(figure, f"{title}, {unit}", ["n", *names], rows)
        if key != "bytes":
            series = {name: (sizes, [value(curves[name][n]) for n in sizes]) for name in names}
            report.plot(figure, title, "predicates", unit, series, True, True)


def weigh_figure_5(report: ExperimentReport, fig5: dict[str, dict[int, float]]) -> None:
    """What the paper says of figure 5."""
    by = "bytes of the paper's structures"
    lengths = [length for length in fig5["SCI"] if length > 2]
    report.claim(
        "LCI needs less than SCI",
        all(fig5["LCI"][x] < fig5["SCI"][x] and fig5["LCI-BC"][x] <= fig5["SCI-BC"][x] for x in lengths[1:]),
        "; ".join(
            f"L = {x}: {fig5['LCI'][x]:.1f} beside {fig5['SCI'][x]:.1f} MB, clipped {fig5['LCI-BC'][x]:.2f} "
            f"beside {fig5['SCI-BC'][x]:.2f}"
            for x in (lengths[0], lengths[-1])
        ),
        by=by,
        counted=True,
    )
    top = lengths[-1]
    report.claim(
        "Clipping the bitmap is critical for both",
        fig5["SCI"][top] > 5 * fig5["SCI-BC"][top] and fig5["LCI"][top] > 5 * fig5["LCI-BC"][top],
        f"L = {top}: SCI {fig5['SCI'][top] / fig5['SCI-BC'][top]:.0f} times less, "
        f"LCI {fig5['LCI'][top] / fig5['LCI-BC'][top]:.0f} times less",
        by=f"{by}, at least 5 times",
        counted=True,
    )
    below = [x for x in fig5["SCI-BC"] if x <= 128]
    report.claim(
        "For L up to 128, SCI-BC needs less than LCI",
        all(fig5["SCI-BC"][x] < fig5["LCI"][x] for x in below),
        "; ".join(f"L = {x}: {fig5['SCI-BC'][x]:.1f} beside {fig5['LCI'][x]:.1f} MB" for x in below[-2:]),
        by=by,
        counted=True,
    )
    apart = [fig5["LCI-BC"][x] - fig5["LCI-BV"][x] for x in fig5["LCI-BC"]]
    highest = max(max(curve.values()) for curve in fig5.values())
    report.claim(
        "On a small domain LCI-BC and LCI-BV can hardly be told apart, and need the least",
        max(apart) < highest / 100
        and all(fig5["LCI-BV"][x] <= min(fig5[s][x] for s in ("SCI", "SCI-BC", "LCI")) for x in lengths),
        f"they are at most {max(apart):.1f} MB apart in a figure that reaches {highest:.0f}: nothing on the "
        "paper's "
        f"linear axis, but LCI-BC needs {fig5['LCI-BC'][top] / fig5['LCI-BV'][top]:.1f} times as much at L "
        f"= {top}",
        by=f"{by}; apart by less than a hundredth of the figure's height",
        counted=True,
    )


def weigh_storage(report: ExperimentReport, small: Curves, wide: Curves) -> None:
    """What the paper says of figure 7."""
    by = "bytes of the paper's structures, and of our IS-lists"
    sizes = list(small["LCI"])
    cross = {name: crossing(small["LCI"], small[name]) for name in ("Dlist", "IS-lists")}
    near = [
        at is not None and said / 1.5 < at < said * 1.5
        for at, said in ((cross["Dlist"], 32_000), (cross["IS-lists"], 128_000))
    ]
    report.claim(
        "Dlist needs more than LCI from about 32,000 predicates on, IS-lists from about 128,000",
        None if report.quick else all(near),
        f"here from {shown(cross['Dlist'])} and {shown(cross['IS-lists'])}",
        by=f"{by}, interpolated between sizes, within a factor of 1.5",
        why="the lines cross elsewhere",
        counted=True,
    )
    last = sizes[-1]
    report.claim(
        "Dlist is the largest",
        None
        if report.quick
        else all(
            small["Dlist"][last].megabytes > small[name][last].megabytes for name in small if name != "Dlist"
        ),
        f"n = {last:,}: {small['Dlist'][last].megabytes:,.0f} MB; IS-lists "
        f"{small['IS-lists'][last].megabytes:,.0f}, "
        f"LCI-BV {small['LCI-BV'][last].megabytes:,.0f}, runs {small['runs'][last].megabytes:,.0f}",
        by=by,
        counted=True,
    )
    few = sizes[0]
    mb = {name: (small[name][few].megabytes, small[name][last].megabytes) for name in small}
    report.claim(
        "On a small domain LCI-BC and LCI-BV need less than IS-lists, for few predicates too",
        all(
            small[s][n].megabytes < small["IS-lists"][n].megabytes
            for s in ("LCI-BC", "LCI-BV")
            for n in sizes
        ),
        f"n = {few:,}: {mb['LCI-BC'][0]:.2f}, {mb['LCI-BV'][0]:.2f} and {mb['IS-lists'][0]:.2f} MB; "
        f"n = {last:,}: {mb['LCI-BC'][1]:.0f}, {mb['LCI-BV'][1]:.0f} and {mb['IS-lists'][1]:.0f} MB",
        by=by,
        why="with few predicates a header for every construct costs more than the few nodes of our skip "
        "list, which "
        "keeps no objects and no second set of markers; LCI-BV is the smaller one from n = "
        f"{shown(crossing(small['LCI-BV'], small['IS-lists']))} on",
        counted=True,
    )
    where = crossing(wide["LCI-BV(DT)"], wide["IS-lists"])
    report.claim(
        "On a large domain IS-lists need less for few predicates, and more for many",
        None if report.quick else where is not None and where > sizes[0],
        f"IS-lists need more than LCI-BV(DT) from n = {shown(where)} on",
        by=by,
        counted=True,
    )


def weigh_search(report: ExperimentReport, small: Curves, wide: Curves) -> None:
    """What the paper says of figure 6, and its conclusion."""
    by = "time of finding the lists"
    first, last = min(small["LCI"]), max(small["LCI"])
    at = {name: curve[last] for name, curve in small.items()}
    report.claim(
        "Finding is fastest with Dlist",
        None
        if report.quick
        else all(at["Dlist"].find_us <= p.find_us for name, p in at.items() if name != "Dlist"),
        ", ".join(f"{name} {p.find_us:.3f}" for name, p in at.items()) + f" us at n = {last:,}",
        by=by,
    )
    report.claim(
        "Finding with LCI takes about the same time for any number of predicates",
        None if report.quick else at["LCI"].find_us < 10 * small["LCI"][first].find_us,
        f"LCI {small['LCI'][first].find_us:.2f} us at n = {first:,}, {at['LCI'].find_us:.2f} us at {last:,}; "
        f"delivering {small['LCI'][first].deliver_us:.2f} and {at['LCI'].deliver_us:,.0f} us",
        by=f"{by}, within a factor of 10 over {last // first:,} times as many",
    )
    report.claim(
        "LCI-BC is only a little slower than LCI",
        None if report.quick else 1.0 <= at["LCI-BC"].find_us / at["LCI"].find_us < 1.5,
        f"LCI-BC takes {at['LCI-BC'].find_us / at['LCI'].find_us:.2f} of LCI's time",
        by=f"{by}, 1 to 1.5 times",
        why="it is faster: as the paper defines it, a search looks at all bits of a value's vector, and the "
        "clipped "
        "one has far fewer words to read",
    )
    report.claim(
        "LCI-BV is much slower than LCI when many constructs are active",
        None if report.quick else at["LCI-BV"].find_us > 2 * at["LCI"].find_us,
        f"{at['LCI-BV'].find_us:.2f} beside {at['LCI'].find_us:.2f} us at n = {last:,}",
        by=f"{by}, at least twice",
    )
    report.claim(
        "The distance table makes virtual bitmaps faster than bitmaps",
        None if report.quick else at["LCI-BV(DT)"].find_us < min(at["LCI"].find_us, at["LCI-BV"].find_us),
        f"{at['LCI-BV(DT)'].find_us:.2f} us beside LCI {at['LCI'].find_us:.2f}, LCI-BC "
        f"{at['LCI-BC'].find_us:.2f} and LCI-BV {at['LCI-BV'].find_us:.2f}; on the large domain "
        f"{wide['LCI-BV(DT)'][last].find_us:.2f} beside LCI-BC {wide['LCI-BC'][last].find_us:.2f} "
        "(whose bits lie side by side where the headers do not) and LCI-BV "
        f"{wide['LCI-BV'][last].find_us:.2f}",
        by=by,
    )
    isl, table = small["IS-lists"], small["LCI-BV(DT)"]
    report.claim(
        "IS-lists degrade quickly as n grows, and LCI does not",
        None
        if report.quick
        else isl[last].deliver_us > 10 * isl[first].deliver_us
        and at["LCI"].find_us < 10 * small["LCI"][first].find_us,
        f"IS-lists collecting ids {isl[first].deliver_us:.2f} to {isl[last].deliver_us:,.0f} us, LCI "
        "finding lists "
        f"{small['LCI'][first].find_us:.2f} to {at['LCI'].find_us:.2f}; alike, both degrade or neither "
        "does: finding, "
        f"IS-lists {isl[first].find_us:.2f} to {isl[last].find_us:.2f}, LCI-BV(DT) "
        f"{table[first].find_us:.2f} to "
        f"{at['LCI-BV(DT)'].find_us:.2f}; collecting, LCI-BV(DT) {table[first].deliver_us:.2f} to "
        f"{at['LCI-BV(DT)'].deliver_us:,.0f}",
        by="as the paper must have taken them: IS-lists collect ids, LCI finds lists, for no LCI could name "
        "20,000 ids "
        "in the 10 us that it reports",
        why="the figures say otherwise",
    )
    domains = {"R = 5,000": small, "R = 250,000": wide}
    smaller = all(c["LCI-BV(DT)"][last].megabytes < c["IS-lists"][last].megabytes for c in domains.values())
    faster = all(c["LCI-BV(DT)"][last].deliver_us < c["IS-lists"][last].deliver_us for c in domains.values())
    report.claim(
        "LCI-BV(DT) is better than IS-lists in storage and search time for many predicates (conclusion 4)",
        None if report.quick else smaller and faster,
        "; ".join(
            f"{name}: {c['LCI-BV(DT)'][last].megabytes:,.0f} and {c['IS-lists'][last].megabytes:,.0f} MB, "
            "delivering "
            f"{c['LCI-BV(DT)'][last].deliver_us:,.4g} and {c['IS-lists'][last].deliver_us:,.4g} us, finding "
            f"{c['LCI-BV(DT)'][last].find_us:.2f} and {c['IS-lists'][last].find_us:.2f} us"
            for name, c in domains.items()
        ),
        by=f"bytes, and time of delivering all ids, both alike, at n = {last:,}",
        why="in storage it is on both domains; in time a skip list whose markers lie in arrays is as fast "
        "or faster",
    )
    report.text(
        "**Delivering, ours beside the paper's.** Microseconds per event with all ids, at n = "
        f"{last:,}. R = 5,000: "
        + ", ".join(f"{name} {p.deliver_us:,.0f}" for name, p in at.items())
        + ". R = 250,000: "
        + ", ".join(f"{name} {curve[last].deliver_us:,.1f}" for name, curve in wide.items())
        + ". The paper's lists are linked, and each id on them is a step to another place in memory; "
        "a slice is "
        "read from end to end. Dlist is laid out in one array here too, but its slots are in the "
        "order of arrival, "
        "and it is as large as the table says."
    )


def crossing(low: dict[int, SchemePoint], high: dict[int, SchemePoint]) -> float | None:
    """The number of predicates from which `high` needs more bytes than `low` for good.

    Between two sizes it is interpolated: both grow as a constant and so much per predicate.
    """
    sizes = list(low)
    apart = [high[n].megabytes - low[n].megabytes for n in sizes]
    if apart[-1] <= 0:
        return None
    last = max((i for i, d in enumerate(apart) if d <= 0), default=None)
    if last is None:
        return float(sizes[0])
    n, m = sizes[last], sizes[last + 1]
    return n + (m - n) * -apart[last] / (apart[last + 1] - apart[last])


def shown(n: float | None) -> str:
    """A number of predicates in words."""
    return "nowhere" if n is None else f"{round(n, -2):,.0f}"


# The claims of the interval paper, with one seed: its storage counted, its searches timed.

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


def _bytes(r: int, n: int, seed: int, names: tuple[str, ...]) -> dict[str, SchemePoint]:
    drawn = workload("intervals", n, 1, r=r, w=200, seed=seed)
    index = open_index("islist", drawn.schema)
    index.insert(drawn.subscriptions())
    bounds = drawn.lows["value"], drawn.highs["value"]
    held = {name: paper_bytes(name, *bounds, r, LENGTH) for name in names}
    held["IS-lists"] = own_bytes(index)
    return {name: SchemePoint(0, 0, size / 1e6, 0, 0) for name, size in held.items()}


def _storage(report: ExperimentReport, seed: int, few: int) -> SeedRatios:
    schemes = ("LCI", "LCI-BC", "LCI-BV", "LCI-BV(DT)", "Dlist")
    sizes = (16_000, 256_000) if report.quick else CROSSING
    small = {n: _bytes(5_000, n, seed, schemes) for n in (few, *sizes)}
    wide = {n: _bytes(250_000, n, seed, schemes[-2:-1]) for n in sizes}
    curves = {name: {n: small[n][name] for n in sizes} for name in small[few]}
    far = [
        max(at / said, said / at)
        for name, said in (("Dlist", 32_000), ("IS-lists", 128_000))
        for at in [crossing(curves["LCI"], curves[name]) or 1.0]
    ]
    most = {name: point.megabytes for name, point in small[sizes[-1]].items()}
    first = {name: point.megabytes for name, point in small[few].items()}
    crossed = crossing(*({n: wide[n][name] for n in sizes} for name in ("LCI-BV(DT)", "IS-lists")))
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
        for name, (kind, options) in SCHEMES.items():
            if name == "runs":
                continue
            index = open_index(kind, drawn.schema, **options)
            index.insert(subs)
            finders[name] = finder(index, events)
            deliverers[name] = partial(deliver, index, drawn.events(0, 50))
            bytes_of[name] = own_bytes(index)
        bounds = drawn.lows["value"], drawn.highs["value"]
        bytes_of["LCI-BV(DT)"] = paper_bytes("LCI-BV(DT)", *bounds, 5_000, LENGTH)
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
