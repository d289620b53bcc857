"""Every way in, from what users have to ids, beside the cheapest honest way to the same columns.

    python benchmarks/doors.py                                    all parts; keeps them in figures/doors.json
    python benchmarks/doors.py --part strings --part texts        these parts, kept beside the others
    python benchmarks/doors.py --events 5000 --repeat 1           other sizes; only prints
    python benchmarks/doors.py --page docs/performance-doors.md   writes the page from what is kept

Five shapes of events: numbers only; three strings; six mixed attributes; twelve of which some are missing;
forty columns of which five are attributes. Each door takes the same events and ends with all ids delivered,
and its matches are compared with those of events that were encoded before. `alone` is what leads to the same
columns without us:

    door         alone
    Arrow        PyArrow's look-up of each string in a set (`index_in`), numbers as NumPy arrays
    rows         a Python loop over the dicts, with a look-up in a dict for each string; in lists of 1,000,
                 and the first 1,000 again and again, whose objects are in the caches then
    JSON lines   PyArrow's reader on the same file, with the types of the columns given; once matched by one
                 thread, once by two, of which one reads ahead, and once read into events without a match
    CSV          PyArrow's reader on the same file, likewise
    one dict     the same loop as for rows, over one dict

Times are wall-clock, the best of some rounds, door and `alone` in turns in one process; read the ratios. One
event at a time is the median of single calls, the best of nine rounds. The other parts: one encoded event on
workloads that together take every access path (`paths`), texts of conditions (`texts`), frames of several
kinds (`frames`), the first match of a fresh process, with kernels from the cache and without (`start`), the
ingest of `rangecast demo` (`demo`), and what crosses to Spark's workers (`spark`).

For `spark`, events have forty columns, of which five are attributes (`wide-40`), in Parquet; what comes out
is counted and not kept. CPU seconds are those of this process, the JVM and all Python workers:

    contender            what it is
    identity, all        mapInArrow that hands every batch back: all columns cross, twice
    identity, needed     the same of the id and the attributes alone, which is what rs.match lets cross
    pairs, no match      the same columns into the workers, and as many pairs back as matching gives
    match                rs.match
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

import figures
import rangecast as rc
from rangecast.engine.planner import lay_out_at_once
from rangecast.loading import EventFile
from rangecast.papers.measuring import WALL, take_turns
from rangecast.workloads import workload

WORDS = 2_000
ROWS_AT_ONCE = 1_000
AGAIN = 25
ONE_BY_ONE = 400
ROUNDS = 9
START = 1_700_000_000_000_000
TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "category": pa.string(),
    "timestamp": pa.timestamp("us"),
    "bool": pa.bool_(),
}
FRESH = """
import sys, time; start = time.perf_counter()
# what Numba loads where it is installed, as it is beside tests, and an installation does not bring
sys.modules |= {"coverage": None, "yaml": None}
import rangecast as rc
schema = rc.Schema(rc.Int("price"), rc.Category("symbol"), rc.Float("change"))
forms = (
    "price between {k} and {high} and symbol = 's{word}'",
    "change > 0.{part} and symbol in ('s{word}', 'a{word}') and price < {k}",
    "symbol = 's{word}' and change < -0.{part}",
)
texts = {
    k: forms[k % 3].format(k=k, high=k + 10, word=k % 500, part=10 + k % 89) for k in range(int(sys.argv[1]))
}
index = rc.open_index("auto", schema)
index.insert(rc.Subscriptions.parse(schema, texts))
found = index.match_one({"price": 57, "symbol": "s57"})
assert found.tolist() == [57], found
print(time.perf_counter() - start)
"""
FRESH_SIZES = (2_000, 10_000)
PATHS = (
    ("intervals", {}),
    ("intervals-wide-domain", {}),
    ("rectangles", {"rx": 20_000, "ry": 20_000}),
    ("boxes-12d", {}),
    ("equality-led", {}),
    ("stock-alerts", {}),
    ("wide", {}),
)


class Shape(NamedTuple):
    """Events of one shape as an Arrow table, and subscriptions on some of its columns."""

    name: str
    schema: rc.Schema
    table: pa.Table
    subscriptions: rc.Subscriptions


class Figure(NamedTuple):
    """Microseconds per event of a door and of what stands beside it."""

    shape: str
    door: str
    ours: float
    alone: float | None


def make_words(rng: np.random.Generator) -> np.ndarray:
    """Strings of 5 to 17 letters and digits."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    lengths = rng.integers(4, 14, WORDS)
    made = ["".join(rng.choice(letters, length)) + str(k) for k, length in enumerate(lengths)]
    return np.array(made, object)


