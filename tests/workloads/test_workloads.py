"""The named workloads: the same data for the same seed, the sizes asked for, and the traits they promise."""

from pathlib import Path

import numpy as np
import pytest

import rangecast as rc
from rangecast import workloads
from rangecast.workloads import workload
from rangecast.workloads.applications import zipf_shares

pytestmark = pytest.mark.without_kernels

NAMES = workloads.names()
PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def unbounded(column):
    if column.dtype == object:
        return np.equal(column, None)
    return np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)


def matching(w, event):
    """Which subscriptions match an event, column by column on the plain arrays."""
    held = np.ones(w.n_subscriptions, bool)
    for bounds, compare in ((w.lows, np.less_equal), (w.highs, np.greater_equal)):
        for name, column in bounds.items():
            value = w.columns[name][event]
            # NaN, NaT and None compare as false, which is what a missing value must give
            within = column == value if column.dtype == object else compare(column, value)
            held &= unbounded(column) | within
    return held


def share_matching(w):
    return np.mean([matching(w, event).mean() for event in range(w.n_events)])


def lengths(w, name="value"):
    return w.highs[name] - w.lows[name]


def same(one, other):
    if one.dtype.kind == "M":
        one, other = one.astype(np.int64), other.astype(np.int64)
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_the_same_data_again(name):
    one, other, changed = (workload(name, 200, 50, seed=seed) for seed in (3, 3, 4))
    for part in ("lows", "highs", "columns"):
        a, b = getattr(one, part), getattr(other, part)
        assert list(a) == list(b)
        assert all(same(a[k], b[k]) for k in a)
    assert any(not same(one.columns[k], changed.columns[k]) for k in one.columns)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n", "m"), [(300, 70), (1, 1), (0, 5), (5, 0)])
def test_sizes_are_as_asked(name, n, m):
    w = workload(name, n, m)
    assert (w.n_subscriptions, w.n_events, w.name) == (n, m, name)
    assert w.ids.tolist() == list(range(1, n + 1))
    assert all(len(column) == n for side in (w.lows, w.highs) for column in side.values())
    assert all(len(column) == m for column in w.columns.values())
    assert set(w.columns) == set(w.schema.names) >= set(w.lows) | set(w.highs)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_and_values_lie_in_the_domain(name):
    w = workload(name, 5_000, 1_000)
    for attribute in w.schema:
        if attribute.low is None:
            continue
        low, high = attribute.low, attribute.high
        if isinstance(low, str):
            low, high = np.datetime64(low), np.datetime64(high)
        for side in (w.lows, w.highs, w.columns):
            if attribute.name in side:
                column = side[attribute.name]
                kept = column[~unbounded(column)]
                assert kept.size == 0 or (kept.min() >= low and kept.max() <= high)
    for name_, column in w.lows.items():
        if name_ in w.highs and column.dtype != object:
            above = w.highs[name_]
            assert np.all((column <= above) | unbounded(column) | unbounded(above))


@pytest.mark.parametrize("name", NAMES)
def test_the_scan_finds_what_the_columns_say(name):
    w = workload(name, 300, 20)
    index = rc.open_index("scan", w.schema)
    index.insert(w.subscriptions())
    found = index.match(w.events())
    for event in range(w.n_events):
        assert sorted(found.row(event).tolist()) == w.ids[matching(w, event)].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_texts_say_the_same_as_arrays(name):
    w = workload(name, 200, 30)
    answers = []
    for subs in (w.subscriptions(), rc.Subscriptions.parse(w.schema, w.conditions())):
        index = rc.open_index("scan", w.schema)
        index.insert(subs)
        answers.append(index.match(w.events()).sort())
    assert answers[0] == answers[1]


def test_slices_of_texts_and_events():
    w = workload("stock-alerts", 100, 40)
    everything = w.conditions()
    assert w.conditions(10, 12) == {i: everything[i] for i in (11, 12)}
    assert len(w.events(5, 15)) == 10


