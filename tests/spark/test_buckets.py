"""The pipeline with store, events and output in a bucket of a real S3-compatible server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.once]
pytest.importorskip("pyspark")
pytest.importorskip("obstore")

HERE = Path(__file__).parent


def test_every_step_in_a_bucket_gives_what_the_library_gives(s3, tmp_path):
    (tmp_path / "local").mkdir()
    command = [sys.executable, str(HERE / "bucket_steps.py"), s3, str(tmp_path / "local")]
    # the address of the server and the cache are in its environment
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert set(said["answers"].values()) == {True}, said["answers"]
    assert said["pairs"] > 5_000
    assert said["accepted"] == 500
    assert said["rejected"] == ["column 8: expected a value, got the end of the text"]
    assert said["troubles"] == []
    assert said["left"] == [], "what was staged goes"
