"""One seed per run, from which tests, fuzzers and soaks draw: a new one each time, and printed.

`RANGECAST_SEED=7 pytest ...` or `RANGECAST_SEED=7 python tests/broker/soak.py` repeats what a run with that
seed has drawn. Without the variable a seed is drawn; it is put into the environment, so that the worker
processes of pytest-xdist and whatever a test starts draw the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys

VARIABLE = "RANGECAST_SEED"


def run_seed() -> int:
    """The seed of this run."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        text = str(random.SystemRandom().randrange(2**32))
        os.environ[VARIABLE] = text
    if not text.isdecimal():
        raise ValueError(f"{VARIABLE} must be a whole number from 0 on, got {text!r}")
    return int(text)


def seed_of(name: str) -> int:
    """A seed of one test's own, by the name of what draws: tests that draw alike would find alike."""
    return int.from_bytes(hashlib.sha256(f"{run_seed()} {name}".encode()).digest()[:4])


def add_option(parser: argparse.ArgumentParser) -> None:
    """Give a script the option --seed, by default the seed of the run; it is printed at once, for a script
    that has to be killed."""

    def told(text: str) -> int:
        print(f"seed {text}", file=sys.stderr, flush=True)
        return int(text)

    parser.add_argument("--seed", type=told, default=str(run_seed()), help="what to draw (new each time)")


def repeat() -> str:
    """How a run is told to draw the same."""
    return f"{VARIABLE}={run_seed()}"
