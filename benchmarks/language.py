"""Predicates on expressions beside a compiled scan: python benchmarks/language.py [--subscriptions 100000]

Each kind is that many conditions of one form, matched by `auto` and by `scan`, which looks at every box of
the same hidden attributes with a compiled loop. The answers are compared, and their number of pairs is shown.
The time of a batch includes computing the expressions of its events; both pay for it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import rangecast as rc

KINDS = ("product", "quotient", "difference", "time of day", "prefix", "pattern", "contains")


def schema() -> rc.Schema:
    return rc.Schema(
        rc.Float("price"), rc.Int("quantity"), rc.Float("close"), rc.Timestamp("at"), rc.Category("symbol")
    )


def conditions(kind: str, n: int, rng: np.random.Generator) -> list[str]:
    """Texts of one form that an event matches now and then."""
    ends = np.sort(rng.random((n, 2)), axis=1)
    if kind == "product":
        return [f"price * quantity between {a * 1e6:.2f} and {a * 1e6 + 40:.2f}" for a, _ in ends]
    if kind == "quotient":
        return [f"price / close between {a + 0.5:.6f} and {a + 0.50002:.6f}" for a, _ in ends]
    if kind == "difference":
        return [
            f"price > close + {a * 2000 - 1000:.4f} and price < close + {a * 2000 - 999.9:.4f}"
            for a, _ in ends
        ]
    if kind == "time of day":
        hours = rng.integers(0, 24, n)
        lows = rng.random(n) * 1000
        return [
            f"hour(at) = {h} and price between {p:.3f} and {p + 0.5:.3f}"
            for h, p in zip(hours, lows, strict=True)
        ]
    letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    if kind == "contains":  # 200 patterns, for each is an expression
        parts = ["".join(letters[rng.integers(0, 26, 2)]) for _ in range(200)]
        lows = rng.random(n) * 1000
        return [
            f"symbol contains '{parts[k % 200]}' and price between {p:.3f} and {p + 5:.3f}"
            for k, p in enumerate(lows)
        ]
    words = ["".join(letters[rng.integers(0, 26, 4)]) for _ in range(n)]
    if kind == "prefix":
        return [f"symbol starts with '{word}'" for word in words]
    return [f"lower(symbol) like '{word[:3].lower()}%{word[3].lower()}'" for word in words]


def events_of(own: rc.Schema, m: int, rng: np.random.Generator) -> rc.Events:
    letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    symbols = ["".join(row) for row in letters[rng.integers(0, 26, (m, 6))]]
    return rc.Events.from_arrays(
        own,
        {
            "price": rng.random(m) * 1000,
            "quantity": rng.integers(1, 1000, m),
            "close": rng.random(m) * 1000 + 1,
            "at": np.datetime64("2026-01-01T00:00", "us") + rng.integers(0, 86_400 * 10**6, m),
            "symbol": symbols,
        },
    )


def seconds(index: rc.Index, own: rc.Schema, m: int, rounds: int) -> tuple[float, rc.Matches]:
    """The best time of a match with events that nothing has been computed of."""
    best, answer = np.inf, None
    for _ in range(rounds):
        events = events_of(own, m, np.random.default_rng(5))
        start = time.perf_counter()
        answer = index.match(events)
        best = min(best, time.perf_counter() - start)
    assert answer is not None
    return best, answer.sort()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", action="append", choices=KINDS, help="one form alone; may be repeated")
    options = parser.parse_args()
    print(f"{options.subscriptions:,} subscriptions, {options.events:,} events")
    print("| conditions | parse, us each | pairs | auto, us/event | scan, us/event | times |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind in options.kind or KINDS:
        own = schema()
        texts = conditions(kind, options.subscriptions, np.random.default_rng(3))
        start = time.perf_counter()
        subs = rc.Subscriptions.parse(own, ids=np.arange(len(texts)), texts=texts)
        parsing = (time.perf_counter() - start) / len(texts) * 1e6
        found = {}
        for name in ("auto", "scan"):
            index = rc.open_index(name, own)
            index.insert(subs)
            found[name] = seconds(index, own, options.events, options.rounds)
        (fast, ours), (slow, theirs) = found["auto"], found["scan"]
        assert np.array_equal(ours.offsets, theirs.offsets)
        assert np.array_equal(ours.ids, theirs.ids)
        each = 1e6 / options.events
        print(
            f"| {kind} | {parsing:.1f} | {ours.n_pairs:,} | {fast * each:.2f} | {slow * each:.1f} | "
            f"{slow / fast:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
