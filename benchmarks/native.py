"""`auto` and the best single indexes beside native code, in one process, in turns.

    python benchmarks/native.py                                      every workload, about five minutes; the
                                                                     figures of whole sizes are kept
    python benchmarks/native.py --scale 0.01                         small sizes: do all pairs agree?
    python benchmarks/native.py --only "2-D" --json figures.json --page figures.md

The contenders are crates of Rust (benchmarks/native/src/lib.rs) and Boost's R-tree
(benchmarks/native/boost_rtree.cpp). cargo and a C++ compiler build them here, for the processor that is
there; where one of the tools, the crates or the headers is not to be had, its contenders are left out with
a line that says so. They are libraries behind one C interface, so that the harness of measure.py times all
contenders alike: processor time of one thread, rounds in turns, after a second of settling.

    what       how
    answer     the numbers of all matching subscriptions in one buffer, and where each event's begin. A
               contender called "sorted" sorts the batch by value first, which is part of its time, and its
               rows stay in that order; native numbers have 32 bits, our ids 64
    pairs      all contenders must find the same: their number, and the sum and the exclusive or of a hash
               of event and id, over all pairs. A difference ends the run with exit code 1
    copy       the ids of `auto`'s answer copied to another place, from memory to memory
    hint       the index `hint` here is ours, compiled by Numba; the authors' own program is not measured
    bytes      native: what the structure took from its allocator, without ids of a caller's own and
               without any way to change a subscription. Ours: `stats()["bytes"]`, catalog and all
"""

from __future__ import annotations

import ctypes
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import figures
import rangecast as rc
from measure import Contender, index_contender, peer_contender, settle, try_in_child
from peers import Peer, Plain
from rangecast import workloads
from rangecast.papers.measuring import PROCESS, take_turns, timed

FOLDER = Path(__file__).resolve().parent / "native"
BUILD_SECONDS = 600.0
CRATES = {
    1: ("superintervals", "superintervals sorted", "coitrees", "coitrees sorted"),
    2: ("geo-index hilbert", "geo-index str", "rstar"),
}
BOOST = {1: (), 2: ("boost rtree",)}
OURS = {1: ("auto", "cells", "vci", "hint"), 2: ("auto", "cells", "vcr")}
_NONE = np.empty(0, np.uint64)
COPY = "copy of the answer"
# what the line is called, workload, its options, subscriptions, events
LINES: tuple[tuple[str, str, dict[str, Any], int, int], ...] = (
    ("1-D, domain 10^9, 10 matches", "intervals", {"r": 10**9, "w": 20_000}, 1_000_000, 100_000),
    ("1-D, domain 10^9, 400 matches", "intervals", {"r": 10**9, "w": 800_000}, 1_000_000, 20_000),
    ("1-D, domain 250,000, 406 matches", "intervals-wide-domain", {}, 1_000_000, 20_000),
    ("1-D, domain 5,000, 20,000 matches", "intervals", {}, 1_000_000, 1_000),
    (
        "2-D, small rectangles, 9 matches", "rectangles-uniform",
        {"rx": 10_000, "ry": 10_000, "wx": 57, "wy": 57}, 1_000_000, 100_000,
    ),
    ("2-D, skewed rectangles", "rectangles-wide-domain", {}, 256_000, 20_000),
)  # fmt: skip
HEAD = """# Beside native code

Made by `python benchmarks/native.py{arguments}`: one process, one thread, contenders in turns, processor
time; all pairs agree. `best` and `median` are microseconds per event over {rounds} rounds, `x auto` is how
many times as long as `auto` a contender takes, and native contenders are in italics.
"""


@dataclass(frozen=True)
class Answer:
    """The arrays of a native answer; they live until the contender's next batch."""

    events: npt.NDArray[Any]
    offsets: npt.NDArray[np.uint64]
    found: npt.NDArray[Any]


