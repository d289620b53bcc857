"""Catching up comes second: how long it rests, whom it serves once, and what it has ready beforehand."""

import gc
import subprocess
import sys
import threading
from collections import deque
from types import SimpleNamespace

import pytest

pytest.importorskip("msgspec")

import rangecast as rc
from rangecast.broker import catch_up, server
from rangecast.broker.catch_up import CatchUp
from rangecast.broker.directory import Directory
from rangecast.broker.pump import Pump


class Space:
    """As much of a space as the catch-up thread asks for its rests."""

    def __init__(self):
        self.name = "main"
        self.schema = rc.Schema(rc.Int("n"))
        self.directory = Directory()
        self.lock = threading.RLock()
        self.index = rc.open_index("auto", self.schema)
        self.log = SimpleNamespace(first=1, durable=1)
        self.pump = SimpleNamespace(live=True, late=0.0, matched=1)


@pytest.fixture
def resting(monkeypatch):
    """A catch-up thread that is not started, and how long it has rested."""
    thread = CatchUp(Space())
    rests = []
    monkeypatch.setattr(thread._stop, "wait", rests.append)
    return thread, rests


def test_a_rest_grows_with_the_lateness_of_the_live_and_has_an_end(resting):
    thread, rests = resting
    for late in (0.0, 0.1, 0.3, 5.0):
        thread._space.pump.late = late
        thread._rest(0.02, 10, busy=True)
    assert rests == pytest.approx([0.02, 0.04, 0.12, 0.2])
    # the share of a long round is as small, and nobody waits for minutes
    thread._rest(0.7, 10, busy=True)
    assert rests[-1] == catch_up._LONGEST_REST


def test_what_the_event_loop_spends_on_a_round_is_rested_for_once(resting):
    thread, rests = resting
    thread._writing = 0.03
    thread._rest(0.02, 10, busy=True)
    thread._rest(0.02, 10, busy=True)
    assert rests == pytest.approx([0.05, 0.02])


def test_a_round_between_two_matches_is_in_busy_times(resting, monkeypatch):
    """A round may take less time than there is between two matches: every other one rested for nobody."""
    thread, _ = resting
    clock = [100.0]
    monkeypatch.setattr("rangecast.broker.catch_up.time.monotonic", lambda: clock[0])
    seen = []
    for clock[0], matched in (
        (100.0, 5),
        (100.3, 5),
        (100.9, 5),
        (101.2, 5),
        (101.5, 6),
        (102.4, 6),
        (102.6, 6),
    ):
        thread._space.pump.matched = matched
        seen.append(thread._is_busy())
    assert seen == [True, True, True, False, True, True, False]


def test_rounds_that_take_long_are_followed_by_smaller_ones_while_anybody_is_live(resting):
    thread, _ = resting
    replay = thread._replay
    for took, most in ((0.12, 8_192), (0.06, 16_384), (0.04, 32_768)):
        replay.most = 16_384
        thread._rest(took, 10, busy=True)
        assert replay.most == most
    thread._space.pump.live = False
    thread._rest(0.5, 10, busy=False)
    assert replay.most == 65_536


def test_nobody_rests_for_others_that_are_not_there(resting, monkeypatch):
    thread, rests = resting
    waits = []
    monkeypatch.setattr(thread._wake, "wait", waits.append)
    thread._rest(0.02, 10, busy=False)  # all have what was made for them: on with it
    assert (rests, waits) == ([], [0.02])
    thread._taking = set(range(30))
    thread._rest(0.02, 10, busy=False)  # most are taking: they gather
    assert rests == pytest.approx([0.02])


@pytest.mark.parametrize(
    ("unmatched", "published", "late"),
    [([], [], 0.5), ([7.0, 9.0], [9.5], 3.0), ([], [9.0], 1.0), ([9.8], [], 0.5)],
)
def test_how_late_the_live_are(monkeypatch, unmatched, published, late):
    """The age of the oldest event that is not written, or the latency of the last ones."""
    monkeypatch.setattr("rangecast.broker.pump.time.perf_counter", lambda: 10.0)
    pump = object.__new__(Pump)
    pump._latency = 0.5
    pump._unmatched = [SimpleNamespace(received=moment) for moment in unmatched]
    pump._publications = deque(SimpleNamespace(received=moment) for moment in published)
    assert pump.late == pytest.approx(late)


def test_memory_is_settled_once_all_is_loaded():
    before = gc.get_threshold()
    try:
        server.settle_memory()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == 50_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


# A process of its own: whatever is asked for here first is loaded or compiled here.
FIRST_USES = """
import sys
from types import SimpleNamespace
import numpy as np
from numba.core.dispatcher import Dispatcher
import rangecast as rc
from rangecast.broker import catch_up as replay
from rangecast.broker.access import SpaceLimits
from rangecast.broker.bodies import read_events
from rangecast.broker.metrics import Metrics, SpaceMetrics
from rangecast.broker.space import Space
from pathlib import Path

folder = Path(sys.argv[1])
schema = rc.Schema(rc.Category("symbol"), rc.Int("price"))
Space.create(folder, schema, SpaceLimits())
source = np.random.default_rng(1)
store = rc.Store.open(folder / "store")
many = 60_000
texts = [
    f"symbol = 'S{s}' and price between {low} and {low + 2000}"
    for s, low in zip(source.integers(0, 1000, many).tolist(), source.integers(0, 10**6, many).tolist())
]
ids = [f"c{k % 600}/n{k}" for k in range(many)]
store.insert(rc.Subscriptions.parse(store.schema, ids=ids, texts=texts))
space = Space(folder, SpaceLimits(), SpaceMetrics(Metrics(), "main"))
for _ in range(4):
    lines = b"\\n".join(
        b'{"symbol":"S%d","price":%d}' % (s, p)
        for s, p in zip(source.integers(0, 1000, 5000).tolist(), source.integers(0, 10**6, 5000).tolist())
    )
    found = read_events(lines, "application/x-ndjson", space.schema, space.limits)
    batch = found.events.encoded(space.index.schema)
    space.log.append(batch.codes, found.body, space.directory.version, owners=batch.owners)
space.log.sync()

asked = []
compile = Dispatcher.compile
Dispatcher.compile = lambda self, types: asked.append(self.py_func.__name__) or compile(self, types)
serves = replay.Replay(space.log, space.directory, space.schema, space.lock, space.index)
serves.size = serves.most = 20_000
given = 0
for n in (1, 20, 70, 74, 500):
    group = [SimpleNamespace(number=space.directory.consumer(f"c{k}"), position=1) for k in range(n)]
    given += sum(len(one.data) > 0 for one in serves.serve(group))
assert given > 500, given
print("first uses:", sorted(set(asked)))
"""


@pytest.mark.once
def test_catching_up_waits_for_no_kernel(tmp_path):
    command = [sys.executable, "-c", FIRST_USES, str(tmp_path / "main")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip().endswith("first uses: []"), answer.stdout
