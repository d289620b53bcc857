"""The event log: what was published, in order, on disk before the publisher hears of it.

    log/00000000000000000001.events   a segment, named for its first sequence number
        0-3    b"RCEL"
        4-7    CRC-32 of bytes 8-39
        8-15   format, 2
        16-23  sequence number of the first event
        24-31  time at which it was begun, microseconds since 1970 UTC
        32-39  mark: random, and in the head of each record
        40-    records (event_log.py)

A segment of format 1 (version 0.4.0) has no mark, and its records begin at byte 32. It is read, and nothing
is added to it: a log that ends with one begins a new segment when it is opened.

Each event has a sequence number: 1, 2, 3, ... One thread appends: it gathers the records of a tick, writes
them at once and calls fdatasync once. Readers are other threads and other processes; they stop at what is
on disk.

After a crash the last segment may end in records that are not whole. Each record says how much of the
segment was on disk when it was written, so the largest of those numbers is a limit: what lies beyond it was
never acknowledged, may have holes, and is cut off at the first record that does not check (and kept beside
the log); what does not check before it is damage, and is never cut. A clean end writes the same number into
`clean.json`. Records behind a bad one are looked for by their mark: what a publisher put into a body in the
shape of a record has none, and would otherwise make a torn end look like damage.

Retention removes whole segments, the oldest first, by age and by bytes; the last segment always stays.
Where a reader asks for what is gone, `first` says where the log begins now.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.broker import kernels
from rangecast.broker.event_json import json_rows, rows_kept
from rangecast.broker.kernels import JoinedStrings
from rangecast.broker.objects import ObjectLinks
from rangecast.durable.arrays import replacing, writing_to
from rangecast.durable.documents import read_document, write_document
from rangecast.durable.segments import (
    RecordFormat,
    cut_torn_end,
    remove_segments,
    segment_path,
    segment_paths,
    write_pieces,
)
from rangecast.errors import StorageError

_START = struct.Struct("<4sIQQQ")
_MAGIC = b"RCEL"
_FORMAT = 2
_MARK_SIZE = 8
_SUFFIX = ".events"
_STRIDE = 1 << 16  # bytes between two entries of a segment's table of places
_CHUNK = 1 << 22
_log = logging.getLogger(__name__)


class DamagedRecordError(StorageError):
    """A record that was acknowledged does not check; `after` is the next sequence number that can be read."""

    def __init__(self, message: str, after: int) -> None:
        super().__init__(message)
        self.after = after


class _Segment:
    """One file of the log: where it begins, how much is on disk, and where some of its records stand."""

    def __init__(self, path: Path, first: int, begun: int, mark: bytes) -> None:
        self.path = path
        self.first = first
        self.begun = begun
        self.mark = mark
        self.format = RecordFormat(
            HEAD.size, mark[: _MARK_SIZE // 2], lambda raw, at: read_record_head(raw, at, mark)
        )
        self.start = _START.size if mark == OLD_MARK else _START.size + _MARK_SIZE
        self.end = self.start
        self.sequences = [first]
        self.offsets = [self.start]
        self.listed = False
        self._lock = threading.Lock()

    def note_place(self, sequence: int, offset: int) -> None:
        """Remember where a record stands, unless one near it is known."""
        if offset - self.offsets[-1] >= _STRIDE:
            with self._lock:
                if offset - self.offsets[-1] >= _STRIDE:
                    self.sequences.append(sequence)
                    self.offsets.append(offset)

    def place(self, sequence: int) -> int:
        """An offset at which a record begins that is not after the one with this event."""
        with self._lock:
            # an event of an earlier segment: all of this one is wanted
            return self.offsets[max(bisect.bisect_right(self.sequences, sequence) - 1, 0)]

    def forget_beyond_end(self) -> None:
        """Forget places of records that were never written."""
        with self._lock:
            while self.offsets[-1] >= self.end and len(self.offsets) > 1:
                self.offsets.pop()
                self.sequences.pop()


class EventLog:
    """Appends and reads published events; one thread appends, any number read."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        segment_bytes: int = 64 << 20,
        keep_seconds: float = 86_400.0,
        keep_bytes: int = 4 << 30,
    ) -> None:
        self.folder = Path(folder)
        self.segment_bytes = segment_bytes
        self.keep_seconds = keep_seconds
        self.keep_bytes = keep_bytes
        self.failed: str | None = None
        """Why nothing can be appended any more; None while all is well."""
        self.cut = 0
        """How many bytes were cut off when the log was opened."""
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        with writing_to(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._segments = segments_of(self.folder, mend=True)
        if not self._segments:
            self._segments = [self._begin(1)]
            self.next = 1
        else:
            self.next = self._recover()
            if self._segments[-1].mark == OLD_MARK:
                self._leave_old_format()
        self.durable = self.next
        self._handle = os.open(self._segments[-1].path, os.O_RDWR)

    # what there is

    @property
    def first(self) -> int:
        """The sequence number of the oldest event that is still there, or of the next one."""
        return self._segments[0].first

    @property
    def bytes(self) -> int:
        """How many bytes the segments have."""
        return sum(segment.end for segment in self._segments)

    @property
    def n_segments(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def recent(self, segments: int) -> int:
        """The first sequence number of the last few segments."""
        return self._segments[-segments:][0].first

    def oldest_pin(self) -> int | None:
        """The pin of the oldest record; None when there is none."""
        for record in self.records(self.first):
            return record.head.pin
        return None

    # appending

    def append(
        self,
        codes: npt.NDArray[np.int64],
        body: PublishedBody,
        pin: int,
        note: RecordNote | None = None,
        now: int | None = None,
        owners: npt.NDArray[np.int64] | None = None,
        links: ObjectLinks | None = None,
    ) -> int:
        """Add events to the next write; returns the sequence number of the first. `sync` makes it durable."""
        if self.failed:
            raise StorageError(f"{self.folder}: nothing can be published: {self.failed}")
        segment = self._segments[-1]
        sequence = self.next
        moment = time.time_ns() // 1000 if now is None else now
        pieces = pack_record(
            sequence, moment, pin, segment.end, codes, body, note, owners, links, segment.mark
        )
        segment.note_place(sequence, segment.end + self._waiting_bytes)
        self._waiting += pieces
        self._waiting_bytes += sum(map(len, pieces))
        self.next += len(body)
        return sequence

    def sync(self) -> None:
        """Write what was appended, and see that it is on disk; StorageError when it is not.

        After a write that failed, the log is as it was before, and those sequence numbers are free again.
        After a sync that failed nobody knows what is on disk, so the log takes nothing more until it is
        opened again.
        """
        if not self._waiting:
            return
        segment = self._segments[-1]
        pieces, total = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        try:
            write_pieces(self._handle, pieces, segment.end)
        except OSError as error:
            self.drop_waiting()
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, segment.end)
            raise StorageError(f"{segment.path}: cannot be written: {error.strerror}") from error
        try:
            os.fdatasync(self._handle)
        except OSError as error:
            self.failed = f"the disk refused to sync ({error.strerror}); start the broker again"
            raise StorageError(f"{segment.path}: {self.failed}") from error
        with self._lock:
            segment.end += total
            self.durable = self.next
        if segment.end >= self.segment_bytes:
            self._roll()

    def drop_waiting(self) -> None:
        """Forget what was appended and not written; those sequence numbers are free again."""
        self._waiting, self._waiting_bytes = [], 0
        self.next = self.durable
        self._segments[-1].forget_beyond_end()

    def _roll(self) -> None:
        try:
            fresh = self._begin(self.next)
        except StorageError as error:
            _log.warning("%s: a segment could not be begun, the old one grows: %s", self.folder, error)
            return
        self._segments[-1].listed = True
        handle = os.open(fresh.path, os.O_RDWR)
        os.close(self._handle)
        self._handle = handle
        with self._lock:
            self._segments = [*self._segments, fresh]

    def _begin(self, first: int) -> _Segment:
        path = segment_path(self.folder, first, _SUFFIX)
        begun = time.time_ns() // 1000
        mark = os.urandom(_MARK_SIZE)
        fields = struct.pack("<QQQ", _FORMAT, first, begun) + mark
        # under its name only when it is whole: an empty file among segments would be damage
        with replacing(path) as file:
            file.write(_MAGIC + struct.pack("<I", zlib.crc32(fields)) + fields)
        return _Segment(path, first, begun, mark)

    def _leave_old_format(self) -> None:
        """Begin a segment with a mark behind one without; in place of it where it has no events."""
        try:
            fresh = self._begin(self.next)
        except StorageError as error:
            _log.warning("%s: a segment could not be begun, the old one grows: %s", self.folder, error)
            return
        if self.next == self._segments[-1].first:
            self._segments.pop()
        self._segments.append(fresh)

    def retain(self, now: float | None = None) -> int:
        """Remove segments that are too old, or too many; returns how many went."""
        moment = int((time.time() if now is None else now) * 1_000_000)
        gone: list[_Segment] = []
        kept = list(self._segments)
        total = self.bytes
        while len(kept) > 1:
            # a segment ends when the next one begins
            old = kept[1].begun < moment - int(self.keep_seconds * 1_000_000)
            if not old and total <= self.keep_bytes:
                break
            total -= kept[0].end
            gone.append(kept.pop(0))
        with self._lock:
            self._segments = kept
        return remove_segments(self.folder, [segment.path for segment in gone])

    def close(self) -> None:
        """Write what waits, and say that the log ends cleanly."""
        try:
            if not self.failed:
                self.sync()
                last = self._segments[-1]
                write_document(self.folder / "clean.json", {"segment": last.path.name, "end": last.end})
        finally:
            os.close(self._handle)

    # reading

    def records(self, sequence: int, until: int | None = None) -> Iterator[EventRecord]:
        """The records from the one with this event on, up to what is on disk now (or `until`).

        DamagedRecordError where a record does not check. A segment that retention removes meanwhile ends
        the iteration; `first` says so.
        """
        with self._lock:
            segments = self._segments
            limit = self.durable if until is None else min(until, self.durable)
            ends = [segment.end for segment in segments]
        at = max(0, bisect.bisect_right([s.first for s in segments], sequence) - 1)
        for number in range(at, len(segments)):
            if segments[number].first >= limit:
                return
            after = segments[number + 1].first if number + 1 < len(segments) else limit
            yield from _read_segment(segments[number], ends[number], sequence, limit, after)

    # opening

    def _recover(self) -> int:
        """See that the last segment ends with a whole record; returns the next sequence number."""
        segment = self._segments[-1]
        raw = segment.path.read_bytes()
        at, sequence, synced = segment.start, segment.first, 0
        clean = read_document(self.folder / "clean.json")
        if clean is not None and clean.get("segment") == segment.path.name:
            synced = int(clean["end"])
        for place, head in segment.format.walk(raw, at, sequence):
            segment.note_place(sequence, place)
            synced = max(synced, head.synced)
            at = place + HEAD.size + head.length
            sequence = head.next
        if at < len(raw) or synced > at:
            synced = max([synced, *(head.synced for _, head in _records_beyond(segment, raw, at))])
            if at < synced:
                raise StorageError(
                    f"{segment.path}: the events from {sequence} on at byte {at} are damaged, although "
                    f"{synced} bytes had been on disk; restore the file from a copy"
                )
            self.cut = cut_torn_end(segment.path, at)
            _log.warning("%s: cut off %d bytes of events never acknowledged", segment.path, self.cut)
        segment.end = at
        segment.listed = True
        return sequence


def readable_records(log: EventLog, start: int) -> Iterator[EventRecord]:
    """The records from an event on; what is damaged is passed over."""
    while start < log.durable:
        try:
            yield from log.records(start)
            return
        except DamagedRecordError as error:
            start = error.after


def segments_of(folder: Path, mend: bool = False) -> list[_Segment]:
    """The segments of a log, in order; with `mend`, one goes that a crash left without its head."""
    segments = []
    paths = segment_paths(folder, _SUFFIX)
    for number, path in paths:
        try:
            start, size = _read_start(path), path.stat().st_size
        except FileNotFoundError:
            if mend:
                raise
            continue  # retention was faster
        if start is None:
            if size <= _START.size + _MARK_SIZE and path == paths[-1][1]:
                if mend:
                    path.unlink()  # a crash before its head was on disk: nothing was ever written to it
                continue
            raise StorageError(f"{path}: cannot be read: its head is damaged; restore it from a copy")
        first, begun, mark = start
        if number != first:
            raise StorageError(f"{path}: must begin with event {number}, got {first}")
        segment = _Segment(path, first, begun, mark)
        segment.end = size
        segments.append(segment)
    return segments


def _read_start(path: Path) -> tuple[int, int, bytes] | None:
    """The first event of a segment, when it was begun, and its mark; None where its head does not check."""
    with open(path, "rb") as file:
        raw = file.read(_START.size + _MARK_SIZE)
    if len(raw) < _START.size:
        return None
    magic, crc, version, first, begun = _START.unpack_from(raw)
    fields = raw[8 : _START.size] if version == 1 else raw[8:]
    if magic != _MAGIC or zlib.crc32(fields) != crc:
        return None
    if version not in (1, _FORMAT):
        raise StorageError(f"{path}: an event log of format 1 or {_FORMAT} is read, got {version}")
    return first, begun, OLD_MARK if version == 1 else raw[_START.size :]


def _records_beyond(segment: _Segment, raw: bytes, at: int) -> Iterator[tuple[int, RecordHead]]:
    """Places and heads of the whole records behind a bad one, which stands where the last good one ends.

    What looks like one must at least say what may be true: no record knows of more bytes on disk than are
    before it. Those of version 0.4.0 have no mark that would tell them from what was published.
    """
    bad = read_record_head(raw, at, segment.mark)
    first = segment.first if bad is None else bad.sequence
    return segment.format.beyond(raw, at, lambda found, head: head.sequence > first and head.synced <= found)


def _read_segment(
    segment: _Segment, end: int, sequence: int, limit: int, after: int
) -> Iterator[EventRecord]:
    """The records of one segment from an event on; `after` is the number that follows the segment."""
    try:
        handle = os.open(segment.path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        at = segment.place(sequence)
        raw, base = b"", at
        while at < end:
            head = read_record_head(raw, at - base, segment.mark)
            need = HEAD.size if head is None else HEAD.size + head.length
            if at - base + need > len(raw):
                raw, base = os.pread(handle, min(max(_CHUNK, need), end - at), at), at
                head = read_record_head(raw, 0, segment.mark)
                if head is not None and HEAD.size + head.length > len(raw):
                    raw = os.pread(handle, HEAD.size + head.length, at)
            record = _checked(segment, head, raw, at, base)
            if record is None:
                found, follows = _after_damage(segment, at, end, after)
                if follows <= sequence:
                    at = found
                    continue
                raise DamagedRecordError(f"{segment.path}: the record at byte {at} is damaged", follows)
            if record.head.sequence >= limit:
                return
            if not segment.listed:
                segment.note_place(record.head.sequence, at)
            at += HEAD.size + record.head.length
            if record.head.next > sequence:
                if not record.whole:
                    raise DamagedRecordError(
                        f"{segment.path}: events {record.head.sequence} to {record.head.next - 1} damaged",
                        record.head.next,
                    )
                yield record
        segment.listed = segment.listed or end == segment.end
    finally:
        os.close(handle)


def _checked(
    segment: _Segment, head: RecordHead | None, raw: bytes, at: int, base: int
) -> EventRecord | None:
    if head is None or head.sequence < segment.first:
        return None
    start = at - base + HEAD.size
    return EventRecord(head, memoryview(raw)[start : start + head.length])


def _after_damage(segment: _Segment, at: int, end: int, after: int) -> tuple[int, int]:
    """Place and sequence number of the first record behind a damaged head."""
    with open(segment.path, "rb") as file:
        raw = file.read(end)
    for found, head in _records_beyond(segment, raw, at):
        return found, head.sequence
    return end, after


# A record of the event log: the events of one request, as they were published and as codes. Little-endian:
#
#     0-3      the first half of the segment's mark (event_log.py)
#     4-7      CRC-32 of bytes 8-63, begun with the other half
#     8-15     sequence number of its first event; the others follow without a gap
#     16-23    time of the append, microseconds since 1970 UTC
#     24-31    pin: the version of the store that its events are matched against
#     32-39    how many bytes of this segment were on disk when the record was written
#     40-43    number of events
#     44-47    kind of the body: 0 JSON texts, 1 an Arrow stream; 256 more where events have several columns,
#              512 more where they are states of objects
#     48-51    number of int64 in codes, owners and links
#     52-55    length of the note
#     56-59    length of the body
#     60-63    CRC-32 of the payload
#
#   payload  type              meaning
#   owners   int64[1 + c]      the number of columns and the event of each; only where events have several
#   codes    int64[d * c]      attribute after attribute, as an index of the pin's version sees them, with the
#                              hidden ones (types/derived.py), which are always in the store's order
#   links    int64[(3 + d) n]  objects, previous and before (objects.py); only where there is an object key
#   starts   uint32[n + 1]     kind 0: where the text of each event begins in the body
#   body     bytes             the texts one after the other, or the stream
#   note     bytes             JSON: the publisher, the idempotency key, what was rejected; may be empty
#   (zeros up to a multiple of 8)
#
# The codes are those of the pin's version. A word that no subscription of that version names has the unknown
# code, and is looked up never again: a later subscription does not match an earlier event. So a replay reads
# numbers alone, and parses no text; the body is for those who receive the event.
#
# A body may have anything in it, also the bytes of a record that was never written. So nothing in a segment
# counts as a record only because it looks like one: it must also bear the segment's mark, which is random and
# which no publisher sees. Records of version 0.4.0 have no such mark: theirs is `OLD_MARK`.

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
    def number(self) -> int:
        """The sequence number of its first event."""
        return self.sequence

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
