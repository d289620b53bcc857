"""Measure one workload: every contender in one process, in turns.

run.py starts this file once per workload, with a request as JSON on standard input, and reads the
result from the file that the request names; so a workload's memory ends with its process, and no
package's thread pool outlives it.

    what       how
    memory     a forked child builds once and matches a few events: the growth of its resident set
               at its highest, over what it had with kernels loaded and subscriptions at hand; an
               index also says its own bytes
    build      until the first event is answered, so that a structure that is built when it is first
               asked pays here
    match      one batch, with the ids read; encoding is apart, for us and for peers
    events     as many of the workload's as fit `budget` seconds a batch, from a trial: a slow
               contender answers fewer, and is compared per event
    answers    all contenders answer the same first events once, and must agree in the number of
               pairs and in the sum of their ids; those timed on as many events must agree there too

Rounds go through all contenders one after the other, so that a busy machine slows all of them; the
best round counts, and all rounds are kept for the noise band of compare.py.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rangecast as rc
from peers import PEERS, Peer, Plain
from rangecast import workloads

_REBUILD_SECONDS = 2.0
_MEMORY_EVENTS = 100


@dataclass
class Contender:
    """An index or a peer, behind one face."""

    name: str
    kind: str
    build: Callable[[], Any]
    load: Callable[[int], Any]
    match: Callable[[Any, Any], Any]
    ids: Callable[[Any], npt.NDArray[np.int64]]
    stats: Callable[[Any], dict[str, Any]]
    warm: Callable[[], None]
    most_events: int
    built: Any = None
    loaded: Any = None
    row: dict[str, Any] = field(default_factory=dict)


def parse_index(text: str) -> tuple[str, dict[str, Any]]:
    """'vci:lookup=runs,levels=4' as a name and its options.

    >>> parse_index("vci:lookup=runs,levels=4")
    ('vci', {'lookup': 'runs', 'levels': 4})
    """
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise SystemExit(f"--index {text}: options must be key=value, got {pair!r}")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return name, options


def index_contender(text: str, w: workloads.Workload, subs: rc.Subscriptions, threads: int) -> Contender:
    """One of our indexes, with its options."""
    name, options = parse_index(text)

    def build() -> Any:
        index = rc.open_index(name, w.schema, **options)
        index.insert(subs)
        return index

    def match(index: Any, events: rc.Events) -> rc.Matches:
        answer = index.match(events, threads=threads)
        answer.ids  # noqa: B018  ids are gathered when they are read, and that is part of the job
        return answer

    def warm() -> None:
        few = subs.select(np.arange(min(len(subs), 8)))
        index = rc.open_index(name, w.schema, **options)
        index.insert(few)
        match(index, w.events(0, 8))

    return Contender(
        text, "index", build, lambda k: w.events(0, k), match, lambda answer: answer.ids,
        lambda index: index.stats(), warm, w.n_events,
    )  # fmt: skip


def peer_contender(peer: Peer, plain: Plain) -> Contender:
    """A package, through its adapter."""
    return Contender(
        peer.name, "peer", lambda: peer.build(plain), lambda k: peer.load(plain, k), peer.match, peer.ids,
        lambda built: {}, lambda: __import__(peer.package),
        min(peer.most_events(plain), plain.workload.n_events),
    )  # fmt: skip


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds of a call, with the garbage collector out of the way, and its answer."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        answer = call(*arguments)
        return time.perf_counter() - start, answer
    finally:
        gc.enable()


def build_timed(c: Contender) -> float:
    """Build anew, up to the first answer."""
    c.built = None
    first = c.load(1)

    def whole() -> Any:
        built = c.build()
        c.match(built, first)
        return built

    seconds, c.built = timed(whole)
    return seconds


def resident(key: str) -> int | None:
    """VmRSS or VmHWM of this process in bytes, where the system tells."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), None)


def peak_in_child(c: Contender) -> int | None:
    """How far building and a few matches raise the resident set, in a child of its own."""
    if resident("VmHWM") is None:
        return None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            c.warm()
            few = c.load(min(_MEMORY_EVENTS, c.most_events))
            gc.collect()
            Path("/proc/self/clear_refs").write_text("5")
            before = resident("VmRSS") or 0
            built = c.build()
            c.match(built, few)
            os.write(writer, str((resident("VmHWM") or 0) - before).encode())
            os._exit(0)
        except rc.CapacityError:
            os._exit(1)  # the build in the parent says so in the table
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return int(said) if said else None


def events_within(c: Contender, budget: float) -> int:
    """How many events a contender answers in about `budget` seconds, from growing trials."""
    k = min(4, c.most_events)
    while True:
        events = c.load(k)
        seconds, _ = timed(c.match, c.built, events)
        if k >= c.most_events:
            return k
        if seconds > budget / 4:
            # A little over the budget is better than an odd number of events.
            wanted = k * budget / max(seconds, 1e-9)
            return c.most_events if wanted * 1.5 >= c.most_events else max(_two_digits(int(wanted)), 1)
        k = min(k * 4, c.most_events)