def test_the_number_of_subscriptions_leaves_the_events_alone():
    few, many = (workload("rectangles", n, 100) for n in (10, 1_000))
    assert same(few.columns["x"], many.columns["x"])


@pytest.mark.parametrize(("name", "r"), [("intervals", 5_000), ("intervals-wide-domain", 250_000)])
def test_intervals_have_the_papers_range_and_lengths(name, r):
    w = workload(name, 50_000, 10_000)
    assert w.lows["value"].min() >= 1
    assert w.lows["value"].max() <= r - 1
    assert w.highs["value"].max() <= r
    assert lengths(w).min() == 1
    assert lengths(w).max() == 200
    assert np.all((lengths(w) >= 1) & ((lengths(w) <= 200) | (w.highs["value"] == r)))
    uncut = w.lows["value"] <= r - 200
    assert lengths(w)[uncut].mean() == pytest.approx(100.5, rel=0.02)
    assert w.columns["value"].mean() == pytest.approx(r / 2, rel=0.03)


def test_intervals_take_range_and_length():
    w = workload("intervals", 10_000, 10, r=1_000, w=7)
    assert (w.lows["value"].max(), w.highs["value"].max(), lengths(w).max()) == (999, 1_000, 7)


@pytest.mark.parametrize(
    ("name", "rx", "ry", "alpha"),
    [
        ("rectangles", 300, 200, 0.9),
        ("rectangles-uniform", 300, 200, 0.0),
        ("rectangles-wide-domain", 2_000, 1_500, 0.9),
    ],
)
def test_rectangles_have_the_papers_domain_sides_and_skew(name, rx, ry, alpha):
    w = workload(name, 50_000, 50_000)
    assert (w.schema["x"].high, w.schema["y"].high) == (rx - 1, ry - 1)
    for axis, r, most in (("x", rx, 40), ("y", ry, 20)):
        uncut = w.highs[axis] < r - 1
        assert lengths(w, axis)[uncut].min() == 1
        assert lengths(w, axis).max() == most
    # a tenth of the area lies within 0.1 ** 0.5 of each side, around the centre
    half = 0.1**0.5 / 2
    for columns in (w.lows, w.columns):
        # by the middles of points, since a side has few of them
        x, y = (columns["x"] + 0.5) / rx, (columns["y"] + 0.5) / ry
        within = (np.abs(x - 0.5) <= half + 0.5 / rx) & (np.abs(y - 0.5) <= half + 0.5 / ry)
        assert within.mean() == pytest.approx(alpha + (1 - alpha) * 0.1, abs=0.02)


def test_boxes_have_both_ends_uniform():
    w = workload("boxes-12d", 20_000, 2_000)
    assert len(w.schema) == 12
    for name in w.schema.names:
        assert w.lows[name].mean() / 65_535 == pytest.approx(1 / 3, abs=0.01)
        assert w.highs[name].mean() / 65_535 == pytest.approx(2 / 3, abs=0.01)


def test_predicates_have_the_shares_of_the_papers_table():
    w = workload("predicates-16", 50_000, 10)
    assert len(w.schema) == 16
    kinds = np.zeros(4)
    for j, name in enumerate(w.schema.names):
        low, high = w.lows[name], w.highs[name]
        open_low, open_high = unbounded(low), unbounded(high)
        used = ~(open_low & open_high)
        assert used.mean() == pytest.approx(1 if j < 3 else 0.7 if j < 8 else 0.01, abs=0.01)
        equal = low == high
        kinds += [used.sum(), equal.sum(), (open_low & ~open_high).sum(), (open_high & ~open_low).sum()]
    used, equal, below, above = kinds
    assert equal / used == pytest.approx(0.8, abs=0.01)
    assert (below + above) / (used - equal) == pytest.approx(0.5, abs=0.01)
    assert below / (below + above) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("selectivity", [0.0001, 0.003, 0.3, 0.75, 1.0])
