"""Tables of requests: what a body stands for is bounded before it is unpacked."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("msgspec")

from rangecast.broker.access import BrokerError, TooLargeError
from rangecast.broker.bodies import _unpacked_bytes, arrow_table, parquet_table, rows_of

pytestmark = pytest.mark.without_kernels

MOST = 1 << 20


def stream(*batches, **options):
    out = io.BytesIO()
    with pa.ipc.new_stream(out, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write(batch)
    return out.getvalue()


def parquet(table):
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_a_stream_within_the_limit_is_read(codec):
    words = pa.array(["IBM", None, "HAL"] * 500).dictionary_encode()
    batch = pa.record_batch({"price": list(range(1_500)), "symbol": words, "note": ["x" * 20] * 1_500})
    raw = stream(batch, batch.slice(3), compression=codec)
    table = arrow_table(raw, MOST)
    assert table.equals(pa.Table.from_batches([batch, batch.slice(3)]))
    unpacked = _unpacked_bytes(raw)
    # what is compressed, of the price and the notes at least
    assert unpacked == 0 if codec is None else 2 * 1_500 * 28 < unpacked < 2 * batch.nbytes + 1_000
    assert rows_of(table, MOST) == table.to_pylist()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_stream_that_unpacks_to_more_is_refused_before_it_is(codec):
    zeros = pa.array([0] * (MOST // 8 + 1), pa.int64())
    for batch in (
        pa.record_batch({"price": zeros}),
        pa.record_batch({"symbol": pa.DictionaryArray.from_arrays([0, 0], ["x" * (MOST + 1)])}),
    ):
        raw = stream(batch, compression=codec)
        assert len(raw) < MOST // 50
        before = pa.total_allocated_bytes()
        with pytest.raises(TooLargeError, match=r"'body_bytes' is 1,048,576, and the body is longer"):
            arrow_table(raw, MOST)
        assert pa.total_allocated_bytes() - before < MOST // 2


def test_texts_that_many_rows_mean_are_counted_for_each():
    long = "x" * 1_000
    held = pa.DictionaryArray.from_arrays([0] * 1_000, [long])
    assert len(rows_of(pa.table({"condition": held}), MOST)) == 1_000
    for column in (
        pa.DictionaryArray.from_arrays([0] * 1_050, [long]),
        pa.RunEndEncodedArray.from_arrays([1_050], [long]),
    ):
        with pytest.raises(TooLargeError):
            rows_of(pa.table({"condition": column}), MOST)


def test_a_parquet_file_is_read_up_to_the_limit():
    table = pa.table({"name": [f"n{k}" for k in range(100)], "condition": ["price > 5"] * 100})
    assert parquet_table(parquet(table), MOST).equals(table)
    assert parquet_table(parquet(table.slice(0, 0)), MOST).equals(table.slice(0, 0))
    bomb = pa.table(
        {"condition": pa.DictionaryArray.from_arrays([0] * 2_000, ["x" * 10_000]).cast(pa.string())}
    )
    raw = parquet(bomb)
    assert len(raw) < MOST // 50
    with pytest.raises(TooLargeError, match="'body_bytes' is 1,048,576"):
        parquet_table(raw, MOST)


@pytest.mark.parametrize("read", [arrow_table, parquet_table])
def test_damaged_bodies_are_refused(read):
    table = pa.table({"name": [f"n{k}" for k in range(50)], "price": list(range(50))})
    whole = stream(*table.to_batches(), compression="zstd") if read is arrow_table else parquet(table)
    rng = random.Random(5)
    refused = 0
    for _ in range(400):
        at = rng.randrange(len(whole))
        raw = whole[:at] if rng.random() < 0.2 else whole[:at] + rng.randbytes(2) + whole[at + 2 :]
        try:
            read(raw, MOST)
        except (BrokerError, TooLargeError):
            refused += 1
    assert refused > 100
    with pytest.raises(BrokerError, match="the body is not a"):
        read(b"nothing of the kind", MOST)