def _two_digits(number: int) -> int:
    unit = 10 ** max(len(str(number)) - 2, 0)
    return number // unit * unit


def check_agreement(contenders: list[Contender]) -> int:
    """All contenders answer the same first events alike, or the run ends here."""
    k = min(c.row["events"] for c in contenders)
    answers: dict[tuple[int, int], list[str]] = {}
    for c in contenders:
        ids = c.ids(c.match(c.built, c.load(k)))
        answers.setdefault((len(ids), int(ids.sum())), []).append(c.name)
    if len(answers) > 1:
        said = "; ".join(f"{', '.join(who)}: {n:,} pairs, id sum {s:,}" for (n, s), who in answers.items())
        raise SystemExit(f"answers differ on the first {k:,} events: {said}")
    return k


def check_counts(contenders: list[Contender]) -> None:
    """Those timed on as many events must have found as many pairs."""
    by_events: dict[int, dict[int, list[str]]] = {}
    for c in contenders:
        by_events.setdefault(c.row["events"], {}).setdefault(c.row["pairs"], []).append(c.name)
    for k, counts in by_events.items():
        if len(counts) > 1:
            said = "; ".join(f"{', '.join(who)}: {n:,} pairs" for n, who in counts.items())
            raise SystemExit(f"answers differ on {k:,} events: {said}")


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """The result of one workload."""
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    w = workloads.workload(
        request["workload"],
        request["n_subscriptions"],
        request["n_events"],
        request["seed"],
        **request["options"],
    )
    subs_s, subs = timed(w.subscriptions)
    events_s, _ = timed(w.events)
    plain = Plain(w, request["threads"])
    contenders = [index_contender(text, w, subs, request["threads"]) for text in request["indexes"]]
    rows: list[dict[str, Any]] = []
    for name in request["peers"]:
        peer = PEERS[name]
        why = f"{peer.package} is not installed" if not peer.installed else peer.unfit(plain)
        if why:
            rows.append({"name": name, "kind": "peer", "skipped": why})
        else:
            contenders.append(peer_contender(peer, plain))
    if len(contenders) > len(request["indexes"]):
        _ = plain.lows, plain.equality  # made now, so that no child counts them as the peer's memory
    # Children are forked before any peer is imported here, and so before there are other threads.
    ready: list[Contender] = []
    for c in contenders:
        say(f"{w.name}: {c.name}: memory, build")
        c.row = {"name": c.name, "kind": c.kind, "peak_bytes": peak_in_child(c)}
        rows.append(c.row)
    for c in contenders:
        try:
            c.warm()
            c.row["build_s"] = [build_timed(c)]
        except (rc.RangecastError, MemoryError) as error:
            c.row["skipped"] = f"{type(error).__name__}: {error}"
            continue
        c.row["bytes"] = c.stats(c.built).get("bytes")
        c.row["events"] = events_within(c, request["budget"])
        c.row["match_s"] = []
        ready.append(c)
    if not ready:
        raise SystemExit(
            f"{w.name}: nothing to measure: " + "; ".join(f"{r['name']}: {r['skipped']}" for r in rows)
        )
    checked = check_agreement(ready)
    for c in ready:
        c.loaded = c.load(c.row["events"])
    for turn in range(request["repeat"]):
        say(f"{w.name}: round {turn + 1} of {request['repeat']}")
        for c in ready:
            if turn and sum(c.row["build_s"]) < _REBUILD_SECONDS:
                c.row["build_s"].append(build_timed(c))
            seconds, answer = timed(c.match, c.built, c.loaded)
            c.row["match_s"].append(seconds)
            pairs = len(c.ids(answer))
            if c.row.setdefault("pairs", pairs) != pairs:
                raise SystemExit(f"{c.name}: {c.row['pairs']:,} pairs in one round, {pairs:,} in another")
            del answer
    check_counts(ready)
    return {
        "workload": w.name,
        "n_subscriptions": w.n_subscriptions,
        "n_events": w.n_events,
        "n_attributes": len(w.schema),
        "parameters": dict(w.parameters),
        "seed": w.seed,
        "encode_subscriptions_s": subs_s,
        "encode_events_s": events_s,
        "events_checked": checked,
        "rows": rows,
    }


def first_call(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the first insert and match of an index in this process, over those of the second."""
    w = workloads.workload("rectangles", 1_000, 100)
    subs, events = w.subscriptions(), w.events()
    name, options = parse_index(request["first_call"])
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        index = rc.open_index(name, w.schema, **options)
        index.insert(subs)
        index.match(events).ids  # noqa: B018
        seconds.append(time.perf_counter() - start)
    return {"name": request["first_call"], "first_s": seconds[0] - seconds[1]}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    result = first_call(asked) if "first_call" in asked else measure(asked)
    Path(asked["out"]).write_text(json.dumps(result))
