"""Files of rows: every good row is read, every other is rejected with its row, line and reason."""

import csv
import gzip
import io
import json
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.errors import EventError, OptionError, StorageError, SubscriptionError
from rangecast.loading import PAIR_WRITERS, OutputFile, RejectedRow, Rejects, format_of, open_rows
from rangecast.loading import files as lines
from rangecast.loading.rejected import REJECTED

pytestmark = pytest.mark.without_kernels

# Letters that matter to CSV, and some that do not; no carriage returns, which end rows for Arrow.
FIELD = st.text(alphabet='ab1 ,"\n\u2028é', max_size=6)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def batches_of(path, wanted=None, **options):
    with open_rows(path, wanted, **options) as source:
        return list(source.batches())


def read(path, wanted=None, **options):
    """All rows of a file as dicts with row and line, and what was rejected."""
    rows, unread = [], []
    for batch in batches_of(path, wanted, **options):
        data = batch.data.to_pylist() if isinstance(batch.data, pa.Table) else batch.data
        numbers = [None] * len(batch) if batch.lines is None else batch.lines.tolist()
        raws = [batch.raw(i) for i in range(len(batch))]
        rows += zip(batch.rows.tolist(), numbers, data, raws, strict=True)
        unread += batch.unread
    return rows, unread


def values(rows):
    return [list(data.values()) for _, _, data, _ in rows]


@pytest.fixture(params=[16, 64, 8 << 20], ids=lambda n: f"chunks of {n}")
def block(request, monkeypatch):
    """Blocks so small that rows fall on their borders, too."""
    monkeypatch.setattr(lines, "CHUNK", request.param)
    return request.param


