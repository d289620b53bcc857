"""What the output of the streams of stream_soak.py must be, from checkpoints and the feeder's journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oracle import match_values
from rangecast.spark.source.arrivals import Arrivals
from rangecast.spark.stream.ledger import Ledger

NAMES = ("a0", "a1", "a2")
_ID_BITS = 20


class Journal:
    """The subscriptions of every version, as the feeder wrote them down."""

    def __init__(self, path: Path) -> None:
        living: dict[int, Any] = {}
        made = {0: 0}
        self.versions: dict[int, tuple[np.ndarray, np.ndarray]] = {0: _boxes({})}
        for line in path.read_text().splitlines():
            change = json.loads(line)
            for gone in change["deleted"]:
                living.pop(gone, None)
            living.update({int(i): box for i, box in change["inserted"].items()})
            self.versions[change["version"]] = _boxes(living)
            made[change["version"]] = change["time"]
        # the numbers of versions are 0, 1, 2, ...
        self._made = np.array([made[version] for version in range(len(made))])

    def match_by_time(self, path: str) -> np.ndarray:
        """All pairs of a file whose events are matched against the versions of their own time."""
        table = pq.ParquetFile(path).read()
        versions = np.searchsorted(self._made, table["at"].cast("int64").to_numpy(), "right") - 1
        pieces = [
            match_table(table.filter(pa.array(versions == version)), self.versions[version])
            for version in np.unique(versions).tolist()
        ]
        return np.concatenate(pieces)


def _boxes(living: dict[int, Any]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array(list(living), np.int64)
    return ids, np.array(list(living.values()), np.int64).reshape(len(ids), 2, len(NAMES))


def batches_of(folder: Path, scheme: str) -> dict[int, tuple[int, list[str]]]:
    """Version and files of each batch: B by its offsets, others by commits and Spark's log of files."""
    checkpoint = folder / f"check-{scheme}"
    offsets = {}
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        offsets[int(path.name)] = json.loads(path.read_text().splitlines()[-1])
    if scheme == "B":
        log = Arrivals(next((folder / "store" / "sources").iterdir()), str(folder / "events"))
        ends = {batch: offset["files"] for batch, offset in offsets.items()}
        names = [arrival.path for arrival in log.files(0, len(log))]
        versions = {batch: offset["version"] for batch, offset in offsets.items()}
        return {b: (versions[b], names[ends.get(b - 1, 0) : end]) for b, end in ends.items()}
    out = (folder / "bucket").read_text() if scheme == "O" else str(folder / f"out-{scheme}")
    versions = {commit.batch: commit.version for commit in Ledger("", out).commits()}
    entered: dict[int, set[str]] = {}
    for path in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            entered.setdefault(entry["batchId"], set()).add(entry["path"].removeprefix("file://"))
    found = {}
    for batch, offset in offsets.items():
        first = offsets[batch - 1]["logOffset"] if batch else -1
        names = [name for at in range(first + 1, offset["logOffset"] + 1) for name in entered.get(at, ())]
        found[batch] = versions[batch], names
    return found


def match_file(path: str, subscriptions: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """All pairs of a file, as one number each: every event beside every subscription."""
    return match_table(pq.ParquetFile(path).read(), subscriptions)


def match_table(table: pa.Table, subscriptions: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The same for some events."""
    ids, boxes = subscriptions
    inside = np.ones((len(table), len(ids)), bool)
    for j, name in enumerate(NAMES):
        values = table[name].to_numpy()
        # a missing value is NaN here, which is inside of nothing
        inside &= (values[:, None] >= boxes[None, :, 0, j]) & (values[:, None] <= boxes[None, :, 1, j])
    rows, columns = np.nonzero(inside)
    return (table["id"].to_numpy()[rows] << _ID_BITS) | ids[columns]


def check_definition(path: str, subscriptions: tuple[np.ndarray, np.ndarray], schema: Any) -> None:
    """The comparison above beside the definition of a match, on some events."""
    rows = pq.ParquetFile(path).read().slice(0, 5).to_pylist()
    ids, boxes = subscriptions
    expected = match_values(schema, ids.tolist(), boxes[:, 0].tolist(), boxes[:, 1].tolist(), rows)
    found = match_file(path, subscriptions)
    for row, wanted in zip(rows, expected, strict=True):
        of_row = found[found >> _ID_BITS == row["id"]] & ((1 << _ID_BITS) - 1)
        assert set(of_row.tolist()) == set(wanted), f"{path}: event {row['id']}"


def count(folder: Path, scheme: str, schema: Any) -> dict[str, int]:
    """What a stream did, and what of it is lost, doubled or wrong."""
    journal = Journal(folder / "journal.jsonl")
    batches = batches_of(folder, scheme)
    taken = [name for _, names in batches.values() for name in names]
    written = sorted(str(path) for path in (folder / "events").glob("[0-9]*.parquet"))
    if sorted(taken) != written:
        raise SystemExit(
            f"{scheme}: {len(written)} files of events were written, the batches have {len(taken)}"
        )
    version, names = batches[max(batches)]
    check_definition(names[0], journal.versions[version], schema)
    pieces = [
        journal.match_by_time(name) if scheme == "T" else match_file(name, journal.versions[version])
        for version, names in batches.values()
        for name in names
    ]
    expected = np.sort(np.concatenate(pieces))
    table = pq.ParquetFile(folder / f"found-{scheme}.parquet").read()
    rows = (table["event_id"].to_numpy() << _ID_BITS) | table["subscription_id"].to_numpy()
    found = np.unique(rows)
    return {
        "batches": len(batches),
        "versions": len({version for version, _ in batches.values()}),
        "events": sum(pq.read_metadata(name).num_rows for name in written),
        "pairs": len(expected),
        "lost": len(np.setdiff1d(expected, found, assume_unique=True)),
        "doubled": len(rows) - len(found),
        "wrong": len(np.setdiff1d(found, expected, assume_unique=True)),
    }


def count_control(folder: Path) -> dict[str, int]:
    """Without pins: how many batches were tried again, and how many of these with another version."""
    tries: dict[int, list[int]] = {}
    for line in (folder / "tries.jsonl").read_text().splitlines():
        tries.setdefault(json.loads(line)["batch"], []).append(json.loads(line)["version"])
    again = [versions for versions in tries.values() if len(versions) > 1]
    return {"batches": len(tries), "again": len(again), "differ": sum(len(set(v)) > 1 for v in again)}
