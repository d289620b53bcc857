"""Content-based routing: brokers that forward to a neighbour only what nothing forwarded covers.

A `Router` stands between its own subscribers and its neighbours. For each neighbour it keeps

    table       what came from there: an event that matches goes there
    forwarded   what was sent there, as a CoverIndex, to be asked for covers
    withheld    what was not sent there, each with the forwarded subscription that covers it

A subscription goes to a neighbour unless one that was forwarded to it covers it; when a forwarded one is
withdrawn, what it had covered is offered again, and goes first, so that no event is missed in between.
Whatever is not found by an approximate search (epsilon > 0) is forwarded: covering saves messages and
table entries, and never changes who is notified.

A `Network` is an overlay of routers in one process, a tree: it carries their messages and counts them.

Source: the use that Shen and Tirthapura (2012, sec. 1) make of covering; Carzaniga, Rutherford and Wolf's
"A routing scheme for content-based networking" (2004) is where it comes from. A withdrawn cover is
found by the pair that was recorded when it withheld another, as the searches give one cover, not all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.covering import CoverIndex, reduce
from rangecast.errors import OptionError, SubscriptionError
from rangecast.events import Events
from rangecast.ids import Ids
from rangecast.indexes import open_index
from rangecast.matches import Matches
from rangecast.schema import Schema
from rangecast.subscriptions import Subscriptions

IdArray = npt.NDArray[Any]
_NO_IDS: IdArray = np.empty(0, np.int64)


class Message(NamedTuple):
    """What one router tells a neighbour: first what to add, then the ids to take out."""

    add: Subscriptions
    drop: IdArray


class _Withheld:
    """Pairs of ids: what was not forwarded, and what covers it."""

    def __init__(self) -> None:
        self._chunks: list[tuple[IdArray, IdArray]] = []

    def __len__(self) -> int:
        return sum(len(ids) for ids, _ in self._chunks)

    def add(self, ids: IdArray, covers: IdArray) -> None:
        if len(ids):
            self._chunks.append((ids, covers))

    def drop(self, ids: IdArray) -> IdArray:
        """Take ids out; gives those that were here."""
        return self._take(ids, 0)

    def release(self, covers: IdArray) -> IdArray:
        """Take out, and give, what these covered."""
        return self._take(covers, 1)

    def _take(self, wanted: IdArray, side: int) -> IdArray:
        if not self._chunks or not len(wanted):
            return _NO_IDS
        ids, covers = (np.concatenate(column) for column in zip(*self._chunks, strict=True))
        hit = np.isin((ids, covers)[side], wanted)
        self._chunks = [(ids[~hit], covers[~hit])]
        return ids[hit]


class _Link:
    """A router's side of the connection to one neighbour."""

    def __init__(self, schema: Schema, index: str, cover_options: dict[str, Any]) -> None:
        self.table = open_index(index, schema)
        self.forwarded = CoverIndex(schema, **cover_options)
        self.withheld = _Withheld()