class TestCsv:
    def test_ragged_rows_are_set_aside_with_row_line_and_text(self, tmp_path, block):
        path = write(tmp_path / "a.csv", "a,b,c\n1,2,3\n4,5\n\n6,7,8,9\n1,1,1\n")
        rows, unread = read(path)
        assert [(row, line) for row, line, _, _ in rows] == [(1, 2), (4, 6)]
        assert values(rows) == [["1", "2", "3"], ["1", "1", "1"]]
        assert [tuple(u) for u in unread] == [
            (2, 3, "a row must have 3 fields, got 2", "4,5"),
            (3, 5, "a row must have 3 fields, got 4", "6,7,8,9"),
        ]

    def test_a_quote_that_is_never_closed_costs_its_own_line_only(self, tmp_path):
        path = write(tmp_path / "a.csv", 'a,b\n1,x\n2,"open\n3,y\n4,z\n')
        rows, unread = read(path)
        assert values(rows) == [["1", "x"], ["3", "y"], ["4", "z"]]
        assert [(u.row, u.line, u.reason) for u in unread] == [
            (2, 3, "a row must have 2 fields, got quotes out of place")
        ]

    def test_two_open_quotes_that_close_each_other_swallow_nothing(self, tmp_path):
        path = write(tmp_path / "a.csv", 'a,b,c\n1,"abc,3\n2,"abc,3\n4,5,6\n')
        rows, unread = read(path)
        assert values(rows) == [["4", "5", "6"]]
        assert [u.line for u in unread] == [2, 3]

    def test_a_value_may_span_lines(self, tmp_path, block):
        path = write(tmp_path / "a.csv", 'a,b\n1,"x\n\ny"\n2,z\n')
        rows, unread = read(path)
        assert values(rows) == [["1", "x\n\ny"], ["2", "z"]]
        assert [(row, line) for row, line, _, _ in rows] == [(1, 2), (2, 5)]
        assert rows[0][3] == '1,"x\n\ny"'
        assert not unread

    def test_lines_that_are_not_utf8_are_set_aside(self, tmp_path, block):
        path = write(tmp_path / "a.csv", b"a,b\n1,x\n2,\xff,3\n4,\xe9\n5,y\n")
        rows, unread = read(path)
        assert values(rows) == [["1", "x"], ["5", "y"]]
        assert [(u.row, u.line, u.reason) for u in unread] == [
            (2, 3, "a line must be UTF-8"),
            (3, 4, "a line must be UTF-8"),
        ]

    def test_an_empty_field_is_null_and_a_quoted_one_is_not(self, tmp_path):
        rows, _ = read(write(tmp_path / "a.csv", 'a,b\n,""\n'))
        assert values(rows) == [[None, ""]]

    @pytest.mark.parametrize("ending", ["\n", "\r\n"])
    def test_line_ends_and_byte_order_mark(self, tmp_path, ending, block):
        text = ending.join(["a,b", "1,2", "", "3", "4,5"])
        rows, unread = read(write(tmp_path / "a.csv", b"\xef\xbb\xbf" + text.encode()))
        assert values(rows) == [["1", "2"], ["4", "5"]]
        assert [(u.line, u.raw) for u in unread] == [(4, "3")]

    def test_only_wanted_columns_are_kept(self, tmp_path):
        rows, unread = read(write(tmp_path / "a.csv", 'a,b,c\n1,"x\ny",3\n4,5\n'), {"c": None})
        assert [data for _, _, data, _ in rows] == [{"c": "3"}]
        assert [(u.row, u.line) for u in unread] == [(2, 4)]

    def test_header_alone(self, tmp_path):
        with open_rows(write(tmp_path / "a.csv", "a, b\n")) as source:
            assert source.names == ["a", "b"]
            assert sum(len(batch) for batch in source.batches()) == 0

    def test_compressed(self, tmp_path):
        rows, _ = read(write(tmp_path / "a.csv.gz", gzip.compress(b"a\n1\n2\n")))
        assert values(rows) == [["1"], ["2"]]

    @given(st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=12), st.sampled_from([8, 40, 8 << 20]))
    def test_reads_what_the_csv_module_wrote(self, tmp_path_factory, table, size):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("a", "b", "c"), *table])
        path = write(tmp_path_factory.mktemp("csv") / "a.csv", text.getvalue())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines, "CHUNK", size)
            rows, unread = read(path)
        assert not unread
        assert [tuple(row) for row in values(rows)] == table

    @given(st.data(), st.sampled_from([8, 40, 8 << 20]))
    def test_good_rows_survive_bad_ones(self, tmp_path_factory, data, size):
        kinds = data.draw(
            st.lists(st.sampled_from(["good", "quoted", "short", "long", "foreign"]), max_size=15)
        )
        made = {
            "good": b"%d,x",
            "quoted": b'%d,"x"',
            "short": b"%d",
            "long": b"%d,x,y",
            "foreign": b"%d,\xff",
        }
        body = b"".join(made[kind] % i + b"\n" for i, kind in enumerate(kinds))
        path = write(tmp_path_factory.mktemp("csv") / "a.csv", b"a,b\n" + body)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines, "CHUNK", size)
            rows, unread = read(path)
        good = [i for i, kind in enumerate(kinds) if kind in ("good", "quoted")]
        assert values(rows) == [[str(i), "x"] for i in good]
        assert [(row, line) for row, line, _, _ in rows] == [(i + 1, i + 2) for i in good]
        bad = [i for i in range(len(kinds)) if i not in good]
        assert [(u.row, u.line) for u in unread] == [(i + 1, i + 2) for i in bad]

    def test_no_header(self, tmp_path):
        with pytest.raises(StorageError, match=r"a\.csv: the first line must be a header"):
            open_rows(write(tmp_path / "a.csv", ""))

    def test_header_with_a_name_twice(self, tmp_path):
        with pytest.raises(StorageError, match="columns of the header must differ, got twice: a"):
            open_rows(write(tmp_path / "a.csv", "a,b,a\n"))

    def test_header_that_cannot_be_read(self, tmp_path):
        with pytest.raises(StorageError, match=r"a\.csv: the header cannot be read: new-line character seen"):
            open_rows(write(tmp_path / "a.csv", b"a,b\rc,d\n1,2\n"))

    def test_header_that_is_not_utf8(self, tmp_path):
        with pytest.raises(StorageError, match="line 1 must be UTF-8"):
            open_rows(write(tmp_path / "a.csv", b"\xff\n"))

    def test_a_line_without_end(self, tmp_path, monkeypatch):
        monkeypatch.setattr(lines, "CHUNK", 100)
        monkeypatch.setattr(lines, "LONGEST_LINE", 1000)
        path = write(tmp_path / "a.csv", "a\n1\n" + "x" * 2000)
        with pytest.raises(StorageError, match="line 3 must not be longer than"):
            read(path)


WANTED = {"id": None, "n": pa.int64(), "x": pa.float64(), "s": pa.string()}


