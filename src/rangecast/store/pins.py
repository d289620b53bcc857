"""Which version of a store a batch of a stream was matched against, read from the stream's output.

    out/_rangecast/stream.json           names the checkpoint
    out/_rangecast/commits...            batch and version of each batch that is whole (commits.py)
    checkpoint/_rangecast/stream.json    the store's id, and whether each event chose its version by its time
    checkpoint/_rangecast/pins/12.json   store, version and oldest version of one of the last batches

The stream writes these files or objects (spark/stream/ledger.py); reading them needs no Spark. Each has a sum
(sealed.py).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from rangecast.errors import StorageError
from rangecast.store.commits import STATE, commits_at
from rangecast.store.home import home_of

BY_TIME = "event-time"


class PinnedBatch(NamedTuple):
    """What a batch was matched against; `store` and `by_time` are None where the checkpoint is not there."""

    batch: int
    version: int
    store: str | None
    by_time: bool | None


def pinned_batch(out: str | os.PathLike[str], batch: int) -> PinnedBatch:
    """The pin of a batch, by the output of its stream, a folder or an address."""
    stream = home_of(out).read(f"{STATE}/stream.json")
    if stream is None:
        raise StorageError(f"{out}: is no output of a stream; there is no {STATE}/stream.json in it")
    try:
        own = home_of(stream["checkpoint"])
        begun = own.read(f"{STATE}/stream.json")
        store = None if begun is None else str(begun["store"])
        by_time = None if begun is None else begun["version"] == BY_TIME
        pin = own.read(f"{STATE}/pins/{batch}.json")
        if pin is not None:
            return PinnedBatch(batch, int(pin["version"]), str(pin["store"]), pin["oldest"] is not None)
        commits = commits_at(out).read()
        batches = [int(commit["batch"]) for commit in commits]
        if batch in batches:
            version = int(commits[batches.index(batch)]["version"])
            return PinnedBatch(batch, version, store, by_time)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{out}: the stream's record of batch {batch} lacks {error}") from None
    has = f"its batches are {batches[0]} to {batches[-1]}" if batches else "no batch is whole yet"
    raise StorageError(f"{out}: has no batch {batch}; {has}")
