"""The event log: order, sums, torn tails, damage, retention."""

import os
import random
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest

from rangecast.broker.event_log import (
    OLD_MARK,
    DamagedRecordError,
    EventLog,
    PublishedBody,
    RecordNote,
    joined_strings,
    pack_record,
    readable_records,
)
from rangecast.errors import StorageError

pytestmark = pytest.mark.without_kernels


def texts(*numbers):
    return PublishedBody(joined_strings([b'{"n":%d}' % number for number in numbers]))


def codes(*numbers):
    return np.array([numbers], np.int64)


def json_of(record, *rows):
    return record.json(np.array(rows)).pieces()


def filled(folder, batches=10, **options):
    log = EventLog(folder, **options)
    for k in range(batches):
        log.append(codes(2 * k, 2 * k + 1), texts(2 * k, 2 * k + 1), pin=k)
        log.sync()
    return log


def read(log, sequence=1):
    return [
        (record.head.sequence + row, record.codes[0, row].item(), json_of(record, row)[0], record.head.pin)
        for record in log.records(sequence)
        for row in range(record.head.n)
    ]


def last_segment(folder):
    return max(folder.glob("*.events"))


def test_what_was_appended_is_read_in_order(tmp_path):
    log = filled(tmp_path)
    assert read(log) == [(n + 1, n, b'{"n":%d}' % n, n // 2) for n in range(20)]
    assert log.first == 1
    assert log.next == log.durable == 21
    log.close()
    again = EventLog(tmp_path)
    assert read(again) == [(n + 1, n, b'{"n":%d}' % n, n // 2) for n in range(20)]
    assert again.append(codes(7), texts(7), pin=3) == 21
    again.sync()
    # a record is given whole where the sequence number is inside of it
    assert [row[0] for row in read(again, 20)] == [19, 20, 21]
    again.close()


def test_a_reader_from_an_earlier_segment_passes_over_nothing(tmp_path, monkeypatch):
    # a table of places with more than one entry in every segment
    monkeypatch.setattr("rangecast.broker.event_log._STRIDE", 100)
    log = filled(tmp_path, 200, segment_bytes=4_000)
    assert len(list(tmp_path.glob("*.events"))) > 3
    for start in (1, 2, 150, 399):
        assert [row[0] for row in read(log, start)][-1] == 400
        assert len({row[0] for row in read(log, start)}) >= 401 - start
    log.close()
    again = EventLog(tmp_path)
    assert [row[0] for row in read(again)] == list(range(1, 401))
    again.close()


def test_nothing_is_seen_before_it_is_on_disk(tmp_path):
    log = filled(tmp_path, 1)
    log.append(codes(5), texts(5), pin=0)
    assert log.next == 4
    assert log.durable == 3
    assert len(read(log)) == 2
    log.sync()
    assert len(read(log)) == 3
    log.close()


def test_notes_and_arrow_tables(tmp_path):
    log = EventLog(tmp_path)
    table = pa.table({"n": [1, 2, None], "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC"))})
    note = RecordNote(source="feed", key="k1", rejected=[(3, "wrong")])
    log.append(codes(1, 2, 3), PublishedBody(table=table), 4, note)
    log.sync()
    (record,) = log.records(1)
    assert record.note == note
    assert json_of(record, 2, 0) == [
        b'{"at":"1970-01-01T00:00:00.000002Z"}',
        b'{"n":1,"at":"1970-01-01T00:00:00Z"}',
    ]
    log.close()


def test_segments_roll_and_retention_takes_the_oldest(tmp_path):
    log = filled(tmp_path, 50, segment_bytes=1_000)
    assert log.n_segments > 4
    assert [row[0] for row in read(log)] == list(range(1, 101))
    log.keep_bytes = 2_500
    assert log.retain() > 0
    assert log.first > 1
    assert log.bytes <= 2_500
    assert [row[0] for row in read(log, log.first)] == list(range(log.first, 101))
    log.keep_seconds = 10
    assert log.retain(now=10**10) == log.n_segments - 1 or log.n_segments == 1
    assert log.n_segments == 1
    log.close()
    again = EventLog(tmp_path)
    assert again.next == 101
    assert again.first == log.first
    again.close()


@pytest.mark.parametrize("cut", range(1, 140, 7))
def test_a_torn_tail_is_cut_at_the_last_whole_record(tmp_path, cut):
    log = filled(tmp_path, 5)
    os.close(log._handle)  # as a crash does: nothing is said of the end
    path = last_segment(tmp_path)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.truncate(size - cut)
    again = EventLog(tmp_path)
    rows = read(again)
    assert rows == read(again)[: len(rows)]
    assert again.cut > 0 or len(rows) in (8, 10)
    # the records of one sync go whole or stay whole, and the next event takes up the number
    assert len(rows) in (6, 8)
    assert again.next == len(rows) + 1
    assert again.append(codes(9), texts(9), pin=9) == len(rows) + 1
    again.sync()
    assert len(read(again)) == len(rows) + 1
    again.close()


def test_holes_in_what_was_never_acknowledged_are_cut(tmp_path):
    log = filled(tmp_path, 3)
    end = log._segments[-1].end
    for k in range(3):
        log.append(codes(k), texts(k), pin=9)
    log.sync()  # one write of three records: the crash below happens within it
    os.close(log._handle)
    with open(last_segment(tmp_path), "r+b") as file:
        file.seek(end + 20)
        file.write(b"\0" * 40)
    again = EventLog(tmp_path)
    assert len(read(again)) == 6
    assert again.cut > 0
    assert list(tmp_path.glob("*.torn-*"))
    again.close()


def test_damage_of_what_was_acknowledged_is_never_cut(tmp_path):
    log = filled(tmp_path, 5)
    os.close(log._handle)
    path = last_segment(tmp_path)
    with open(path, "r+b") as file:
        file.seek(60)
        file.write(b"\xff\xff")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="damaged, although"):
        EventLog(tmp_path)
    assert path.read_bytes() == before


def test_a_clean_end_is_remembered(tmp_path):
    filled(tmp_path, 2).close()
    path = last_segment(tmp_path)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 8)
    with pytest.raises(StorageError, match="damaged, although"):
        EventLog(tmp_path)