class _Arrays(ctypes.Structure):
    _fields_ = (
        ("events", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("found", ctypes.c_void_p),
        ("pairs", ctypes.c_uint64),
    )


class Structure:
    """A native structure over the subscriptions of a workload; frees itself."""

    def __init__(self, library: ctypes.CDLL, name: str, plain: Plain) -> None:
        self._library = library
        sides = [_int32(side) for pair in zip(plain.lows, plain.highs, strict=True) for side in pair]
        pointers = [side.ctypes.data for side in sides] + [None] * (4 - len(sides))
        self._handle = library.peer_build(name.encode(), len(plain.ids), *pointers)
        if not self._handle:
            raise SystemExit(f"{library._name} has no contender {name!r}")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.peer_free(self._handle)

    @property
    def nbytes(self) -> int:
        """What the structure took from its allocator."""
        return int(self._library.peer_bytes(self._handle))

    def match(self, columns: list[npt.NDArray[np.int32]]) -> Answer:
        """Answer a batch: one column, or x and y."""
        m = len(columns[0])
        pointers = [column.ctypes.data for column in columns] + [None] * (2 - len(columns))
        arrays = self._library.peer_match(self._handle, m, *pointers)
        return Answer(
            _view(arrays.events, np.uint32, m),
            _view(arrays.offsets, np.uint64, m + 1),
            _view(arrays.found, np.uint32, arrays.pairs),
        )


def _int32(column: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(column, np.int32)


def _view(address: int | None, dtype: Any, n: int) -> npt.NDArray[Any]:
    """An array over memory of a library, not copied."""
    if not n or not address:
        return np.empty(0, dtype)
    return np.frombuffer((ctypes.c_char * (n * np.dtype(dtype).itemsize)).from_address(address), dtype)


def load_library(path: Path) -> ctypes.CDLL:
    """A library with the four functions of the interface."""
    library = ctypes.CDLL(str(path))
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    library.peer_build.argtypes = (ctypes.c_char_p, number, pointer, pointer, pointer, pointer)
    library.peer_build.restype = pointer
    library.peer_match.argtypes = (pointer, number, pointer, pointer)
    library.peer_match.restype = _Arrays
    library.peer_bytes.argtypes, library.peer_bytes.restype = (pointer,), ctypes.c_int64
    library.peer_free.argtypes, library.peer_free.restype = (pointer,), None
    return library


def build_crates() -> tuple[Path | None, str]:
    """The library of the crates, built if it is not up to date; or none, and why."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return None, "there is no cargo"
    suffix = {"darwin": "libnative_peers.dylib", "win32": "native_peers.dll"}
    made = FOLDER / "target" / "release" / suffix.get(sys.platform, "libnative_peers.so")
    return _built([cargo, "build", "--release", "--quiet"], made)


def build_boost() -> tuple[Path | None, str]:
    """The library of Boost's R-tree; or none, and why."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return None, "there is no C++ compiler"
    source, made = FOLDER / "boost_rtree.cpp", FOLDER / "target" / "libboost_rtree.so"
    if made.exists() and made.stat().st_mtime > source.stat().st_mtime:
        return made, ""
    made.parent.mkdir(exist_ok=True)
    options = ["-O3", "-march=native", "-std=c++17", "-DNDEBUG", "-w", "-shared", "-fPIC"]
    return _built([compiler, *options, "-o", str(made), str(source)], made)


def _built(command: list[str], made: Path) -> tuple[Path | None, str]:
    # In the folder, where cargo finds the options for the processor.
    try:
        ran = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None, f"{Path(command[0]).name} took longer than {BUILD_SECONDS:g} s"
    if ran.returncode or not made.exists():
        wrong = [row for row in ran.stderr.splitlines() if "error" in row] or [f"ended with {ran.returncode}"]
        return None, f"{Path(command[0]).name} could not build them: {wrong[0].strip()}"
    return made, ""


def native_peers(dimensions: int) -> tuple[list[Peer], list[str]]:
    """The native contenders for so many attributes, and a line for those that cannot be had."""
    peers: list[Peer] = []
    left_out: list[str] = []
    for names, build in ((CRATES[dimensions], build_crates), (BOOST[dimensions], build_boost)):
        if not names:
            continue
        path, why = build()
        if path is None:
            left_out.append(f"{', '.join(names)}: {why}")
            continue
        library = load_library(path)
        for name in names:
            peers.append(
                Peer(
                    name, "ctypes", unfit, partial(Structure, library, name),
                    lambda plain, k: [_int32(column[:k]) for column in plain.values],
                    lambda structure, columns: structure.match(columns),
                    lambda answer: answer.found.astype(np.int64) + 1,
                )
            )  # fmt: skip
    return peers, left_out


def unfit(plain: Plain) -> str | None:
    """Native contenders hold 32-bit integers, bounded on both sides."""
    ends = [*plain.lows, *plain.highs, *plain.values]
    within = np.iinfo(np.int32)
    whole = all(end.dtype.kind == "i" for end in ends)
    if whole and all(not end.size or (end.min() >= 0 and end.max() <= within.max) for end in ends):
        return None
    return "holds whole numbers from 0 to 2^31 - 1, bounded on both sides"


def fingerprint(
    events: npt.NDArray[Any], offsets: npt.NDArray[Any], ids: npt.NDArray[Any]
) -> tuple[int, int, int]:
    """Pairs in any order: how many, and the sum and the exclusive or of a hash of event and id.

    >>> one = fingerprint(np.array([0, 1]), np.array([0, 2, 3]), np.array([7, 8, 9]))
    >>> one == fingerprint(np.array([1, 0]), np.array([0, 1, 3]), np.array([9, 8, 7]))
    True
    >>> one == fingerprint(np.array([0, 1]), np.array([0, 2, 3]), np.array([7, 9, 8]))
    False
    """
    rows = np.repeat(events.astype(np.uint64), np.diff(offsets).astype(np.int64))
    mixed = (rows << np.uint64(32)) ^ ids.astype(np.uint64)
    for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F):
        mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return len(mixed), int(mixed.sum(dtype=np.uint64)), int(np.bitwise_xor.reduce(mixed))


def fingerprint_of(c: Contender, answer: Any) -> tuple[int, int, int]:
    """The fingerprint of an answer of ours or of a native contender."""
    if c.kind == "index":
        return fingerprint(np.arange(len(answer.offsets) - 1), answer.offsets, answer.ids)
    return fingerprint(answer.events, answer.offsets, c.ids(answer))


def pairs_in(answer: Any) -> int:
    """How many pairs an answer of ours or of a native contender has."""
    return answer.n_pairs if isinstance(answer, rc.Matches) else len(answer.found)


def contenders_of(w: workloads.Workload, limit: float) -> Iterator[Contender]:
    """All contenders of a workload, each built, or left out with a reason in its row."""
    subs, plain = w.subscriptions(), Plain(w, 1)
    peers, left_out = native_peers(len(w.schema))
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr, flush=True)
    contenders = [index_contender(name, w, subs, 1) for name in OURS[len(w.schema)]]
    for c in [*contenders, *(peer_contender(peer, plain) for peer in peers)]:
        why = unfit(plain) if c.kind == "peer" else None
        c.row = {"name": c.name, "kind": c.kind}
        c.row |= {"skipped": why} if why else try_in_child(c, limit)
        if "skipped" not in c.row:
            c.warm()
            c.row["build_s"], c.built = timed(c.build, clock=PROCESS, pause_collector=True)
            c.row["bytes"] = c.built.stats()["bytes"] if c.kind == "index" else c.built.nbytes
            c.loaded = c.load(w.n_events)
        yield c