def test_predicates_reach_the_selectivity(selectivity):
    w = workload("predicates-16", 40_000, 100, selectivity=selectivity)
    assert share_matching(w) == pytest.approx(selectivity, rel=0.15)


def test_predicates_without_selectivity_are_independent():
    assert share_matching(workload("predicates-16", 40_000, 50, selectivity=0)) < 0.00002


def test_rein_bounds_half_of_the_attributes_half_wide():
    w = workload("rein", 5_000, 100)
    used = np.stack([~unbounded(w.lows[name]) for name in w.schema.names])
    assert used.shape == (20, 5_000)
    assert np.all(used.sum(axis=0) == 10)
    assert used.mean(axis=1) == pytest.approx(np.full(20, 0.5), abs=0.04)
    for name, bounded in zip(w.schema.names, used, strict=True):
        assert lengths(w, name)[bounded] == pytest.approx(np.full(bounded.sum(), 0.5))
        assert w.highs[name][bounded].max() < 1


@pytest.mark.parametrize(("attributes", "aspect", "depth"), [(2, 2, 4), (3, 1, 1), (4, 0, 2), (1, 0, 3)])
def test_covering_has_its_aspect_ratio_and_chains(attributes, aspect, depth):
    w = workload("covering", 400, 1, attributes=attributes, aspect=aspect, depth=depth)
    low = np.stack([w.lows[name] for name in w.schema.names])
    high = np.stack([w.highs[name] for name in w.schema.names])
    bits = np.floor(np.log2(high - low + 1)).astype(int) + 1
    assert np.all(bits.max(axis=0) - bits.min(axis=0) == aspect)
    assert sorted(set(bits.min(axis=0))) == list(range(8 - depth + 1, 9))
    holds = np.all((low[:, :, None] <= low[:, None, :]) & (high[:, None, :] <= high[:, :, None]), axis=0)
    np.fill_diagonal(holds, False)
    # within a chain all but the outermost are covered; chance adds a few
    covered = holds.any(axis=0).mean()
    assert covered >= (depth - 1) / depth
    assert covered <= (depth - 1) / depth + (0.25 if attributes == 1 else 0.05)


def test_lonlat_is_clustered_and_of_unlike_sizes():
    w = workload("lonlat", 20_000, 1_000)
    wide = w.highs["lon"] - w.lows["lon"]
    assert np.quantile(wide, 0.95) > 10 * np.quantile(wide, 0.05)
    cells = np.unique(np.floor(w.lows["lon"]) * 1_000 + np.floor(w.lows["lat"]), return_counts=True)[1]
    assert np.sort(cells)[::-1][:20].sum() > 0.3 * w.n_subscriptions


def test_equality_led_names_one_value_each():
    w = workload("equality-led", 20_000, 100)
    assert np.array_equal(w.lows["product"], w.highs["product"])
    assert (~unbounded(w.lows["price"])).mean() == pytest.approx(0.5, abs=0.02)
    assert (~unbounded(w.lows["rating"])).mean() == pytest.approx(0.5, abs=0.02)
    assert len(np.unique(w.lows["product"])) > 10_000


def test_stock_alerts_follow_zipf_and_mix_types():
    w = workload("stock-alerts", 50_000, 50_000)
    assert [a.kind for a in w.schema] == ["category", "float", "float", "int", "timestamp"]
    named = w.lows["symbol"][~unbounded(w.lows["symbol"])]
    assert 1 - len(named) / w.n_subscriptions == pytest.approx(0.001, abs=0.0008)
    for symbols in (named, w.columns["symbol"]):
        counts = np.sort(np.unique(symbols.astype(str), return_counts=True)[1])[::-1] / len(symbols)
        assert counts[:10] == pytest.approx(zipf_shares(5_000, 1.0)[:10], rel=0.15)
    timed = ~np.isnat(w.lows["at"])
    assert timed.mean() == pytest.approx(0.1, abs=0.01)
    assert np.isnan(w.columns["volume"]).mean() == pytest.approx(0.01, abs=0.003)
    assert np.all(np.diff(w.columns["at"]) >= np.timedelta64(0))
    # some two in 100,000 alerts, in bursts: a trade far from the usual sets off many
    assert 0.000001 < share_matching(workload("stock-alerts", 5_000, 1_500)) < 0.0001


