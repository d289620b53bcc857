"""What every run is: as on the machines of users, and drawn from one seed."""

from __future__ import annotations

import argparse
import os

import pytest

import rangecast as rc
import seeds
from rangecast.engine import planner
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.without_kernels


def test_a_seed_is_drawn_once(monkeypatch):
    monkeypatch.delenv(seeds.VARIABLE)
    drawn = seeds.run_seed()
    # for whatever is asked later, and for the processes that this one starts
    assert seeds.run_seed() == drawn == int(os.environ[seeds.VARIABLE])


def test_a_seed_that_is_given_gives_the_same_again(monkeypatch):
    monkeypatch.setenv(seeds.VARIABLE, "7")
    assert seeds.run_seed() == 7
    one = seeds.seed_of("one")
    assert seeds.seed_of("one") == one
    assert seeds.seed_of("two") != one
    monkeypatch.setenv(seeds.VARIABLE, "8")
    assert seeds.seed_of("one") != one
    monkeypatch.setenv(seeds.VARIABLE, "x")
    with pytest.raises(ValueError, match="RANGECAST_SEED must be a whole number from 0 on, got 'x'"):
        seeds.run_seed()


def test_scripts_take_the_seed_of_the_run_and_say_so(monkeypatch, capsys):
    monkeypatch.setenv(seeds.VARIABLE, "7")
    parser = argparse.ArgumentParser()
    seeds.add_option(parser)
    assert [parser.parse_args(given).seed for given in ([], ["--seed", "9"])] == [7, 9]
    assert capsys.readouterr().err == "seed 7\nseed 9\n"


def test_hypothesis_draws_from_the_seed_of_the_run(request):
    given = request.config.getoption("--hypothesis-seed")
    assert given == os.environ[seeds.VARIABLE] or "--hypothesis-seed" in str(request.config.invocation_params)


def test_nothing_but_the_machine_says_when_auto_lays_out():
    assert "RANGECAST_LAYOUTS" not in os.environ


@pytest.mark.parametrize(("machine_of_this_test", "parts"), [("new_machine", 0), ("used_machine", 1)])
def test_the_machine_that_a_test_asks_for(request, machine_of_this_test, parts, monkeypatch):
    request.getfixturevalue(machine_of_this_test)
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 8)
    schema = int_schema(1)
    index = rc.open_index("auto", schema)
    index.insert(random_subscriptions(schema, 60, seed=1))
    assert index.match(random_events(schema, 3, seed=1)).n_pairs
    assert index.stats()["parts"] == parts
    assert planner.are_layouts_compiled() == bool(parts)
