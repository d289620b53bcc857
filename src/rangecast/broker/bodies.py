"""What a request brings: bytes, decompressed within bounds, as events or subscriptions.

Events come as one JSON object, a JSON array, JSON lines, or an Arrow stream, each also as gzip or zstd. An
event that cannot be read is rejected with its row and its reason; the others go on. Rows count from 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import zlib
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import ClientDisconnect

from rangecast.broker.access import BrokerError, SpaceLimits, TooLargeError, UnsupportedError
from rangecast.broker.event_json import unwritable_rows
from rangecast.broker.event_log import PublishedBody, joined_strings
from rangecast.broker.kernels import JoinedStrings
from rangecast.errors import EventError, StorageError
from rangecast.loading.formats import ParquetFile
from rangecast.loading.json import LineCoder, WholeLines
from rangecast.model.events import Events
from rangecast.types.schema import Schema

BODY_SECONDS = 30.0
_FEWEST_LINES = 16  # fewer are read sooner one by one
_MOST_MEMBERS = 100_000  # of gzip; the smallest has 20 bytes, so 64 MB could have three million
_FIRST_WINDOW, _LAST_WINDOW = 512, 1 << 20
_NOT_ENCODED = ("", "identity")
JSON_TYPES = ("application/json",)
LINES_TYPES = (
    "application/x-ndjson",
    "application/jsonl",
    "application/x-jsonlines",
    "application/json-lines",
)
ARROW_TYPES = ("application/vnd.apache.arrow.stream",)
PARQUET_TYPES = ("application/vnd.apache.parquet", "application/x-parquet")
# white space of JSON; other control characters are none
_BLANKS = b" \t\r\n"
_any = msgspec.json.Decoder()
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


@dataclass
class ReceivedEvents:
    """The events of a request: codes, what was published, and what was rejected."""

    events: Events
    body: PublishedBody
    rejected: list[tuple[int, str]]


async def read_body(request: Any, limits: SpaceLimits) -> bytes:
    """The body of a request, decompressed; TooLargeError past the limit."""
    most = limits.body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise TooLargeError(f"the limit 'body_bytes' is {most:,}, got a body of {int(declared):,}")
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                size += len(piece)
                if size > most:
                    raise TooLargeError(f"the limit 'body_bytes' is {most:,}, and the body is longer")
                pieces.append(piece)
    except TimeoutError:
        raise BrokerError(f"the body must come within {BODY_SECONDS:g} seconds") from None
    except ClientDisconnect:
        raise BrokerError("the client closed the connection within its body") from None
    encoding = request.headers.get("content-encoding", "")
    if encoding.strip().lower() in _NOT_ENCODED:
        return b"".join(pieces)
    # beside the event loop, since a few kilobytes may become the limit
    return await asyncio.to_thread(decompressed, b"".join(pieces), encoding, most)


def decompressed(raw: bytes, encoding: str, most: int) -> bytes:
    """What was compressed, up to a number of bytes; TooLargeError past it."""
    match encoding.strip().lower():
        case kind if kind in _NOT_ENCODED:
            return raw
        case "gzip":
            return _gunzipped(raw, most)
        case "zstd":
            try:
                with pa.CompressedInputStream(pa.BufferReader(raw), "zstd") as stream:
                    out = stream.read(most + 1)
            except (OSError, pa.ArrowException) as error:
                raise BrokerError(f"the body is not zstd: {error}") from None
        case other:
            raise UnsupportedError(f"Content-Encoding must be gzip or zstd, got {other[:40]!r}")
    if len(out) > most:
        raise _too_long(most)
    return bytes(out)


def _gunzipped(raw: bytes, most: int) -> bytes:
    """What the members of a gzip file were, one after the other: `cat a.gz b.gz` is one file, and what pigz
    or a shipper of logs writes may have a member for each block."""
    view = memoryview(raw)
    out: list[bytes] = []
    size = at = 0
    for _ in range(_MOST_MEMBERS):
        engine = zlib.decompressobj(31)
        # what a piece has behind the end of its member is copied: so the first ones are small
        window = _FIRST_WINDOW
        while not engine.eof:
            piece = view[at : at + window]
            if not len(piece):
                raise BrokerError("the body is not whole: the end of the gzip stream is missing")
            try:
                part = engine.decompress(piece, most + 1 - size)
            except zlib.error as error:
                where = f" from byte {at:,} on" if at else ""
                raise BrokerError(f"the body is not gzip{where}: {error}") from None
            out.append(part)
            size += len(part)
            if size > most:
                raise _too_long(most)
            at += len(piece) - len(engine.unused_data)
            window = min(2 * window, _LAST_WINDOW)
        if at == len(raw):
            return b"".join(out)
    raise TooLargeError(f"a body of gzip may have {_MOST_MEMBERS:,} members, got more")


def _too_long(most: int) -> TooLargeError:
    return TooLargeError(f"the limit 'body_bytes' is {most:,}, and the body is longer when decompressed")


def media_type(header: str | None) -> str:
    """The content type without its parameters; JSON where none is given, or what `curl -d` says by itself."""
    kind = (header or "").partition(";")[0].strip().lower()
    return JSON_TYPES[0] if kind in ("", "application/x-www-form-urlencoded") else kind


def read_events(raw: bytes, kind: str, schema: Schema, limits: SpaceLimits) -> ReceivedEvents:
    """The events of a body."""
    if kind in ARROW_TYPES:
        return _from_arrow(raw, schema, limits)
    found = _flat_events(raw, kind, schema, limits)
    if found is not None:
        return found
    texts = split_texts(raw, kind)
    if len(texts) > limits.request_events:
        raise TooLargeError(
            f"the limit 'request_events' is {limits.request_events:,} events, got {len(texts):,}"
        )
    rejected: list[tuple[int, str]] = []
    places = range(len(texts))
    rows = _decoded(texts, limits.line_bytes, rejected)
    if rejected:
        bad = {row for row, _ in rejected}
        places = [row for row in places if row not in bad]  # type: ignore[assignment]
        texts = [texts[row] for row in places]
    try:
        events = Events.from_rows(schema, rows, on_error="collect")
    except (EventError, ValueError, TypeError, OverflowError) as error:
        raise BrokerError(f"the events cannot be read: {error}") from None
    body = PublishedBody(joined_strings(texts)).without([row for row, _ in events.rejected])
    if events.rejected:
        rejected += [(places[row], reason) for row, reason in events.rejected]
        rejected.sort()
    return ReceivedEvents(events, body, rejected)


def _flat_events(raw: bytes, kind: str, schema: Schema, limits: SpaceLimits) -> ReceivedEvents | None:
    """The events of lines that are flat objects; None where the body must be read in the ordinary way."""
    lines = raw.count(b"\n") + 1
    if kind in JSON_TYPES:
        # one object; an array, or an object over several lines, is none of ours
        if lines > 1 or not raw.startswith(b"{"):
            return None
    elif kind not in LINES_TYPES and not kind.startswith("text/"):
        return None
    if not _FEWEST_LINES <= lines <= limits.request_events:
        return None
    if b"\r" in raw:
        # between tokens it would end a line of server-sent events: the ordinary way puts a space there
        raw = raw.replace(b"\r\n", b"\n")
        if b"\r" in raw:
            return None
    flat = read_flat(raw, schema)
    if flat is None or flat.longest > limits.line_bytes:
        return None
    return ReceivedEvents(flat.events, PublishedBody(JoinedStrings(flat.letters, flat.starts)), [])


def split_texts(raw: bytes, kind: str) -> list[bytes]:
    """The JSON texts of a body; what is not JSON among them is rejected later.

    Those that are JSON have no newline and no carriage return, which end a line of server-sent events;
    nothing else does, and U+2028 is a letter there.
    """
    if kind in LINES_TYPES or kind.startswith("text/"):
        texts = [line.strip(_BLANKS) for line in raw.split(b"\n")]
        return [_unbroken(text) if b"\r" in text else text for text in texts if text]
    if kind not in JSON_TYPES:
        known = ", ".join((*JSON_TYPES, LINES_TYPES[0], ARROW_TYPES[0]))
        raise UnsupportedError(f"Content-Type must be one of {known}, got {kind[:60]!r}")
    body = raw.strip(_BLANKS)
    if not body.startswith(b"["):
        if b"\n" in body or b"\r" in body:
            try:
                return [msgspec.json.format(body, indent=-1)]
            except _BAD as error:
                raise BrokerError(
                    f"the body is not one JSON object: {error}; JSON lines have the type {LINES_TYPES[0]}"
                ) from None
        return [body] if body else []
    try:
        texts = [bytes(text) for text in _raws.decode(body)]
    except _BAD as error:
        raise BrokerError(f"the body is not a JSON array: {error}") from None
    return [_unbroken(text) if b"\n" in text or b"\r" in text else text for text in texts]


def _unbroken(text: bytes) -> bytes:
    """A JSON text on one line; what is not JSON stays as it is."""
    try:
        return msgspec.json.format(text, indent=-1)
    except _BAD:
        return text


def _decoded(texts: list[bytes], most: int, rejected: list[tuple[int, str]]) -> list[dict[str, Any]]:
    """The objects of texts; what is none is rejected."""
    rows: list[dict[str, Any]] = []
    decode = _any.decode
    for row, text in enumerate(texts):
        if len(text) > most:
            rejected.append((row, f"the limit 'line_bytes' is {most:,} for one event, got {len(text):,}"))
            continue
        try:
            value = decode(text)
        except _BAD as error:
            rejected.append((row, f"not JSON: {error}"))
            continue
        if isinstance(value, dict):
            rows.append(value)
        else:
            rejected.append((row, f"an event must be a JSON object, got {type(value).__name__}"))
    return rows


def _from_arrow(raw: bytes, schema: Schema, limits: SpaceLimits) -> ReceivedEvents:
    table = arrow_table(raw, limits.body_bytes)
    if table.num_rows > limits.request_events:
        raise TooLargeError(
            f"the limit 'request_events' is {limits.request_events:,} events, got {table.num_rows:,}"
        )
    if len(set(table.column_names)) < len(table.column_names):
        raise BrokerError("the columns of a table must have different names")
    whole = PublishedBody(table=table, stream=raw)
    # what cannot be written could be received by nobody, so it is not taken
    bad = unwritable_rows(table)
    body = whole.without(sorted(bad))
    assert body.table is not None
    try:
        events = Events.from_arrow(schema, body.table, on_error="collect")
    except (EventError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise BrokerError(f"the events cannot be read: {error}") from None
    body = body.without([row for row, _ in events.rejected])
    places = [row for row in range(table.num_rows) if row not in bad] if bad else range(table.num_rows)
    rejected = [*bad.items(), *((places[row], reason) for row, reason in events.rejected)]
    return ReceivedEvents(events, body, sorted(rejected))


# Arrow streams and Parquet files of a request as tables, within bounds.
#
# A few kilobytes can stand for any number of bytes: a buffer of an Arrow stream that is compressed, a text in
# the dictionary of a column that every row means. So it is asked what a body stands for before it is
# unpacked, and one that stands for more than the limit on bodies is refused, as one is that is compressed as
# a whole.
#
# Each compressed buffer of a stream says in its first eight bytes how long it becomes, and Arrow refuses one
# that becomes anything else; -1 says that it is not compressed. Where buffers lie is in the message of their
# batch, a FlatBuffer (format/Message.fbs of Apache Arrow) that Arrow has checked when it gives it out.

_DAMAGED = (OSError, pa.ArrowException, MemoryError, ValueError, UnicodeDecodeError)
# places of fields in their tables
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3


def arrow_table(raw: bytes, most: int) -> pa.Table:
    """The table of an Arrow stream, checked; TooLargeError where it unpacks to more than `most` bytes."""
    try:
        unpacked = _unpacked_bytes(raw)
    except (*_DAMAGED, struct.error) as error:
        raise BrokerError(f"the body is not an Arrow stream: {error}") from None
    _check_size(unpacked, most)
    try:
        with pa.ipc.open_stream(raw) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except _DAMAGED as error:
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
    except (*_DAMAGED, StorageError) as error:
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


# JSON lines of flat objects as events: what most publishers send, read by the kernel that reads files.
#
# The reader of files (loading/json.py) writes codes where each value stands, and takes no line that means
# anything else to the reader of any JSON. A body with one line that it does not take is left to the ordinary
# reader as a whole, which has words for what is wrong with it.
#
# A reader knows the keys that it has met. It is kept for the next body of its schema, and one that has met
# too many keys is not.

_MOST_SCHEMAS = 16
_MOST_OTHER_KEYS = 32  # each is compared with the first key of every line
_readers: OrderedDict[int, tuple[Schema, deque[LineCoder]]] = OrderedDict()
"""Readers that nobody uses, by the identity of their schema: equal schemas may know other words."""


def read_flat(raw: bytes, schema: Schema) -> WholeLines | None:
    """The lines of a body; None where they are not flat, or not UTF-8."""
    schema = schema.declared
    if schema.computed or not LineCoder.fits(schema, {}):
        return None
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return None
    ends = np.flatnonzero(np.frombuffer(raw, np.uint8) == ord("\n"))
    starts = np.empty(len(ends) + 2, np.int64)
    starts[0], starts[-1] = 0, len(raw)
    np.add(ends, 1, out=starts[1:-1])
    free = _free_readers(schema)
    try:
        reader = free.pop()
    except IndexError:
        reader = LineCoder(schema, {})
    found = reader.whole(raw, starts)
    if len(reader.keys) <= len(schema.names) + _MOST_OTHER_KEYS:
        free.append(reader)
    return found


def _free_readers(schema: Schema) -> deque[LineCoder]:
    found = _readers.get(id(schema))
    if found is None:
        found = _readers[id(schema)] = schema, deque(maxlen=8)
        while len(_readers) > _MOST_SCHEMAS:
            _readers.popitem(last=False)
    return found[1]
