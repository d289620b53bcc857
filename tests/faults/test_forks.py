"""A process that is forked while a thread of its parent writes: it goes on or refuses, and never hangs."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import rangecast as rc
from rangecast.durable import lock
from strategies import int_schema, random_events, random_subscriptions

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")]

SCHEMA = int_schema(2)


def in_child(work, seconds=20):
    """What a forked process returns from `work` as a text, "hangs" if it does not end."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                said = str(work())
            except rc.RangecastError as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writer, said.encode())
        finally:
            os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.005)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        return "hangs"
    with os.fdopen(reader, "rb") as file:
        return file.read().decode()


class Writing:
    """A thread that stands still inside a `with` of something, until the block ends."""

    def __init__(self, holding):
        self._holding = holding
        self._inside, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with self._holding:
            self._inside.set()
            self._leave.wait()

    def __enter__(self):
        self._thread.start()
        self._inside.wait()

    def __exit__(self, *_):
        self._leave.set()
        self._thread.join()


@pytest.mark.parametrize("name", ["scan", "rtree"])
def test_an_index_that_was_being_changed_refuses(name):
    index = rc.open_index(name, SCHEMA)
    index.insert(random_subscriptions(SCHEMA, 50, seed=1))
    known = index.subscriptions().ids[0]
    with Writing(index._lock):
        said = in_child(lambda: index.delete([known]))
        assert said.startswith("ForkError: <")
        assert "was being used by another thread when this process was forked" in said
        if name == "scan":
            # the published state is whole, and is matched without a lock
            events = random_events(SCHEMA, 5, seed=2)
            assert in_child(lambda: index.match(events).n_pairs) == str(index.match(events).n_pairs)
    assert in_child(lambda: index.delete([known])) == "[]"


def test_a_store_goes_on_from_what_is_on_disk(tmp_path):
    store = rc.Store.open(tmp_path / "s", SCHEMA, index="scan", wait=0.2)
    store.insert(random_subscriptions(SCHEMA, 50, seed=1))
    known = store.subscriptions().ids[0]
    with Writing(store._guard):
        assert in_child(lambda: (len(store), store.version)) == "(50, 1)"
        assert in_child(lambda: store.delete([known])) == "[]"
    with Writing(store.writing()):
        assert in_child(lambda: len(store)) == "49"
        assert in_child(lambda: store.delete([4])).startswith("LockedError: ")
    assert (len(store), store.version) == (49, 2)


def test_a_child_does_not_hold_the_lock_of_a_parent_that_is_gone(tmp_path):
    with lock.holding(tmp_path / "lock", 0):
        child = os.fork()
        if not child:
            time.sleep(5)
            os._exit(0)
        # as it ends with the process that held it
        handle = max(lock._open)
        os.close(handle)
        lock._open.discard(handle)
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            try:
                with lock.holding(tmp_path / "lock", 0):
                    break
            except lock.LockedError:
                time.sleep(0.01)
        else:
            pytest.fail("the child holds the lock")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_follower_and_a_vocabulary_go_on(tmp_path):
    store = rc.Store.open(tmp_path / "s", SCHEMA, index="scan")
    store.insert(random_subscriptions(SCHEMA, 50, seed=1))
    follower = rc.Follower(store.path)
    assert len(follower.at(1)) == 50
    with Writing(follower._lock):
        assert in_child(lambda: len(follower.at(1))) == "50"
    category = rc.Category("symbol", ["a"])
    with Writing(category.vocabulary._lock):
        assert in_child(lambda: category.vocabulary.add("b")) == "2"


def test_memory_for_answers_goes_on():
    from rangecast import memory

    with Writing(memory._lock):
        assert in_child(lambda: len(memory.empty(1 << 20, np.int64))) == str(1 << 20)


def test_a_tracker_that_was_being_changed_refuses():
    index = rc.open_index("scan", SCHEMA)
    index.insert(random_subscriptions(SCHEMA, 50, seed=1))
    tracker = rc.Tracker(index, "key")
    rows = [{"key": 1, **dict.fromkeys(SCHEMA.names, 5)}]
    tracker.update(rows)
    with Writing(tracker._lock):
        said = in_child(lambda: tracker.update(rows))
        assert said.startswith("ForkError: Tracker(key='key') was being used")
    assert in_child(lambda: len(tracker)) == "1"
