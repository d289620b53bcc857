"""Figures that stand on pages: kept in figures/, and put between the marks of the pages that show them.

    python benchmarks/figures.py             rewrites the tables of the pages, from the files
    python benchmarks/figures.py --check     says which pages differ from the files, with exit code 1
    python benchmarks/figures.py --keep docs/store.md following "python benchmarks/following.py" < table
                                             keeps a text that a command has printed for a page

A benchmark saves what it measured (`save`), with the command that did it, or the very text that it writes
into a page (`keep`); nobody types a figure into a page. `tests/docs/test_figures.py` makes the same check.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "figures"
# Rows of the README, and what a reader would call them.
SHOWN = {
    "boxes-12d": "ranges on 12 attributes",
    "predicates-16": "equality and ranges on 16 attributes",
    "equality-led": "a symbol and some ranges",
    "intervals-wide-domain": "intervals, {pairs:,.0f} matches per event",
    "rectangles": "rectangles, {pairs:,.0f} matches per event",
    "lonlat": "longitude and latitude",
}
DOOR_SHAPES = ("numbers", "strings", "mixed-6", "mixed-12", "wide-40")
PEERS = {"scan": "the compiled scan", "duckdb": "DuckDB", "strtree": "shapely's STRtree"}


def save(name: str, command: str, **tables: list[dict[str, Any]]) -> None:
    """Keep the tables of a run, with the command that made them."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps({"command": command, **tables}, indent=1) + "\n")


