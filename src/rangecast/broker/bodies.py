"""What a request brings: bytes, decompressed within bounds, as events or subscriptions.

Events come as one JSON object, a JSON array, JSON lines, or an Arrow stream, each also as gzip or zstd. An
event that cannot be read is rejected with its row and its reason; the others go on. Rows count from 0.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from starlette.requests import ClientDisconnect

from rangecast.broker.errors import BrokerError, TooLargeError, UnsupportedError
from rangecast.broker.event_json import unwritable_rows
from rangecast.broker.event_record import PublishedBody, joined_strings
from rangecast.broker.flat_lines import read_flat
from rangecast.broker.kernels import JoinedStrings
from rangecast.broker.limits import SpaceLimits
from rangecast.broker.tables import arrow_table
from rangecast.errors import EventError
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