class TestJson:
    def test_broken_lines_are_set_aside_one_by_one(self, tmp_path, block):
        path = write(
            tmp_path / "a.jsonl", b'{"n": 1}\n{"n": \n\n[1]\n5\n{"s": "\xff"}\n{"s": "\\ud800"}\n{"n": 2}\n'
        )
        rows, unread = read(path, WANTED)
        assert [(row, line) for row, line, _, _ in rows] == [(1, 1), (7, 8)]
        assert [data["n"] for _, _, data, _ in rows] == [1, 2]
        assert [(u.row, u.line) for u in unread] == [(2, 2), (3, 4), (4, 5), (5, 6), (6, 7)]
        reasons = [u.reason for u in unread]
        assert reasons[0].startswith("a line must be a JSON object: Expecting value at character")
        assert reasons[1:] == [
            "a line must be a JSON object, got [1]",
            "a line must be a JSON object, got 5",
            "a line must be UTF-8",
            "a line must be a JSON object: half of a surrogate pair in a string",
        ]
        assert unread[1].raw == "[1]"

    @pytest.mark.parametrize(
        "line", ['{"n": 1}{"n": 2}', '{"n": "1"}', '{"n": 1.0}', '{"n": [1]}', '{"n": 1, "n": 2}']
    )
    def test_what_arrow_reads_otherwise_is_read_line_by_line(self, tmp_path, line):
        rows, unread = read(write(tmp_path / "a.jsonl", f'{{"n": 7}}\n{line}\n'), WANTED)
        try:
            expected = [7, json.loads(line)["n"]]
        except ValueError:
            expected = [7]
        assert [data["n"] for _, _, data, _ in rows] == expected
        assert len(rows) + len(unread) == 2

    def test_an_object_over_two_lines_is_two_bad_lines(self, tmp_path):
        rows, unread = read(write(tmp_path / "a.jsonl", '{"n":\n1}\n{"n": 2}{"n": 3}\n'), WANTED)
        assert not rows
        assert [u.line for u in unread] == [1, 2, 3]

    def test_both_ways_give_the_same_values(self, tmp_path, block):
        objects = [
            {"id": 1, "n": 5, "x": 0.1, "s": "a"},
            {"id": 2, "n": None, "x": 7, "s": "é\u2028"},
            {"id": 3, "x": 1e25, "more": {"deep": [1]}},
        ]
        text = "".join(json.dumps(o) + "\n" for o in objects).replace("1e+25", "1" + "0" * 25)
        fast, _ = read(write(tmp_path / "a.jsonl", text), WANTED)
        careful, _ = read(write(tmp_path / "b.jsonl", text + "broken\n"), WANTED)
        wanted = [{name: o.get(name) for name in WANTED} for o in objects]
        for rows in (fast, careful):
            assert [{name: data.get(name) for name in WANTED} for _, _, data, _ in rows] == wanted

    def test_ids_are_settled_by_the_first_object(self, tmp_path):
        (batch,) = batches_of(write(tmp_path / "a.jsonl", '{"id": 1}\n{"id": 2}\n'), WANTED)
        assert batch.data.schema.field("id").type == pa.int64()
        (batch,) = batches_of(write(tmp_path / "b.jsonl", '{"id": "a"}\n'), WANTED)
        assert batch.data.schema.field("id").type == pa.string()
        assert batch.columns == ["id"]

    def test_empty(self, tmp_path):
        assert read(write(tmp_path / "a.jsonl", ""), WANTED) == ([], [])
        assert read(write(tmp_path / "b.jsonl", "\n\n"), WANTED) == ([], [])


class TestParquet:
    def test_batches_and_row_numbers(self, tmp_path):
        pq.write_table(pa.table({"a": range(5), "b": list("vwxyz")}), tmp_path / "a.parquet")
        batches = batches_of(str(tmp_path / "a.parquet"), {"b": None}, batch=2)
        assert [batch.rows.tolist() for batch in batches] == [[1, 2], [3, 4], [5]]
        assert batches[1].raw(1) == '{"b": "y"}'
        assert batches[0].lines is None

    def test_text_that_is_not_unicode(self, tmp_path):
        binary = pa.array([b"5", b"\xee\x80", b"7"])
        text = pa.StringArray.from_buffers(3, *binary.buffers()[1:])
        nested = pa.ListArray.from_arrays([0, 1, 2, 3], text)
        pq.write_table(pa.table({"price": text, "more": nested}), tmp_path / "a.parquet")
        schema = rc.Schema(rc.Int("price"))
        index = rc.open_index("scan", schema)
        index.insert(rc.Subscriptions.parse(schema, {1: "price > 1"}))
        done = rc.match_file(index, tmp_path / "a.parquet")
        assert (done.n_events, done.n_pairs, done.n_rejected) == (2, 2, 1)
        assert "\ufffd" in done.rejected[0].raw

    def test_not_a_parquet_file(self, tmp_path):
        with pytest.raises(StorageError, match=r"a\.parquet: cannot be read"):
            open_rows(write(tmp_path / "a.parquet", "id,price\n"))

    def test_damaged(self, tmp_path):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"a": np.random.default_rng(1).random(10_000)}), path)
        content = bytearray(path.read_bytes())
        content[4:40_000] = bytes(39_996)
        path.write_bytes(content)
        with pytest.raises(StorageError, match="damaged after row 0"):
            read(str(path))


