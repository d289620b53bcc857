"""Which version of a store a batch of a stream was matched against, read from the stream's output folder.

    out/_rangecast/stream.json           names the checkpoint
    out/_rangecast/commits.jsonl         batch and version of each batch that is whole
    checkpoint/_rangecast/stream.json    the store's id, and whether each event chose its version by its time
    checkpoint/_rangecast/pins/12.json   store, version and oldest version of one of the last batches

The stream writes these files (spark/stream/ledger.py); reading them needs no Spark. Each, and each line of
commits.jsonl, has a sum (sealed.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from rangecast.errors import StorageError
from rangecast.sealed import is_sealed, read_document, unseal

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
    stream = read_document(place / "stream.json")
    if stream is None:
        raise StorageError(f"{out}: is no output of a stream; there is no {STATE}/stream.json in it")
    try:
        own = Path(stream["checkpoint"]) / STATE
        begun = read_document(own / "stream.json")
        store = None if begun is None else str(begun["store"])
        by_time = None if begun is None else begun["version"] == BY_TIME
        pin = read_document(own / "pins" / f"{batch}.json")
        if pin is not None:
            return PinnedBatch(batch, int(pin["version"]), str(pin["store"]), pin["oldest"] is not None)
        commits = read_commits(place / "commits.jsonl")
        batches = [int(commit["batch"]) for commit in commits]
        if batch in batches:
            version = int(commits[batches.index(batch)]["version"])
            return PinnedBatch(batch, version, store, by_time)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{out}: what the stream wrote down of batch {batch} lacks {error}") from None
    has = f"its batches are {batches[0]} to {batches[-1]}" if batches else "no batch is whole yet"
    raise StorageError(f"{out}: has no batch {batch}; {has}")


def read_commits(path: Path) -> list[dict[str, Any]]:
    """What commits.jsonl says, line by line, each checked."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    return commit_lines(raw, path)


def commit_lines(raw: bytes, path: Path) -> list[dict[str, Any]]:
    """The whole lines in the last bytes of commits.jsonl, each checked; a torn last one is left out."""
    whole, _, rest = raw.rpartition(b"\n")
    check_torn(rest, path)
    lines = whole.split(b"\n") if whole else []
    return [unseal(line, f"{path}, line {k} of the {len(lines)} last") for k, line in enumerate(lines, 1)]


def check_torn(rest: bytes, path: Path) -> None:
    """Raise when what follows the last newline is a whole line: its own newline was damaged, not torn off."""
    if is_sealed(rest[:-1]):
        raise StorageError(f"{path}: cannot be read: the end of its last line is damaged")
