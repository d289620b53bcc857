"""Lines with sums: what a crash tears is cut off, what is damaged is refused, at every byte and length."""

import json
import os
import random
import zlib

import pytest

import rangecast as rc
from rangecast.durable.documents import seal, unseal
from rangecast.durable.lines import Journal, LineLog
from rangecast.store.commits import FolderCommits

pytestmark = pytest.mark.without_kernels

SECTOR = 512


def log_of(path):
    return LineLog(path, unseal)


def contents(log):
    return [line.content for line in log.read()]


def filled(path, n=3):
    log = log_of(path)
    for k in range(n):
        log.append([seal({"batch": k, "note": "x" * 40})])
    return log


def test_lines_are_read_on_from_where_one_stopped(tmp_path):
    log, reader = filled(tmp_path / "log"), log_of(tmp_path / "log")
    assert [line["batch"] for line in contents(reader)] == [0, 1, 2]
    log.append([seal({"batch": 3}), seal({"batch": 4})])
    assert contents(reader) == [{"batch": 3}, {"batch": 4}]
    assert contents(reader) == []
    assert reader.end == log.end == os.path.getsize(tmp_path / "log")
    assert contents(log_of(tmp_path / "none")) == []


def test_a_torn_end_is_cut_by_the_next_writer_alone(tmp_path):
    path = tmp_path / "log"
    filled(path)
    whole = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        n = sum(end <= length for end in ends)
        log = log_of(path)
        assert len(contents(log)) == n
        assert path.stat().st_size == length
        log.append([seal({"batch": "next"})])
        assert [line["batch"] for line in contents(log_of(path))] == [*range(n), "next"]


def test_no_bit_of_a_line_is_taken_for_a_torn_end(tmp_path):
    path = tmp_path / "log"
    filled(path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            for use in (lambda: log_of(path).read(), lambda: log_of(path).append([])):
                with pytest.raises(rc.StorageError, match=r"log.*: cannot be read"):
                    use()
            assert path.read_bytes() == damaged


def test_a_line_of_which_a_sector_never_came_to_disk_is_torn(tmp_path):
    """The newline at its end may be there before what is in front of it."""
    path = tmp_path / "log"
    for lead in range(SECTOR - 90, SECTOR + 10, 7):
        log = log_of(path)
        log.rewrite([seal({"batch": 0, "note": "x" * (lead - 50)})])
        start = log.end
        log.append([seal({"batch": 1, "note": "y" * 700})])
        whole = path.read_bytes()
        sectors = range(start // SECTOR, -(-len(whole) // SECTOR))
        for lost in sectors[:-1]:
            torn = bytearray(whole)
            for at in range(max(start, lost * SECTOR), min(len(whole), (lost + 1) * SECTOR)):
                torn[at] = 0
            path.write_bytes(torn)
            again = log_of(path)
            assert [line["batch"] for line in contents(again)] == [0]
            again.append([seal({"batch": 2})])
            assert [line["batch"] for line in contents(log_of(path))] == [0, 2]
            # whoever wrote the next line had this one on disk
            path.write_bytes(bytes(torn) + seal({"batch": 2}) + b"\n")
            with pytest.raises(rc.StorageError, match="cannot be read"):
                log_of(path).read()


@pytest.mark.parametrize("longest", [30, 3_000])
def test_the_end_of_a_file_is_read_alone(tmp_path, longest):
    draw = random.Random(longest)
    path = tmp_path / "log"
    log = log_of(path)
    for k in range(40):
        log.append([seal({"batch": k, "note": "x" * draw.randrange(longest)})])
    size = path.stat().st_size
    for most in (1, 20, 100, 1_000, 10**6):
        for torn in (b"", b'{"bat'):
            path.write_bytes(path.read_bytes()[:size] + torn)
            reader = log_of(path)
            reader.skip(most)
            found = [line["batch"] for line in contents(reader)]
            assert found, "the last line is always there"
            assert found == list(range(40))[-len(found) :]
            assert most > size or len(found) < 40
    empty = log_of(tmp_path / "none")
    empty.skip(100)
    assert empty.end == 0


def test_two_writers_of_commits_take_nothing_from_each_other(tmp_path):
    folder = tmp_path / "_rangecast"
    folder.mkdir()
    one, other = FolderCommits(folder), FolderCommits(folder)
    stale = one._log()
    stale.read()
    other.add(0, {"batch": 0})
    stale.append([seal({"batch": 1})])
    assert [commit["batch"] for commit in one.read()] == [0, 1]


def test_a_journal_whose_last_line_is_damaged_is_refused(tmp_path):
    path = tmp_path / "cursors.journal"
    journal = Journal(path)
    for key in "ab":
        journal.put(key, 1)
        journal.sync()
    raw = bytearray(path.read_bytes())
    raw[-20] ^= 1
    path.write_bytes(raw)
    with pytest.raises(rc.StorageError, match=r"cursors.journal, byte \d+: cannot be read"):
        Journal(path)
    assert path.read_bytes() == raw


def test_files_of_before_are_read_and_go_on(tmp_path):
    """Written here as versions before 0.5 wrote them: half a line is at the end of each."""
    journal = tmp_path / "cursors.journal"
    lines = [seal({"key": key, "value": value}) for key, value in (("a", 1), ("b", 2), ("a", 3), ("b", None))]
    journal.write_bytes(b"\n".join(lines) + b"\n" + lines[0][:20])
    table = Journal(journal)
    assert dict(table.items()) == {"a": 3}
    table.put("c", 4)
    table.sync()
    assert journal.read_bytes() == b"\n".join([*lines, seal({"key": "c", "value": 4})]) + b"\n"
    commits = tmp_path / "commits.jsonl"
    commits.write_bytes(json.dumps({"batch": 0}).encode() + b"\n" + seal({"batch": 1}) + b"\n" + b'{"ba')
    assert FolderCommits(tmp_path).read() == [{"batch": 0}, {"batch": 1}], "the first is of before sums"
    assert FolderCommits(tmp_path).last() == 1
    FolderCommits(tmp_path).add(2, {"batch": 2})
    assert commits.read_bytes().endswith(seal({"batch": 1}) + b"\n" + seal({"batch": 2}) + b"\n")


def test_arrivals_of_before_are_read_and_go_on(tmp_path):
    arrivals = pytest.importorskip("rangecast.spark.source.arrivals")
    place, folder = tmp_path / "in", tmp_path / "log"
    place.mkdir()
    (place / "a").write_text("a")
    first = arrivals.Arrivals(folder, str(place))
    text = json.dumps(["/old", 3, 4]).encode()
    line = b"%08x %s\n" % (zlib.crc32(text), text)
    (folder / "files.log").write_bytes(line + line[:9])
    assert first.look() == 2
    assert [arrival.path for arrival in first.files(0, 2)] == ["/old", str(place / "a")]
    assert (folder / "files.log").read_bytes().startswith(line)
