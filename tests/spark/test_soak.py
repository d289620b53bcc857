"""Streams whose processes are killed lose nothing and double nothing: a few kills of `make soak`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.integration]


@pytest.mark.parametrize(("schemes", "kinds"), [("A,B", "worker,planner,jvm"), ("O,T", "worker,jvm,driver")])
def test_nothing_is_lost_or_doubled(tmp_path, request, schemes, kinds):
    script = Path(__file__).with_name("stream_soak.py")
    bucket = ""
    if "O" in schemes:
        try:
            bucket = request.getfixturevalue("s3") + "/soak"
        except pytest.skip.Exception:  # no server of buckets can be fetched
            schemes = "T"
    options = ["--bucket", bucket, "--kills", "3", "--seconds", "1", "--kinds", kinds, "--schemes", schemes]
    run = subprocess.run(
        [sys.executable, script, *options, "--folder", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    assert run.stdout.startswith("kills 3")
    for scheme in schemes.split(","):
        line = next(line for line in run.stdout.splitlines() if line.startswith(f"{scheme}:"))
        counted = dict(re.findall(r"(\w+) ([\d,]+)", line))
        assert (counted["lost"], counted["doubled"], counted["wrong"]) == ("0", "0", "0")
        assert int(counted["batches"]) > 3
        assert int(counted["pairs"].replace(",", "")) > 1000
