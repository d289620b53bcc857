"""What goes over the wire to a consumer: server-sent events, as bytes.

    event: match
    id: 41
    data: {"sequence":41,"event":{...},"subscriptions":["a","b"],"version":7}

One message tells of one event and all subscriptions of the consumer that it matches; in a space with an
object key also which of them its object has entered, and which it has left (objects.py). `progress`,
`caught_up`, `gap` and `expired` are messages without an event; an event that cannot be written as JSON is a
`gap` as well (event_json.py; logs of 0.4.0 may have some). Frames are made once for all connections of
a consumer; a WebSocket and a poll take the same bytes apart (`split_frames`), since server-sent events are
what most connections are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rangecast.broker import kernels
from rangecast.broker.directory import Directory
from rangecast.broker.event_log import joined_strings
from rangecast.broker.kernels import CHUNK_HEAD, CHUNK_TAIL, JoinedStrings
from rangecast.broker.objects import ChangedPairs
from rangecast.tracking.kernels import ENTERED, LEFT

_MARKS = joined_strings([b"event: match\nid: ", b'\ndata: {"sequence":', b',"event":', b',"subscriptions":['])
_POWERS = 10 ** np.arange(1, 19)
_UNWRITABLE = "this event cannot be written as JSON"
_ZERO = np.zeros(1, np.int64)


class PinnedEvents(NamedTuple):
    """Events that follow one another and have one pin."""

    sequence: int
    n: int
    pin: int
    json: Callable[[npt.NDArray[np.int64]], JoinedStrings]


class OwnerFrames(NamedTuple):
    """What one consumer receives: frames one after the other, in the order of their sequence numbers."""

    owner: int
    n: int
    last: int
    """The sequence number of the last frame."""
    out: npt.NDArray[np.uint8]
    """The frames of all consumers; ours, as a chunk of an HTTP body, are from `begin` to `end`."""
    begin: int
    end: int
    sequences: npt.NDArray[np.int64]
    """Of all consumers, as are the ends; ours are `n` from `first` on."""
    ends: npt.NDArray[np.int64]
    first: int

    @property
    def size(self) -> int:
        """How many bytes the frames have."""
        return self.end - self.begin - CHUNK_HEAD - CHUNK_TAIL

    @property
    def data(self) -> bytes:
        """The frames alone."""
        return self.out[self.begin + CHUNK_HEAD : self.end - CHUNK_TAIL].tobytes()

    def since(self, sequence: int) -> OwnerFrames | None:
        """The frames from a sequence number on, if there are any."""
        sequences, ends = self.places()
        k = int(np.searchsorted(sequences, sequence))
        if k == self.n:
            return None
        return self if not k else shared_frames(self.piece(int(ends[k - 1]), int(ends[-1])), self.last)

    def piece(self, begin: int, end: int) -> bytes:
        """The frames between two places of `places`."""
        start = self.begin + CHUNK_HEAD
        return self.out[start + begin : start + end].tobytes()

    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The sequence number of each frame, and where it ends within the data."""
        own = slice(self.first, self.first + self.n)
        return self.sequences[own], self.ends[own] - (self.begin + CHUNK_HEAD)


