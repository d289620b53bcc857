"""The change log of a store in a bucket: an object for each change, created if there is none of its name.

    log/00000000000000000012.change     the change of version 12, a record (change.py)
    log/checkpoint-000000000003         what was known at some version; the highest number counts

**A change** takes the next version by a conditional put. Of several writers one is told that it has the
version; the others get a OvertakenError, read what came between and try the next version. So there are no
locks, no renames and no torn tails: an object is there whole or not at all. Each change has a token of its
own and names that of the version before it, so the changes are a chain.

**A checkpoint** has all words, notes and times of expiry, a row for each change since the base, the base
itself, and the tokens of the last changes. Whoever opens the log reads the newest one and the heads of the
changes after it. Their names sort behind all changes, so one listing from the last known change on tells both
what came and whether there is a newer checkpoint. Checkpoints are numbered and created if absent too, each
made from the one before it; so what they say goes one way.

**Compacting** is three steps: a checkpoint that closes all before a version, which can then no longer be
held; a look at the holds; a checkpoint whose base is that version, directly after the first. Only then are
objects deleted, all up to the base but the newest change. A hold is written first and then compared with the
newest checkpoint. So either compacting sees the hold, or the hold sees that its version is closed.

A writer that slept for long may find the name of its next version free because that change was compacted
away. So after each put it looks for a checkpoint that it does not know: if that one has another token for the
version, the put came too late; it is taken back, and is a conflict like any other. A reader that meets what
such a writer has left before it died finds that the chain does not hold, and reads again from the checkpoint.
"""

from __future__ import annotations

import io
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rangecast.durable.arrays import Arrays, pack_arrays, read_arrays, unpack_arrays
from rangecast.durable.bucket import Bucket, ObjectEntry
from rangecast.durable.fetched import fetched
from rangecast.errors import StorageError
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import Times
from rangecast.store.change import (
    HEAD,
    FragmentEntry,
    Note,
    RecordEntry,
    checked_head,
    ids_arrays,
    ids_from,
    named_and_expiring,
    pack_record,
    read_description,
    whole_payload,
)
from rangecast.store.change_log import FRAGMENTS, ChangeEntries
from rangecast.types.schema import Schema

CHECKPOINT = 200
"""After so many changes a writer makes a checkpoint; each of them is a request for who opens the store."""
_FOLDER, _CHECKPOINT_NAME = "log", "log/checkpoint-"
_HEAD_BYTES = 1 << 16
_KEPT_BYTES = 1 << 24
_TOKENS = 1000
_TRIES = 8


class OvertakenError(StorageError):
    """Another process made the version that this one was about to make."""


class _BrokenChain(Exception):
    """What is listed does not follow what is known: something was compacted, or is damaged."""


class _ChangeHead(NamedTuple):
    """What is read of a change that others made."""

    version: int
    time: int
    length: int
    meta: dict[str, Any]
    shapes: dict[str, list[int]]
    whole: bytes | None
    """The object, if it was read to its end."""


