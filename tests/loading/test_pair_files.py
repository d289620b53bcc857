"""Parquet files of matches: how their columns are written, and that they say what was given."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.loading.match_file import read_ahead
from rangecast.loading.pairs import ParquetPairs, pair_file

pytestmark = pytest.mark.without_kernels

EVENTS = pa.array([7, 7, 7, 9, 2**63 - 1, -(2**63)], pa.int64())
TEXTS = pa.array(["a", "a", "a", "b", "c", None])


def encodings(path):
    group = pq.ParquetFile(path).metadata.row_group(0)
    return [set(group.column(k).encodings) for k in range(group.num_columns)]


@pytest.mark.parametrize(
    ("columns", "counted"),
    [
        ({"event_id": EVENTS, "subscription_id": EVENTS}, [True, True]),
        ({"event_id": TEXTS, "subscription_id": EVENTS, "kept": TEXTS}, [False, True, False]),
        ({"event_id": EVENTS, "subscription_id": TEXTS}, [True, False]),
        ({"event_id": TEXTS, "subscription_id": TEXTS}, [False, False]),
        ({"event_id": EVENTS, "subscription_id": pa.array([1, None, 3, None, 5, 6])}, [True, True]),
        (
            {"event_id": EVENTS, "matches": EVENTS, "kept": EVENTS.cast(pa.float64(), safe=False)},
            [True, True, False],
        ),
        (
            {"event_id": EVENTS, "subscription_ids": pa.array([[1, 2], [], None, [3], [4], [5]])},
            [True, False],
        ),
    ],
)
def test_whole_numbers_are_written_as_differences(tmp_path, columns, counted):
    path = tmp_path / "pairs.parquet"
    table = pa.table(columns)
    with pair_file(path, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table.slice(0, 0))
    assert pq.read_table(path).equals(table)
    assert ["DELTA_BINARY_PACKED" in one for one in encodings(path)] == counted


def test_columns_that_are_always_filled_and_row_groups(tmp_path):
    path = tmp_path / "pairs.parquet"
    pairs = pa.table({"event_id": [7, 7, 8], "subscription_id": [1, 2, 3], "kept": ["a", None, "b"]})
    writer = ParquetPairs(path, group=5)
    for _ in range(5):
        writer.write(pairs)
    writer.close()
    assert pq.read_table(path).to_pylist() == pairs.to_pylist() * 5
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [6, 6, 3]
    assert [field.nullable for field in pq.read_schema(path)] == [False, False, True]
    assert [groups[0].column(k).is_stats_set for k in range(3)] == [True, False, True]
    writer = ParquetPairs(path)
    writer.write(pa.table({"event_id": [7], "subscription_id": pa.array([None], pa.int64())}))
    with pytest.raises(pa.ArrowInvalid, match="subscription_id"):
        writer.close()
    writer = ParquetPairs(path, filled=["event_id"])
    writer.close(pairs.schema)
    assert [field.nullable for field in pq.read_schema(path)] == [False, True, True]
    assert pq.read_metadata(path).num_rows == 0


def test_reading_ahead_ends_with_its_source():
    class Broken(Exception):
        pass

    closed = []

    def source():
        try:
            yield 1
            yield 2
            raise Broken
        finally:
            closed.append(True)

    parts = read_ahead(read_ahead(source()))
    assert next(parts) == 1
    assert next(parts) == 2
    with pytest.raises(Broken):
        next(parts)
    assert closed == [True]
