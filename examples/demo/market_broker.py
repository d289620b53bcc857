"""`rangecast serve-demo`: a broker with many alerts and a made-up market, for two minutes."""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.console import say
from rangecast.client import Client, ClientError
from rangecast.errors import SetupError, extra_hint
from rangecast.types.attributes import Category, Float, Int
from rangecast.types.schema import Schema

SYMBOLS = [f"{a}{b}{c}" for a in "ABCDEFGHIJ" for b in "AEIOU" for c in "KLMNRST"]
_TOGETHER = 5_000


def serve_demo(
    alerts: Annotated[int, typer.Option(min=1, help="Number of subscriptions.")] = 100_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long it runs, in seconds.")] = 120.0,
    rate: Annotated[int, typer.Option(min=1, help="Ticks of the market per second.")] = 2_000,
    port: Annotated[int, typer.Option(min=0, help="Port to listen on; 0 takes a free one.")] = 8080,
) -> None:
    """Run a broker with alerts and a made-up market, and print the address of its page.

    It ends by itself, or on Ctrl-C; nothing is kept.
    """
    try:
        from rangecast.broker.broker import Broker, BrokerSettings
        from rangecast.broker.server import serving
        from rangecast.broker.space import Opening
    except ImportError as error:
        raise SetupError(f"rangecast serve-demo needs {error.name}: {extra_hint('serve')}") from None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = Broker(BrokerSettings(data=folder, port=port))
        schema = Schema(Category("symbol"), Float("price"), Int("volume"), Float("x"), Float("y"))
        with Opening(lambda news: say(f"rangecast: {news}")) as broker.opening:
            broker.ensure_space("main", schema)
        broker.opening = None
        url = stack.enter_context(serving(broker))
        client = stack.enter_context(Client(url))
        say(f"rangecast: the page is at {url}/")
        source = random.Random(1)
        say(f"rangecast: subscribing {alerts:,} alerts")
        for first in range(0, alerts, _TOGETHER):
            client.subscribe_many(_alert(source, n) for n in range(first, min(alerts, first + _TOGETHER)))
        end = time.monotonic() + seconds
        stopping = threading.Event()
        listeners = [
            threading.Thread(target=_listen, args=(url, f"watcher-{k}", stopping), daemon=True)
            for k in range(20)
        ]
        for listener in listeners:
            listener.start()
        say(f"rangecast: the market is open for {seconds:g} seconds; Ctrl-C ends it")
        try:
            _trade(client, source, rate, end)
        finally:
            stopping.set()
        (status,) = client.status()["spaces"]
        n_events, n_alerts = status["next"] - 1, status["subscriptions"]
        say(f"rangecast: {n_events:,} events for {n_alerts:,} subscriptions; the demo has ended")


def _alert(source: random.Random, n: int) -> dict[str, object]:
    low = source.uniform(10, 200)
    condition = f"symbol = '{source.choice(SYMBOLS)}' and price between {low:.2f} and {low * 1.02:.2f}"
    if n % 50 == 0:
        x, y = source.uniform(0, 100), source.uniform(0, 100)
        condition = f"x between {x:.1f} and {x + 5:.1f} and y between {y:.1f} and {y + 5:.1f}"
    return {"consumer": f"watcher-{n % 1000}", "name": f"alert-{n}", "condition": condition}


def _trade(client: Client, source: random.Random, rate: int, end: float) -> None:
    prices = {symbol: source.uniform(20, 180) for symbol in SYMBOLS}
    size = max(1, rate // 20)
    due = time.monotonic()
    while time.monotonic() < end:
        ticks = []
        for _ in range(size):
            symbol = source.choice(SYMBOLS)
            prices[symbol] *= source.uniform(0.995, 1.005)
            ticks.append({
                "symbol": symbol, "price": round(prices[symbol], 2), "volume": source.randrange(1, 1000),
                "x": round(source.uniform(0, 100), 2), "y": round(source.uniform(0, 100), 2),
            })  # fmt: skip
        client.publish(ticks)
        due += size / rate
        time.sleep(max(0.0, due - time.monotonic()))


def _listen(url: str, consumer: str, stopping: threading.Event) -> None:
    with Client(url) as client:
        try:
            for _ in client.stream(consumer, "now", notices=True):
                if stopping.is_set():
                    return
        except (ClientError, json.JSONDecodeError):
            return
