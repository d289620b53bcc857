"""Objects that enter and leave on Spark: what the library's tracker says, once, through crashes."""

import json
import os
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")

NOW = {"availableNow": True}
MINUTE = 60_000_000


class Town:
    """A store of places, files of vehicles that move, and where a stream writes to."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.schema = rc.Schema(rc.Point("at"), rc.Category("kind"))
        self.store = rc.Store.open(folder / "store", self.schema)
        texts = {k: f"at within {400 + 30 * k} m of ({13.3 + k / 100}, 52.5)" for k in range(12)}
        texts |= {20: "at in box (13.3, 52.4, 13.36, 52.6) and kind = 'taxi'", 21: "kind = 'taxi'"}
        self.store.insert(rc.Subscriptions.parse(self.store.schema, texts))
        self.events = folder / "events"
        self.events.mkdir()
        self.out, self.checkpoint = folder / "out", folder / "checkpoint"
        self.files = []

    def add_file(self, n=30, vehicles=6, *, bad=(), late=()):
        number = len(self.files)
        rng = np.random.default_rng(number)
        rows = []
        for k in range(n):
            minute = 100 * number + k // 3
            at = [float(13.3 + 0.12 * rng.random()), float(52.495 + 0.01 * rng.random())]
            row = {"id": 1000 * number + k, "vehicle": f"v{rng.integers(vehicles)}", "when": minute * MINUTE}
            rows.append({**row, "at": at, "kind": ["taxi", "bus"][k % 2]})
        for k in bad:
            rows[k]["at"] = [13.4, 152.5]
        for k in late:
            rows[k]["when"] = -MINUTE
        self.files.append(rows)
        kinds = pa.schema(
            {
                "id": pa.int64(),
                "vehicle": pa.string(),
                "when": pa.timestamp("us", "UTC"),
                "at": pa.list_(pa.float64()),
                "kind": pa.string(),
            }
        )
        scratch = self.events / f".{number}"
        # in any order: times say which is first
        shuffled = [rows[k] for k in rng.permutation(n)]
        pq.write_table(pa.Table.from_pylist(shuffled, kinds), scratch)
        os.utime(scratch, (1_700_000_000 + number,) * 2)
        os.rename(scratch, self.events / f"{number:04}.parquet")

    def run(self, **options):
        frame = (
            self.spark.readStream.schema(
                "id long, vehicle string, when timestamp, at array<double>, kind string"
            )
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.events))
        )
        given = {"key": "vehicle", "time": "when", "out": self.out, "checkpoint": self.checkpoint}
        query = rs.track(frame, self.store, **(given | {"trigger": NOW, "parts": 3} | options))
        query.awaitTermination()

    def found(self):
        rows = rs.read_matches(self.spark, self.out).collect()
        out = defaultdict(list)
        for row in rows:
            out[row.batch_id].append((row.event_id, row.vehicle, row.change, row.subscription_id))
        return {batch: sorted(changes, key=str) for batch, changes in out.items()}

    def expected(self, versions, *, stays=False, skip=()):
        """What the library's own tracker says, file by file."""
        tracker, out = None, {}
        for batch, version in enumerate(versions):
            index = rc.open_index("scan", self.store.schema)
            index.insert(self.store.subscriptions(version))
            rows = [row for row in self.files[batch] if row["id"] not in skip and row["at"][1] < 90]
            rows.sort(key=lambda row: (row["when"], row["id"]))
            if tracker is None:
                tracker = rc.Tracker(index, "vehicle", time="when")
            tracker.index = index
            events = rc.Events.from_rows(index.schema, rows)
            changes = tracker.update(
                events,
                keys=[row["vehicle"] for row in rows],
                times=pa.array([row["when"] for row in rows], pa.timestamp("us", "UTC")),
                stays=stays,
            )
            table = changes.to_arrow([row["id"] for row in rows]).to_pylist()
            told = [(r["event_id"], r["vehicle"], r["change"], r["subscription_id"]) for r in table]
            out[batch] = sorted(told, key=str)
        return {batch: told for batch, told in out.items() if told}


@pytest.fixture
def town(spark, tmp_path):
    return Town(spark, tmp_path)


