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
import fuzzing

pytestmark = pytest.mark.once


def test_values():
    done, rounds = fuzzing.run(fuzz_values.check, seconds=60, inputs=3_000, seed=1)
    assert rounds > 10
    assert done + rounds >= 3_000


def test_conditions():
    pairs, texts = fuzzing.run(fuzz_conditions.check, seconds=60, inputs=800, seed=1)
    assert pairs + texts >= 800


@pytest.mark.parametrize("seed", fuzz_files.SEEDS)
def test_files(seed):
    rows, files = fuzzing.run(fuzz_files.check, seconds=60, inputs=400, seed=seed)
    assert rows + files >= 400


@pytest.mark.parametrize("seed", fuzz_indexes.SEEDS)
def test_indexes(seed):
    refused, read = fuzzing.run(fuzz_indexes.check, seconds=60, inputs=150, seed=seed)
    assert refused > 20
    assert read > 5


def test_a_fault_says_of_which_seed_and_round_it_is():
    def third(rng, folder):
        assert rng.random() < 0.9
        return 1, 0

    with pytest.raises(AssertionError) as caught:
        fuzzing.run(third, seconds=60, inputs=1_000, seed=1)
    (note,) = caught.value.__notes__
    assert note.startswith("seed 1, round ")
