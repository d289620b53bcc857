"""A simple errand passes few modules: each has a budget, which may only fall.

`python tests/errands.py match_one` prints the modules of one errand in their order.
"""

import importlib

import pytest

import errands

pytestmark = pytest.mark.once

# what an errand needs beyond the package, and its marker
NEEDS = {"match_frames": "pandas", "subscribe": "starlette", "stream": "pyspark"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.spark if name == "stream" else ()) for name in errands.ERRANDS],
)
def test_an_errand_keeps_its_budget(name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    path = errands.path_of(name)
    assert path, "nothing was recorded"
    complaint = errands.complaint(name, path, errands.BUDGETS[name])
    assert complaint is None, complaint


def test_every_errand_has_a_budget_and_says_what_it_is():
    assert errands.BUDGETS.keys() == errands.ERRANDS.keys()
    assert all(errand.__doc__ for errand in errands.ERRANDS.values())
    assert all(budget.most >= budget.aim for budget in errands.BUDGETS.values())


def test_a_complaint_shows_the_way():
    path = [errands.Passed("rangecast.engine.parts", "StaticIndex.match")]
    assert errands.complaint("match", path, errands.Budget(1, 1)) is None
    text = errands.complaint("match", path, errands.Budget(0, 0))
    assert text.startswith("match passes 1 modules, and its budget is 0 (the aim is 0).\n")
    assert "\n    1 rangecast.engine.parts: StaticIndex.match\n" in text


def test_only_calls_from_outside_are_recorded(tmp_path):
    """What an import runs does not count, and neither does what a kernel calls."""
    recorder = errands.Recorder(tmp_path)
    places = {
        name: errands._place_of(compile("0", f"{errands.SRC}/{file}", "exec").replace(co_name=function))
        for name, file, function in (
            ("import", "rangecast/engine/parts.py", "<module>"),
            ("plain", "rangecast/engine/parts.py", "match"),
            ("kernel", "rangecast/engine/layouts/scan_kernels.py", "walk"),
            ("machine", "rangecast/simd/memory.py", "view"),
            ("package", "rangecast/engine/__init__.py", "open_index"),
        )
    }
    assert places == {
        "import": (None, True),
        "plain": ("rangecast.engine.parts", False),
        "kernel": ("rangecast.engine.layouts.scan_kernels", True),
        "machine": ("rangecast.simd.memory", True),
        "package": ("rangecast.engine", False),
    }
    assert recorder.passed() == []
    errors = importlib.import_module("rangecast.errors")
    with recorder.recording():
        recorder(FrameOf(errors.visible.__code__), "call", None)
    recorder(FrameOf(errands.main.__code__), "call", None)
    assert recorder.passed() == [errands.Passed("rangecast.errors", "visible")]


class FrameOf:
    """The little of a frame that a recorder looks at."""

    def __init__(self, code):
        self.f_code = code
