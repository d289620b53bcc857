"""What workers could not do, in our own words on the driver; and files that Spark brings to them."""

import errno
import os

import pytest

import rangecast as rc
from rangecast.errors import SetupError

pytest.importorskip("pyspark")

from pyspark.errors import PythonException

from rangecast.spark.worker import beside_driver, explained, file_here, is_shipped, ship, told

TRACE = """Traceback (most recent call last):
  File "worker.py", line 7, in work
PermissionError: [Errno 13] Permission denied
During handling of the above exception, another exception occurred:
rangecast.errors.StorageError: /shared/store: there is no store here; a worker must see the same files

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (TRACE, rc.StorageError, "/shared/store: there is no store here; a worker must see the same files"),
        ("rangecast.errors.EventError: 'price' is an int", rc.EventError, "'price' is an int"),
        ("rangecast.durable.lock.LockedError: s: is held", rc.StorageError, "s: is held"),
        (
            'Cannot run program "/x/python": error=2, No such file or directory',
            SetupError,
            "the workers cannot run '/x/python': they need a Python at this path",
        ),
        (
            "ModuleNotFoundError: No module named 'rangecast.spark'",
            SetupError,
            "the workers' Python has no package 'rangecast': install",
        ),
    ],
)
def test_what_a_worker_said_is_raised_as_what_it_was(text, kind, said):
    found = explained(text)
    assert type(found) is kind
    assert str(found).startswith(said)
    with pytest.raises(kind) as raised, told():
        raise PythonException(text)
    assert isinstance(raised.value.__cause__, PythonException)


def test_what_is_not_ours_stays_as_it_is():
    assert explained("Job aborted: ZeroDivisionError: division by zero") is None
    # not every error of the JVM is one of PySpark's: Py4J's own comes through as it is
    with pytest.raises(rc.RangecastError, match="the workers cannot run '/nowhere/python'"), told():
        raise OSError('java.io.IOException: Cannot run program "/nowhere/python": error=2')
    with pytest.raises(PythonException, match="division"), told():
        raise PythonException("ZeroDivisionError: division by zero")
    with pytest.raises(rc.OptionError), told():
        raise rc.OptionError("ours already")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "may not write there; give the driver's user"),
        (errno.ENOENT, "is not here; a worker must"),
    ],
)
def test_folders_beside_the_driver(tmp_path, number, said):
    error = OSError(number, os.strerror(number))
    with pytest.raises(rc.StorageError, match=said), beside_driver(tmp_path):
        raise error
    with pytest.raises(rc.StorageError, match=said), beside_driver(tmp_path):
        raise rc.StorageError("wrapped") from error
    with pytest.raises(rc.StorageError, match="a full disk"), beside_driver(tmp_path):
        raise rc.StorageError("a full disk")


class AnyCluster:
    """A session whose workers are somewhere else."""

    def __init__(self, master):
        self.conf = {"spark.master": master}
        self.sent = []

    def addArtifact(self, path, file):
        assert file
        self.sent.append(path)


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "yarn", "local-cluster[2,1,1024]"])
def test_an_index_is_sent_to_a_cluster(tmp_path, monkeypatch, master):
    session = AnyCluster(master)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: session)
    path = ship(tmp_path / "a.index")
    assert is_shipped(path)
    assert session.sent == [str(tmp_path / "a.index")]
    # the driver maps its own file, a worker what its executor has fetched
    assert file_here(path) == str(tmp_path / "a.index")
    monkeypatch.setattr("rangecast.spark.worker._sent", {})
    monkeypatch.setattr("pyspark.SparkFiles.get", lambda name: f"/elsewhere/{name}")
    assert file_here(path) == "/elsewhere/a.index"
    assert file_here("/plain/file.index") == "/plain/file.index"


def test_without_a_session_nothing_is_sent(tmp_path, monkeypatch):
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    assert ship(tmp_path / "a.index") == str(tmp_path / "a.index")