@pytest.mark.parametrize("where", [48, 118])
def test_damage_in_an_older_segment_names_what_follows(tmp_path, where):
    log = filled(tmp_path, 20, segment_bytes=500)
    log.close()
    oldest = min(tmp_path.glob("*.events"))
    with open(oldest, "r+b") as file:
        file.seek(where)
        file.write(b"\xff\xff\xff")
    again = EventLog(tmp_path)
    with pytest.raises(DamagedRecordError, match="damaged") as caught:
        read(again)
    assert caught.value.after == 3
    assert [row[0] for row in read(again, 3)] == list(range(3, 41))
    again.close()


def test_a_damaged_head_is_refused(tmp_path):
    filled(tmp_path, 3).close()
    with open(last_segment(tmp_path), "r+b") as file:
        file.write(b"x")
    with pytest.raises(StorageError, match="its head is damaged"):
        EventLog(tmp_path)


def test_a_segment_without_a_head_was_never_begun(tmp_path):
    filled(tmp_path, 3).close()
    (tmp_path / f"{7:020}.events").write_bytes(b"")
    log = EventLog(tmp_path)
    assert log.next == 7
    assert len(read(log)) == 6
    log.close()


def test_a_write_that_fails_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    log = filled(tmp_path, 2)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        assert log.append(codes(1), texts(1), pin=0) == 5
        with pytest.raises(StorageError, match="No space left on device"):
            log.sync()
    assert log.next == 5
    assert log.append(codes(1), texts(1), pin=0) == 5
    log.sync()
    assert [row[0] for row in read(log)] == [1, 2, 3, 4, 5]
    log.close()


