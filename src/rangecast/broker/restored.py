"""Files of a space that were copied or restored at different moments are made to fit each other again.

A copy of a live space has its files in any order, and an administrator may restore one of them alone. What is
missing is missing then; but a number that was given once must not come to mean something else in silence:

    a cursor beyond the log      the events that get those numbers now would be passed over; it is set back
    a pin beyond the store       the next change would get the version of events before it, and they would be
                                 replayed as if it had been there; versions without a change go before it
"""

from __future__ import annotations

import logging

from rangecast.broker.event_log import EventLog, readable_records
from rangecast.durable.lines import Journal
from rangecast.store.store import Store

_log = logging.getLogger("rangecast.broker")
_NOTE = "broker"


def set_back_cursors(cursors: Journal, log: EventLog, space: str) -> None:
    """Set cursors to the end of the log that are beyond it."""
    last = log.next - 1
    for consumer, cursor in cursors.items():
        if cursor > last:
            cursors.put(consumer, last)
            text = "the cursor of %s was at event %d, and the log ends at %d: it is set back"
            _log.warning(text, consumer, cursor, last, extra={"space": space})
    cursors.sync()


def raise_version(store: Store, log: EventLog, space: str) -> None:
    """Bring a store to the version of the newest event, if it is behind that."""
    before, newest = store.version, newest_pin(log)
    if newest <= before:
        return
    for _ in range(before, newest):
        store.apply(note={_NOTE: {"restored_at": before}})
    text = "the store was at version %d, and the log at %d: the changes between them are missing"
    _log.warning(text, before, newest, extra={"space": space})


def newest_pin(log: EventLog) -> int:
    """The pin of the newest record, which no other exceeds; 0 when there is none."""
    newest = 0
    for segments in (1, 2, log.n_segments):
        for record in readable_records(log, log.recent(segments)):
            newest = record.head.pin
        if newest:
            break
    return newest
