"""Which batches of a stream are whole, and what was counted: lines of a file, or objects of a bucket.

    folder    _rangecast/commits.jsonl                   a line for each batch, in order
    bucket    _rangecast/commits/000000000012.json       the commit of batch 12; created once, never changed
              _rangecast/manifests/000000000099.json     the commits of batches 0 to 99 once more

In a folder a batch is whole when its line is (durable/lines.py). Past CUT_BYTES the older half of the lines
goes.

In a bucket nothing is appended to. A commit is created if there is none of its name, so of two drivers that
have done the same batch one is told that the other was faster. It names the parts that belong to the batch:
whatever else stands there was left by an attempt that does not count. A manifest saves readers from asking
for each commit by itself; they are made in order, each when its last batch is whole, or later by the next.

Spark numbers batches without a gap and begins one when the one before is done, so the batches that are whole
are those up to the last. Every line and object has a sum (durable/documents.py): what does not check is
refused, and never taken for a torn line. A stream writes them (spark/stream/ledger.py); reading them needs no
Spark.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangecast.durable.bucket import Bucket, is_address, place_of
from rangecast.durable.documents import seal, unseal
from rangecast.durable.lines import LineLog
from rangecast.errors import StorageError

STATE = "_rangecast"
COMMITS, MANIFESTS = "commits", "manifests"
PER_MANIFEST = 100
CUT_BYTES = 1 << 22
_TAIL = 65_536


def commits_at(out: str | os.PathLike[str]) -> Commits:
    """The commits of the stream whose output, or whose checkpoint without one, is here."""
    if is_address(out):
        return BucketCommits(Bucket(f"{out}/{STATE}"))
    return FolderCommits(Path(place_of(out)) / STATE)


class Commits(abc.ABC):
    """The batches of a stream that are whole, as documents with `batch`, `version` and what was counted."""

    @abc.abstractmethod
    def read(self) -> list[dict[str, Any]]:
        """All that are kept, in order, each checked."""

    @abc.abstractmethod
    def recent(self) -> list[dict[str, Any]]:
        """The last ones, in order: some hundreds, or all if there are fewer."""

    @abc.abstractmethod
    def last(self) -> int:
        """The last batch that is whole, -1 before the first."""

    @abc.abstractmethod
    def add(self, batch: int, content: Mapping[str, Any]) -> bool:
        """Say that a batch is whole; says whether this commit counts, or somebody was faster."""


class FolderCommits(Commits):
    """The lines of commits.jsonl in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "commits.jsonl"

    def read(self) -> list[dict[str, Any]]:
        """All lines that are kept."""
        return [line.content for line in self._log().read()]

    def recent(self) -> list[dict[str, Any]]:
        """The lines in the last bytes of the file."""
        log = self._log()
        log.skip(_TAIL)
        return [line.content for line in log.read()]

    def last(self) -> int:
        """The batch of the last line."""
        found = self.recent()
        return int(found[-1]["batch"]) if found else -1

    def add(self, batch: int, content: Mapping[str, Any]) -> bool:
        """Append a line, behind the last whole one."""
        log = self._log()
        log.skip(_TAIL)
        log.append([seal(content)])
        if log.end > CUT_BYTES:
            log = self._log()
            lines = log.read()
            log.rewrite([seal(line.content) for line in lines if line.end > log.end // 2])
        return True

    def _log(self) -> LineLog[dict[str, Any]]:
        return LineLog(self.path, unseal)


class BucketCommits(Commits):
    """The objects of the folders `commits` and `manifests` of a bucket.

    >>> commits = BucketCommits(Bucket("memory://doctest/commits"))
    >>> commits.add(0, {"batch": 0, "parts": ["a"]}), commits.add(0, {"batch": 0, "parts": ["b"]})
    (True, False)
    >>> commits.read(), commits.last()
    ([{'batch': 0, 'parts': ['a']}], 0)
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def read(self) -> list[dict[str, Any]]:
        """All commits: those of the manifests, and those behind them."""
        return self._read(self._manifests())

    def recent(self) -> list[dict[str, Any]]:
        """Those of the last manifests, and those behind them."""
        return self._read(self._manifests()[-3:])

    def last(self) -> int:
        """The last batch, by the names of commits alone."""
        manifests = self._manifests()
        behind = self._behind(manifests)
        return _number(behind[-1]) if behind else _number(manifests[-1]) if manifests else -1

    def add(self, batch: int, content: Mapping[str, Any]) -> bool:
        """Create the commit of a batch, unless there is one."""
        if not self.bucket.create(_name(COMMITS, batch), seal(content) + b"\n"):
            return False
        if batch % PER_MANIFEST == PER_MANIFEST - 1:
            self._gather()
        return True

    def _gather(self) -> None:
        """Make the manifests that are missing: a crash may have left out the last one."""
        manifests = self._manifests()
        first = _number(manifests[-1]) + 1 if manifests else 0
        behind = self._behind(manifests)
        for start in range(0, len(behind) - PER_MANIFEST + 1, PER_MANIFEST):
            some = self._documents(behind[start : start + PER_MANIFEST])
            # whoever makes it makes the same, for commits do not change
            last = first + start + PER_MANIFEST - 1
            self.bucket.create(_name(MANIFESTS, last), seal({"commits": some}) + b"\n")

    def _manifests(self) -> list[str]:
        found = [entry.name for entry in self.bucket.entries(MANIFESTS)]
        self._check_gaps(found, MANIFESTS, PER_MANIFEST - 1, PER_MANIFEST)
        return found

    def _behind(self, manifests: list[str]) -> list[str]:
        """The names of the commits that no manifest has."""
        last = _number(manifests[-1]) if manifests else -1
        after = _name(COMMITS, last) if manifests else None
        found = [entry.name for entry in self.bucket.entries(COMMITS, after=after)]
        self._check_gaps(found, COMMITS, last + 1, 1)
        return found

    def _check_gaps(self, found: list[str], folder: str, first: int, step: int) -> None:
        """Raise when one is missing: its matches would be left out without a word."""
        for k, name in enumerate(found):
            if name != _name(folder, first + k * step):
                missing = self.bucket.address / _name(folder, first + k * step)
                raise StorageError(f"{missing}: is missing, but there is {name}; bring it back from a copy")

    def _read(self, manifests: list[str]) -> list[dict[str, Any]]:
        behind = self._behind(manifests)
        gathered = [commit for each in self._documents(manifests) for commit in each["commits"]]
        return [*gathered, *self._documents(behind)]

    def _documents(self, names: list[str]) -> list[dict[str, Any]]:
        def document(name: str) -> dict[str, Any]:
            raw = self.bucket.read(name)
            if raw is None:
                raise StorageError(f"{self.bucket.address / name}: is gone since it was listed")
            return unseal(raw, self.bucket.address / name)

        return self.bucket.each(document, names)


def _name(folder: str, batch: int) -> str:
    return f"{folder}/{batch:012}.json"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(".json"))