class ObjectLog(ChangeEntries):
    """Reads and adds changes; anybody may add, and whoever is too late gets a OvertakenError."""

    def __init__(self, bucket: Bucket, schema: Schema) -> None:
        super().__init__(bucket.address / _FOLDER, schema)
        self.bucket = bucket
        self._declared = schema.to_dict(words=True)
        self._number = -1
        self._closed = 0
        self._began = 0
        self._opened_at = 0
        self._token = ""
        self._tokens: OrderedDict[int, str] = OrderedDict()
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._expiring: tuple[int, Ids, Times] = 0, Ids.of([]), np.empty(0, np.int64)

    @property
    def n_last(self) -> int:
        """How many changes there are since the checkpoint."""
        return self.version - self._opened_at

    @property
    def closed(self) -> int:
        """The version before which nothing can be held any more."""
        return max(self._closed, self._base)

    def opening(self, version: int) -> tuple[int, Ids, Times]:
        """What expired some time at the checkpoint, and when."""
        return self._expiring

    def none_expires(self) -> bool:
        """Whether neither the checkpoint nor a change since brings subscriptions that expire."""
        return not len(self._expiring[1]) and not self.may_expire(self._opened_at, self.version)

    def _since(self) -> int:
        return self._began

    def _latest(self) -> int:
        return self._entries[-1].time if self._entries else self._began

    # reading

    def refresh(self) -> None:
        """Look for changes that other processes have made."""
        absent = 0
        for _ in range(_TRIES):
            try:
                if self._number < 0:
                    self._open()
                self._follow()
                return
            except _BrokenChain as broken:
                self._number = -1
                absent = broken.args[0] if broken.args else self.version + 1
        raise StorageError(
            f"{self._place(absent)}: is not there, or is not what follows version {absent - 1}, though there "
            "are later changes; the store is damaged"
        )

    def reopen(self) -> None:
        """Read again from the newest checkpoint."""
        self._number = -1
        self.refresh()

    def _open(self) -> None:
        listed = self.bucket.entries(_FOLDER, after=_CHECKPOINT_NAME)
        schema = Schema.from_dict(self._declared)
        self._entries, self.textual, self.notes, self._tokens = [], None, {}, OrderedDict()
        self.fragments = {}
        self._kept.clear()
        self.schema, self._token, self._closed = schema, "", 0
        if not listed:
            self._base = self._began = self._opened_at = self._number = 0
            self._expiring = 0, Ids.of([]), np.empty(0, np.int64)
            return
        version, meta, arrays = self._read_checkpoint(listed[-1])
        self._learn(meta["words"])
        self._know_fragments(version, meta)
        self.textual, self.notes = meta["textual"], meta.get("notes") or {}
        self._base, self._began, self._closed = meta["base"], meta["since"], meta["closed"]
        rows = arrays["changes"].tolist()
        self._entries = [
            RecordEntry(v, t, self._place(v), 0, length, named, bool(ends))
            for v, t, length, named, ends in rows
        ]
        if [entry.version for entry in self._entries] != list(range(self._base + 1, version + 1)):
            raise StorageError(f"{self.bucket.address / listed[-1].name}: its rows do not fit; it is damaged")
        self._take_tokens(version, arrays["tokens"])
        self._token = self._tokens.get(version, "")
        expiring = ids_from(arrays, "expiring") if meta["ending"] else Ids.of([])
        self._expiring = version, expiring, arrays["expires"]
        self._opened_at, self._number = version, _number_of(listed[-1].name)

    def _read_checkpoint(self, entry: ObjectEntry) -> tuple[int, dict[str, Any], Arrays]:
        raw = self.bucket.read(entry.name)
        if raw is None:
            raise _BrokenChain  # a newer one took its place since it was listed
        head = checked_head(raw)
        payload = None if head is None else whole_payload(raw, head.version)
        if head is None or payload is None:
            raise StorageError(f"{self.bucket.address / entry.name}: is damaged; restore it from a copy")
        meta, arrays = unpack_arrays(payload)
        return head.version, meta, arrays

    def _take_tokens(self, version: int, packed: Any) -> None:
        first = version - len(packed) + 1
        self._tokens = OrderedDict((first + k, row.tobytes().hex()) for k, row in enumerate(packed))

    def _follow(self) -> None:
        """Enter the changes after the last that is known; all of them or, when they do not fit, none."""
        listed, newest = _parted(self.bucket.entries(_FOLDER, after=_change_name(self.version)))
        if newest is not None and _number_of(newest.name) > self._number:
            raise _BrokenChain  # it may have another base
        wanted = range(self.version + 1, self.version + 1 + len(listed))
        found = [want for want, entry in zip(wanted, listed, strict=True) if _number_of(entry.name) != want]
        if found:
            raise _BrokenChain(found[0])
        heads: list[_ChangeHead] = self.bucket.each(self._read_head, listed)
        before = self._token
        for head in heads:
            if head.meta["after"] != before:
                raise _BrokenChain(head.version)
            before = head.meta["token"]
        self._keep({head.version: head.whole for head in heads if head.whole is not None})
        for head in heads:
            self._learn(head.meta["words"])
            self.textual = head.meta["textual"]
            self.notes = {**self.notes, **(head.meta.get("note") or {})}
            place = self._place(head.version)
            self._know_fragments(head.version, head.meta)
            named, ends = named_and_expiring(head.meta, head.shapes)
            self._entries.append(RecordEntry(head.version, head.time, place, 0, head.length, named, ends))
            self._know(head.version, head.meta["token"])

    def _know(self, version: int, token: str) -> None:
        self._token = self._tokens[version] = token
        while len(self._tokens) > _TOKENS:
            self._tokens.popitem(last=False)

    def _read_head(self, entry: ObjectEntry) -> _ChangeHead:
        raw = self.bucket.read(entry.name, 0, min(entry.size, _HEAD_BYTES)) if entry.size else b""
        if raw is None:
            raise _BrokenChain  # compacted away since it was listed
        head = checked_head(raw)
        described = None
        if head is not None and entry.size == HEAD.size + head.length:
            described = read_description(io.BytesIO(raw[HEAD.size :]), head.length)
            if described is None and len(raw) < entry.size:
                # many new words stand in its head
                raw = self.bucket.read(entry.name) or b""
                described = read_description(io.BytesIO(raw[HEAD.size :]), head.length)
        if head is None or described is None or head.version != _number_of(entry.name):
            raise StorageError(
                f"{self.bucket.address / entry.name}: is damaged at its head; restore it from a copy"
            )
        return _ChangeHead(
            head.version, head.time, head.length, *described, raw if len(raw) == entry.size else None
        )

    def _keep(self, changes: dict[int, bytes]) -> None:
        """Keep small changes that are here whole: whoever learns of them is likely to want them.

        Not for the threads that read heads: a cache that several of them fill is changed under the one that
        counts its bytes.
        """
        self._kept.update(changes)
        n_bytes = sum(map(len, self._kept.values()))
        while n_bytes > _KEPT_BYTES:
            n_bytes -= len(self._kept.popitem(last=False)[1])

    def _payload(self, entry: RecordEntry) -> tuple[dict[str, Any], Arrays]:
        raw = self._kept.get(entry.version) or self.bucket.read(_change_name(entry.version))
        if raw is None:
            self._number = -1
            raise StorageError(
                f"{entry.path}: version {entry.version} was compacted away while it was read; read again"
            )
        payload = whole_payload(raw, entry.version)
        if payload is None or len(payload) != entry.length:
            raise StorageError(f"{entry.path}: the change of version {entry.version} is damaged")
        return unpack_arrays(payload)

    def _fragment(self, name: str) -> Arrays:
        found = fetched(self.bucket, f"{FRAGMENTS}/{name}", _check_arrays)
        if found is None:
            self._number = -1
            raise StorageError(
                f"{self.bucket.address / FRAGMENTS / name}: was compacted away while it was read"
            )
        return read_arrays(found)[1]

    def _place(self, version: int) -> Any:
        return self.bucket.address / _change_name(version)

    # writing

    def append(
        self,
        time: int,
        deleted: Ids,
        inserted: Subscriptions,
        expires: Times | None = None,
        note: Note | None = None,
        fragments: Sequence[FragmentEntry] = (),
    ) -> int:
        """Put one change; returns its version. OvertakenError when another took the version."""
        token = uuid.uuid4().hex
        record, made = self._packed(
            time, deleted, inserted, expires, note, fragments, token=token, after=self._token
        )
        name = _change_name(made.version)
        if not self.bucket.create(name, record):
            raise OvertakenError(
                f"{self.bucket.address}: another process made version {made.version} meanwhile; refresh and "
                "do it again"
            )
        self._confirm(made.version, token)
        self._take(made, self._place(made.version), 0, len(record) - HEAD.size)
        self._know(made.version, token)
        if len(record) <= _HEAD_BYTES:
            self._keep({made.version: record})
        return made.version

    def _confirm(self, version: int, token: str) -> None:
        """See that a change which was put is the newest, and not where others were compacted away."""
        _, newer = _parted(self.bucket.entries(_FOLDER, after=_change_name(version)))
        if newer is None or _number_of(newer.name) <= self._number:
            return
        try:
            at, meta, arrays = self._read_checkpoint(newer)
        except _BrokenChain:
            self._confirm(version, token)
            return
        self._number = -1
        first = at - len(arrays["tokens"]) + 1
        if at < version:
            return
        if version < first:
            raise StorageError(
                f"{self._place(version)}: more than {_TOKENS} versions were made while it was written, so it "
                "cannot be said whether it is one of them; look whether the store has it"
            )
        if arrays["tokens"][version - first].tobytes().hex() == token:
            return
        if version <= meta["base"]:
            self.bucket.delete([_change_name(version)])
        raise OvertakenError(
            f"{self.bucket.address}: version {version} was made by another process and compacted away while "
            "this one slept; refresh and do it again"
        )

    def checkpoint(
        self, time: int, expiring: Ids, expires: Times, *, base: int | None = None, closed: int | None = None
    ) -> None:
        """Put the next checkpoint, of the newest version; OvertakenError when another did.

        `closed` is the version before which nothing can be held from now on; `base` the one before which
        everything may go, which must have been closed by the checkpoint before, and not been held since.
        """
        if self._number < 0:
            raise OvertakenError(f"{self.bucket.address}: another process made a checkpoint; refresh first")
        kept = self._entries if base is None else self._entries[base - self._base :]
        meta = {
            **self._opening_meta(),
            "base": self._base if base is None else base,
            "since": self._began if base is None or base == self._base else self.time_of(base),
            "closed": self.closed if closed is None else closed,
            "ending": len(expiring),
            "token": uuid.uuid4().hex,
        }
        rows = [(e.version, e.time, e.length, e.changed, e.expiring) for e in kept]
        tokens = b"".join(bytes.fromhex(token) for token in self._tokens.values())
        arrays: Arrays = {
            "changes": np.array(rows, np.int64).reshape(-1, 5),
            "tokens": np.frombuffer(tokens, np.uint8).reshape(-1, 16),
            "expires": np.asarray(expires, np.int64),
            **(ids_arrays(expiring, "expiring") if len(expiring) else {}),
        }
        record = pack_record(self.version, time, pack_arrays(meta, arrays))
        name = _checkpoint_name(self._number + 1)
        if not self.bucket.create(name, record):
            self._number = -1
            raise OvertakenError(f"{self.bucket.address / name}: another process made this checkpoint")
        names = [entry.name for entry in self.bucket.entries(_FOLDER, after=_CHECKPOINT_NAME)]
        if names[-1] != name:
            # the name was free because it was removed: this one was asleep, and newer ones count
            self._number = -1
            raise OvertakenError(f"{self.bucket.address / names[-1]}: is newer than the checkpoint made here")
        self.bucket.delete(names[:-2])
        self._number += 1
        self._closed, self._began = meta["closed"], meta["since"]
        self._base, self._entries = meta["base"], kept
        self.fragments = {v: stem for v, stem in self.fragments.items() if v > self._base}
        self._opened_at, self._expiring = self.version, (self.version, expiring, arrays["expires"])

    def drop_before(self, version: int) -> int:
        """Delete the changes before a version that is the base by now; returns how many."""
        # the newest change stays, so that who lists the log sees that it went on
        last = self._opened_at
        changes, _ = _parted(self.bucket.entries(_FOLDER))
        numbers = [(_number_of(entry.name), entry.name) for entry in changes]
        gone = [name for number, name in numbers if number <= version and number < last]
        self.bucket.delete(gone)
        return len(gone)


def _check_arrays(path: Path) -> None:
    read_arrays(path)


def _change_name(version: int) -> str:
    return f"{_FOLDER}/{version:020}.change"


def _checkpoint_name(number: int) -> str:
    return f"{_CHECKPOINT_NAME}{number:012}"


def _parted(listed: list[ObjectEntry]) -> tuple[list[ObjectEntry], ObjectEntry | None]:
    """The changes among what was listed, and the newest checkpoint; what others have put here is neither."""
    changes = [entry for entry in listed if entry.name.endswith(".change")]
    checkpoints = [entry for entry in listed if entry.name.startswith(_CHECKPOINT_NAME)]
    return changes, checkpoints[-1] if checkpoints else None


def _number_of(name: str) -> int:
    stem = name.removeprefix(_CHECKPOINT_NAME).rpartition("/")[2].removesuffix(".change")
    if not stem.isdigit():
        raise StorageError(f"{name}: is no name of an object that a store has here; remove it")
    return int(stem)
