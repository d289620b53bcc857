"""Fuzz what reads index files: content that nobody wrote, with right sums, is refused or stays in its arrays.

    NUMBA_BOUNDSCHECK=1 python tests/fuzz/fuzz_indexes.py --seconds 60 --seed 7

Each round draws a kind of index and some subscriptions, saves it, changes arrays and plain values of the
file at random, writes it with right sums, loads it, matches and writes. An error that is not a RangecastError
is a fault; so is an index out of range, which kernels tell when they check bounds.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzzing

import rangecast as rc
from rangecast.durable.arrays import read_arrays, write_arrays

SEEDS = (1,)
"""Those that have found something, or the first."""
KINDS = [
    ("scan", {}), ("cells", {}), ("bitmap", {}), ("auto", {}), ("vci", {}),
    ("vci", {"lookup": "table", "cells": 64}),
    ("vci", {"lookup": "clipped", "cells": 64}), ("islist", {}), ("direct", {"cells": 64}), ("vcr", {}),
    ("vcr", {"storage": "array", "cells": 32}), ("vcr", {"storage": "hash", "cells": 32}), ("counting", {}),
    ("ubtree", {"leaf": 16, "fanout": 4}), ("rtree", {}),
    ("hint", {}), ("cei", {}), ("rein", {}), ("opindex", {}),
]  # fmt: skip
FILES_EACH = 25


def drawn_subscriptions(schema: rc.Schema, rng: np.random.Generator) -> rc.Subscriptions:
    n, d = int(rng.integers(1, 700)), len(schema)
    lows = rng.integers(0, 60, (n, d)).astype(float)
    highs = lows + rng.integers(0, 20, (n, d))
    free = rng.random((n, d)) < 0.4
    lows[free], highs[free] = np.nan, np.nan
    return rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)


def changed_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """A copy with something wrong."""
    flat = array.reshape(-1).copy()
    if not flat.size:
        return np.zeros((3,) * array.ndim, array.dtype)
    kind = rng.randrange(6)
    places = [rng.randrange(flat.size) for _ in range(rng.choice([1, 1, 3, 20]))]
    if kind <= 2 and array.dtype.kind in "iu":
        info = np.iinfo(array.dtype)
        for at in places:
            near = int(flat[at]) + rng.choice([-1, 1, 2, 64, -64])
            value = rng.choice([info.max, info.min, 0, -1, near, flat.size, rng.randrange(-9, 999)])
            flat[at] = min(max(value, info.min), info.max)
    elif kind == 3:
        flat = flat[::-1].copy()
    elif kind == 4:
        rng.shuffle(places)
        flat[places] = flat[places[::-1]]
    else:
        cut = array[: rng.randrange(len(array) + 1)]
        return np.ascontiguousarray(cut if rng.random() < 0.5 else np.concatenate([array, cut]))
    return flat.reshape(array.shape)


def change_value(tree, rng: random.Random) -> None:
    """Change one plain value somewhere in what a file says of a structure."""
    places = []

    def walk(node):
        pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in list(pairs):
            if isinstance(value, dict | list):
                walk(value)
            else:
                places.append((node, key))

    walk(tree)
    if places:
        node, key = rng.choice(places)
        node[key] = rng.choice([-1, 0, 1, 7, 63, 2**31, 2**63, True, None, "x", 0.5, [], {}])


def check(rng: random.Random, folder: Path) -> tuple[int, int]:
    """Files of one index: how many were refused, and how many read."""
    draws = np.random.default_rng(rng.getrandbits(32))
    name, options = rng.choice(KINDS)
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(rng.choice([1, 2, 3]))))
    index = rc.open_index(name, schema, **options)
    index.tail_alone = 1  # of `auto`: files of few subscriptions have paths too
    index.insert(drawn_subscriptions(schema, draws))
    index.delete(np.arange(0, len(index), 3))
    path = folder / "index"
    index.save(path)
    meta, arrays = read_arrays(path, mmap=False)
    events = rc.Events(schema, draws.integers(-2, 85, (len(schema), 30)))
    refused = read = 0
    for _ in range(FILES_EACH):
        other, changed = json.loads(json.dumps(meta)), dict(arrays)
        for key in rng.sample(sorted(arrays), min(len(arrays), rng.choice([0, 1, 1, 2]))):
            changed[key] = changed_array(arrays[key], rng)
        if rng.random() < 0.3:
            change_value({key: other[key] for key in ("catalog", "structure")}, rng)
        what = f"{name} {options}: {[key for key in arrays if changed[key] is not arrays[key]]}"
        try:
            write_arrays(path, other, changed)
            loaded = rc.load_index(path)
            loaded.match(events)
            loaded.match(events.select(np.array([3])))
            if rng.random() < 0.1:
                loaded.delete([1, 4])
                loaded.insert(index.subscriptions().select(np.arange(min(len(index), 2))))
                loaded.match(events)
            read += 1
        except rc.RangecastError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error
    return refused, read


if __name__ == "__main__":
    fuzzing.main(__doc__, check, "{:,} index files refused, {:,} read within their arrays, 0 faults")
