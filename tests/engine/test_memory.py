"""How many bytes a subscription takes, catalog and structure together; `stats()` says where each is."""

from __future__ import annotations

import numpy as np
import pytest

import rangecast as rc
from rangecast import workloads


def loaded(schema, lows, widths):
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.from_arrays(schema, np.arange(len(lows)), lows, lows + widths))
    return index


@pytest.mark.once
@pytest.mark.parametrize(("d", "domain", "most"), [(1, 10**9, 36), (2, 10**6, 64)])
def test_small_intervals_and_rectangles(size, d, domain, most):
    rng = np.random.default_rng(d)
    n = max(size(100_000), 4_000)
    schema = rc.Schema(*(rc.Int(f"a{j}", 0, domain) for j in range(d)))
    widest = int(domain * (20 / n) ** (1 / d))
    index = loaded(schema, rng.integers(0, domain, (n, d)), rng.integers(0, widest, (n, d)))
    stats = index.stats()
    # among few, what a grid of any size takes weighs more: up to 32,000 cells on each attribute
    assert stats["bytes"] <= most * n + 64_000 * d
    # both ends of each attribute in 32 bits and nothing else: ids count up, and each has one box
    assert stats["catalog"]["bounds"] == 8 * d * n
    assert set(stats["catalog"]) == {"bounds", "bases"}
    assert sum(stats["catalog"].values()) == stats["catalog_bytes"]
    assert sum(path["bytes"] for path in stats["paths"]) + stats["catalog_bytes"] == stats["bytes"]


def test_hundreds_of_attributes(size):
    w = workloads.workload("wide", max(size(8_000), 800), 1)
    index = rc.open_index("auto", w.schema)
    index.insert(w.subscriptions())
    stats = index.stats()
    assert stats["bytes_per_subscription"] < 200
    n_predicates = w.subscriptions().boxes.starts[-1]
    assert stats["bytes"] < 24 * len(index) + 16 * n_predicates + 40 * len(w.schema)


def test_ids_that_do_not_count_up_are_kept():
    schema = rc.Schema(rc.Int("a"))
    subs = rc.Subscriptions.from_arrays(schema, np.array([5, 3, 9]), np.ones((3, 1)), np.ones((3, 1)))
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert index.stats()["catalog"]["ids"] == 24
