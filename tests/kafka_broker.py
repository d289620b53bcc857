"""A real Kafka on loopback: jars from Maven Central, fetched once into the cache; one broker, no ZooKeeper.

Where the jars cannot be fetched, or there is no Java, `NoJars` says why and the tests are skipped.
"""

import contextlib
import subprocess
from pathlib import Path

from jars import free_port, jars, java, served

VERSION = "4.3.1"
LOGGING = "2.25.3"


@contextlib.contextmanager
def running(folder: Path):
    """A broker in this folder; gives its address."""
    libs = jars(
        "kafka",
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", LOGGING),
    )
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
    with served([*run, "kafka.Kafka", str(settings)], port, folder / "broker.log"):
        yield f"127.0.0.1:{port}"
