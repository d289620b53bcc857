"""A broker: which subscription goes to which neighbour, and which event (the package's head says how)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
from rangecast.routing.links import NO_IDS, Link, Message, merge_messages
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
