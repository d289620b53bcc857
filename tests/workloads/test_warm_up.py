"""What is compiled, how long that took, and who hears of it."""

import importlib

import numpy as np
import pytest

import rangecast as rc
from rangecast.simd import compiler
from rangecast.workloads import warm_up
from rangecast.workloads.registry import names


class Numba:
    """Announces compilations as Numba does."""

    def __init__(self, clock, times):
        self.clock = clock
        self.times = iter(times)

    def compile(self, *inner):
        self.clock.on_start(None)
        for calls in inner:
            self.compile(*calls)
        self.clock.on_end(None)


@pytest.fixture
def numba(monkeypatch):
    times = []
    monkeypatch.setattr(compiler, "perf_counter", lambda: times.pop(0))
    announcer = Numba(compiler._CompileClock(), times)
    announcer.times = times
    return announcer


def test_the_outermost_compilation_is_timed(numba):
    numba.times += [1.0, 3.5]
    numba.compile([], [[]])
    assert numba.clock.seconds == 2.5
    numba.times += [4.0, 5.0]
    numba.compile()
    assert numba.clock.seconds == 3.5


def test_who_waits_is_told_once_when_it_takes_long(numba):
    told = []
    numba.clock.waiting.append(lambda: told.append(1))
    numba.times += [0.0, 0.0, 0.1]
    numba.compile()
    assert not told
    numba.times += [1.0, 1.0, 1.2, 1.4, 2.0]
    numba.compile([], [], [])
    assert told == [1]


@pytest.mark.without_kernels
def test_warm_up_matches_every_way(monkeypatch):
    monkeypatch.setattr(warm_up, "_SUBSCRIPTIONS", 40)
    monkeypatch.setattr(warm_up, "_EVENTS", 5)
    assert set(warm_up.NAMES) <= set(names())
    steps = []
    assert rc.warm_up(lambda *step: steps.append(step)) >= 0
    n_steps = len(warm_up.NAMES) + 1
    assert [step[:2] for step in steps] == [(k, n_steps) for k in range(1, n_steps + 1)]
    assert all(name in what for name, (_, _, what) in zip(warm_up.NAMES, steps[1:], strict=True))


@pytest.mark.without_kernels
def test_each_step_of_a_warm_up_is_a_line_where_nobody_asks(monkeypatch, capsys):
    monkeypatch.setattr(warm_up, "_texts_and_rows", lambda: None)
    monkeypatch.setattr(warm_up, "_match_every_way", lambda name: None)
    rc.warm_up()
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "warm-up: step 1 of 8, conditions, rows and JSON lines"
    assert lines[-1] == f"warm-up: step 8 of 8, the workload {warm_up.NAMES[-1]}"
    assert len(lines) == 8


def test_a_file_says_what_compiling_took(tmp_path, monkeypatch):
    schema = rc.Schema(rc.Int("price"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "price > 5"}))
    path = tmp_path / "events.csv"
    path.write_text("price\n7\n")
    index.match(rc.Events(schema, np.zeros((1, 1), np.int64)))
    spent = iter([10.0, 110.0])
    # the package has a function of the same name
    module = importlib.import_module("rangecast.loading.match_file")
    monkeypatch.setattr(module, "compile_seconds", lambda: next(spent))
    done = rc.match_file(index, path)
    assert done.compile_seconds == 100


def test_the_clock_of_a_run_stands_still_while_kernels_compile(monkeypatch):
    before = compiler.running_seconds()
    monkeypatch.setattr(compiler._clock, "seconds", compiler._clock.seconds + 1000)
    assert -1000 <= compiler.running_seconds() - before < -900
