"""A real cluster on loopback: every step of the pipeline beside the library, workers of another user, workers
that do not see the store, and kills during a stream.

One master serves all tests, which run in their order: the kills cost it a worker.
"""

import functools
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.once]
pytest.importorskip("pyspark")

HERE = Path(__file__).parent
OTHER = "nobody"


@pytest.fixture(scope="module")
def shared():
    """A folder that another user may enter, and a group of both may write to; pytest's own are closed."""
    folder = Path(tempfile.mkdtemp(prefix="rangecast-cluster-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(shared):
    from spark_cluster import Cluster, can_run_as

    place = shared / "cluster"
    place.mkdir()
    started = Cluster(place)
    started.other = can_run_as(OTHER, shared)
    try:
        started.victim = started.add_worker().pid
        started.add_worker(OTHER if started.other else None)
        started.wait_for_workers(2)
        yield started
    finally:
        started.close()


def place_of(shared, cluster, name):
    folder = shared / name
    folder.mkdir()
    if cluster.other:
        shutil.chown(folder, group=pwd.getpwnam(OTHER).pw_gid)
        folder.chmod(0o2775)
    return folder


def change_modes(folder, mode):
    for path in (folder, *(inner for inner in folder.rglob("*") if inner.is_dir())):
        path.chmod(mode)


def run_steps(kind, cluster, folder, *more):
    command = [
        sys.executable,
        str(HERE / "cluster_steps.py"),
        kind,
        cluster.address,
        str(folder),
        *map(str, more),
    ]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    said = [line for line in done.stderr.splitlines() if "Error" in line]
    assert done.returncode == 0, (said[:20], done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def test_every_step_gives_what_the_library_gives(cluster, shared):
    said = run_steps("steps", cluster, place_of(shared, cluster, "steps"))
    for name, answer in said["answers"].items():
        assert answer is True, (name, answer)
    assert len(said["answers"]) == 10
    assert said["pairs"] > 10_000
    assert (said["accepted"], said["rejected"]) == (2_000, 1)
    assert said["workers"] == 2
    assert said["troubles"] == []
    if not cluster.other:
        pytest.skip("no worker could be started as another user")
    assert OTHER in said["users"]
    assert len(said["users"]) == 2
    wrong = said["said"]
    for name in ("not writable", "ingest, not readable"):
        assert wrong[name].startswith("StorageError: "), wrong[name]
    assert f"the worker's user '{OTHER}' may not write there; give" in wrong["not writable"]
    assert "this worker's user may not read the snapshot" in wrong["not readable"]
    assert "this worker's user may not read the store" in wrong["ingest, not readable"]


def test_kills_lose_and_double_nothing(cluster, shared):
    folder = place_of(shared, cluster, "kills")
    said = run_steps("kills", cluster, folder, cluster.victim)
    assert (said["executors"], said["workers"]) == (2, 1)
    assert (said["batches"], said["events"]) == (9, 18_000)
    assert said["versions"] > 5
    assert said["pairs"] > 100_000
    assert (said["lost"], said["doubled"], said["wrong"]) == (0, 0, 0), said


def test_a_store_that_a_worker_does_not_see(cluster, shared):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from spark_cluster import can_hide

    folder = place_of(shared, cluster, "hidden")
    if not can_hide(folder):
        pytest.skip("no process can be given a view of the files of its own")
    import rangecast as rc

    store = rc.Store.open(folder / "store", rc.Schema(rc.Int("price"), rc.Category("symbol")))
    store.insert(rc.Subscriptions.parse(store.schema, {1: "price < 500 and symbol = 'A'"}))
    store.snapshot()
    table = pa.table({"id": range(600), "price": range(600), "symbol": ["A"] * 600})
    for place, n in ((place_of(shared, cluster, "seen"), 1), (folder / "many", 6)):
        place.mkdir(exist_ok=True)
        for k in range(n):
            pq.write_table(table, place / f"{k}.parquet")
    # what is below took its mode from the folder above; for the doctor, one user may write
    open_to = functools.partial(change_modes, store.path)
    open_to(0o755)
    cluster.add_worker(hidden=folder)
    cluster.wait_for_workers(2)
    doctor = [sys.executable, "-m", "rangecast", "spark", "doctor", "--master", cluster.address]
    doctor += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    doctor += ["--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0", "--store", str(store.path)]
    asked = subprocess.run(doctor, capture_output=True, text=True, check=False, timeout=300)
    shown = asked.stdout + asked.stderr
    assert asked.returncode == 1, shown[-3000:]
    assert (
        f"does not see the store {store.path} (FileNotFoundError: No such file or directory): put it on"
        in shown
    )
    assert "2 workers" in shown
    if cluster.other:
        assert f"user {OTHER}): may not write to {store.path / 'staging'} (PermissionError" in shown
        assert "2 troubles" in shown
    open_to(0o2775 if cluster.other else 0o755)
    said = run_steps("hidden", cluster, folder)
    for name in ("ingest", "match_files", "stripes"):
        assert said["said"][name].startswith("StorageError: "), said["said"][name]
    for name, sentence in said["said"].items():
        assert "a worker must see the same files as the driver" in sentence, (name, sentence)
    assert said["changed"] == 0
    environment = os.environ | {"PYSPARK_PYTHON": "/nowhere/python"}
    asked = subprocess.run(doctor, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert asked.returncode == 2, asked.stderr[-3000:]
    assert "the workers cannot run '/nowhere/python'" in asked.stdout + asked.stderr
