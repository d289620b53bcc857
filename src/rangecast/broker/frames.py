"""What goes over the wire to a consumer: server-sent events, as bytes.

    event: match
    id: 41
    data: {"sequence":41,"event":{...},"subscriptions":["a","b"],"version":7}

One message tells of one event and all subscriptions of the consumer that it matches. `progress`,
`caught_up`, `gap` and `expired` are messages without an event. Frames are made once for all connections of
a consumer; a WebSocket and a poll take the same bytes apart (`split_frames`), since server-sent events are
what most connections are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rangecast.broker.directory import Directory


class PinnedEvents(NamedTuple):
    """Events that follow one another and have one pin."""

    sequence: int
    n: int
    pin: int
    json: Callable[[list[int]], list[bytes]]


class OwnerFrames(NamedTuple):
    """What one consumer receives: frames, the sequence number of each, in order."""

    owner: int
    sequences: list[int]
    frames: list[bytes]


def match_frames(
    stretches: Sequence[PinnedEvents],
    rows: npt.NDArray[np.int64],
    entries: npt.NDArray[np.int64],
    directory: Directory,
) -> Iterator[OwnerFrames]:
    """The frames of each consumer, from pairs of an event (its row in all stretches) and an entry.

    The stretches follow one another without a gap, and the pairs are ordered by event.
    """
    if not len(rows):
        return
    base = stretches[0].sequence
    heads, tails = _ends(stretches, np.unique(rows), base)
    owners = directory.owners[entries]
    order = np.argsort(owners, kind="stable")
    owners = owners[order]
    bounds = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(owners)]
    row_list, entry_list, owner_list = rows[order].tolist(), entries[order].tolist(), owners.tolist()
    known, quoted = directory._quoted, directory.quoted
    for k in range(len(bounds) - 1):
        at, end = bounds[k], bounds[k + 1]
        sequences: list[int] = []
        frames: list[bytes] = []
        while at < end:
            row, entry = row_list[at], entry_list[at]
            names = known[entry] or quoted(entry)
            at += 1
            while at < end and row_list[at] == row:
                names += b"," + quoted(entry_list[at])
                at += 1
            sequences.append(base + row)
            frames.append(heads[row] + names + tails[row])
        yield OwnerFrames(owner_list[bounds[k]], sequences, frames)


def _ends(
    stretches: Sequence[PinnedEvents], rows: npt.NDArray[np.int64], base: int
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """What stands before and after the names in the frames of these events."""
    heads: dict[int, bytes] = {}
    tails: dict[int, bytes] = {}
    for stretch in stretches:
        start = stretch.sequence - base
        low, high = np.searchsorted(rows, [start, start + stretch.n])
        if low == high:
            continue
        own = rows[low:high].tolist()
        tail = b'],"version":%d}\n\n' % stretch.pin
        for row, text in zip(own, stretch.json([row - start for row in own]), strict=True):
            sequence = base + row
            heads[row] = b'event: match\nid: %d\ndata: {"sequence":%d,"event":%s,"subscriptions":[' % (
                sequence,
                sequence,
                text,
            )
            tails[row] = tail
    return heads, tails


def notice(kind: str, content: dict[str, Any], sequence: int | None = None) -> bytes:
    """A frame that is not a match; with a sequence number, the consumer may resume after it.

    >>> notice("progress", {"sequence": 41}, 41)
    b'event: progress\\nid: 41\\ndata: {"sequence":41}\\n\\n'
    """
    id = b"" if sequence is None else b"id: %d\n" % sequence
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), id, msgspec.json.encode(content))


KEEP_ALIVE = b": still here\n\n"
"""A comment, so that both ends notice when the other is gone."""


def split_frames(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """The kind and the JSON object of each message in frames; comments are left out."""
    for frame in raw.split(b"\n\n"):
        if not frame or frame.startswith(b":"):
            continue
        kind, _, rest = frame.partition(b"\n")
        data = rest[rest.index(b"data: ") + 6 :] if rest.startswith(b"id") else rest[6:]
        yield kind[7:].decode(), data
