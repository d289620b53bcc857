"""The change log of a store: append-only, checksummed, synced before it is acknowledged.

A log is a folder of segments, each named for its first version: a head with the mark (change.py), and
records (change.py), one for each change.

The first record of a segment, of the version before its first, opens it and changes nothing: it repeats
all words and all times of expiry, so that older segments can be removed, and lists the records of the
segment before it. So it is a checkpoint: whoever opens the log reads the heads of the records in the last
segment, and one list for each of the others.

A writer appends, syncs, and only then moves the mark; readers stop at the mark, so they see what is
durable and nothing else. A crash leaves bytes beyond the mark: those that make whole records are
kept, for they may have been acknowledged, and a torn rest is cut off (and kept beside the log). A
record before the mark that does not check is damage, and is never cut; nor is one beyond it that others
follow, for a writer begins a record when the one before is on disk.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rangecast.durable.arrays import (
    Arrays,
    pack_arrays,
    read_arrays,
    reading_from,
    replacing,
    unpack_arrays,
    writing_to,
)
from rangecast.durable.segments import (
    cut_torn_end,
    remove_segments,
    segment_path,
    segment_paths,
    write_pieces,
)
from rangecast.errors import StorageError
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import Times
from rangecast.store.change import (
    EXPRESSIONS,
    HEAD,
    RECORDS,
    Change,
    FragmentEntry,
    Note,
    RecordEntry,
    Words,
    change_arrays,
    checked_head,
    fragments_of,
    ids_arrays,
    ids_from,
    move_mark,
    named_and_expiring,
    pack_head,
    pack_record,
    read_description,
    read_head,
    records_start,
    subscriptions_from,
)
from rangecast.types.schema import Schema

# The changes of a store by what is known of each: when it was made, where it is, what it names.
#
# `ChangeEntries` is what both kinds of log share: the segments of a folder (change_log.py) and the objects of
# a bucket (object_log.py). A kind of log says how entries are found, how a record is read and how one is
# added.
#
# The schema is the log's own: its dictionaries hold the words that were written, and no others.

_SUFFIX = ".log"
FRAGMENTS = "fragments"
"""The folder of a store for changes that are kept in fragments."""


class MadeChange(NamedTuple):
    """A change that was packed, and what the log knows of it once it is written."""

    version: int
    time: int
    words: Words
    textual: bool | None
    named: int
    expiring: bool
    note: Note
    fragments: str | None = None


class ChangePiece(NamedTuple):
    """A change, or one fragment of it by name: its version, and how many subscriptions it names."""

    version: int
    named: int
    fragment: str | None = None


class ChangeEntries(abc.ABC):
    """What is known of the changes after the base, in order."""

    def __init__(self, place: os.PathLike[str], schema: Schema) -> None:
        self.place = place
        self.schema = schema
        self._entries: list[RecordEntry] = []
        self.textual: bool | None = None
        self.notes: Note = {}
        # what the names of a version's fragments begin with
        self.fragments: dict[int, str] = {}
        self.n_learned = 0
        """How many words and hidden attributes the schema was taught by this log so far."""
        self._base = -1

    @abc.abstractmethod
    def refresh(self) -> None:
        """Look for changes that other processes have made."""

    @abc.abstractmethod
    def opening(self, version: int) -> tuple[int, Ids, Times]:
        """The last opening up to a version: its version, and what expired some time then, and when."""

    @abc.abstractmethod
    def append(
        self,
        time: int,
        deleted: Ids,
        inserted: Subscriptions,
        expires: Times | None = None,
        note: Note | None = None,
        fragments: Sequence[FragmentEntry] = (),
    ) -> int:
        """Write one change so that it stays, and return its version; `fragments` of it are there already.

        The dictionaries of `inserted.schema` begin with the log's; what they have beyond is written too.
        """

    @abc.abstractmethod
    def checkpoint(self, time: int, expiring: Ids, expires: Times) -> None:
        """Make an opening of the newest version: whoever opens the log begins with it."""

    @abc.abstractmethod
    def drop_before(self, version: int) -> int:
        """Remove what no version from this one on needs; says how many files or objects that were."""

    @property
    @abc.abstractmethod
    def n_last(self) -> int:
        """How many changes there are since the last opening."""

    @abc.abstractmethod
    def _payload(self, entry: RecordEntry) -> tuple[dict[str, Any], Arrays]:
        """What a record says, checked against its sums."""

    @abc.abstractmethod
    def _fragment(self, name: str) -> Arrays:
        """The arrays of a fragment, checked against their sums."""

    @abc.abstractmethod
    def _since(self) -> int:
        """When the base was made."""

    @abc.abstractmethod
    def _latest(self) -> int:
        """The time that the next change must not be before."""

    @property
    def base(self) -> int:
        """The version before the first change that is still in the log."""
        return self._base

    @property
    def version(self) -> int:
        """The version of the last change."""
        return self._entries[-1].version if self._entries else self._base

    def time_of(self, version: int) -> int:
        """When a version was made."""
        if version == self._base > 0:
            return self._since()
        return self._entry(version).time

    def versions_at(self, times: Times) -> Times:
        """The version that was the newest at each time; -1 where the log no longer says."""
        made = np.fromiter((entry.time for entry in self._entries), np.int64, len(self._entries))
        found = self._base + np.searchsorted(made, times, "right").astype(np.int64)
        if self._base > 0:
            found[times < self._since()] = -1
        return found

    def changed(self, since: int, until: int) -> int:
        """How many subscriptions the changes after `since` up to `until` name."""
        return sum(entry.changed for entry in self._entries[since - self._base : until - self._base])

    def may_expire(self, since: int, until: int) -> bool:
        """Whether a change after `since` up to `until` brings subscriptions that expire."""
        return any(entry.expiring for entry in self._entries[since - self._base : until - self._base])

    @abc.abstractmethod
    def none_expires(self) -> bool:
        """Whether no subscription of the newest version expires, as far as is known without reading it."""

    def changes(self, since: int, until: int) -> Iterator[Change]:
        """The changes after a version up to another, in order; one in fragments comes as several."""
        if since < self._base:
            raise StorageError(
                f"{self.place}: changes since version {since} were compacted away; "
                f"the log begins after version {self._base}, load a snapshot instead"
            )
        for entry in self._entries[since - self._base : until - self._base]:
            yield from self.read(entry)

    def read(self, entry: RecordEntry) -> Iterator[Change]:
        """One change, checked against its sums: whole, or by fragments, which have no id in common."""
        meta, arrays = self._payload(entry)
        fragments = fragments_of(meta)
        if not fragments:
            yield self._change(entry, arrays, meta.get("note"))
        for fragment in fragments:
            yield self._change(entry, self._fragment(fragment.name), meta.get("note"))

    def pieces(self, since: int, until: int) -> Iterator[ChangePiece]:
        """What the changes after a version up to another consist of, for who reads it piece by piece."""
        for entry in self._entries[since - self._base : until - self._base]:
            if entry.version not in self.fragments:
                yield ChangePiece(entry.version, entry.changed)
                continue
            for fragment in fragments_of(self._payload(entry)[0]):
                yield ChangePiece(entry.version, fragment.named, fragment.name)

    def read_piece(self, piece: ChangePiece) -> Change:
        """One piece of a change; a fragment that no change names yet is read alike."""
        if piece.fragment is None:
            [whole] = self.read(self._entry(piece.version))
            return whole
        time = self._entry(piece.version).time if piece.version else 0
        arrays = self._fragment(piece.fragment)
        return self._change(RecordEntry(piece.version, time, Path(), 0, 0, 0, False), arrays, None)

    def _change(self, entry: RecordEntry, arrays: Arrays, note: Note | None) -> Change:
        deleted = ids_from(arrays, "deleted")
        inserted = subscriptions_from(self.schema.widest(), ids_from(arrays, "inserted"), arrays)
        inserted.beside.expires = arrays.get("expires")
        return Change(entry.version, entry.time, deleted, inserted, arrays.get("expires"), note)

    def _entry(self, version: int) -> RecordEntry:
        if not self._base < version <= self.version:
            raise StorageError(
                f"{self.place}: the log has versions {self._base + 1} to {self.version}, not {version}"
            )
        return self._entries[version - self._base - 1]

    def _learn(self, words: Words) -> None:
        if not words:
            return
        if not self.schema.learn_hidden(*words.get(EXPRESSIONS, (0, []))):
            raise StorageError(f"{self.place}: expressions do not follow one another; it is damaged")
        self.n_learned += sum(len(fresh) for _, fresh in words.values())
        for name, vocabulary in self.schema.dictionaries():
            known, fresh = words.get(name, (0, []))
            have = vocabulary.words()[known : known + len(fresh)]
            if have != fresh[: len(have)] or len(vocabulary) < known:
                raise StorageError(
                    f"{self.place}: the words of {name!r} do not follow one another; it is damaged"
                )
            for word in fresh[len(have) :]:
                vocabulary.add(word)

    def check(self) -> list[str]:
        """Read every change; a sentence for each that is damaged."""
        problems = []
        for entry in self._entries:
            try:
                for _ in self.read(entry):
                    pass
            except (StorageError, ValueError, KeyError) as error:
                problems.append(str(error))
        return problems

    def _packed(
        self,
        time: int,
        deleted: Ids,
        inserted: Subscriptions,
        expires: Times | None,
        note: Note | None,
        fragments: Sequence[FragmentEntry] = (),
        **more: Any,
    ) -> tuple[bytes, MadeChange]:
        """The record of the next change."""
        time = max(time, self._latest())
        words: Words = {}
        hidden = inserted.schema.hidden_names()[: inserted.schema.n_hidden]
        if len(hidden) > (known := len(self.schema.hidden_names())):
            words[EXPRESSIONS] = known, hidden[known:]
        pairs = zip(self.schema.dictionaries(), inserted.schema.dictionaries(), strict=True)
        for (name, ours), (_, theirs) in pairs:
            start = len(ours)
            if len(theirs) > start:
                words[name] = (start, theirs.words()[start:])
        arrays = change_arrays(deleted, inserted, expires)
        textual = self.textual
        for ids in (deleted, inserted.ids):
            textual = ids.textual if len(ids) else textual
        textual = fragments[0].textual if fragments else textual
        version = self.version + 1
        meta: dict[str, Any] = {"words": words, "textual": textual, **more}
        if note:
            meta["note"] = note
        if fragments:
            meta["fragments"] = [list(fragment) for fragment in fragments]
        record = pack_record(version, time, pack_arrays(meta, arrays))
        named = len(deleted) + len(inserted) + sum(fragment.named for fragment in fragments)
        ending = expires is not None or any(fragment.expiring for fragment in fragments)
        stem = fragments[0].stem if fragments else None
        return record, MadeChange(version, time, words, textual, named, ending, note or {}, stem)

    def _take(self, made: MadeChange, place: Any, offset: int, length: int) -> None:
        """Enter a change that was written."""
        self.textual = made.textual
        self._entries.append(
            RecordEntry(made.version, made.time, place, offset, length, made.named, made.expiring)
        )
        self._learn(made.words)
        self.notes = {**self.notes, **made.note}
        if made.fragments is not None:
            self.fragments[made.version] = made.fragments

    def _know_fragments(self, version: int, meta: dict[str, Any]) -> None:
        """Enter the fragments that a record names, or an opening repeats."""
        self.fragments.update({int(v): stem for v, stem in meta.get("living", {}).items()})
        for fragment in fragments_of(meta)[:1]:
            self.fragments[version] = fragment.stem

    def _opening_meta(self) -> dict[str, Any]:
        """What an opening repeats, so that what is before it can be removed."""
        words: Words = {name: (0, v.words()) for name, v in self.schema.dictionaries() if len(v)}
        if hidden := self.schema.hidden_names():
            words[EXPRESSIONS] = 0, hidden
        meta: dict[str, Any] = {"words": words, "textual": self.textual}
        if self.notes:
            meta["notes"] = self.notes
        living = {str(v): stem for v, stem in self.fragments.items() if v > self._base}
        if living:
            meta["living"] = living
        return meta


LISTED = "listed"
"""The array of an opening record with a row for each record of the segment before, its own opening first:
version, time, offset, length, how many subscriptions it names, whether some expire."""


class Recovered(NamedTuple):
    """What was behind the mark: whether there were whole records, and how many bytes of a torn one."""

    kept: bool
    cut: int


class ChangeLog(ChangeEntries):
    """Reads and appends changes; whoever appends must hold the store's lock.

    The schema is the log's own: its dictionaries hold the words that were written, and no others.
    """

    def __init__(self, folder: str | os.PathLike[str], schema: Schema) -> None:
        super().__init__(Path(folder), schema)
        self.folder = Path(folder)
        self._openings: list[RecordEntry] = []
        self._last: Path | None = None
        self._end = 0
        self.summed = True
        """Whether the mark of the last segment has a sum; those of older stores have none."""

    def _since(self) -> int:
        return self._openings[0].time

    def _latest(self) -> int:
        return (self._entries or self._openings)[-1].time

    def opening(self, version: int) -> tuple[int, Ids, Times]:
        """The last opening up to a version: its version, and what expired some time then, and when."""
        entry = [opening for opening in self._openings if opening.version <= version][-1]
        if not entry.expiring:
            return entry.version, Ids.of([]), np.empty(0, np.int64)
        arrays = self._payload(entry)[1]
        return entry.version, ids_from(arrays, "expiring"), arrays["expires"]

    def none_expires(self) -> bool:
        """Whether neither the last opening nor a change since brings subscriptions that expire."""
        last = self._openings[-1]
        return not last.expiring and not self.may_expire(last.version, self.version)

    # reading

    def refresh(self) -> None:
        """Look for changes that other processes have appended."""
        segments = self.segments()
        if not segments:
            raise StorageError(f"{self.folder}: the change log has no segment; the store is damaged")
        paths = [path for _, path in segments]
        if self._last is None or self._last not in paths:
            self._entries, self._openings, self._base = [], [], segments[0][0] - 1
            self._last, self._end = paths[0], 0
        position = paths.index(self._last)
        for number, (first, path) in enumerate(segments[position:], position + 1):
            if path != self._last:
                if first != self.version + 1:
                    raise StorageError(
                        f"{path}: the segment must begin with version {self.version + 1}, got {first}"
                    )
                self._last, self._end = path, 0
            whole = self._end == 0 and number < len(segments)
            if not whole or not self._take_list(path, *segments[number]):
                self._read_heads(path, first)
        # whole segments go at once, so the changes that went with them are those before the first left
        gone = max(0, segments[0][0] - 1 - self._base)
        del self._entries[:gone]
        self._base += gone
        self._openings = [opening for opening in self._openings if opening.version >= self._base]
        self.fragments = {version: stem for version, stem in self.fragments.items() if version > self._base}

    def segments(self) -> list[tuple[int, Path]]:
        """First version and path of each segment, in order."""
        return segment_paths(self.folder, _SUFFIX)

    def _payload(self, entry: RecordEntry) -> tuple[dict[str, Any], Arrays]:
        try:
            with reading_from(entry.path), open(entry.path, "rb") as file:
                payload = RECORDS.read(file, entry.offset, entry.version)
        except FileNotFoundError:
            raise StorageError(
                f"{entry.path}: version {entry.version} was compacted away while it was read; read again"
            ) from None
        if payload is None or len(payload) != entry.length:
            raise StorageError(
                f"{entry.path}: the change of version {entry.version} at byte {entry.offset} is damaged"
            )
        return unpack_arrays(payload)

    def _fragment(self, name: str) -> Arrays:
        return read_arrays(self.folder.parent / FRAGMENTS / name)[1]

    def _read_heads(self, path: Path, first: int) -> None:
        """Enter the records between where we stopped and the mark."""
        try:
            with reading_from(path), open(path, "rb") as file:
                start, mark, self.summed = read_head(file.fileno(), path, first)
                if self._end == 0:
                    self._end = start
                while self._end != mark:
                    file.seek(self._end)
                    head = checked_head(file.read(HEAD.size))
                    described = read_description(file, head.length) if head else None
                    opens = self._end == start
                    if (
                        head is None
                        or described is None
                        or head.version != (first - 1 if opens else self.version + 1)
                        or self._end + HEAD.size + head.length > mark
                    ):
                        raise StorageError(f"{path}: damaged at byte {self._end}; restore it from a copy")
                    meta, shapes = described
                    self._learn(meta["words"])
                    self.textual = meta["textual"]
                    self.notes = {**self.notes, **(meta.get("notes" if opens else "note") or {})}
                    version, time, length, _ = head
                    self._know_fragments(version, meta)
                    place = path, self._end, length, *named_and_expiring(meta, shapes)
                    if opens:
                        self._openings.append(RecordEntry(version, meta.get("since", time), *place))
                    else:
                        self._entries.append(RecordEntry(version, time, *place))
                    self._end += HEAD.size + length
        except FileNotFoundError:
            raise StorageError(f"{path}: was compacted away while it was read; read again") from None

    def _take_list(self, path: Path, first: int, following: Path) -> bool:
        """Enter the records of a whole segment from the list that opens the next; False if it has none."""
        try:
            with reading_from(following), open(following, "rb") as file:
                payload = RECORDS.read(file, records_start(file.fileno()), first - 1)
        except FileNotFoundError:
            raise StorageError(f"{following}: was compacted away while it was read; read again") from None
        if payload is None:
            raise StorageError(f"{following}: the record that opens it is damaged; restore it from a copy")
        arrays = unpack_arrays(payload)[1]
        if LISTED not in arrays:
            return False
        opening, *rows = arrays[LISTED].tolist()
        entries = [RecordEntry(v, t, path, at, n, k, bool(e)) for v, t, at, n, k, e in rows]
        versions = [opening[0] + 1 + k for k in range(len(rows))]
        if opening[0] != self.version or first - 1 != opening[0] + len(rows):
            versions = []
        if [entry.version for entry in entries] != versions:
            raise StorageError(f"{following}: its list of {path.name} does not fit; restore it from a copy")
        version, time, at, length, named, ends = opening
        self._openings.append(RecordEntry(version, time, path, at, length, named, bool(ends)))
        self._entries += entries
        last = (entries or self._openings)[-1]
        self._end = last.offset + HEAD.size + last.length
        return True

    # writing

    def start_segment(self, first: int, time: int, expiring: Ids | None = None, expires: Any = None) -> None:
        """Begin a segment whose first change will be version `first`; `expiring` ones end some time."""
        meta = self._opening_meta()
        if first > 1:
            meta["since"] = self.time_of(first - 1)
        arrays: Arrays = {}
        if expiring is not None and len(expiring):
            arrays = {**ids_arrays(expiring, "expiring"), "expires": expires}
        if self._last is not None:
            listed = [self._openings[-1], *self._entries[self._openings[-1].version - self._base :]]
            arrays[LISTED] = np.array(
                [(e.version, e.time, e.offset, e.length, e.changed, e.expiring) for e in listed], np.int64
            )
        record = pack_record(first - 1, time, pack_arrays(meta, arrays))
        with replacing(segment_path(self.folder, first, _SUFFIX)) as file:
            file.write(pack_head(first, len(record)) + record)

    def append(
        self,
        time: int,
        deleted: Ids,
        inserted: Subscriptions,
        expires: Times | None = None,
        note: Note | None = None,
        fragments: Sequence[FragmentEntry] = (),
    ) -> int:
        """Write one change, sync it, show it to readers; returns its version.

        The dictionaries of `inserted.schema` begin with the log's; what they have beyond is written too.
        """
        assert self._last is not None
        following = segment_path(self.folder, self.version + 1, _SUFFIX)
        if following != self._last and following.exists():
            # begun by a call that failed afterwards: from here on changes go there
            self.refresh()
        record, made = self._packed(time, deleted, inserted, expires, note, fragments)
        with writing_to(self._last), open(self._last, "r+b", buffering=0) as file:
            try:
                write_pieces(file.fileno(), [record], self._end)
                os.fsync(file.fileno())
            except BaseException:
                # where that fails too, the next writer cuts it
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), self._end)
                raise
            move_mark(file.fileno(), self._end + len(record))
        self._take(made, self._last, self._end, len(record) - HEAD.size)
        self._end += len(record)
        return made.version

    @property
    def n_last(self) -> int:
        """How many changes the last segment has."""
        return self.version - self._openings[-1].version

    def recover(self) -> Recovered:
        """After a crash: keep whole records beyond the mark, cut the torn rest.

        Whoever calls has read the log up to the mark, and reads on if any were kept.
        """
        path, end, version = self._last, self._end, self.version
        assert path is not None
        with writing_to(path), open(path, "r+b", buffering=0) as file:
            file.seek(self._end)
            beyond = file.read()
            for at, head in RECORDS.walk(beyond, 0, version + 1):
                version = head.version
                end = self._end + at + HEAD.size + head.length
            if cut := self._end + len(beyond) - end:
                # a writer begins a record when the one before is on disk
                followers = RECORDS.beyond(beyond, end - self._end, lambda _, head: head.version > version)
                if next(followers, None) is not None:
                    raise StorageError(
                        f"{path}: damaged at byte {end}, and whole changes follow; restore it from a copy"
                    )
                cut_torn_end(path, end)
            elif end > self._end:
                os.fsync(file.fileno())  # they may not be on disk yet
            if beyond:
                move_mark(file.fileno(), end)
        return Recovered(end > self._end, cut)

    def mend_mark(self) -> None:
        """Rewrite a damaged mark, where the records say what it must be: all are whole up to the end."""
        first, path = self.segments()[-1]
        with writing_to(path), open(path, "r+b", buffering=0) as file:
            end, raw = records_start(file.fileno()), file.read()
            for at, head in RECORDS.walk(raw, end, first - 1):
                end = at + HEAD.size + head.length
            if end != len(raw):
                raise StorageError(
                    f"{path}: the mark is damaged, and so is what follows byte {end}; restore it from a copy"
                )
            os.fsync(file.fileno())
            move_mark(file.fileno(), end)

    def checkpoint(self, time: int, expiring: Ids, expires: Times) -> None:
        """Begin a segment, from which on the log can be read by itself."""
        self.start_segment(self.version + 1, time, expiring, expires)

    def drop_before(self, version: int) -> int:
        """Remove the segments that hold no change after `version`; returns how many."""
        segments = self.segments()
        gone = [
            path for (_, path), (following, _) in itertools.pairwise(segments) if following <= version + 1
        ]
        return remove_segments(self.folder, gone)
