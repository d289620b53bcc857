"""What crosses into Python workers and back when a DataFrame is matched, beside crossings that do nothing.

    python benchmarks/crossing.py [--events 300000] [--rounds 3]

Events have forty columns, of which five are attributes (`wide-40` of doors.py), in Parquet; what comes out is
counted and not kept. CPU seconds are those of this process, the JVM and all Python workers.

    contender            what it is
    identity, all        mapInArrow that hands every batch back: all columns cross, twice
    identity, needed     the same of the id and the attributes alone, which is what rs.match lets cross
    pairs, no match      the same columns into the workers, and as many pairs back as matching gives
    match                rs.match
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyspark import cloudpickle

import doors_page
import rangecast as rc
from doors import SHAPES
from rangecast import spark as rs
from spark import PAIRS, Cpu, emitter

SUBSCRIPTIONS = 100_000


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every batch as it came."""
    yield from batches


def crossing(n_events: int, rounds: int, cores: int = 2) -> dict[str, float]:
    """CPU seconds of each contender, the best of the rounds, and what makes them comparable."""
    shape = SHAPES["wide-40"](SUBSCRIPTIONS, n_events, np.random.default_rng(7))
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


def main(
    events: Annotated[int, typer.Option(help="Events.")] = 300_000,
    rounds: Annotated[int, typer.Option(help="Rounds; the best counts.")] = 3,
) -> None:
    """Measure what crosses."""
    print(doors_page.crossing(crossing(events, rounds)))


if __name__ == "__main__":
    typer.run(main)
