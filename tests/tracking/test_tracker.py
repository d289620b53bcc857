"""What objects enter, leave and stay in, beside sets in plain Python."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes
from rangecast.tracking import tracker as tracking

SCHEMA = rc.Schema(rc.Int("x"), rc.Int("y"))
HOUR = 3_600_000_000


def boxes(n, seed, first=0, textual=False):
    """Some subscriptions to rectangles of a small plane."""
    rng = np.random.default_rng(seed)
    lows = rng.integers(0, 20, (2, n))
    ids = np.arange(first, first + n)
    if textual:
        ids = pa.array([f"area {i}" for i in ids])
    return rc.Subscriptions(SCHEMA, ids, lows, lows + rng.integers(0, 12, (2, n)))


def moves(n, n_objects, seed):
    rng = np.random.default_rng(seed)
    return [
        {"vehicle": int(key), "x": int(x), "y": int(y)}
        for key, x, y in zip(rng.integers(0, n_objects, n), *rng.integers(0, 30, (2, n)), strict=True)
    ]


class PlainTracker:
    """The same in dicts and sets, one event after the other."""

    def __init__(self):
        self.known = {}

    def update(self, subs, rows, stays=True):
        found = match_boxes(subs, rc.Events.from_rows(SCHEMA, rows))
        changes = []
        for row, now in zip(rows, map(set, found), strict=True):
            before = self.known.get(row["vehicle"], set())
            changes += [("entered", row["vehicle"], i) for i in now - before]
            changes += [("left", row["vehicle"], i) for i in before - now]
            changes += [("stays", row["vehicle"], i) for i in now & before if stays]
            self.known[row["vehicle"]] = now
        return changes


def index_of(subs, kind="auto"):
    index = rc.open_index(kind, SCHEMA)
    index.insert(subs)
    return index


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.lists(st.integers(0, 40), max_size=6))
def test_batches_equal_sets(seed, textual, stays, sizes):
    index = index_of(boxes(30, seed, textual=textual))
    tracker, plain = rc.Tracker(index, "vehicle"), PlainTracker()
    for step, size in enumerate(sizes):
        rows = moves(size, 7, seed + step)
        changes = (
            tracker.update(rows, stays=stays)
            if size
            else tracker.update(rc.Events.from_rows(SCHEMA, []), keys=[], stays=stays)
        )
        assert sorted(changes) == sorted(plain.update(index.subscriptions(), rows, stays))
        # subscriptions come, go and change between the batches
        if step % 2:
            ids = index.subscriptions().ids
            index.delete([ids[k] for k in range(0, len(ids), 5)])
            index.insert(boxes(6, seed + 100 + step, first=25, textual=textual))
    for key, now in plain.known.items():
        assert tracker.subscriptions_of(key).tolist() == sorted(now)
    assert len(tracker) == len(plain.known)


def test_one_at_a_time_equals_batches():
    index = index_of(boxes(50, 1))
    one, many = rc.Tracker(index, "vehicle"), rc.Tracker(index, "vehicle")
    rows = moves(120, 9, 2)
    assert [change for row in rows for change in one.update_one(row)] == list(many.update(rows))
    assert one.stats()["pairs"] == many.stats()["pairs"]


@pytest.mark.parametrize("textual", [False, True])
def test_the_order_of_changes_is_that_of_events_and_ids(textual):
    tracker = rc.Tracker(index_of(boxes(40, 3, textual=textual)), "vehicle")
    changes = tracker.update(moves(60, 5, 4))
    table = changes.to_arrow(event_ids=[f"e{k}" for k in range(60)])
    assert table.column_names == ["event_id", "vehicle", "change", "subscription_id"]
    order = list(zip(changes.events.tolist(), changes.ids.to_pylist(), strict=True))
    assert order == sorted(order)
    assert table["event_id"].to_pylist() == [f"e{k}" for k in changes.events]
    assert len(changes.entered) + len(changes.left) + len(changes.stays) == len(changes)
    assert {word for word, _, _ in changes.left} == {"left"}


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames(kind):
    rows = moves(40, 5, 6)
    index = index_of(boxes(20, 5))
    table = pa.Table.from_pylist(rows)
    if kind == "polars":
        polars = pytest.importorskip("polars")
        frame = polars.from_arrow(table)
    else:
        frame = table.to_pandas() if kind == "pandas" else table
    changes = rc.Tracker(index, "vehicle").update(frame)
    assert list(changes) == list(rc.Tracker(index, "vehicle").update(rows))
    assert len(changes.to_pandas()) == len(changes)


@pytest.mark.parametrize("time", [None, "at"])
def test_a_batch_without_events(time):
    tracker = rc.Tracker(index_of(boxes(5, 1)), "vehicle", time=time, expires=60)
    assert list(tracker.update([])) == []


def test_late_events_change_nothing():
    index = index_of(rc.Subscriptions.parse(SCHEMA, {1: "x < 10", 2: "x > 5"}))
    tracker = rc.Tracker(index, "vehicle", time="at")
    rows = [
        {"vehicle": "a", "x": 1, "at": "2026-01-01T10:00"},
        {"vehicle": "a", "x": 20, "at": "2026-01-01T09:00"},
        {"vehicle": "a", "x": 7, "at": "2026-01-01T10:00"},
    ]
    changes = tracker.update(rows)
    assert list(changes) == [("entered", "a", 1), ("stays", "a", 1), ("entered", "a", 2)]
    assert changes.late.tolist() == [1]
    assert "1 late" in repr(changes)
    again = tracker.update([{"vehicle": "a", "x": 20, "at": "2025-12-31"}])
    assert (len(again), again.late.tolist()) == (0, [0])
    assert tracker.subscriptions_of("a").tolist() == [1, 2]


def test_silent_objects_are_forgotten_and_leave():
    index = index_of(rc.Subscriptions.parse(SCHEMA, {1: "x < 10"}))
    tracker = rc.Tracker(index, "vehicle", time="at", expires=dt.timedelta(hours=1))
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    tracker.update([{"vehicle": k, "x": 1, "at": start + k * dt.timedelta(minutes=20)} for k in range(3)])
    later = {"vehicle": 9, "x": 50, "at": start + dt.timedelta(minutes=61)}
    changes = tracker.update_one(later)
    assert list(changes) == [("left", 0, 1)]
    assert changes.to_arrow()["event_id"].to_pylist() == [None]
    assert len(tracker) == 3
    assert list(tracker.expire(start + dt.timedelta(minutes=30))) == [("left", 1, 1)]
    assert list(tracker.expire((start + dt.timedelta(days=1)).timestamp())) == [("left", 2, 1)]
    assert len(tracker) == 0
    assert list(tracker.update_one({"vehicle": 0, "x": 2, "at": start})) == [("entered", 0, 1)]


def test_room_is_given_back():
    index = index_of(boxes(60, 7))
    tracker = rc.Tracker(index, "vehicle")
    for step in range(60):
        tracker.update(moves(200, 50, step), stays=False)
    held = tracker.stats()
    assert tracker._states.used <= 2 * held["pairs"] + 2 * tracking._SPARE + 200 * 60


@pytest.mark.parametrize("textual", [False, True])
def test_a_saved_tracker_goes_on(tmp_path, textual):
    index = index_of(boxes(40, 8, textual=textual))
    tracker, plain = rc.Tracker(index, "vehicle"), rc.Tracker(index, "vehicle")
    for t in (tracker, plain):
        t.update(moves(80, 9, 9))
    tracker.save(tmp_path / "tracker")
    again = rc.Tracker.load(tmp_path / "tracker", index, expires=60)
    assert (again.key, again.expires, len(again)) == ("vehicle", 60, len(plain))
    rows = moves(80, 12, 10)
    assert list(again.update(rows)) == list(plain.update(rows))


def test_files_of_others_are_refused(tmp_path):
    index = index_of(boxes(10, 8))
    index.save(tmp_path / "index")
    with pytest.raises(rc.StorageError, match="not the file of a tracker"):
        rc.Tracker.load(tmp_path / "index", index)
    tracker = rc.Tracker(index, "vehicle")
    tracker.update(moves(30, 4, 1))
    tracker._states.objects[1, 0] = 10**6
    monkey = tracking._packed
    try:
        tracking._packed = lambda states: states._replace(
            objects=states.objects[:, : len(states.keys)], pool=states.pool[: states.used]
        )
        tracker.save(tmp_path / "crafted")
    finally:
        tracking._packed = monkey
    with pytest.raises(rc.StorageError, match="row must be from 0"):
        rc.Tracker.load(tmp_path / "crafted", index)


@pytest.mark.parametrize("at", ["_silent", "_changes"])
def test_an_update_that_fails_changes_nothing(at, monkeypatch):
    index = index_of(boxes(40, 11))
    tracker, plain = rc.Tracker(index, "vehicle"), PlainTracker()
    plain.update(index.subscriptions(), moves(30, 6, 1))
    tracker.update(moves(30, 6, 1))

    def fail(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rc.Tracker, at, fail)
        with pytest.raises(KeyboardInterrupt):
            tracker.update(moves(50, 20, 2))
    assert len(tracker) == len(plain.known)
    rows = moves(50, 20, 3)
    assert sorted(tracker.update(rows)) == sorted(plain.update(index.subscriptions(), rows))


def test_what_cannot_be_is_refused_and_changes_nothing():
    index = index_of(boxes(10, 12))
    tracker = rc.Tracker(index, "vehicle", limit=3)
    tracker.update(moves(10, 3, 1))
    before = {**tracker.stats(), "bytes": None}
    with pytest.raises(rc.CapacityError, match="above the limit of 3"):
        tracker.update([{"vehicle": 70, "x": 1, "y": 1}])
    with pytest.raises(rc.EventError, match="must stay so, got strings"):
        tracker.update([{"vehicle": "v", "x": 1, "y": 1}])
    with pytest.raises(rc.EventError, match="row 1: an event must have a key"):
        tracker.update([{"vehicle": 1, "x": 1}, {"vehicle": None, "x": 1}])
    with pytest.raises(rc.EventError, match=r"a key must be an int64 or a string, got the number 1\.5"):
        tracker.update([{"vehicle": 1.5, "x": 1}])
    with pytest.raises(rc.EventError, match="no column 'vehicle'"):
        tracker.update([{"car": 1, "x": 1}])
    with pytest.raises(rc.EventError, match="must have the key 'vehicle'"):
        tracker.update_one({"x": 1})
    with pytest.raises(rc.EventError, match="x"):
        tracker.update([{"vehicle": 1, "x": "no number"}])
    with pytest.raises(rc.OptionError, match="give keys"):
        tracker.update(rc.Events.from_rows(SCHEMA, [{"x": 1}]))
    with pytest.raises(rc.OptionError, match="as many as the events"):
        tracker.update(rc.Events.from_rows(SCHEMA, [{"x": 1}]), keys=[1, 2])
    with pytest.raises(rc.EventError, match="must have a time"):
        rc.Tracker(index, "vehicle", time="at").update([{"vehicle": 1, "x": 1, "at": None}])
    for options in ({"key": ""}, {"key": "change"}, {"key": "v", "expires": 0}, {"key": "v", "limit": 0}):
        with pytest.raises(rc.OptionError):
            rc.Tracker(index, **options)
    assert {**tracker.stats(), "bytes": None} == before
