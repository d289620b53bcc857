"""What an event changes for its object: which subscriptions it entered, left or stays in.

In a space with an object key the events of one key are successive states of one object. Each is logged
together with the state before it, so an answer rests on the record alone: who reads it later gets what one
gets at once, and nothing that was delivered has to be remembered.

    array      dtype   shape    meaning
    objects    int64   (2, n)   128 bits that stand for the key of each event; zeros where it has none
    previous   int64   n        the sequence number of the object's event before; 0 where there is none
    before     int64   (d, n)   the codes of that event

Both states are compared with the subscriptions of the event's own pin. So a subscription is `entered` where
the event matches it and the state before does not, or there is none; `left` where only the state before
does; and stays where both do. A whole number stands for itself, a string for its BLAKE2b digest.

The state before is that of the last event of the object that the log still has: when retention has removed
it, the object is a new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine import Index
from rangecast.errors import SchemaError
from rangecast.model.events import Events
from rangecast.tracking.kernels import KEPT
from rangecast.tracking.tracker import compared_rows
from rangecast.types.attributes import MISSING
from rangecast.types.schema import Schema

KEY_KINDS = ("int", "category", "text")
_Key = tuple[int, int]
_NOBODY: _Key = (0, 0)


class ObjectLinks(NamedTuple):
    """The objects of some events and what each was before; see the module head."""

    objects: npt.NDArray[np.int64]
    previous: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]


class ChangedPairs(NamedTuple):
    """Pairs of an event and an entry that it is in or was in before, ordered by event."""

    rows: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.uint8]
    """ENTERED, LEFT or STAYS."""

    def where(self, kept: npt.NDArray[np.bool_]) -> ChangedPairs:
        """The pairs whose place is true."""
        return ChangedPairs(self.rows[kept], self.entries[kept], self.kinds[kept])

    def joined(self, others: ChangedPairs) -> ChangedPairs:
        """These and others of the same events."""
        rows = np.concatenate([self.rows, others.rows])
        order = np.argsort(rows, kind="stable")
        entries = np.concatenate([self.entries, others.entries])
        return ChangedPairs(rows[order], entries[order], np.concatenate([self.kinds, others.kinds])[order])


def check_object_key(schema: Schema, key: str) -> None:
    """Raise SchemaError unless an attribute can tell objects apart."""
    if key not in schema.names or schema[key].kind not in KEY_KINDS:
        raise SchemaError(f"the object key must be an int or a category of the schema, got {key!r}")


class ObjectStates:
    """The last state of each object of a space; used by the matcher thread alone."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._states: dict[_Key, tuple[int, npt.NDArray[np.int64]]] = {}
        self._drafted: dict[_Key, tuple[int, npt.NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        return len(self._states)

    def load(self, records: Iterable[Any]) -> None:
        """Take in the events of the log."""
        for record in records:
            links = record.links
            if links is not None:
                self._take(links.objects, record.codes, record.head.sequence)
        self.keep()

    def link(
        self, events: Events, codes: npt.NDArray[np.int64], first: int, schema: Schema | None = None
    ) -> ObjectLinks:
        """What events follow that get the numbers from `first` on; `keep` makes them the last ones.

        The codes are those of a schema, by default the events' own.
        """
        n = codes.shape[1]
        objects = np.zeros((2, n), np.int64)
        position = events.schema.position(self.key)
        for e in range(n):
            objects[:, e] = _stands_for(events.value_at(position, e))
        return ObjectLinks(objects, *self._take(objects, codes, first, schema))

    def _take(
        self,
        objects: npt.NDArray[np.int64],
        codes: npt.NDArray[np.int64],
        first: int,
        schema: Schema | None = None,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        d, n = codes.shape
        previous, before = np.zeros(n, np.int64), np.full((d, n), MISSING, np.int64)
        drafted, states = self._drafted, self._states
        for e, key in enumerate(zip(*objects.tolist(), strict=True)):
            if key == _NOBODY:
                continue
            found = drafted.get(key) or states.get(key)
            if found is not None:
                previous[e] = found[0]
                last = found[1]
                if schema is not None and len(last) < d:
                    last = widened(schema, last[:, np.newaxis])[:, 0]
                before[: len(last), e] = last[:d]
            drafted[key] = first + e, codes[:, e].copy()
        return previous, before

    def keep(self) -> None:
        """The events that were linked are on disk."""
        self._states.update(self._drafted)
        self._drafted = {}

    def drop(self) -> None:
        """The events that were linked are not on disk."""
        self._drafted = {}

    def forget(self, oldest: int) -> None:
        """Forget objects whose last event came before this sequence number."""
        self._states = {key: state for key, state in self._states.items() if state[0] >= oldest}


def _stands_for(value: Any) -> _Key:
    if value is None:
        return _NOBODY
    if isinstance(value, int):
        return 1, value
    digest = hashlib.blake2b(str(value).encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little", signed=True) | 2, int.from_bytes(
        digest[8:], "little", signed=True
    )


def widened(
    schema: Schema, codes: npt.NDArray[np.int64], owners: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.int64]:
    """Codes for a schema: expressions that came after them are computed, as far as codes say the values."""
    if len(codes) >= len(schema):
        return codes[: len(schema)]
    wide: npt.NDArray[np.int64] = Events.coded(schema, codes, owners).encoded(schema).codes
    return wide


def changed_pairs(index: Index, events: Events, links: ObjectLinks) -> ChangedPairs:
    """What events are in, and what their objects were in before."""
    n = len(events)
    offsets, entries = _rows(index, events)
    known = np.flatnonzero(links.previous)
    starts = np.zeros(n, np.int64)
    lengths = np.zeros(n, np.int64)
    pool = np.empty(0, np.int64)
    if len(known):
        places, pool = _rows(index, Events.coded(index.schema, np.ascontiguousarray(links.before[:, known])))
        starts[known] = places[:-1]
        lengths[known] = np.diff(places)
    found = compared_rows(np.full(n, KEPT), (starts, lengths, pool), offsets, entries)
    return ChangedPairs(found.events, found.codes, found.kinds)


def _rows(index: Index, events: Events) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the row of each event begins, and the entries that it matches, ascending in each row."""
    matches = index.match(events).sort()
    return np.ascontiguousarray(matches.offsets), np.asarray(matches.ids, np.int64)
