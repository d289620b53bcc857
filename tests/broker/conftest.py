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
