"""Lists by value of one word per box: which boxes get them, and that they answer as the scan does."""

import pickle

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine.layouts import lists as word_lists
from rangecast.engine.layouts.lists import EqualityPart, WordListsPart
from rangecast.engine.parts import StaticIndex
from rangecast.errors import StorageError
from rangecast.simd.compiler import kernel
from rangecast.simd.lanes import TOGETHER, keep_words, words_one_by_one

SCHEMA = rc.Schema(rc.Int("key"), rc.Int("small", 0, 99), rc.Int("large"), rc.Float("price"))


@kernel
def _keep(words, first, value, guard, mask, add, out, to):
    return keep_words(words, first, value, guard, mask, add, out, to)


class Lists(StaticIndex):
    """Every subscription in the list of its key."""

    name = "lists"

    expands = False

    def _build(self, boxes, numbers):
        return word_lists.build_lists(boxes, numbers, 0)


def subscriptions(n: int, seed: int, ids=None, spread: int = 1, other: str = "price") -> rc.Subscriptions:
    """Keys of which many have four boxes or a few more; one side, both or none bounded."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 1 + n // 5, n) * spread
    lows, highs = {"key": keys}, {"key": keys}
    for name, top, scale in (("small", 99, 1), ("large", 40_000, 1), ("price", 30, 0.5)):
        if name in ("small", other):
            low = rng.integers(0, top, n).astype(np.float64)
            high = low + rng.integers(0, 1 + top // 2, n)
            low[rng.random(n) < 0.4] = np.nan
            high[rng.random(n) < 0.4] = np.nan
            lows[name], highs[name] = low * scale, high * scale
    return rc.Subscriptions.from_arrays(SCHEMA, np.arange(n) if ids is None else ids, lows, highs)


def batch(n: int, m: int, seed: int, spread: int = 1) -> rc.Events:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(m):
        row = {
            "key": int(rng.integers(-3, 4 + n // 5)) * spread,
            "small": int(rng.integers(-2, 103)),
            "large": int(
                rng.choice([-(2**62), -1, 0, 39_999, 40_000, 59_998, 2**62, rng.integers(0, 60_000)])
            ),
            "price": float(rng.choice([-np.inf, np.inf, -0.5, rng.integers(0, 50) / 2, rng.random() * 25])),
        }
        rows.append({name: value for name, value in row.items() if rng.random() > 0.07})
    return rc.Events.from_rows(SCHEMA, rows)


def check(index: rc.Index, events: rc.Events) -> None:
    scan = rc.open_index("scan", SCHEMA)
    scan.insert(index.subscriptions())
    expected = scan.match(events)
    assert index.match(events) == expected
    assert index.match(events, threads=2) == expected
    # ids are written at once, slots made of them, or the other way round
    found = index.match(events)
    named = found.names.take(found.slots)
    assert named.tolist() == found.ids.tolist()
    assert [sorted(found.row(e).tolist()) for e in range(4)] == [
        sorted(index.match(events.select(np.array([e]))).ids.tolist()) for e in range(4)
    ]


@pytest.mark.parametrize("spread", [1, 1_000_003])
@pytest.mark.parametrize("other", ["large", "price"])
@pytest.mark.parametrize("kind", ["counted", "names", "gaps"])
def test_lists_of_words_equal_the_scan_through_changes(spread, other, kind, size):
    def named(count, first):
        numbers = np.arange(first, first + count)
        return {"names": [f"s{k}" for k in numbers], "gaps": numbers * 3}.get(kind, numbers)

    n = max(size(3000), 700)
    index = Lists(SCHEMA)
    index.insert(subscriptions(n, 1, named(n, 0), spread, other))
    part = index._state.parts[0].part
    assert isinstance(part, WordListsPart)
    assert sorted(part.members.tolist()) == list(range(n))
    events = batch(n, 300, 2, spread)
    check(index, events)
    chosen = np.random.default_rng(3).choice(n, n // 8, replace=False)
    index.delete([named(n, 0)[k] for k in chosen.tolist()])
    swept = index._state.parts[0].part
    assert swept is not part
    assert len(swept.members) == n - n // 8
    check(index, events)
    # a second part if this one is large, and a tail behind it
    index.insert(subscriptions(n // 60, 4, named(n // 60, 10 * n), spread, other))
    index.insert(subscriptions(9, 5, named(9, 20 * n), spread, other))
    check(index, events)
    check(pickle.loads(pickle.dumps(index)), events)


def test_other_parts_stand_behind_the_first(size):
    n = size(30_000)
    index = Lists(SCHEMA)
    index.insert(subscriptions(n, 1))
    index.insert(subscriptions(600, 4, np.arange(2 * n, 2 * n + 600)))
    index.insert(subscriptions(9, 5, np.arange(3 * n, 3 * n + 9)))
    assert len(index._state.parts) == (2 if n > 600 * 32 else 1)
    assert index._state.tail == 9
    check(index, batch(500, 300, 2))


def test_an_answer_larger_than_the_room_for_it(size):
    n, m = size(2000), 300
    keys = {"key": np.full(n, 5)}
    index = Lists(SCHEMA)
    index.insert(
        rc.Subscriptions.from_arrays(SCHEMA, np.arange(n), {**keys, "small": np.arange(n) % 7}, keys)
    )
    rows = [{"key": 5 if e % 3 else 6, "small": e % 9} for e in range(m)]
    check(index, rc.Events.from_rows(SCHEMA, rows))


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 9, 40])
def test_lists_of_any_length(n):
    keys = np.repeat(np.arange(23), n)
    lows = np.arange(len(keys)) % 7
    sides = {"key": keys, "small": lows}, {"key": keys, "small": lows + np.arange(len(keys)) % 3}
    index = Lists(SCHEMA)
    index.insert(rc.Subscriptions.from_arrays(SCHEMA, np.arange(len(keys)), *sides))
    rows = [{"key": 22 - k % 25, "small": k % 10 if k % 11 else None} for k in range(300)]
    check(index, rc.Events.from_rows(SCHEMA, rows))


@pytest.mark.parametrize("other", ["large", "price"])
@pytest.mark.parametrize("step", [2, 3, 40])
def test_keys_of_which_few_have_a_list(step, other, size, monkeypatch):
    n = max(size(3000), 700)
    index = Lists(SCHEMA)
    index.insert(subscriptions(n, 6, None, step, other))
    lists = index._state.parts[0].part.lists
    assert lists.dense is (step < 40)
    assert 2 * len(lists.values) < len(lists.table) or step == 2
    events = batch(step * n, 700, 7)
    check(index, events)
    # more than there is room for, from an event on that begins a block
    part = index._state.parts[0].part
    part._per_event = 0.0
    monkeypatch.setattr(word_lists, "_ROOM", 64)
    check(index, events)
    # what is swept has the room that was needed before
    assert part._per_event > 0 or step == 40
    index.delete(np.arange(0, n, 50))
    swept = index._state.parts[0].part
    assert swept is not part
    assert swept._per_event == part._per_event
    check(index, events)


@pytest.mark.parametrize("gap", [None, 0, 7])
@pytest.mark.parametrize("least", [-(2**62), 0, 2**62 - 39])
def test_keys_that_follow_one_another(least, gap):
    n = 800
    keys = least + np.arange(n) % 40
    if gap is not None:
        keys[keys == least + gap] += 1
    lows, highs = {"key": keys, "small": np.arange(n) % 50}, {"key": keys, "small": np.arange(n) % 50 + 9}
    index = Lists(SCHEMA)
    index.insert(rc.Subscriptions.from_arrays(SCHEMA, np.arange(n), lows, highs))
    lists = index._state.parts[0].part.lists
    assert lists.dense
    assert (len(lists.table) == len(lists.values)) is (gap != 7)
    asked = [-(2**62), -1, 2**62, *range(max(least - 2, -(2**62)), min(least + 43, 2**62))]
    rows = [{"key": key, "small": small} for key in asked for small in (0, 20, 58, 59)]
    check(index, rc.Events.from_rows(SCHEMA, [{"small": 3}, {"key": least}, *rows]))


def test_bounds_that_do_not_fit_a_word_stay_beside_it():
    rng = np.random.default_rng(7)
    n = 700
    keys, wide = rng.integers(0, 90, n), rng.integers(0, 2**30, n)
    index = Lists(SCHEMA)
    index.insert(
        rc.Subscriptions.from_arrays(
            SCHEMA, np.arange(n), {"key": keys, "large": wide}, {"key": keys, "large": wide + 10**6}
        )
    )
    assert isinstance(index._state.parts[0].part, EqualityPart)
    check(index, batch(450, 200, 8))


def test_words_are_kept_as_one_by_one():
    mask, guard, value = np.uint64(15), np.uint64(1 << 8), np.uint64(1 << 8 | 5 << 4 | 15)
    for held in range(1 << TOGETHER):
        # they are the last of the array, so that whoever read more would be found out
        words = np.full(3 + TOGETHER, 5 << 4, np.uint64)
        words[3:] = [(5 if held >> k & 1 else 6) << 4 | k + 1 for k in range(TOGETHER)]
        for dtype in (np.int32, np.int64):
            kept = []
            for keep in (_keep, words_one_by_one):
                out = np.full(2 + TOGETHER + 2, -1, dtype)
                n = keep(words, np.uint64(3), value, guard, mask, 100, out, np.uint64(2))
                assert out[:2].tolist() == [-1, -1]
                assert (out[2 + TOGETHER :] == -1).all()
                kept.append(out[2 : 2 + int(n)].tolist())
            assert kept == [[101 + k for k in range(TOGETHER) if held & 1 << k]] * 2


@pytest.mark.parametrize(
    ("field", "spoil"),
    [
        ("words", lambda words: words | np.uint64(2**64 - 1)),
        ("starts", lambda starts: starts[::-1].copy()),
        ("ends", lambda ends: ends + 3),
        ("ends", lambda ends: ends[:0]),
        ("table", lambda table: table + 10**6),
        ("member_bits", lambda bits: 64),
        ("member_bits", lambda bits: -1),
        ("on", lambda on: 17),
    ],
)
def test_crafted_words_are_rejected(field, spoil):
    index = Lists(SCHEMA)
    index.insert(subscriptions(700, 1))
    part, boxes = index._state.parts[0].part, index._state.catalog.boxes
    part.check(boxes, 700)
    lists = part.lists._replace(**{field: spoil(getattr(part.lists, field))})
    with pytest.raises(StorageError, match=r"must .*save it again"):
        WordListsPart(part.packed, lists).check(boxes, 700)
