"""What a stream writes down so that a replay agrees: which stream it is, pins and commits.

    checkpoint/                       Spark's own: which events belong to which batch
    checkpoint/_rangecast/stream.json which stream this is: its id, its store, its columns
    checkpoint/_rangecast/pins/12.json   batch 12 is matched against this version; made once, never changed
    out/_rangecast/stream.json        the id of the stream whose matches these are
    out/_rangecast/commits...         the batches that are whole, in order (store/commits.py)
    out/_rangecast/tmp/12-.../        batch 12 while it is written (ledger.py)
    out/_rangecast/ready/batch_id=12/ batch 12 while it is sent to a topic (kafka_sink.py)
    out/batch_id=12/part-*.parquet    its matches
    out/_rejects/batch_id=12/         its events that were rejected, if there are any

A stream without `out`, whose matches go to a callback, keeps commits and tmp under its checkpoint. Both may
be folders or addresses of a bucket; for Spark's own part of a checkpoint, Hadoop must know the bucket too.

A pin is put there by a hard link, which fails when the name is taken, or by a conditional put: of two drivers
that plan the same batch, both use the version of the first. All of it has sums (rangecast.durable.documents).
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from rangecast.durable.arrays import make_folder, sync_folder
from rangecast.durable.bucket import Bucket, is_address
from rangecast.durable.documents import read_document, seal, write_document
from rangecast.errors import OptionError, StorageError
from rangecast.spark.ingest import read_parts
from rangecast.spark.version_policy import Pinned
from rangecast.store.commits import STATE, commits_at
from rangecast.store.home import home_of

FORMAT = 1
# Spark keeps the offsets of as many batches (spark.sql.streaming.minBatchesToRetain)
_PINS_KEPT = 100
_TOTALS = "totals.json"
# what a commit has in a bucket alone
_PARTS = ("parts", "rejected_parts")


@dataclass(frozen=True)
class Pin:
    """What a batch of a store is pinned to, and when it was."""

    batch: int
    store: str
    version: int
    oldest: int | None = None
    time: int = 0

    @property
    def pinned(self) -> Pinned:
        """What is written down, as spark/version_policy.py speaks of it."""
        return Pinned(self.version, self.oldest)


@dataclass(frozen=True)
class Commit:
    """A batch that is whole: its version and what was counted; in a bucket, the parts that it has."""

    batch: int
    version: int
    events: int = 0
    rows: int = 0
    pairs: int = 0
    rejected: int = 0
    bytes: int = 0
    newest: int = 0
    time: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    rejected_parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """What one stream has written down, by the places of its checkpoint and of its output."""

    checkpoint: str
    out: str | None = None
    rejects: str | None = None

    @property
    def checkpoint_state(self) -> Any:
        """The folder, or the address, for what belongs to the checkpoint."""
        return home_of(self.checkpoint).path / STATE

    @property
    def output_state(self) -> Any:
        """The folder, or the address, for what belongs to the output."""
        return home_of(self._output).path / STATE

    @property
    def _output(self) -> str:
        return self.out or self.checkpoint

    @property
    def files(self) -> BatchFiles:
        """Where the files of its batches go."""
        rejects = self.rejects or str(home_of(self._output).path / "_rejects")
        if is_address(self._output):
            return BucketFiles(self._output, self.out, rejects)
        return FolderFiles(None if self.out is None else Path(self.out), Path(rejects), self.output_state)

    # which stream this is

    def settings(self) -> dict[str, Any] | None:
        """What the stream of this checkpoint was begun with, if one was."""
        return home_of(self.checkpoint_state).read("stream.json")

    def shown(self) -> dict[str, Any] | None:
        """What the output says of the stream that writes here, if one does."""
        return home_of(self.output_state).read("stream.json")

    def adopt(self, settings: dict[str, Any]) -> str:
        """Begin a stream, or see that this is the one that was begun here; returns its id."""
        settings = json.loads(json.dumps({"format": FORMAT, **settings}))
        known = self.settings()
        theirs = self.shown() if self.out else known
        if known is None:
            self._check_free(theirs)
            known = {"stream": uuid.uuid4().hex, **settings}
            _write(self.checkpoint_state, known)
        else:
            self._check_same(known, settings)
        if self.out and theirs is None:
            if self.next_of_spark() > 0:
                raise OptionError(
                    f"{self.out}: is empty, but the stream of the checkpoint {self.checkpoint} has written "
                    "batches: give the folder that they are in, or start afresh with an empty checkpoint"
                )
            _check_empty(self.out)
            shown = {key: known[key] for key in ("format", "stream", "fields")}
            _write(self.output_state, {**shown, "checkpoint": self.checkpoint})
        elif theirs is not None and theirs["stream"] != known["stream"]:
            raise OptionError(
                f"{self.out}: holds the matches of another stream, whose checkpoint is "
                f"{theirs.get('checkpoint')}; give that one, or name an empty folder for the output"
            )
        return str(known["stream"])

    def _check_free(self, theirs: Any) -> None:
        if {"metadata", "offsets", "commits"} & set(home_of(self.checkpoint).top_names()):
            raise OptionError(
                f"{self.checkpoint}: is the checkpoint of another query, which match_stream did not begin; "
                "name an empty folder"
            )
        if self.out and theirs is not None:
            raise OptionError(
                f"{self.out}: holds the matches of a stream whose checkpoint is {theirs.get('checkpoint')}; "
                "give that one to go on, or name an empty folder for the output"
            )
        if self.out:
            _check_empty(self.out)

    def _check_same(self, known: dict[str, Any], settings: dict[str, Any]) -> None:
        if known.get("format") != FORMAT:
            raise StorageError(
                f"{self.checkpoint_state}: a stream of format {FORMAT} is read, got {known.get('format')}; "
                "it was begun with another version of rangecast"
            )
        if known["store"] != settings["store"]:
            differs = " and another schema" if known["schema"] != settings["schema"] else ""
            raise OptionError(
                f"{self.checkpoint}: belongs to the store {known['path']}, and {settings['path']} is another "
                f"one{differs}; give that store, or start afresh with an empty checkpoint and output"
            )
        for name, said in _FIXED.items():
            if known.get(name) != settings.get(name):
                raise OptionError(
                    f"{self.checkpoint}: the stream was begun with {name} {said(known.get(name))}, got "
                    f"{said(settings.get(name))}; to change that, start afresh with an empty checkpoint and "
                    "output"
                )

    # pins

    def pin(self, batch: int) -> Pin | None:
        """What a batch was pinned to, None when it is new."""
        found = home_of(self.checkpoint_state).read(_pin_name(batch))
        try:
            return None if found is None else Pin(**found)
        except TypeError as error:
            raise StorageError(f"{self.pin_path(batch)}: cannot be read: {error}") from None

    def put_pin(self, pin: Pin) -> Pin:
        """Pin a batch, unless somebody has; returns the pin that counts."""
        home = home_of(self.checkpoint_state)
        if home.locks:
            _link(self.pin_path(pin.batch), seal(asdict(pin)) + b"\n")
        else:
            home.create(_pin_name(pin.batch), asdict(pin))
        taken = self.pin(pin.batch)
        assert taken is not None
        return taken

    def pin_path(self, batch: int) -> Any:
        """The file, or the object, of a pin."""
        return self.checkpoint_state / "pins" / f"{batch}.json"

    # commits

    def commits(self) -> Iterator[Commit]:
        """All batches that are whole, in order."""
        yield from self._commits(commits_at(self._output).read())

    def recent(self) -> list[Commit]:
        """The last batches that are whole, some hundreds of them."""
        return self._commits(commits_at(self._output).recent())

    def last(self) -> int:
        """The last batch that is whole, -1 before the first."""
        return commits_at(self._output).last()

    def commit(self, commit: Commit) -> bool:
        """Say that a batch is whole; says whether this is what counts, or another driver was faster."""
        content = asdict(commit)
        if not is_address(self._output):
            content = {key: value for key, value in content.items() if key not in _PARTS}
        counts = commits_at(self._output).add(commit.batch, content)
        if commit.batch >= _PINS_KEPT:
            home_of(self.checkpoint_state).remove_all([_pin_name(commit.batch - _PINS_KEPT)])
        return counts

    def clear(self, batch: int, commit: Commit | None = None) -> None:
        """Remove what a batch that is whole has left besides its output; its commit is read by default."""
        if commit is None:
            commit = next((found for found in self.recent() if found.batch == batch), None)
        if commit is not None:
            self.files.clear(batch, GatheredBatch(None, commit.parts, commit.rejected_parts))

    def _commits(self, lines: list[dict[str, Any]]) -> list[Commit]:
        try:
            return [
                Commit(**{**line, **{key: tuple(line[key]) for key in _PARTS if key in line}})
                for line in lines
            ]
        except TypeError as error:
            where = self.output_state / "commits.jsonl"
            raise StorageError(f"{where}: cannot be read: {error}") from None

    def next_of_spark(self) -> int:
        """The batch that Spark will begin with, by its own checkpoint."""
        names = home_of(self.checkpoint).names("commits")
        return max((int(name) for name in names if name.isdigit()), default=-1) + 1

    # what is sent to a topic

    def ready(self, batch: int) -> tuple[GatheredBatch, dict[str, Any]] | None:
        """The files of a batch that was matched and is to be sent, and what was counted; None before."""
        if is_address(self._output):
            return None
        folder = self._ready(batch)
        totals = read_document(folder / _TOTALS)
        return None if totals is None else (GatheredBatch(folder), totals)

    def make_ready(self, batch: int, found: GatheredBatch, totals: dict[str, int]) -> Path:
        """Put the files of a batch where it finds them when it is run again; returns that folder."""
        folder = self._ready(batch)
        if found.folder is not None and found.folder != folder:
            # a rename brings the files and what was counted at once
            write_document(found.folder / _TOTALS, totals)
            put_folder(found.folder, folder)
        return folder

    def _ready(self, batch: int) -> Path:
        return Path(self.output_state) / "ready" / f"batch_id={batch}"


def now() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def _columns(fields: dict[str, Any]) -> str:
    return ", ".join(f"{each['name']} {each['type']}" for each in fields["fields"])


# what may not differ when a stream is taken up again, and how a message says it
_FIXED: dict[str, Callable[[Any], str]] = {
    "tracking": lambda tracking: ", ".join(f"{k} {v}" for k, v in (tracking or {}).items()) or "none",
    "fields": _columns,
    "sink": str,
    "version": str,
}


def _pin_name(batch: int) -> str:
    return f"pins/{batch}.json"


def _write(state: Any, content: dict[str, Any]) -> None:
    """Say in a folder, or an address, which stream this is."""
    home = home_of(state)
    home.prepare()
    home.write("stream.json", content)


def _link(target: Path, content: bytes) -> None:
    """Put a file in place, unless there is one."""
    make_folder(target.parent)
    scratch = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with open(scratch, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(scratch, target)
        sync_folder(target.parent)
    finally:
        scratch.unlink(missing_ok=True)


def _check_empty(place: str) -> None:
    others = home_of(place).top_names()
    if set(others) - {STATE}:
        raise OptionError(f"{place}: holds other files ({', '.join(others[:3])}); name an empty folder")


# Where the files of a batch go: staged aside by the tasks, put in place by the driver, before the commit.
#
#    folder    tasks write into a folder aside; the driver gathers those files whose rows it got, and a rename
#              puts them all at once in the place of what an abandoned attempt left there
#    bucket    tasks put each file where it belongs, under a name that no other attempt has; the commit names
#              those that count (store/commits.py), and when it stands, what others have left is deleted
#
# A task that Spark runs twice leaves two files under different names, and the driver takes the one whose row
# it got. In a bucket nothing is deleted before the commit: another driver might have finished the same batch.


class StagedBatch(NamedTuple):
    """The places where the tasks of a batch write matches and rejects."""

    matches: str
    rejects: str


class GatheredBatch(NamedTuple):
    """The matches of a batch: a folder of them, or the names of the parts that count; rejects alike."""

    folder: Path | None
    parts: tuple[str, ...] = ()
    rejected_parts: tuple[str, ...] = ()


class BatchFiles(abc.ABC):
    """Where the files of the batches of a stream go."""

    @abc.abstractmethod
    def stage(self, batch: int) -> StagedBatch:
        """New places for the files of a batch."""

    @abc.abstractmethod
    def gather(
        self, batch: int, staged: StagedBatch, matches: Iterable[str], rejects: Iterable[str]
    ) -> GatheredBatch:
        """The matches of these names as a whole, and the rejects in their place."""

    @abc.abstractmethod
    def put(self, batch: int, gathered: GatheredBatch) -> None:
        """Put the matches of a batch in their place."""

    @abc.abstractmethod
    def frame(self, spark: SparkSession, gathered: GatheredBatch, fields: T.StructType) -> DataFrame:
        """The matches of a batch, for a sink of the user's."""

    @abc.abstractmethod
    def clear(self, batch: int, counted: GatheredBatch) -> None:
        """Remove what a batch leaves besides its output, once it is committed with what counts."""


