"""What a stream writes down so that a replay agrees: pins, commits, and where output is staged.

    checkpoint/                       Spark's own: which events belong to which batch
    checkpoint/_rangecast/stream.json which stream this is: its id, its store, its columns
    checkpoint/_rangecast/pins/12.json   batch 12 is matched against this version; made once, never changed
    out/_rangecast/stream.json        the id of the stream whose matches these are
    out/_rangecast/commits.jsonl      a line for each batch that is whole, in order
    out/_rangecast/tmp/12-.../        batch 12 while it is written
    out/_rangecast/ready/batch_id=12/ batch 12 while it is sent to a topic (kafka_sink.py)
    out/batch_id=12/part-*.parquet    its matches; comes and goes by a rename
    out/_rejects/batch_id=12/         its events that were rejected, if there are any

A stream without `out`, whose matches go to a callback, keeps commits and tmp under its checkpoint.

A pin is put there by a hard link, which fails when the name is taken: of two drivers that plan the same
batch, both use the version of the first. A batch is whole when its line in commits.jsonl ends with a
newline; a torn last line is what a crash left and is cut off before the next is written. Spark numbers
batches without a gap and begins one when the one before is done, so the batches that are whole are
those up to the last line. Past CUT_BYTES the older half of the lines goes.

Every file here, and every line of commits.jsonl, has a sum (rangecast.sealed): what does not check is
refused, and never taken for a torn line.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rangecast.array_file import replacing, sync_folder
from rangecast.errors import OptionError, StorageError
from rangecast.sealed import read_document, seal, write_document
from rangecast.spark.version_policy import Pinned
from rangecast.store import pins

STATE = pins.STATE
FORMAT = 1
# Spark keeps the offsets of as many batches (spark.sql.streaming.minBatchesToRetain)
_PINS_KEPT = 100
_TAIL = 65_536
_TOTALS = "totals.json"
CUT_BYTES = 1 << 22


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
    """A batch that is whole: its version and what was counted."""

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


@dataclass(frozen=True)
class Ledger:
    """The files of one stream, by the paths of its checkpoint and of its output."""

    checkpoint: str
    out: str | None = None
    rejects: str | None = None

    @property
    def checkpoint_state(self) -> Path:
        """The folder for what belongs to the checkpoint."""
        return Path(self.checkpoint) / STATE

    @property
    def output_state(self) -> Path:
        """The folder for what belongs to the output."""
        return Path(self.out or self.checkpoint) / STATE

    def matches_folder(self, batch: int) -> Path:
        """The folder of a batch's matches."""
        assert self.out is not None
        return Path(self.out) / f"batch_id={batch}"

    def rejects_folder(self, batch: int) -> Path:
        """The folder of the events of a batch that were rejected."""
        home = Path(self.rejects) if self.rejects else Path(self.out or self.checkpoint) / "_rejects"
        return home / f"batch_id={batch}"

    # which stream this is

    def settings(self) -> dict[str, Any] | None:
        """What the stream of this checkpoint was begun with, if one was."""
        found: dict[str, Any] | None = read_document(self.checkpoint_state / "stream.json")
        return found

    def adopt(self, settings: dict[str, Any]) -> str:
        """Begin a stream, or see that this is the one that was begun here; gives its id."""
        settings = json.loads(json.dumps({"format": FORMAT, **settings}))
        known = read_document(self.checkpoint_state / "stream.json")
        theirs = read_document(self.output_state / "stream.json") if self.out else known
        if known is None:
            self._check_free(theirs)
            known = {"stream": uuid.uuid4().hex, **settings}
            self.checkpoint_state.mkdir(parents=True, exist_ok=True)
            write_document(self.checkpoint_state / "stream.json", known)
        else:
            self._check_same(known, settings)
        if self.out and theirs is None:
            if self.next_of_spark() > 0:
                raise OptionError(
                    f"{self.out}: is empty, but the stream of the checkpoint {self.checkpoint} has written "
                    "batches: give the folder that they are in, or begin anew with an empty checkpoint"
                )
            _check_empty(Path(self.out))
            shown = {key: known[key] for key in ("format", "stream", "fields")}
            self.output_state.mkdir(parents=True, exist_ok=True)
            write_document(self.output_state / "stream.json", {**shown, "checkpoint": self.checkpoint})
        elif theirs is not None and theirs["stream"] != known["stream"]:
            raise OptionError(
                f"{self.out}: holds the matches of another stream, whose checkpoint is "
                f"{theirs.get('checkpoint')}; give that one, or name an empty folder for the output"
            )
        return str(known["stream"])

    def _check_free(self, theirs: Any) -> None:
        spark_has = [n for n in ("metadata", "offsets", "commits") if (Path(self.checkpoint) / n).exists()]
        if spark_has:
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
            _check_empty(Path(self.out))

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
                f"one{differs}; give that store, or begin anew with an empty checkpoint and output"
            )
        for name, said in _FIXED.items():
            if known.get(name) != settings.get(name):
                raise OptionError(
                    f"{self.checkpoint}: the stream was begun with {name} {said(known.get(name))}, got "
                    f"{said(settings.get(name))}; to change that, begin anew with an empty checkpoint and "
                    "output"
                )

    # pins

    def pin(self, batch: int) -> Pin | None:
        """What a batch was pinned to, None when it is new."""
        found = read_document(self.pin_path(batch))
        try:
            return None if found is None else Pin(**found)
        except TypeError as error:
            raise StorageError(f"{self.pin_path(batch)}: cannot be read: {error}") from None

    def put_pin(self, pin: Pin) -> Pin:
        """Pin a batch, unless somebody has; gives the pin that counts."""
        target = self.pin_path(pin.batch)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            with open(scratch, "wb") as file:
                file.write(seal(asdict(pin)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(scratch, target)
            sync_folder(target.parent)
        finally:
            scratch.unlink(missing_ok=True)
        taken = self.pin(pin.batch)
        assert taken is not None
        return taken

    def pin_path(self, batch: int) -> Path:
        """The file of a pin."""
        return self.checkpoint_state / "pins" / f"{batch}.json"

    # commits

    def commits(self) -> Iterator[Commit]:
        """All batches that are whole, in order."""
        path = self.output_state / "commits.jsonl"
        yield from _commits(pins.read_commits(path), path)

    def recent(self) -> list[Commit]:
        """The last batches that are whole, some hundreds of them."""
        path = self.output_state / "commits.jsonl"
        if not path.exists():
            return []
        with open(path, "rb") as file:
            first = max(0, os.fstat(file.fileno()).st_size - _TAIL)
            file.seek(first)
            raw = file.read()
        raw = raw if first == 0 else raw[raw.find(b"\n") + 1 :]
        return _commits(pins.commit_lines(raw, path), path)

    def last(self) -> int:
        """The last batch that is whole, -1 before the first."""
        found = self.recent()
        return found[-1].batch if found else -1

    def commit(self, commit: Commit) -> None:
        """Say that a batch is whole."""
        path = self.output_state / "commits.jsonl"
        made = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            size = os.fstat(handle).st_size
            first = max(0, size - _TAIL)
            tail = os.pread(handle, size - first, first)
            if tail and not tail.endswith(b"\n"):
                end = tail.rfind(b"\n") + 1
                pins.check_torn(tail[end:], path)
                os.ftruncate(handle, first + end)
            line = memoryview(seal(asdict(commit)) + b"\n")
            while line:  # a disk that is nearly full takes a part, and raises at the rest
                line = line[os.write(handle, line) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        if made:
            sync_folder(path.parent)
        self.pin_path(commit.batch - _PINS_KEPT).unlink(missing_ok=True)
        if size > CUT_BYTES:
            raw = path.read_bytes()
            with replacing(path) as file:
                file.write(raw[raw.find(b"\n", len(raw) // 2) + 1 :])

    def next_of_spark(self) -> int:
        """The batch that Spark will begin with, by its own checkpoint."""
        done = [int(path.name) for path in (Path(self.checkpoint) / "commits").glob("[0-9]*")]
        return max(done, default=-1) + 1

    # output

    def stage(self, batch: int) -> tuple[Path, Path]:
        """New folders to write matches and rejects of a batch to; what earlier attempts left is removed."""
        # beside where each will be, for a rename must not leave the file system
        homes = self.output_state / "tmp", self.rejects_folder(batch).parent / "_tmp"
        name = f"{batch}-{uuid.uuid4().hex[:12]}"
        for home in (*homes, self.output_state / "ready"):
            shutil.rmtree(home, ignore_errors=True)
        (homes[0] / name).mkdir(parents=True)
        return homes[0] / name, homes[1] / name

    def unstage(self, batch: int) -> None:
        """Remove what a batch leaves besides its output."""
        homes = "tmp", "ready"
        for home in (*(self.output_state / h for h in homes), self.rejects_folder(batch).parent / "_tmp"):
            shutil.rmtree(home, ignore_errors=True)

    # what is sent to a topic

    def ready(self, batch: int) -> tuple[Path, dict[str, int]] | None:
        """The files of a batch that was matched and is to be sent, and what was counted; None before."""
        folder = self.output_state / "ready" / f"batch_id={batch}"
        totals = read_document(folder / _TOTALS)
        return None if totals is None else (folder, totals)

    def make_ready(self, batch: int, whole: Path, totals: dict[str, int]) -> Path:
        """Put the files of a batch where it finds them when it is run again; gives that folder."""
        folder = self.output_state / "ready" / f"batch_id={batch}"
        if whole != folder:
            # a rename brings the files and what was counted at once
            write_document(whole / _TOTALS, totals)
            put_folder(whole, folder)
        return folder


def gather(staged: Path, names: Iterable[str]) -> Path:
    """The files of these names in a folder of their own: a task that is run twice may still be writing."""
    whole = staged.with_name(f"{staged.name}.whole")
    whole.mkdir(parents=True)
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
        target.parent.mkdir(parents=True, exist_ok=True)
        sync_folder(whole)
        os.rename(whole, target)
        sync_folder(target.parent)


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


def _commits(lines: list[dict[str, Any]], path: Path) -> list[Commit]:
    try:
        return [Commit(**line) for line in lines]
    except TypeError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from None


def _check_empty(folder: Path) -> None:
    others = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if set(others) - {STATE}:
        raise OptionError(f"{folder}: holds other files ({', '.join(others[:3])}); name an empty folder")
