"""What is said of workers that cannot do their part."""

import time

import pytest

import rangecast as rc
from rangecast import __version__

pytest.importorskip("pyspark")


def worker(**fields):
    import platform

    from rangecast.spark.doctor import WorkerReport

    good = {"host": "h", "pid": 7, "user": "u", "python": platform.python_version(), "rangecast": __version__}
    good |= {"pyarrow": "26", "numba": "0.68", "cache": "c", "free_bytes": 1, "clock": time.time()}
    return WorkerReport(**{**good, "sees_store": "yes", "sees_driver": "yes", "writes": "yes", **fields})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rangecast": "none"}, "is not installed"),
        ({"rangecast": "0.0.1"}, "use one version"),
        ({"python": "3.9.1"}, "one minor version"),
        ({"clock": 5.0}, "its clock is"),
        ({"sees_store": "FileNotFoundError: x"}, "does not see the store"),
        ({"sees_driver": "another file"}, "not what the driver writes"),
        ({"writes": "PermissionError: x"}, "common group"),
        ({"pid": 8}, "is not the same storage"),
    ],
)
def test_a_sentence_for_each_trouble(tmp_path, fields, said):
    from rangecast.spark.doctor import diagnose

    store = rc.Store.open(tmp_path / "store", rc.Schema(rc.Int("price")))
    asked = time.time(), time.time()
    assert list(diagnose((worker(),), store, {"h-7"}, asked)) == []
    [only] = diagnose((worker(**fields),), store, {"h-7"}, asked)
    assert said in only
    assert "h (process" in only


def test_nobody_answers():
    from rangecast.spark.doctor import diagnose

    assert "no worker answered" in next(diagnose((), None, set(), (0.0, 0.0)))


@pytest.mark.spark
def test_workers_of_this_machine(spark, tmp_path):
    from rangecast.spark.doctor import examine

    store = rc.Store.open(tmp_path / "store", rc.Schema(rc.Int("price")))
    found = examine(spark, store, tasks=2)
    assert found.troubles == ()
    assert {w.rangecast for w in found.workers} == {__version__}
    assert not list((store.path / "staging").iterdir())
