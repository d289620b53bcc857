"""Where the files of a batch go: staged aside by the tasks, put in place by the driver, before the commit.

    folder    tasks write into a folder aside; the driver gathers those files whose rows it got, and a rename
              puts them all at once in the place of what an abandoned attempt left there
    bucket    tasks put each file where it belongs, under a name that no other attempt has; the commit names
              those that count (store/commits.py), and when it stands, what others have left is deleted

A task that Spark runs twice leaves two files under different names, and the driver takes the one whose row
it got. In a bucket nothing is deleted before the commit: another driver might have finished the same batch.
"""

from __future__ import annotations

import abc
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from rangecast.durable.arrays import make_folder, sync_folder
from rangecast.durable.bucket import Bucket
from rangecast.errors import StorageError
from rangecast.spark.object_parts import read_parts
from rangecast.store.commits import STATE


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
