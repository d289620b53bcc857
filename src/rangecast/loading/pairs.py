"""Writing matches: pairs of an event and a subscription, as CSV, JSON lines or Parquet.

Pairs arrive batch by batch. A Parquet row group holds a million of them, however small the batches
were, so that a reader of the file is not slowed down by many small groups.

Ids that are whole numbers are written as differences (DELTA_BINARY_PACKED), which Spark, DuckDB, Polars and
Arrow read: those of events repeat in runs, and those of subscriptions need as many bits as their range has.
A dictionary and plain numbers, compressed, took twice the bytes and nearly twice the time. Columns that have
a value in each row are declared so: that saves a fifth of the time to write them, and a quarter of that to
read them. Spark takes every column for one that may have nulls, and reads them as before. Statistics are kept
of all columns but subscriptions: each row group has about all of those, so no reader could skip one by them.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import glob
import io
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from rangecast.durable.bucket import local_place
from rangecast.errors import OptionError, StorageError
from rangecast.loading.files import format_of, suffix_of

ROW_GROUP = 1 << 20
EVENT, SUBSCRIPTION = "event_id", "subscription_id"


def pair_file(where: Any, schema: pa.Schema, compression: str = "snappy") -> pq.ParquetWriter:
    """A Parquet file for matches: a column of events, one of subscriptions, and those that come along."""
    counted = [field.name for field in schema if field.type in (pa.int32(), pa.int64())]
    # columns of events repeat in runs, as their ids do; of subscriptions nearly every string is another
    repeated = [n for n in schema.names if n not in (*counted, SUBSCRIPTION, "subscription_ids")]
    return pq.ParquetWriter(
        where,
        schema,
        compression=compression,
        use_dictionary=repeated or False,
        column_encoding=dict.fromkeys(counted, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in schema.names if name != SUBSCRIPTION] or False,
    )


class PairWriter:
    """Writes tables of pairs to a stream; `close` finishes the file, empty ones too."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, pairs: pa.Table) -> None:
        """Write some pairs; all tables of one file have the same columns."""
        raise NotImplementedError

    def close(self, schema: pa.Schema) -> None:
        """Finish the file; `schema` is that of a file to which nothing was written."""
        raise NotImplementedError


class CsvPairs(PairWriter):
    """A header and a line per pair."""

    delimiter = ","
    _writer: pacsv.CSVWriter | None = None

    def write(self, pairs: pa.Table) -> None:
        pairs = _without_dictionaries(pairs)
        if self._writer is None:
            for field in pairs.schema:
                if pa.types.is_nested(field.type):
                    raise OptionError(f"the column {field.name!r} is {field.type}: CSV cannot hold it")
            header = io.StringIO()  # Arrow quotes every name of a header
            csv.writer(header, delimiter=self.delimiter, lineterminator="\n").writerow(pairs.column_names)
            self._stream.write(header.getvalue().encode())
            options = pacsv.WriteOptions(
                include_header=False, quoting_style="needed", delimiter=self.delimiter
            )
            self._writer = pacsv.CSVWriter(self._stream, pairs.schema, write_options=options)
        self._writer.write_table(pairs)

    def close(self, schema: pa.Schema) -> None:
        if self._writer is None:
            self.write(schema.empty_table())
        assert self._writer is not None
        self._writer.close()


class TabPairs(CsvPairs):
    """The same with tabs."""

    delimiter = "\t"


class JsonPairs(PairWriter):
    """An object a line."""

    def write(self, pairs: pa.Table) -> None:
        if not len(pairs):
            return
        texts: list[Any] = []
        for number, name in enumerate(pairs.column_names):
            texts += [("{" if number == 0 else ", ") + json.dumps(name) + ": ", _json_texts(pairs[name])]
        lines = pc.binary_join_element_wise(*texts, "}\n", "")
        for chunk in lines.chunks:
            self._stream.write("".join(chunk.to_pylist()).encode())

    def close(self, schema: pa.Schema) -> None:
        self._stream.flush()


class ParquetPairs(PairWriter):
    """Row groups of a million pairs, or of `group`; columns in `filled` have a value in each row."""

    def __init__(
        self,
        stream: BinaryIO | os.PathLike[str],
        compression: str = "snappy",
        filled: Collection[str] = (EVENT, SUBSCRIPTION),
        group: int = ROW_GROUP,
    ) -> None:
        self._where = stream
        self._compression = compression
        self._filled = filled
        self._group = group
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._n_waiting = 0

    @property
    def is_empty(self) -> bool:
        """Whether no pair was written so far."""
        return self._writer is None and not self._waiting

    def write(self, pairs: pa.Table) -> None:
        if not len(pairs):
            return
        self._waiting.append(_without_dictionaries(pairs))
        self._n_waiting += len(pairs)
        if self._n_waiting >= self._group:
            self._flush()

    def close(self, schema: pa.Schema | None = None) -> None:
        """Finish the file; `schema` is that of a file to which nothing was written."""
        if self.is_empty:
            assert schema is not None
            self._waiting.append(_without_dictionaries(schema.empty_table()))
        self._flush()
        self.release()

    def release(self) -> None:
        """Close the file as it is, where it will not be finished."""
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            fields = [field.with_nullable(field.name not in self._filled) for field in table.schema]
            table = pa.Table.from_arrays(table.columns, schema=pa.schema(fields))
            for field, column in zip(fields, table.columns, strict=True):
                if column.null_count and not field.nullable:  # PyArrow checks this from 19 on
                    raise pa.ArrowInvalid(f"the column {field.name!r} of a file of pairs has a null")
            if self._writer is None:
                self._writer = pair_file(self._where, table.schema, self._compression)
            self._writer.write_table(table, ROW_GROUP)
            self._waiting, self._n_waiting = [], 0