def numbers(n: int, m: int, rng: np.random.Generator) -> Shape:
    """Three numbers."""
    schema = rc.Schema(rc.Int("size", 0, 9_999), rc.Float("price"), rc.Float("change"))
    columns = {
        "size": rng.integers(0, 10_000, m),
        "price": rng.random(m).round(6),
        "change": rng.normal(size=m).round(6),
    }
    lows = {"size": rng.integers(0, 9_900, n), "price": rng.random(n), "change": rng.normal(size=n)}
    highs = {name: low + width for (name, low), width in zip(lows.items(), (100, 0.05, 0.2), strict=True)}
    subs = rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)
    return Shape("numbers", schema, pa.table(columns), subs)


def strings(n: int, m: int, rng: np.random.Generator) -> Shape:
    """Three strings, of which a subscription names two; a tenth of the words is in no subscription."""
    names = ("country", "device", "campaign")
    schema = rc.Schema(*map(rc.Category, names))
    words = make_words(rng)
    table = pa.table({name: words[rng.integers(0, WORDS, m)] for name in names})
    said = words[rng.integers(0, WORDS - WORDS // 10, (3, n))]
    said[rng.integers(0, 3, n), np.arange(n)] = None
    columns = dict(zip(names, said, strict=True))
    return Shape("strings", schema, table, rc.Subscriptions.from_arrays(schema, range(n), columns, columns))


def six(n: int, m: int, rng: np.random.Generator) -> Shape:
    """Six attributes of all types; a subscription bounds two of them and a string."""
    names = {"size": rc.Int, "price": rc.Float, "change": rc.Float, "symbol": rc.Category, "at": rc.Timestamp}
    schema = rc.Schema(*(kind(name) for name, kind in names.items()), rc.Bool("open"))
    words = make_words(rng)
    at = rng.integers(0, 10**12, m) + START
    columns = {
        "size": rng.integers(0, 10_000, m),
        "price": rng.random(m).round(6),
        "change": rng.normal(size=m).round(6),
        "symbol": words[rng.integers(0, WORDS, m)],
        "at": pa.array(at).cast(TYPES["timestamp"]),
        "open": rng.random(m) < 0.5,
    }
    named, low, price = words[rng.integers(0, WORDS, n)], rng.integers(0, 9_000, n), rng.random(n)
    lows = {"symbol": named, "size": low, "price": price}
    highs = {"symbol": named, "size": low + 1_000, "price": price + 0.2}
    subs = rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)
    return Shape("mixed-6", schema, pa.table(columns), subs)


def mixed(n: int, m: int, rng: np.random.Generator) -> Shape:
    """Twelve attributes of all types, a fifth of the values missing; a subscription bounds three."""
    kinds = (rc.Int, rc.Float, rc.Category, rc.Timestamp)
    schema = rc.Schema(*(kinds[k % 4](f"a{k}") for k in range(12)))
    words = make_words(rng)
    bounded = rng.random((n, 12)).argsort(1)[:, :3]
    columns: dict[str, Any] = {}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for k, attribute in enumerate(schema):
        name, kind = attribute.name, attribute.kind
        free = ~(bounded == k).any(1)
        values, low = rng.integers(0, 1_000_000, m), rng.integers(0, 950_000, n)
        high = low + 50_000
        if kind == "category":
            values, low = words[values % WORDS], words[low % WORDS]
            high = low
        elif kind == "float":
            values, low, high = values / 1024, low / 1024, high / 1024
        elif kind == "timestamp":
            values, low, high = values + START, low + START, high + START
        columns[name] = pa.array(values, mask=rng.random(m) < 0.2).cast(TYPES[kind])
        lows[name], highs[name] = pa.array(low, mask=free), pa.array(high, mask=free)
    subs = rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)
    return Shape("mixed-12", schema, pa.table(columns), subs)


def wide(n: int, m: int, rng: np.random.Generator) -> Shape:
    """Forty columns, every eighth an attribute: three numbers and two strings."""
    schema = rc.Schema(rc.Int("c0"), rc.Float("c8"), rc.Category("c16"), rc.Int("c24"), rc.Category("c32"))
    words = make_words(rng)
    columns = {f"c{k}": rng.integers(0, 100_000, m) for k in range(40)}
    columns["c8"] = columns["c8"] / 64
    columns |= {name: words[columns[name] % WORDS] for name in ("c16", "c32", "c7", "c23")}
    low = rng.integers(0, 98_000, n)
    named = words[rng.integers(0, WORDS, n)]
    subs = rc.Subscriptions.from_arrays(
        schema, np.arange(n), {"c0": low, "c16": named}, {"c0": low + 2_000, "c16": named}
    )
    return Shape("wide-40", schema, pa.table(columns), subs)


SHAPES: dict[str, Callable[[int, int, np.random.Generator], Shape]] = {
    "numbers": numbers,
    "strings": strings,
    "mixed-6": six,
    "mixed-12": mixed,
    "wide-40": wide,
}


