"""An overlay of routers in one process, a tree: it carries their messages and counts them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError, SubscriptionError
from rangecast.model.events import Events
from rangecast.model.ids import Ids
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.routing.links import NO_IDS, IdArray, Message
from rangecast.routing.router import Router
from rangecast.types.schema import Schema


class Network:
    """Routers in a tree, in one process, with every message counted.

    >>> from rangecast import Int, Schema
    >>> schema = Schema(Int("price"))
    >>> network = Network.line(schema, 4)
    >>> network.subscribe(0, Subscriptions.parse(schema, {1: "price < 50", 2: "price = 7"}))
    >>> matches = network.publish(3, Events.from_rows(schema, [{"price": 7}, {"price": 60}]))
    >>> matches.row(0).tolist(), len(matches.row(1)), network.stats()["table_entries"]
    ([1, 2], 0, 3)
    """

    def __init__(self, schema: Schema, links: Sequence[tuple[int, int]], **options: Any) -> None:
        n = len(links) + 1
        _check_tree(n, links)
        self.schema = schema
        neighbours: list[list[int]] = [[] for _ in range(n)]
        for a, b in links:
            neighbours[a].append(b)
            neighbours[b].append(a)
        self.routers = [Router(schema, near, **options) for near in neighbours]
        self._homes: dict[Any, int] = {}
        self._counts = dict.fromkeys(
            ("subscribed", "subscription_messages", "withdrawal_messages", "published", "event_messages"), 0
        )
        self._counts["notifications"] = 0
        self._seconds = 0.0

    def __repr__(self) -> str:
        return f"<Network: {len(self.routers):,} routers, {len(self._homes):,} subscriptions>"

    @classmethod
    def line(cls, schema: Schema, n: int, **options: Any) -> Network:
        """n routers in a row."""
        return cls(schema, [(i, i + 1) for i in range(_size(n) - 1)], **options)

    @classmethod
    def star(cls, schema: Schema, n: int, **options: Any) -> Network:
        """Router 0 in the middle of n - 1 others."""
        return cls(schema, [(0, i) for i in range(1, _size(n))], **options)

    @classmethod
    def random_tree(cls, schema: Schema, n: int, seed: int = 0, **options: Any) -> Network:
        """n routers, each joined to one of those before it, which is drawn evenly."""
        rng = np.random.default_rng(seed)
        return cls(schema, [(int(rng.integers(0, i)), i) for i in range(1, _size(n))], **options)

    def subscribe(self, router: int, subs: Subscriptions) -> None:
        """Subscribe at a router, and carry messages until none are left."""
        ids = subs.ids.take(np.arange(len(subs))).tolist()
        held = self._homes.keys() & set(ids)
        if held:
            raise SubscriptionError(f"an id must be new to a network, got {min(held)!r} again")
        started = time.perf_counter()
        sent = self._at(router).subscribe(subs)
        self._homes.update(dict.fromkeys(ids, router))
        self._counts["subscribed"] += len(subs)
        self._carry(router, sent)
        self._seconds += time.perf_counter() - started

    def unsubscribe(self, router: int, ids: Any) -> list[Any]:
        """Unsubscribe at the router where the ids were subscribed; returns those that were not."""
        wanted = Ids.of(ids if not isinstance(ids, int | str) else [ids])
        values = dict.fromkeys(wanted.take(np.arange(len(wanted))).tolist())
        mine = [i for i in values if self._homes.get(i, -1) == router]
        if mine:
            started = time.perf_counter()
            sent = self._at(router).unsubscribe(mine)
            for i in mine:
                del self._homes[i]
            self._carry(router, sent)
            self._seconds += time.perf_counter() - started
        return [i for i in values if i not in set(mine)]

    def publish(self, router: int, events: Events) -> Matches:
        """Publish at a router; returns, per event, the ids of all subscriptions that were notified."""
        rows: list[npt.NDArray[np.int64]] = []
        found: list[IdArray] = []
        queue: deque[tuple[int, Any, npt.NDArray[Any]]] = deque([(router, None, np.arange(len(events)))])
        while queue:
            at, source, which = queue.popleft()
            local, onward = self._at(at).publish(events.select(which), source)
            if local.n_pairs:
                rows.append(which[local.events()])
                found.append(local.ids)
            for neighbour, picked in onward.items():
                self._counts["event_messages"] += len(picked)
                queue.append((neighbour, at, which[picked]))
        self._counts["published"] += len(events)
        where = np.concatenate(rows) if rows else np.empty(0, np.int64)
        ids = np.concatenate(found) if found else NO_IDS
        self._counts["notifications"] += len(ids)
        order = np.argsort(where, kind="stable")
        offsets = np.searchsorted(where[order], np.arange(len(events) + 1))
        return Matches.from_ids(offsets, ids[order]).sort()

    def _at(self, router: int) -> Router:
        if not 0 <= router < len(self.routers):
            raise OptionError(f"router must be within 0 and {len(self.routers) - 1}, got {router}")
        return self.routers[router]

    def _carry(self, router: int, sent: dict[Any, Message]) -> None:
        queue = deque((router, to, message) for to, message in sent.items())
        while queue:
            source, at, message = queue.popleft()
            self._counts["subscription_messages"] += len(message.add)
            self._counts["withdrawal_messages"] += len(message.drop)
            onward = self.routers[at].receive(message, source)
            queue.extend((at, to, more) for to, more in onward.items())

    def stats(self) -> dict[str, Any]:
        """Table entries over all routers, messages carried, and time spent on subscriptions."""
        totals = [router.stats() for router in self.routers]
        subscribed = self._counts["subscribed"]
        return {
            "routers": len(self.routers),
            "subscriptions": len(self._homes),
            "table_entries": sum(t["table_entries"] for t in totals),
            "withheld": sum(t["withheld"] for t in totals),
            **self._counts,
            "seconds": self._seconds,
            "seconds_per_subscription": self._seconds / subscribed if subscribed else 0.0,
        }


def _size(n: int) -> int:
    if n < 1:
        raise OptionError(f"a network needs at least one router, got {n}")
    return n


def _check_tree(n: int, links: Sequence[tuple[int, int]]) -> None:
    """Raise unless the links join n routers without a cycle: an event must find one way only."""
    groups = list(range(n))

    def root(i: int) -> int:
        while groups[i] != i:
            groups[i] = groups[groups[i]]
            i = groups[i]
        return i

    for a, b in links:
        if not (0 <= a < n and 0 <= b < n) or root(a) == root(b):
            raise OptionError(f"the links must join routers 0 to {n - 1} as a tree, got ({a}, {b})")
        groups[root(a)] = root(b)
