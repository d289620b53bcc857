"""A real cluster: a master and two workers on loopback, every step of the pipeline beside the library."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.once]
pytest.importorskip("pyspark")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from spark_cluster import Cluster

    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.add_worker()
        started.add_worker()
        started.wait_for_workers(2)
        yield started
    finally:
        started.close()


def test_every_step_gives_what_the_library_gives(cluster, tmp_path):
    command = [sys.executable, str(HERE / "cluster_steps.py"), cluster.address, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["answers"] == dict.fromkeys(["match", "stripes", "sql", "match_files", "match_stream"], True)
    assert said["pairs"] > 10_000
    assert (said["accepted"], said["rejected"]) == (2_000, 1)
    assert said["workers"] == 2
    assert said["troubles"] == []