class Router:
    """A broker: who gets which subscription and which event.

    `epsilon` says how covers are sought: 0 exactly, above 0 approximately, None not at all. `index` is
    the kind of index of the tables, `method` and further options are those of CoverIndex.

    >>> from rangecast import Int, Schema
    >>> schema = Schema(Int("price"))
    >>> router = Router(schema, ["east", "west"])
    >>> sent = router.subscribe(Subscriptions.parse(schema, {1: "price < 50", 2: "price = 7"}))
    >>> {to: message.add.ids.values.tolist() for to, message in sent.items()}
    {'east': [1], 'west': [1]}
    >>> sent = router.unsubscribe([1])
    >>> [(message.add.ids.values.tolist(), message.drop.tolist()) for message in sent.values()]
    [([2], [1]), ([2], [1])]
    """

    def __init__(
        self,
        schema: Schema,
        neighbours: Iterable[Any] = (),
        epsilon: float | None = 0.0,
        index: str = "auto",
        method: str | None = None,
        **cover_options: Any,
    ) -> None:
        if epsilon is not None and not 0 <= epsilon < 1:
            raise OptionError(f"epsilon must be None, or at least 0 and below 1, got {epsilon}")
        self.schema = schema
        self.epsilon = epsilon
        self.method = method
        self._options = dict(cover_options)
        self._index = index
        self._links: dict[Any, _Link] = {}
        self._local = open_index(index, schema)
        # every subscription that is known here, by id
        self._known = CoverIndex(schema)
        for neighbour in neighbours:
            self.connect(neighbour)

    def __repr__(self) -> str:
        return f"<Router: {len(self._links)} neighbours, {len(self._known):,} subscriptions>"

    @property
    def neighbours(self) -> tuple[Any, ...]:
        """The names of the neighbours."""
        return tuple(self._links)

    def connect(self, neighbour: Any) -> Message:
        """Add a neighbour; gives the message that tells it what is known here."""
        if neighbour in self._links or neighbour is None:
            raise OptionError(f"a new neighbour must have a name of its own, got {neighbour!r}")
        self._links[neighbour] = _Link(self.schema, self._index, self._options)
        everything = self._known.subscriptions()
        return Message(self._offer(self._links[neighbour], everything), _NO_IDS)

    def subscribe(self, subs: Subscriptions, source: Any = None) -> dict[Any, Message]:
        """Take in subscriptions of a neighbour, or (None) of local subscribers; gives what to forward."""
        table = self._table(source)
        subs = subs.reconciled(self.schema)
        if not len(subs):
            return {}
        seen = np.flatnonzero(self._known.contains(subs.ids))
        if len(seen):
            raise SubscriptionError(
                f"an id must be new to a router, got {subs.ids[int(seen[0])]!r} again ({len(seen)} of "
                f"{len(subs)} subscriptions); unsubscribe it first"
            )
        self._known.insert(subs)
        table.insert(subs)
        sent = {}
        for neighbour, link in self._links.items():
            if neighbour != source:
                forward = self._offer(link, subs)
                if len(forward):
                    sent[neighbour] = Message(forward, _NO_IDS)
        return sent

    def unsubscribe(self, ids: Any, source: Any = None) -> dict[Any, Message]:
        """Take out subscriptions that came from `source`; gives what to forward and what to withdraw."""
        table = self._table(source)
        wanted = Ids.of(ids)
        unknown = table.delete(wanted)
        if unknown:
            raise SubscriptionError(f"no subscription of {source!r} has the id {unknown[0]!r}")
        gone = wanted.take(np.arange(len(wanted)))
        self._known.delete(wanted)
        sent = {}
        for neighbour, link in self._links.items():
            if neighbour == source:
                continue
            kept_back = link.withheld.drop(gone)
            drop = gone[~np.isin(gone, kept_back)] if len(kept_back) else gone
            link.forwarded.delete(Ids.of(drop))
            freed = link.withheld.release(drop)
            add = Subscriptions.empty(self.schema)
            if len(freed):
                add = self._offer(link, self._known.subscriptions(freed))
            if len(drop) or len(add):
                sent[neighbour] = Message(add, drop)
        return sent

    def receive(self, message: Message, source: Any) -> dict[Any, Message]:
        """Take in a neighbour's message; gives what to forward."""
        sent = self.subscribe(message.add, source)
        if len(message.drop):
            for neighbour, more in self.unsubscribe(message.drop, source).items():
                sent[neighbour] = _joined(sent[neighbour], more) if neighbour in sent else more
        return sent

    def publish(self, events: Events, source: Any = None) -> tuple[Matches, dict[Any, npt.NDArray[np.int64]]]:
        """The local subscriptions that events match, and per neighbour the rows of events to send there."""
        if source is not None:
            self._table(source)
        onward = {}
        for neighbour, link in self._links.items():
            if neighbour != source and len(link.table):
                rows = np.flatnonzero(link.table.match(events).counts)
                if len(rows):
                    onward[neighbour] = rows
        return self._local.match(events), onward

    def _table(self, source: Any) -> Any:
        if source is None:
            return self._local
        if source not in self._links:
            raise OptionError(f"source must be None or a neighbour, got {source!r}")
        return self._links[source].table

    def _offer(self, link: _Link, subs: Subscriptions) -> Subscriptions:
        """Record what of these goes over a link and what is withheld; gives what goes."""
        if self.epsilon is None:
            link.forwarded.insert(subs)
            return subs
        pairs, found = link.forwarded.pairs(subs, self.epsilon, self.method)
        link.withheld.add(*pairs)
        if found.any():
            subs = subs.select(~found)
        if len(subs) > 1:
            reduction = reduce(subs, self.epsilon, self.method, **self._options)
            link.withheld.add(*reduction.ids)
            subs = reduction.kept
        link.forwarded.insert(subs)
        return subs

    def stats(self) -> dict[str, int]:
        """Counts: what is known, held in tables for neighbours, forwarded and withheld."""
        links = self._links.values()
        return {
            "subscriptions": len(self._known),
            "local": len(self._local),
            "table_entries": sum(len(link.table) for link in links),
            "forwarded": sum(len(link.forwarded) for link in links),
            "withheld": sum(len(link.withheld) for link in links),
        }


def _joined(one: Message, two: Message) -> Message:
    subs = [m.add for m in (one, two) if len(m.add)]
    drop = np.concatenate([m.drop for m in (one, two) if len(m.drop)] or [_NO_IDS])
    if len(subs) < 2:
        return Message(subs[0] if subs else one.add, drop)
    owners = np.concatenate([subs[0].owners, subs[1].owners + np.int32(len(subs[0]))])
    ids = np.concatenate([s.ids.take(np.arange(len(s))) for s in subs])
    lows, highs = (np.concatenate([getattr(s, side) for s in subs], axis=1) for side in ("lows", "highs"))
    return Message(Subscriptions(subs[0].schema, ids, lows, highs, owners), drop)


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
        """n routers, each joined to one of those before it, drawn evenly."""
        rng = np.random.default_rng(seed)
        return cls(schema, [(int(rng.integers(0, i)), i) for i in range(1, _size(n))], **options)

    def subscribe(self, router: int, subs: Subscriptions) -> None:
        """Subscribe at a router, and carry messages until there are no more."""
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
        """Unsubscribe at the router where ids were subscribed; gives back those that were not."""
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
        """Publish at a router; gives, per event, the ids of all subscriptions that were notified."""
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
        ids = np.concatenate(found) if found else _NO_IDS
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
