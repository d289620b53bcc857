"""The placement for an index larger than a worker's memory: stripes, each an index of its own.

The space of codes is cut along one or two attributes at sampled quantiles:

    stripe      0        1            2          3
    codes   ........|...........|............|.........      cuts[0]  cuts[1]  cuts[2]

A subscription is put into every stripe that one of its boxes touches; an event has one code, so it
goes to exactly one stripe and finds each of its subscriptions there, once. That is exact, and needs
no removal of duplicates. A missing value is a code like any other and belongs to the first stripe.

The attributes and the split among them are those that copy the fewest boxes, by a sample. Stripes are
built in parallel, each worker scanning the mapped snapshot for its own, and saved beside it. Events
are routed in the workers, by the same encoding that matches them, then shuffled so that a worker maps
only the stripes it needs. A stripe with a large share of the events is salted: its events are spread
over several tasks.

    file                            meaning
    SNAPSHOT.stripes-N/cuts.json    attributes, cuts, and what was estimated
    SNAPSHOT.stripes-N/00003.index  stripe 3 (Index.save)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from rangecast.engine import Index, open_index
from rangecast.engine.checked_slots import without_regions
from rangecast.errors import EventError, OptionError
from rangecast.loading.pace import Pace
from rangecast.memory import available_bytes, readable
from rangecast.model.boxes import hulls, select
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.spark.output import Answer, map_arrow
from rangecast.spark.snapshots import Snapshot
from rangecast.spark.worker import answers, mapped
from rangecast.store.home import home_of
from rangecast.types.attributes import LAST, MISSING, Codes
from rangecast.types.traits import HeldBundle

MODES = ("auto", "whole", "stripes")
_SMALL = 256_000_000
_SHARE = 0.6
_SAMPLE = 20_000
_TASK = "rangecast_task"
_STRIPE = "rangecast_stripe"


class Placement(NamedTuple):
    """How many stripes (1: every worker maps the whole), and why."""

    stripes: int
    reason: str


class Cuts(NamedTuple):
    """Attributes by position, and for each the codes at which a new stripe begins."""

    on: tuple[int, ...]
    at: tuple[Codes, ...]
    copies: float

    @property
    def n(self) -> int:
        """How many stripes there are."""
        return math.prod(len(codes) + 1 for codes in self.at)


def choose_placement(
    snapshot: Snapshot, mode: str, stripes: int | None, memory: int | None, spark: SparkSession
) -> Placement:
    """Whole or stripes, and how many, from sizes."""
    if mode not in MODES:
        raise OptionError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if stripes is not None and (stripes < 2 or mode == "whole"):
        raise OptionError(
            f"stripes must be at least 2 and go with mode 'stripes', got {stripes}, mode {mode!r}"
        )
    size = readable(snapshot.n_bytes)
    if mode == "whole":
        return Placement(1, f"whole, as asked: the index has {size}")
    if mode == "auto" and stripes is None and memory is None and snapshot.n_bytes <= _SMALL:
        return Placement(1, f"whole: the index has {size}, which any worker can map")
    room = _SHARE * (memory if memory is not None else _worker_memory(spark))
    needed = max(2, math.ceil(2 * snapshot.n_bytes / max(room, 1.0)))
    if stripes is not None or mode == "stripes":
        n = stripes or needed
        return Placement(n, f"{n} stripes, as asked: the index has {size}")
    if snapshot.n_bytes <= room:
        return Placement(1, f"whole: the index has {size}, and a worker's machine may map {readable(room)}")
    # two stripes should fit at once: the one in use and the one that comes
    return Placement(
        needed, f"{needed} stripes: the index has {size}, but a worker's machine may map {readable(room)}"
    )


def match_in_stripes(
    events: DataFrame, snapshot: Snapshot, answer: Answer, fields: T.StructType, placement: Placement
) -> DataFrame:
    """Route events to their stripes and match them there."""
    spark = events.sparkSession
    folder, cuts = prepare_stripes(spark, snapshot, placement.stripes)
    routed = T.StructType(
        [
            *events.schema.fields,
            T.StructField(_STRIPE, T.IntegerType()),
            T.StructField(_TASK, T.IntegerType()),
        ]
    )
    plain = router(snapshot.path, answer, cuts, [1] * cuts.n)
    wanted = int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    seen = map_arrow(events.limit(_SAMPLE), plain, routed).groupBy(_STRIPE).count().collect()
    tasks = salt([(int(row[0]), int(row[1])) for row in seen], cuts.n, wanted)
    sent = map_arrow(events, router(snapshot.path, answer, cuts, tasks), routed)
    return map_arrow(sent.repartitionById(sum(tasks), _TASK), stripe_matcher(folder, answer), fields)


def salt(seen: list[tuple[int, int]], n_stripes: int, wanted: int) -> list[int]:
    """How many tasks each stripe's events are spread over, by its share of a sample.

    >>> salt([(0, 90), (1, 10)], 3, 10)
    [9, 1, 1]
    """
    total = sum(count for _, count in seen) or 1
    tasks = [1] * n_stripes
    for stripe, count in seen:
        tasks[stripe] = max(1, round(wanted * count / total))
    return tasks


def prepare_stripes(spark: SparkSession, snapshot: Snapshot, n: int) -> tuple[str, Cuts]:
    """The folder of the stripes and their cuts; built by the workers if it is not there yet."""
    folder = f"{snapshot.path.removesuffix('.index')}.stripes-{n}"
    home = home_of(folder)
    known = home.read("cuts.json")
    if known is not None:
        at = tuple(np.array(codes, np.int64) for codes in known["cuts"])
        return folder, Cuts(tuple(known["on"]), at, known["copies"])
    home.prepare()
    cuts = choose_cuts(mapped(snapshot.path).subscriptions(), n)
    numbers = spark.range(0, cuts.n, 1, cuts.n)
    numbers.mapInArrow(builder(snapshot.path, folder, cuts), numbers.schema).collect()
    known = {
        "on": list(cuts.on),
        "names": [snapshot.schema[j].name for j in cuts.on],
        "cuts": [codes.tolist() for codes in cuts.at],
        "copies": cuts.copies,
    }
    # last, so that cuts that are there say that all stripes are
    home.write("cuts.json", known)
    return folder, cuts


def choose_cuts(subs: Subscriptions, n: int) -> Cuts:
    """The attributes and cuts that make about n stripes with the fewest copies of boxes."""
    step = max(1, subs.n_boxes // _SAMPLE)
    sample = np.arange(0, subs.n_boxes, step)
    lows, highs, _ = hulls(select(_reach(subs).boxes, sample, subs.owners[sample]), len(subs.schema))
    d = len(lows)
    # an event has several bundles of traits, and is in one stripe
    whole = [j for j in range(d) if not isinstance(subs.schema.attributes[j], HeldBundle)]
    single = [_cuts_on(lows, highs, (j,), (n,)) for j in whole]
    best = sorted(single, key=lambda cuts: (cuts.copies, -cuts.n))
    pairs = itertools.combinations([cuts.on[0] for cuts in best[:4]], 2)
    splits = [(a, n // a) for a in range(2, n // 2 + 1) if n % a == 0]
    double = [_cuts_on(lows, highs, pair, split) for pair in pairs for split in splits]
    # the load of a stripe is what counts: copies over stripes
    return min(single + double, key=lambda cuts: (cuts.copies / cuts.n, len(cuts.on)))


def _cuts_on(lows: Codes, highs: Codes, on: tuple[int, ...], split: tuple[int, ...]) -> Cuts:
    spans = np.ones(lows.shape[1])
    at = []
    for j, n in zip(on, split, strict=True):
        ends = np.concatenate([lows[j][lows[j] > MISSING], highs[j][highs[j] < LAST]])
        shares = np.arange(1, n) / n
        cuts = np.unique(np.quantile(ends, shares, method="nearest")) if len(ends) else np.empty(0, np.int64)
        cuts = cuts.astype(np.int64)
        at.append(cuts)
        spans *= np.searchsorted(cuts, highs[j], "right") - np.searchsorted(cuts, lows[j], "right") + 1
    return Cuts(on, tuple(at), float(spans.mean()) if len(spans) else 1.0)


def stripe_of(cuts: Cuts, codes: Codes) -> npt.NDArray[np.int32]:
    """The stripe of each event, from codes (d, n_events)."""
    out = np.zeros(codes.shape[1], np.int32)
    for j, at in zip(cuts.on, cuts.at, strict=True):
        out = out * (len(at) + 1) + np.searchsorted(at, codes[j], "right").astype(np.int32)
    return out


def _reach(subs: Subscriptions) -> Subscriptions:
    """The boxes as events are compared with them: regions by their coverings."""
    covered = without_regions(subs)
    return subs if covered is None else covered[0]


def cut_out(subs: Subscriptions, cuts: Cuts, stripe: int) -> Subscriptions:
    """The boxes that touch a stripe, with their subscriptions; without texts, for it is only matched."""
    inside = np.ones(subs.n_boxes, bool)
    reach = _reach(subs)
    lows, highs, _ = hulls(reach.boxes, len(subs.schema)) if reach.has_sets else reach.dense()
    rest = stripe
    for j, at in reversed(list(zip(cuts.on, cuts.at, strict=True))):
        rest, mine = divmod(rest, len(at) + 1)
        if mine > 0:
            inside &= highs[j] >= at[mine - 1]
        if mine < len(at):
            inside &= lows[j] < at[mine]
    return subs.select_boxes(np.flatnonzero(inside))


# inside the workers


def builder(path: str, folder: str, cuts: Cuts) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that builds the stripes whose numbers it gets."""

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for stripe in batch.column(0).to_pylist():
                home = home_of(folder)
                if not home.has(_stripe_name(stripe)):
                    whole = mapped(path)
                    index = open_index(whole.name, whole.schema, **whole.options)
                    index.insert(cut_out(whole.subscriptions(), cuts, stripe))
                    home.save(index, _stripe_name(stripe))
            yield batch

    return build


