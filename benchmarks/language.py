"""Every kind of predicate beside a compiled scan.

    python benchmarks/language.py --keep                  keeps the figures, and writes them into the page
    python benchmarks/language.py --keep --kind like      this row alone; the others stay as they were
    python benchmarks/language.py --subscriptions 10000   a tenth of the subscriptions; only prints

A kind is one form of conditions, 100,000 of them, matched by `auto` and by a scan. The scan is the faster of
two that look at every subscription with a compiled loop: `scan`, on the same hidden attributes as `auto`,
and, for patterns, tags and circles, a plain one that looks for each subscription's own string in the event's
text or tags, or takes the distance from each centre.
The answers are compared, and their number is shown. The time of a batch includes what is computed of its
events: expressions, automata, sets of patterns. The mixture is a million subscriptions of several kinds.

A further kind is an entry of KINDS, and its name in MIXTURE makes it part of the mixture.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import figures
import rangecast as rc
from places import drawn, on_sphere, scan_circles
from rangecast.simd.compiler import kernel
from rangecast.types.places import EARTH_RADIUS

LETTERS = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
Rng = np.random.Generator
Arrays = dict[str, npt.NDArray[Any]]


def schema() -> rc.Schema:
    return rc.Schema(
        rc.Float("price"),
        rc.Int("quantity"),
        rc.Float("close"),
        rc.Timestamp("at"),
        rc.Category("symbol"),
        rc.Category("title"),
        rc.Text("name"),
        rc.Tags("tags"),
        rc.Category("ip"),
        rc.Point("spot"),
    )


def words_of(n: int, size: int, rng: Rng) -> list[str]:
    return ["".join(row) for row in LETTERS[rng.integers(0, 26, (n, size))]]


class Kind(NamedTuple):
    """A form of conditions: their texts, the columns of events that they read, and a plain scan if any."""

    texts: Callable[[int, Rng], list[str]]
    columns: tuple[str, ...]
    plain: Callable[[Any, Any], Any] | None = None


def product(n: int, rng: Rng) -> list[str]:
    return [f"price * quantity between {a * 1e6:.2f} and {a * 1e6 + 40:.2f}" for a in rng.random(n)]


def quotient(n: int, rng: Rng) -> list[str]:
    return [f"price / close between {a + 0.5:.6f} and {a + 0.50002:.6f}" for a in rng.random(n)]


def difference(n: int, rng: Rng) -> list[str]:
    return [f"price - close between {a * 2000 - 1000:.4f} and {a * 2000 - 999.9:.4f}" for a in rng.random(n)]


def time_of_day(n: int, rng: Rng) -> list[str]:
    pairs = zip(rng.integers(0, 24, n), rng.random(n) * 1000, strict=True)
    return [f"hour(at) = {hour} and price between {p:.3f} and {p + 0.5:.3f}" for hour, p in pairs]


def prefix(n: int, rng: Rng) -> list[str]:
    return [f"symbol starts with '{word}'" for word in words_of(n, 4, rng)]


def contains(n: int, rng: Rng) -> list[str]:
    """20,000 patterns, most of which some subscriptions share."""
    parts = VOCABULARY[rng.integers(0, len(VOCABULARY), n)]
    return [
        f"title contains '{part}' and price > {p:.3f}"
        for part, p in zip(parts, rng.random(n) * 1000, strict=True)
    ]


def like(n: int, rng: Rng) -> list[str]:
    parts = VOCABULARY[rng.integers(0, len(VOCABULARY), (n, 2))]
    return [f"title like '%{a}%{b[:2]}%'" for a, b in parts]


def has(n: int, rng: Rng) -> list[str]:
    tags = rng.integers(0, N_TAGS, n)
    return [
        f"tags has 't{tag}' and price > {p:.3f}" for tag, p in zip(tags, rng.random(n) * 1000, strict=True)
    ]


def has_all(n: int, rng: Rng) -> list[str]:
    return [f"tags has all ('t{a}', 't{b}')" for a, b in rng.integers(0, N_TAGS, (n, 2))]


def network(n: int, rng: Rng) -> list[str]:
    return [f"ip in '10.{a}.{b}.0/{bits}'" for a, b, bits in rng.integers([0, 0, 24], [256, 256, 29], (n, 3))]


def order(n: int, rng: Rng) -> list[str]:
    lows = words_of(n, 4, rng)
    return [f"name >= '{low}' and name < '{low}M'" for low in lows]


def circle(n: int, rng: Rng) -> list[str]:
    rows = zip(drawn(n, rng).tolist(), rng.uniform(50, 1_500, n).tolist(), strict=True)
    return [f"spot within {metres:.1f} m of ({x}, {y})" for (x, y), metres in rows]


N_TAGS = 2_000
VOCABULARY = np.array(sorted(set(words_of(20_000, 6, np.random.default_rng(1)))))


@kernel
def _within(text: Any, first: int, last: int, piece: Any, start: int, stop: int) -> int:
    """Where a piece begins in a text, -1 where it does not."""
    size = stop - start
    for at in range(first, last - size + 1):
        k = 0
        while k < size and text[at + k] == piece[start + k]:
            k += 1
        if k == size:
            return at
    return -1


@kernel
def _scan_pieces(
    text: Any, firsts: Any, prices: Any, pieces: Any, starts: Any, lows: Any, per: int, counts: Any
) -> None:
    """Count the subscriptions whose `per` pieces follow one another in a text, and whose price is above."""
    for event in range(len(firsts) - 1):
        n = 0
        for one in range(len(lows)):
            if prices[event] > lows[one]:
                at = firsts[event]
                for k in range(per * one, per * one + per):
                    at = _within(text, at, firsts[event + 1], pieces, starts[k], starts[k + 1])
                    if at < 0:
                        break
                    at += starts[k + 1] - starts[k]
                n += at >= 0
        counts[event] = n


@kernel
def _scan_tags(tags: Any, firsts: Any, prices: Any, wanted: Any, lows: Any, counts: Any) -> None:
    """Count the subscriptions all of whose tags an event has, and whose price is above."""
    n_wanted = wanted.shape[1]
    for event in range(len(firsts) - 1):
        n = 0
        for one in range(len(lows)):
            if prices[event] > lows[one]:
                held = 0
                for k in range(n_wanted):
                    for at in range(firsts[event], firsts[event + 1]):
                        if tags[at] == wanted[one, k]:
                            held += 1
                            break
                    if held <= k:
                        break
                n += held == n_wanted
        counts[event] = n


def _bytes(words: list[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    raw = [word.encode() for word in words]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in raw])]).astype(np.int64)
    return np.frombuffer(b"".join(raw), np.uint8).copy(), starts


def plain_pieces(texts: list[str], columns: dict[str, Any]) -> Callable[[], npt.NDArray[np.int64]]:
    """A scan of the conditions of `contains` and `like`, over the bytes of titles."""
    split = [text.split("'")[1].strip("%").split("%") for text in texts]
    lows = np.array([float(text.rpartition("> ")[2]) if "price" in text else -1.0 for text in texts])
    pieces, starts = _bytes([piece for one in split for piece in one])
    text, firsts = _bytes(columns["title"])
    counts = np.empty(len(firsts) - 1, np.int64)

    def scan() -> npt.NDArray[np.int64]:
        _scan_pieces(text, firsts, columns["price"], pieces, starts, lows, len(split[0]), counts)
        return counts

    return scan


def plain_tags(texts: list[str], columns: dict[str, Any]) -> Callable[[], npt.NDArray[np.int64]]:
    """A scan of the conditions of `has` and `has all`, over numbers for tags."""
    wanted = np.array([[int(part[1:]) for part in text.split("'")[1::2]] for text in texts])
    lows = np.array([float(text.rpartition("> ")[2]) if "price" in text else -1.0 for text in texts])
    tags = np.array([int(tag[1:]) for own in columns["tags"] for tag in own])
    firsts = np.concatenate([[0], np.cumsum([len(own) for own in columns["tags"]])]).astype(np.int64)
    counts = np.empty(len(firsts) - 1, np.int64)

    def scan() -> npt.NDArray[np.int64]:
        _scan_tags(tags, firsts, columns["price"], wanted, lows, counts)
        return counts

    return scan


def plain_circles(texts: list[str], columns: dict[str, Any]) -> Callable[[], npt.NDArray[np.int64]]:
    """A scan of the conditions of `circle`, by the straight line from each centre."""
    numbers = np.array([re.findall(r"-?[0-9.]+", text) for text in texts], np.float64)
    chords = 2 * np.sin(numbers[:, 0] / EARTH_RADIUS / 2)
    circles = np.column_stack([on_sphere(numbers[:, 1:]), chords**2])
    spheres = on_sphere(np.asarray(columns["spot"]))
    rows, found = np.empty(1 << 22, np.int64), np.empty(1 << 22, np.int64)

    def scan() -> npt.NDArray[np.int64]:
        n = scan_circles(circles, spheres, rows, found)
        return np.bincount(rows[:n], minlength=len(spheres))

    return scan


KINDS: dict[str, Kind] = {
    "product": Kind(product, ("price", "quantity")),
    "quotient": Kind(quotient, ("price", "close")),
    "difference": Kind(difference, ("price", "close")),
    "time of day": Kind(time_of_day, ("at", "price")),
    "prefix": Kind(prefix, ("symbol",)),
    "contains": Kind(contains, ("title", "price"), plain_pieces),
    "like": Kind(like, ("title", "price"), plain_pieces),
    "has": Kind(has, ("tags", "price"), plain_tags),
    "has all": Kind(has_all, ("tags", "price"), plain_tags),
    "network": Kind(network, ("ip",)),
    "text order": Kind(order, ("name",)),
    "circle": Kind(circle, ("spot",), plain_circles),
}
SUBSCRIPTIONS, MIXED, EVENTS = 100_000, 1_000_000, 10_000
MIXTURE = ("product", "difference", "prefix", "has", "circle")


def columns_of(names: set[str], m: int, rng: Rng) -> dict[str, Any]:
    """Columns of random events."""
    made: dict[str, Callable[[], Any]] = {
        "price": lambda: rng.random(m) * 1000,
        "quantity": lambda: rng.integers(1, 1000, m),
        "close": lambda: rng.random(m) * 1000 + 1,
        "at": lambda: np.datetime64("2026-01-01T00:00", "us") + rng.integers(0, 86_400 * 10**6, m),
        "symbol": lambda: words_of(m, 6, rng),
        "title": lambda: [" ".join(row) for row in VOCABULARY[rng.integers(0, len(VOCABULARY), (m, 6))]],
        "name": lambda: words_of(m, 6, rng),
        "tags": lambda: [[f"t{tag}" for tag in own] for own in rng.integers(0, N_TAGS, (m, 4)).tolist()],
        "spot": lambda: drawn(m, rng).tolist(),
        "ip": lambda: [f"10.{a}.{b}.{c}" for a, b, c in rng.integers(0, 256, (m, 3))],
    }
    return {name: made[name]() for name in sorted(names)}


class Measured(NamedTuple):
    parsing: float
    pairs: int
    auto: float
    scan: float


def measured(kinds: tuple[str, ...], n: int, m: int, rounds: int, scanned: int) -> Measured:
    """What the conditions of some kinds take, in microseconds."""
    own, rng = schema(), np.random.default_rng(3)
    share = n // len(kinds)
    texts = [text for kind in kinds for text in KINDS[kind].texts(share, rng)]
    start = time.process_time()
    subs = rc.Subscriptions.parse(own, ids=np.arange(len(texts)), texts=texts)
    parsing = (time.process_time() - start) / len(texts) * 1e6
    columns = columns_of({name for kind in kinds for name in KINDS[kind].columns}, m, rng)
    indexes = {name: rc.open_index(name, own) for name in ("auto", "scan")}
    for index in indexes.values():
        index.insert(subs)
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    few = {name: column[:scanned] for name, column in columns.items()}
    plain = None
    if len(kinds) == 1 and (maker := KINDS[kinds[0]].plain) is not None:
        plain = maker(texts, few)
    best = {"auto": np.inf, "scan": np.inf}
    pairs = 0
    for _ in range(rounds):
        events = rc.Events.from_arrow(own, table)
        start = time.process_time()
        ours = indexes["auto"].match(events)
        best["auto"] = min(best["auto"], (time.process_time() - start) / m)
        pairs = ours.n_pairs
        events = rc.Events.from_arrow(own, table.slice(0, scanned))
        start = time.process_time()
        theirs = indexes["scan"].match(events)
        best["scan"] = min(best["scan"], (time.process_time() - start) / len(events))
        last = int(ours.offsets[len(events)])
        assert np.array_equal(ours.sort().ids[:last], theirs.sort().ids)
        if plain is not None:
            start = time.process_time()
            counts = plain()
            best["scan"] = min(best["scan"], (time.process_time() - start) / len(events))
            assert np.array_equal(counts, theirs.counts)
    return Measured(parsing, pairs, best["auto"] * 1e6, best["scan"] * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=SUBSCRIPTIONS)
    parser.add_argument("--mixture", type=int, default=MIXED, help="subscriptions of the mixture")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--scanned", type=int, default=40, help="events that the scans look at")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kind", action="append", choices=[*KINDS, "mixture"], help="one form alone")
    parser.add_argument("--keep", action="store_true", help="keep the figures, and write them into the page")
    options = parser.parse_args()
    sizes = options.subscriptions, options.mixture, options.events
    if options.keep and sizes != (SUBSCRIPTIONS, MIXED, EVENTS):
        parser.error("figures are kept of runs at full size")
    rows = []
    for kind in options.kind or [*KINDS, "mixture"]:
        mixed = kind == "mixture"
        kinds, n = (MIXTURE, options.mixture) if mixed else ((kind,), options.subscriptions)
        found = measured(kinds, n, options.events, options.rounds, options.scanned)
        rows.append(
            {
                "kind": kind,
                "conditions": title(kind),
                "subscriptions": n,
                "events": options.events,
                "parse_us": found.parsing,
                "pairs_per_event": found.pairs / options.events,
                "us_per_event": found.auto,
                "scan_us_per_event": found.scan,
            }
        )
        print(
            f"{kind}: {n:,} subscriptions, parsed in {found.parsing:.1f} us each, "
            f"{rows[-1]['pairs_per_event']:.2f} pairs per event, {found.auto:.2f} us per event, "
            f"scan {found.scan:.1f}, {found.scan / found.auto:.0f} times",
            flush=True,
        )
    if options.keep:
        kept = {row["kind"]: row for row in [*figures.load("language")["kinds"], *rows]}
        order = [kind for kind in [*KINDS, "mixture"] if kind in kept]
        command = "python benchmarks/language.py --keep"
        figures.save("language", command, kinds=[kept[kind] for kind in order])
        figures.write_pages()


def title(kind: str) -> str:
    """What a line is called: an example of its conditions."""
    if kind == "mixture":
        return f"a mixture: {', '.join(MIXTURE)}"
    return f"`{KINDS[kind].texts(1, np.random.default_rng(0))[0]}`"


if __name__ == "__main__":
    main()