def states(town):
    """What is known of the objects after each batch, by the contents of their files."""
    home = town.checkpoint / "_rangecast" / "objects"
    out = {}
    for folder in home.iterdir():
        if folder.is_dir():
            parts = json.loads((home / f"{folder.name}.json").read_text())
            files = parts.get("files") or parts[next(iter(parts))]["files"]
            index = town.store.index()
            out[int(folder.name)] = {
                part: sorted(
                    (vehicle, tuple(tracker.subscriptions_of(vehicle).tolist()))
                    for tracker in [rc.Tracker.load(folder / name, index)]
                    for vehicle in (f"v{k}" for k in range(6))
                )
                for part, name in files.items()
            }
    return out


def test_spark_tells_what_the_library_tells(town):
    town.add_file()
    town.add_file(bad=[3], late=[7])
    town.run()
    town.store.delete([21, 3])
    town.add_file()
    town.run()
    versions = [commit.version for commit in rs.committed(town.out)]
    assert len(versions) == 3
    assert versions[2] > versions[1]
    expected = town.expected(versions, skip={1007})
    assert town.found() == expected
    changes = [change for told in expected.values() for _, _, change, _ in told]
    assert changes.count("entered") > 20
    assert changes.count("left") > 20
    rejected = rs.read_rejects(town.spark, town.out).collect()
    reasons = {row.id: row.reason for row in rejected}
    assert set(reasons) == {"1003", "1007"}
    assert "a latitude must lie within [-90, 90], got 152.5" in reasons["1003"]
    assert reasons["1007"] == "late: 'when' is before the last event of its 'vehicle'"
    assert sorted(states(town)) == [1, 2]


def test_a_batch_that_is_run_again_tells_the_same(town):
    town.add_file()
    town.run(stays=True)
    town.add_file()
    town.run(stays=True)
    told, known = town.found(), states(town)
    assert any(change == "stays" for changes in told.values() for _, _, change, _ in changes)
    # as if the driver had died before the commit of batch 1, after its objects were put in their place
    commits = town.out / "_rangecast" / "commits.jsonl"
    lines = commits.read_bytes().splitlines(keepends=True)
    commits.write_bytes(lines[0] + lines[1][:20])
    for name in ("1", ".1.crc"):
        (town.checkpoint / "commits" / name).unlink(missing_ok=True)
    for path in (town.out / "batch_id=1").iterdir():
        path.write_bytes(b"torn")
    objects = town.checkpoint / "_rangecast" / "objects"
    for path in (objects / "1").iterdir():
        path.write_bytes(b"torn")
    (objects / "tmp-1-dead").mkdir()
    town.store.delete([21])
    assert set(town.found()) == {0}
    town.run(stays=True)
    assert town.found() == told == town.expected([1, 1], stays=True)
    assert states(town) == known
    assert not list(objects.glob("tmp-*"))
    # and it goes on from there
    town.add_file()
    town.run(stays=True, parts=None)
    assert town.found() == town.expected([1, 1, 2], stays=True)


def test_objects_that_fall_silent_leave_and_what_is_refused(town, tmp_path):
    town.add_file(vehicles=6)
    town.run(expires=600.0)
    town.add_file(n=2, vehicles=1)
    town.run(expires=600.0)
    town.add_file(n=2, vehicles=1)
    town.run(expires=600.0)
    # the newest event of batch 1 is 100 minutes after batch 0: batch 2 begins by forgetting all but one
    silent = [row for row in town.found()[2] if row[0] is None]
    known = {vehicle: ids for part in states(town)[2].values() for vehicle, ids in part if ids}
    assert {vehicle for _, vehicle, _, _ in silent} <= {f"v{k}" for k in range(1, 6)}
    assert {change for _, _, change, _ in silent} == {"left"}
    assert set(known) == {"v0"}
    for options, error, message in (
        ({"parts": 4}, rc.OptionError, "the stream was begun with tracking .*parts 3.* got .*parts 4"),
        ({"key": "id"}, rc.OptionError, "key and time must be columns beside the id"),
        ({"key": "nobody"}, rc.EventError, "key: the events have no column 'nobody'"),
        ({"key": "at"}, rc.EventError, "must be whole numbers or strings"),
        ({"version": "event-time"}, rc.OptionError, "track matches each batch against one version"),
        ({"expires": -1.0}, rc.OptionError, "expires must be a time above 0"),
        ({"parts": 0}, rc.OptionError, "parts must be at least 1"),
    ):
        with pytest.raises(error, match=message):
            town.run(**({"expires": 600.0} | options))
    objects = town.checkpoint / "_rangecast" / "objects"
    (objects / "2.json").unlink()
    town.add_file(n=2)
    with pytest.raises(Exception, match="what was known of the objects after batch 2 is gone"):
        town.run(expires=600.0)