@dataclass(frozen=True)
class FolderFiles(BatchFiles):
    """Folders: `state` is that of the output, `out` None where a sink takes the matches."""

    out: Path | None
    rejects: Path
    state: Path

    def stage(self, batch: int) -> StagedBatch:
        """New folders; what earlier attempts left is removed."""
        # beside where each will be, for a rename must not leave the file system
        homes = self.state / "tmp", self.rejects / "_tmp"
        name = f"{batch}-{uuid.uuid4().hex[:12]}"
        for home in (*homes, self.state / "ready"):
            shutil.rmtree(home, ignore_errors=True)
        make_folder(homes[0] / name)
        return StagedBatch(str(homes[0] / name), str(homes[1] / name))

    def gather(
        self, batch: int, staged: StagedBatch, matches: Iterable[str], rejects: Iterable[str]
    ) -> GatheredBatch:
        """The matches in a folder of their own; the rejects get their name."""
        found = gather(Path(staged.matches), matches)
        aside, place = list(rejects), self.rejects / f"batch_id={batch}"
        if aside or place.exists():
            put_folder(gather(Path(staged.rejects), aside), place)
        return GatheredBatch(found)

    def put(self, batch: int, gathered: GatheredBatch) -> None:
        """Give the folder its name."""
        assert gathered.folder is not None
        assert self.out is not None
        put_folder(gathered.folder, self.out / f"batch_id={batch}")

    def frame(self, spark: SparkSession, gathered: GatheredBatch, fields: T.StructType) -> DataFrame:
        """The files of the folder."""
        return spark.read.schema(fields).parquet(str(gathered.folder))

    def clear(self, batch: int, counted: GatheredBatch) -> None:
        """Remove the folders of what is staged."""
        for home in (self.state / "tmp", self.state / "ready", self.rejects / "_tmp"):
            shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True)
