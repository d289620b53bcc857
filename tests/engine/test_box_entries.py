"""Bounds by entry: exact at every limit of what is narrow, and as large as what was said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine import boxes as box_entries
from rangecast.engine import boxes_kernels as kernels
from rangecast.engine.boxes import FEW, BoxEntries, Boxes, EntryArrays, ExpandedBoxes, follow_each_other
from rangecast.engine.boxes_kernels import NARROW
from rangecast.errors import CapacityError, StorageError
from rangecast.model.boxes import DenseBoxes, from_dense
from rangecast.types.attributes import LAST, MISSING, PRESENT
from strategies import int_schema, interval

ENDS = [
    MISSING,
    PRESENT,
    PRESENT + 1,
    -(2**33),
    -1,
    0,
    1,
    NARROW - 1,
    NARROW,
    NARROW + 1,
    LAST - NARROW,
    LAST - 1,
    LAST,
]


def entries_of(lows, highs, loads=1):
    """Dense bounds (d, n) as entries, in one load or several."""
    out = BoxEntries(len(lows))
    for part in np.array_split(np.arange(lows.shape[1]), loads):
        owners = np.arange(len(part), dtype=np.int32)
        out = out.draft()
        out.add(from_dense(DenseBoxes(lows[:, part], highs[:, part], owners)))
    return out


def boxes_of(entries):
    return Boxes(entries.arrays(np.empty(0, np.int32)))


def check(lows, highs, loads=1):
    boxes = boxes_of(entries_of(lows, highs, loads))
    numbers = np.arange(boxes.n)
    for j in range(len(lows)):
        own = boxes.column(j, numbers)
        assert np.array_equal(own[0], lows[j])
        assert np.array_equal(own[1], highs[j])
    assert boxes.bounded(numbers) == ExpandedBoxes(lows, highs, numbers.astype(np.int32), boxes.n).bounded(
        numbers
    )
    return boxes


@given(data=st.data())
def test_what_is_read_is_what_was_added(data):
    d, n = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 8))
    one = st.one_of(interval(), st.tuples(st.sampled_from(ENDS), st.sampled_from(ENDS)).map(sorted))
    ends = np.array([[data.draw(one) for _ in range(n)] for _ in range(d)], np.int64)
    check(ends[:, :, 0].copy(), ends[:, :, 1].copy(), data.draw(st.integers(1, 3)))


@pytest.mark.parametrize(("span", "words"), [(NARROW - 1, 4), (NARROW, 4), (NARROW + 1, 8)])
def test_ends_are_narrow_up_to_the_limit(span, words):
    low = -(2**40)
    lows, highs = np.array([[low, low + span]]), np.array([[low + 1, low + span + 1]])
    entries = entries_of(np.array([[low, low + span - 1]]), np.array([[low + 1, low + span]]))
    assert entries.sizes()["bounds"] == 4 * words
    check(lows, highs)


def test_what_lies_beyond_the_base_is_wide():
    entries = entries_of(np.array([[10]]), np.array([[20]]))
    arrays = entries.arrays(np.empty(0, np.int32))
    base = int(arrays.bases[0])
    # with the same heads two words each; otherwise three, and five where ends are wide
    for low, words in ((base, 4), (base - 1, 8), (base + NARROW - 1, 4), (base + NARROW, 8)):
        more = entries.draft()
        more.add(from_dense(DenseBoxes(np.array([[low]]), np.array([[low + 1]]), np.zeros(1, np.int32))))
        assert more.sizes()["bounds"] == 4 * words
        assert [end.tolist() for end in boxes_of(more).column(0, np.arange(2))] == [[10, low], [20, low + 1]]


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (7, 7, 1),
        (7, LAST, 1),
        (PRESENT, 7, 1),
        (PRESENT, LAST, 1),
        (MISSING, MISSING, 1),
        (MISSING, 7, 1),
        (7, 8, 2),
    ],
)
def test_each_kind_takes_the_ends_that_it_needs(low, high, words):
    boxes = check(np.array([[low, MISSING]]), np.array([[high, LAST]]))
    assert entries_of(np.array([[low]]), np.array([[high]])).sizes()["bounds"] == 4 * words
    codes = np.array([[MISSING, PRESENT, 6, 7, 8, LAST]])
    found = [bool(kernels.holds(boxes.arrays, 0, codes, codes[0, :0], e)) for e in range(6)]
    assert found == [low <= code <= high for code in codes[0].tolist()]
    assert found == [bool(kernels.holds_value(boxes.arrays, 0, 0, code)) for code in codes[0].tolist()]
    assert kernels.holds(boxes.arrays, 1, codes, codes[0, :0], 0)


@given(data=st.data())
def test_heads_are_shared_while_all_have_the_same(data):
    """Loads of ranges and equalities on the same attributes, then perhaps one that differs."""
    d = data.draw(st.integers(1, 3))
    n_loads = data.draw(st.integers(1, 4))
    kind = st.sampled_from([(0, 1), (0, 0), (0, LAST), (PRESENT, 0), (MISSING, 0), (MISSING, LAST)])
    usual = [data.draw(kind) for _ in range(d)]
    lows, highs = [], []
    for _ in range(n_loads):
        one = [data.draw(kind) for _ in range(d)] if data.draw(st.integers(0, 3)) == 0 else usual
        shift = data.draw(st.sampled_from([0, 5, 2**33]))
        lows.append([low + shift if low == 0 else low for low, _ in one])
        highs.append([high + shift if high in (0, 1) else high for _, high in one])
    check(np.array(lows, np.int64).T.copy(), np.array(highs, np.int64).T.copy(), n_loads)


def test_an_equality_among_ranges_shares_their_head():
    lows, highs = np.array([[7, 3, 5], [1, 1, 1]]), np.array([[7, 4, 5], [1, 1, 1]])
    entries = entries_of(lows, highs)
    assert entries.sizes()["bounds"] == 4 * 3 * (2 + 1)
    check(lows, highs)
    # once an equality alone was the first there is no other end
    entries = entries_of(lows[:, :1], highs[:, :1])
    entries.add(from_dense(DenseBoxes(lows[:, 1:], highs[:, 1:], np.arange(2, dtype=np.int32))))
    assert [end.tolist() for end in boxes_of(entries).column(0, np.arange(3))] == [[7, 3, 5], [7, 4, 5]]


def test_many_boxes_are_turned_around_once():
    rng = np.random.default_rng(4)
    n = FEW + 100
    lows = rng.integers(0, 1000, (3, n))
    highs = lows + 5
    check(lows, highs)
    lows[1, ::3], highs[1, ::3] = MISSING, LAST
    boxes = check(lows, highs)
    picked = rng.permutation(n)[: FEW + 1]
    assert np.array_equal(boxes.column(1, picked)[0], lows[1, picked])
    attributes = rng.integers(0, 3, 50)
    assert np.array_equal(boxes.bounds_at(attributes, picked[:50])[1], highs[attributes, picked[:50]])


def test_too_many_words_are_refused(monkeypatch):
    monkeypatch.setattr(box_entries, "MOST_WORDS", 4)
    entries = entries_of(np.array([[1, 2]]), np.array([[3, 4]]))
    with pytest.raises(CapacityError, match="at most 4 words of 32 bits, got 6"):
        entries.add(from_dense(DenseBoxes(np.array([[1]]), np.array([[3]]), np.zeros(1, np.int32))))
    assert boxes_of(entries).n == 2


@pytest.mark.parametrize(
    "change",
    [{"words": np.array([9, 1], np.uint32)}, {"words": np.array([1 << 28], np.uint32)}, {"n": 5}, {"n": -1},
     {"words": np.array([7 << 28], np.uint32)}, {"bases": np.array([LAST])}, {"stride": -1},
     {"starts": np.array([0, 3, 9], np.uint32)}, {"heads": np.array([1], np.uint32)}],
)  # fmt: skip
def test_damaged_entries_are_refused(change):
    stored = entries_of(np.array([[1, 2]]), np.array([[3, LAST]])).stored()
    assert BoxEntries.take(stored, 1).n == 2
    with pytest.raises(StorageError):
        BoxEntries.take(stored._replace(**change), 1)


def lengths_of(words, start, end):
    """The words of each entry from start on, until one ends at `end` or behind it."""
    out, p = [], start
    while p < end:
        head = int(words[p])
        ends = {kernels.BETWEEN: 2, kernels.ANY: 0, kernels.ABSENT: 0}.get(head >> 28 & 7, 1)
        out.append(1 + ends * (2 if head >> 31 else 1))
        p += out[-1]
    return out


@given(st.data())
def test_whatever_the_words_are_kernels_stay_within_them(data):
    """Words of no meaning are refused where an entry would reach beyond them, and are else some bounds."""
    heads = st.builds(
        lambda kind, j: kind << 28 | j, st.integers(0, 15), st.sampled_from([0, 1, 2, 2**28 - 1])
    )
    words = np.array(data.draw(st.lists(heads, min_size=1, max_size=12)), np.uint32)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(words)), max_size=4)))
    starts = np.array([0, *cuts, len(words)], np.uint32)
    n = len(starts) - 1
    stored = EntryArrays(
        words, np.empty(0, np.uint32), starts, np.zeros(2, np.int64), np.ones(2, np.uint8), 0, n
    )
    lengths = [lengths_of(words, int(starts[b]), int(starts[b + 1])) for b in range(n)]
    beyond = any(int(starts[b]) + sum(own) > len(words) for b, own in enumerate(lengths))
    try:
        entries = BoxEntries.take(stored, 2)
    except StorageError:
        assert any(
            sum(own) != end - start for own, start, end in zip(lengths, starts, starts[1:], strict=False)
        )
        return
    assert not beyond
    found = entries.read(np.arange(n), np.arange(n, dtype=np.int32))
    assert np.diff(found.starts).tolist() == [len(own) for own in lengths]
    assert ((found.attributes >= 0) & (found.attributes < 2)).all()


@pytest.mark.parametrize(
    "change",
    [{"words": np.array([9, 1], np.uint32)}, {"n": 3}, {"stride": 1}, {"heads": np.array([1], np.uint32)},
     {"heads": np.array([7 << 28], np.uint32)}, {"heads": np.array([1 << 31], np.uint32)},
     {"heads": np.array([4 << 28], np.uint32), "stride": 0}, {"heads": np.array([0])},
     {"starts": np.array([0, 2, 4], np.uint32)}],
)  # fmt: skip
def test_damaged_heads_are_refused(change):
    stored = entries_of(np.array([[1, 2]]), np.array([[3, 4]])).stored()
    assert len(stored.heads) == 1
    assert BoxEntries.take(stored, 1).n == 2
    with pytest.raises(StorageError):
        BoxEntries.take(stored._replace(**change), 1)


@pytest.mark.parametrize("kind", ["auto", "scan"])
def test_a_wide_schema_costs_what_is_said(kind, tmp_path):
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(300)))
    rng = np.random.default_rng(8)
    texts = {}
    for i in range(400):
        names = rng.choice(300, 4, replace=False)
        first = f"a{names[0]} = {rng.integers(0, 9)}"
        texts[i] = " and ".join(
            [
                first,
                *(
                    f"a{j} between {k} and {k + 6}"
                    for j, k in zip(names[1:], rng.integers(0, 9, 3), strict=True)
                ),
            ]
        )
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index(kind, schema)
    index.insert(subs)
    sizes = index.stats()["catalog"]
    assert sizes["bounds"] == 400 * 4 * (2 + 3 * 3)
    assert "box_slots" not in sizes
    assert "alive" not in sizes
    rows = [{f"a{j}": int(rng.integers(0, 15)) for j in range(300)} for _ in range(12)]
    events = rc.Events.from_rows(schema, rows)
    want = [sorted(row) for row in match_boxes(subs, events)]
    assert sum(map(len, want)) > 5
    assert rows_of(index.match(events)) == want
    assert rows_of(index.match(events.select([0]))) == want[:1]
    index.save(tmp_path / "i")
    assert rows_of(rc.load_index(tmp_path / "i").match(rc.Events.from_rows(index.schema, rows))) == want
    index.delete([0, 1])
    assert index.stats()["catalog"]["alive"] == 400
    assert sorted(index.subscriptions().ids.values.tolist()) == list(range(2, 400))


def test_several_boxes_bring_what_they_need():
    schema = int_schema(2)
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "a0 < 3", 2: "a1 = 5"}))
    assert "first_boxes" not in index.stats()["catalog"]
    index.insert(rc.Subscriptions.parse(schema, {3: "a0 > 2 or a1 > 4"}))
    assert {"first_boxes", "box_slots", "overlapping"} < set(index.stats()["catalog"])
    events = rc.Events.from_rows(schema, [{"a0": 1, "a1": 5}, {"a0": 3, "a1": 6}, {"a0": 1}])
    assert rows_of(index.match(events)) == [[1, 2, 3], [3], [1]]
    assert "a0 > 2" in str(index.explain(3, {"a0": 3}))


@given(data=st.data(), threads=st.integers(1, 3), before=st.integers(0, 3))
def test_a_large_load_by_several_threads(data, threads, before):
    n, odd = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 25))
    rng = np.random.default_rng(n)
    lows = rng.integers(0, 9, (2, n + before))
    highs = lows + rng.integers(1, 9, (2, n + before))
    if odd < n:  # one that does not share its heads with the others
        highs[1, odd] = LAST
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box_entries, "CHUNK", 4)
        entries = BoxEntries(2)
        entries.threads = threads
        for part in (slice(0, before), slice(before, None)):
            owners = np.arange(lows[:, part].shape[1], dtype=np.int32)
            entries.add_dense(DenseBoxes(lows[:, part].copy(), highs[:, part].copy(), owners))
    boxes = boxes_of(entries)
    assert boxes.n == n + before
    for j in range(2):
        own = boxes.column(j, np.arange(boxes.n))
        assert np.array_equal(own[0], lows[j])
        assert np.array_equal(own[1], highs[j])


@given(data=st.data())
def test_a_large_load_is_the_same_by_any_number_of_threads(data):
    kinds = [(0, 5), (3, 3), (2, LAST), (PRESENT, 7), (MISSING, 7), (MISSING, LAST), (LAST - 1, LAST)]
    kinds += [(0, NARROW), (1, NARROW + 1), (LAST - NARROW, LAST - 1), (PRESENT, LAST), (MISSING, MISSING)]
    usual = data.draw(st.tuples(st.sampled_from(kinds), st.sampled_from(kinds)))
    boxes = [list(usual) for _ in range(data.draw(st.integers(1, 14)))]
    for _ in range(data.draw(st.integers(0, 2))):
        boxes[data.draw(st.integers(0, len(boxes) - 1))][data.draw(st.integers(0, 1))] = data.draw(
            st.sampled_from(kinds)
        )
    lows, highs = (np.array([[one[j][k] for one in boxes] for j in range(2)]) for k in range(2))
    stored = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box_entries, "CHUNK", 4)
        for threads in (1, 3):
            entries = BoxEntries(2)
            entries.threads = threads
            entries.add_dense(DenseBoxes(lows, highs, np.arange(len(boxes), dtype=np.int32)))
            stored.append(entries.stored())
            for j in range(2):
                own = boxes_of(entries).column(j, np.arange(len(boxes)))
                assert np.array_equal(own[0], lows[j])
                assert np.array_equal(own[1], highs[j])
            dense = ExpandedBoxes(lows, highs, np.arange(len(boxes), dtype=np.int32), len(boxes))
            numbers = np.arange(len(boxes))
            assert boxes_of(entries).bounded(numbers) == dense.bounded(numbers)
            assert boxes_of(entries).count_entries(numbers) == len(
                from_dense(DenseBoxes(lows, highs, numbers)).lows
            )
    for one, other in zip(*stored, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("n", [1, 2, 4096, 4097, 4098, 9000])
def test_numbers_that_follow_each_other(n, kind):
    numbers = np.arange(5, 5 + n, dtype=kind)
    assert follow_each_other(numbers)
    for k in {1, 4095, 4096, 4097, n - 2} & set(range(1, n - 1)):
        other = numbers.copy()
        other[k] += 1
        assert not follow_each_other(other)
