"""Events as a process: the order changes who waits, never the work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import OptionError
from rangecast.papers.rtree.structures import bursts, poisson, respond_in, summed_up

pytestmark = pytest.mark.without_kernels
WORK = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(work=WORK, data=st.data())
def test_every_order_does_the_same_work(work, data):
    service = np.array(work, float)
    gaps = data.draw(st.lists(st.integers(0, 12), min_size=len(work), max_size=len(work)))
    arrivals = np.cumsum(gaps).astype(float)
    first, short = (respond_in(order, arrivals, service) for order in ("arrival", "shortest"))
    assert (first >= service).all()
    assert (short >= service).all()
    assert (first + arrivals).max() == (short + arrivals).max()
    assert (np.diff(first + arrivals) > 0).all()


@given(work=WORK)
def test_shortest_first_has_the_least_mean_of_a_batch(work):
    service = np.array(work, float)
    none = np.zeros(len(work))
    assert respond_in("shortest", none, service).mean() <= respond_in("arrival", none, service).mean()
    assert respond_in("shortest", none, service).mean() == np.cumsum(np.sort(service)).mean()


def test_long_events_pay():
    rng = np.random.default_rng(7)
    service = rng.lognormal(0, 1.5, 20_000)
    for arrivals in (poisson(20_000, 0.9, service, rng), bursts(20_000, 0.9, service, 50, rng)):
        first, short = (summed_up(respond_in(o, arrivals, service), service) for o in ("arrival", "shortest"))
        assert short.mean < first.mean
        assert short.longest > first.longest


def test_a_process_has_its_load():
    rng = np.random.default_rng(1)
    service = np.ones(10_000)
    assert 0.45 < 10_000 / poisson(10_000, 0.5, service, rng)[-1] < 0.55
    assert len(np.unique(bursts(100, 0.5, service, 30, rng))) == 4


def test_errors():
    rng, one = np.random.default_rng(0), np.ones(1)
    with pytest.raises(OptionError, match="load must be above 0 and below 1, got 1"):
        poisson(1, 1, one, rng)
    with pytest.raises(OptionError, match="size must be at least 1, got 0"):
        bursts(1, 0.5, one, 0, rng)
    with pytest.raises(OptionError, match="order must be one of arrival, shortest, got 'last'"):
        respond_in("last", one, one)
