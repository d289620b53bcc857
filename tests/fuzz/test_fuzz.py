"""A short run of each fuzzer, from a fixed seed; as scripts they run for as long as they are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzz_conditions
import fuzz_values

pytestmark = pytest.mark.once


def test_values():
    rounds, done = fuzz_values.run(seconds=60, inputs=3_000, seed=1)
    assert rounds > 10
    assert done >= 3_000


def test_conditions():
    pairs, texts = fuzz_conditions.run(seconds=60, inputs=800, seed=1)
    assert pairs + texts >= 800
