"""Who subscribed to what, and in which versions of the store: the entries of a space.

An entry is one condition of one subscription, from the version that brought it to the version that replaced,
deleted or expired it. Entries are numbered and never used again, so the number serves as the id within an
index of this process, and one look into an array says whom a match concerns.

    array    dtype   shape       meaning
    owners   int32   n_entries   number of the consumer; -1 where the id names none
    since    int64   n_entries   the version that brought the entry
    until    int64   n_entries   the version that ended it; ONGOING while it lasts
    expires  int64   n_entries   when it ends by itself, microseconds since 1970 UTC; 0 for never

An event that is pinned to version p concerns the entries with since <= p < until. So those who receive
events later than others receive the same, whatever was subscribed, replaced or deleted in between. Entries
that ended are forgotten when no event of the log is pinned to a version that had them.

The id of a subscription in the store is `consumer/name`. Other ids belong to nobody: they match, and are
delivered to none.
"""

from __future__ import annotations

import bisect
import re
import threading
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rangecast.broker import kernels
from rangecast.broker.kernels import JoinedStrings
from rangecast.engine import Index, open_index
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.change import Change
from rangecast.types.schema import Schema

ONGOING = np.iinfo(np.int64).max
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:@+-]{0,127}")
"""What a consumer, a subscription or a space may be called."""


def subscription_id(consumer: str, name: str) -> str:
    """The id of a subscription in the store."""
    return f"{consumer}/{name}"


