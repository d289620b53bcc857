"""A broker: which subscription goes to which neighbour, and which event (the package's head says how)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.covering import CoverIndex, reduce
from rangecast.engine import open_index
from rangecast.engine.index import Index
from rangecast.errors import OptionError, SubscriptionError
from rangecast.model.events import Events
from rangecast.model.ids import Ids
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema


class Router:
    """A broker of a network: it decides who gets which subscription and which event.

    `epsilon` says how covers are sought: 0 exactly, above 0 approximately, None not at all. With `together`,
    several forwarded subscriptions may cover one between them; the number is the budget of that search
    (CoverIndex.covers_together). With `withdraw`, a forwarded subscription is taken back when a later, larger
    subscription covers it. `index` is the kind of index of the tables, `method` and further options are those
    of CoverIndex.

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
        together: int = 0,
        withdraw: bool = False,
        **cover_options: Any,
    ) -> None:
        if epsilon is not None and not 0 <= epsilon < 1:
            raise OptionError(f"epsilon must be None, or at least 0 and below 1, got {epsilon}")
        if together < 0:
            raise OptionError(f"together must be a budget of pieces, 0 for none, got {together}")
        if epsilon is None and (together or withdraw):
            raise OptionError("together and withdraw need covers: epsilon must not be None")
        self.schema = schema
        self.epsilon = epsilon
        self.method = method
        self.together = together
        self.withdraw = withdraw
        self._options = dict(cover_options)
        self._index = index
        self._links: dict[Any, Link] = {}
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
        """Add a neighbour; returns the message that tells it what is known here."""
        if neighbour in self._links or neighbour is None:
            raise OptionError(f"a new neighbour must have a new name, got {neighbour!r}")
        self._links[neighbour] = Link(self.schema, self._index, self._options)
        everything = self._known.subscriptions()
        return self._offer(self._links[neighbour], everything)

    def subscribe(self, subs: Subscriptions, source: Any = None) -> dict[Any, Message]:
        """Take in subscriptions of a neighbour, or (None) of local subscribers; returns what to forward."""
        table = self._table(source)
        subs = subs.reconciled(self.schema).expanded()
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
                message = self._offer(link, subs)
                if len(message.add):
                    sent[neighbour] = message
        return sent

    def unsubscribe(self, ids: Any, source: Any = None) -> dict[Any, Message]:
        """Remove subscriptions that came from `source`; returns what to forward and what to withdraw."""
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
            message = Message(Subscriptions.empty(self.schema), drop)
            if len(freed):
                message = merge_messages(self._offer(link, self._known.subscriptions(freed)), message)
            if len(message.add) or len(message.drop):
                sent[neighbour] = message
        return sent

    def receive(self, message: Message, source: Any) -> dict[Any, Message]:
        """Take in a neighbour's message; returns what to forward."""
        sent = self.subscribe(message.add, source)
        if len(message.drop):
            for neighbour, more in self.unsubscribe(message.drop, source).items():
                sent[neighbour] = merge_messages(sent[neighbour], more) if neighbour in sent else more
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

    def _table(self, source: Any) -> Index:
        if source is None:
            return self._local
        if source not in self._links:
            raise OptionError(f"source must be None or a neighbour, got {source!r}")
        return self._links[source].table

    def _offer(self, link: Link, subs: Subscriptions) -> Message:
        """The message to a neighbour about these: what goes, is withheld and is taken back is recorded."""
        if self.epsilon is None:
            link.forwarded.insert(subs)
            return Message(subs, NO_IDS)
        pairs, found = link.forwarded.pairs(subs, self.epsilon, self.method)
        link.withheld.add(*pairs)
        if found.any():
            subs = subs.select(~found)
        # before they are reduced by themselves, so that whatever covers others is forwarded
        if self.together and len(subs):
            subs = self._withhold_together(link, subs)
        if len(subs) > 1:
            reduction = reduce(subs, self.epsilon, self.method, **self._options)
            link.withheld.add(*reduction.ids)
            subs = reduction.kept
        drop = NO_IDS
        if self.withdraw and len(subs) and len(link.forwarded):
            drop, covers = link.forwarded.covered_by(subs)
            link.forwarded.delete(Ids.of(drop))
            link.withheld.replace(drop, covers)
            link.withheld.add(drop, covers)
        link.forwarded.insert(subs)
        return Message(subs, drop)

    def _withhold_together(self, link: Link, subs: Subscriptions) -> Subscriptions:
        """Withhold what several that were forwarded cover together; returns what is left."""
        found = link.forwarded.covers_together(subs, self.together, self.epsilon or 0.0, self.method)
        counts = np.array([len(ids) for ids in found])
        if not counts.any():
            return subs
        link.withheld.add(subs.ids.take(np.repeat(np.arange(len(subs)), counts)), np.concatenate(found))
        return subs.select(counts == 0)

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


