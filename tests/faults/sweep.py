"""Turn bits of, and cut, every file that we write; what reads it must refuse or be right.

    python tests/faults/sweep.py [--full] [--flips N] [--cuts N] [--seed S]

A store with its log in two segments, store.json, history.json, a hold and a snapshot; a saved index; the
pins and commits of a stream. For each file some bits (every one with --full) are turned one at a time, and it
is cut at some lengths (at every one). Each time everything that goes by this file is read: it must raise a
RangecastError, or give what the undamaged file gives; commits may end at an earlier line, as after a crash.
Prints what was seen per file as JSON, and ends with status 1 if anything else happened.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import rangecast as rc
from rangecast.engine import verified
from rangecast.sealed import write_document
from rangecast.spark.stream.ledger import Commit, Ledger, Pin
from rangecast.store import HistoryLimits, segment
from rangecast.store import store as stores
from rangecast.store.pins import pinned_batch

SCHEMA = rc.Schema(rc.Int("price"), rc.Category("symbol"))
EVENTS = [{"price": p, "symbol": s} for p in (0, 3, 7, 20) for s in ("A", "B", "odd")]


def rows(index):
    """What an index matches, in plain lists."""
    found = index.match(rc.Events.from_rows(index.schema, EVENTS)).sort()
    return [found.row(e).tolist() for e in range(len(EVENTS))], texts_of(index.subscriptions())


def texts_of(subs):
    """What was written for some subscriptions."""
    return None if subs.texts is None else subs.texts.to_list()


class World:
    """The files, and who reads each of them."""

    def __init__(self, folder: Path) -> None:
        stores.CHECKPOINT = 4
        segment._LOOKS = 1
        (folder / "markers").mkdir()
        verified._folder = lambda: folder / "markers"
        self.folder, self.store = folder, folder / "store"
        store = rc.Store.open(self.store, rc.Schema.from_dict(SCHEMA.to_dict()))
        store.keep_history(HistoryLimits(versions=None))
        for number in range(6):
            condition = f"price > {number} and symbol in ('A', 'S{number}')"
            subs = rc.Subscriptions.parse(store.schema, {number: condition, 100 + number: "price < 9"})
            store.insert(subs, expires=2**62 if number % 2 else None)
        store.delete([100])
        store.hold("job", 3, "batch 7")
        store.snapshot()
        store.index().save(folder / "saved.index")
        ledger = Ledger(str(folder / "checkpoint"), str(folder / "out"))
        for place in (ledger.output_state, ledger.checkpoint_state):
            place.mkdir(parents=True)
        about = {"stream": "x", "checkpoint": str(folder / "checkpoint")}
        write_document(ledger.output_state / "stream.json", about)
        write_document(ledger.checkpoint_state / "stream.json", {"store": store.id, "version": "newest"})
        for batch in range(3):
            ledger.put_pin(Pin(batch, store.id, batch + 1, None, 5))
            ledger.commit(Commit(batch, batch + 1, events=5, seconds={"match": 0.5}))
        ledger.pin_path(2).unlink()
        self.ledger = ledger
        self.readers = {
            "saved.index": lambda: rows(rc.load_index(folder / "saved.index", verify=None)),
            "store/snapshots": self.read_snapshot,
            "store": self.read_store,
            "out": self.read_stream,
            "checkpoint": self.read_stream,
        }

    def files(self) -> list[Path]:
        """Every file with content, but locks, which hold none that is read."""
        found = [p for p in sorted(self.folder.rglob("*")) if p.is_file() and p.stat().st_size]
        return [p for p in found if p.name != "lock" and p.parent.name != "markers"]

    def reader(self, path: Path):
        """What goes by a file."""
        name = str(path.relative_to(self.folder))
        return next(read for start, read in self.readers.items() if name.startswith(start))

    def read_snapshot(self):
        store = rc.Store.open(self.store)
        return store.version, rows(store.index(verify=None))

    def read_store(self):
        store = rc.Store.open(self.store)
        changes = [
            (c.version, c.time, c.deleted.values.tolist(), c.inserted.ids.values.tolist(),
             [a.tolist() for a in c.inserted.boxes], texts_of(c.inserted),
             None if c.expires is None else c.expires.tolist())
            for c in store.changes(0)
        ]  # fmt: skip
        ends = store._expiries().all()
        return (
            store.id, store.kind, store.version, changes, store.holds(), store.history,
            store.schema.to_dict(words=True), [ends[0].values.tolist(), ends[1].tolist()],
        )  # fmt: skip

    def read_stream(self):
        pins = [pinned_batch(self.folder / "out", batch) for batch in range(3)]
        return pins, [self.ledger.pin(batch) for batch in range(2)], list(self.ledger.commits())


def damaged(raw: bytes, flips: int | None, cuts: int | None, rng: random.Random):
    """Copies of a file with one fault each, and what the fault is."""
    bits = range(8 * len(raw))
    for bit in bits if flips is None or flips >= len(bits) else rng.sample(bits, flips):
        copy = bytearray(raw)
        copy[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit}", bytes(copy)
    lengths = range(len(raw))
    for length in lengths if cuts is None or cuts >= len(lengths) else rng.sample(lengths, cuts):
        yield f"cut at {length}", raw[:length]


def sweep(folder: Path, flips: int | None, cuts: int | None, seed: int) -> tuple[dict, list[str]]:
    """Counts per file, and a sentence for everything that must not be."""
    world = World(folder)
    rng = random.Random(seed)
    seen, faults = {}, []
    for path in world.files():
        name, read, raw = str(path.relative_to(folder)), world.reader(path), path.read_bytes()
        expected = read()
        counts = {"bytes": len(raw), "refused": 0, "right": 0}
        for what, copy in damaged(raw, flips, cuts, rng):
            path.write_bytes(copy)
            try:
                found = read()
            except rc.RangecastError:
                counts["refused"] += 1
                continue
            except BaseException as error:
                faults.append(f"{name}, {what}: {error!r}")
                continue
            if found == expected or (name.endswith("commits.jsonl") and is_earlier(found, expected, copy)):
                counts["right"] += 1
            else:
                faults.append(f"{name}, {what}: another answer")
        path.write_bytes(raw)
        assert read() == expected
        seen[name] = counts
    return seen, faults


def is_earlier(found, expected, copy: bytes) -> bool:
    """Whether commits are those of a file that ends with an earlier line."""
    whole = copy.count(b"\n")
    return found[2] == expected[2][:whole] and found[:2] == expected[:2]


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--flips", type=int, default=60)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flips, cuts = (None, None) if given.full else (given.flips, given.cuts)
        seen, faults = sweep(Path(folder), flips, cuts, given.seed)
    total = {key: sum(counts[key] for counts in seen.values()) for key in ("refused", "right")}
    print(json.dumps({"files": seen, **total, "faults": len(faults)}, indent=1))
    for fault in faults[:20]:
        print(fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
