"""The pipeline with store, events and output in a bucket of a real S3-compatible server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.once]
pytest.importorskip("pyspark")
pytest.importorskip("obstore")

HERE = Path(__file__).parent


def test_every_step_in_a_bucket_gives_what_the_library_gives(tmp_path):
    from jars import NoJars
    from s3_server import BUCKET, running, settings

    try:
        (tmp_path / "server").mkdir()
        with running(tmp_path / "server") as address:
            (tmp_path / "local").mkdir()
            command = [sys.executable, str(HERE / "bucket_steps.py"), f"s3://{BUCKET}/steps"]
            env = {**os.environ, **settings(address), "RANGECAST_CACHE": str(tmp_path / "cache")}
            done = subprocess.run(
                [*command, str(tmp_path / "local")], capture_output=True, text=True, env=env, check=False
            )
    except NoJars as why:
        pytest.skip(str(why))
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert set(said["answers"].values()) == {True}, said["answers"]
    assert said["pairs"] > 5_000
    assert said["accepted"] == 500
    assert said["rejected"] == ["column 8: expected a value, got the end of the text"]
    assert said["troubles"] == []
    assert said["left"] == [], "what was staged goes"
