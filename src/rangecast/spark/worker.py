"""What runs inside Spark's Python workers: map the index, match batches, give the answers as Arrow.

An index is mapped once per process and kept. Spark's worker daemon collects garbage after each task,
which would walk all of it: `gc.freeze` after loading takes 29 ms a task down to 2. Every iterator is
drained to its end, because Spark throws a worker away whose generator returns early.

Answers differ in size by orders of magnitude, so a batch of events is cut by how many pairs the last
events had (rangecast.loading.pace), and what is emitted is cut again into batches that the JVM takes well.
"""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.engine import Index, load_index
from rangecast.errors import StorageError
from rangecast.loading.pace import Pace
from rangecast.model.events import Events
from rangecast.model.matches import Matches

PAIRS, LISTS, COUNTS = "pairs", "lists", "counts"
FORMS = (PAIRS, LISTS, COUNTS)
ROWS_OUT = 262_144
_MOST_MAPPED = 16
_mapped: OrderedDict[tuple[str, int], Index] = OrderedDict()


@dataclass(frozen=True)
class Answer:
    """Which columns come in and what goes out."""

    event_id: str
    attributes: tuple[str, ...]
    keep: tuple[str, ...] = ()
    form: str = PAIRS
    outer: bool = False
    textual: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that are read of the events, each once."""
        return list(dict.fromkeys([self.event_id, *self.attributes, *self.keep]))


def mapped(path: str) -> Index:
    """The index of a file, mapped once per process."""
    try:
        key = path, os.stat(path).st_mtime_ns
    except FileNotFoundError:
        raise StorageError(
            f"{path}: the snapshot is not here; a worker must see the same files as the driver, and "
            "compact must keep the versions in use"
        ) from None
    index = _mapped.get(key)
    if index is None:
        # the driver has checked the sums; reading everything here would make each worker touch each page
        index = load_index(path, verify=False)
        _mapped[key] = index
        while len(_mapped) > _MOST_MAPPED:
            _mapped.popitem(last=False)
        gc.collect()
        gc.freeze()
    else:
        _mapped.move_to_end(key)
    return index


def matcher(path: str, answer: Answer) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for mapInArrow: a whole snapshot in every worker."""

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = mapped(path)
        pace = Pace()
        for batch in batches:
            yield from answers(index, batch, answer, pace)

    return match


def answers(
    index: Index, batch: pa.RecordBatch | pa.Table, answer: Answer, pace: Pace
) -> Iterator[pa.RecordBatch]:
    """The answer for a batch of events, in record batches."""
    events = Events.from_arrow(index.schema, batch.select(list(answer.attributes)))
    return answer_events(index, events, batch, answer, pace)


def answer_events(
    index: Index, events: Events, batch: pa.RecordBatch | pa.Table, answer: Answer, pace: Pace
) -> Iterator[pa.RecordBatch]:
    """As `answers`, for events that are encoded already; `batch` has their other columns."""
    n = len(events)
    for start, stop in pace.cut(n):
        part = events if stop - start == n else events.select(np.arange(start, stop))
        matches = index.match(part)
        pace.seen(len(part), matches.n_pairs)
        yield from shaped(batch.slice(start, stop - start), matches, answer)


def shaped(batch: pa.RecordBatch | pa.Table, matches: Matches, answer: Answer) -> Iterator[pa.RecordBatch]:
    """Matches of a batch in the form that was asked for; columns as `answer_names` says."""
    counts = matches.counts
    ids = subscription_ids(matches, answer.textual)
    kept: npt.NDArray[np.int64] | None = None
    if answer.form == PAIRS:
        spread = counts
        if answer.outer and not counts.all():
            spread = np.maximum(counts, 1)
            ids = _with_nulls(ids, counts)
    else:
        spread = np.ones(len(counts), np.int64)
        if not answer.outer and not counts.all():
            kept = np.flatnonzero(counts)
        if answer.form == COUNTS:
            ids = pa.array(counts)
        else:
            ids = pa.ListArray.from_arrays(pa.array(matches.offsets, pa.int32()), ids)
        if kept is not None:
            spread, ids = spread[kept], ids.take(pa.array(kept))
    columns = [_spread(batch, answer.event_id, spread, kept), ids]
    columns += [_spread(batch, name, spread, kept) for name in answer.keep]
    out = pa.RecordBatch.from_arrays(columns, names=answer_names(answer))
    for first in range(0, out.num_rows, ROWS_OUT):
        yield out.slice(first, ROWS_OUT)


def answer_names(answer: Answer) -> list[str]:
    """The names of the columns that come out."""
    second = {PAIRS: "subscription_id", LISTS: "subscription_ids", COUNTS: "matches"}[answer.form]
    return ["event_id", second, *answer.keep]


def pairs_in(piece: pa.RecordBatch, form: str) -> int:
    """How many pairs an answer's batch stands for."""
    column = piece.column(1)
    if form == COUNTS:
        return int(pc.sum(column).as_py() or 0)
    return len(column.flatten()) if form == LISTS else len(column) - column.null_count


def subscription_ids(matches: Matches, textual: bool) -> pa.Array[Any]:
    """The ids of all pairs as Spark takes them: long or string."""
    if not textual:
        return pa.array(np.asarray(matches.ids, np.int64))
    column = matches.to_arrow().column("subscription_id").combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def _spread(
    batch: pa.RecordBatch | pa.Table, name: str, spread: npt.NDArray[np.int64], kept: Any
) -> pa.Array[Any]:
    """A column of the events with each value as often as `spread` says."""
    column = batch.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if kept is not None:
        return column.take(pa.array(kept))
    if bool((spread == 1).all()):
        return column
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return pa.array(np.repeat(column.to_numpy(), spread), column.type)
    return column.take(pa.array(np.repeat(np.arange(len(column)), spread)))


def _with_nulls(ids: pa.Array[Any], counts: npt.NDArray[np.int64]) -> pa.Array[Any]:
    """The ids of pairs with one null more for each event that has none."""
    spread = np.maximum(counts, 1)
    where = np.zeros(int(spread.sum()), np.int64)
    filled = np.repeat(counts > 0, spread)
    where[filled] = np.arange(len(ids))
    return ids.take(pa.array(where, mask=~filled))