# One router's side of the connection to one neighbour, and what goes over it.

IdArray = npt.NDArray[Any]
NO_IDS: IdArray = np.empty(0, np.int64)


class Message(NamedTuple):
    """What one router tells a neighbour: first what to add, then the ids to take out."""

    add: Subscriptions
    drop: IdArray


class Withheld:
    """Pairs of ids: what was not forwarded, and what covers it, a pair for each that does so with others."""

    def __init__(self) -> None:
        self._chunks: list[tuple[IdArray, IdArray]] = []

    def __len__(self) -> int:
        ids = [ids for ids, _ in self._chunks]
        return len(np.unique(np.concatenate(ids))) if ids else 0

    def add(self, ids: IdArray, covers: IdArray) -> None:
        """Record what is covered, each with its cover."""
        if len(ids):
            self._chunks.append((ids, covers))

    def drop(self, ids: IdArray) -> IdArray:
        """Remove ids; returns those that were here."""
        if not self._chunks or not len(ids):
            return NO_IDS
        held, covers = self._columns()
        hit = np.isin(held, ids)
        self._chunks = [(held[~hit], covers[~hit])]
        return np.unique(held[hit])

    def release(self, covers: IdArray) -> IdArray:
        """Take out, and give, what these covered, alone or with others."""
        if not self._chunks or not len(covers):
            return NO_IDS
        held, by = self._columns()
        return self.drop(np.unique(held[np.isin(by, covers)]))

    def replace(self, covers: IdArray, larger: IdArray) -> None:
        """What each of some ids covered is now covered by a larger one that covers it."""
        if not self._chunks or not len(covers):
            return
        held, by = self._columns()
        order = np.argsort(covers, kind="stable")
        at = np.minimum(np.searchsorted(covers[order], by), len(covers) - 1)
        hit = covers[order][at] == by
        by = np.where(hit, larger[order][at], by)
        self._chunks = [(held, by)]

    def _columns(self) -> tuple[IdArray, IdArray]:
        held, covers = (np.concatenate(column) for column in zip(*self._chunks, strict=True))
        return held, covers


class Link:
    """A router's side of the connection to one neighbour."""

    def __init__(self, schema: Schema, index: str, cover_options: dict[str, Any]) -> None:
        self.table = open_index(index, schema)
        self.forwarded = CoverIndex(schema, **cover_options)
        self.withheld = Withheld()


def merge_messages(one: Message, two: Message) -> Message:
    """Two messages to one neighbour as one; what the second takes back of the first is in neither."""
    both = [_but(one.add, two.drop), _but(two.add, one.drop)]
    again = (_ids_of(two.add), _ids_of(one.add))
    drops = [
        m.drop[~np.isin(m.drop, ids)] if len(ids) else m.drop
        for m, ids in zip((one, two), again, strict=True)
    ]
    drop = np.concatenate([d for d in drops if len(d)] or [NO_IDS])
    subs = [add for add in both if len(add)]
    if len(subs) < 2:
        return Message(subs[0] if subs else both[0], drop)
    return Message(Subscriptions.concat(subs), drop)


def _ids_of(subs: Subscriptions) -> IdArray:
    return subs.ids.take(np.arange(len(subs)))


def _but(subs: Subscriptions, ids: IdArray) -> Subscriptions:
    """Subscriptions without those of some ids."""
    if not len(subs) or not len(ids):
        return subs
    return subs.select(~np.isin(_ids_of(subs), ids))


# An overlay of routers in one process, a tree: it carries their messages and counts them.


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
