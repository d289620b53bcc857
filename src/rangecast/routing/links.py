"""One router's side of the connection to one neighbour, and what goes over it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.covering import CoverIndex
from rangecast.engine import open_index
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema

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
