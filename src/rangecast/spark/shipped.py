"""Saved indexes that Spark itself brings to the workers.

Subscriptions and an `Index` that are matched directly are saved to a folder of the driver's. Where workers
run on the driver's machine under its user, they map the file there. On a cluster Spark sends it along
(`addArtifact`): each executor fetches it once, and the Python workers of that executor map its copy. What
travels in a closure is the name of the file, behind `shipped:`.
"""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkFiles
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from rangecast.store.home import local_file

_PREFIX = "shipped:"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# what this process has sent, by name: the driver maps its own file
_sent: dict[str, str] = {}


def ship(file: Path) -> str:
    """Under which path workers find a file of the driver's; sent to them unless they run beside it."""
    spark = SparkSession.getActiveSession()
    if spark is None or is_beside(spark):
        return str(file)
    spark.addArtifact(str(file), file=True)
    _sent[file.name] = str(file)
    return _PREFIX + file.name


def is_shipped(path: str) -> bool:
    """Whether a path is that of a file that was sent."""
    return path.startswith(_PREFIX)


def file_here(path: str) -> str:
    """The file of this machine behind the path of a saved index, wherever the path leads."""
    if not is_shipped(path):
        return local_file(path)
    name = path.removeprefix(_PREFIX)
    return _sent.get(name) or SparkFiles.get(name)


def is_beside(spark: SparkSession) -> bool:
    """Whether the workers are threads and children of a process on this machine."""
    master = spark.conf.get("spark.master", "") or ""
    if not master.startswith("local") or master.startswith("local-cluster"):
        return False
    try:
        return spark.client.host in _LOOPBACK
    except PySparkRuntimeError:  # a classic session is in this process
        return True