def match_frames(
    stretches: Sequence[PinnedEvents],
    rows: npt.NDArray[np.int64],
    entries: npt.NDArray[np.int64],
    directory: Directory,
    wanted: npt.NDArray[np.bool_] | None = None,
) -> Iterator[OwnerFrames]:
    """The frames of each consumer, from pairs of an event (its row in all stretches) and an entry.

    With `wanted`, those of some consumers alone: a flag for each, and one more for entries of nobody. The
    stretches follow one another without a gap, and the pairs are ordered by event. What stands before
    the names is made once for each event, and a kernel puts the pieces together.
    """
    rows, entries, owners = _grouped(rows, entries, directory, wanted)
    if not len(rows):
        return
    base = stretches[0].sequence
    # a frame has the pairs of one consumer and one event
    begins = np.flatnonzero((owners[1:] != owners[:-1]) | (rows[1:] != rows[:-1])) + 1
    firsts = np.concatenate([_ZERO, begins, [len(rows)]])
    of_frames, owners = rows[firsts[:-1]], owners[firsts[:-1]]
    texts, events = _texts(stretches, of_frames, base)
    if _has_gaps(texts):
        yield from _written_frames(stretches, rows, entries, None, directory)
        return
    names = directory.names
    tails = joined_strings([b'],"version":%d}\n\n' % stretch.pin for stretch in stretches])
    starts = np.array([stretch.sequence - base for stretch in stretches])
    own = np.searchsorted(starts, of_frames, "right") - 1
    sequences = base + of_frames
    digits = np.searchsorted(_POWERS, sequences, "right") + 1
    size = kernels.measure_frames(firsts, digits, events, own, _MARKS, texts, entries, names, tails)
    lasts = np.append(np.flatnonzero(owners[1:] != owners[:-1]), len(owners) - 1)
    out = np.empty(size + len(lasts) * (CHUNK_HEAD + CHUNK_TAIL), np.uint8)
    ends = np.empty(len(events), np.int64)
    kernels.write_frames(
        firsts, owners, sequences, digits, events, own, _MARKS, texts, entries, names, tails, out, ends
    )
    first = begin = 0
    for owner, last, end, sequence in zip(
        owners[lasts].tolist(), lasts.tolist(), ends[lasts].tolist(), sequences[lasts].tolist(), strict=True
    ):
        end += CHUNK_TAIL
        yield OwnerFrames(owner, last + 1 - first, sequence, out, begin, end, sequences, ends, first)
        first, begin = last + 1, end


