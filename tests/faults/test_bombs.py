"""Small files that stand for much more: what is read at once stays within bounds."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from rangecast.loading import files as lines
from rangecast.loading import formats as parquet_files
from rangecast.loading.formats import ParquetFile

pytestmark = pytest.mark.without_kernels


@pytest.fixture
def index():
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "price > 5", 2: "symbol = 'short'"}))
    return index


def bomb(path, texts, which, **options):
    column = pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), pa.array(texts))
    table = pa.table({"price": np.arange(len(which)) % 8, "symbol": column})
    pq.write_table(table, path, store_schema=False, **options)


def test_a_long_text_that_every_row_means_is_read_a_few_rows_at_a_time(index, tmp_path, monkeypatch):
    path = tmp_path / "events.parquet"
    # the rows at the beginning are harmless
    bomb(path, ["short", "x" * 50_000], [0] * 1_000 + [0] + [1] * 1_999, row_group_size=1_000)
    assert path.stat().st_size < 30_000
    monkeypatch.setattr(parquet_files, "MOST_BYTES", 1 << 20)
    sizes = [(len(piece), piece.data.nbytes) for piece in ParquetFile(str(path)).batches()]
    assert sum(rows for rows, _ in sizes) == 3_000
    assert max(size for _, size in sizes) < 2 << 20
    done = rc.match_file(index, path)
    assert done.n_events == 3_000
    assert done.n_pairs == 3_000 // 4 + 1_001


def test_one_text_may_be_longer_than_the_bound(index, tmp_path, monkeypatch):
    path = tmp_path / "events.parquet"
    bomb(path, ["x" * 50_000], [0] * 20)
    monkeypatch.setattr(parquet_files, "MOST_BYTES", 1_000)
    assert [len(piece) for piece in ParquetFile(str(path)).batches()] == [1] * 20
    assert rc.match_file(index, path).n_events == 20


def test_rows_for_which_there_is_no_memory_are_refused(index, tmp_path, monkeypatch):
    path = tmp_path / "events.parquet"
    bomb(path, ["short"], [0] * 20)

    def too_much(self):
        raise pa.ArrowMemoryError("malloc of size 6553600000 failed")
        yield

    monkeypatch.setattr(ParquetFile, "_pieces", too_much)
    with pytest.raises(rc.StorageError, match=r"events.parquet: too large after row 0: malloc of size"):
        rc.match_file(index, path)


@pytest.mark.parametrize(
    ("name", "begin"), [("a.csv.gz", b"price,symbol\n7,A\n8,"), ("a.jsonl.gz", b'{"p":"')]
)
def test_a_line_without_an_end_is_refused(index, tmp_path, name, begin, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 1 << 20)
    path = tmp_path / name
    path.write_bytes(gzip.compress(begin + b"a" * (20 << 20)))
    assert path.stat().st_size < 30_000
    with pytest.raises(rc.StorageError, match=r"line \d must not be longer than 1 MB"):
        rc.match_file(index, path)


@pytest.mark.parametrize("nest", [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.filterwarnings("ignore::rangecast.errors.RangecastWarning")
def test_nesting_without_end_is_a_rejected_row(index, tmp_path, nest):
    path = tmp_path / "events.jsonl"
    deep = nest[0] * 100_000 + b"1" + nest[1] * 100_000
    path.write_bytes(b'{"price": 7, "symbol": ' + deep + b'}\n{"price": 8}\n')
    done = rc.match_file(index, path)
    assert (done.n_events, done.n_rejected) == (1, 1)
    assert "recursion" in done.rejected[0].reason