class Doors:
    """The doors of one shape."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        self.shape = shape
        self.index = rc.open_index("auto", shape.schema)
        self.index.insert(shape.subscriptions)
        self.events = rc.Events.from_arrow(shape.schema, shape.table)
        self.rows = shape.table.to_pylist()
        self.words = {
            a.name: {word: code for code, word in enumerate(a.vocabulary.words(), 1)}
            for _, a in shape.schema.categories()
        }
        self.jsonl, self.csv = folder / f"{shape.name}.jsonl", folder / f"{shape.name}.csv"
        with self.jsonl.open("w") as file:
            for row in self.rows:
                file.write(json.dumps(row, default=dt.datetime.isoformat) + "\n")
        pacsv.write_csv(shape.table, self.csv)
        self.pairs = self.index.match(self.events).n_pairs

    def check(self) -> None:
        """End the run unless every door finds what the scan finds, event by event."""
        few = 50
        scan = rc.open_index("scan", self.shape.schema)
        scan.insert(self.shape.subscriptions)
        wanted = scan.match(self.events.select(np.arange(few))).sort()
        got = {"Arrow": self.index.match(rc.Events.from_arrow(self.shape.schema, self.shape.table[:few]))}
        got["rows"] = self.index.match(rc.Events.from_rows(self.shape.schema, self.rows[:few]))
        for name, matches in got.items():
            if matches != wanted:
                raise SystemExit(f"{self.shape.name}: the door {name!r} finds other matches than the scan")
        for row in range(few):
            if not np.array_equal(np.sort(self.one(self.rows[row])), wanted.row(row)):
                raise SystemExit(f"{self.shape.name}: one dict finds other matches than the scan")

    def one(self, row: dict[str, Any]) -> Any:
        """The ids of one dict."""
        return self.index.match_one(row)

    def encoded(self) -> int:
        """Events that were encoded before."""
        return len(self.index.match(self.events).ids)

    def arrow(self) -> int:
        """An Arrow table."""
        return len(self.index.match(rc.Events.from_arrow(self.shape.schema, self.shape.table)).ids)

    def arrow_alone(self) -> int:
        """The same columns by PyArrow."""
        for attribute in self.shape.schema:
            column = self.shape.table[attribute.name]
            if attribute.name in self.words:
                pc.index_in(column, self._set(attribute.name)).to_numpy()
            else:
                column.to_numpy()
        return self.pairs

    def _set(self, name: str) -> pa.Array:
        if not hasattr(self, "_sets"):
            self._sets = {name: pa.array(list(words), pa.string()) for name, words in self.words.items()}
        return self._sets[name]

    def dicts(self) -> int:
        """Lists of a thousand dicts."""
        found = 0
        for first in range(0, len(self.rows), ROWS_AT_ONCE):
            events = rc.Events.from_rows(self.shape.schema, self.rows[first : first + ROWS_AT_ONCE])
            found += len(self.index.match(events).ids)
        return found

    def same_dicts(self) -> int:
        """One list of a thousand dicts, so many times."""
        some = self.rows[:ROWS_AT_ONCE]
        return sum(
            len(self.index.match(rc.Events.from_rows(self.shape.schema, some)).ids) for _ in range(AGAIN)
        )

    def same_alone(self) -> None:
        """The same columns by a Python loop."""
        for _ in range(AGAIN):
            self._loop(self.rows[:ROWS_AT_ONCE])

    def dicts_alone(self) -> int:
        """The same columns by a Python loop."""
        for first in range(0, len(self.rows), ROWS_AT_ONCE):
            self._loop(self.rows[first : first + ROWS_AT_ONCE])
        return self.pairs

    def _loop(self, rows: list[dict[str, Any]]) -> None:
        for name in self.shape.schema.names:
            words = self.words.get(name)
            if words is None:
                [row.get(name) for row in rows]
            else:
                [words.get(row.get(name), 0) for row in rows]

    def json_lines(self) -> int:
        """A file of JSON lines."""
        return self._file(self.jsonl)

    def json_threads(self) -> int:
        """The same by two threads."""
        return self._file(self.jsonl, threads=2)

    def json_events(self) -> int:
        """The same file, read and not matched."""
        with EventFile(self.shape.schema, str(self.jsonl)) as file:
            n = sum(len(batch.events) for batch in file)
        if n != len(self.rows):
            raise SystemExit(f"{self.jsonl.name}: {n:,} events were read of {len(self.rows):,}")
        return self.pairs

    def csv_file(self) -> int:
        """A file of CSV."""
        return self._file(self.csv)

    def _file(self, path: Path, threads: int = 1) -> int:
        done = rc.match_file(self.index, path, threads=threads)
        if done.n_rejected:
            raise SystemExit(f"{path.name}: {done.rejected[0]}")
        return done.n_pairs

    def json_alone(self) -> int:
        """PyArrow's reader of JSON lines."""
        wanted = pa.schema([(a.name, TYPES[a.kind]) for a in self.shape.schema])
        pajson.read_json(
            str(self.jsonl),
            pajson.ReadOptions(use_threads=False, block_size=8 << 20),
            pajson.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore"),
        )
        return self.pairs

    def csv_alone(self) -> int:
        """PyArrow's reader of CSV."""
        wanted = {a.name: TYPES[a.kind] for a in self.shape.schema}
        pacsv.read_csv(
            str(self.csv),
            pacsv.ReadOptions(use_threads=False, block_size=8 << 20),
            convert_options=pacsv.ConvertOptions(column_types=wanted, include_columns=list(wanted)),
        )
        return self.pairs

    def one_dict(self) -> tuple[float, float]:
        """Median microseconds of one dict, and of the loop over it."""
        some = self.rows[:ONE_BY_ONE]
        each = [
            (_median(self.one, some), _median(self._loop, [[row] for row in some])) for _ in range(ROUNDS)
        ]
        return min(ours for ours, _ in each), min(alone for _, alone in each)

    def one_encoded(self) -> float:
        """Median microseconds of one event that was encoded before."""
        some = [self.events.select(np.array([row])) for row in range(ONE_BY_ONE)]
        return min(_median(lambda e: self.index.match(e).ids, some) for _ in range(ROUNDS))


