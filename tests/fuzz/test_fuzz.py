"""A short run of each fuzzer, from a seed of this run and from those that once found something.

As scripts they run for as long as they are told.
"""

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

import seeds

pytestmark = pytest.mark.once


def some_seeds(*kept):
    """A new one, and those that found something before; names of tests are the same in every run."""
    drawn = pytest.param(seeds.seed_of("fuzz"), id="new")
    return pytest.mark.parametrize("seed", [drawn, *(pytest.param(seed, id=str(seed)) for seed in kept)])


@some_seeds(1)
def test_values(seed):
    done, rounds = fuzzing.run(fuzz_values.check, seconds=60, inputs=3_000, seed=seed)
    assert rounds > 10
    assert done + rounds >= 3_000


@some_seeds(1)
def test_conditions(seed):
    pairs, texts = fuzzing.run(fuzz_conditions.check, seconds=60, inputs=800, seed=seed)
    assert pairs + texts >= 800


@some_seeds(*fuzz_files.SEEDS)
def test_files(seed):
    rows, files = fuzzing.run(fuzz_files.check, seconds=60, inputs=400, seed=seed)
    assert rows + files >= 400


@some_seeds(*fuzz_indexes.SEEDS)
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
