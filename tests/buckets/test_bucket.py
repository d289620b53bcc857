"""What is asked of a bucket: the same of one in memory, of one in a folder and of a real S3 server."""

import threading
import uuid

import pytest

import rangecast as rc
from rangecast.durable import bucket as buckets
from rangecast.durable.bucket import Bucket, BucketAddress

pytestmark = pytest.mark.without_kernels


@pytest.fixture(params=["memory", "folder", pytest.param("s3", marks=pytest.mark.integration)])
def bucket(request, tmp_path, monkeypatch):
    if request.param == "s3":
        return Bucket(request.getfixturevalue("s3"))
    if request.param == "folder":
        from obstore.store import LocalStore

        monkeypatch.setattr(buckets, "connect", lambda address, process: LocalStore(tmp_path))
    return Bucket(f"memory://{uuid.uuid4().hex}/a/b" if request.param == "memory" else "s3://folder")


def test_put_read_and_delete(bucket):
    assert bucket.read("log/1") is None
    assert bucket.stat("log/1") is None
    assert bucket.entries("log") == []
    bucket.put("log/1", b"first")
    bucket.put("log/1", b"second")
    assert bucket.read("log/1") == b"second"
    assert bucket.read("log/1", 1, 3) == b"eco"
    assert bucket.read("log/1", 3) == b"ond"
    assert bucket.read("log/1", 0, 100) == b"second"
    entry = bucket.stat("log/1")
    assert (entry.name, entry.size) == ("log/1", 6)
    bucket.put("log/1", b"thirds")
    assert bucket.stat("log/1").tag != entry.tag
    bucket.delete(["log/1", "log/none"])
    bucket.delete([])
    assert bucket.read("log/1") is None


def test_names_are_sorted_and_a_listing_may_begin_after_one(bucket):
    for name in ("log/2", "log/10", "log/1", "log2/1", "other", "log/deep/1"):
        bucket.put(name, name.encode())
    assert [entry.name for entry in bucket.entries("log")] == ["log/1", "log/10", "log/2", "log/deep/1"]
    assert [entry.name for entry in bucket.entries("log", after="log/10")] == ["log/2", "log/deep/1"]
    assert [entry.name for entry in bucket.entries("log", after="log/11")] == ["log/2", "log/deep/1"]
    assert bucket.entries("log", after="log/z") == []
    assert len(bucket.entries("")) == 6


def test_of_many_that_create_one_does(bucket):
    won = []

    def create(number):
        for k in range(10):
            if bucket.create(f"race/{k}", f"{number}".encode()):
                won.append((k, number))

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(k for k, _ in won) == list(range(10))
    assert all(bucket.read(f"race/{k}") == str(number).encode() for k, number in won)


def test_a_fetched_object_is_the_one_that_was_asked_for(bucket, tmp_path):
    content = bytes(range(256)) * 1000
    bucket.put("large", content)
    entry = bucket.stat("large")
    bucket.fetch(entry, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    bucket.put("large", content[::-1])
    with pytest.raises(rc.StorageError, match="large: cannot be read"):
        bucket.fetch(entry, tmp_path / "copy")
    gone = bucket.stat("large")
    bucket.delete(["large"])
    with pytest.raises(rc.StorageError, match="large: is gone since it was listed"):
        bucket.fetch(gone, tmp_path / "copy")


def test_addresses():
    place = BucketAddress("s3://bucket/a/b/")
    assert (str(place / "c"), place.name, str(place.parent)) == ("s3://bucket/a/b/c", "b", "s3://bucket/a")
    assert place == BucketAddress("s3://bucket/a/b")
    assert place != "s3://bucket/a/b"
    assert len({place, BucketAddress("s3://bucket/a/b")}) == 1


def test_what_is_wrong_with_an_address_is_said(monkeypatch):
    import builtins

    with pytest.raises(rc.StorageError, match=r"az://a/b: cannot be opened"):
        Bucket("az://a/b")
    real = builtins.__import__

    def without(name, *args, **keywords):
        if name.startswith("obstore"):
            raise ImportError(name)
        return real(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(rc.SetupError, match="needs obstore; install the extra 'buckets'"):
        Bucket("s3://never-asked-for/a")


def test_events_of_a_bucket_are_read_by_ranges(bucket, tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    if str(bucket.address) == "s3://folder":
        pytest.skip("an address names a file of another folder")
    table = pa.table({"id": [1, 2, 3], "price": [5, 12, 30]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    bucket.put("events/a.parquet", tmp_path / "a.parquet")
    bucket.put("events/b.csv", b"id,price\n4,99\n5,x\n6,1\n")
    bucket.put("events/c.jsonl", b'{"id": 7, "price": 50}\n')
    index = rc.open_index("scan", rc.Schema(rc.Int("price")))
    index.insert(rc.Subscriptions.parse(index.schema, {1: "price > 10", 2: "price > 40"}))
    names = [f"{bucket.address}/events/{name}" for name in ("a.parquet", "b.csv", "c.jsonl")]
    for place in (f"{bucket.address}/events/*", names):
        out = tmp_path / "out.csv"
        done = rc.match_file(index, place, out)
        assert sorted(out.read_text().split()[1:]) == ["2,1", "3,1", "4,1", "4,2", "7,1", "7,2"]
        assert len(done.rejected) == 1
        assert done.rejected[0].source == f"{bucket.address}/events/b.csv"
    with pytest.raises(rc.StorageError, match=r"nothing/\*.csv: there is no such object"):
        rc.match_file(index, f"{bucket.address}/nothing/*.csv", tmp_path / "out.csv")


@pytest.mark.parametrize("name", ["a.parquet", "b.csv"])
def test_a_bucket_that_fails_is_no_damaged_file(name, tmp_path, monkeypatch):
    """A damaged file is rejected as a whole; one that could not be fetched must not be."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rangecast.loading import EventFile
    from rangecast.loading.events import whole_file_reason

    bucket = Bucket(f"memory://{uuid.uuid4().hex}/a")
    pq.write_table(pa.table({"id": [1], "price": [5]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_bytes(b"id,price\n1,5\n")
    bucket.put(name, tmp_path / name)
    schema = rc.Schema(rc.Int("price"))

    def read():
        with EventFile(schema, f"{bucket.address}/{name}", event_id="id") as file:
            return sum(len(batch.events) for batch in file)

    assert read() == 1

    def failing(*_):
        raise rc.StorageError("the bucket does not answer")

    monkeypatch.setattr(Bucket, "read_same", failing)
    with pytest.raises(rc.StorageError, match=name) as caught:
        read()
    assert whole_file_reason(caught.value) is None
    monkeypatch.setattr(Bucket, "stat", failing)
    with pytest.raises(rc.StorageError, match=name) as caught:
        read()
    assert whole_file_reason(caught.value) is None