def _grouped(
    rows: npt.NDArray[np.int64],
    entries: npt.NDArray[np.int64],
    directory: Directory,
    wanted: npt.NDArray[np.bool_] | None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Pairs by owner, and their owners."""
    if wanted is not None and len(wanted) <= 8 * len(rows):
        n = len(rows)
        found = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
        places = np.empty(len(wanted) + 1, np.int64)
        n = kernels.group_pairs(rows, entries, directory.owners, wanted, places, *found)
        return found[0][:n], found[1][:n], found[2][:n]
    owners = directory.owners[entries]
    if wanted is not None:
        kept = wanted[owners]
        rows, entries, owners = rows[kept], entries[kept], owners[kept]
    order = np.argsort(owners, kind="stable")
    return rows[order], entries[order], owners[order]


def change_frames(
    stretches: Sequence[PinnedEvents], pairs: ChangedPairs, directory: Directory
) -> Iterator[OwnerFrames]:
    """As `match_frames`, of states of objects: a frame also says what was entered and what was left."""
    if len(pairs.rows):
        yield from _written_frames(stretches, pairs.rows, pairs.entries, pairs, directory)


def _written_frames(
    stretches: Sequence[PinnedEvents],
    rows: npt.NDArray[np.int64],
    entries: npt.NDArray[np.int64],
    changes: ChangedPairs | None,
    directory: Directory,
) -> Iterator[OwnerFrames]:
    """Frames without the kernel, which writes neither changes of objects nor gaps."""
    base = stretches[0].sequence
    pins = np.repeat([stretch.pin for stretch in stretches], [stretch.n for stretch in stretches])
    texts, places = _texts(stretches, rows, base)
    owners = directory.owners[entries]
    by_owner: dict[int, dict[int, list[int]]] = {}
    for i, (owner, row) in enumerate(zip(owners.tolist(), rows.tolist(), strict=True)):
        by_owner.setdefault(owner, {}).setdefault(row, []).append(i)
    names = directory.names
    quoted = [names.letters[names.starts[e] : names.starts[e + 1]].tobytes() for e in entries.tolist()]
    chunks: list[bytes] = []
    found: list[tuple[int, list[int], list[int]]] = []
    at = 0
    for owner, by_row in sorted(by_owner.items()):
        frames = []
        for row, own in by_row.items():
            k = int(places[own[0]])
            text = texts.letters[texts.starts[k] : texts.starts[k + 1]].tobytes()
            if not text:
                content = {"from": base + row, "to": base + row, "reason": _UNWRITABLE}
                frames.append(notice("gap", content, base + row))
                continue
            named = [quoted[i] for i in own]
            turns = b""
            if changes is not None:
                kinds = changes.kinds
                named = [quoted[i] for i in own if kinds[i] != LEFT]
                turns = b',"entered":[%b],"left":[%b]' % (
                    b",".join(quoted[i] for i in own if kinds[i] == ENTERED),
                    b",".join(quoted[i] for i in own if kinds[i] == LEFT),
                )
            frames.append(
                b'event: match\nid: %d\ndata: {"sequence":%d,"event":%b,"subscriptions":[%b]%b,'
                b'"version":%d}\n\n' % (base + row, base + row, text, b",".join(named), turns, pins[row])
            )
        data = b"".join(frames)
        chunks.append(b"%08x\r\n%b\r\n" % (len(data), data))
        ends = np.cumsum([len(frame) for frame in frames]) + (at + CHUNK_HEAD)
        found.append((owner, [base + row for row in by_row], ends.tolist()))
        at += len(chunks[-1])
    out = np.frombuffer(bytearray().join(chunks), np.uint8)
    begin = 0
    for (owner, numbers, ends_of), chunk in zip(found, chunks, strict=True):
        end = begin + len(chunk)
        yield OwnerFrames(
            owner, len(numbers), numbers[-1], out, begin, end, np.array(numbers), np.array(ends_of), 0
        )
        begin = end


def _texts(
    stretches: Sequence[PinnedEvents], rows: npt.NDArray[np.int64], base: int
) -> tuple[JoinedStrings, npt.NDArray[np.int64]]:
    """The texts of the events of some frames, each once, and which is that of each frame."""
    wanted = np.zeros(stretches[-1].sequence + stretches[-1].n - base, bool)
    wanted[rows] = True
    places = np.cumsum(wanted) - 1
    parts = []
    for stretch in stretches:
        start = stretch.sequence - base
        own = np.flatnonzero(wanted[start : start + stretch.n])
        if len(own):
            parts.append(stretch.json(own))
    if len(parts) == 1:
        return parts[0], places[rows]
    sizes = np.cumsum([0, *(len(part.letters) for part in parts)]).tolist()
    starts = [part.starts[:-1] + size for part, size in zip(parts, sizes, strict=False)]
    letters = np.concatenate([part.letters for part in parts])
    return JoinedStrings(letters, np.append(np.concatenate(starts), sizes[-1])), places[rows]


def _has_gaps(texts: JoinedStrings) -> bool:
    """Whether there is an event that could not be written."""
    return bool((texts.starts[1:] == texts.starts[:-1]).any())


def notice(kind: str, content: dict[str, Any], sequence: int | None = None) -> bytes:
    """A frame that is not a match; with a sequence number, the consumer may resume after it.

    >>> notice("progress", {"sequence": 41}, 41)
    b'event: progress\\nid: 41\\ndata: {"sequence":41}\\n\\n'
    """
    id = b"" if sequence is None else b"id: %d\n" % sequence
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), id, msgspec.json.encode(content))


def shared_frames(data: bytes, last: int) -> OwnerFrames:
    """The same frames for many consumers, which then have heard of everything up to a sequence number."""
    out = np.frombuffer(bytearray(b"%08x\r\n%b\r\n" % (len(data), data)), np.uint8)
    return OwnerFrames(-1, 1, last, out, 0, len(out), np.array([last]), np.array([CHUNK_HEAD + len(data)]), 0)


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
