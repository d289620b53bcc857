"""Memory of answers comes back when nobody holds it, and never while somebody does."""

import gc

import numpy as np
import pyarrow as pa
import pytest

import rangecast as rc
from rangecast import memory

pytestmark = pytest.mark.without_kernels

LARGE = 1_000_000


@pytest.fixture(autouse=True)
def nothing_waits():
    gc.collect(0)
    memory.release()
    yield
    memory.release()


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_small_arrays_are_numpys_own():
    assert memory.empty(10, np.int32).base is None
    assert memory.empty(0, np.int64).shape == (0,)


def test_a_block_is_used_again_when_the_array_is_gone():
    first = memory.empty(LARGE, np.int64)
    assert (first.dtype, first.shape) == (np.int64, (LARGE,))
    assert first.flags.writeable
    place = address(first)
    del first
    assert memory.waiting_bytes() >= 8 * LARGE
    assert address(memory.empty(LARGE - 5, np.int64)) == place


@pytest.mark.parametrize(
    "keep",
    [
        lambda a: a[5:10],
        lambda a: a[::-2],
        lambda a: a.view(np.int32)[3:],
        lambda a: a.reshape(2, -1).T,
        lambda a: memoryview(a)[4:],
        lambda a: pa.array(a).slice(3),
        lambda a: iter(a[7:]),
    ],
)
def test_a_view_of_any_kind_keeps_the_block(keep):
    array = memory.empty(LARGE, np.int64)
    place = address(array)
    view = keep(array)
    del array
    gc.collect(0)
    other = memory.empty(LARGE, np.int64)
    assert address(other) != place
    del view
    gc.collect(0)
    assert address(memory.empty(LARGE, np.int64)) == place


def test_much_too_large_blocks_are_left_for_others():
    array = memory.empty(8 * LARGE, np.int64)
    place = address(array)
    del array
    assert address(memory.empty(LARGE, np.int64)) != place
    assert address(memory.empty(8 * LARGE, np.int64)) == place


def test_no_more_is_kept_than_the_limit(monkeypatch):
    monkeypatch.setattr(memory, "KEPT", 20 * LARGE)
    held = [memory.empty(LARGE, np.int64) for _ in range(5)]
    held.clear()
    assert 8 * LARGE <= memory.waiting_bytes() <= 20 * LARGE


def test_answers_that_are_kept_stay_as_they_are(size):
    schema = rc.Schema(rc.Int("a", 0, 99))
    index = rc.open_index("direct", schema)
    n = size(20_000)
    bounds = {"a": np.zeros(n, int)}, {"a": np.full(n, 60)}
    index.insert(rc.Subscriptions.from_arrays(schema, np.arange(n), *bounds))
    events = rc.Events.from_arrays(schema, {"a": np.full(40, 50)})
    kept = [index.match(events).ids for _ in range(4)]
    assert len({address(ids) for ids in kept}) == 4
    for ids in kept:
        assert np.array_equal(np.sort(ids.reshape(40, n), axis=1), np.tile(np.arange(n), (40, 1)))


def test_an_answer_that_is_lengthened_keeps_what_it_has():
    full = np.arange(100, dtype=np.int32)
    for used, done, more, least in (
        (100, 0.0, 0, 200),
        (0, 0.0, 7, 207),
        (100, 0.01, 0, 10_000),
        (99, 0.99, 0, 200),
    ):
        out = memory.lengthened(full, used, done, more)
        assert out.dtype == np.int32
        assert least <= len(out) <= 1.2 * least
        assert out[:used].tolist() == full[:used].tolist()
