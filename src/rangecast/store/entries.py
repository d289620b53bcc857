"""The changes of a store by what is known of each: when it was made, where it is, what it names.

`ChangeEntries` is what both kinds of log share: the segments of a folder (log.py) and the objects of a bucket
(object_log.py). A kind of log says how entries are found, how a record is read and how one is added.

The schema is the log's own: its dictionaries hold the words that were written, and no others.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rangecast.durable.arrays import Arrays, pack_arrays
from rangecast.errors import StorageError
from rangecast.model.expiry_times import Times
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.change import (
    EXPRESSIONS,
    Change,
    FragmentEntry,
    Note,
    RecordEntry,
    Words,
    change_arrays,
    fragments_of,
    ids_from,
    pack_record,
    subscriptions_from,
)
from rangecast.types.schema import Schema

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
        if not self.schema.learn_hidden(*words.get(EXPRESSIONS, (0, []))):
            raise StorageError(f"{self.place}: expressions do not follow one another; it is damaged")
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
