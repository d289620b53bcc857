"""The versions of a store, for all who read: the change log and the snapshots together.

A snapshot is a saved index. The index of a version is its snapshot, or the nearest older snapshot with
the changes since. Reading needs no lock: the log shows only what is durable, snapshots appear by a
rename, and neither ever changes.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rangecast.changelog import Change, ChangeLog
from rangecast.errors import StorageError
from rangecast.indexes import Index, load_index, open_index
from rangecast.schema import Schema
from rangecast.subscriptions import Subscriptions


class Versions:
    """What can be read of a store; `Store` adds what changes it."""

    def __init__(self, path: Path, settings: dict[str, Any], schema: Schema) -> None:
        self.path = path
        self._settings = settings
        self._schema = schema
        self._log = ChangeLog(path / "log", Schema.from_dict(settings["schema"]))
        self._guard = threading.RLock()
        self._living: tuple[int, Index] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self.path)!r}: version {self.version}>"

    def __len__(self) -> int:
        with self._guard:
            return len(self._state())

    def __contains__(self, id: Any) -> bool:
        with self._guard:
            return id in self._state()

    @property
    def schema(self) -> Schema:
        """The schema, with every word that the store's subscriptions name."""
        return self._schema

    @property
    def id(self) -> str:
        """The store's own id, made when it was created."""
        return str(self._settings["id"])

    @property
    def kind(self) -> str:
        """The name of the index that snapshots are."""
        return str(self._settings["index"])

    @property
    def ids_are_text(self) -> bool | None:
        """Whether ids are strings; None while there are none."""
        self.refresh()
        return self._log.textual

    @property
    def version(self) -> int:
        """The newest version; 0 is the empty store."""
        self.refresh()
        return self._log.version

    @property
    def oldest(self) -> int:
        """The oldest version that can still be had."""
        with self._guard:
            self.refresh()
            return 0 if self._log.base == 0 else self.snapshots()[0]

    def refresh(self) -> int:
        """Take in what other processes have written; returns the newest version."""
        with self._guard:
            before = n_words(self._log.schema)
            self._log.refresh()
            if n_words(self._log.schema) != before:
                self._take_words()
            return self._log.version

    def changes(self, since: int, until: int | None = None) -> Iterator[Change]:
        """The changes after version `since`, up to `until` or the newest, in order."""
        with self._guard:
            newest = self.refresh()
            last = newest if until is None else until
            if not 0 <= since <= newest or last > newest:
                raise StorageError(f"{self.path}: has versions up to {newest}, got {since} to {last}")
            found = self._log.changes(since)
        for change in found:
            if change.version > last:
                return
            yield change

    def version_at(self, when: dt.datetime) -> int:
        """The version that was the newest at a time; a time without a zone is UTC."""
        aware = when if when.tzinfo else when.replace(tzinfo=dt.UTC)
        with self._guard:
            self.refresh()
            return self._log.version_at(int(aware.timestamp() * 1_000_000))

    def time_of(self, version: int) -> dt.datetime:
        """When a version was made."""
        with self._guard:
            self.refresh()
            return dt.datetime.fromtimestamp(self._log.time_of(version) / 1_000_000, dt.UTC)

    def snapshots(self) -> list[int]:
        """The versions that have a snapshot on disk."""
        return sorted(int(path.stem) for path in (self.path / "snapshots").glob("*.index"))

    def snapshot_path(self, version: int) -> Path:
        """Where the snapshot of a version is, or would be."""
        return self.path / "snapshots" / f"{version:020}.index"

    def snapshot(self, version: int | None = None) -> Path:
        """The file of a version's index (the newest unless told), made now if it is not there yet.

        `rangecast.load_index` maps it; it stays as it is until `compact` removes it.
        """
        with self._guard:
            version = self._resolve(version)
            path = self.snapshot_path(version)
            if not path.exists():
                self.index(version).save(path)
            return path

    def index(self, version: int | None = None) -> Index:
        """The index of a version, for this process alone: its snapshot, or an older one and the changes."""
        with self._guard:
            version = self._resolve(version)
            older = [v for v in self.snapshots() if v <= version]
            if older:
                start, index = older[-1], load_index(self.snapshot_path(older[-1]))
            elif self._log.base == 0:
                start = 0
                index = open_index(
                    self.kind, Schema.from_dict(self._settings["schema"]), **self._settings["options"]
                )
            else:
                raise StorageError(f"{self.path}: version {version} is gone; the oldest is {self.oldest}")
            for change in self._log.changes(start):
                if change.version > version:
                    break
                change.apply_to(index)
            return index

    def subscriptions(self, version: int | None = None) -> Subscriptions:
        """All subscriptions of a version."""
        with self._guard:
            return (self._state() if version is None else self.index(version)).subscriptions()

    def _resolve(self, version: int | None) -> int:
        newest = self.refresh()
        if version is None:
            return newest
        if not 0 <= version <= newest:
            raise StorageError(f"{self.path}: has versions up to {newest}, got {version}")
        if version < self._log.base and version not in self.snapshots():
            raise StorageError(f"{self.path}: version {version} is gone; the oldest is {self.oldest}")
        return version

    def _take_words(self) -> None:
        """Bring the log's words into the schema that users parse with."""
        written = self._log.schema
        pairs = list(zip(self._schema.categories(), written.categories(), strict=True))
        if all(ours.vocabulary.agrees_with(theirs.vocabulary) for (_, ours), (_, theirs) in pairs):
            for (_, ours), (_, theirs) in pairs:
                ours.vocabulary.extend_from(theirs.vocabulary)
        else:
            # words that were named here and never written were overtaken by another writer's
            self._schema = Schema.from_dict(written.to_dict(words=True))

    def _state(self) -> Index:
        """The index of the newest version, kept and brought forward by the changes."""
        newest = self.refresh()
        if self._living is None or self._living[0] < self._log.base:
            self._living = newest, self.index(newest)
        version, index = self._living
        if version < newest:
            for change in self._log.changes(version):
                change.apply_to(index)
            self._living = newest, index
        return index


def n_words(schema: Schema) -> int:
    """How many words the dictionaries of a schema have together."""
    return sum(len(category.vocabulary) for _, category in schema.categories())