def test_after_a_sync_that_failed_nothing_is_taken(tmp_path, monkeypatch):
    log = filled(tmp_path, 2)

    def refuse(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
        log.append(codes(1), texts(1), pin=0)
        with pytest.raises(StorageError, match="the disk refused to sync"):
            log.sync()
    with pytest.raises(StorageError, match="nothing can be published"):
        log.append(codes(1), texts(1), pin=0)
    log.close()


def old_log(folder, batches=3):
    """A log as version 0.4.0 wrote it: without a mark."""
    path = folder / f"{1:020}.events"
    fields = struct.pack("<QQQ", 1, 1, 0)
    raw = b"RCEL" + struct.pack("<I", zlib.crc32(fields)) + fields
    for k in range(batches):
        raw += b"".join(
            pack_record(2 * k + 1, 0, k, len(raw), codes(2 * k, 2 * k + 1), texts(2 * k, 2 * k + 1))
        )
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("batches", [0, 3])
def test_a_log_of_an_older_version_is_read_and_goes_on_in_a_marked_segment(tmp_path, batches):
    path = old_log(tmp_path, batches)
    before = path.read_bytes()
    log = EventLog(tmp_path)
    assert log.next == 2 * batches + 1
    assert [row[0] for row in read(log)] == list(range(1, 2 * batches + 1))
    assert log.append(codes(9), texts(9), pin=9) == 2 * batches + 1
    log.sync()
    log.close()
    assert path.read_bytes() == before or not batches
    assert len(list(tmp_path.glob("*.events"))) == (2 if batches else 1)
    again = EventLog(tmp_path)
    assert [row[0] for row in read(again)] == list(range(1, 2 * batches + 2))
    assert len(list(tmp_path.glob("*.events"))) == (2 if batches else 1)
    again.close()


def test_an_old_log_on_a_full_disk_goes_on_as_it_is(tmp_path, monkeypatch):
    old_log(tmp_path)

    def full(_):
        raise StorageError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("rangecast.broker.event_log.replacing", full)
        log = EventLog(tmp_path)
    log.append(codes(9), texts(9), pin=9)
    log.sync()
    log.close()
    again = EventLog(tmp_path)
    assert [row[0] for row in read(again)] == list(range(1, 8))
    again.close()


def forged(sequence, synced, mark=OLD_MARK):
    """The bytes of a record that says of itself what somebody would like."""
    return b"".join(pack_record(sequence, 0, 0, synced, codes(1), texts(1), mark=mark))


def binary(*values):
    return PublishedBody(table=pa.table({"blob": pa.array(values, pa.binary())}))


@pytest.mark.parametrize("torn", ["head", "payload"])
def test_a_record_that_was_published_is_none(tmp_path, torn):
    """The bytes of a record within an event, and the record of that event torn by a crash."""
    log = filled(tmp_path, 3)
    end = log._segments[-1].end
    blobs = [forged(1_000_000, synced) for synced in (2**40, end + 1, end + 100)]
    log.append(codes(1, 2, 3), binary(*blobs), pin=9)
    log.append(codes(4), texts(4), pin=9)
    log.sync()
    os.close(log._handle)
    with open(last_segment(tmp_path), "r+b") as file:
        file.seek(end + (20 if torn == "head" else 70))
        file.write(b"\xff" * 8)
    again = EventLog(tmp_path)
    assert again.next == 7
    assert again.cut > 0
    assert [row[0] for row in read(again)] == list(range(1, 7))
    again.close()


def test_a_record_that_was_published_is_not_read_behind_damage(tmp_path):
    log = filled(tmp_path, 3)
    end = log._segments[-1].end
    log.append(codes(1), binary(forged(3, end)), pin=9)
    log.sync()
    log.append(codes(2), texts(2), pin=9)
    log.sync()
    with open(last_segment(tmp_path), "r+b") as file:
        file.seek(end + 20)
        file.write(b"\xff" * 8)
    with pytest.raises(DamagedRecordError) as caught:
        read(log)
    assert caught.value.after == 8
    assert [row[0] for row in read(log, 8)] == [8]
    log.close()


@pytest.mark.parametrize("seed", range(60))
def test_torn_ends_with_forged_records_against_a_model(tmp_path, seed):
    """Whatever was synced is there or is damage that is told of; nothing else is ever read."""
    draw = random.Random(seed)
    log = EventLog(tmp_path, segment_bytes=draw.choice([600, 4_000, 1 << 20]))
    synced, ends = [], []
    for tick in range(draw.randint(2, 12)):
        begin, fresh = (log._segments[-1].path, log._segments[-1].end), []
        for _ in range(draw.randint(1, 3)):
            mark = draw.choice([OLD_MARK, draw.randbytes(8)])
            blobs = [
                draw.choice([b"x", forged(draw.randint(1, 99), draw.randint(0, 9_000), mark)])
                for _ in range(draw.randint(1, 3))
            ]
            log.append(codes(*range(len(blobs))), binary(*blobs), pin=tick)
            fresh += blobs
        log.sync()
        synced.append(fresh)
        ends.append(begin)
    os.close(log._handle)
    # the last tick was never synced: any part of it may be on disk, in any mixture
    path, end = ends[-1]
    raw = path.read_bytes()
    tail = bytearray(raw[end:])
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(tail))
        size = draw.choice([1, 8, 64, 512])
        tail[at : at + size] = draw.choice([b"\0", b"\xff"]) * len(tail[at : at + size])
    if draw.random() < 0.4:
        del tail[draw.randrange(len(tail)) :]
    for later in tmp_path.glob("*.events"):
        if later.name > path.name:
            later.unlink()
    path.write_bytes(raw[:end] + tail)
    again = EventLog(tmp_path)
    found = [row.get("blob") for record in again.records(1) for row in blobs_of(record)]
    sure = [blob for tick in synced[:-1] for blob in tick]
    assert found[: len(sure)] == sure
    assert found[len(sure) :] == synced[-1][: len(found) - len(sure)]
    assert again.next == len(found) + 1
    assert again.append(codes(7), texts(7), pin=99) == len(found) + 1
    again.sync()
    again.close()
    # and a byte of what was synced: refused, or told of where it is read
    if sure and draw.random() < 0.5:
        return
    victim = min(tmp_path.glob("*.events"))
    raw = bytearray(victim.read_bytes())
    at = draw.randrange(40, len(raw))
    raw[at] ^= 0xFF
    victim.write_bytes(raw)
    try:
        damaged = EventLog(tmp_path)
    except StorageError:
        return
    numbers = []
    for record in readable_records(damaged, 1):
        numbers += range(record.head.sequence, record.head.next)
    assert numbers == sorted(set(numbers))
    assert len(numbers) < len(found) + 1
    damaged.close()


def blobs_of(record):
    start = record._body_start()
    with pa.ipc.open_stream(record._payload[start : start + record.head.body_length]) as reader:
        return reader.read_all().to_pylist()
