"""Measure one workload: every contender in one process, in turns.

run.py starts this file once per workload, with a request as JSON on standard input, and reads the
result from the file that the request names; so a workload's memory ends with its process, and no
package's thread pool outlives it.

    what       how
    memory     a forked child builds once and matches a few events: the growth of its resident set
               at its highest, over what it had with kernels loaded and subscriptions at hand; an
               index also says its own bytes. A contender whose child needs too much memory or more
               than `limit` seconds is left out
    build      until the first event is answered, so that a structure that is built when it is first
               asked pays here
    match      one batch, with the ids read; encoding is apart, for us and for peers
    events     as many of the workload's as fit `budget` seconds per batch, from a trial: a slow
               contender answers fewer, and is compared per event
    settling   before the rounds each answers its batch for some seconds, as a service would have: `auto`
               learns from the events that come
    answers    each contender's must agree with those of the index that answered most events, in the
               number of pairs and in the sum of their ids; every round must find as many again

Rounds go through all contenders one after the other, so that a busy machine slows all of them; the
best round counts, and all rounds are kept for the noise band of compare.py.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rangecast as rc
from peers import PEERS, Peer, Plain
from rangecast import workloads
from rangecast.papers.measuring import WALL, take_rounds, timed

_REBUILD_SECONDS = 2.0
_SETTLING_SECONDS, _SETTLING_BATCHES = 1.0, 64
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


waited = partial(timed, clock=WALL, pause_collector=True)
"""Seconds of a call by the wall clock, with the garbage collector out of the way, and its answer."""


def build_timed(c: Contender) -> tuple[float, Any]:
    """Build anew, up to the first answer: the seconds, and what was built."""
    first = c.load(1)

    def whole() -> Any:
        built = c.build()
        c.match(built, first)
        return built

    return waited(whole)


def settle(c: Contender) -> None:
    """Let a contender answer its batch for a while."""
    spent = 0.0
    for _ in range(_SETTLING_BATCHES):
        spent += waited(c.match, c.built, c.loaded)[0]
        if spent > _SETTLING_SECONDS:
            break


def resident(key: str, source: str = "/proc/self/status") -> int | None:
    """VmRSS, VmHWM or VmSize of this process in bytes, where the system tells."""
    try:
        lines = Path(source).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), None)


def available_memory() -> int | None:
    """Bytes that could still be used, where the system tells."""
    return resident("MemAvailable", "/proc/meminfo")


def forget_peak() -> None:
    """Let the highest resident set so far be forgotten."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def try_in_child(c: Contender, limit: float) -> dict[str, Any]:
    """Build and match a few events in a child, bounded in time and memory.

    Gives how far that raised the resident set, or why the contender must be left out: what does not
    end here within the limits would not end in the parent either.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said: dict[str, Any] = {}
        try:
            os.close(reader)
            signal.alarm(math.ceil(limit))
            room = available_memory()
            if room is not None:
                bound = (resident("VmSize") or 0) + room // 2
                resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
            c.warm()
            few = c.load(min(_MEMORY_EVENTS, c.most_events))
            gc.collect()
            forget_peak()
            before = resident("VmRSS")
            c.match(c.build(), few)
            highest = resident("VmHWM")
            said["peak_bytes"] = None if highest is None or before is None else highest - before
        except MemoryError as error:  # also our own refusal, CapacityError
            said["skipped"] = f"{error}" or "needs more than half of the memory that is free"
        except BaseException as error:
            traceback.print_exc()
            said["skipped"] = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer:
        return dict(json.loads(answer))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return {"skipped": f"building and matching {_MEMORY_EVENTS} events took longer than {limit:g} s"}
    return {"skipped": f"its process ended with status {status}"}


def events_within(c: Contender, budget: float) -> int:
    """How many events a contender answers in about `budget` seconds, from growing trials."""
    k = min(4, c.most_events)
    while True:
        events = c.load(k)
        seconds, _ = waited(c.match, c.built, events)
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


def check_agreement(contenders: list[Contender]) -> None:
    """Every contender answers its events as the reference does, or the run ends here.

    The reference is the index that answers most events; its rows are in the order of the events, so
    the answer to the first k of them is a prefix of its own.
    """
    reference = max(contenders, key=lambda c: (c.kind == "index", c.row["events"]))
    if reference.kind != "index":
        raise SystemExit("no index was measured, so there is nothing to check the peers against")
    known = reference.match(reference.built, reference.load(reference.row["events"]))
    for c in contenders:
        k = min(c.row["events"], reference.row["events"])
        ids = c.ids(c.match(c.built, c.load(k)))
        expected = known.ids[: known.offsets[k]]
        if (len(ids), ids.sum()) != (len(expected), expected.sum()):
            raise SystemExit(
                f"answers differ on the first {k:,} events: {reference.name} has {len(expected):,} pairs, "
                f"id sum {expected.sum():,}; {c.name} has {len(ids):,} pairs, id sum {ids.sum():,}"
            )
        c.row["events_checked"] = k


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
    w.subscriptions(), w.events()  # the first call loads kernels
    subs_s, subs = waited(w.subscriptions)
    events_s, _ = waited(w.events)
    plain = Plain(w, request["threads"])
    contenders = [index_contender(text, w, subs, request["threads"]) for text in request["indexes"]]
    rows: list[dict[str, Any]] = []
    for name in request["peers"]:
        peer = PEERS[name]
        why = peer.left_out(plain)
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
        c.row = {"name": c.name, "kind": c.kind, **try_in_child(c, request["limit"])}
        rows.append(c.row)
    for c in contenders:
        if "skipped" in c.row:
            continue
        c.warm()
        seconds, c.built = build_timed(c)
        c.row["build_s"] = [seconds]
        c.row["bytes"] = c.stats(c.built).get("bytes")
        c.row["events"] = events_within(c, request["budget"])
        c.row["match_s"] = []
        ready.append(c)
    if not ready:
        raise SystemExit(
            f"{w.name}: nothing to measure: " + "; ".join(f"{r['name']}: {r['skipped']}" for r in rows)
        )
    check_agreement(ready)
    for c in ready:
        c.loaded = c.load(c.row["events"])
        settle(c)
    for turn in range(request["repeat"]):
        say(f"{w.name}: round {turn + 1} of {request['repeat']}")
        for c in ready:
            if turn and sum(c.row["build_s"]) < _REBUILD_SECONDS:
                c.row["build_s"].append(build_timed(c)[0])
            seconds, answer = waited(c.match, c.built, c.loaded)
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
        "rows": rows,
    }


def first_call(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the first insert and match of an index in this process, over those of the second."""
    w = workloads.workload("rectangles", 1_000, 100)
    subs, events = w.subscriptions(), w.events()
    name, options = parse_index(request["first_call"])

    def whole() -> None:
        index = rc.open_index(name, w.schema, **options)
        index.insert(subs)
        index.match(events).ids  # noqa: B018

    first, second = take_rounds(whole, 2, clock=WALL).seconds
    return {"name": request["first_call"], "first_s": first - second}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    result = first_call(asked) if "first_call" in asked else measure(asked)
    Path(asked["out"]).write_text(json.dumps(result))
