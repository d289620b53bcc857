"""Kill a writer of a store at random moments and check what it leaves; run as a process of its own.

    python tests/store/store_crash.py FOLDER ROUNDS SEED
    python tests/s3_server.py python tests/store/store_crash.py s3://alerts/crash 100 11

Each round forks a writer that inserts, deletes, expires, holds, releases, publishes and compacts, and
says through a pipe what it is about to do and what was acknowledged. It is killed with SIGKILL: in every
other round by its parent at a random moment, in the rest by itself before, in or after a random one of
its calls that reach the disk (write, sync, rename, unlink), a write being cut at a random byte; or the bucket
(put, delete). Then the store must open, hold every acknowledged change, at most one more (the one under way,
whole), keep what was held readable as it was, and take new writes. Prints what it saw as JSON.

Connections to a bucket do not survive a fork. So a store in a bucket is only ever opened in children.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import traceback

import numpy as np

import rangecast as rc
from rangecast.durable.bucket import is_address
from rangecast.store import change_log

IDS = 1200
CALLS = ("fsync", "replace", "pwrite", "unlink")


def step(rng: random.Random, number: int, living):
    """One change: what comes (id -> bounds and end), what goes, and the time if it is an expiry."""
    kind = rng.choice(["insert", "insert", "big", "delete", "both", "expire"])
    if kind == "expire":
        return {}, [], number + 1
    n = 800 if kind == "big" else rng.randrange(1, 40)
    ids = rng.sample(range(IDS), n) if kind != "delete" else []
    ending = rng.random() < 0.5
    bounds = {}
    for i in ids:
        low = rng.randrange(1000)
        end = number + rng.randrange(1, 30) if ending and rng.random() < 0.7 else 0
        bounds[i] = low, low + rng.randrange(50), end
    gone = []
    if kind in ("delete", "both"):
        gone = rng.sample(sorted(set(living) - set(ids)), min(len(living) // 2, 10))
    return bounds, gone, None


def after(living, bounds, gone, now):
    """What is living after a change, by a plain dict; and how many versions the change makes."""
    if now is not None:
        out = {i: b for i, b in living.items() if not 0 < b[2] <= now}
        return out, int(len(out) < len(living))
    out = {i: b for i, b in living.items() if i not in set(gone)}
    out.update(bounds)
    return out, int(bool(bounds or gone))


def subscriptions(schema, bounds):
    rows = np.array(list(bounds.values()), np.int64).reshape(-1, 3)
    ids = np.array(list(bounds), np.int64)
    return rc.Subscriptions.from_arrays(schema, ids, rows[:, :1], rows[:, 1:2]), rows[:, 2].copy()


def write_forever(folder: str, seed: int, first: int, living, pipe: int) -> None:
    store = rc.Store.open(folder)
    rng, aside = random.Random(seed), random.Random(seed + 1)

    def say(*words):
        os.write(pipe, (" ".join(map(str, words)) + "\n").encode())

    for number in range(first, first + 1000):
        bounds, gone, now = step(rng, number, living)
        say("try", number)
        if now is not None:
            version = store.expire(now)
        else:
            subs, ends = subscriptions(store.schema, bounds)
            version = store.apply(subs, np.array(gone, np.int64), expires=ends)
        say("done", number, version)
        living, _ = after(living, bounds, gone, now)
        name = aside.choice(["a", "b"])
        draw = aside.random()
        if draw < 0.12:
            say("hold", name, version)
            store.hold(name, version)
            say("held", name, version)
        elif draw < 0.18:
            say("release", name)
            store.release(name)
            say("released", name)
        elif draw < 0.30:
            store.snapshot()
        elif draw < 0.36:
            store.publish_if_due(share=0.0)
        elif draw < 0.55:
            store.compact()


def die_at(call: int, rng: random.Random, in_bucket: bool) -> None:
    """Have this process kill itself around its call number `call` that reaches the disk or the bucket."""
    left = [call]
    when = rng.choice(["before", "after"])

    def dying(real, *args, **keywords):
        left[0] -= 1
        if left[0] == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return real(*args, **keywords)
        finally:
            # also when it raised: there may have been nothing to remove
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if in_bucket:
        import obstore
    place, calls = (obstore, ("put", "delete")) if in_bucket else (os, CALLS)
    for name in calls:
        real = getattr(place, name)
        setattr(place, name, lambda *args, real=real, **keywords: dying(real, *args, **keywords))
    write_pieces = change_log.write_pieces

    def torn(handle, pieces, offset):
        left[0] -= 1
        if left[0] == 0:
            write_pieces(handle, [piece[: rng.randrange(len(piece) + 1)] for piece in pieces], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        write_pieces(handle, pieces, offset)

    change_log.write_pieces = torn


def contents(store, version=None, ends=True):
    subs = store.subscriptions(version)
    columns = [subs.lows[0].tolist(), subs.highs[0].tolist()]
    if ends:
        columns.append(store.expires_at(subs.ids).tolist())
    return dict(zip(subs.ids.values.tolist(), zip(*columns, strict=True), strict=True))


def survey(folder: str, everything: bool) -> dict:
    """What a store holds, after a writer has begun and ended: the newest version, and all that is held."""
    store = rc.Store.open(folder)
    with store.writing():
        pass
    held = {hold.name: hold.version for hold in store.holds()}
    return {
        "version": store.version,
        "contents": contents(store),
        "held": held,
        "versions": {version: contents(store, version, ends=False) for version in held.values()},
        "problems": store.verify() if everything else [],
        # by name, since compact clears them away
        "torn": [] if is_address(folder) else [path.name for path in (store.path / "log").glob("*.torn-*")],
    }


def begin(folder: str, living, ending) -> int:
    """Make the store."""
    schema = rc.Schema(rc.Int("price"))
    store = rc.Store.open(folder, schema, index="scan")
    subs, ends = subscriptions(schema, {**living, **ending})
    store.insert(subs, expires=ends)
    store.expire(2)
    store.compact()
    return store.version


def apart(folder: str, work, *args):
    """What work gives; of a store in a bucket, in a child."""
    if not is_address(folder):
        return work(folder, *args)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(work(folder, *args), pipe)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        raw = pipe.read()
    os.waitpid(child, 0)
    assert raw, "the child that looked failed; what it said is above"
    return pickle.loads(raw)


def check_holds(seen, lines, held, states):
    """Each hold is the last acknowledged one, or the one under way, and its version is as it was."""
    expected = {name: {version} for name, (version, _) in held.items()}
    for words in lines:
        if words[0] == "hold":
            expected.setdefault(words[1], {None}).add(int(words[2]))
        elif words[0] == "held":
            expected[words[1]] = {int(words[2])}
        elif words[0] == "release":
            expected.setdefault(words[1], {None}).add(None)
        elif words[0] == "released":
            expected[words[1]] = {None}
    there = seen["held"]
    known = dict(held.values()) | states
    out = {}
    for name, versions in expected.items():
        assert there.get(name) in versions, f"{name}: {there.get(name)} is held, not one of {versions}"
        if name in there:
            state = known[there[name]]
            bare = {i: bounds[:2] for i, bounds in state.items()}
            assert seen["versions"][there[name]] == bare, f"held version {there[name]} differs"
            out[name] = there[name], state
    return out


def main(folder: str, rounds: int, seed: int) -> dict[str, int]:
    living, ending = {1: (0, 1, 0), 3: (5, 6, 2**62)}, {2: (3, 4, 1)}
    in_bucket = is_address(folder)
    if in_bucket:
        # compiled before the forks, so that a writer's time is spent on writing
        with tempfile.TemporaryDirectory() as scratch:
            begin(f"{scratch}/store", living, ending)
            survey(f"{scratch}/store", True)
    version, number = apart(folder, begin, living, ending), 0
    rng = random.Random(seed)
    held: dict[str, tuple[int, dict]] = {}
    torn: set[str] = set()
    seen = dict.fromkeys(("rounds", "acknowledged", "unacknowledged_kept", "held", "torn"), 0)
    for seen["rounds"] in range(1, rounds + 1):
        reader, writer = os.pipe()
        by_itself = rng.random() < 0.5
        calls, pause = rng.randrange(1, 80), rng.uniform(0.0, 0.5 if in_bucket else 0.03)
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                if by_itself:
                    die_at(calls, rng, in_bucket)
                write_forever(folder, seed * 10_000 + number, number, living, writer)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(writer)
        if not by_itself:
            time.sleep(pause)
            os.kill(child, signal.SIGKILL)
        with os.fdopen(reader) as pipe:
            lines = [line.split() for line in pipe if line.endswith("\n")]
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"round {seen['rounds']}: the writer failed by itself"
        done = sum(words[0] == "done" for words in lines)
        tried = sum(words[0] == "try" for words in lines)
        replay = random.Random(seed * 10_000 + number)
        states, by_version, made = [living], {version: living}, 0
        newest = version
        for k in range(tried):
            state, made = after(states[-1], *(change := step(replay, number + k, states[-1])))
            newest += made
            by_version[newest] = state
            states.append(state)
            assert len(change) == 3
        acknowledged = newest - (made if tried > done else 0)
        where = f"round {seen['rounds']}: {done} of {tried} acknowledged"
        found = apart(folder, survey, seen["rounds"] % 4 == 0 or seen["rounds"] == rounds)
        assert found["version"] in (acknowledged, newest), (
            f"{where}, version {found['version']}, not {newest}"
        )
        extra = found["version"] - acknowledged
        assert extra in (0, 1), where
        living = by_version[found["version"]]
        assert found["contents"] == living, f"{where}: the contents differ"
        assert not found["problems"], f"{where}: {found['problems']}"
        held = check_holds(found, lines, held, by_version)
        version, number = found["version"], number + tried + 1
        seen["acknowledged"] += done
        seen["unacknowledged_kept"] += extra
        seen["held"] += len(held)
        torn |= set(found["torn"])
    seen["torn"] = len(torn)
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
