"""A store on a real S3-compatible server: contract, kills of its writer, requests that fail or hang."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rangecast as rc
from rangecast.model.ids import Ids
from rangecast.store.change_log import FRAGMENTS
from rangecast.store.home import home_of
from rangecast.store.versions import drop_fragments, new_stem, put_fragment

pytestmark = pytest.mark.integration

HERE = Path(__file__).resolve().parent


def subs(store, *ids, symbol="A"):
    return rc.Subscriptions.parse(store.schema, {i: f"price > {i} and symbol = '{symbol}'" for i in ids})


def ids_of(store, version=None):
    return sorted(store.subscriptions(version).ids.values.tolist())


@pytest.fixture
def schema():
    return rc.Schema(rc.Int("price"), rc.Category("symbol"))


def test_a_life_of_a_store(s3, schema):
    with pytest.raises(rc.StorageError, match="there is no store here; give a schema to create one"):
        rc.Store.open(s3)
    store = rc.Store.open(s3, schema, index="scan")
    assert store.insert(subs(store, 1, 2), expires=[5, 0]) == 1
    assert store.delete([2, 3]) == [3]
    assert store.apply(subs(store, 4, symbol="B"), note={"read": 7}) == 3
    store.hold("job", 2)
    other = rc.Store.open(s3)
    assert (other.version, other.notes, ids_of(other)) == (3, {"read": 7}, [1, 4])
    assert [ids_of(other, version) for version in (1, 2)] == [[1, 2], [1]]
    assert other.expire(6) == 4
    follower = rc.Follower(s3)
    assert [len(follower.at(version)) for version in (1, 4, 2)] == [2, 1, 1]
    with pytest.raises(rc.StorageError, match="version 2 is held by 'job'"):
        store.compact(keep=3)
    assert store.compact()["segments"] == 2
    assert rc.Store.open(s3).oldest == 2
    store.release("job")
    store.compact()
    again = rc.Store.open(s3)
    assert (again.oldest, again.version, ids_of(again), again.verify()) == (4, 4, [4], [])
    assert len(rc.load_index(again.snapshot())) == 1


def test_a_bucket_that_is_not_there_is_named(s3, schema):
    with pytest.raises(rc.StorageError, match="s3://no-such-bucket/alerts"):
        rc.Store.open("s3://no-such-bucket/alerts", schema)


def test_the_command_line_takes_addresses(s3, tmp_path):
    (tmp_path / "schema.toml").write_text('[attributes.price]\ntype = "int"\n')
    (tmp_path / "alerts.csv").write_text("id,condition\n7,price > 10\n8,price < 5\n")
    (tmp_path / "events.csv").write_text("event_id,price\n1,12\n2,7\n3,2\n")

    def run(*words):
        command = [sys.executable, "-m", "rangecast", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("store", "add", s3, "--schema", "schema.toml", "--subscriptions", "alerts.csv")
    found = run("match", "--store", s3, "--events", "events.csv", "--quiet")
    assert found.split() == ["event_id,subscription_id", "1,7", "3,8"]
    run("store", "remove", s3, "8")
    shown = json.loads(run("store", "show", s3, "--json"))
    assert (shown["store"], shown["version"], shown["subscriptions"]) == (s3, 2, 1)
    run("store", "compact", s3)
    run("store", "verify", s3)


def test_a_killed_writer_loses_nothing_that_was_acknowledged(s3):
    command = [sys.executable, str(HERE.parent / "store" / "store_crash.py"), s3, "8", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["rounds"] == 8
    assert seen["acknowledged"] > 20


def test_failing_and_hanging_requests_lose_and_double_nothing(s3, s3_server, schema, monkeypatch):
    """A third of all requests fail, half of them after they were done; some hang for long."""
    from s3_server import unreliable

    def fault(method, path, n):
        if n % 40 == 39:
            return 2.5
        return {0: "500", 3: "lost"}.get(n % 6)

    with unreliable(s3_server, fault) as (address, count):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("RANGECAST_BUCKET_SECONDS", "4")
        from rangecast.durable.bucket import connect

        connect.cache_clear()
        try:
            store = rc.Store.open(s3, schema, index="scan")
            acknowledged, refused = set(), []
            for number in range(12):
                try:
                    store.insert(subs(store, number))
                    acknowledged.add(number)
                except rc.StorageError as error:
                    refused.append(str(error))
            store.compact()
        finally:
            connect.cache_clear()
        assert count[0] > 60
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    again = rc.Store.open(s3)
    assert acknowledged <= set(ids_of(again))
    assert len(acknowledged) > 6
    assert all(s3 in error for error in refused)
    assert again.version == len(ids_of(again)), "an insert that was tried twice is one version"
    assert again.verify() == []


def test_a_server_that_is_down_is_said_with_the_address(s3, monkeypatch):
    from rangecast.durable.bucket import connect

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("RANGECAST_BUCKET_SECONDS", "1")
    connect.cache_clear()
    try:
        with pytest.raises(rc.StorageError, match=rf"{s3}/store.json: cannot be read"):
            rc.Store.open(s3)
    finally:
        connect.cache_clear()


def test_the_cache_is_shared_by_processes(s3, schema):
    store = rc.Store.open(s3, schema)
    store.insert(subs(store, *range(50)))
    store.snapshot()
    look = "import sys, rangecast as rc; print(rc.Store.open(sys.argv[1]).snapshot())"
    processes = [
        subprocess.Popen([sys.executable, "-c", look, s3], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    files = {process.communicate()[0].strip() for process in processes}
    assert len(files) == 1
    assert os.path.exists(files.pop())


def test_fragments_of_a_large_load_are_one_version(s3, schema):
    store = rc.Store.open(s3, schema, index="scan")
    store.insert(subs(store, 1, 2, 3))
    home = home_of(store.path)
    home_of(store.path / FRAGMENTS).prepare()
    stem = new_stem()
    changes = [([1], subs(store, 2, 4, symbol="B")), ([3], subs(store, *range(10, 20)))]
    put = [put_fragment(home, stem, "scan", Ids.of(gone), coming) for gone, coming in changes]
    left = put_fragment(home, stem, "scan", Ids.of([]), subs(store, 99))
    assert ids_of(rc.Store.open(s3)) == [1, 2, 3]
    with pytest.raises(rc.StorageError, match="a worker wrote this file, and the driver does not see it"):
        store.apply_fragments([put[0], put[1]._replace(name=f"{stem}.gone.arrays")])
    assert store.apply_fragments(put, note={"load": 7}) == 2
    drop_fragments(home, stem, {fragment.name for fragment in put})
    assert left.name not in home.names(FRAGMENTS)
    expected = [2, 4, *range(10, 20)]
    other = rc.Store.open(s3)
    assert (ids_of(other), other.notes, other.verify()) == (expected, {"load": 7}, [])
    assert len(rc.Follower(s3).at(2)) == len(expected)
    store.compact()
    assert home.names(FRAGMENTS) == []
    assert ids_of(rc.Store.open(s3)) == expected