def _spent(call: Callable[[Any], Any], argument: Any) -> float:
    start = time.perf_counter()
    call(argument)
    return (time.perf_counter() - start) * 1e6


def _median(call: Callable[[Any], Any], arguments: list[Any]) -> float:
    return statistics.median([_spent(call, argument) for argument in arguments])


def measure(shape: Shape, folder: Path, repeat: int) -> list[Figure]:
    """Figures of all doors of a shape, in turns; ends the run when an answer differs."""
    doors = Doors(shape, folder)
    doors.check()
    calls = {
        "encoded": doors.encoded,
        "Arrow": doors.arrow,
        "Arrow alone": doors.arrow_alone,
        "rows": doors.dicts,
        "rows alone": doors.dicts_alone,
        "JSON lines": doors.json_lines,
        "JSON lines, 2 threads": doors.json_threads,
        "JSON lines, no match": doors.json_events,
        "JSON lines alone": doors.json_alone,
        "CSV": doors.csv_file,
        "CSV alone": doors.csv_alone,
    }
    rounds = take_turns(
        calls, repeat, clock=WALL, warm_up=1, pause_collector=True, count=int, expected=doors.pairs
    )
    each = 1e6 / len(shape.table)
    rows = [Figure(shape.name, "encoded before", rounds["encoded"].best * each, None)]
    for door in ("Arrow", "rows", "JSON lines", "JSON lines, 2 threads", "JSON lines, no match", "CSV"):
        ours, alone = rounds[door].best * each, rounds[f"{door.split(',')[0]} alone"].best * each
        rows.append(Figure(shape.name, door, ours, alone))
    calls = {"ours": doors.same_dicts, "alone": doors.same_alone}
    again = take_turns(calls, repeat, clock=WALL, warm_up=1, pause_collector=True)
    each = 1e6 / (AGAIN * len(doors.rows[:ROWS_AT_ONCE]))
    ours, alone = again["ours"].best * each, again["alone"].best * each
    rows.append(Figure(shape.name, "the same 1,000 rows", ours, alone))
    rows.append(Figure(shape.name, "one dict", *doors.one_dict()))
    return [*rows, Figure(shape.name, "one event, encoded before", doors.one_encoded(), None)]


def conditions(n: int, rng: np.random.Generator) -> dict[int, str]:
    """Texts of mixed conditions: OR, IN, NOT, ranges and equalities over eight attributes."""
    words = make_words(rng)[:200]
    numbers = rng.integers(0, 1_000, (n, 6)).tolist()
    picks = words[rng.integers(0, len(words), (n, 6))].tolist()
    forms = (
        lambda a, w: f"price between {a[0]} and {a[0] + a[1]} and country = '{w[0]}'",
        lambda a, w: f"country in ('{w[0]}', '{w[1]}', '{w[2]}') and size >= {a[0]}",
        lambda a, w: f"(price < {a[0]} or price > {a[0] + a[1]}) and not device = '{w[0]}'",
        lambda a, w: f"country = '{w[0]}' or device = '{w[1]}' and level = {a[0]}",
        lambda a, w: f"not (size between {a[0]} and {a[0] + a[1]}) and campaign in ('{w[0]}', '{w[1]}')",
        lambda a, w: f"score > {a[0]}.5 and level != {a[1]} and campaign = '{w[0]}' and price <= {a[2]}",
        lambda a, w: f"level in ({', '.join(map(str, a[: 1 + a[5] % 5]))}) or size = {a[5]}",
    )
    return {k: forms[k % len(forms)](numbers[k], picks[k]) for k in range(n)}


def texts(n: int, repeat: int, rng: np.random.Generator) -> float:
    """Seconds to parse so many mixed conditions."""
    said = conditions(n, rng)

    def parse() -> int:
        kinds = (rc.Int("price"), rc.Int("size"), rc.Int("level"), rc.Float("score"))
        schema = rc.Schema(*kinds, rc.Category("country"), rc.Category("device"), rc.Category("campaign"))
        return len(rc.Subscriptions.parse(schema, said))

    return take_turns({"parse": parse}, repeat, clock=WALL, count=int, expected=n)["parse"].best


