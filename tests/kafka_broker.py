"""A real Kafka on loopback: jars from Maven Central, fetched once into the cache; one broker, no ZooKeeper.

Where the jars cannot be fetched, or there is no Java, `jars` says why and the tests are skipped.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

VERSION = "4.3.1"
LOGGING = "2.25.3"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>rangecast</groupId><artifactId>test-broker</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
<version>{LOGGING}</version></dependency></dependencies></project>
"""


class NoKafka(Exception):
    """Why there is no broker here."""


def java() -> str:
    from rangecast.errors import SetupError
    from rangecast.spark.session import find_java

    try:
        return str(find_java() / "bin" / "java")
    except (SetupError, ImportError) as error:
        raise NoKafka(str(error)) from None


def jars() -> Path:
    """The folder of the broker's jars."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rangecast-tests"
    libs = home / f"kafka-{VERSION}"
    if (libs / ".whole").exists():
        return libs
    home.mkdir(parents=True, exist_ok=True)
    scratch = home / f"fetch-{os.getpid()}"
    scratch.mkdir()
    try:
        _fetch(scratch)
        shutil.rmtree(libs, ignore_errors=True)
        (scratch / "libs" / ".whole").touch()
        os.replace(scratch / "libs", libs)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return libs


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    said = "there is no Maven"
    if maven:
        (folder / "pom.xml").write_text(POM)
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        said = _run([*command, f"-DoutputDirectory={folder / 'libs'}"], folder)
        if said is None:
            return
    # Spark's wheel has Ivy, which fetches them as well
    import pyspark

    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    if ivy is None:
        raise NoKafka(f"the broker's jars cannot be fetched: {said}")
    what = ["-dependency", "org.apache.kafka", "kafka_2.13", VERSION, "-confs", "default", "runtime"]
    how = ["-m2compatible", "-types", "jar", "bundle", "-cache", str(folder / "cache")]
    pattern = f"{folder / 'libs'}/[artifact]-[revision](-[classifier]).[ext]"
    again = _run([java(), "-jar", str(ivy), *what, *how, "-retrieve", pattern], folder)
    if again is not None:
        raise NoKafka(f"the broker's jars cannot be fetched: {said}; {again}")


def _run(command: list[str], folder: Path) -> str | None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error).splitlines()[0]
    if done.returncode == 0 and any((folder / "libs").glob("kafka_*.jar")):
        return None
    lines = (done.stdout + done.stderr).strip().splitlines() or ["nothing was said"]
    return lines[-1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(folder: Path):
    """A broker in this folder; gives its address."""
    libs = jars()
    port, control = free_port(), free_port()
    settings = folder / "server.properties"
    lines = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{control}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "logs",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 3,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
    }
    settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    run = [java(), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*"]
    tool = [*run, "kafka.tools.StorageTool"]
    id = subprocess.run([*tool, "random-uuid"], capture_output=True, text=True, check=True).stdout.split()[-1]
    subprocess.run([*tool, "format", "-t", id, "-c", settings], capture_output=True, check=True)
    said = folder / "broker.log"
    with said.open("w") as log:
        process = subprocess.Popen([*run, "kafka.Kafka", settings], stdout=log, stderr=log)
    try:
        _wait(process, port, said)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process, port: int, said: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended at once: {said.read_text()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.2)
    raise RuntimeError("the broker's port did not open in two minutes")