def bounded(w, name, side):
    """Which subscriptions bound an attribute on a side."""
    columns = getattr(w, side)
    return ~unbounded(columns[name]) if name in columns else np.zeros(w.n_subscriptions, bool)


def said_of(w):
    """What each subscription bounds, as sets of attributes with their sides."""
    said = [set() for _ in range(w.n_subscriptions)]
    for side in ("lows", "highs"):
        for name in w.schema.names:
            for row in np.flatnonzero(bounded(w, name, side)).tolist():
                said[row].add(name if name == "symbol" else f"{name} {side}")
    return said


SHAPES = {
    "symbol_close": {"symbol", "close lows", "close highs"},
    "symbol_volume": {"symbol", "volume lows"},
    "symbol_low_high": {"symbol", "low highs", "high lows"},
    "close_volume": {"close lows", "close highs", "volume lows"},
}


def test_market_has_four_shapes_in_equal_parts():
    w = workload("market", 20_000, 100)
    said = said_of(w)
    for shape in SHAPES.values():
        assert said.count(shape) / w.n_subscriptions == pytest.approx(0.25, abs=0.02)
    assert all(one in SHAPES.values() for one in said)
    assert np.all(
        w.lows["close"][bounded(w, "close", "lows")] < w.highs["close"][bounded(w, "close", "lows")]
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_market_draws_shapes_by_weight(shape):
    w = workload("market", 500, 10, **{name: float(name == shape) for name in SHAPES})
    assert all(one == SHAPES[shape] for one in said_of(w))


def test_market_without_equality_and_mixed():
    w = workload("market", 4_000, 10, equality=0.0)
    assert not bounded(w, "symbol", "lows").any()
    w = workload("market", 4_000, 10, equality=0.5)
    assert bounded(w, "symbol", "lows").mean() == pytest.approx(0.75 * 0.5, abs=0.03)
    said = said_of(workload("market", 4_000, 10, mixed=0.4))
    of_two = sum(one not in SHAPES.values() for one in said)
    # a quarter of the second shapes is the first again
    assert of_two / 4_000 == pytest.approx(0.4 * 0.75, abs=0.03)


@pytest.mark.once
def test_market_quotes_are_walks():
    w = workload("market", 20_000, 5_000)
    c = w.columns
    assert np.all((c["low"] <= c["open"]) & (c["open"] <= c["high"]))
    assert np.all((c["low"] <= c["close"]) & (c["close"] <= c["high"]))
    symbols, counts = np.unique(c["symbol"].astype(str), return_counts=True)
    assert len(symbols) == 100
    assert counts.max() < 2 * counts.min()
    for symbol in symbols[:5]:
        close = c["close"][c["symbol"] == symbol]
        # about five days lie between two quotes of a symbol, at up to 3 % a day
        assert np.abs(np.diff(np.log(close))).mean() < 0.1
    named = w.lows["symbol"][bounded(w, "symbol", "lows")]
    shares = np.sort(np.unique(named.astype(str), return_counts=True)[1])[::-1] / len(named)
    assert shares[:10] == pytest.approx(zipf_shares(100, 1.0)[:10], rel=0.15)
    assert share_matching(workload("market", 20_000, 1_000)) * 200_000 == pytest.approx(275, rel=0.2)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("boolean-expressions", {}),
        ("boolean-expressions", {"dimensions": 400, "fewest": 10, "most": 30, "skew": 1.0}),
        ("wide", {}),
    ],
)
def test_expressions_have_their_sizes(name, options):
    w = workload(name, 3_000, 50, **options)
    p = w.parameters
    sizes = np.bincount(w.predicates.rows, minlength=3_000)
    assert (sizes.min(), sizes.max()) == (p["fewest"], p["most"])
    assert sizes.mean() == pytest.approx((p["fewest"] + p["most"]) / 2, rel=0.05)
    assert np.bincount(w.values.rows, minlength=50).tolist() == [p["present"]] * 50
    equal = w.predicates.lows == w.predicates.highs
    assert equal.mean() == pytest.approx(p["equality"], abs=0.03)
    spans = (w.predicates.highs - w.predicates.lows + 1)[~equal]
    assert set(spans.tolist()) == {round(p["width"] * p["cardinality"])}


