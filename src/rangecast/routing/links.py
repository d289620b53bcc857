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
    """Pairs of ids: what was not forwarded, and what covers it."""

    def __init__(self) -> None:
        self._chunks: list[tuple[IdArray, IdArray]] = []

    def __len__(self) -> int:
        return sum(len(ids) for ids, _ in self._chunks)

    def add(self, ids: IdArray, covers: IdArray) -> None:
        """Record what is covered, each with its cover."""
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
            return NO_IDS
        ids, covers = (np.concatenate(column) for column in zip(*self._chunks, strict=True))
        hit = np.isin((ids, covers)[side], wanted)
        self._chunks = [(ids[~hit], covers[~hit])]
        return ids[hit]


class Link:
    """A router's side of the connection to one neighbour."""

    def __init__(self, schema: Schema, index: str, cover_options: dict[str, Any]) -> None:
        self.table = open_index(index, schema)
        self.forwarded = CoverIndex(schema, **cover_options)
        self.withheld = Withheld()


def merge_messages(one: Message, two: Message) -> Message:
    """Two messages to one neighbour as one."""
    subs = [m.add for m in (one, two) if len(m.add)]
    drop = np.concatenate([m.drop for m in (one, two) if len(m.drop)] or [NO_IDS])
    if len(subs) < 2:
        return Message(subs[0] if subs else one.add, drop)
    return Message(Subscriptions.concat(subs), drop)
