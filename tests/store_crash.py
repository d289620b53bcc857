"""Kill a writer of a store at random moments and check what it leaves; run as a process of its own.

    python tests/store_crash.py FOLDER ROUNDS SEED

Each round forks a writer that inserts, deletes, publishes and compacts, and says through a pipe what it
is about to do and what was acknowledged. It is killed with SIGKILL at a random moment, sometimes in
the middle of a write of a megabyte. Then the store must open, hold every acknowledged change, at
most one more (the one under way, whole), and take new writes. Prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

import numpy as np

import rangecast as rc


def step(rng: random.Random, living: dict[int, tuple[int, int]]):
    """One change as (kind, ids, bounds), drawn from what is living."""
    kind = rng.choice(["insert", "insert", "insert", "big", "delete", "both"])
    n = 60_000 if kind == "big" else rng.randrange(1, 40)
    ids = rng.sample(range(200_000), n) if kind != "delete" else []
    bounds = {i: (low, low + rng.randrange(50)) for i in ids for low in [rng.randrange(1000)]}
    gone = []
    if kind in ("delete", "both"):
        gone = rng.sample(sorted(set(living) - set(ids)), min(len(living) // 2, 10))
    return bounds, gone


def after(living, bounds, gone):
    out = {i: b for i, b in living.items() if i not in set(gone)}
    out.update(bounds)
    return out


def subscriptions(schema, bounds):
    ids = np.array(list(bounds), np.int64)
    ends = np.array(list(bounds.values()), np.int64).reshape(-1, 2)
    return rc.Subscriptions.from_arrays(schema, ids, ends[:, :1], ends[:, 1:])


def write_forever(folder: str, seed: int, living, pipe: int) -> None:
    store = rc.Store.open(folder)
    rng = random.Random(seed)
    for number in range(10_000):
        bounds, gone = step(rng, living)
        os.write(pipe, f"try {number}\n".encode())
        version = store.apply(subscriptions(store.schema, bounds), np.array(gone, np.int64))
        os.write(pipe, f"done {number} {version}\n".encode())
        living = after(living, bounds, gone)
        if rng.random() < 0.15:
            store.snapshot()
        if rng.random() < 0.1:
            store.compact()


def contents(store) -> dict[int, tuple[int, int]]:
    subs = store.subscriptions()
    ids = subs.ids.values.tolist()
    return dict(zip(ids, zip(subs.lows[0].tolist(), subs.highs[0].tolist(), strict=True), strict=True))


def main(folder: str, rounds: int, seed: int) -> dict[str, int]:
    schema = rc.Schema(rc.Int("price"))
    store = rc.Store.open(folder, schema, index="scan")
    # compiled before the forks, so that a writer's quarter of a second is spent on writing
    store.insert(subscriptions(schema, {1: (0, 1), 2: (3, 4)}))
    store.delete([2])
    store.snapshot()
    rng = random.Random(seed)
    living: dict[int, tuple[int, int]] = {1: (0, 1)}
    version = store.version
    seen = {"rounds": rounds, "acknowledged": 0, "unacknowledged_kept": 0, "torn": 0}
    for number in range(rounds):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                write_forever(folder, seed * 1000 + number, living, writer)
            finally:
                os._exit(1)
        os.close(writer)
        time.sleep(rng.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"round {number}: the writer failed by itself"
        with os.fdopen(reader) as pipe:
            lines = [line.split() for line in pipe if line.endswith("\n")]
        done = [int(words[2]) for words in lines if words[0] == "done"]
        tried = sum(words[0] == "try" for words in lines)
        replay = random.Random(seed * 1000 + number)
        states = [living]
        for _ in range(tried):
            bounds, gone = step(replay, states[-1])
            states.append(after(states[-1], bounds, gone))
            if len(states) <= len(done) + 1:
                _ = replay.random() < 0.15, replay.random() < 0.1
        store = rc.Store.open(folder)
        with store.writing():
            pass
        seen["torn"] = len(list((store.path / "log").glob("*.torn-*")))
        extra = store.version - version - len(done)
        assert extra in (0, 1), (
            f"round {number}: {len(done)} acknowledged, but {store.version - version} there"
        )
        living = states[len(done) + extra]
        assert contents(store) == living, f"round {number}: the contents differ"
        assert not store.verify()
        version = store.version
        seen["acknowledged"] += len(done)
        seen["unacknowledged_kept"] += extra
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
