"""Matching a file of events against an index, and writing the pairs and the rows that were rejected."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from rangecast.errors import EventError, OptionError, RangecastWarning
from rangecast.loading.events import (
    EventFile,
    EventFiles,
    PayloadColumns,
    cast_column,
    check_names,
    expand_paths,
)
from rangecast.loading.files import ROWS_AT_ONCE, format_of
from rangecast.loading.ids import named_type
from rangecast.loading.pairs import OutputFile, Pace, PairWriter, pair_writer
from rangecast.loading.rejected import RejectedRow, Rejects
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.simd.compiler import compile_seconds, running_seconds
from rangecast.types.frames import describe_absent
from rangecast.types.schema import Schema

_Item = TypeVar("_Item")


class Matcher(Protocol):
    """What matches events: an index."""

    @property
    def schema(self) -> Schema:
        """The attributes of its subscriptions."""

    def match(self, events: Events, threads: int = 1) -> Matches:
        """The subscriptions that each event matches."""

    def subscriptions(self) -> Subscriptions:
        """The subscriptions themselves, for the type of their ids."""


@dataclass
class FileMatch:
    """The result of matching files: counts, seconds, rejected rows, and the pairs unless they are in a file.

    `match_seconds` do not include `compile_seconds`, which the first match on a machine may spend on kernels.
    `rejected` has the rejected rows, or the first few where a file has all; `n_rejected` counts them.
    `absent` are the attributes for which no event had a value; `remarks` say so, with what may be meant.
    """

    n_events: int = 0
    n_pairs: int = 0
    n_rejected: int = 0
    match_seconds: float = 0.0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    rejected: list[RejectedRow] = field(default_factory=list, repr=False)
    absent: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    pairs: pa.Table | None = field(default=None, repr=False)


Progress = Callable[[int, FileMatch], None]


def match_file(  # noqa: PLR0913 - each is an option of whoever calls it
    index: Matcher,
    events: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    rejected: str | os.PathLike[str] | Rejects | None = None,
    strict: bool = False,
    event_id: str | None = None,
    id_type: str | None = None,
    format: str | None = None,
    sort: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
    keep: Sequence[str] = (),
    delimiter: str | None = None,
) -> FileMatch:
    """Match files of events (CSV, JSON lines, Parquet) and write the pairs to `out`, or give them back.

    `events` is a path, a pattern such as `trades/*.csv`, or a list of both: several files are matched one
    after the other. An attribute that no event has is a RangecastWarning, and with `strict` an EventError.
    Rows that cannot be loaded stop nothing (unless `strict`): they are listed in the result, or written to
    the CSV file `rejected`. `event_id` names the column of ids; by default it is `id`, and rows are numbered
    where there is none. `id_type` says "int64" or "string" where the start of the file would tell otherwise.
    `sort` orders the subscriptions of each event by id. Files are put in their place when all is done.
    Columns of the events in `keep` come along. `delimiter` is that of CSV files; by default their headers
    tell it. `progress` is called with how far the reader is, in the unit of the file's size, and with counts.
    """
    kind = None if out is None else format_of(os.fspath(out))
    check_names(keep, ())
    with contextlib.ExitStack() as stack:
        names = [events] if isinstance(events, str | os.PathLike) else events
        source = open_events(
            index.schema,
            [os.fspath(name) for name in names],
            event_id=event_id,
            id_type=named_type(id_type),
            format=format,
            keep=keep,
            delimiter=delimiter,
        )
        stack.callback(source.close)
        if strict:
            source.refuse_absent()
        rejects = rejected if isinstance(rejected, Rejects) else Rejects(rejected, strict=strict)
        if rejects is not rejected:
            stack.enter_context(rejects)
        if out is None or kind is None:
            gathered = _Gathered()
            done = write_matches(
                index, source, gathered, rejects, threads=threads, sort=sort, progress=progress
            )
            done.pairs = gathered.table
        else:
            target = stack.enter_context(OutputFile(os.fspath(out)))
            writer = pair_writer(os.fspath(out), target.stream)
            done = write_matches(
                index, source, writer, rejects, threads=threads, sort=sort, progress=progress
            )
        for remark in done.remarks:
            warnings.warn(remark, RangecastWarning, stacklevel=2)
        return done


def open_events(schema: Schema, names: Sequence[str], **options: Any) -> EventFile | EventFiles:
    """The events of files by their names and patterns; one name that is no pattern is opened as it is."""
    if not names:
        raise OptionError("events must be at least one file, got none")
    if len(names) == 1 and (options.get("stream") is not None or not glob.has_magic(names[0])):
        return EventFile(schema, names[0], **options)
    paths = expand_paths(names)
    return EventFile(schema, paths[0], **options) if len(paths) == 1 else EventFiles(schema, paths, **options)


def write_matches(
    index: Matcher,
    events: EventFile | EventFiles,
    writer: PairWriter,
    rejects: Rejects,
    *,
    threads: int = 1,
    batch: int = ROWS_AT_ONCE,
    sort: bool = False,
    progress: Progress | None = None,
    payload: PayloadColumns | None = None,
) -> FileMatch:
    """The work behind `match_file`, on what was opened before: match, write the pairs, list rejected rows.

    `payload` has columns of the subscriptions to write beside. With several threads, a batch of a file is
    read while the one before it is matched.
    """
    began = running_seconds()
    done = FileMatch()
    earlier = len(rejects)
    pace = Pace(batch)
    before = 0
    types = events.kept_types
    ids: pa.Field | None = None
    # a pipe is read when its turn comes: whoever waits for more of it must be able to stop
    parts = read_ahead(events) if threads > 1 and events.size else events
    for part in parts:
        for row in part.rejected:
            rejects.add(row)
        for first, last in pace.cut(len(part.events)):
            whole = last - first == len(part.events)
            some = part.events if whole else part.events.select(np.arange(first, last))
            start, compiled = running_seconds(), compile_seconds()
            matches = index.match(some, threads=threads)
            done.compile_seconds += compile_seconds() - compiled
            done.match_seconds += running_seconds() - start
            done.n_pairs += matches.n_pairs
            pace.seen(last - first, matches.n_pairs)
            matches = matches.sort() if sort else matches
            pairs = matches.to_arrow(part.ids[first:last])
            ids = pairs.schema.field("subscription_id")
            if types:
                rows = pa.array(matches.events() + first)
                for name, kind in types.items():
                    column = cast_column(part.kept[name], kind, name, events.path)
                    pairs = pairs.append_column(name, column.take(rows))
            for name, values in ({} if payload is None else payload.of(matches)).items():
                pairs = pairs.append_column(name, values)
            writer.write(pairs)
            done.n_events += last - first
            if progress is not None:
                progress(before + (part.position - before) * last // len(part.events), done)
        before = part.position
    if done.n_events:
        done.absent = events.absent
        done.remarks += events.remarks if isinstance(events, EventFiles) else []
        if done.absent:
            done.remarks.append(describe_absent(done.absent, events.near_misses()))
        if events.absent_kept:
            done.remarks.append(describe_absent(events.absent_kept, {}) + ", which was to be kept")
        if rejects.strict and (done.absent or events.absent_kept):
            raise EventError(f"{done.remarks[-1]} (which a strict run does not allow)")
    more = types | ({} if payload is None else payload.types)
    # asked of the index where nothing was matched: its subscriptions take as long as reading 20,000 lines
    schema = pa.schema([("event_id", events.id_type), ids or _id_field(index), *more.items()])
    writer.close(schema)
    done.seconds = running_seconds() - began
    done.n_rejected = len(rejects) - earlier
    done.rejected = [row for row in rejects.first if row.source in events.paths]
    return done


def read_ahead(parts: Iterable[_Item]) -> Iterator[_Item]:
    """The same parts in their order, each read by a thread while the one before it is worked on.

    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    source = iter(parts)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(list, itertools.islice(source, 1))
        while part := coming.result():
            coming = pool.submit(list, itertools.islice(source, 1))
            yield part[0]


class _Gathered(PairWriter):
    """Pairs in memory."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.table: pa.Table | None = None

    def write(self, pairs: pa.Table) -> None:
        self._tables.append(pairs)

    def close(self, schema: pa.Schema) -> None:
        self.table = pa.concat_tables(self._tables) if self._tables else schema.empty_table()


def _id_field(index: Matcher) -> pa.Field:
    none = Matches(np.zeros(1, np.int64), np.empty(0, np.int32), index.subscriptions().ids).to_arrow()
    return none.schema.field("subscription_id")