def frames(n: int, m: int, repeat: int, rng: np.random.Generator) -> dict[str, float]:
    """Seconds of `rc.match(events, rules)` by the kind of frame that both are."""
    import pandas as pd
    import polars as pl

    words = make_words(rng)[:500]
    columns = {"id": np.arange(m), "price": rng.random(m) * 1_000, "symbol": words[rng.integers(0, 500, m)]}
    named, low = words[rng.integers(0, 500, n)], 900 + rng.random(n) * 100
    texts = [f"symbol = '{word}' and price > {p:.2f}" for word, p in zip(named, low, strict=True)]
    both = pd.DataFrame(columns), pd.DataFrame({"id": np.arange(n), "condition": texts})
    kinds: dict[str, Callable[[Any], Any]] = {
        "pandas": lambda frame: frame,
        "Polars": pl.from_pandas,
        "Arrow": pa.Table.from_pandas,
    }
    given = {name: tuple(map(change, both)) for name, change in kinds.items()}
    found = len(rc.match(*given["pandas"]))
    calls = {name: lambda pair=pair: len(rc.match(*pair)) for name, pair in given.items()}
    rounds = take_turns(calls, repeat, clock=WALL, warm_up=1, count=int, expected=found)
    return {name: rounds[name].best for name in kinds}


def first_match(folder: str, n: int) -> tuple[float, float]:
    """Seconds to the first match of a fresh process: with kernels in the cache, and with none.

    Modules are compiled to bytecode by the first run, as they are in an installation.
    """
    own = os.environ | {"PYTHONPYCACHEPREFIX": folder}
    own.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(**environment: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", FRESH, str(n)], env=own | environment, capture_output=True, check=True
        )
        return float(done.stdout)

    run()
    return min(run() for _ in range(5)), run(NUMBA_CACHE_DIR=f"{folder}/numba-{n}")


def one_by_path(n: int) -> list[dict[str, Any]]:
    """One encoded event on workloads of several access paths: median microseconds, best of nine rounds."""
    lay_out_at_once()
    rows = []
    for name, options in PATHS:
        drawn = workload(name, n, ONE_BY_ONE, **options)
        index = rc.open_index("auto", drawn.schema)
        index.insert(drawn.subscriptions())
        events = drawn.events()
        found = index.match(events)
        single = [events.select(np.array([row])) for row in range(ONE_BY_ONE)]
        for row, one in enumerate(single):
            if not np.array_equal(index.match(one).sort().ids, found.sort().row(row)):
                raise SystemExit(f"{name}: one event alone finds other matches than in a batch")
        taken = min(_median(lambda e, index=index: index.match(e).ids, single) for _ in range(ROUNDS))
        paths = " ".join(dict.fromkeys(path["path"] for path in index.stats()["paths"]))
        rows.append(
            {"workload": name, "paths": paths, "pairs_per_event": found.n_pairs / ONE_BY_ONE, "us": taken}
        )
    return rows


class OneEvent(NamedTuple):
    """What events have beside six numbers and strings, and what subscriptions ask of it."""

    attributes: tuple[rc.Attribute, ...] = ()
    values: dict[str, Callable[[int], Any]] = {}  # noqa: RUF012 - never changed
    conditions: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """What another index on the same schema asks."""


def _texts(*conditions: str, others: tuple[str, ...] = ()) -> OneEvent:
    return OneEvent((rc.Text("title"),), {"title": lambda k: TITLES[k % 4]}, conditions, others)


def _instants(*conditions: str) -> OneEvent:
    return OneEvent((rc.Timestamp("at"),), {"at": lambda k: NOON + dt.timedelta(hours=k)}, conditions)


def _tags(*conditions: str) -> OneEvent:
    return OneEvent((rc.Tags("tags"),), {"tags": lambda k: ["red", "green", f"t{k % 9}"]}, conditions)


def _points(*conditions: str) -> OneEvent:
    return OneEvent((rc.Point("spot"),), {"spot": lambda k: [13.4 + k % 7, 52.5]}, conditions)


