"""JSON lines by columns: nested objects, and lines that are different among many that are not."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.loading import json as jsonl_files
from rangecast.loading.events import EventFile
from rangecast.loading.files import LineReader
from rangecast.loading.json import JsonLinesFile

pytestmark = pytest.mark.without_kernels

WANTED = {"price": pa.int64(), "user.country": pa.string(), "user.at.zone": pa.string()}


def read(path, wanted=WANTED):
    """The rows of a file as (row, line, values) and what was not read."""
    rows, unread = [], []
    with JsonLinesFile(str(path), wanted) as file:
        for batch in file.batches():
            columns = [list(_plain(batch.column(name))) for name in wanted]
            raw = [batch.raw(i) for i in range(len(batch))]
            rows += zip(batch.rows.tolist(), batch.lines.tolist(), *columns, raw, strict=True)
            unread += [(u.row, u.line, u.reason, u.raw) for u in batch.unread]
    return rows, unread


def _plain(column):
    return column.to_pylist() if isinstance(column, pa.ChunkedArray | pa.Array) else column


def line_by_line(path, wanted=WANTED):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JsonLinesFile, "_fast", lambda *_: None)
        patch.setattr(jsonl_files, "FEW_LINES", 10**9)
        return read(path, wanted)


LINES = st.sampled_from(
    [
        {"price": 1, "user": {"country": "DE", "at": {"zone": "CET"}}},
        {"price": 2, "user": {"country": "FR"}, "other": 5},
        {"price": 3, "user": None},
        {"price": 4},
        {"user": {"country": None}},
        {"price": 5, "user": {"country": "IT", "more": [1, 2]}},
    ]
).map(json.dumps)
ODD = st.sampled_from(
    [
        '{"price": "7"}',
        '{"price": 8.0}',
        '{"price": 9, "user": 5}',
        '{"price": 10, "user.country": "as a key"}',
        '{"price": 11, "user": {"country": {"deeper": 1}}}',
        '{"price": ',
        "[]",
        "",
        b'{"price": "\xff"}',
    ]
)


@given(st.lists(st.one_of(LINES, LINES, LINES, LINES, ODD), min_size=1, max_size=60))
def test_lines_are_read_in_columns_as_one_by_one(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "events.jsonl"
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_files, "FEW_LINES", 2)
        patch.setattr(jsonl_files, "PARTS", 4)
        assert read(path) == line_by_line(path)


def test_one_bad_line_makes_few_lines_slow(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    lines = [json.dumps({"price": k, "user": {"country": "DE"}}) for k in range(5_000)]
    lines[1_234] = "{"
    lines[4_321] = '{"price": 12.0, "user": {"country": "DE"}}'
    path.write_text("\n".join(lines))
    slowly = []
    careful = JsonLinesFile._careful

    def watched(self, chunk, seen):
        slowly.append(len(chunk.numbers))
        return careful(self, chunk, seen)

    monkeypatch.setattr(JsonLinesFile, "_careful", watched)
    rows, unread = read(path)
    assert len(rows) == 4_999
    assert [u[:2] for u in unread] == [(1_235, 1_235)]
    assert [row[0] for row in rows] == [k for k in range(1, 5_001) if k != 1_235]
    assert 0 < sum(slowly) <= 4 * jsonl_files.FEW_LINES


def test_attributes_inside_of_objects_match(tmp_path):
    schema = rc.Schema(rc.Int("order.price"), rc.Category("order.by.country"))
    subs = rc.Subscriptions.parse(schema, {1: '"order.price" > 5 and "order.by.country" = \'DE\''})
    index = rc.open_index("scan", schema)
    index.insert(subs)
    path = tmp_path / "events.jsonl"
    path.write_text(
        '{"id": 7, "order": {"price": 9, "by": {"country": "DE"}}}\n'
        '{"id": 8, "order": {"price": 3, "by": {"country": "DE"}}}\n'
        '{"id": 9, "order.price": 6, "order": {"by": {"country": "DE"}}}\n'
    )
    done = rc.match_file(index, path)
    assert done.pairs.to_pydict() == {"event_id": [7, 9], "subscription_id": [1, 1]}


def test_a_value_and_what_is_inside_of_it_are_read_one_by_one(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"user": "a", "x": 1}\n{"user": {"country": "DE"}}\n')
    rows, _ = read(path, {"user": pa.string(), "user.country": pa.string()})
    assert [row[2:4] for row in rows] == [("a", None), ({"country": "DE"}, "DE")]


def test_parts_of_a_chunk_have_their_lines_and_foreign_ones(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a\n\xff\nb\nc\n\xfe\n")
    reader = LineReader(str(path))
    (chunk,) = reader.chunks(quoted=False)
    reader.close()
    first, second = chunk.part(0, 1), chunk.part(1, 3)
    assert (first.text(0, 1), [n for n, _ in first.foreign]) == ("a", [2])
    assert (second.text(0, 2), [n for n, _ in second.foreign]) == ("b\nc", [5])
    assert second.numbers.tolist() == [3, 4]


def test_a_file_of_events_with_dots_is_named_by_its_path(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"user": {"country": "DE"}}\n')
    schema = rc.Schema(rc.Category("user.country"))
    with EventFile(schema, str(path)) as events:
        (batch,) = events
    assert batch.events.value("user.country", 0) == "DE"
    assert events.absent == []


@pytest.mark.parametrize("other", ["A1", '"A1"  ', "a1"])
def test_keys_in_capitals_are_seen_beside_values_in_capitals(tmp_path, other):
    path = tmp_path / "events.jsonl"
    other = other if other.startswith('"') else f'"{other}"'
    lines = ['{"a1": 1, "at": "2026-01-31T00:00Z"}', '{"at": "T"}', f'{{{other}: 2, "at": "U"}}']
    path.write_text("\n".join(lines) + "\n")
    wanted = {"a1": pa.int64(), "at": pa.string()}
    rows, _ = read(path, wanted)
    assert [row[2] for row in rows] == [1, None, 2]
    assert (rows, []) == line_by_line(path, wanted)


@pytest.mark.parametrize(
    ("later", "seen"),
    [('{"price": 2}', False), ('{"Price": 2}', True), ('{"price": 2, "Note": {"a": [1]}}', True)],
)
def test_capitals_are_looked_for_where_keys_are_not_wanted(tmp_path, monkeypatch, later, seen):
    """Arrow's reader says that all keys are wanted ones, which saves a search; later chunks may differ."""
    monkeypatch.setattr("rangecast.loading.files.CHUNK", 64)
    searched = []
    search = jsonl_files._other_capitals
    monkeypatch.setattr(jsonl_files, "_other_capitals", lambda *a: searched.append(1) or search(*a))
    path = tmp_path / "events.jsonl"
    path.write_text('{"price": 1}\n' * 20 + later + '\n{"price": 3}\n')
    wanted = {"id": None, "price": pa.int64()}
    rows, unread = read(path, wanted)
    assert [row[3] for row in rows] == [1] * 20 + [2, 3]
    assert bool(searched) == seen
    assert (rows, unread) == line_by_line(path, wanted)
