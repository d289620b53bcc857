"""Idempotency keys: a request that is sent again is answered as the first time, and logged once.

A key belongs to its publisher and stands in the record of its events, so it survives a crash with them. The
broker remembers the last hundred thousand keys; after a start, those of the last two segments of the log.
"""

from __future__ import annotations

from typing import Any

from rangecast.broker.errors import BrokerError
from rangecast.broker.event_log import EventLog, readable_records
from rangecast.broker.event_record import RecordNote

_MOST = 100_000


class KeyMemory:
    """The answers that were given, by publisher and key."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}

    def load(self, log: EventLog) -> None:
        """Take the keys from the end of a log."""
        for record in readable_records(log, log.recent(2)):
            if record.head.note_length:
                note, first = record.note, record.head.sequence
                answer = {"first": first, "last": record.head.next - 1, "rejected": note.rejected}
                self.remember(note, answer)

    def remember(self, note: RecordNote | None, answer: dict[str, Any]) -> None:
        """Keep the answer to a request that had a key."""
        if note is None or not note.key:
            return
        self._answers[note.source, note.key] = note.digest, answer
        while len(self._answers) > _MOST:
            self._answers.pop(next(iter(self._answers)), None)

    def find(self, source: str, key: str, digest: str) -> dict[str, Any] | None:
        """The answer to the first request of this key; None for a new one."""
        found = self._answers.get((source, key))
        if found is None:
            return None
        if found[0] != digest:
            raise KeyReusedError(f"the Idempotency-Key {key[:60]!r} was used for another request")
        return found[1]


class KeyReusedError(BrokerError):
    """An idempotency key came with other events than the first time."""

    status = 422
