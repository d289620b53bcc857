"""Kernels that come from the disk: what a process loads for them, and that others still compile beside."""

import os
import subprocess
import sys

import pytest
from numba import config

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")

CODE = """
import sys
import numpy as np
from rangecast.simd.compiler import compile_seconds
from rangecast.types.strings import strings_of_spans, word_table
letters = np.frombuffer(b"one, two", np.uint8)
text = np.array([(letters.ctypes.data, len(letters), 1)], np.int64)
assert strings_of_spans(text, np.array([5, 0]), np.array([3, 3])).to_pylist() == ["two", "one"]
if "both" in sys.argv:
    assert word_table(["one", "two"]).places.any()
if "stats" in sys.argv:
    from rangecast.types import kernels as strings
    print(strings.copy_spans.stats.cache_path == strings.copy_spans._cache.cache_path)
print(compile_seconds() > 0, "numba.typed.typedlist" in sys.modules, "pyarrow.compute" in sys.modules)
"""


def run(folder, *words):
    made = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.split()


def test_what_is_loaded_for_kernels_from_the_disk(tmp_path):
    assert run(tmp_path) == ["True", "True", "False"]
    assert run(tmp_path) == ["False", "False", "False"]
    # one comes from the disk and the other compiles after it
    assert run(tmp_path, "both") == ["True", "True", "False"]
    assert run(tmp_path, "both") == ["False", "False", "False"]
    assert run(tmp_path, "stats") == ["True", "False", "False", "False"]
