"""A broker listens before its spaces are open, and says what it waits for."""

import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest

from rangecast import Category, Float, Int, Point, Schema, Timestamp
from rangecast.broker import server
from rangecast.broker import space as module
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving
from rangecast.broker.space import Opening
from rangecast.client import Client
from rangecast.engine import Index
from rangecast.errors import OptionError
from rangecast.types.expressions import quoted_name

pytestmark = pytest.mark.once
REFUSED = (("GET", "main/schema"), ("POST", "main/events"), ("PUT", "other/schema"), ("GET", "spaces"))
SCHEMA = '[attributes.symbol]\ntype = "category"\n[attributes.price]\ntype = "int"\n'


def test_what_is_answered_before_the_spaces_are_open(tmp_path):
    go = threading.Event()
    broker = Broker(BrokerSettings(data=tmp_path, port=0))

    def prepare():
        broker.opening.begin("space main, waiting for a test")
        assert go.wait(60)
        broker.ensure_space("main", Schema(Category("symbol"), Int("price")))

    broker.open_later(prepare, lambda _: None)
    with serving(broker) as url, Client(url) as client:
        assert httpx.get(f"{url}/healthz").status_code == 200
        answer = httpx.get(f"{url}/readyz")
        assert answer.status_code == 503
        assert not answer.json()["ready"]
        assert "space main, waiting for a test" in answer.json()["reason"]
        for method, path in REFUSED:
            body = {"attributes": {"a": {"type": "int"}}}
            refused = httpx.request(method, f"{url}/v1/{path}", json=None if method == "GET" else body)
            assert refused.status_code == 503, path
            assert "not ready: starting for" in refused.json()["error"]["message"]
            assert int(refused.headers["retry-after"]) > 0
        assert httpx.get(f"{url}/metrics").status_code == 200
        go.set()
        # a client waits and tries again by itself
        assert client.publish({"price": 1})["first"] == 1
        assert httpx.get(f"{url}/readyz").json() == {"ready": True, "failed": []}
        client.subscribe("alice", "a", "price > 0")
        client.publish({"price": 1})
        assert next(client.stream("alice")).sequence == 2


def test_spaces_that_cannot_be_opened_end_the_broker(tmp_path, free_port, capfd):
    broker = Broker(BrokerSettings(data=tmp_path, port=free_port()))
    said = []

    def prepare():
        raise OptionError("the space has another schema")

    # the signals of this process are for the test's main thread, which this is
    with pytest.raises(OptionError, match="another schema"):
        server.serve(broker, prepare, lambda: said.append("ready"))
    assert said == []


def test_a_match_that_fails_while_kernels_are_prepared_keeps_no_space_closed(start, monkeypatch, caplog):
    """What a broker does to be faster later must not keep it from starting, now or ever again."""
    with start() as url, Client(url) as client:
        client.subscribe("alice", "a", "price > 0")

    def fails(*_, **__):
        raise ValueError("attempt to get argmin of an empty sequence")

    with monkeypatch.context() as patch:
        patch.setattr(Index, "match", fails)
        broker = start()
    assert "preparing the kernels for matching failed, and the start goes on without: attempt" in caplog.text
    assert {record.space for record in caplog.records if "preparing" in record.message} == {"main"}
    with broker as url, Client(url) as client:
        assert httpx.get(f"{url}/readyz").json() == {"ready": True, "failed": []}
        client.publish({"price": 1})
        assert next(client.stream("alice")).sequence == 1


def test_a_start_that_takes_long_says_so(monkeypatch):
    monkeypatch.setattr(module, "FIRST_NEWS", 0.01)
    monkeypatch.setattr(module, "NEWS", 0.01)
    said = []
    with Opening(said.append) as opening:
        opening.begin("space main, reading the subscriptions")
        deadline = time.monotonic() + 60
        while len(said) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert all(text.startswith("starting for 0 s: ") for text in said[:3])
    assert said[2].endswith("space main, reading the subscriptions")
    assert opening.ended.is_set()


def test_a_short_start_says_nothing():
    said = []
    with Opening(said.append):
        pass
    time.sleep(0.05)
    assert said == []


def test_a_cold_start_listens_says_what_it_compiles_and_can_be_ended(tmp_path, free_port, monkeypatch):
    """With an empty cache of kernels; nobody waits here until everything is compiled."""
    port = free_port()
    (tmp_path / "schema.toml").write_text(SCHEMA)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    command = [
        sys.executable, "-m", "rangecast", "serve", "--data", str(tmp_path / "data"),
        "--listen", f"127.0.0.1:{port}", "--schema", str(tmp_path / "schema.toml"),
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        try:
            news = []
            for line in running.stderr:
                news.append(line)
                if "compiling kernels, once per machine" in line:
                    break
            assert "starting for" in news[-1]
            assert "kernels for reading JSON, 1 of 6" in news[-1]
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
            answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60)
            assert answer.status_code == 503
            assert "compiling" in answer.json()["reason"]
            assert httpx.get(f"http://127.0.0.1:{port}/v1/main/schema", timeout=60).status_code == 503
        finally:
            running.send_signal(signal.SIGTERM)
            running.stderr.read()
        assert running.wait(60) == 0


@pytest.mark.parametrize(
    "attributes",
    [
        [Point("p")],
        [Timestamp("t")],
        [Int("a.b")],
        [Category("the symbol")],
        [Float('6"')],
        [Int("and")],
        [Point("p q"), Int("a.b"), Category("or")],
    ],
    ids=str,
)
def test_a_broker_starts_with_attributes_of_any_kind_and_name(tmp_path, attributes):
    broker = Broker(BrokerSettings(data=tmp_path, port=0))
    broker.ensure_space("main", Schema(*attributes))
    with serving(broker) as url, Client(url) as client:
        client.subscribe("alice", "a", f"{quoted_name(attributes[0].name)} is missing")
        assert client.match([{}])["matches"] == [["alice/a"]]
        assert httpx.get(f"{url}/readyz").status_code == 200
