"""Everything that matching compiles, compiled beforehand: for images and for services that start.

Kernels compile at their first call and are kept on the disk after that. Which ones a match calls depends on
its subscriptions, so a few small workloads are matched here that together take the access paths of `auto`
(but for leads and long lists, which few have), by every way in: rows, Arrow, lines of JSON, one event,
limits, counts, and after inserts and deletes.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import numpy as np

from rangecast.engine import open_index
from rangecast.engine.planner import lay_out_at_once
from rangecast.model.events import PATIENCE, Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.simd.compiler import compile_seconds
from rangecast.types.attributes import Category, Float, Int, Timestamp
from rangecast.types.schema import Schema
from rangecast.workloads.registry import workload

# together they have all access paths: nested lists, equality, cells, windows, runs, bitmaps
NAMES = ("intervals", "rectangles", "lonlat", "stock-alerts", "market", "equality-led", "boolean-expressions")
_SUBSCRIPTIONS = 6_000
_EVENTS = 300


def warm_up(progress: Callable[[int, int, str], None] | None = None) -> float:
    """Compile what is not yet in the disk cache, and load the rest; returns the seconds spent compiling.

    On an empty cache this takes minutes. `progress` is called before each step with its number, the number of
    steps, and what is compiled; without it, each step is a line on stderr, on a terminal or not.
    """
    tell = progress or _write_line
    n_steps = len(NAMES) + 1
    before = compile_seconds()
    lay_out_at_once()
    tell(1, n_steps, "conditions, rows and JSON lines")
    _texts_and_rows()
    for step, name in enumerate(NAMES, 2):
        tell(step, n_steps, f"the workload {name}")
        _match_every_way(name)
    return compile_seconds() - before


def _write_line(step: int, n_steps: int, what: str) -> None:
    # flushed: who builds an image reads these lines through a pipe
    print(f"warm-up: step {step} of {n_steps}, {what}", file=sys.stderr, flush=True)


def _match_every_way(name: str) -> None:
    """Match one workload by every way in."""
    drawn = workload(name, _SUBSCRIPTIONS, _EVENTS)
    index = open_index("auto", drawn.schema)
    subs = drawn.subscriptions()
    index.insert(subs)
    events = drawn.events()
    few = events.select(np.arange(3))
    for some in (events, few, events.select(np.arange(1))):
        found = index.match(some)
        found.sort().to_arrow()
    index.count(events)
    index.match_any(events)
    index.match(few, limit=2)
    index.delete(subs.ids.values[:5])
    index.match(few)


def _texts_and_rows() -> None:
    schema = Schema(Int("price"), Float("change"), Category("symbol"), Timestamp("at"))
    texts = {k: f"price > {k} and symbol = 's{k % 9}' or change in ({k}, 2)" for k in range(1_000)}
    subs = Subscriptions.parse(schema, texts)
    rows = [{"price": k, "symbol": f"s{k % 20}", "at": "2026-01-31T10:00:00"} for k in range(100)]
    for name in ("auto", "scan"):
        index = open_index(name, schema)
        index.insert(subs)
        events = Events.from_rows(schema, rows)
        index.match(events).sort().to_arrow()
        index.match_one(rows[0])
    # so many rows are read by a kernel (model/events.py)
    Events.from_rows(schema, [{"price": 7, "change": 0.5, "symbol": "s7"}] * PATIENCE)
    import pyarrow as pa

    from rangecast.loading.files import LineReader
    from rangecast.loading.json import LineCoder

    lines = io.BytesIO("".join(f"{json.dumps(row)}\n" for row in rows).encode())
    for chunk in LineReader("rows", lines).chunks(quoted=False):
        LineCoder(schema, {"id": pa.int64()}).pieces(chunk)
    Events.from_arrow(schema, pa.table({"symbol": [row["symbol"] for row in rows]}))
