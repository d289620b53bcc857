"""Indexes of other packages: by `register_index`, by an entry point, and the skeleton to copy."""

import importlib
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import oracle
import rangecast as rc
from rangecast import engine
from rangecast.cli.app import app
from rangecast.cli.workloads import USES
from rangecast.engine import REGISTRY, index_names, index_type, register_index, unregister_index
from rangecast.engine.layouts.scan import ScanIndex

pytestmark = pytest.mark.without_kernels

SKELETON = Path(__file__).parents[2] / "examples" / "own_index"
SCHEMA = rc.Schema(rc.Int("a"), rc.Int("b"), rc.Category("c"))


@pytest.fixture
def own(monkeypatch):
    """The skeleton's module, registered under its name."""
    monkeypatch.syspath_prepend(str(SKELETON))
    module = importlib.import_module("own_index")
    register_index("sorted", module.SortedIndex)
    yield module
    unregister_index("sorted")
    sys.modules.pop("own_index", None)


conditions = st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from("AB"), st.integers(0, 4)).map(
    lambda t: [
        f"a between {min(t[:2])} and {max(t[:2])}",
        f"b <= {t[1]} and c = '{t[2]}'",
        f"a in ({t[0]}, 3) or b > {t[1]}",
        f"a is missing and b != {t[0]}",
        f"not (c = '{t[2]}' and a > {t[0]})",
    ][t[3]]
)
rows = st.fixed_dictionaries(
    {},
    optional={"a": st.integers(0, 6), "b": st.integers(0, 6), "c": st.sampled_from("ABC")},
)


@settings(max_examples=30, deadline=None)
@given(st.lists(conditions, max_size=12), st.lists(rows, min_size=1, max_size=6), st.booleans())
def test_the_skeleton_gives_what_the_definition_says(texts, events, second):
    sys.path.insert(0, str(SKELETON))
    try:
        kind = importlib.import_module("own_index").SortedIndex
    finally:
        sys.path.remove(str(SKELETON))
    index = kind(SCHEMA, on="b") if second else kind(SCHEMA)
    subs = rc.Subscriptions.parse(SCHEMA, dict(enumerate(texts)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
        index.insert(subs)
    batch = rc.Events.from_rows(SCHEMA, events)
    assert oracle.rows_of(index.match(batch)) == [sorted(row) for row in oracle.match_boxes(subs, batch)]


def test_the_skeleton_has_what_every_index_has(own, tmp_path):
    index = rc.open_index("sorted", SCHEMA)
    rng = np.random.default_rng(3)
    texts = {i: f"a >= {low} and a <= {low + 3}" for i, low in enumerate(rng.integers(0, 50, 1500).tolist())}
    index.insert(rc.Subscriptions.parse(SCHEMA, texts))
    index.delete(range(300))
    events = rc.Events.from_rows(SCHEMA, [{"a": 7}, {"a": 40, "b": 1}, {}])
    scan = rc.open_index("scan", SCHEMA)
    scan.insert(index.subscriptions())
    assert any(isinstance(part.part, own.SortedPart) for part in index._parts)
    assert index.match(events) == scan.match(events)
    assert pickle.loads(pickle.dumps(index)).match(events) == scan.match(events)
    index.save(tmp_path / "own.index")
    assert rc.load_index(tmp_path / "own.index").match(events) == scan.match(events)
    with pytest.raises(rc.OptionError, match="on must be an attribute"):
        rc.open_index("sorted", SCHEMA, on="x")
    with pytest.raises(rc.OptionError, match="unexpected keyword"):
        rc.open_index("sorted", SCHEMA, of="a")


def test_a_name_is_taken_once(own):
    register_index("sorted", own.SortedIndex)
    for name, kind in (("auto", own.SortedIndex), ("sorted", ScanIndex)):
        with pytest.raises(rc.OptionError, match="already called"):
            register_index(name, kind)
    with pytest.raises(rc.OptionError, match="must have the name by which it is registered, got 'scan'"):
        register_index("other", ScanIndex)
    with pytest.raises(rc.OptionError, match="must be a class below"):
        register_index("other", dict)
    register_index("lazy", "no.such.module:Thing")
    try:
        with pytest.raises(rc.UnknownIndexError, match=r"'lazy': no\.such\.module:Thing cannot be loaded"):
            index_type("lazy")
    finally:
        unregister_index("lazy")


def test_an_entry_point_is_found(tmp_path, monkeypatch):
    info = tmp_path / "own_index-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-index\nVersion: 0.1.0\n")
    points = (
        (SKELETON / "pyproject.toml").read_text().split('[project.entry-points."rangecast.indexes"]\n')[1]
    )
    line = points.splitlines()[0].replace('"', "")
    (info / "entry_points.txt").write_text(f"[rangecast.indexes]\n{line}\nscan = elsewhere:Scan\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(SKELETON))
    engine._installed.cache_clear()
    try:
        assert index_names() == [*REGISTRY, "sorted"]
        assert rc.open_index("scan", SCHEMA).__class__ is ScanIndex  # ours cannot be replaced
        assert rc.open_index("sorted", SCHEMA).name == "sorted"
        shown = CliRunner().invoke(app, ["indexes"]).stdout
        assert "sorted    Boxes sorted by their low ends on one attribute" in shown
    finally:
        engine._installed.cache_clear()
        sys.modules.pop("own_index", None)


def test_every_index_says_what_it_is_good_for():
    assert list(USES) == list(REGISTRY)
    assert all(text.endswith(".") for text in USES.values())
