"""Kernels that are compiled for the widest instructions of a processor, compiled for those without them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

HERE = Path(__file__).resolve().parent
COMPARED = ("test_word_lists.py", "test_equality.py", "test_windows.py", "test_plane_cells.py")


@pytest.mark.once
@pytest.mark.slow
def test_kernels_for_lesser_processors_answer_as_one_by_one():
    features = {name for name, held in binding.get_host_cpu_features().items() if held}
    if "avx2" not in features:
        pytest.skip("this processor has not the instructions that are left out here")
    kept = sorted(name for name in features if not name.startswith("avx"))
    told = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in kept)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "one_by_one"]
    ran = subprocess.run(
        [*command, *(str(HERE / name) for name in COMPARED)],
        cwd=HERE.parent.parent,
        env=os.environ | told,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
