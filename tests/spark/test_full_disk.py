"""A disk that is nearly full under Spark: what was written stays right, and goes on once there is room."""

import subprocess
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc

pytest.importorskip("pyspark")
rs = pytest.importorskip("rangecast.spark")
pytestmark = [pytest.mark.spark, pytest.mark.integration]

N_EVENTS, N_FILES = 4_000, 6
NOW = {"availableNow": True}


@pytest.fixture
def disk(tmp_path):
    """A disk of 1 MB, of which some is taken."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def world(tmp_path):
    """A store, files of events, and the pairs that they have."""
    schema = rc.Schema(rc.Int("a"))
    subs = rc.Subscriptions.parse(schema, {i: f"a between {i} and {i + 30}" for i in range(100)})
    store = rc.Store.open(tmp_path / "store", schema, index="scan")
    store.insert(subs)
    folder = tmp_path / "events"
    folder.mkdir()
    expected = Counter()
    for k in range(N_FILES):
        values = np.random.default_rng(k).integers(0, 130, N_EVENTS)
        ids = np.arange(k * N_EVENTS, (k + 1) * N_EVENTS)
        pq.write_table(pa.table({"id": ids, "a": values}), folder / f"{k}.parquet")
        rows, found = store.index().match(rc.Events(schema, values[None])).pairs()
        expected.update(zip(ids[rows].tolist(), found.tolist(), strict=True))
    return store, folder, expected


def pairs(table):
    return Counter(zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True))


def test_match_files(spark, disk, world):
    store, events, expected = world
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(960 << 10))
    out = disk / "out"
    with pytest.raises(Exception, match=r"No space left|cannot be written"):
        rs.match_files(spark, str(events / "*.parquet"), store, out)
    # what is there is whole
    for path in out.glob("part-*.parquet"):
        assert not pairs(pq.read_table(path)) - expected
    ballast.unlink()
    rs.match_files(spark, str(events / "*.parquet"), store, out)
    found = pa.concat_tables([pq.read_table(path) for path in out.glob("part-*.parquet")])
    assert pairs(found) == expected


@pytest.mark.parametrize("small", ["out", "checkpoint", "both"])
def test_a_stream(spark, disk, world, tmp_path, small):
    store, events, expected = world
    out = (tmp_path if small == "checkpoint" else disk) / "out"
    checkpoint = (tmp_path if small == "out" else disk) / "checkpoint"
    # room for a batch or two
    ballast = disk / "ballast"
    ballast.write_bytes(bytes((1 << 20) - (8 << 10) if small == "checkpoint" else 960 << 10))

    def run():
        source = rs.read_events(spark, events, store, files_per_batch=1)
        rs.match_stream(source, store, out=out, checkpoint=checkpoint, trigger=NOW).awaitTermination()

    with pytest.raises(Exception, match=r"No space left|cannot be written|StreamingQueryException|STREAM"):
        run()
    if (out / "_rangecast").exists():
        before = pairs(rs.read_matches(spark, out).toArrow())
        assert not before - expected
    ballast.unlink()
    run()
    assert pairs(rs.read_matches(spark, out).toArrow()) == expected