def measure(what: str, w: workloads.Workload, rounds: int, limit: float = 120.0) -> dict[str, Any]:
    """One workload: rows of figures, or the end of the run where pairs differ."""
    contenders = list(contenders_of(w, limit))
    ready = [c for c in contenders if "skipped" not in c.row]
    known: dict[tuple[int, int, int], str] = {}
    for c in ready:
        settle(c)
        known.setdefault(fingerprint_of(c, c.match(c.built, c.loaded)), c.name)
        if len(known) > 1:
            (one, first), (two, second) = known.items()
            raise SystemExit(f"{what}: pairs differ: {first} has {one}, {second} has {two}")
    pairs = next(iter(known))[0] if known else 0
    calls = {c.name: partial(c.match, c.built, c.loaded) for c in ready}
    control: list[dict[str, Any]] = []
    auto = next((c for c in ready if c.name == "auto"), None)
    if auto is not None:
        calls[COPY] = partial(
            _copied, auto.match(auto.built, auto.loaded).ids.copy(), np.empty(pairs, np.int64)
        )
        control = [{"name": COPY, "kind": "control", "build_s": 0.0, "bytes": 0}]
    taken = take_turns(
        calls, rounds, clock=PROCESS, pause_collector=True, count=pairs_in, expected=pairs, where=what
    )
    rows = [*(c.row for c in contenders), *control]
    for row in rows:
        if row["name"] in taken:
            row["match_s"] = taken[row["name"]].seconds
    return {
        "what": what, "workload": w.name, "parameters": dict(w.parameters), "seed": w.seed,
        "n_subscriptions": w.n_subscriptions, "n_events": w.n_events, "pairs": pairs,
        "rows": rows,
    }  # fmt: skip