class Directory:
    """The entries of one space, and the consumers that they belong to."""

    def __init__(self) -> None:
        self.version = 0
        self.consumers: list[str] = []
        self._numbers: dict[str, int] = {}
        self._naming = threading.Lock()
        self._entries_of: list[array[int]] = []
        self._lasting: list[int] = []
        self.ids: list[str] = []
        """The id of each entry."""
        self.current: dict[str, int] = {}
        """The entry of each subscription that lasts."""
        self.owners = np.empty(0, np.int32)
        self.since = np.empty(0, np.int64)
        self.until = np.empty(0, np.int64)
        self.expires = np.empty(0, np.int64)
        self.names = JoinedStrings(np.empty(0, np.uint8), np.zeros(1, np.int64))
        """The name of each entry as a JSON string, and room for more; replaced as a whole when it grows."""
        self._chunks: list[tuple[int, Subscriptions]] = []
        self._ended = 0
        self._expired: list[tuple[int, int]] = []
        """Versions in which entries expired, ascending, each with the entry."""

    def __len__(self) -> int:
        return len(self.current)

    @property
    def n_entries(self) -> int:
        """How many entries were ever made, the forgotten ones too."""
        return len(self.ids)

    def consumer(self, name: str) -> int:
        """The number of a consumer, a new one for one that was never heard of.

        It has a lock of its own: the event loop asks for it, and must not wait for whoever changes or reads
        the entries.
        """
        number = self._numbers.get(name)
        if number is None:
            with self._naming:
                number = self._numbers.get(name)
                if number is None:
                    number = len(self.consumers)
                    self.consumers.append(name)
                    self._entries_of.append(array("q"))
                    self._lasting.append(0)
                    self._numbers[name] = number
        return number

    def find_consumer(self, name: str) -> int | None:
        """The number of a consumer; None for one that was never heard of."""
        return self._numbers.get(name)

    def n_lasting(self, consumer: int) -> int:
        """How many subscriptions a consumer has."""
        return self._lasting[consumer]

    def names_of(self, consumer: int) -> list[str]:
        """The names of a consumer's subscriptions that last, in order."""
        entries = self._entries_of[consumer]
        return sorted(self.ids[e].partition("/")[2] for e in entries if self.until[e] == ONGOING)

    def text(self, entry: int) -> str | None:
        """The condition of an entry as it was written."""
        for first, subs in reversed(self._chunks):
            if first <= entry:
                return None if subs.texts is None else subs.texts[entry - first]
        return None

    # changing

    def load(self, version: int, subs: Subscriptions, expires: npt.NDArray[np.int64] | None = None) -> None:
        """Begin with the subscriptions of a version, as if all had been there for ever."""
        self._add(subs, 0, expires)
        self.version = version

    def apply(self, change: Change) -> tuple[list[int], list[int], list[int]]:
        """Come to the next version: the entries that ended, those of them that expired, those that began."""
        gone: list[int] = []
        expired: list[int] = []
        for id in _texts(change.deleted):
            entry = self.current.pop(id, None)
            if entry is not None:
                gone.append(entry)
                if 0 < self.expires[entry] <= change.time:
                    expired.append(entry)
                    self._expired.append((change.version, entry))
        for id in _texts(change.inserted.ids):
            entry = self.current.pop(id, None)
            if entry is not None:
                gone.append(entry)
        if gone:
            self.until[gone] = change.version
            self._ended += len(gone)
            for entry in gone:
                if self.owners[entry] >= 0:
                    self._lasting[self.owners[entry]] -= 1
        first = self.n_entries
        self._add(change.inserted, change.version, change.expires)
        self.version = change.version
        return gone, expired, list(range(first, self.n_entries))

    def _add(self, subs: Subscriptions, version: int, expires: npt.NDArray[np.int64] | None) -> None:
        n = len(subs)
        if not n:
            return
        first = self.n_entries
        ids = _texts(subs.ids)
        owners = np.empty(n, np.int32)
        for row, id in enumerate(ids):
            consumer, slash, _ = id.partition("/")
            owner = self.consumer(consumer) if slash and NAME.fullmatch(consumer) else -1
            owners[row] = owner
            if owner >= 0:
                self._entries_of[owner].append(first + row)
                self._lasting[owner] += 1
            self.current[id] = first + row
        self._name(subs.ids, ids)
        self.ids += ids
        if first + n > len(self.owners):
            size = max(1024, 2 * len(self.owners), first + n)
            self.owners = _grown(self.owners, size)
            self.since = _grown(self.since, size)
            self.until = _grown(self.until, size)
            self.expires = _grown(self.expires, size)
        self.owners[first : first + n] = owners
        self.since[first : first + n] = version
        self.until[first : first + n] = ONGOING
        self.expires[first : first + n] = 0 if expires is None else expires
        self._chunks.append((first, subs))

    def _name(self, ids: Ids, texts: list[str]) -> None:
        """Write down the names of the next entries; who reads those of others meanwhile is not disturbed."""
        first, n = self.n_entries, len(texts)
        letters, starts = self.names
        at = int(starts[first])
        if first + n + 1 > len(starts):
            starts = _grown(starts, max(1024, 2 * len(starts), first + n + 1))
        if ids.textual:
            room = at + len(ids.letters) + 2 * n
            if room > len(letters):
                letters = _grown(letters, max(4096, 2 * len(letters), room))
            own = JoinedStrings(np.array(ids.letters), np.array(ids.starts))
            own_starts = starts[first + 1 : first + n + 1]
            if kernels.quote_names(own, at, letters, own_starts):
                self.names = JoinedStrings(letters, starts)
                return
        words = [msgspec.json.encode(text.partition("/")[2] or text) for text in texts]
        ends = at + np.cumsum(np.fromiter(map(len, words), np.int64, n))
        if ends[-1] > len(letters):
            letters = _grown(letters, max(4096, 2 * int(ends[-1])))
        letters[at : ends[-1]] = np.frombuffer(b"".join(words), np.uint8)
        starts[first + 1 : first + n + 1] = ends
        self.names = JoinedStrings(letters, starts)

    def forget(self, pin: int) -> None:
        """Let go of entries that ended before any event that is pinned to `pin` or later."""
        if self._ended < 1_000 or self._ended < len(self.current) // 4:
            return
        n = self.n_entries
        dead = self.until[:n] <= pin
        for number, entries in enumerate(self._entries_of):
            kept = [e for e in entries if not dead[e]]
            if len(kept) < len(entries):
                self._entries_of[number] = array("q", kept)
        chunks = []
        for first, subs in self._chunks:
            # boxes of a chunk go when none of its rows is needed
            if not dead[first : first + len(subs)].all():
                chunks.append((first, subs))
        self._chunks = chunks
        self._expired = self._expired[bisect.bisect_right(self._expired, (pin, ONGOING)) :]
        self._ended = int(np.count_nonzero((self.until[:n] != ONGOING) & ~dead))

    # indexes

    def numbered(self, first: int, subs: Subscriptions) -> Subscriptions:
        """Subscriptions under the numbers of their entries."""
        ids = np.arange(first, first + len(subs), dtype=np.int64)
        return Subscriptions.of_boxes(subs.schema, ids, subs.boxes)

    def index(self, schema: Schema, kind: str = "auto", options: Mapping[str, Any] | None = None) -> Index:
        """An index of all entries that last."""
        index = open_index(kind, schema, **(options or {}))
        lasting = self.lasting_from(0)
        if lasting is not None:
            index.insert(lasting)
        return index

    def lasting_from(self, entry: int) -> Subscriptions | None:
        """The entries from one on that last, under their numbers; None when there are none."""
        waiting = []
        for first, subs in reversed(self._chunks):
            if first < entry:
                break
            rows = np.flatnonzero(self.until[first : first + len(subs)] == ONGOING)
            if len(rows):
                some = self.numbered(first, subs)
                waiting.append(some if len(rows) == len(subs) else some.select(rows))
        return Subscriptions.concat(waiting[::-1]) if waiting else None

    @property
    def n_ended(self) -> int:
        """How many entries have ended and are not forgotten."""
        return self._ended

    def count_of(self, consumers: Sequence[int]) -> int:
        """How many entries some consumers have, the ended ones too."""
        return sum(len(self._entries_of[consumer]) for consumer in consumers)

    def entries_of(self, consumers: Sequence[int], pin: int) -> npt.NDArray[np.int64]:
        """All entries of some consumers that an event of version `pin` or later may concern."""
        found = [np.frombuffer(self._entries_of[c], np.int64) for c in consumers if len(self._entries_of[c])]
        entries = np.concatenate(found) if found else np.empty(0, np.int64)
        return entries[self.until[entries] > pin]

    def ended_since(self, pin: int) -> npt.NDArray[np.int64]:
        """The entries that have ended, and that an event of version `pin` or later may concern."""
        if not self._ended:
            return np.empty(0, np.int64)
        until = self.until[: self.n_entries]
        return np.flatnonzero((until > pin) & (until != ONGOING))

    def some(self, entries: npt.NDArray[np.int64]) -> Subscriptions | None:
        """Some entries (ascending), the ended ones too, under their numbers; None when there are none."""
        waiting = []
        for first, subs in self._chunks:
            low, high = np.searchsorted(entries, [first, first + len(subs)])
            if low < high:
                chosen = subs.select(entries[low:high] - first)
                waiting.append(Subscriptions.of_boxes(subs.schema, entries[low:high], chosen.boxes))
        return Subscriptions.concat(waiting) if waiting else None

    def expired_between(self, after: int, until: int) -> list[tuple[int, int]]:
        """The versions after one and up to another in which entries expired, each with the entry."""
        first, last = (bisect.bisect_right(self._expired, (version, ONGOING)) for version in (after, until))
        return self._expired[first:last]


def _grown(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    out = np.zeros(size, values.dtype)
    out[: len(values)] = values
    return out


def _texts(ids: Any) -> list[str]:
    """A row of ids as strings."""
    return [str(id) for id in ids.arrow().to_pylist()] if len(ids) else []