def test_formats():
    assert [format_of(name) for name in ("a.CSV", "a.ndjson", "x/a.parquet.zst", "a.b.pq")] == [
        "csv",
        "jsonl",
        "parquet",
        "parquet",
    ]
    with pytest.raises(OptionError, match=r"a\.xlsx: the format must be given by the suffix .*, got 'xlsx'"):
        format_of("a.xlsx")
    with pytest.raises(OptionError, match="got 'none'"):
        format_of("-")
    with pytest.raises(OptionError, match="Parquet cannot be read from a pipe"):
        open_rows("-", format="parquet", stream=io.BytesIO())


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_file_that_is_not_there(tmp_path, suffix):
    with pytest.raises(StorageError, match="cannot be read: No such file"):
        open_rows(str(tmp_path / f"none.{suffix}"))


def test_a_damaged_compression(tmp_path):
    with pytest.raises(StorageError, match=r"a\.csv\.gz: cannot be read"):
        open_rows(write(tmp_path / "a.csv.gz", "a,b\n1,2\n"))


PAIRS = pa.table({"event_id": ["a", 'b"', "a"], "subscription_id": pa.array([1, 2, 3], pa.int64())})


@pytest.mark.parametrize("form", PAIR_WRITERS)
@pytest.mark.parametrize("coded", [False, True], ids=["strings", "dictionary"])
def test_pairs_come_back(tmp_path, form, coded):
    path = tmp_path / f"pairs.{form}"
    file = OutputFile(path)
    writer = PAIR_WRITERS[form](file.stream)
    table = PAIRS.set_column(0, "event_id", PAIRS["event_id"].dictionary_encode()) if coded else PAIRS
    writer.write(table)
    writer.write(table.slice(0, 0))
    writer.write(table.slice(1, 1))
    writer.close(table.schema)
    file.keep()
    rows, unread = read(str(path))
    expected = [["a", 1], ['b"', 2], ["a", 3], ['b"', 2]]
    assert [[event, int(subscription)] for event, subscription in values(rows)] == expected
    assert not unread


def test_no_pairs_make_an_empty_file(tmp_path):
    schema = pa.schema(
        [("event_id", pa.int64()), ("subscription_id", pa.dictionary(pa.int32(), pa.large_string()))]
    )
    for form, kind in PAIR_WRITERS.items():
        with open(tmp_path / f"pairs.{form}", "wb") as stream:
            kind(stream).close(schema)
    assert (tmp_path / "pairs.csv").read_text() == "event_id,subscription_id\n"
    assert (tmp_path / "pairs.jsonl").read_text() == ""
    table = pq.read_table(tmp_path / "pairs.parquet")
    assert (table.num_rows, table.schema.field("subscription_id").type) == (0, pa.large_string())


def test_output_is_seen_whole_or_not_at_all(tmp_path):
    path = write(tmp_path / "out.txt", "before")
    file = OutputFile(path)
    file.stream.write(b"after")
    file.drop()
    assert (tmp_path / "out.txt").read_text() == "before"
    file = OutputFile(path)
    file.stream.write(b"after")
    file.keep()
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]
    assert (tmp_path / "out.txt").read_text() == "after"
    with pytest.raises(StorageError, match="cannot be written: No such file"):
        OutputFile(tmp_path / "none" / "out.txt")


