"""A broker in a thread of the test's process."""

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")

from rangecast import Category, Float, Int, Schema
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving
from rangecast.client import Client

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
        broker = Broker(BrokerSettings(data=options.pop("data", tmp_path / "data"), port=0, **options))
        broker.open()
        broker.ensure_space("main", market())
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