def load(name: str) -> dict[str, Any]:
    """What a run has kept."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def today() -> str:
    """The day on which something is measured."""
    return dt.datetime.now(dt.UTC).date().isoformat()


def keep(
    page: Path, name: str, command: str, text: str, marks: tuple[str, str] | None = None, whole: bool = False
) -> None:
    """Keep a text that a command made for a page, with the day, and put it between the page's marks.

    With `whole` it is all of the page.
    """
    inside = page.resolve().is_relative_to(ROOT)
    kept = {
        "command": command,
        "measured": today(),
        "page": page.resolve().relative_to(ROOT).as_posix() if inside else str(page),
        "marks": None if whole else list(marks or marks_of(name)),
        "text": text.strip().splitlines(),
    }
    # a page elsewhere is somebody's trial
    if inside:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    page.write_text(with_kept(page.read_text() if page.exists() else "", kept))


def with_kept(page: str, kept: dict[str, Any]) -> str:
    """A page with a text that was kept for it."""
    text = "\n".join(kept["text"])
    return text + "\n" if kept["marks"] is None else put(page, *kept["marks"], text)


def kept_texts() -> list[dict[str, Any]]:
    """The texts that commands have made for pages."""
    found = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    return [one for one in found if "page" in one]


def has(name: str) -> bool:
    """Whether a run has kept anything of this name."""
    return (FOLDER / f"{name}.json").exists()


def brief(value: float) -> str:
    """A figure with two digits that count, or all before the point.

    >>> brief(0.104), brief(3.49), brief(22.7), brief(705.6), brief(2000.3)
    ('0.10', '3.5', '23', '706', '2,000')
    """
    return f"{value:,.2f}" if value < 1 else f"{value:,.1f}" if value < 9.95 else f"{value:,.0f}"


def table(head: str, align: str, rows: list[list[str]]) -> str:
    """A table in Markdown; `align` has l or r for each column."""
    rule = "|".join("--:" if side == "r" else "---" for side in align)
    return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])


def readme() -> str:
    """The table of README.md."""
    # of a workload that stands there with several sizes of batches, the first
    found = {row["workload"]: row for row in reversed(load("floors")["beside"])}
    rows = [
        [
            said.format(pairs=found[name]["pairs_per_event"]),
            f"{found[name]['subscriptions']:,}",
            brief(found[name]["us_per_event"]),
            brief(found[name]["bytes"]),
            brief(found[name]["ratio"]),
            PEERS.get(found[name]["beside"], found[name]["beside"]),
        ]
        for name, said in SHOWN.items()
    ]
    return table(
        "workload | subscriptions | us per event | bytes per subscription | times faster | than",
        "lrrrrl",
        rows,
    )


def beside() -> str:
    """`auto` beside its peers, for docs/performance.md; what matters comes first, for narrow windows."""
    rows = [
        [
            f"`{row['workload']}`",
            f"{row['subscriptions']:,}",
            f"{row['us_per_event']:,.2f}",
            f"{row['ratio']:,.1f}",
            row["beside"],
            f"{row['bytes']:,.0f}",
            f"{row['pairs_per_event']:,.1f}",
            f"{row['build_s']:.1f}",
            f"{row['events']:,}",
        ]
        for row in load("floors")["beside"]
    ]
    head = "workload | subscriptions | us per event | times faster | than | bytes per subscription"
    return table(head + " | matches per event | seconds to build | events", "lrrrlrrrr", rows)


def alone() -> str:
    """`auto` beside itself, for docs/performance.md."""
    rows = [[row["what"], row["figure"]] for row in load("floors")["alone"] if not is_control(row)]
    return table("what | figure", "lr", rows)


def controls() -> str:
    """What two threads can reach on the machine of the run, for benchmarks/README.md."""
    rows = [[row["what"], row["figure"]] for row in load("floors")["alone"] if is_control(row)]
    return table("what | figure", "lr", rows)


def is_control(row: dict[str, Any]) -> bool:
    """Whether a row says something of the machine alone."""
    return bool(row["what"].startswith("control,"))


def native() -> str:
    """`auto` beside native code, for docs/performance.md."""
    rows = []
    for line in load("native")["lines"] if has("native") else []:
        found = {row["name"]: row for row in line["contenders"]}
        peers = [row for row in line["contenders"] if row["kind"] == "peer"]
        ours = found["auto"]
        best = min(peers, key=lambda row: row["us_per_event"])
        rows.append(
            [
                line["what"],
                f"{line['subscriptions']:,}",
                f"{line['events']:,}",
                f"{line['pairs_per_event']:,.1f}",
                brief(ours["us_per_event"]),
                f"{brief(best['us_per_event'])}, {best['name']}",
                brief(best["us_per_event"] / ours["us_per_event"]),
                brief(found["hint"]["us_per_event"]) if "hint" in found else "",
                brief(found["copy of the answer"]["us_per_event"]),
                f"{ours['bytes']:,.0f} / {best['bytes']:,.0f}",
            ]
        )
    head = "workload | subscriptions | events | matches per event | `auto`, us per event | best native"
    rest = " | times faster | `hint` | copy of the answer | bytes per subscription"
    return table(head + rest, "lrrrrlrrrr", rows)


def aims() -> str:
    """What the project wants to reach, beside what was measured, for benchmarks/README.md."""
    floors = load("floors")
    several = Counter(row["workload"] for row in floors["beside"])
    rows = []
    for row in floors["beside"]:
        batches = f", batches of {row['events']:,}" if several[row["workload"]] > 1 else ""
        what = f"`{row['workload']}`{batches}, times faster than {row['beside']}"
        rows.append([what, brief(row["ratio"]), brief(row["aim"])])
    rows += [[row["what"], row["figure"], row["aim"]] for row in floors["alone"] if row["aim"]]
    return table("what | measured | aim", "lrr", rows)


def language() -> str:
    """Conditions of each kind, for docs/performance-language.md."""
    rows = [
        [
            row["conditions"],
            f"{row['subscriptions']:,}",
            f"{row['parse_us']:.1f}",
            f"{row['pairs_per_event']:,.2f}",
            f"{row['us_per_event']:.2f}",
            f"{row['scan_us_per_event']:,.1f}",
            f"{row['scan_us_per_event'] / row['us_per_event']:,.0f}",
        ]
        for row in load("language")["kinds"]
    ]
    head = "conditions | subscriptions | parse, us each | pairs per event | auto, us per event"
    return table(head + " | scan, us per event | times", "lrrrrrr", rows)


def broker() -> str:
    """What the broker does in a second, for docs/broker.md; benchmarks/broker.py has the rows."""
    found = {row["row"]: row for row in load("broker")["rows"]}
    what = {
        "batches": "batches of 500 events, 2 messages per event, 1,000 consumers",
        "single": "single events, 1,000 consumers",
        "consumers": "10,000 consumers, batches of 500 events",
        "arrow": "Arrow streams of 10,000 rows, few matches",
        "catch-up": "one consumer with 100 subscriptions catches up",
    }
    rows = []
    for name, said in what.items():
        row = found[name]
        if name == "catch-up":
            rows.append([said, f"{row['events']:,} events", f"{row['events/s']:,} events/s", "", ""])
            continue
        seen = f"{row['events/s']:,} events/s in, {row['messages/s']:,} messages/s out"
        if name == "consumers":
            seen += f"; {row['kB per connection']:.0f} kB per connection"
        taken = f"{row['broker us per event']:,.1f} and {row['generator us per event']:,.1f}"
        latency = f"{row['p50 ms']:,.1f} and {row['p99 ms']:,.1f}"
        rows.append([said, f"{row['offered']:,} events/s", seen, latency, taken])
    starts = [row["start s"] for row in found.values()]
    rows.append(["start from a snapshot", "", f"{min(starts):.1f} to {max(starts):.1f} s", "", ""])
    head = "what | offered | seen | p50 and p99, ms | us of a processor per event, broker and generator"
    return table(head, "lllrr", rows)


def broker_stalled() -> str:
    """What consumers notice of others that stop reading, for docs/broker.md."""
    (found,) = (row for row in load("broker")["rows"] if row["row"] == "stalled")
    steps = {
        "all read": "all read", "some stopped": "1,000 have stopped", "they catch up": "they come back",
    }  # fmt: skip
    rows = []
    memory = found["memory MB at first, most of each stretch"][1:]
    stretches = zip(steps.items(), found["events/s"], memory, found["processors"], strict=True)
    for (key, said), rate, most, busy in stretches:
        seen = found[key]
        figures = [f"{rate:,}", f"{seen['p50 ms']:,.0f}", f"{seen['p99 ms']:,.0f}", f"{most:,}"]
        rows.append([said, *figures, f"{busy['broker']}, {busy['generator']}, {busy['others']}"])
    owed = f"{found['messages owed']:,}"
    rows.append([
        f"of {owed} messages owed to them, {found['lost']:,} were lost; the last came "
        f"{found['seconds to catch up']:.0f} s after they began to come back", "", "", "", "", "",
    ])  # fmt: skip
    head = "stretch | events/s | p50 ms of the others | p99 ms of the others | broker's memory, most, MB"
    return table(head + " | processors busy: broker, generator, whatever else", "lrrrrr", rows)


def broker_soak() -> str:
    """What was lost over kills, and what hostile requests were answered, for docs/broker.md."""
    rows = []
    kept = load("broker-soak")
    for row in kept["soaks"]:
        counts = (row[name] for name in ("events", "versions", "expected", "received", "repeats"))
        rows.append([f"`{row['command']}`", *(f"{n:,}" for n in counts), f"{row['lost']}, {row['wrong']}"])
    head = "run | events | versions | pairs expected | pairs received | repeats | lost, wrong"
    if not kept["hostile"]:
        return table(head, "lrrrrrr", rows)
    (hostile,) = kept["hostile"]
    answers = ", ".join(
        f"{n:,} {'cut off' if status == 'cut' else f'with {status}'}"
        for status, n in sorted(hostile["answers"].items(), key=lambda item: -item[1])
    )
    first, last, files = hostile["memory MB"][1], hostile["memory MB"][-1], hostile["open files"]
    said = f"`{hostile['command']}`: answers over HTTP {answers}. The broker's memory was {first} MB "
    said += f"after a fifth of the requests and {last} MB after the last, with {files} files open."
    return table(head, "lrrrrrr", rows) + "\n\n" + said


def keep_soak(kind: str, row: dict[str, Any]) -> None:
    """Replace what a run of a soak has counted, and write the pages that show it."""
    kept = load("broker-soak") if has("broker-soak") else {"soaks": [], "hostile": []}
    rows = {one["command"]: one for one in kept[kind]} | {row["command"]: row}
    tables = {"soaks": kept["soaks"], "hostile": kept["hostile"], kind: list(rows.values())}
    save("broker-soak", "make broker-soak", **tables)
    write_pages()


def door_aims() -> str:
    """The same of the ways in, for benchmarks/README.md."""
    kept = load("doors")
    found = {(row["shape"], row["door"]): row for name in DOOR_SHAPES for row in kept[name]}

    def us(shape: str, door: str) -> str:
        return f"{found[shape, door]['ours']:.2f} us"

    json = [row for (_, door), row in found.items() if door == "JSON lines"]
    spark, (_, cold) = kept["spark"], kept["start"]["10000"]
    rows = [
        ["one dict, 6 attributes", us("mixed-6", "one dict"), "15 us"],
        ["one encoded event, the slowest shape", f"{max(_one(found)):.1f} us", "10 us"],
        ["one encoded event, the slowest path", f"{max(row['us'] for row in kept['paths']):.1f} us", "10 us"],
        ["Arrow, 3 string columns", us("strings", "Arrow"), "0.15 us"],
        ["1,000 dicts of 3 strings", us("strings", "the same 1,000 rows"), "1 us"],
        ["1,000 dicts of 3 numbers", us("numbers", "the same 1,000 rows"), "1 us"],
        ["JSON lines, the slowest shape", f"{max(row['ours'] for row in json):.2f} us", "1 us"],
        ["JSON lines beside PyArrow alone", f"{max(row['ours'] / row['alone'] for row in json):.2f}", "1.6"],
        ["100,000 conditions from text", f"{kept['texts']:.2f} s", "1.5 s"],
        ["`rs.match` beside an identity", f"{spark['match'] / spark['identity, needed']:.2f}", "1.10"],
        ["share of `rs.match` above as many pairs without a match", f"{_above(spark):.0%}", "10%"],
        ["the demo's ingest", f"{kept['demo']['all']:.1f} s", "3 s"],
        ["first match, 2,000 conditions, from the cache", f"{kept['start']['2000'][0]:.2f} s", "0.7 s"],
        ["first match, 10,000 conditions, compiled", f"{cold:.1f} s", "5 s"],
    ]
    return table("what | measured | at most", "lrr", rows)


def _above(spark: dict[str, float]) -> float:
    return (spark["match"] - spark["pairs, no match"]) / spark["match"]


def _one(found: dict[Any, dict[str, Any]]) -> list[float]:
    return [row["ours"] for (_, door), row in found.items() if door == "one event, encoded before"]


# page, name of its marks, what stands between them
PLACES: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("README.md", "floors", readme),
    ("docs/performance.md", "floors", beside),
    ("docs/performance.md", "floors-alone", alone),
    ("docs/performance-language.md", "language", language),
    ("docs/performance.md", "native", native),
    ("benchmarks/README.md", "aims", aims),
    ("benchmarks/README.md", "controls", controls),
    ("docs/broker.md", "broker", broker),
    ("docs/broker.md", "broker-stalled", broker_stalled),
    ("docs/broker.md", "broker-soak", broker_soak),
    ("benchmarks/README.md", "aims-doors", door_aims),
)


def marks_of(name: str) -> tuple[str, str]:
    """What stands before and after a table."""
    return f"<!-- figures: {name} -->", f"<!-- end of figures: {name} -->"


def put(page: str, first: str, last: str, text: str) -> str:
    """A page with a text between its marks."""
    between = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    new, n = between.subn(lambda _: f"{first}\n\n{text}\n\n{last}", page)
    if n != 1:
        raise SystemExit(f"a page must have the marks {first} and {last} once")
    return new


def placed() -> list[tuple[str, str, Callable[[str], str]]]:
    """Every place of figures: its page, its name, and what makes of a page one that has them."""

    def of_table(name: str, text: Callable[[], str]) -> Callable[[str], str]:
        return lambda page: put(page, *marks_of(name), text())

    def of_text(kept: dict[str, Any]) -> Callable[[str], str]:
        return lambda page: with_kept(page, kept)

    return [
        *((path, f"the table {name}", of_table(name, text)) for path, name, text in PLACES),
        *((kept["page"], f"what {kept['command']} wrote", of_text(kept)) for kept in kept_texts()),
    ]


def stale() -> list[str]:
    """The places that differ from the files."""
    return [
        f"{path}: {name} is not what the figures say; run python benchmarks/figures.py"
        for path, name, made in placed()
        if made((ROOT / path).read_text()) != (ROOT / path).read_text()
    ]


def write_pages() -> None:
    """Put all figures into their pages."""
    for path, _, made in placed():
        page = ROOT / path
        page.write_text(made(page.read_text()))


def main() -> None:
    """Write the pages, check them, or keep what a command has printed."""
    if sys.argv[1:2] == ["--keep"]:
        page, name, command = sys.argv[2:5]
        keep(Path(page), name, command, sys.stdin.read())
    elif "--check" not in sys.argv:
        write_pages()
    faults = stale()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
