"""A standalone Spark cluster on loopback, from PySpark's wheel alone: a master and workers.

The wheel has no start-master.sh; `spark-class` starts the same processes.
"""

import contextlib
import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path

import pyspark

from jars import free_port
from rangecast.spark.session import find_java

HOME = Path(pyspark.__file__).parent


class Cluster:
    """The processes of a cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.web = free_port(), free_port()
        self.address = f"spark://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen] = []
        self._start("Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.web))

    def _start(self, kind: str, *words: str) -> subprocess.Popen:
        java = str(find_java())
        env = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": java}
        env["SPARK_DAEMON_MEMORY"] = "256m"
        command = [
            str(HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
            *words,
        ]
        with (self.folder / f"{kind}-{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=self.folder)
        self.processes.append(process)
        return process

    def add_worker(self) -> subprocess.Popen:
        """One more worker, with one core."""
        place = self.folder / f"work-{len(self.processes)}"
        words = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(place)]
        return self._start("Worker", *words, "--webui-port", "0", self.address)

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