def router(
    path: str, answer: Answer, cuts: Cuts, tasks: list[int]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that adds to each event its stripe and the number of its task."""

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = mapped(path).schema
        many = np.array(tasks, np.int32)
        first = np.cumsum(many) - many
        seen = 0
        for batch in batches:
            events = Events.from_arrow(schema, batch.select(list(answer.attributes)))
            if events.owners is not None:
                raise EventError("events with several values of an attribute cannot be sent to stripes")
            stripes = stripe_of(cuts, events.codes_for(schema))
            turns = (seen + np.arange(len(stripes))) % many[stripes]
            seen += len(stripes)
            columns = [*batch.columns, pa.array(stripes), pa.array((first[stripes] + turns).astype(np.int32))]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, _STRIPE, _TASK])

    return route


def stripe_matcher(folder: str, answer: Answer) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that matches events against the stripes they were sent to."""

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pace = Pace()
        # kept for the task: each look at an object asks the bucket for it
        indexes: dict[int, Index] = {}
        for batch in batches:
            stripes = batch.column(_STRIPE).to_numpy()
            for stripe in np.unique(stripes).tolist():
                if stripe not in indexes:
                    indexes[stripe] = mapped(f"{folder}/{_stripe_name(stripe)}")
                mine = batch.take(pa.array(np.flatnonzero(stripes == stripe)))
                yield from answers(indexes[stripe], mine, answer, pace)

    return match


def memory_asker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Says how much memory a worker's machine has left."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([available_bytes()] * batch.num_rows, pa.int64())], ["id"])


def _worker_memory(spark: SparkSession) -> int:
    one = spark.range(0, 1, 1, 1)
    return int(one.mapInArrow(memory_asker, one.schema).collect()[0][0])


def _stripe_name(stripe: int) -> str:
    return f"{stripe:05}.index"