NOON = dt.datetime(2026, 1, 30, 12)
TITLES = (
    "The disk of host web-17 is full",
    "payment failed for order 4711",
    "Berlin weather: rain",
    "UPPER and lower words",
)  # fmt: skip
KINDS = {
    "six numbers and strings": OneEvent(),
    "tags that nobody names": _tags(),
    "tags HAS": _tags(*(f"tags has 't{k}' and a > {k * 50}" for k in range(20))),
    "a point that nobody names": _points(),
    "a point WITHIN": _points(*(f"spot within {k} km of (13.4, 52.5) and a > {k}" for k in range(1, 20))),
    "an instant": _instants(*(f"at > '2026-01-{k}'" for k in range(10, 30))),
    "a bool as 0 or 1": OneEvent((rc.Bool("up"),), {"up": lambda k: k % 2}, ("up",)),
    "STARTS WITH": _texts("title starts with 'The' and a > 5", "title starts with 'nothing else'"),
    "lower": _texts("lower(title) = 'berlin weather: rain'", "lower(title) = 'x'"),
    "CONTAINS": _texts(*(f"title contains '{word}'" for word in ("disk", "order", "words", "none of these"))),
    "MATCHES": _texts("title matches 'host web-[0-9]+'", "title matches '^pay.*order [0-9]+$'"),
    "a > b": OneEvent((), {}, ("a > b", "x > y + 3")),
    "hour(at)": _instants(*(f"hour(at) = {k}" for k in range(24))),
    "these five": OneEvent(
        (rc.Text("title"), rc.Timestamp("at")),
        {"title": lambda k: TITLES[k % 4], "at": lambda k: NOON + dt.timedelta(hours=k)},
        (
            "title starts with 'The' and a > 500", "lower(title) = 'berlin weather: rain'",
            "title contains 'order'", "a > b", "hour(at) = 7",
        ),
    ),
    "expressions of another index": _texts(others=("title contains 'order'", "a > b", "lower(title) = 'x'")),
}  # fmt: skip


def one_of_each_kind(n: int = 2_000) -> list[dict[str, Any]]:
    """One dict of each kind to its ids: microseconds of process time, best of nine rounds."""
    rows = []
    for name, kind in KINDS.items():
        numbers = rc.Int("a"), rc.Int("b"), rc.Float("x"), rc.Float("y"), rc.Category("c"), rc.Category("d")
        schema = rc.Schema(*numbers, *kind.attributes)
        if kind.others:
            other = rc.open_index("auto", schema)
            other.insert(rc.Subscriptions.parse(schema, dict(enumerate(kind.others))))
        texts = {k: f"a between {k % 900} and {k % 900 + 40} and c = 'w{k % 500}'" for k in range(n)}
        texts |= {n + k: text for k, text in enumerate(kind.conditions)}
        index = rc.open_index("auto", schema)
        index.insert(rc.Subscriptions.parse(schema, texts))
        events = [
            {
                "a": k * 37 % 1000, "b": k * 91 % 1000, "x": k % 97 / 7, "y": k % 89 / 3,
                "c": f"w{k % 500}", "d": f"w{k % 7}",
                **{key: value(k) for key, value in kind.values.items()},
            }
            for k in range(ONE_BY_ONE)
        ]  # fmt: skip
        wanted = index.match(rc.Events.from_rows(schema, events)).sort()
        for row, event in enumerate(events):
            if not np.array_equal(np.sort(index.match_one(event)), wanted.row(row)):
                raise SystemExit(f"{name}: one dict finds other matches than among others")
        taken = []
        for _ in range(ROUNDS):
            start = time.process_time()
            for event in events:
                index.match_one(event)
            taken.append(time.process_time() - start)
        rows.append(
            {
                "kind": name,
                "us": min(taken) / ONE_BY_ONE * 1e6,
                "pairs_per_event": wanted.n_pairs / ONE_BY_ONE,
            }
        )
    return rows


def demo(folder: str) -> dict[str, float]:
    """Seconds of the demo's ingest, by part, as it prints them."""
    call = [sys.executable, "-m", "rangecast", "demo", "--out", f"{folder}/demo"]
    with open(f"{folder}/said", "w") as out, open(f"{folder}/log", "w") as log:
        subprocess.run(call, stdout=out, stderr=log, check=True)
    return ingest_seconds(Path(folder, "said").read_text())


def ingest_seconds(said: str) -> dict[str, float]:
    """The seconds of the ingest in what the demo has printed."""
    line = next(line for line in said.splitlines() if line.startswith("ingested and published in"))
    total, parts = re.match(r"ingested and published in\s+([0-9.]+) s \((.*)\)", line).groups()
    return {"all": float(total)} | {
        name: float(seconds) for name, seconds in (part.rsplit(" ", 1) for part in parts.split(", "))
    }


