"""A sample of the sweep over every file that we write; tests/faults/sweep.py --full takes all of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once


def test_every_file_is_refused_or_right():
    pytest.importorskip("pyspark")
    script = Path(__file__).with_name("sweep.py")
    done = subprocess.run(
        [sys.executable, script, "--flips", "40", "--cuts", "12"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    kinds = {Path(name).suffix for name in seen["files"]}
    assert kinds == {".index", ".json", ".jsonl", ".log"}
    assert len(seen["files"]) >= 11
    assert seen["refused"] > 5 * seen["right"]