def _copied(ids: npt.NDArray[np.int64], room: npt.NDArray[np.int64]) -> Answer:
    np.copyto(room, ids)
    return Answer(_NONE, _NONE, room)


def keep(result: dict[str, Any], rounds: int) -> None:
    """Keep the figures of a line beside those of others, for docs/performance.md."""
    m = max(result["n_events"], 1)
    fresh = {
        "what": result["what"],
        "subscriptions": result["n_subscriptions"],
        "events": result["n_events"],
        "pairs_per_event": result["pairs"] / m,
        "rounds": rounds,
        "contenders": [
            {
                "name": row["name"],
                "kind": row["kind"],
                "us_per_event": min(row["match_s"]) / m * 1e6,
                "build_s": row["build_s"],
                "bytes": row["bytes"] / max(result["n_subscriptions"], 1),
            }
            for row in result["rows"]
            if "skipped" not in row
        ],
    }
    known = {line["what"]: line for line in figures.load("native")["lines"]} if figures.has("native") else {}
    known[fresh["what"]] = fresh
    lines = [known[what] for what, *_ in LINES if what in known]
    figures.save("native", "python benchmarks/native.py", lines=lines)
    figures.write_pages()


def section(result: dict[str, Any]) -> str:
    """The figures of a workload in Markdown."""
    n, m = result["n_subscriptions"], max(result["n_events"], 1)
    text = (
        f"\n## {result['what']}\n\n`{result['workload']}`, {n:,} subscriptions, "
        f"{result['n_events']:,} events, {result['pairs'] / m:,.1f} matches per event\n\n"
        "| index or *native* | build s | best | median | M pairs/s | x auto | bytes/subscription |\n"
        "|---|--:|--:|--:|--:|--:|--:|\n"
    )
    ran = [row for row in result["rows"] if "skipped" not in row]
    auto = next((min(row["match_s"]) for row in ran if row["name"] == "auto"), None)
    for row in sorted(ran, key=lambda row: min(row["match_s"])):
        best, median = min(row["match_s"]), statistics.median(row["match_s"])
        cells = [
            f"*{row['name']}*" if row["kind"] == "peer" else row["name"],
            f"{row['build_s']:.2f}",
            f"{best / m * 1e6:,.3f}",
            f"{median / m * 1e6:,.3f}",
            f"{result['pairs'] / max(best, 1e-9) / 1e6:,.1f}",
            "" if auto is None else f"{best / max(auto, 1e-9):,.2f}",
            f"{row['bytes'] / max(n, 1):,.1f}",
        ]
        text += f"| {' | '.join(cells)} |\n"
    skipped = [f"{row['name']}: {row['skipped']}" for row in result["rows"] if "skipped" in row]
    return text + (f"\nLeft out: {'; '.join(skipped)}.\n" if skipped else "")


def run(
    only: Annotated[str, typer.Option(help="Lines whose name has this in it.")] = "",
    scale: Annotated[float, typer.Option(help="Share of subscriptions and of events.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1)] = 9,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write the tables to this file too.")] = None,
) -> None:
    """Measure `auto` and the best single indexes beside native code."""
    chosen = [row for row in LINES if only in row[0]]
    if not chosen:
        said = "; ".join(row[0] for row in LINES)
        raise typer.BadParameter(f"no line has {only!r} in its name; there are {said}", param_hint="--only")
    sized: Callable[[int], int] = lambda k: max(int(k * scale), 1)  # noqa: E731
    text = HEAD.format(arguments="".join(f" {word}" for word in sys.argv[1:]), rounds=rounds)
    print(text, end="", flush=True)
    results = []
    for what, name, options, n, m in chosen:
        results.append(measure(what, workloads.workload(name, sized(n), sized(m), **options), rounds))
        print(section(results[-1]), end="", flush=True)
        text += section(results[-1])
        if scale == 1:
            keep(results[-1], rounds)
        # After each workload, so that an interrupted run leaves what it has.
        if json_out:
            json_out.write_text(json.dumps({"rounds": rounds, "workloads": results}, indent=1) + "\n")
        if page:
            page.write_text(text)


if __name__ == "__main__":
    typer.run(run)