def test_expressions_follow_zipf_where_asked():
    counts = {}
    for skew in (0.0, 1.0):
        w = workload("boolean-expressions", 5_000, 1, dimensions=1_000, skew=skew)
        counts[skew] = np.sort(np.bincount(w.predicates.attributes, minlength=1_000))[::-1]
    assert counts[0.0][:10].sum() < 0.05 * counts[0.0].sum()
    assert counts[1.0][:10].sum() > 0.15 * counts[1.0].sum()


@pytest.mark.parametrize("matching", [0.001, 0.01, 0.1, 0.5])
def test_expressions_match_as_often_as_asked(matching):
    w = workload("boolean-expressions", 10_000, 100, matching=matching)
    assert share_matching(w) == pytest.approx(matching, rel=0.15)


@pytest.mark.parametrize(
    "options", [{"skew": 1.0}, {"cardinality": 3}, {"cardinality": 1_000, "equality": 1.0}]
)
def test_expressions_match_as_often_on_other_grids(options):
    w = workload("boolean-expressions", 10_000, 100, matching=0.02, **options)
    assert share_matching(w) == pytest.approx(0.02, rel=0.2)


LISTS = {"member": 0.2, "excluded": 0.2, "equality": 0.3}


@pytest.mark.parametrize(
    "options",
    [
        {"listed": 1},
        {"listed": 4, "cardinality": 5},
        {"listed": 40, "cardinality": 1_000},
        {"member": 1.0, "equality": 0.0, "excluded": 0.0},
        {"excluded": 1.0, "equality": 0.0, "member": 0.0, "listed": 2, "cardinality": 3},
    ],
)
def test_lists_of_values_are_said_alike(options):
    few = {"dimensions": 12, "present": 10, "fewest": 1, "most": 5, "cardinality": 9}
    w = workload("boolean-expressions", 150, 30, **few | LISTS | options)
    subs = w.subscriptions()
    texts = rc.Subscriptions.parse(w.schema, w.conditions())
    answers = []
    for one in (subs, texts):
        index = rc.open_index("scan", w.schema)
        index.insert(one)
        answers.append(index.match(w.events()).sort())
    assert answers[0] == answers[1]
    assert answers[0].n_pairs > 0
    # each subscription is one box, and each set has two spans or more, with a gap between any two
    assert len(subs.boxes.owners) == 150
    starts = subs.boxes.set_starts
    assert np.all(np.diff(starts) >= 2)
    gaps = subs.boxes.set_lows[1:] - subs.boxes.set_highs[:-1]
    assert np.all(np.delete(gaps, starts[1:-1] - 1) >= 2)
    assert w.conditions(7, 9) == {i: w.conditions()[i] for i in (8, 9)}


def test_lists_of_values_have_their_shares_and_sizes():
    w = workload("boolean-expressions", 3_000, 1, cardinality=100, listed=6, **LISTS)
    said = [text for condition in w.conditions().values() for text in condition.split(" and a")]
    for word, share in ((" in (", 0.2), (" not in (", 0.2)):
        lists = [text for text in said if word in text and (" not " in text) == (" not " in word)]
        assert len(lists) / len(w.predicates) == pytest.approx(share, abs=0.02)
        assert {text.count(",") for text in lists} == {5}
    assert sum(" = " in text for text in said) / len(w.predicates) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("options", [{}, {"cardinality": 10, "listed": 3}, {"skew": 1.0}])
