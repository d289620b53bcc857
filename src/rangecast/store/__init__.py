"""The durable home of subscriptions: a change log and memory-mapped snapshots, in a folder or a bucket.

store.py        `Store`: what a writer does
reader.py       the versions, for all who read: log and snapshots together
home.py         where it lives: a folder, or a bucket of an object store
entries.py      what is known of each change, for both kinds of log
log.py          the change log of a folder: append-only, checksummed, synced before it is acknowledged
object_log.py   the change log of a bucket: an object for each change, created if there is none
segment.py      the head of a piece of the log, with the mark
record.py       one change in it
retention.py    who still needs a version, which `compact` respects
history.py      how much of its past a store keeps by itself
expiry.py       which subscriptions end by themselves, and when
lock.py         one writer at a time
pins.py         which version a batch of a stream was matched against
follower.py     an index in this process that moves from version to version
"""

from rangecast.store.history import HistoryLimits
from rangecast.store.object_log import OvertakenError
from rangecast.store.store import Store

__all__ = ["HistoryLimits", "OvertakenError", "Store"]
