"""The harness of experiments and benchmarks: whose turn it is, what counts, and which answers end a run."""

import gc
import itertools
import time

import pytest

from rangecast.papers import measuring

pytestmark = pytest.mark.without_kernels


def stepping(steps):
    """A clock that is read before and after each call, and calls that take these seconds."""
    readings = itertools.chain.from_iterable((10.0 * k, 10.0 * k + step) for k, step in enumerate(steps))
    return lambda: next(readings)


def test_the_clocks_are_what_they_say():
    assert measuring.PROCESS is time.process_time
    assert measuring.THREAD is time.thread_time
    assert measuring.WALL is time.perf_counter
    slept, _ = measuring.timed(time.sleep, 0.05, clock=measuring.WALL)
    assert slept >= 0.05
    for clock in (measuring.PROCESS, measuring.THREAD):
        assert measuring.timed(time.sleep, 0.05, clock=clock)[0] < 0.04


def test_calls_take_turns_and_the_warm_up_does_not_count():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    clock = stepping([9, 9, 3, 4, 1, 8, 2, 6])
    taken = measuring.take_turns(calls, 3, clock=clock, warm_up=1)
    assert order == list("abababab")
    assert taken["a"].seconds == [3, 1, 2]
    assert (taken["a"].best, taken["a"].median) == (1, 2)
    assert (taken["b"].best, taken["b"].median) == (4, 6)
    assert taken["a"].count is None


def test_rounds_end_when_all_took_long_enough():
    calls = {"slow": lambda: None, "quick": lambda: None}
    taken = measuring.take_turns(calls, 5, clock=stepping([5, 1, 5, 1, 5, 1, 5, 1, 5, 1]), enough=2)
    assert len(taken["slow"].seconds) == 5
    taken = measuring.take_turns(calls, 5, clock=stepping([5, 3, 5, 3]), enough=2)
    assert [len(rounds.seconds) for rounds in taken.values()] == [1, 1]
    # seconds of the best round, not of the last one
    assert measuring.take_rounds(lambda: None, 3, clock=stepping([1, 5, 5]), enough=2).seconds == [1, 5, 5]
    assert measuring.take_rounds(lambda: None, 3, clock=stepping([3, 9]), enough=2).seconds == [3]


@pytest.mark.parametrize("pause", [False, True])
def test_the_collector_rests_only_where_it_is_asked_to(pause):
    _, enabled = measuring.timed(gc.isenabled, clock=measuring.WALL, pause_collector=pause)
    assert enabled is not pause
    assert gc.isenabled()

    def fail():
        raise KeyError

    with pytest.raises(KeyError):
        measuring.timed(fail, clock=measuring.WALL, pause_collector=pause)
    assert gc.isenabled()


def test_every_answer_must_be_the_first_one():
    answers = iter(["aa", "bb", "aa", "b"])
    calls = {"one": lambda: next(answers), "two": lambda: next(answers)}
    wrong = "figure 1, round 2: every answer must have 2, as one had first, got 1 from two"
    with pytest.raises(AssertionError, match=wrong):
        measuring.take_turns(calls, 2, clock=measuring.WALL, count=len, where="figure 1")
    answers = iter(["aa", "a"])
    with pytest.raises(AssertionError, match="round 2: every answer must have 2, as call had first, got 1"):
        measuring.take_rounds(lambda: next(answers), 2, clock=measuring.WALL, count=len)


def test_answers_must_be_what_the_caller_expects():
    taken = measuring.take_turns({"a": lambda: "xx"}, 2, clock=measuring.WALL, count=len, expected=2)
    assert taken["a"].count == 2
    with pytest.raises(AssertionError, match="must have 3, as the caller expects, got 2 from a"):
        measuring.take_turns({"a": lambda: "xx"}, 2, clock=measuring.WALL, count=len, expected=3)


def test_what_has_no_count_is_not_compared():
    calls = {"counts": lambda: 2, "does not": lambda: None}
    taken = measuring.take_turns(calls, 1, clock=measuring.WALL, count=lambda answer: answer)
    assert [rounds.count for rounds in taken.values()] == [2, None]


def test_answers_are_dropped_before_the_next_call():
    class Answer:
        alive = 0

        def __init__(self):
            assert Answer.alive == 0
            Answer.alive += 1

        def __del__(self):
            Answer.alive -= 1

    measuring.take_turns({"a": Answer, "b": Answer}, 2, clock=measuring.WALL, count=lambda answer: 1)


def test_there_must_be_a_round():
    with pytest.raises(ValueError, match="rounds must be 1 or more, got 0"):
        measuring.take_rounds(lambda: None, 0, clock=measuring.WALL)


def test_agreement_is_of_all():
    measuring.check_agreement("here", {})
    measuring.check_agreement("here", {"a": (1, 2), "b": (1, 2)})
    with pytest.raises(AssertionError, match="here: all answers must be the same, got a has 1, b has 2"):
        measuring.check_agreement("here", {"a": 1, "b": 2})
