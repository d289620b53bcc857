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
from rangecast.papers.measuring import PROCESS, check_agreement, take_rounds
from rangecast.papers.report import Claim, ExperimentReport
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

BYTES = "bytes of the paper's structures"
BOTH_BYTES = "bytes of the paper's structures, and of our IS-lists"
FINDING = "time of finding the lists"
PAGE = "the page's size"
SIZES = [1_000 << i for i in range(11)]
OTHER_SIZES = [1_000, 16_000, 32_000, 64_000, 128_000, 256_000]
OTHERS = f"{OTHER_SIZES[0]:,} to {OTHER_SIZES[-1]:,} predicates"

CLAIMS = {
    "less": Claim(
        "LCI needs less than SCI",
        "section 5.3, figure 5",
        "greatest LCI / SCI, L from 8 on; 1 where LCI-BC needs more than SCI-BC",
        0,
        1,
        by=BYTES,
        at=PAGE,
        counted=True,
    ),
    "clip": Claim(
        "Clipping the bitmap is critical for both",
        "section 5.3, figure 5",
        "lesser of SCI / SCI-BC and LCI / LCI-BC",
        5,
        by=f"{BYTES}, at least 5 times",
        at=PAGE,
        counted=True,
    ),
    "up to 128": Claim(
        "For L up to 128, SCI-BC needs less than LCI",
        "section 5.3, figure 5",
        "greatest SCI-BC / LCI, L to 128",
        0,
        1,
        by=BYTES,
        at=PAGE,
        counted=True,
    ),
    "apart": Claim(
        "On a small domain LCI-BC and LCI-BV can hardly be told apart, and need the least",
        "section 5.3, figure 5",
        "greatest distance / height of the figure; 1 where LCI-BV does not need the least",
        0,
        0.01,
        by=f"{BYTES}; apart by less than a hundredth of the figure's height",
        at=PAGE,
        counted=True,
    ),
    "cross": Claim(
        "Dlist needs more than LCI from about 32,000 predicates on, IS-lists from about 128,000",
        "section 5.5, figure 7a",
        "the farther of both crossings from the paper's, as a factor",
        0,
        1.5,
        by=f"{BOTH_BYTES}, interpolated between sizes, within a factor of 1.5",
        why="the lines cross elsewhere",
        at=OTHERS,
        counted=True,
    ),
    "largest": Claim(
        "Dlist is the largest",
        "section 5.5, figure 7a",
        "Dlist / largest other, with the most predicates",
        1,
        by=BOTH_BYTES,
        at=OTHERS,
        counted=True,
    ),
    "few": Claim(
        "On a small domain LCI-BC and LCI-BV need less than IS-lists, for few predicates too",
        "section 5.5, figure 7a",
        "IS-lists / larger of LCI-BC and LCI-BV, the least",
        1,
        by=BOTH_BYTES,
        at=OTHERS,
        counted=True,
    ),
    "wide": Claim(
        "On a large domain IS-lists need less for few predicates, and more for many",
        "section 5.5, figure 7b",
        "predicates from which IS-lists need more than LCI-BV(DT)",
        SIZES[0],
        by=BOTH_BYTES,
        at=OTHERS,
        counted=True,
    ),
    "find Dlist": Claim(
        "Finding is fastest with Dlist",
        "section 5.4, figure 6a",
        "fastest other scheme / Dlist, with the most predicates",
        1,
        by=FINDING,
        at=OTHERS,
    ),
    "find LCI": Claim(
        "Finding with LCI takes about the same time for any number of predicates",
        "section 5.4, figure 6a",
        "LCI, most / fewest predicates",
        0,
        10,
        by=f"{FINDING}, within a factor of 10 over {SIZES[-1] // SIZES[0]:,} times as many",
        at=OTHERS,
    ),
    "find BC": Claim(
        "LCI-BC is only a little slower than LCI",
        "section 5.4, figure 6a",
        "LCI-BC / LCI, with the most predicates",
        1,
        1.5,
        by=f"{FINDING}, 1 to 1.5 times",
        why="it is faster: as the paper defines it, a search looks at all bits of a value's vector, and the "
        "clipped one has far fewer words to read",
        at=OTHERS,
    ),
    "find BV": Claim(
        "LCI-BV is much slower than LCI when many constructs are active",
        "section 5.4, figure 6a",
        "LCI-BV / LCI, with the most predicates",
        2,
        by=f"{FINDING}, at least twice",
        at=OTHERS,
    ),
    "find DT": Claim(
        "The distance table makes virtual bitmaps faster than bitmaps",
        "section 5.4, figure 6",
        "faster of LCI and LCI-BV / LCI-BV(DT), with the most predicates",
        1,
        by=FINDING,
        at=OTHERS,
    ),
    "grow IS": Claim(
        "IS-lists degrade quickly as n grows, and LCI does not",
        "section 5.4, figure 6a",
        "growth of IS-lists, collecting; none where LCI, finding, grows 10 times too",
        10,
        by="as the paper must have taken them: IS-lists collect ids, LCI finds lists, for no LCI could name "
        "20,000 ids in the 10 us that it reports",
        at=OTHERS,
    ),
    "deliver DT": Claim(
        "LCI-BV(DT) is better than IS-lists in storage and search time for many predicates (conclusion 4)",
        "section 7",
        "IS-lists / LCI-BV(DT), the least of bytes and of delivering on both domains",
        1,
        by=f"bytes, and time of delivering all ids, both alike, at n = {SIZES[-1]:,}",
        why="in storage it is on both domains; in time a skip list whose markers lie in arrays is as fast "
        "or faster",
        at=OTHERS,
    ),
}


