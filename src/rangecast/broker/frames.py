"""What goes over the wire to a consumer: server-sent events, as bytes.

    event: match
    id: 41
    data: {"sequence":41,"event":{...},"subscriptions":["a","b"],"version":7}

One message tells of one event and all subscriptions of the consumer that it matches; in a space with an
object key also which of them its object has entered, and which it has left (objects.py). `progress`,
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
from rangecast.broker.objects import ChangedPairs
from rangecast.kernels.broker import frames as kernels
from rangecast.kernels.broker.frames import JoinedStrings


def _packed(strings: list[bytes]) -> JoinedStrings:
    starts = np.zeros(len(strings) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)), out=starts[1:])
    return JoinedStrings(np.frombuffer(b"".join(strings), np.uint8), starts)


_MARKS = _packed([b"event: match\nid: ", b'\ndata: {"sequence":', b',"event":', b',"subscriptions":['])
_POWERS = 10 ** np.arange(1, 19)
_ZERO = np.zeros(1, np.int64)


class PinnedEvents(NamedTuple):
    """Events that follow one another and have one pin."""

    sequence: int
    n: int
    pin: int
    json: Callable[[list[int]], list[bytes]]


class OwnerFrames(NamedTuple):
    """What one consumer receives: frames one after the other, in the order of their sequence numbers."""

    owner: int
    data: bytes
    n: int
    last: int
    """The sequence number of the last frame."""
    sequences: npt.NDArray[np.int64]
    """Of all consumers, as are the ends; ours are `n` from `first` on."""
    ends: npt.NDArray[np.int64]
    first: int
    begun: int
    """Where our data begins among those of all."""

    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The sequence number of each frame, and where it ends within the data."""
        own = slice(self.first, self.first + self.n)
        return self.sequences[own], self.ends[own] - self.begun


def match_frames(
    stretches: Sequence[PinnedEvents],
    rows: npt.NDArray[np.int64],
    entries: npt.NDArray[np.int64],
    directory: Directory,
) -> Iterator[OwnerFrames]:
    """The frames of each consumer, from pairs of an event (its row in all stretches) and an entry.

    The stretches follow one another without a gap, and the pairs are ordered by event. What stands before
    the names is made once for each event, and a kernel puts the pieces together.
    """
    if not len(rows):
        return
    base = stretches[0].sequence
    owners = directory.owners[entries]
    order = np.argsort(owners, kind="stable")
    owners, rows = owners[order], rows[order]
    # a frame has the pairs of one consumer and one event
    begins = np.flatnonzero((owners[1:] != owners[:-1]) | (rows[1:] != rows[:-1])) + 1
    firsts = np.concatenate([_ZERO, begins, [len(rows)]])
    of_frames, owners = rows[firsts[:-1]], owners[firsts[:-1]]
    texts, events = _texts(stretches, of_frames, base)
    names = _packed(directory.quoted_names(entries[order].tolist()))
    tails = _packed([b'],"version":%d}\n\n' % stretch.pin for stretch in stretches])
    starts = np.array([stretch.sequence - base for stretch in stretches])
    own = np.searchsorted(starts, of_frames, "right") - 1
    sequences = base + of_frames
    digits = np.searchsorted(_POWERS, sequences, "right") + 1
    size = len(_MARKS.letters) * len(events) + len(names.letters) + len(rows) - len(events) + 2 * digits.sum()
    for pieces, used in ((texts, events), (tails, own)):
        size += (pieces.starts[used + 1] - pieces.starts[used]).sum()
    out = np.empty(int(size), np.uint8)
    ends = np.empty(len(events), np.int64)
    kernels.write_frames(firsts, sequences, digits, events, own, _MARKS, texts, names, tails, out, ends)
    raw = out.data
    changes = np.flatnonzero(owners[1:] != owners[:-1])
    lasts = np.append(changes, len(owners) - 1)
    first = begun = 0
    for owner, last, end, sequence in zip(
        owners[lasts].tolist(), lasts.tolist(), ends[lasts].tolist(), sequences[lasts].tolist(), strict=True
    ):
        n = last + 1 - first
        yield OwnerFrames(owner, bytes(raw[begun:end]), n, sequence, sequences, ends, first, begun)
        first, begun = last + 1, end


def change_frames(
    stretches: Sequence[PinnedEvents], pairs: ChangedPairs, directory: Directory
) -> Iterator[OwnerFrames]:
    """As `match_frames`, of states of objects: a frame also says what was entered and what was left."""
    if not len(pairs.rows):
        return
    base = stretches[0].sequence
    pins = np.repeat([stretch.pin for stretch in stretches], [stretch.n for stretch in stretches])
    texts, places = _texts(stretches, pairs.rows, base)
    owners = directory.owners[pairs.entries]
    by_owner: dict[int, dict[int, list[int]]] = {}
    for i, (owner, row) in enumerate(zip(owners.tolist(), pairs.rows.tolist(), strict=True)):
        by_owner.setdefault(owner, {}).setdefault(row, []).append(i)
    quoted = directory.quoted_names(pairs.entries.tolist())
    now, before = pairs.now.tolist(), pairs.before.tolist()
    for owner, by_row in sorted(by_owner.items()):
        frames = []
        for row, own in by_row.items():
            at = int(places[own[0]])
            frames.append(
                b'event: match\nid: %d\ndata: {"sequence":%d,"event":%s,"subscriptions":[%s],"entered":[%s],'
                b'"left":[%s],"version":%d}\n\n'
                % (
                    base + row,
                    base + row,
                    texts.letters[texts.starts[at] : texts.starts[at + 1]].tobytes(),
                    b",".join(quoted[i] for i in own if now[i]),
                    b",".join(quoted[i] for i in own if now[i] and not before[i]),
                    b",".join(quoted[i] for i in own if not now[i]),
                    pins[row],
                )
            )
        sequences = base + np.array(list(by_row), np.int64)
        ends = np.cumsum([len(frame) for frame in frames])
        yield OwnerFrames(owner, b"".join(frames), len(frames), int(sequences[-1]), sequences, ends, 0, 0)


def _texts(
    stretches: Sequence[PinnedEvents], rows: npt.NDArray[np.int64], base: int
) -> tuple[JoinedStrings, npt.NDArray[np.int64]]:
    """The texts of the events of some frames, each once, and which is that of each frame."""
    wanted = np.zeros(stretches[-1].sequence + stretches[-1].n - base, bool)
    wanted[rows] = True
    texts: list[bytes] = []
    for stretch in stretches:
        start = stretch.sequence - base
        own = np.flatnonzero(wanted[start : start + stretch.n]).tolist()
        if own:
            texts += stretch.json(own)
    return _packed(texts), (np.cumsum(wanted) - 1)[rows]


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