def test_expressions_with_lists_match_as_often_as_asked(options):
    w = workload("boolean-expressions", 3_000, 100, matching=0.02, **LISTS | options)
    p, values = w.predicates, {name: w.columns[name] for name in w.schema.names}
    held = np.ones((3_000, 100), bool)
    for e in range(len(p)):
        value = values[w.schema.names[p.attributes[e]]]
        own = slice(p.spans.starts[e], p.spans.starts[e + 1])
        lows, highs = p.spans.lows[own], p.spans.highs[own]
        if len(lows) == 0:
            lows, highs = p.lows[e : e + 1], p.highs[e : e + 1]
        held[p.rows[e]] &= ((value >= lows[:, None]) & (value <= highs[:, None])).any(axis=0)
    assert held.mean() == pytest.approx(0.02, rel=0.25)


def test_lists_of_values_have_no_columns():
    w = workload("boolean-expressions", 500, 5, **LISTS)
    with pytest.raises(rc.OptionError, match=r"on 'a1' have lists of values, .*; take `predicates`, "):
        w.lows["a1"]


def test_expressions_without_planting_are_independent():
    assert share_matching(workload("boolean-expressions", 10_000, 50, matching=0)) < 0.0001


@pytest.mark.once
def test_wide_says_little_of_much():
    w = workload("wide", 5_000, 200)
    assert len(w.schema) == 500
    assert share_matching(w) == pytest.approx(0.0002, rel=0.4)


def test_entries_and_columns_say_the_same():
    w = workload("wide", 300, 40)
    for entries, columns, side in (
        (w.predicates, w.lows, "lows"),
        (w.predicates, w.highs, "highs"),
        (w.values, w.columns, "lows"),
    ):
        assert np.all(np.diff(entries.attributes) >= 0)
        dense = np.stack([columns[name] for name in w.schema.names])
        assert np.count_nonzero(~np.isnan(dense)) == len(entries)
        assert np.array_equal(dense[entries.attributes, entries.rows], getattr(entries, side))
    with pytest.raises(KeyError):
        w.lows["no-such"]


def test_thirty_thousand_attributes_are_drawn_in_little_memory():
    w = workload("boolean-expressions", 5_000, 20, dimensions=30_000, fewest=5, most=30)
    assert len(w.columns) == 30_000
    assert w.predicates.nbytes == len(w.predicates) * 28
    assert w.values.nbytes == 20 * 40 * 20
    assert workload("intervals", 5, 5).predicates is None


def test_one_giant_matches_every_event():
    w = workload("one-giant", 1_000, 50)
    assert all(matching(w, event)[-1] for event in range(50))
    assert share_matching(w) < 0.002


def test_all_alike_match_together_or_not_at_all():
    w = workload("all-alike", 100, 2_000)
    counts = np.array([matching(w, event).sum() for event in range(w.n_events)])
    assert set(counts) == {0, 100}
    assert (counts == 100).mean() == pytest.approx(0.1, abs=0.02)


def test_near_misses_fail_on_the_last_predicate_alone():
    w = workload("near-misses", 20_000, 20)
    assert share_matching(w) == pytest.approx(0.01, abs=0.002)
    last = w.schema.names[-1]
    for side in (w.lows, w.highs):
        del side[last]
    assert share_matching(w) == 1


def test_mostly_matching_matches_mostly():
    assert share_matching(workload("mostly-matching", 10_000, 20)) == pytest.approx(0.99, abs=0.003)


def test_mixed_widths_stretch_one_in_a_hundred():
    w, without = workload("mixed-widths", 50_000, 10), workload("mixed-widths", 50_000, 10, wide=0)
    stretched = lengths(w) > 200
    assert stretched.mean() == pytest.approx(0.01, abs=0.002)
    assert set(lengths(w)[stretched]) == {125_000 - 1}
    assert np.array_equal(w.lows["value"][~stretched], without.lows["value"][~stretched])
    assert lengths(without).max() == 200