def run(report: ExperimentReport) -> None:
    """All figures, then the claims."""
    say_departures(report)
    storage = figure_5(report)
    sizes = report.extent(SIZES, OTHER_SIZES, [1_000, 16_000])
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
    drawn = workload("intervals", n, 1, r=r, w=w, seed=report.seed)
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
    drawn = workload("intervals", n, 200 if report.quick else SEARCHES, r=r, w=200, seed=report.seed)
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
    lengths = [length for length in fig5["SCI"] if length > 2]
    less = max(fig5["LCI"][x] / fig5["SCI"][x] for x in lengths[1:])
    clipped = all(fig5["LCI-BC"][x] <= fig5["SCI-BC"][x] for x in lengths[1:])
    report.weigh(
        CLAIMS["less"],
        less if clipped else max(less, 1.0),
        "; ".join(
            f"L = {x}: {fig5['LCI'][x]:.1f} beside {fig5['SCI'][x]:.1f} MB, clipped {fig5['LCI-BC'][x]:.2f} "
            f"beside {fig5['SCI-BC'][x]:.2f}"
            for x in (lengths[0], lengths[-1])
        ),
    )
    top = lengths[-1]
    clip = {name: fig5[name][top] / fig5[f"{name}-BC"][top] for name in ("SCI", "LCI")}
    report.weigh(
        CLAIMS["clip"],
        min(clip.values()),
        f"L = {top}: SCI {clip['SCI']:.0f} times less, LCI {clip['LCI']:.0f} times less",
    )
    below = [x for x in fig5["SCI-BC"] if x <= 128]
    report.weigh(
        CLAIMS["up to 128"],
        max(fig5["SCI-BC"][x] / fig5["LCI"][x] for x in below),
        "; ".join(f"L = {x}: {fig5['SCI-BC'][x]:.1f} beside {fig5['LCI'][x]:.1f} MB" for x in below[-2:]),
    )
    apart = max(fig5["LCI-BC"][x] - fig5["LCI-BV"][x] for x in fig5["LCI-BC"])
    highest = max(max(curve.values()) for curve in fig5.values())
    least = all(fig5["LCI-BV"][x] <= min(fig5[s][x] for s in ("SCI", "SCI-BC", "LCI")) for x in lengths)
    report.weigh(
        CLAIMS["apart"],
        apart / highest if least else 1.0,
        f"they are at most {apart:.1f} MB apart in a figure that reaches {highest:.0f}: nothing on the "
        f"paper's linear axis, but LCI-BC needs {fig5['LCI-BC'][top] / fig5['LCI-BV'][top]:.1f} times as "
        f"much at L = {top}",
    )


def weigh_storage(report: ExperimentReport, small: Curves, wide: Curves) -> None:
    """What the paper says of figure 7."""
    sizes = list(small["LCI"])
    cross = {name: crossing(small["LCI"], small[name]) for name in ("Dlist", "IS-lists")}
    # a line that never crosses is as far from the paper's as one that does at a single predicate
    places = [(cross["Dlist"] or 1.0, 32_000), (cross["IS-lists"] or 1.0, 128_000)]
    report.weigh(
        CLAIMS["cross"],
        max(max(at / said, said / at) for at, said in places),
        f"here from {shown(cross['Dlist'])} and {shown(cross['IS-lists'])}",
    )
    last = sizes[-1]
    most = {name: curve[last].megabytes for name, curve in small.items()}
    report.weigh(
        CLAIMS["largest"],
        most["Dlist"] / max(size for name, size in most.items() if name != "Dlist"),
        f"n = {last:,}: {most['Dlist']:,.0f} MB; IS-lists {most['IS-lists']:,.0f}, "
        f"LCI-BV {most['LCI-BV']:,.0f}, runs {most['runs']:,.0f}",
    )
    few = sizes[0]
    mb = {name: (small[name][few].megabytes, small[name][last].megabytes) for name in small}
    report.weigh(
        CLAIMS["few"],
        min(
            small["IS-lists"][n].megabytes / max(small["LCI-BC"][n].megabytes, small["LCI-BV"][n].megabytes)
            for n in sizes
        ),
        f"n = {few:,}: {mb['LCI-BC'][0]:.2f}, {mb['LCI-BV'][0]:.2f} and {mb['IS-lists'][0]:.2f} MB; "
        f"n = {last:,}: {mb['LCI-BC'][1]:.0f}, {mb['LCI-BV'][1]:.0f} and {mb['IS-lists'][1]:.0f} MB",
        why="with few predicates a header for every construct costs more than the few nodes of our skip "
        "list, which keeps no objects and no second set of markers; LCI-BV is the smaller one from n = "
        f"{shown(crossing(small['LCI-BV'], small['IS-lists']))} on",
    )
    where = crossing(wide["LCI-BV(DT)"], wide["IS-lists"])
    report.weigh(
        CLAIMS["wide"], where or 0.0, f"IS-lists need more than LCI-BV(DT) from n = {shown(where)} on"
    )