def measure_part(name: str, n: int, m: int, repeat: int, folder: str) -> Any:
    """What one part measures, as it is kept."""
    rng = np.random.default_rng(7)
    match name:
        case "texts":
            return texts(n, 2, rng)
        case "frames":
            return frames(n // 5, m, repeat, rng)
        case "start":
            return {str(size): first_match(folder, size) for size in FRESH_SIZES}
        case "paths":
            return one_by_path(n)
        case "one":
            return one_of_each_kind()
        case "demo":
            return demo(folder)
        case "spark":
            return crossing(n, 6 * m, repeat)
    return [figure._asdict() for figure in measure(SHAPES[name](n, m, rng), Path(folder), repeat)]


# What crosses into Python workers and back when a DataFrame is matched, beside crossings that do nothing.


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every batch as it came."""
    yield from batches


def crossing(n: int, n_events: int, rounds: int, cores: int = 2) -> dict[str, float]:
    """CPU seconds of each contender, the best of the rounds, and what makes them comparable."""
    # only this part needs Spark
    from pyspark import cloudpickle

    from rangecast import spark as rs
    from spark import PAIRS, Cpu, emitter

    shape = SHAPES["wide-40"](n, n_events, np.random.default_rng(7))
    index = rc.open_index("auto", shape.schema)
    index.insert(shape.subscriptions)
    wanted = index.match(rc.Events.from_arrow(shape.schema, shape.table)).n_pairs
    per_event = max(1, round(wanted / n_events))
    table = shape.table.add_column(0, "id", pa.array(np.arange(n_events)))
    with tempfile.TemporaryDirectory(prefix="rangecast-crossing-") as folder:
        path = Path(folder) / "events.parquet"
        pq.write_table(table, path, row_group_size=max(1, n_events // (4 * cores)))
        if __name__ != "__main__":
            # workers have no path to this module: its functions go with the tasks
            cloudpickle.register_pickle_by_value(sys.modules[__name__])
        spark = rs.session(f"local[{cores},3]", conf={"spark.ui.enabled": "false"})
        events = spark.read.parquet(str(path))
        needed = events.select("id", *shape.schema.names)
        subs = Path(folder) / "subscriptions.index"
        index.save(subs)
        frames = {
            "identity, all": lambda: events.mapInArrow(identity, events.schema),
            "identity, needed": lambda: needed.mapInArrow(identity, needed.schema),
            "pairs, no match": lambda: needed.mapInArrow(emitter(per_event), PAIRS),
            "match": lambda: rs.match(events, str(subs)),
        }
        if frames["match"]().count() != wanted:
            raise SystemExit("rs.match gives other pairs than the library")
        best = dict.fromkeys(frames, np.inf)
        for turn in range(rounds + 1):
            for name, make in frames.items():
                cpu = Cpu()
                make().write.format("noop").mode("overwrite").save()
                used, _ = cpu.stop()
                if turn:  # the first starts workers and warms the JVM
                    best[name] = min(best[name], used)
                print(f"  {name}: {used:.2f} s CPU", file=sys.stderr)
        spark.stop()
    return {
        **{name: float(seconds) for name, seconds in best.items()},
        "pairs": wanted,
        "events": n_events,
        "rounds": rounds,
    }


PARTS = (*SHAPES, "one", "paths", "texts", "frames", "start", "demo", "spark")
SIZES = {"subscriptions": 100_000, "events": 50_000, "repeat": 5}


# docs/performance-doors.md, written from what was kept: one paragraph or table per part.

HEAD = """# Every way in

This page shows how long it takes to get from events in various forms to the ids of the subscriptions that
they match. [loading.md](loading.md) describes these forms. The column "alone" has the time of the cheapest
way to the same columns without rangecast: PyArrow's look-up of strings, PyArrow's readers on the same file,
or a Python loop over the dicts. All contenders of a table take turns in one process, so read the ratios.
The rows `encoded before` are the same match with events that were read beforehand; they show where matching
itself takes most of the time. `python benchmarks/doors.py` measures all this, and its head describes the
shapes of events. The figures are kept in `benchmarks/figures/doors.json`, from which `python
benchmarks/doors.py --page docs/performance-doors.md` writes this page."""

TITLES = {
    "one": "## One dict of each kind",
    "paths": "## One event at a time, by access path",
    "texts": "## Conditions from text",
    "frames": "## Frames",
    "start": "## The first match of a process",
    "demo": "## Ingest on Spark",
    "spark": "## Crossing to Spark's workers",
}


def table(head: str, align: str, rows: list[list[str]]) -> str:
    """A table in Markdown."""
    rule = "|".join("--:" if side == "r" else "---" for side in align)
    return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])


def door_table(rows: list[dict[str, Any]]) -> str:
    """Rows of shapes of events."""
    said = []
    for row in rows:
        beside = ["", ""] if row["alone"] is None else [f"{row['alone']:.3f}", _times(row)]
        said.append([f"`{row['shape']}`", row["door"], f"{row['ours']:.3f}", *beside])
    return table("events | door | us/event | alone us/event | times alone", "llrrr", said)


def _times(row: dict[str, Any]) -> str:
    return f"{row['ours'] / row['alone']:.2f}"


def part(name: str, found: Any, subscriptions: int, events: int, **_: int) -> str:
    """What is said of one part."""
    match name:
        case "one":
            rows = [[row["kind"], f"{row['pairs_per_event']:.1f}", f"{row['us']:.1f}"] for row in found]
            return (
                "`match_one` of a dict with six numbers and strings and what the table names. There are "
                "2,000 subscriptions on the six, and a few on the rest. The time is process time.\n\n"
            ) + table("beside the six | matches per event | us", "lrr", rows)
        case "paths":
            rows = [
                [f"`{row['workload']}`", row["paths"], f"{row['pairs_per_event']:,.1f}", f"{row['us']:.1f}"]
                for row in found
            ]
            return table("workload | access paths | matches per event | us", "llrr", rows) + (
                f"\n\nThe index has {subscriptions:,} subscriptions. The events were encoded beforehand, "
                "and the time is the median of 400."
            )
        case "texts":
            return f"{subscriptions:,} mixed conditions are read from text in {found:.2f} s."
        case "frames":
            beside = " and ".join(
                f"{found[one] / found['pandas']:.2f} of the time with {one}" for one in ("Polars", "Arrow")
            )
            return (
                f"Compared with pandas frames, `rc.match` takes {beside} frames "
                f"({events:,} events, {subscriptions // 5:,} subscriptions)."
            )
        case "start":
            rows = [[f"{int(n):,}", f"{warm:.2f}", f"{cold:.1f}"] for n, (warm, cold) in found.items()]
            return (
                "The table has the seconds from the start of the process to the ids of one dict, including "
                "the time to parse the conditions: with kernels from the cache, and with kernels that must "
                "be compiled, while `auto` scans. The packages coverage and yaml, which Numba loads if "
                "they are installed, were not installed.\n\n"
            ) + table("conditions | from the cache | compiled", "rrr", rows)
        case "demo":
            parts = ", ".join(f"{one} {seconds:.1f}" for one, seconds in found.items() if one != "all")
            return f"`rangecast demo` ingests and publishes 200,000 alerts in {found['all']:.1f} s: {parts}."
        case "spark":
            return crossing_text(found)
    return door_table(found)


def crossing_text(found: dict[str, Any]) -> str:
    """What crosses, and what follows from it."""
    each = 1e6 / found["events"]
    bare, identity = found["pairs, no match"], found["identity, needed"]
    names = ("identity, all", "identity, needed", "pairs, no match", "match")
    rows = [[name, f"{found[name] * each:.2f}", f"{found[name] / identity:.2f}"] for name in names]
    return table("crossing | CPU us/event | times identity, needed", "lrr", rows) + (
        f"\n\n`python benchmarks/doors.py --part spark` measures this with {found['events']:,} events of 41 "
        f"columns, which have {found['pairs']:,} pairs, as the best of {found['rounds']} rounds; its head "
        f"describes the rows. `rs.match` costs {found['match'] / identity:.2f} times as much as workers that "
        "return the columns it needs as they are. Workers that emit as many pairs without matching cost "
        f"{(found['match'] - bare) / found['match']:.0%} less than `rs.match`. Returning all columns costs "
        f"{found['identity, all'] / identity:.1f} times as much as returning the needed ones."
    )


def losses(kept: dict[str, Any]) -> str:
    """Where a door loses to what stands beside it, from the figures themselves."""
    worst = [
        f"`{row['shape']}` by {row['door']} ({_times(row)} times)"
        for rows in kept.values()
        if isinstance(rows, list)
        for row in rows
        if row.get("alone") and row["door"].startswith("JSON lines") and row["ours"] > 1.6 * row["alone"]
    ]
    lines = [
        "- Rows and dicts are slower than a bare Python loop on every shape, but that loop finds no matches.",
        "- Arrow is slower than PyArrow's look-up of strings on every shape, because it also matches.",
    ]
    if worst:
        lines.append(f"- Files of JSON lines take over 1.6 times PyArrow's reader: {', '.join(worst)}.")
    return "\n".join(lines)


def page(kept: dict[str, Any]) -> str:
    """The whole page."""
    sizes = kept["sizes"]
    lists = [rows for name, rows in kept.items() if name not in TITLES and isinstance(rows, list)]
    texts = [
        HEAD,
        f"The index has {sizes['subscriptions']:,} subscriptions, a batch has {sizes['events']:,} events, "
        f"and the best of {sizes['repeat']} rounds counts.",
        door_table(list(itertools.chain.from_iterable(lists))),
        "## Where rangecast is slower",
        losses(kept),
    ]
    for name, title in TITLES.items():
        if name in kept:
            texts += [title, part(name, kept[name], **sizes)]
    return "\n\n".join(texts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Every way in, beside the cheapest way to the same columns.")
    parser.add_argument("--subscriptions", type=int, default=SIZES["subscriptions"])
    parser.add_argument("--events", type=int, default=SIZES["events"])
    parser.add_argument("--repeat", type=int, default=SIZES["repeat"])
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--page", type=Path, help="Write this page from what is kept, and measure nothing.")
    args = parser.parse_args()
    if args.page is not None:
        args.page.write_text(page(figures.load("doors")))
        return
    sizes = {name: getattr(args, name) for name in SIZES}
    for name in args.part or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            found = {name: measure_part(name, *sizes.values(), folder)}
        print(part(name, found[name], **sizes), flush=True)
        if sizes == SIZES:
            kept = figures.load("doors") if (figures.FOLDER / "doors.json").exists() else {}
            tables = {part: (kept | found)[part] for part in PARTS if part in kept | found}
            figures.save("doors", "python benchmarks/doors.py", sizes=sizes, **tables)


if __name__ == "__main__":
    main()
