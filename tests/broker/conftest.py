"""A broker in a thread of the test's process, or in a process of its own."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")

import httpx

from rangecast import Category, Float, Int, Schema
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving
from rangecast.client import Client

ROOT = Path(__file__).resolve().parents[2]
SHELL_SCHEMA = '[attributes.symbol]\ntype = "category"\n[attributes.price]\ntype = "int"\n'
SCHEMA = {"price": {"type": "int"}, "symbol": {"type": "category"}, "change": {"type": "float"}}


def market():
    return Schema(Int("price"), Category("symbol"), Float("change"))


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory):
    """Go through everything once with patience: kernels may have to be compiled."""
    broker = Broker(BrokerSettings(data=tmp_path_factory.mktemp("first"), port=0))
    broker.ensure_space("main", market())
    with serving(broker) as url, Client(url, timeout=300) as client:
        for condition in ("price < 10 and symbol = 'a'", "price > 5 or change < 1"):
            client.subscribe("alice", "a", condition)
            client.subscribe("alice", "b", condition, ttl="1h")
            client.publish([{"price": 7, "symbol": "a", "change": 0.5}] * 3)
        client.test("price < 10 or symbol = 'a'", [{"price": 7}])
        next(client.stream("alice", patience=300))
        client.unsubscribe("alice", "a")


@pytest.fixture
def start(tmp_path):
    """Starts brokers on one data folder, with the space `main`."""

    def starting(**options):
        schema = options.pop("schema", None) or market()
        broker = Broker(BrokerSettings(data=options.pop("data", tmp_path / "data"), port=0, **options))
        broker.open()
        broker.ensure_space("main", schema)
        return serving(broker)

    return starting


@pytest.fixture
def url(start):
    with start() as address:
        yield address


@pytest.fixture
def client(url):
    with Client(url) as found:
        yield found


@contextmanager
def running_process(tmp_path, *options, port=None):
    port = port or _free_port()
    (tmp_path / "schema.toml").write_text(SHELL_SCHEMA)
    command = [
        sys.executable, "-m", "rangecast", "serve", "--data", str(tmp_path / "data"),
        "--listen", f"127.0.0.1:{port}", "--schema", str(tmp_path / "schema.toml"), *options,
    ]  # fmt: skip
    with open(tmp_path / "log.txt", "ab") as log:
        running = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 300  # kernels may have to be compiled
        while time.monotonic() < deadline:
            assert running.poll() is None, (tmp_path / "log.txt").read_text()
            try:
                if httpx.get(f"{url}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield url, running
    finally:
        if running.poll() is None:
            running.kill()
        running.wait()


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def process():
    """Starts `rangecast serve` on a folder, with options: gives its address and the process."""
    return running_process


@pytest.fixture
def free_port():
    """Finds a port that nobody listens on."""
    return _free_port
