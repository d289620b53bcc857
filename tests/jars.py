"""Jars of servers that tests start: fetched once from Maven Central, by Maven or by the Ivy of Spark's wheel.

Where they cannot be fetched, or there is no Java, `NoJars` says why, and the tests are skipped.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path


class NoJars(Exception):
    """Why a server cannot be started here."""


def java() -> str:
    from rangecast.errors import SetupError
    from rangecast.spark.session import find_java

    try:
        return str(find_java() / "bin" / "java")
    except (SetupError, ImportError) as error:
        raise NoJars(str(error)) from None


def jars(name: str, *wanted: tuple[str, str, str], alone: bool = False) -> Path:
    """The folder of some artifacts (group, name, version) and, unless alone, of what they need.

    The first one is what is looked for, and gives the folder its version.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rangecast-tests"
    libs = home / f"{name}-{wanted[0][2]}"
    if (libs / ".whole").exists():
        return libs
    home.mkdir(parents=True, exist_ok=True)
    scratch = home / f"fetch-{os.getpid()}"
    scratch.mkdir()
    try:
        _fetch(scratch, wanted, alone)
        shutil.rmtree(libs, ignore_errors=True)
        (scratch / "libs" / ".whole").touch()
        os.replace(scratch / "libs", libs)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return libs


def _fetch(folder: Path, wanted: tuple[tuple[str, str, str], ...], alone: bool) -> None:
    maven = shutil.which("mvn")
    said = "there is no Maven"
    if maven:
        (folder / "pom.xml").write_text(_pom(wanted, alone))
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        said = _run([*command, f"-DoutputDirectory={folder / 'libs'}"], folder, wanted)
        if said is None:
            return
    # Spark's wheel has Ivy, which fetches them as well
    import pyspark

    if alone:
        raise NoJars(f"the jars cannot be fetched: {said}")
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    if ivy is None:
        raise NoJars(f"the jars cannot be fetched: {said}")
    what = ["-dependency", *wanted[0], "-confs", "default", "runtime"]
    how = ["-m2compatible", "-types", "jar", "bundle", "-cache", str(folder / "cache")]
    pattern = f"{folder / 'libs'}/[artifact]-[revision](-[classifier]).[ext]"
    again = _run([java(), "-jar", str(ivy), *what, *how, "-retrieve", pattern], folder, wanted)
    if again is not None:
        raise NoJars(f"the jars cannot be fetched: {said}; {again}")


def _pom(wanted: tuple[tuple[str, str, str], ...], alone: bool) -> str:
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>" if alone else ""
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<exclusions>{every}</exclusions></dependency>"
        for group, name, version in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>rangecast</groupId><artifactId>test-server</artifactId><version>1</version>"
        f"<dependencies>{needed}</dependencies></project>"
    )


def _run(command: list[str], folder: Path, wanted: tuple[tuple[str, str, str], ...]) -> str | None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error).splitlines()[0]
    if done.returncode == 0 and any((folder / "libs").glob(f"{wanted[0][1]}-*.jar")):
        return None
    lines = (done.stdout + done.stderr).strip().splitlines() or ["nothing was said"]
    return lines[-1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def served(command: list[str], port: int, said: Path) -> Iterator[None]:
    """A server in a process of its own, from when its port is open; what it prints goes to `said`."""
    with said.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait(process, port, said)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, said: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended at once: {said.read_text()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.2)
    raise RuntimeError("the server's port did not open in two minutes")


def kafka_connector() -> str:
    """The jars of Spark's own Kafka connector, joined by commas, as spark.jars takes them.

    For Spark 4.3.0 none is at Maven Central, and of 4.2.0's one part is missing there, which that of 4.0.0
    replaces.
    """
    folder = jars(
        "spark-kafka",
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.1"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
        alone=True,
    )
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))
