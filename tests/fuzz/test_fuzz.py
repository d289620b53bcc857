"""A short run of each fuzzer, from a fixed seed; as scripts they run for as long as they are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzz_conditions
import fuzz_files
import fuzz_indexes
import fuzz_values

pytestmark = pytest.mark.once


def test_values():
    rounds, done = fuzz_values.run(seconds=60, inputs=3_000, seed=1)
    assert rounds > 10
    assert done >= 3_000


def test_conditions():
    pairs, texts = fuzz_conditions.run(seconds=60, inputs=800, seed=1)
    assert pairs + texts >= 800


@pytest.mark.parametrize("seed", fuzz_files.SEEDS)
def test_files(seed):
    rows, files = fuzz_files.run(seconds=60, inputs=400, seed=seed)
    assert rows + files >= 400


@pytest.mark.parametrize("seed", fuzz_indexes.SEEDS)
def test_indexes(seed):
    refused, read = fuzz_indexes.run(seconds=60, inputs=150, seed=seed)
    assert refused > 20
    assert read > 5
