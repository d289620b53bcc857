"""Turn bits of, and cut, every file that we write; what reads it must refuse or be right.

    python tests/faults/sweep.py [--full] [--flips N] [--cuts N] [--seed S] [--seconds T]

A store with its log in two segments, store.json, history.json, a hold and a snapshot; a saved index; the
pins and commits of a stream. For each file some bits (every one with --full) are turned one at a time, and it
is cut at some lengths (at every one). Each time everything that goes by this file is read: it must raise a
RangecastError, or give what the undamaged file gives; commits may end at an earlier line, as after a crash.
Prints what was seen per file as JSON, and ends with status 1 if anything else happened. How far it is goes to
stderr. With --seconds each file has a share of the time by how many faults it has to take; they are taken in
random order, so what was taken is spread evenly, and `of` says out of how many.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import rangecast as rc
import seeds
from rangecast.durable.documents import write_document
from rangecast.engine import checks
from rangecast.spark.stream.ledger import Commit, Ledger, Pin
from rangecast.store import HistoryLimits
from rangecast.store import change as segment
from rangecast.store import store as stores
from rangecast.store.keep import pinned_batch

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
        checks._folder = lambda: folder / "markers"
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


Fault = tuple[str, int]
"""A bit to turn, or a length to cut at."""


def faults_of(size: int, flips: int | None, cuts: int | None, rng: random.Random) -> list[Fault]:
    """Bits and lengths of a file of so many bytes, in random order; None is all of them."""
    chosen: list[Fault] = []
    for what, places, wanted in (("bit", range(8 * size), flips), ("cut at", range(size), cuts)):
        n = len(places) if wanted is None else min(wanted, len(places))
        chosen += [(what, place) for place in rng.sample(places, n)]
    rng.shuffle(chosen)
    return chosen


def damaged(raw: bytes, fault: Fault) -> bytes:
    """A copy of a file with this fault."""
    what, place = fault
    if what == "cut at":
        return raw[:place]
    copy = bytearray(raw)
    copy[place // 8] ^= 1 << place % 8
    return bytes(copy)


def in_time(faults: list[Fault], seconds: float | None, name: str) -> Iterator[Fault]:
    """Faults until the time is over; says now and then how far it is."""
    begun = said = time.monotonic()
    for k, fault in enumerate(faults):
        now = time.monotonic()
        if seconds is not None and now - begun > seconds:
            break
        if now - said > 10:
            print(f"{name}: {k:,} of {len(faults):,} after {now - begun:.0f} s", file=sys.stderr, flush=True)
            said = now
        yield fault


def sweep(
    folder: Path, flips: int | None, cuts: int | None, seed: int, seconds: float | None = None
) -> tuple[dict, list[str]]:
    """Counts per file, and a sentence for everything that must not be."""
    world = World(folder)
    rng = random.Random(seed)
    chosen = {path: faults_of(path.stat().st_size, flips, cuts, rng) for path in world.files()}
    end = None if seconds is None else time.monotonic() + seconds
    left = sum(map(len, chosen.values()))
    seen, wrong = {}, []
    for path, faults in chosen.items():
        name, read, raw = str(path.relative_to(folder)), world.reader(path), path.read_bytes()
        expected = read()
        counts = {"bytes": len(raw), "of": len(faults), "refused": 0, "right": 0, "wrong": 0}
        # what one file leaves of its time is shared by those after it
        share = None if end is None else max(end - time.monotonic(), 0.0) * len(faults) / left
        left -= len(faults)
        for fault in in_time(faults, share, name):
            copy = damaged(raw, fault)
            path.write_bytes(copy)
            try:
                found = read()
            except rc.RangecastError:
                counts["refused"] += 1
                continue
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                answer = repr(error)
            else:
                answer = "another answer"
                if found == expected or (
                    name.endswith("commits.jsonl") and is_earlier(found, expected, copy)
                ):
                    counts["right"] += 1
                    continue
            counts["wrong"] += 1
            wrong.append("{}, {} {}: {}".format(name, *fault, answer))
            print(wrong[-1], file=sys.stderr, flush=True)
        path.write_bytes(raw)
        assert read() == expected
        seen[name] = counts
        print(name, json.dumps(counts), file=sys.stderr, flush=True)
    return seen, wrong


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
    seeds.add_option(parser)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flips, cuts = (None, None) if given.full else (given.flips, given.cuts)
        seen, wrong = sweep(Path(folder), flips, cuts, given.seed, given.seconds)
    total = {key: sum(counts[key] for counts in seen.values()) for key in ("of", "refused", "right", "wrong")}
    print(json.dumps({"files": seen, **total}, indent=1))
    for fault in wrong[:20]:
        print(fault)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