class TestRejects:
    ROW = RejectedRow("events.csv", 3, 4, None, "because\n  it is", 'a,"b"')

    def test_the_side_file_lists_rows_and_reasons(self, tmp_path):
        rejects = Rejects(tmp_path / "rejects.csv")
        rejects.add(self.ROW)
        rejects.add(RejectedRow("subs.parquet", 1_000, None, "x", "so", ""))
        rejects.close(finished=True)
        with open(tmp_path / "rejects.csv", newline="") as file:
            assert list(csv.reader(file)) == [
                ["source", "row", "line", "id", "reason", "raw"],
                ["events.csv", "3", "4", "", "because", 'a,"b"'],
                ["subs.parquet", "1000", "", "x", "so", ""],
            ]
        assert [str(row) for row in rejects.first] == [
            "events.csv row 3 (line 4): because",
            "subs.parquet row 1,000, id x: so",
        ]
        assert (len(rejects), rejects.counts) == (2, {"events.csv": 1, "subs.parquet": 1})

    def test_no_rejects_leave_no_file(self, tmp_path):
        write(tmp_path / "rejects.csv", "of an earlier run")
        Rejects(tmp_path / "rejects.csv").close(finished=True)
        assert not list(tmp_path.iterdir())

    def test_a_failed_run_leaves_no_file(self, tmp_path):
        rejects = Rejects(tmp_path / "rejects.csv")
        rejects.add(self.ROW)
        rejects.close(finished=False)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("error", [EventError, SubscriptionError])
    def test_strict(self, error):
        with pytest.raises(error, match=r"events.csv row 3 \(line 4\): because \(the first bad row stops"):
            Rejects(strict=True).add(self.ROW, error)

    def test_without_a_file_all_are_kept(self):
        rejects = Rejects()
        for row in range(30):
            rejects.add(self.ROW._replace(row=row))
        table = rejects.to_arrow()
        assert table.schema.equals(REJECTED)
        assert table["row"].to_pylist() == list(range(30))
        assert set(table["reason"].to_pylist()) == {"because"}
        assert str(RejectedRow(None, None, None, None, "so", "")) == "the input: so"


def test_a_parquet_file_with_a_column_name_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "named.parquet"
    pq.write_table(pa.table({"price": [1], "caf\u00e9": [2]}), path)
    path.write_bytes(path.read_bytes().replace("caf\u00e9".encode(), b"caf\xe9x"))
    index = rc.open_index("scan", rc.Schema(rc.Int("price")))
    with pytest.raises(rc.StorageError, match=r"named.parquet: cannot be read"):
        rc.match_file(index, path)


def test_a_batch_is_read_while_the_one_before_it_is_matched(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK", 64)
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f'{{"id": {k}, "price": {k if k % 9 else "true"}}}\n' for k in range(40)))
    schema = rc.Schema(rc.Int("price"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "price > 20", 2: "price < 30"}))
    readers = set()
    chunks = lines.LineReader.chunks

    def watched(self, quoted):
        for chunk in chunks(self, quoted):
            readers.add(threading.current_thread())
            yield chunk

    monkeypatch.setattr(lines.LineReader, "chunks", watched)
    alone = rc.match_file(index, path)
    assert readers == {threading.current_thread()}
    both = rc.match_file(index, path, threads=2)
    assert len(readers) == 2
    assert both.pairs == alone.pairs
    assert both.rejected == alone.rejected
    assert len(alone.rejected) == 5
    with pytest.raises(EventError, match="is an int, got the boolean True"):
        rc.match_file(index, path, threads=2, strict=True)
    assert [thread for thread in readers if thread.is_alive()] == [threading.current_thread()]


def test_a_parquet_file_that_contradicts_itself_about_a_column_is_refused(tmp_path):
    # PyArrow ends the process when it is asked about such a column
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"price": [7, 8]}), path)
    raw = path.read_bytes()
    optional, required = (bytes([0x25, repetition, 0x18, 5]) + b"price" for repetition in (2, 0))
    assert raw.count(optional) == 1
    path.write_bytes(raw.replace(optional, required))
    # as PyArrow 26 and 18 say it
    why = "(.*histogram size mismatch|Unexpected end of stream)"
    with pytest.raises(StorageError, match=rf"events.parquet: damaged after row 0: {why}"):
        list(open_rows(str(path)).batches())


def test_a_row_that_seems_to_go_on_behind_the_file_is_rejected(tmp_path):
    """A carriage return alone ends a row for Arrow's reader. Such rows share a line, so that a later one
    seemed to end behind the last line."""
    path = tmp_path / "events.csv"
    path.write_bytes(b'"price",\n""x\r},"\n"\r",""')
    schema = rc.Schema(rc.Int("price"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "price > 0"}))
    report = rc.match_file(index, path)
    assert report.n_events == 0
    assert [row.line for row in report.rejected] == [2, 3, 3]
    assert all(row.reason for row in report.rejected)
