"""A record of the event log: the events of one request, as they were published and as codes. Little-endian:

    0-3      the first half of the segment's mark (event_log.py)
    4-7      CRC-32 of bytes 8-63, begun with the other half
    8-15     sequence number of its first event; the others follow without a gap
    16-23    time of the append, microseconds since 1970 UTC
    24-31    pin: the version of the store that its events are matched against
    32-39    how many bytes of this segment were on disk when the record was written
    40-43    number of events
    44-47    kind of the body: 0 JSON texts, 1 an Arrow stream; 256 more where events have several columns,
             512 more where they are states of objects
    48-51    number of int64 in codes, owners and links
    52-55    length of the note
    56-59    length of the body
    60-63    CRC-32 of the payload

    payload  type              meaning
    owners   int64[1 + c]      the number of columns and the event of each; only where events have several
    codes    int64[d * c]      attribute after attribute, as an index of the pin's version sees them, with the
                               hidden ones (types/derived.py), which are always in the store's order
    links    int64[(3 + d) n]  objects, previous and before (objects.py); only where there is an object key
    starts   uint32[n + 1]     kind 0: where the text of each event begins in the body
    body     bytes             the texts one after the other, or the stream
    note     bytes             JSON: the publisher, the idempotency key, what was rejected; may be empty
    (zeros up to a multiple of 8)

The codes are those of the pin's version. A word that no subscription of that version names has the unknown
code, and is looked up never again: a later subscription does not match an earlier event. So a replay reads
numbers alone, and parses no text; the body is for those who receive the event.

A body may have anything in it, also the bytes of a record that was never written. So nothing in a segment
counts as a record only because it looks like one: it must also bear the segment's mark, which is random and
which no publisher sees. Records of version 0.4.0 have no such mark: theirs is `OLD_MARK`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.broker import kernels
from rangecast.broker.event_json import json_rows, rows_kept
from rangecast.broker.kernels import JoinedStrings
from rangecast.broker.objects import ObjectLinks

HEAD = struct.Struct("<4sIQQQQIIIIII")
OLD_MARK = b"REVT\0\0\0\0"
TEXTS, ARROW, SEVERAL, LINKED = 0, 1, 256, 512
_ALIGN = 8


class RecordNote(msgspec.Struct, omit_defaults=True):
    """What a record remembers of its request."""

    source: str = ""
    key: str = ""
    digest: str = ""
    rejected: list[tuple[int, str]] = []


@dataclass(frozen=True)
class PublishedBody:
    """Events as they were published: JSON texts, or an Arrow table and the stream that it came as."""

    texts: JoinedStrings | None = None
    table: pa.Table | None = None
    stream: bytes | None = None

    def __len__(self) -> int:
        if self.texts is not None:
            return len(self.texts.starts) - 1
        assert self.table is not None
        return int(self.table.num_rows)

    def without(self, rows: Sequence[int]) -> PublishedBody:
        """The events but for some."""
        if not len(rows):
            return self
        good = np.ones(len(self), bool)
        good[rows] = False
        if self.texts is not None:
            return PublishedBody(texts=taken_strings(self.texts, np.flatnonzero(good)))
        assert self.table is not None
        return PublishedBody(table=rows_kept(self.table, good))

    def json(self, rows: npt.NDArray[np.int64]) -> JoinedStrings:
        """Some of the events as JSON objects of one line; an empty text for one that cannot be written."""
        if self.texts is not None:
            return taken_strings(self.texts, rows)
        assert self.table is not None
        return joined_strings(json_rows(self.table, rows))

    def stored(self) -> Any:
        """The bytes that the log keeps: the texts one after the other, or an Arrow stream."""
        if self.texts is not None:
            return self.texts.letters.data
        if self.stream is not None:
            return self.stream
        assert self.table is not None
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self.table.schema) as writer:
            writer.write_table(self.table)
        return out.getvalue().to_pybytes()


def joined_strings(strings: Sequence[Any]) -> JoinedStrings:
    """Strings one after the other.

    >>> joined_strings([b"ab", b"c"]).starts.tolist()
    [0, 2, 3]
    """
    starts = np.zeros(len(strings) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)), out=starts[1:])
    return JoinedStrings(np.frombuffer(bytearray().join(strings), np.uint8), starts)


def taken_strings(strings: JoinedStrings, rows: npt.NDArray[np.int64]) -> JoinedStrings:
    """Some of them."""
    size = int((strings.starts[rows + 1] - strings.starts[rows]).sum())
    letters, starts = np.empty(size, np.uint8), np.empty(len(rows) + 1, np.int64)
    kernels.take_strings(strings, rows, letters, starts)
    return JoinedStrings(letters, starts)


def pack_record(
    sequence: int,
    time: int,
    pin: int,
    synced: int,
    codes: npt.NDArray[np.int64],
    body: PublishedBody,
    note: RecordNote | None = None,
    owners: npt.NDArray[np.int64] | None = None,
    links: ObjectLinks | None = None,
    mark: bytes = OLD_MARK,
) -> list[Any]:
    """The bytes of a record, in pieces that are to be written one after the other."""
    n = len(body)
    pieces: list[Any] = [np.ascontiguousarray(codes).data.cast("B") if codes.size else b""]
    words = codes.size
    if owners is not None:
        pieces.insert(0, np.concatenate([[len(owners)], owners]).astype(np.int64).tobytes())
        words += 1 + len(owners)
    if links is not None:
        pieces += [np.ascontiguousarray(array).tobytes() for array in links]
        words += sum(array.size for array in links)
    kind = TEXTS if body.texts is not None else ARROW
    if body.texts is not None:
        pieces.append(body.texts.starts.astype(np.uint32).tobytes())
    raw = body.stored()
    pieces.append(raw)
    remark = b"" if note is None else msgspec.json.encode(note)
    pieces.append(remark)
    length = sum(map(len, pieces))
    pieces.append(bytes(-length % _ALIGN))
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    fields = struct.pack(
        "<QQQQIIIIII",
        sequence,
        time,
        pin,
        synced,
        n,
        kind | (0 if owners is None else SEVERAL) | (0 if links is None else LINKED),
        words,
        len(remark),
        len(raw),
        crc,
    )
    return [mark[:4] + struct.pack("<I", _marked_sum(mark, fields)) + fields, *pieces]


def _marked_sum(mark: bytes, fields: Any) -> int:
    return zlib.crc32(fields, int.from_bytes(mark[4:], "little"))


@dataclass(frozen=True)
class RecordHead:
    """The head of a record, checked."""

    sequence: int
    time: int
    pin: int
    synced: int
    n: int
    form: int
    words: int
    note_length: int
    body_length: int
    crc: int

    @property
    def next(self) -> int:
        """The sequence number after its last event."""
        return self.sequence + self.n

    @property
    def kind(self) -> int:
        """Whether the body is texts or an Arrow stream."""
        return self.form & ~(SEVERAL | LINKED)

    @cached_property
    def length(self) -> int:
        """How many bytes the payload has."""
        starts = 4 * (self.n + 1) if self.kind == TEXTS else 0
        length = 8 * self.words + starts + self.body_length + self.note_length
        return length + -length % _ALIGN


def read_record_head(raw: Any, at: int = 0, mark: bytes = OLD_MARK) -> RecordHead | None:
    """The head that begins here; None when it does not check."""
    if len(raw) - at < HEAD.size:
        return None
    magic, crc, *fields = HEAD.unpack_from(raw, at)
    if magic != mark[:4] or _marked_sum(mark, memoryview(raw)[at + 8 : at + HEAD.size]) != crc:
        return None
    return RecordHead(*fields)


class EventRecord:
    """The events of one record; arrays and texts are cut out of its bytes when they are asked for."""

    __slots__ = ("_payload", "head")

    def __init__(self, head: RecordHead, payload: memoryview) -> None:
        self.head = head
        self._payload = payload

    @property
    def whole(self) -> bool:
        """Whether the payload is all there, as its sum says."""
        return len(self._payload) == self.head.length and zlib.crc32(self._payload) == self.head.crc

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        """The codes, (d, n_columns)."""
        head = self.head
        numbers = np.frombuffer(self._payload, np.int64, head.words)
        if head.form & SEVERAL:
            n_columns = int(numbers[0])
            return numbers[1 + n_columns :].reshape(-1, n_columns)
        if head.form & LINKED:
            return numbers.reshape(-1, head.n)[: self._n_attributes]
        return numbers.reshape(-1, head.n)

    @property
    def links(self) -> ObjectLinks | None:
        """The objects of the events and what each was before; None where they are no states of objects."""
        if not self.head.form & LINKED:
            return None
        d = self._n_attributes
        numbers = np.frombuffer(self._payload, np.int64, self.head.words).reshape(-1, self.head.n)
        return ObjectLinks(numbers[d : d + 2], numbers[d + 2], numbers[d + 3 :])

    @property
    def _n_attributes(self) -> int:
        return (self.head.words // self.head.n - 3) // 2

    @property
    def owners(self) -> npt.NDArray[np.int64] | None:
        """The event of each column of codes; None where each event has one."""
        if not self.head.form & SEVERAL:
            return None
        n_columns = int(np.frombuffer(self._payload, np.int64, 1)[0])
        return np.frombuffer(self._payload, np.int64, n_columns, 8)

    @property
    def note(self) -> RecordNote:
        """What the record remembers of its request."""
        head = self.head
        if not head.note_length:
            return RecordNote()
        end = self._body_start() + head.body_length
        return msgspec.json.decode(self._payload[end : end + head.note_length], type=RecordNote)

    def json(self, rows: npt.NDArray[np.int64]) -> JoinedStrings:
        """Some of the events as JSON objects of one line; an empty text for one that cannot be written."""
        start = self._body_start()
        if self.head.kind == ARROW:
            try:
                with pa.ipc.open_stream(self._payload[start : start + self.head.body_length]) as reader:
                    table = reader.read_all()
            except (OSError, pa.ArrowException):  # of a type that this version of Arrow does not know, say
                return joined_strings([b""] * len(rows))
            return PublishedBody(table=table).json(rows)
        starts = np.frombuffer(self._payload, np.uint32, self.head.n + 1, 8 * self.head.words).astype(
            np.int64
        )
        # a copy, since kernels take arrays that may be written to: an array that may not is another type.
        # Logs of version 0.4.0 may have a carriage return between two tokens, which would end a line of
        # server-sent events; within a string of JSON there is none
        raw = bytearray(self._payload[start : start + self.head.body_length])
        letters = np.frombuffer(raw.replace(b"\r", b" "), np.uint8)
        return taken_strings(JoinedStrings(letters, starts), rows)

    def _body_start(self) -> int:
        head = self.head
        return 8 * head.words + (4 * (head.n + 1) if head.kind == TEXTS else 0)
