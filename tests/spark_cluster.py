"""A standalone Spark cluster on loopback, from PySpark's wheel alone: a master and workers.

The wheel has no start-master.sh; `spark-class` starts the same processes.
"""

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from jars import free_port
from rangecast.spark.session import find_java

HOME = Path(pyspark.__file__).parent
UNSHARED = ("unshare", "--mount", "sh", "-c")


def as_user(user: str, folder: Path) -> tuple[str, ...]:
    """What a command begins with to run as another user, in a view of the files of its own.

    Python may be installed in a home that nobody else may enter; in that view it can be entered.
    """
    base = Path(sys.base_prefix)
    closed = [p for p in reversed(base.parents) if not p.stat().st_mode & 0o001]
    steps = f"exec setpriv --reuid={user} --regid={pwd.getpwnam(user).pw_gid} --clear-groups"
    if closed:
        aside = folder / f"python-{user}"
        aside.mkdir(exist_ok=True)
        steps = (
            f"mount --bind {base} {aside} && mount -t tmpfs -o mode=755 none {closed[0]} && "
            f"mkdir -p {base} && mount --bind {aside} {base} && {steps}"
        )
    return (*UNSHARED, f'{steps} "$0" "$@"')


def can_run_as(user: str, folder: Path) -> bool:
    """Whether a worker can be started as another user, who finds Java, Python and the packages."""
    if os.getuid() != 0:
        return False
    python = [sys.executable, "-c", "import rangecast, pyspark"]
    java = [str(find_java() / "bin" / "java"), "-version"]
    try:
        runs = [
            subprocess.run([*as_user(user, folder), *words], cwd="/", capture_output=True, check=False)
            for words in (python, java)
        ]
    except (OSError, KeyError):
        return False
    return not any(run.returncode for run in runs)


def can_hide(folder: Path) -> bool:
    """Whether a process can be given a view of the files of its own, in which a folder is empty."""
    command = [*UNSHARED, 'mount -t tmpfs none "$0"', str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def executors_of(spark: SparkSession) -> list[int]:
    """The processes on this machine of the executors of a session: they name their driver's port."""
    port = spark.sparkContext.getConf().get("spark.driver.port")
    driver = f"spark://CoarseGrainedScheduler@127.0.0.1:{port}\0".encode()
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (place / "cmdline").read_bytes() if place.name.isdigit() else b""
            if b"CoarseGrainedExecutorBackend" in words and driver in words:
                found.append(int(place.name))
    return sorted(found)


class Cluster:
    """The processes of a cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.web = free_port(), free_port()
        self.address = f"spark://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen] = []
        self._start("Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.web))

    def _start(self, kind: str, *words: str, before: tuple[str, ...] = (), **more) -> subprocess.Popen:
        java = str(find_java())
        env = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": java}
        env["SPARK_DAEMON_MEMORY"] = "256m"
        env |= more.pop("env", {})
        command = [
            *before,
            str(HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
            *words,
        ]
        with (self.folder / f"{kind}-{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=env, cwd=more.pop("cwd", self.folder), **more
            )
        self.processes.append(process)
        return process

    def add_worker(self, user: str | None = None, hidden: Path | None = None) -> subprocess.Popen:
        """One more worker, with one core: as another user, or one that sees an empty folder in a place."""
        place = self.folder / f"work-{len(self.processes)}"
        place.mkdir()
        words = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(place)]
        more: dict[str, Any] = {}
        if user is not None:
            # compiled kernels of its own: those of the tests are in a folder that it may not write to
            kernels = place / "kernels"
            shutil.copytree(os.environ["NUMBA_CACHE_DIR"], kernels)
            for path in (place, kernels, *kernels.rglob("*")):
                shutil.chown(path, user)
            more = {"before": as_user(user, self.folder), "cwd": place}
            more["env"] = {"HOME": str(place), "NUMBA_CACHE_DIR": str(kernels), "USER": user, "LOGNAME": user}
        if hidden is not None:
            more["before"] = (*UNSHARED, 'mount -t tmpfs none "$0" && exec "$@"', str(hidden))
        return self._start("Worker", *words, "--webui-port", "0", self.address, **more)

    def wait_for_workers(self, n: int) -> None:
        """Until the master knows so many living workers."""
        for _ in range(300):
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{self.web}/json/") as page,
            ):
                if len(re.findall(r'"state"\s*:\s*"ALIVE"', page.read().decode())) >= n:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"the cluster did not get {n} workers within a minute")

    def close(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
