"""What the fuzzers have in common: rounds from a seed until the time or the inputs are used up.

A fuzzer is a script with a `check`, which draws one round by a generator, may write into a folder, raises
at the first fault, and returns two counts of what it tried.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import seeds

Check = Callable[[random.Random, Path], tuple[int, int]]


def run(check: Check, seconds: float, inputs: int, seed: int) -> tuple[int, int]:
    """The counts of all rounds; an error says of which seed and round it is."""
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    first = second = rounds = 0
    with tempfile.TemporaryDirectory() as folder:
        while first + second < inputs and time.monotonic() < end:
            rounds += 1
            try:
                more = check(rng, Path(folder))
            except BaseException as error:
                error.add_note(f"seed {seed}, round {rounds}, after {first + second:,} inputs")
                raise
            first, second = first + more[0], second + more[1]
    return first, second


def main(description: str | None, check: Check, said: str) -> None:
    """Run as a script; `said` has places for the two counts."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--inputs", type=int, default=10**9)
    seeds.add_option(parser)
    options = parser.parse_args()
    begun = time.monotonic()
    counts = run(check, options.seconds, options.inputs, options.seed)
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s: {said.format(*counts)}")
