"""Which version of a store a batch of a stream was matched against, read from the stream's output folder.

    out/_rangecast/stream.json           names the checkpoint
    out/_rangecast/commits.jsonl         batch and version of each batch that is whole
    checkpoint/_rangecast/stream.json    the store's id, and whether each event chose its version by its time
    checkpoint/_rangecast/pins/12.json   store, version and oldest version of one of the last batches

The stream writes these files (spark/stream/ledger.py); reading them needs no Spark.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from rangecast.errors import StorageError

STATE = "_rangecast"
BY_TIME = "event-time"


class PinnedBatch(NamedTuple):
    """What a batch was matched against; `store` and `by_time` are None where the checkpoint is not there."""

    batch: int
    version: int
    store: str | None
    by_time: bool | None


def pinned_batch(out: str | os.PathLike[str], batch: int) -> PinnedBatch:
    """The pin of a batch, by the output folder of its stream."""
    place = Path(out) / STATE
    stream = _read(place / "stream.json")
    if stream is None:
        raise StorageError(f"{out}: is no output of a stream; there is no {STATE}/stream.json in it")
    own = Path(stream["checkpoint"]) / STATE
    begun = _read(own / "stream.json")
    store = None if begun is None else str(begun["store"])
    by_time = None if begun is None else begun["version"] == BY_TIME
    pin = _read(own / "pins" / f"{batch}.json")
    if pin is not None:
        return PinnedBatch(batch, int(pin["version"]), str(pin["store"]), pin["oldest"] is not None)
    last = -1
    try:
        raw = (place / "commits.jsonl").read_bytes()
    except FileNotFoundError:
        raw = b""
    for line in raw[: raw.rfind(b"\n") + 1].splitlines():
        commit = json.loads(line)
        last = int(commit["batch"])
        if last == batch:
            return PinnedBatch(batch, int(commit["version"]), store, by_time)
    has = f"its batches are 0 to {last}" if last >= 0 else "no batch is whole yet"
    raise StorageError(f"{out}: has no batch {batch}; {has}")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from None
