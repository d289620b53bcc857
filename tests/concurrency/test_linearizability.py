"""Every answer beside writers is that of one state between the call and its return.

Each writer has ids of its own and brings them from generation to generation: at an odd one all of them are
there and ask for that number, at an even one all are gone. A generation may be the current one from the call
of its write to the return of the next. So an answer tells the generation of each writer, and it is right if
there is a moment, between its call and its return, at which all of these may have been current.

Threads are switched as often as the interpreter can, and rest at random places within writes and reads.
"""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import random
import sys
import threading
import time

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine import REGISTRY, catalog, parts
from rangecast.engine import index as contract
from rangecast.model.ids import IdTable

pytestmark = pytest.mark.once

EVERY = os.environ.get("RANGECAST_EVERY_FAULT", "0") == "1"
JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") != "1"
SECONDS = 20.0 if EVERY else 0.5
EACH = 12  # ids of a writer
WRITERS = 2
FEWEST = 6  # writes of each writer
LAST = 4000 if EVERY else 120  # generation
VARIANTS = [(name, {}) for name in REGISTRY]
VARIANTS += [("vci", {"lookup": "table"}), ("vcr", {"storage": "hash"})]
PLACES = [
    (catalog.Catalog, "add"),
    (catalog.Catalog, "kill"),
    (catalog.Catalog, "stored"),
    (IdTable, "extended"),
    (IdTable, "find"),
    (contract.Index, "_publish"),
    (contract.Index, "_compact"),
    (parts.StaticIndex, "_publish"),
    (parts.StaticIndex, "_cover"),
]


class Times:
    """When each generation of a writer was called for, and when its write had returned."""

    def __init__(self) -> None:
        self.calls, self.returns = [-1], [-1]

    def possible(self, call, back):
        """The generations that may have been current at some moment of a read."""
        returns = self.returns.copy()
        first = sum(moment < call for moment in returns) - 1
        last = sum(moment < back for moment in self.calls.copy()) - 1
        return range(max(first, 0), last + 1)

    def span(self, generation):
        after = self.returns[generation + 1] if generation + 1 < len(self.returns) else float("inf")
        return self.calls[generation], after


def explained(times, call, back, fits):
    """Whether some generations, all current at one moment of the read, give what was read."""
    for generations in itertools.product(*(t.possible(call, back) for t in times)):
        spans = [t.span(g) for t, g in zip(times, generations, strict=True)]
        first = max(call, *(a for a, _ in spans))
        last = min(back, *(b for _, b in spans))
        if first <= last and fits(held(generations)):
            return True
    return False


def ids_of(writer):
    return np.arange(writer * 1000, writer * 1000 + EACH)


def held(generations):
    """What an index holds at these generations: the number that each id asks for."""
    return {int(i): g for w, g in enumerate(generations) if g % 2 for i in ids_of(w)}


def found_pairs(matches):
    return {int(i): v for v in range(len(matches.offsets) - 1) for i in matches.row(v)}


def asked_numbers(subs):
    return dict(zip(subs.ids.values.tolist(), subs.lows[0].tolist(), strict=True))


@pytest.fixture
def restless(monkeypatch, used_machine):
    rng = random.Random(7)

    def rests(plain):
        def run(*args, **kwargs):
            if rng.random() < 0.3:
                time.sleep(rng.random() * 1e-3)
            return plain(*args, **kwargs)

        return run

    for owner, name in PLACES:
        monkeypatch.setattr(owner, name, rests(getattr(owner, name)))
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 16)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_beside(schema, target, reads):
    """Writers and one thread per kind of read, for a while; gives how many answers and writes there were."""
    clock = itertools.count()
    times = [Times() for _ in range(WRITERS)]
    start = time.monotonic()
    wrong, checked, failures = [], itertools.count(), []

    def over():
        passed = time.monotonic() - start
        few = min(len(t.returns) for t in times) <= FEWEST
        return failures or passed > (SECONDS + 30 if few else SECONDS)

    def write(writer):
        ids, own = ids_of(writer), times[writer]
        for g in range(1, LAST):
            if over():
                return
            own.calls.append(next(clock))
            if g % 2:
                codes = np.full((1, EACH), g)
                target.insert(rc.Subscriptions(schema, ids, codes, codes))
            else:
                target.delete(ids)
            own.returns.append(next(clock))

    def read(name, ask, fits):
        while not over():
            time.sleep(1e-3)  # a lock is not fair, and writers must come in
            call = next(clock)
            answer = ask()
            back = next(clock)
            next(checked)
            if not explained(times, call, back, functools.partial(fits, answer)):
                wrong.append((name, answer))

    def guarded(run, *args):
        try:
            run(*args)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(write, w)) for w in range(WRITERS)]
    threads += [threading.Thread(target=guarded, args=(read, *one)) for one in reads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert not wrong, f"{len(wrong)} wrong answers, the first by {wrong[0][0]}: {wrong[0][1]}"
    return next(checked), sum(len(t.returns) - 1 for t in times)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join([v[0], *map(str, v[1].values())]))
def test_answers_of_an_index_are_of_one_state(variant, restless, tmp_path):
    schema = rc.Schema(rc.Int("a", 0, LAST))
    index = rc.open_index(variant[0], schema, **variant[1])
    events = rc.Events.from_arrays(schema, {"a": np.arange(LAST)})
    some_ids = np.concatenate([ids_of(w) for w in range(WRITERS)])

    def saved():
        index.save(tmp_path / "index")
        return found_pairs(rc.load_index(tmp_path / "index").match(events))

    def pickled():
        again = pickle.loads(pickle.dumps(index))
        pairs = found_pairs(again.match(events))
        assert len(again) == len(pairs)
        return pairs

    def known():
        return some_ids[index.known(some_ids)].tolist()

    def same(answer, state):
        return answer == state

    reads = [
        ("match", lambda: found_pairs(index.match(events)), same),
        ("match by threads", lambda: found_pairs(index.match(events, threads=2)), same),
        ("subscriptions", lambda: asked_numbers(index.subscriptions()), same),
        ("save", saved, same),
        ("pickle", pickled, same),
        ("len", lambda: len(index), lambda answer, state: answer == len(state)),
        ("stats", lambda: index.stats()["subscriptions"], lambda answer, state: answer == len(state)),
        ("in", lambda: 3 in index, lambda answer, state: answer == (3 in state)),
        ("known", known, lambda a, s: a == sorted(s)),
    ]
    checked, writes = run_beside(schema, index, reads)
    assert checked >= len(reads)
    assert writes >= WRITERS * FEWEST
    assert found_pairs(index.match(events)) == asked_numbers(index.subscriptions())


def test_answers_of_a_store_are_of_one_state(restless, tmp_path):
    schema = rc.Schema(rc.Int("a", 0, LAST))
    store = rc.Store.open(tmp_path / "store", schema)
    reads = [
        ("subscriptions", lambda: asked_numbers(store.subscriptions()), lambda a, s: a == s),
        ("len", lambda: len(store), lambda answer, state: answer == len(state)),
        ("in", lambda: 3 in store, lambda answer, state: answer == (3 in state)),
    ]
    checked, writes = run_beside(schema, store, reads)
    assert checked >= len(reads)
    assert writes >= WRITERS * FEWEST
