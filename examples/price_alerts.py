"""Price alerts in asyncio: `python examples/price_alerts.py`.

A market sends trades. Each is matched at once, in the event loop, since that takes microseconds. People add
and withdraw alerts meanwhile; the next trade sees the change, wholly or not at all.
"""

import asyncio
import random

import rangecast as rc

SCHEMA = rc.Schema(rc.Category("symbol"), rc.Float("price"), rc.Float("change"))
SYMBOLS = ("ACME", "BOLT", "CURE")


class Alerts:
    """Who wants to be told of what."""

    def __init__(self) -> None:
        self.index = rc.open_index("auto", SCHEMA)
        self.owners: dict[int, str] = {}

    def add(self, number: int, owner: str, condition: str) -> None:
        self.index.insert(rc.Subscriptions.parse(SCHEMA, {number: condition}))
        self.owners[number] = owner
        print(f"{owner} adds alert {number}: {condition}")

    def withdraw(self, number: int) -> None:
        self.index.delete([number])
        print(f"{self.owners.pop(number)} withdraws alert {number}")

    def told(self, trade: dict[str, object]) -> list[str]:
        """Who is told of a trade."""
        return [f"{self.owners[number]} ({number})" for number in sorted(self.index.match_one(trade))]


async def market(trades: asyncio.Queue, n: int, seed: int) -> None:
    """A made-up market: prices walk at random."""
    draw = random.Random(seed)
    prices = dict.fromkeys(SYMBOLS, 100.0)
    for _ in range(n):
        symbol = draw.choice(SYMBOLS)
        change = draw.gauss(0, 0.02)
        prices[symbol] *= 1 + change
        await trades.put({"symbol": symbol, "price": round(prices[symbol], 2), "change": round(change, 4)})


async def notify(trades: asyncio.Queue, alerts: Alerts) -> None:
    """Match each trade as it comes, and tell whom it concerns."""
    while True:
        trade = await trades.get()
        told = alerts.told(trade)
        if told:
            print(f"  {trade['symbol']} at {trade['price']} ({trade['change']:+.2%}): {', '.join(told)}")
        trades.task_done()


async def main() -> None:
    alerts = Alerts()
    alerts.add(1, "ann", "symbol = 'ACME' and price < 99")
    alerts.add(2, "bob", "change < -0.03 or change > 0.03")
    trades: asyncio.Queue = asyncio.Queue()
    matching = asyncio.create_task(notify(trades, alerts))
    await market(trades, 15, seed=1)
    await trades.join()
    alerts.add(3, "cid", "price between 90 and 105 and symbol in ('BOLT', 'CURE') and change > 0.02")
    alerts.withdraw(1)
    await market(trades, 15, seed=2)
    await trades.join()
    matching.cancel()


if __name__ == "__main__":
    asyncio.run(main())
