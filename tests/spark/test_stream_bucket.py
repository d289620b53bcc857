"""A stream whose matches, pins and commits are in a bucket: a crash at every request, two drivers at once.

Without Spark: the tasks of a batch run in this process, on a bucket in its memory. test_buckets.py runs such
a stream on Spark and a real server.
"""

import io
import threading
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc

pytest.importorskip("obstore")
rs = pytest.importorskip("rangecast.spark")
from pyspark.sql import types as T  # noqa: E402

from rangecast.durable.bucket import Bucket  # noqa: E402
from rangecast.spark import version_policy  # noqa: E402
from rangecast.spark.output import Output  # noqa: E402
from rangecast.spark.stream import micro_batch  # noqa: E402
from rangecast.spark.stream.ledger import Commit, Ledger, Pin  # noqa: E402
from rangecast.spark.stream.micro_batch import Stream, StreamOptions, run_batch  # noqa: E402
from rangecast.spark.stream.tasks import StreamEvents, run_task  # noqa: E402
from rangecast.spark.version_policy import VersionPolicy  # noqa: E402
from rangecast.store import commits as stored_commits  # noqa: E402
from rangecast.store.commits import BucketCommits  # noqa: E402
from rangecast.store.keep import pinned_batch  # noqa: E402

pytestmark = pytest.mark.once
BATCHES, TASKS, EVENTS = 3, 2, 12


class Crash(BaseException):
    """The process ends here."""


class Row(dict):
    __getattr__ = dict.__getitem__


class World:
    """A store, events of some batches, and a stream of them, all in one bucket."""

    def __init__(self):
        self.place = f"memory://{uuid.uuid4().hex}"
        self.schema = rc.Schema(rc.Int("price", 0, 99))
        self.store = rc.Store.open(f"{self.place}/store", self.schema, index="scan")
        self.insert(1)
        self.options = StreamOptions(f"{self.place}/checkpoint", f"{self.place}/out")
        self.ledger = self.options.ledger
        self.events = {}
        draw = np.random.default_rng(7)
        for batch in range(BATCHES):
            prices = [*draw.integers(0, 100, TASKS * EVENTS - 1).tolist(), "odd"]
            ids = range(batch * 100, batch * 100 + len(prices))
            self.events[batch] = dict(zip(ids, prices, strict=True))
        fields = T.StructType(
            [T.StructField("event_id", T.LongType()), T.StructField("subscription_id", T.LongType())]
        )
        answer = Output("id").answer(self.schema, textual=False)
        self.stream = Stream(
            id="s" * 32,
            store=str(self.store.path),
            store_id=self.store.id,
            options=self.options,
            versions=VersionPolicy(),
            events=StreamEvents(answer),
            fields=fields.jsonValue(),
        )
        self.ledger.adopt({"store": self.store.id, "path": str(self.store.path), "version": "newest",
                           "schema": {}, "fields": fields.jsonValue(), "sink": "parquet"})  # fmt: skip

    def insert(self, number):
        """One more version, in which another subscription matches everything."""
        texts = {number: f"price >= {number}", 10 * number: "price < 50"}
        self.store.insert(rc.Subscriptions.parse(self.schema, texts))

    def tasks(self, stream, batch, task):
        """What the workers of a batch give back."""
        rows = list(self.events[batch].items())
        found = []
        for k in range(TASKS):
            some = rows[k * EVENTS : (k + 1) * EVENTS]
            prices = pa.array([str(price) for _, price in some])
            table = pa.RecordBatch.from_pydict({"id": [i for i, _ in some], "price": prices})
            for counted in run_task(task, iter([table])):
                found += [Row(row) for row in counted.to_pylist()]
        return found

    def run(self, batch):
        run_batch(self.stream, batch, batch)

    def expected(self, batch, version):
        index = rc.open_index("scan", self.schema)
        index.insert(self.store.subscriptions(version))
        good = {i: price for i, price in self.events[batch].items() if price != "odd"}
        found = index.match(rc.Events.from_arrays(self.schema, {"price": list(good.values())}))
        ids = list(good)
        return sorted((ids[row], own) for row, own in zip(*(a.tolist() for a in found.pairs()), strict=True))

    def check(self):
        """Every batch has the matches of its events under the version it is pinned to, and nothing else."""
        bucket = Bucket(f"{self.place}/out")
        commits = list(self.ledger.commits())
        assert [commit.batch for commit in commits] == list(range(BATCHES))
        counted = set()
        for commit in commits:
            assert self.ledger.pin(commit.batch).version == commit.version
            assert pinned_batch(f"{self.place}/out", commit.batch).version == commit.version
            tables = [pq.read_table(io.BytesIO(bucket.read(name))) for name in commit.parts]
            rows = pa.concat_tables(tables).to_pydict()
            pairs = sorted(zip(rows["event_id"], rows["subscription_id"], strict=True))
            assert pairs == self.expected(commit.batch, commit.version)
            assert (commit.events, commit.pairs, commit.rejected) == (TASKS * EVENTS, len(pairs), 1)
            aside = [pq.read_table(io.BytesIO(bucket.read(f"_rejects/{n}"))) for n in commit.rejected_parts]
            assert pa.concat_tables(aside)["id"].to_pylist() == [str(max(self.events[commit.batch]))]
            counted |= {*commit.parts, *(f"_rejects/{name}" for name in commit.rejected_parts)}
        there = {entry.name for entry in bucket.entries("") if not entry.name.startswith("_rangecast")}
        assert there == counted, "what attempts have left that do not count is gone"
        return [commit.version for commit in commits]


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(version_policy, "publish_beside", lambda path: None)
    monkeypatch.setattr(micro_batch, "_matched", made.tasks)
    return made


