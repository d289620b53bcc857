"""Arrow streams and Parquet files of a request as tables, within bounds.

A few kilobytes can stand for any number of bytes: a buffer of an Arrow stream that is compressed, a text in
the dictionary of a column that every row means. So it is asked what a body stands for before it is unpacked,
and one that stands for more than the limit on bodies is refused, as one is that is compressed as a whole.

Each compressed buffer of a stream says in its first eight bytes how long it becomes, and Arrow refuses one
that becomes anything else; -1 says that it is not compressed. Where buffers lie is in the message of their
batch, a FlatBuffer (format/Message.fbs of Apache Arrow) that Arrow has checked when it gives it out.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rangecast.broker.errors import BrokerError, TooLargeError
from rangecast.errors import StorageError
from rangecast.loading.parquet_files import ParquetFile

_BAD = (OSError, pa.ArrowException, MemoryError, ValueError, UnicodeDecodeError)
# places of fields in their tables
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3


def arrow_table(raw: bytes, most: int) -> pa.Table:
    """The table of an Arrow stream, checked; TooLargeError where it unpacks to more than `most` bytes."""
    try:
        unpacked = _unpacked_bytes(raw)
    except (*_BAD, struct.error) as error:
        raise BrokerError(f"the body is not an Arrow stream: {error}") from None
    _check_size(unpacked, most)
    try:
        with pa.ipc.open_stream(raw) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except _BAD as error:
        raise BrokerError(f"the body is not an Arrow stream: {error}") from None
    return table


def parquet_table(raw: bytes, most: int) -> pa.Table:
    """The table of a Parquet file; TooLargeError where it is more than `most` bytes."""
    pieces: list[pa.Table] = []
    size = 0
    try:
        with contextlib.closing(_ParquetBody(raw)) as file:
            for batch in file.batches():
                assert isinstance(batch.data, pa.Table)
                pieces.append(batch.data)
                size += batch.data.nbytes
                if size > most:
                    break
            empty = pa.schema(list(file.types.items())).empty_table()
    except (*_BAD, StorageError) as error:
        raise BrokerError(f"the body is not a Parquet file: {error}") from None
    _check_size(size, most)
    return pa.concat_tables(pieces) if pieces else empty


def rows_of(table: pa.Table, most: int) -> list[dict[str, Any]]:
    """The rows of a table as dicts; TooLargeError where their texts are more than `most` bytes."""
    _check_size(sum(_meant_bytes(chunk) for column in table.columns for chunk in column.chunks), most)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


class _ParquetBody(ParquetFile):
    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        super().__init__("body")

    def _source(self) -> Any:
        return pa.BufferReader(self._raw)


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise TooLargeError(f"the limit 'body_bytes' is {most:,}, and the body is longer when decompressed")


def _meant_bytes(chunk: pa.Array[Any]) -> int:
    """Bytes of the values of a column, each as often as a row means it."""
    if pa.types.is_dictionary(chunk.type):
        values, which = chunk.dictionary, chunk.indices
    elif pa.types.is_run_end_encoded(chunk.type):
        values, which = chunk.values, None
    else:
        return int(chunk.nbytes)
    try:
        lengths = pc.binary_length(values)
    except pa.ArrowNotImplementedError:
        return len(chunk) * 8
    if which is not None:
        return int(pc.sum(lengths.take(which)).as_py() or 0)
    return len(chunk) * int(pc.max(lengths).as_py() or 0)


def _unpacked_bytes(raw: bytes) -> int:
    """What the compressed buffers of a stream unpack to."""
    total = 0
    for message in pa.ipc.MessageReader.open_stream(raw):
        if message.type not in ("record batch", "dictionary"):
            continue
        metadata = message.metadata.to_pybytes()
        batch = _table_at(metadata, _field(metadata, _table_at(metadata, 0), _HEADER))
        if message.type == "dictionary":
            batch = _table_at(metadata, _field(metadata, batch, _DATA))
        buffers = _field(metadata, batch, _BUFFERS)
        if not buffers or not _field(metadata, batch, _COMPRESSION):
            continue
        begin = _table_at(metadata, buffers)
        (n,) = struct.unpack_from("<I", metadata, begin)
        for offset, length in struct.iter_unpack("<qq", metadata[begin + 4 : begin + 4 + 16 * n]):
            if length >= 8:
                (size,) = struct.unpack_from("<q", message.body, offset)
                total += max(size, 0)
    return total


def _table_at(metadata: bytes, place: int) -> int:
    """What the offset at a place leads to."""
    return place + int(struct.unpack_from("<I", metadata, place)[0])


def _field(metadata: bytes, table: int, k: int) -> int:
    """Where the field of a table is, 0 if it has none."""
    known = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, known)
    if 4 + 2 * k >= size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, known + 4 + 2 * k)
    return table + offset if offset else 0