PAIR_WRITERS: dict[str, type[PairWriter]] = {"csv": CsvPairs, "jsonl": JsonPairs, "parquet": ParquetPairs}


def pair_writer(path: str, stream: BinaryIO) -> PairWriter:
    """The writer for a file by its suffix."""
    return TabPairs(stream) if suffix_of(path) == "tsv" else PAIR_WRITERS[format_of(path)](stream)


def _without_dictionaries(pairs: pa.Table) -> pa.Table:
    """String ids as plain strings: an index's dictionary holds every id, a batch needs few of them."""
    for position, column in enumerate(pairs.columns):
        if pa.types.is_dictionary(column.type):
            plain = column.cast(column.type.value_type)
            pairs = pairs.set_column(position, pairs.column_names[position], plain)
    return pairs


def _json_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each value as JSON; strings are escaped once for each different one."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.string()).fill_null("null")
    if pa.types.is_nested(column.type):
        return pa.chunked_array([[json.dumps(value, default=str) for value in column.to_pylist()]])
    if pa.types.is_floating(column.type):  # JSON has no NaN
        column = pc.if_else(pc.is_finite(column), column, None)
    coded = column.combine_chunks()
    if not pa.types.is_dictionary(coded.type):
        coded = coded.dictionary_encode()
    used = pc.unique(coded.indices)
    words = pa.array([json.dumps(word, default=str) for word in coded.dictionary.take(used).to_pylist()])
    return pa.chunked_array([words.take(pc.index_in(coded.indices, used))])


# Files that are seen whole or not at all: written under a scratch name, then renamed.
#
# A run that is killed leaves its scratch file. Whoever writes holds a lock on its own, which ends with the
# process on whatever machine it is; so the next run that writes the same file can tell, and clears the rest.


class OutputFile:
    """A file being written; `keep` puts it in its place, `drop` leaves what was there before.

    As a context, it is kept when the block ends and dropped when it fails.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(local_place(path, "a file of results"))
        self._scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            _clear_scratch(self.path)
            self.stream: BinaryIO = _open_locked(self._scratch)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror}") from None

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.keep()
        else:
            self.drop()

    def keep(self) -> None:
        """Close the file and give it its name."""
        self.stream.close()
        os.replace(self._scratch, self.path)

    def drop(self) -> None:
        """Close the file and remove it."""
        self.stream.close()
        self._scratch.unlink(missing_ok=True)


def _open_locked(path: Path) -> BinaryIO:
    while True:
        stream = open(path, "wb")  # noqa: SIM115
        with contextlib.suppress(OSError):  # a file system without locks clears nothing
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # somebody who cleared may have come between the two
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                return stream
        stream.close()


def _clear_scratch(path: Path) -> None:
    """Remove what runs that are no more have left of this file."""
    pattern = os.path.join(glob.escape(str(path.parent)), f".{glob.escape(path.name)}.*.tmp")
    for left in glob.glob(pattern):
        if not left.removesuffix(".tmp").rpartition(".")[2].isdigit():
            continue
        with contextlib.suppress(OSError), open(left, "rb+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(left)


# How many events are matched at once, so that the pairs in memory stay near a bound.
#
# What an event matches is not known before: the first step is small, and each step sets the size of the next
# one by what it found. The command line, file mode, streams and the source all go at this pace.

# 20 bytes per pair on their way into a file: 40 MB
PAIRS_AT_ONCE = 2_000_000
_FIRST_EVENTS = 1_000
# the next events may match far more than the last ones
_GROWTH = 8


class Pace:
    """Cuts batches by the matches that events have had so far; `largest` is the most events of a step."""

    def __init__(self, largest: int | None = None) -> None:
        self._largest = largest
        self.events = min(_FIRST_EVENTS, largest or _FIRST_EVENTS)

    def cut(self, n: int) -> Iterator[tuple[int, int]]:
        """Ranges over a batch of n events; call `seen` before the next one is taken."""
        first = 0
        while first < n:
            last = min(first + self.events, n)
            yield first, last
            first = last

    def seen(self, n_events: int, n_pairs: int) -> None:
        """Learn from a step."""
        if n_events:
            fitting = PAIRS_AT_ONCE * n_events // max(n_pairs, 1)
            self.events = max(1, min(fitting, _GROWTH * self.events, self._largest or fitting))
