"""The durable home of subscriptions: a change log and memory-mapped snapshots, in a folder or a bucket.

store.py        `Store`: what a writer does
versions.py     the versions, for all who read: log and snapshots together
home.py         where it lives: a folder, or a bucket of an object store
change_log.py   the change log of a folder: append-only, checksummed, synced before it is acknowledged
object_log.py   the change log of a bucket: an object for each change, created if there is none
change.py       one change in the log, and the head of a piece of it
keep.py         who still needs a version, how much of its past a store keeps, and which subscriptions expire
commits.py      which batches of a stream are whole
follower.py     an index in this process that moves from version to version
"""

from rangecast.store.keep import HistoryLimits
from rangecast.store.object_log import OvertakenError
from rangecast.store.store import Store

__all__ = ["HistoryLimits", "OvertakenError", "Store"]