def weigh_search(report: ExperimentReport, small: Curves, wide: Curves) -> None:
    """What the paper says of figure 6, and its conclusion."""
    first, last = min(small["LCI"]), max(small["LCI"])
    at = {name: curve[last] for name, curve in small.items()}
    finding = {name: point.find_us for name, point in at.items()}
    report.weigh(
        CLAIMS["find Dlist"],
        min(us for name, us in finding.items() if name != "Dlist") / finding["Dlist"],
        ", ".join(f"{name} {us:.3f}" for name, us in finding.items()) + f" us at n = {last:,}",
    )
    steady = finding["LCI"] / small["LCI"][first].find_us
    report.weigh(
        CLAIMS["find LCI"],
        steady,
        f"LCI {small['LCI'][first].find_us:.2f} us at n = {first:,}, {finding['LCI']:.2f} us at {last:,}; "
        f"delivering {small['LCI'][first].deliver_us:.2f} and {at['LCI'].deliver_us:,.0f} us",
    )
    clipped = finding["LCI-BC"] / finding["LCI"]
    report.weigh(CLAIMS["find BC"], clipped, f"LCI-BC takes {clipped:.2f} of LCI's time")
    report.weigh(
        CLAIMS["find BV"],
        finding["LCI-BV"] / finding["LCI"],
        f"{finding['LCI-BV']:.2f} beside {finding['LCI']:.2f} us at n = {last:,}",
    )
    report.weigh(
        CLAIMS["find DT"],
        min(finding["LCI"], finding["LCI-BV"]) / finding["LCI-BV(DT)"],
        f"{finding['LCI-BV(DT)']:.2f} us beside LCI {finding['LCI']:.2f}, LCI-BC {finding['LCI-BC']:.2f} and "
        f"LCI-BV {finding['LCI-BV']:.2f}; on the large domain "
        f"{wide['LCI-BV(DT)'][last].find_us:.2f} beside LCI-BC {wide['LCI-BC'][last].find_us:.2f} "
        "(whose bits lie side by side where the headers do not) and LCI-BV "
        f"{wide['LCI-BV'][last].find_us:.2f}",
    )
    isl, table = small["IS-lists"], small["LCI-BV(DT)"]
    report.weigh(
        CLAIMS["grow IS"],
        isl[last].deliver_us / isl[first].deliver_us if steady < 10 else 0.0,
        f"IS-lists collecting ids {isl[first].deliver_us:.2f} to {isl[last].deliver_us:,.0f} us, LCI "
        f"finding lists {small['LCI'][first].find_us:.2f} to {finding['LCI']:.2f}; alike, both degrade or "
        f"neither does: finding, IS-lists {isl[first].find_us:.2f} to {isl[last].find_us:.2f}, LCI-BV(DT) "
        f"{table[first].find_us:.2f} to {finding['LCI-BV(DT)']:.2f}; collecting, LCI-BV(DT) "
        f"{table[first].deliver_us:.2f} to {at['LCI-BV(DT)'].deliver_us:,.0f}",
    )
    domains = {
        name: (curves["LCI-BV(DT)"][last], curves["IS-lists"][last])
        for name, curves in {"R = 5,000": small, "R = 250,000": wide}.items()
    }
    report.weigh(
        CLAIMS["deliver DT"],
        min(
            ratio
            for ours, lists in domains.values()
            for ratio in (lists.megabytes / ours.megabytes, lists.deliver_us / ours.deliver_us)
        ),
        "; ".join(
            f"{name}: {ours.megabytes:,.0f} and {lists.megabytes:,.0f} MB, delivering "
            f"{ours.deliver_us:,.4g} and {lists.deliver_us:,.4g} us, finding "
            f"{ours.find_us:.2f} and {lists.find_us:.2f} us"
            for name, (ours, lists) in domains.items()
        ),
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