class BucketFiles(BatchFiles):
    """A bucket: `out` None where a sink takes the matches, which then go with the batch."""

    home: str
    out: str | None
    rejects: str

    @property
    def _matches(self) -> str:
        return self.out or f"{self.home}/{STATE}/tmp"

    def stage(self, batch: int) -> StagedBatch:
        """The places themselves: names are unique, so nothing has to be there before."""
        return StagedBatch(f"{self._matches}/batch_id={batch}", f"{self.rejects}/batch_id={batch}")

    def gather(
        self, batch: int, staged: StagedBatch, matches: Iterable[str], rejects: Iterable[str]
    ) -> GatheredBatch:
        """The names of the parts that count."""
        return GatheredBatch(
            None,
            tuple(f"batch_id={batch}/{name}" for name in matches),
            tuple(f"batch_id={batch}/{name}" for name in rejects),
        )

    def put(self, batch: int, gathered: GatheredBatch) -> None:
        """They are there already."""

    def frame(self, spark: SparkSession, gathered: GatheredBatch, fields: T.StructType) -> DataFrame:
        """The parts, read by workers."""
        parts = [(f"{self._matches}/{name}", 0) for name in gathered.parts]
        return read_parts(spark, parts, fields, by_batch=False)

    def clear(self, batch: int, counted: GatheredBatch) -> None:
        """Delete what the commit does not name: what attempts have left that do not count."""
        kept = {self._matches: set(counted.parts), self.rejects: set(counted.rejected_parts)}
        for place, names in kept.items():
            bucket = Bucket(place)
            there = {entry.name for entry in bucket.entries(f"batch_id={batch}")}
            if there - names:
                bucket.delete(sorted(there - names))


def gather(staged: Path, names: Iterable[str]) -> Path:
    """The files of these names in a folder of their own: a task that is run twice may still be writing."""
    whole = staged.with_name(f"{staged.name}.whole")
    make_folder(whole)
    for name in names:
        try:
            os.rename(staged / name, whole / name)
        except FileNotFoundError:
            raise StorageError(
                f"{staged / name}: a worker has written this file, but the driver does not see it; out and "
                "checkpoint must be folders that all machines share"
            ) from None
    return whole


def put_folder(whole: Path, target: Path) -> None:
    """Give a folder its name, in the place of what an abandoned attempt left there; none if it is empty."""
    if target.exists():
        aside = whole.with_name(f"{whole.name}.old")
        os.rename(target, aside)
        shutil.rmtree(aside, ignore_errors=True)
    if any(whole.iterdir()):
        make_folder(target.parent)
        sync_folder(whole)
        os.rename(whole, target)
        sync_folder(target.parent)
