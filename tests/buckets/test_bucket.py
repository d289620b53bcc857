"""What is asked of a bucket: the same of one in memory, of one in a folder and of a real S3 server."""

import threading
import uuid

import pytest

import rangecast as rc
from rangecast.buckets import bucket as buckets
from rangecast.buckets.bucket import Bucket, BucketAddress

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