def test_hot_value_has_most_subscriptions():
    w = workload("hot-value", 20_000, 5_000)
    values, counts = np.unique(w.lows["key"], return_counts=True)
    assert counts.max() / 20_000 == pytest.approx(0.9, abs=0.01)
    assert (w.columns["key"] == values[counts.argmax()]).mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("no-such",), {}, r"unknown workload 'no-such'; there are intervals, "),
        (("intervals",), {"width": 3}, r"workload 'intervals': unknown option width; it has r, w"),
        (("intervals", -1), {}, r"workload 'intervals': n_subscriptions must not be negative, got -1"),
        (("intervals", 1, 2.5), {}, r"workload 'intervals': n_events must be a whole number, got 2.5"),
        (("intervals", 1, 1), {"w": 0}, r"workload 'intervals': w must be at least 1, got 0"),
        (("rectangles", 1, 1), {"alpha": 1.5}, r"workload 'rectangles': alpha must be from 0 to 1, got 1.5"),
        (("rein", 1, 1), {"used": 21}, r"workload 'rein': used must not exceed attributes, got 21 of 20"),
        (("covering", 1, 1), {"attributes": 1}, r"workload 'covering': one attribute has aspect 0, got 2"),
        (("covering", 1, 1), {"depth": 9}, r"must hold depth <= short .* got depth 9, short 8"),
        (("market", 1, 1), {"symbols": 0}, r"workload 'market': symbols must be at least 1, got 0"),
        (("market", 1, 1), {"mixed": 2}, r"workload 'market': mixed must be from 0 to 1, got 2"),
        (("market", 1, 1), dict.fromkeys(SHAPES, 0.0), r"must not be negative, nor all 0, got 0, 0, 0, 0"),
        (("market", 1, 1), {"symbol_close": -1}, r"must not be negative, nor all 0, got -1, 1, 1, 1"),
        (("wide", 1, 1), {"member": 0.6}, r"and excluded must be at most 1 in all, got 0.5, 0.6 and 0.0"),
        (
            ("wide", 1, 1),
            {"member": 0.1, "listed": 0},
            r"listed must be from 1 to cardinality - 1, got 0 with",
        ),
        (
            ("wide", 1, 1),
            {"member": -1},
            r"workload 'boolean-expressions': member must be from 0 to 1, got -1",
        ),
        (("wide", 1, 1), {"fewest": 7}, r"must hold fewest <= most <= present .* got fewest 7, most 6"),
        (("wide", 1, 1), {"present": 501}, r"must hold .* <= dimensions, got .*present 501, dimensions 500"),
        (
            ("boolean-expressions", 1, 1),
            {"matching": 0.99},
            r"workload 'boolean-expressions': matching must be at most 0\.9\d+ with noise 0.01 and 5 to 15 "
            "predicates, got 0.99",
        ),
    ],
)
def test_what_cannot_be_is_refused(arguments, options, message):
    with pytest.raises(rc.OptionError, match=message):
        workload(*arguments, **options)


def test_the_page_has_every_workload():
    assert workloads.markdown_table() in PAGE.read_text()
    assert all(f"| `{name}` |" in PAGE.read_text() for name in NAMES)


@pytest.mark.parametrize("name", ["wide", "boolean-expressions"])
def test_what_is_said_is_what_columns_say(name):
    w = workload(name, 300, 20)
    subs, dense = w.subscriptions(), rc.Subscriptions.from_arrays(w.schema, w.ids, w.lows, w.highs)
    for one, other in zip(subs.boxes, dense.boxes, strict=True):
        assert np.array_equal(one, other)
    codes = rc.Events.from_arrays(w.schema, w.columns).codes
    for own in (slice(0, None), slice(5, 9), slice(-3, None), slice(7, 7)):
        assert np.array_equal(w.events(own.start, own.stop).codes, codes[:, own])
