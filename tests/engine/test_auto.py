"""Auto: the paths it chooses, and that it says so."""

from __future__ import annotations

import numpy as np
import pytest

import rangecast as rc
from rangecast import workloads
from rangecast.engine import boxes
from rangecast.engine.layouts import windows
from rangecast.errors import OptionError


def opened(name, n, m, **options):
    w = workloads.workload(name, n, m, **options)
    index, scan = rc.open_index("auto", w.schema), rc.open_index("scan", w.schema)
    subs = w.subscriptions()
    index.insert(subs)
    scan.insert(subs)
    events = w.events()
    assert index.match(events) == scan.match(events)
    return index


def paths(index):
    return {(entry["path"], *entry["on"]) for entry in index.stats()["paths"]}


@pytest.fixture(autouse=True)
def no_tail(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("intervals", ("runs", "value")),
        ("rectangles", ("cells", "x", "y")),
        ("lonlat", ("cells", "lon", "lat")),
        ("equality-led", ("equality", "product")),
        ("boxes-12d", ("bitmap",)),
        ("rein", ("bitmap",)),
        ("stock-alerts", ("equality", "symbol")),
    ],
)
def test_chooses(name, path, size, leg):
    if leg == "nojit" and name in ("boxes-12d", "rein"):
        pytest.skip("too slow without compiled kernels")
    # the skewed symbols of stock-alerts are worth lists, and the values of intervals cells of their own,
    # only among many subscriptions
    n = max(size(10_000), 2_500 if name in ("stock-alerts", "intervals") else 400)
    assert path in paths(opened(name, n, max(size(200), 5)))


@pytest.mark.parametrize("name", workloads.names())
def test_every_workload_equals_the_scan(name, size, leg):
    if leg == "nojit" and name in ("boolean-expressions", "boxes-12d", "rein"):
        pytest.skip("too slow without compiled kernels")
    least = 40 if name == "wide" else 300  # plain Python compares each of its 500 attributes
    opened(name, max(size(3_000), least), max(size(100), 5))


def test_a_hot_value_gets_no_list(size):
    index = opened("hot-value", max(size(20_000), 1_000), max(size(50), 5))
    held = {(entry["path"], *entry["on"]): entry["boxes"] for entry in index.stats()["paths"]}
    assert held[("cells", "key", "amount")] > 0.8 * len(index)


def test_wide_fields_tell_values_apart(size):
    """Equalities on several attributes of more values than a narrow field has cells."""
    rng = np.random.default_rng(3)
    n = max(size(50_000), 1_000)
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(3)))
    values = rng.integers(0, 10**8, (3, n))
    subs = rc.Subscriptions(schema, np.arange(n), values, values)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    near = values[:, :20] + np.array([[0], [0], [1]])
    events = rc.Events(schema, np.concatenate([values[:, :20], near], axis=1))
    assert index.match(events).counts.tolist() == [1] * 20 + [0] * 20


def test_explains_its_plan():
    index = opened("equality-led", 600, 20)
    said = index.explain_plan().splitlines()
    assert said[0] == "600 subscriptions in 1 parts, 0 boxes in the unsorted tail"
    assert said[1].startswith("  equality on product: 600 boxes, ")
    assert said[1].endswith(" us per event")


def test_refuses_what_does_not_fit():
    w = workloads.workload("boxes-12d", 2_000, 1)
    index = rc.open_index("auto", w.schema, memory_limit=50_000)
    with pytest.raises(rc.CapacityError, match=r"but may use 50\.0 kB"):
        index.insert(w.subscriptions())


def test_keeps_its_plan_in_a_file(tmp_path):
    index = opened("stock-alerts", 600, 20)
    index.save(tmp_path / "i")
    assert paths(rc.load_index(tmp_path / "i")) == paths(index)


@pytest.mark.parametrize(
    "name", ["intervals", "intervals-wide-domain", "equality-led", "market", "boxes-12d"]
)
def test_built_by_several_threads(name, size, monkeypatch):
    monkeypatch.setattr(boxes, "CHUNK", 64)
    for module in (boxes, windows):
        monkeypatch.setattr(module, "AT_ONCE", 64)
    w = workloads.workload(name, max(size(4_000), 300), 20)
    subs, batch = w.subscriptions(), w.events()
    one, several = rc.open_index("auto", w.schema), rc.open_index("auto", w.schema, build_threads=3)
    for index in (one, several):
        index.insert(subs)
    assert several.match(batch) == one.match(batch)
    kinds = [[(path["path"], path["boxes"]) for path in index.plan()] for index in (one, several)]
    assert kinds[0] == kinds[1]
    (_, alone), (_, shared) = one._dump(), several._dump()
    assert list(alone) == list(shared)
    for part in alone:
        assert alone[part].tobytes() == shared[part].tobytes(), part


@pytest.mark.parametrize("build_threads", [0, -1, True, 1.5, "2"])
def test_threads_that_are_none(build_threads):
    with pytest.raises(OptionError, match="build_threads must be a whole number of at least 1, got"):
        rc.open_index("auto", rc.Schema(rc.Int("a")), build_threads=build_threads)
