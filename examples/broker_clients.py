"""A broker with two clients: `python examples/broker_clients.py`.

Ann listens all the time. Bob subscribes, goes away, and gets what he missed when he comes back: the broker
keeps the events, and how far each consumer has acknowledged them. Here the broker runs within the program;
`rangecast serve` runs one for everybody.
"""

import tempfile
import threading
from pathlib import Path

import rangecast as rc
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving
from rangecast.client import Client

SCHEMA = rc.Schema(rc.Category("symbol"), rc.Float("price"))
TRADES = [
    {"symbol": "IBM", "price": 119.5},
    {"symbol": "IBM", "price": 125.0},
    {"symbol": "ACME", "price": 9.0},
    {"symbol": "ACME", "price": "nine"},
]


def listen(url: str, consumer: str, n: int, said: list[str]) -> None:
    """Take n messages of a consumer, and acknowledge each when it was dealt with."""
    with Client(url) as client:
        for message in client.stream(consumer):
            names = ", ".join(message.subscriptions)
            said.append(
                f"{consumer} is told of {message.event['symbol']} at {message.event['price']}: {names}"
            )
            client.ack(consumer, message.sequence)
            n -= 1
            if n == 0:
                return


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(BrokerSettings(data=Path(folder), port=0))
        broker.ensure_space("main", SCHEMA)
        with serving(broker) as url, Client(url) as publisher:
            publisher.subscribe("ann", "ibm", "symbol = 'IBM'")
            publisher.subscribe("ann", "high", "price > 120")
            publisher.subscribe("bob", "cheap", "price < 10")

            live: list[str] = []
            ann = threading.Thread(target=listen, args=(url, "ann", 2, live))
            ann.start()
            answer = publisher.publish(TRADES)
            print(f"published {answer['first']} to {answer['last']}")
            for row in answer["rejected"]:
                print(f"rejected row {row['row']}: {row['reason']}")
            ann.join()
            print(*live, sep="\n")

            late: list[str] = []  # Bob comes back now
            listen(url, "bob", 1, late)
            print(*late, sep="\n")


if __name__ == "__main__":
    main()