class Faults:
    """Counts the requests to buckets, and ends the process before or after one of them."""

    def __init__(self, monkeypatch):
        self.count, self.at, self.after = 0, None, False
        self.guard = threading.Lock()
        real = Bucket._api
        faults = self

        class Api:
            def __init__(self, api):
                self.api = api

            def __getattr__(self, name):
                found = getattr(self.api, name)
                if name == "exceptions":
                    return found

                def call(*args, **kwargs):
                    with faults.guard:
                        faults.count += 1
                        mine = faults.at == faults.count
                    if mine and not faults.after:
                        raise Crash
                    try:
                        return found(*args, **kwargs)
                    finally:
                        if mine:
                            raise Crash

                return call

        monkeypatch.setattr(Bucket, "_api", lambda bucket: Api(real(bucket)))

    def arm(self, at, after):
        self.count, self.at, self.after = 0, at, after

    def off(self):
        self.at = None


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_request_loses_and_doubles_nothing(world, monkeypatch, after):
    faults = Faults(monkeypatch)
    world.run(0)
    assert faults.count > 10
    world.insert(2)
    crashes = 0
    for at in range(1, 20 * faults.count):
        faults.arm(at, after)
        try:
            world.run(1)
        except Crash:
            crashes += 1
            faults.off()
            if at % 4 == 0:
                # whatever an attempt has written down of its version, the next one must keep
                world.insert(100 + at)
            continue
        break
    faults.off()
    assert crashes > 20
    world.run(2)
    versions = world.check()
    assert versions[0] < versions[1] < versions[2] == world.store.version


def test_of_two_drivers_that_do_one_batch_one_counts(world, monkeypatch):
    world.run(0)
    real = world.tasks

    def beaten(stream, batch, task):
        """Another driver does the whole batch while the tasks of this one run."""
        mine = real(stream, batch, task)
        monkeypatch.setattr(micro_batch, "_matched", real)
        world.run(batch)
        monkeypatch.setattr(micro_batch, "_matched", beaten)
        return mine

    monkeypatch.setattr(micro_batch, "_matched", beaten)
    for batch in (1, 2):
        world.insert(batch + 1)
        world.run(batch)
        world.run(batch)
    assert world.check() == [1, 2, 3]
    with pytest.raises(rc.OptionError, match="the checkpoint is older than the output"):
        world.run(1)


def test_pins_are_put_once(world):
    assert world.ledger.pin(3) is None
    assert world.ledger.put_pin(Pin(3, "s", 7)).version == 7
    assert world.ledger.put_pin(Pin(3, "s", 8)).version == 7
    assert world.ledger.pin(3) == Pin(3, "s", 7)


def test_commits_are_gathered_in_manifests(monkeypatch):
    place = f"memory://{uuid.uuid4().hex}"
    ledger = Ledger(f"{place}/checkpoint", f"{place}/out")
    monkeypatch.setattr(stored_commits, "PER_MANIFEST", 10)
    bucket = Bucket(f"{place}/out/_rangecast")
    made = []
    for batch in range(37):
        made.append(Commit(batch, 1 + batch, parts=(f"batch_id={batch}/part-x.parquet",)))
        assert ledger.last() == batch - 1
        if batch == 20:
            # as if the driver had died before it made the manifest of batches 10 to 19
            bucket.delete(["manifests/000000000019.json"])
            assert list(ledger.commits()) == made[:-1]
        assert ledger.commit(made[-1])
        assert not ledger.commit(Commit(batch, 99))
    assert list(ledger.commits()) == made
    assert [entry.name[-7:-5] for entry in bucket.entries("manifests")] == ["09", "19", "29"]
    assert ledger.recent() == made
    commits = BucketCommits(bucket)
    assert commits.last() == 36
    raw = bucket.read("manifests/000000000009.json")
    bucket.put("manifests/000000000009.json", raw.replace(b'"version": 3', b'"version": 9'))
    with pytest.raises(rc.StorageError, match=r"manifests/0*09.json: cannot be read: its sum"):
        list(ledger.commits())
    bucket.put("manifests/000000000009.json", raw)
    bucket.delete(["commits/000000000033.json"])
    for read in (commits.read, commits.recent, commits.last):
        with pytest.raises(rc.StorageError, match=r"0*33.json: is missing, but there is commits/0*34.json"):
            read()


def test_a_place_that_holds_other_things(world):
    Bucket(f"{world.place}/foreign").put("data/1.csv", b"")
    Bucket(f"{world.place}/query").put("offsets/0", b"")
    settings = {"store": "x", "path": "p", "schema": {}, "fields": {"fields": []}}
    with pytest.raises(rc.OptionError, match=r"foreign: holds other files \(data\)"):
        Ledger(f"{world.place}/c", f"{world.place}/foreign").adopt(settings)
    with pytest.raises(rc.OptionError, match="is the checkpoint of another query"):
        Ledger(f"{world.place}/query", f"{world.place}/o").adopt(settings)
