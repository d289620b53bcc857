"""Small random subscriptions and events, on domains so small that ties and touching bounds are common."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import rangecast as rc
from rangecast.types.attributes import LAST, MISSING, PRESENT

EXTREMES = [MISSING, PRESENT, PRESENT + 1, -1, 0, 1, LAST - 1, LAST]


def int_schema(d):
    """d whole-number attributes, the first with a stated domain that values may leave."""
    return rc.Schema(rc.Int("a0", 0, 7), *(rc.Int(f"a{j}") for j in range(1, d)))


@st.composite
def code(draw):
    return draw(st.one_of(st.integers(-2, 10), st.sampled_from(EXTREMES)))


@st.composite
def interval(draw):
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return MISSING, LAST
    if kind == 1:
        return PRESENT, LAST
    if kind == 2:
        return MISSING, MISSING
    a, b = draw(code()), draw(code())
    return (a, b) if a <= b else (b, a)


@st.composite
def subscriptions(draw, schema, max_size=12, first_id=0, textual=False):
    """Subscriptions of up to three boxes each, which may overlap, be alike or be none."""
    d = len(schema)
    n = draw(st.integers(0, max_size))
    owners, columns = [], []
    for i in range(n):
        for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2, 3]))):
            owners.append(i)
            columns.append([draw(interval()) for _ in range(d)])
    boxes = np.array(columns, np.int64).reshape(len(columns), d, 2)
    ids = [f"s{first_id + i}" for i in range(n)] if textual else np.arange(first_id, first_id + n)
    return rc.Subscriptions(schema, ids, boxes[:, :, 0].T, boxes[:, :, 1].T, np.array(owners, np.int32))


@st.composite
def events(draw, schema, max_size=8):
    n = draw(st.integers(0, max_size))
    codes = [[draw(code()) for _ in range(n)] for _ in range(len(schema))]
    return rc.Events(schema, np.array(codes, np.int64).reshape(len(schema), n))


def history(data, index, schema, most, draw=None):
    """Write to an index up to so many times; after each, the subscriptions that it must hold, by id.

    What is inserted is drawn by `draw`, which gets the first id, or is anything.
    """
    held = {}
    for _ in range(data.draw(st.integers(1, most))):
        if data.draw(st.booleans()) or not held:
            first = data.draw(st.integers(0, 6))
            subs = draw(first) if draw else data.draw(subscriptions(schema, max_size=8, first_id=first))
            index.insert(subs)
            held.update({subs.ids[i]: subs.select([i]) for i in range(len(subs))})
        else:
            ids = data.draw(st.lists(st.integers(0, 14), max_size=8, unique=True))
            unknown = index.delete(ids)
            assert sorted(unknown) == sorted(i for i in ids if i not in held)
            for i in ids:
                held.pop(i, None)
        yield held


def random_subscriptions(schema, n, seed, span=40, width=12, bounded=0.8, boxes=1):
    """Many subscriptions at once, seeded: some attributes unbounded, some bounds equal."""
    rng = np.random.default_rng(seed)
    owners = (
        np.sort(rng.integers(0, n, n * boxes)).astype(np.int32) if boxes > 1 else np.arange(n, dtype=np.int32)
    )
    k, d = len(owners), len(schema)
    lows = rng.integers(-3, span, (d, k))
    highs = lows + rng.integers(0, width, (d, k))
    free = rng.random((d, k)) > bounded
    lows[free], highs[free] = MISSING, LAST
    return rc.Subscriptions(schema, np.arange(n) * 3 + 5, lows, highs, owners)


def random_events(schema, m, seed, span=40, missing=0.1):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-5, span + 10, (len(schema), m))
    codes[rng.random(codes.shape) < missing] = MISSING
    return rc.Events(schema, codes)
