"""Kill the processes of two streams at random while events flow and subscriptions change; then count.

    python tests/spark/stream_soak.py --kills 24          (make soak)
    python tests/spark/stream_soak.py --kills 3 --seconds 1 --kinds worker,planner,jvm    as the tests do

Real processes, in a folder of their own:

    feeder    five times a second: a file of events, a change of some subscriptions, at times one that ends by
              itself, at times `compact`; keeps a journal of what each version has
    driver    one Spark session with both streams: match_stream (A), and the source with Spark's Parquet sink
              (B); a stream that fails is started again, and so is the driver, as an operator would
    killer    this process: SIGKILL, after a random while, for the JVM, the Python driver, a Python worker,
              the daemon of the workers, or the process that plans for the source

At the end the streams take in what is left, and the output is read as users read it. For each micro-batch
its files and the version that it was pinned to are taken from the checkpoint; the pairs that must be there
are those of a plain comparison of all events of these files with all subscriptions of the journal at
this version. Prints what was lost (must be there and is not), doubled, and wrong (is there and must not be).

Scheme T is `match_stream` by event time: each event has a time of its own in the last seconds, and must be
matched against the version that was the newest then, in whatever batch and however often it is tried.

Scheme O is `match_stream` whose matches and commits are in a bucket (`--bucket`), on a real server:

    python tests/s3_server.py python tests/spark/stream_soak.py --schemes O --bucket s3://alerts/soak

`--control` runs another stream without pins, which takes the newest version whenever a batch is tried, and
says how many batches that were tried again had another version than at first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import rangecast as rc
import seeds

NAMES = ("a0", "a1", "a2")
SPAN = 1000
TICK = 0.2
EVENTS, SUBSCRIPTIONS, FILES_A_BATCH = 200, 400, 40
VICTIMS = ("jvm", "driver", "worker", "planner", "daemon")
OLDEST = 4_000_000
"""Microseconds that an event may be old when it comes."""
ENDS_DRIVER = ("jvm", "driver")


def schema() -> rc.Schema:
    return rc.Schema(*(rc.Int(name, 0, SPAN) for name in NAMES))


# the feeder: events, changes, and the journal


def draw(rng: np.random.Generator, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    lows = rng.integers(0, SPAN, (len(ids), len(NAMES)))
    return lows, lows + rng.integers(0, SPAN // 2, lows.shape)


def feed(folder: Path, seed: int) -> None:
    """Write events and change subscriptions until told to stop."""
    rng = np.random.default_rng(seed)
    store = rc.Store.open(folder / "store")
    journal = (folder / "journal.jsonl").open("a")
    living: set[int] = set()
    seen = n_files = 0
    due, parent = time.monotonic(), os.getppid()
    while not (folder / "enough").exists() and os.getppid() == parent:
        ids = rng.choice(3 * SUBSCRIPTIONS, 8 if living else SUBSCRIPTIONS, replace=False).tolist()
        gone = [int(i) for i in rng.permutation(sorted(living - set(ids)))[: len(living) // 60]]
        lows, highs = draw(rng, ids)
        ends = int(time.time_ns() // 1000 + 1_500_000) if rng.random() < 0.3 else 0
        subs = rc.Subscriptions.from_arrays(store.schema, np.array(ids), lows, highs)
        version = store.apply(subs, np.array(gone, np.int64), expires=np.full(len(ids), ends))
        living -= note_ends(store, seen, version - 1, journal)
        boxes = {i: [low, high] for i, low, high in zip(ids, lows.tolist(), highs.tolist(), strict=True)}
        entry = {"version": version, "time": microseconds(store, version)}
        journal.write(json.dumps({**entry, "deleted": gone, "inserted": boxes}) + "\n")
        journal.flush()
        living = (living - set(gone)) | set(ids)
        seen = version
        put_events(folder / "events", n_files, rng)
        n_files += 1
        # a stream by event time needs the versions from before it began, and holds them from then on
        begun = (folder / "out-T" / "_rangecast" / "commits.jsonl").exists()
        if n_files % 25 == 0 and (begun or not (folder / "by-event-time").exists()):
            store.compact()
        due += TICK
        time.sleep(max(0.0, due - time.monotonic()))


def microseconds(store: rc.Store, version: int) -> int:
    """When a version was made."""
    return round(store.time_of(version).timestamp() * 1_000_000)


def note_ends(store: rc.Store, since: int, until: int, journal: Any) -> set[int]:
    """Enter the versions that others made: in these, subscriptions have ended."""
    gone: set[int] = set()
    for change in store.changes(since, until):
        ended = change.deleted.values.tolist()
        entry = {"version": change.version, "time": microseconds(store, change.version)}
        journal.write(json.dumps({**entry, "deleted": ended, "inserted": {}}) + "\n")
        gone |= set(ended)
    return gone


def put_events(folder: Path, number: int, rng: np.random.Generator) -> None:
    ids = pa.array(np.arange(number * EVENTS, (number + 1) * EVENTS))
    columns = {name: _some_missing(rng.integers(0, SPAN, EVENTS), rng) for name in NAMES}
    # old enough that no version of that time is still on its way, and young enough to be kept by `compact`
    now = time.time_ns() // 1000
    ages = rng.integers(OLDEST // 8, OLDEST, EVENTS)
    columns["at"] = pa.array(now - ages, pa.timestamp("us", "UTC"))
    scratch = folder / f"_{number:06}"
    pq.write_table(pa.table({"id": ids, **columns}), scratch)
    os.rename(scratch, folder / f"{number:06}.parquet")


def _some_missing(values: np.ndarray, rng: np.random.Generator) -> Any:
    return pa.array(values, mask=rng.random(len(values)) < 0.05)


# the driver: both streams in one session


def drive(folder: Path, schemes: list[str]) -> None:
    """Run the streams until told to finish; then take in what is left and read the output."""
    from pyspark.sql import types as T

    from rangecast import spark as rs

    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        # the check needs the offsets of all batches
        "spark.sql.streaming.minBatchesToRetain": "1000000",
    }
    spark = rs.session("local[2,4]", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    whole = [T.StructField(name, T.LongType()) for name in ("id", *NAMES)]
    fields = T.StructType([*whole, T.StructField("at", T.TimestampType())])

    def files() -> Any:
        return (
            spark.readStream.schema(fields)
            .option("maxFilesPerTrigger", FILES_A_BATCH)
            .parquet(str(folder / "events"))
        )

    def start_a() -> Any:
        out, checkpoint = folder / "out-A", folder / "check-A"
        return rs.match_stream(files(), folder / "store", out=out, checkpoint=checkpoint, text_ids=False)

    def start_o() -> Any:
        out, checkpoint = output_of(folder, "O"), folder / "check-O"
        return rs.match_stream(files(), folder / "store", out=out, checkpoint=checkpoint, text_ids=False)

    def start_t() -> Any:
        out, checkpoint = folder / "out-T", folder / "check-T"
        return rs.match_stream(
            files(), folder / "store", out=out, checkpoint=checkpoint, text_ids=False,
            version="event-time", time="at",
        )  # fmt: skip

    def start_b() -> Any:
        reader = spark.readStream.format("rangecast").schema("event_id long, subscription_id long")
        options = {
            "store": str(folder / "store"),
            "events": str(folder / "events"),
            "maxFilesPerBatch": FILES_A_BATCH,
        }
        writer = reader.options(**options).load().writeStream.format("parquet")
        places = {"path": str(folder / "out-B"), "checkpointLocation": str(folder / "check-B")}
        return writer.options(**places).start()

    def start_control() -> Any:
        writer = files().writeStream.foreachBatch(lambda frame, batch: unpinned(folder, frame, batch))
        return writer.option("checkpointLocation", str(folder / "check-control")).start()

    rs.register_source(spark)
    starters = {"A": start_a, "B": start_b, "O": start_o, "T": start_t, "control": start_control}
    queries = {scheme: starters[scheme]() for scheme in schemes}
    parent = os.getppid()
    while not (folder / "finish").exists():
        if os.getppid() != parent:
            raise SystemExit("nobody waits for this driver any more")
        for scheme, query in queries.items():
            if not query.isActive:
                print(f"{scheme} has ended and is started again: {query.exception()}", flush=True)
                queries[scheme] = starters[scheme]()
        time.sleep(0.05)
    for query in queries.values():
        query.processAllAvailable()
        query.stop()
    for scheme in {"A", "O", "T"} & set(schemes):
        found = rs.read_matches(spark, output_of(folder, scheme)).toArrow()
        pq.write_table(found, folder / f"found-{scheme}.parquet")
    if "B" in schemes:
        pq.write_table(spark.read.parquet(str(folder / "out-B")).toArrow(), folder / "found-B.parquet")
    spark.stop()


def output_of(folder: Path, scheme: str) -> str:
    """Where a stream of match_stream writes to."""
    return (folder / "bucket").read_text() if scheme == "O" else str(folder / f"out-{scheme}")


def unpinned(folder: Path, frame: Any, batch: int) -> None:
    """The control: match against whatever is the newest version now."""
    from rangecast import spark as rs

    store = rc.Store.open(folder / "store")
    version = store.version
    with (folder / "tries.jsonl").open("a") as file:
        file.write(json.dumps({"batch": batch, "version": version}) + "\n")
    found = rs.match(frame, store, version=version)
    found.write.mode("overwrite").parquet(str(folder / "out-control" / f"batch_id={batch}"))


# the killer


class Soak:
    """The processes of a run and what was done to them."""

    def __init__(self, folder: Path, schemes: list[str], seed: int) -> None:
        self.folder, self.schemes = folder, schemes
        self.rng = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.replays = 0
        self.starts = 0
        (folder / "events").mkdir()
        rc.Store.open(folder / "store", schema(), index="scan")
        if "T" in schemes:
            (folder / "by-event-time").touch()
        self.feeder = self._start("feed", str(seed))
        self.driver = self._start_driver()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, "--folder", str(self.folder), "--role", *arguments]
        log = (self.folder / f"{arguments[0]}.log").open("ab")
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def _start_driver(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        return self._start("drive", ",".join(self.schemes))

    def _check_feeder(self) -> None:
        if self.feeder.poll() is not None:
            raise SystemExit(f"the feeder has failed:\n{(self.folder / 'feed.log').read_text()[-3000:]}")

    def batches(self, what: str) -> dict[str, int]:
        """How many batches each stream has planned ("offsets") or done ("commits")."""
        names = {s: (self.folder / f"check-{s}" / what).glob("[0-9]*") for s in self.schemes}
        return {s: len([n for n in found if n.name.isdigit()]) for s, found in names.items()}

    def victims(self, kind: str) -> list[psutil.Process]:
        """The living processes of a kind below the driver."""
        try:
            driver = psutil.Process(self.driver.pid)
            if kind == "driver":
                return [driver]
            below = {p: _command(p) for p in driver.children(recursive=True)}
        except psutil.Error:
            return []
        daemons = {p for p, line in below.items() if "pyspark.daemon" in line}
        parents = {p.pid for p in daemons}
        workers = {p for p in daemons if _parent(p) in parents}
        return list(
            {
                "jvm": {p for p, line in below.items() if "org.apache.spark.deploy.SparkSubmit" in line},
                "daemon": daemons - workers,
                "worker": workers,
                "planner": {p for p, line in below.items() if "python_streaming_source_runner" in line},
            }[kind]
        )

    def kill(self, kind: str, seconds: float, patience: float = 300.0) -> None:
        """Wait until the streams go on, and a random while; then kill one of a kind."""
        before = self.batches("commits")
        deadline = time.monotonic() + patience
        at_once = self.rng.random() < 0.2
        while not at_once and not all(self.batches("commits")[s] > before[s] for s in self.schemes):
            self._revive()
            if time.monotonic() > deadline:
                raise SystemExit(f"no batch for {patience:g} seconds:\n{self.errors()}")
            time.sleep(0.02)
        time.sleep(self.rng.uniform(0, seconds))
        found: list[psutil.Process] = []
        while not found:
            self._revive()
            found = self.victims(kind)
            if time.monotonic() > deadline:
                raise SystemExit(f"no {kind} to kill for {patience:g} seconds:\n{self.errors()}")
            time.sleep(0 if found else 0.01)
        family = [p for name in VICTIMS for p in self.victims(name)]
        self.rng.choice(found).kill()
        self.kills[kind] += 1
        if kind in ENDS_DRIVER:
            self._bury(family)
            self.replays += sum(n - self.batches("commits")[s] for s, n in self.batches("offsets").items())

    def _bury(self, family: list[psutil.Process]) -> None:
        """Wait until all of a driver's processes are gone; what hangs on is killed too."""
        deadline = time.monotonic() + 20
        while self.driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in family:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except psutil.TimeoutExpired:
                process.kill()
        self.driver.wait()

    def _revive(self) -> None:
        self._check_feeder()
        if self.driver.poll() is not None:
            self.driver = self._start_driver()

    def finish(self, patience: float = 600.0) -> None:
        """Stop feeding, let the streams take in what is left."""
        (self.folder / "enough").touch()
        self.feeder.wait(30)
        (self.folder / "finish").touch()
        deadline = time.monotonic() + patience
        while True:
            self.driver.wait(max(1.0, deadline - time.monotonic()))
            if self.driver.returncode == 0:
                break
            if time.monotonic() > deadline:
                raise SystemExit(f"the streams do not come to an end:\n{self.errors()}")
            self.driver = self._start_driver()
        store, path = rc.Store.open(self.folder / "store"), self.folder / "journal.jsonl"
        last = json.loads(path.read_text().splitlines()[-1])["version"]
        with path.open("a") as journal:
            note_ends(store, last, store.version, journal)

    def errors(self) -> str:
        return (self.folder / "drive.log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """End what is left, by the ids of the processes that were started here."""
        family = [p for name in VICTIMS for p in self.victims(name)]
        for process in (self.feeder, self.driver):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        for other in family:
            with contextlib.suppress(psutil.Error):
                other.kill()


def _command(process: psutil.Process) -> str:
    # a process that has ended and was not waited for has none
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return -1


def run(
    folder: Path, kills: int, seconds: float, kinds: list[str], schemes: list[str], seed: int
) -> dict[str, Any]:
    """All of it; gives what was counted."""
    began = time.monotonic()
    soak = Soak(folder, schemes, seed)
    # every kind in turn, in a random order each time
    rounds = [soak.rng.sample(kinds, len(kinds)) for _ in range(kills // len(kinds) + 1)]
    order = [kind for each in rounds for kind in each]
    try:
        for number, kind in enumerate(order[:kills]):
            soak.kill(kind, seconds)
            print(f"  {number + 1}: {kind} after {time.monotonic() - began:.0f} s", file=sys.stderr)
        soak.finish()
    finally:
        soak.close()
    killed = {
        "kills": sum(soak.kills.values()),
        **dict(soak.kills),
        "starts": soak.starts,
        "replays": soak.replays,
    }
    return {**killed, "seconds": round(time.monotonic() - began)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=24, help="how many processes to kill (24)")
    parser.add_argument("--seconds", type=float, default=3.0, help="longest wait before a kill (3)")
    parser.add_argument("--kinds", default=",".join(VICTIMS), help="what to kill, in turn (%(default)s)")
    parser.add_argument("--schemes", default="A,B", help="which streams, of A, B, O and T (A,B)")
    parser.add_argument("--bucket", help="address for the output of scheme O")
    parser.add_argument("--control", action="store_true", help="one more stream, without pins")
    seeds.add_option(parser)
    parser.add_argument("--folder", type=Path, help="keep everything in this folder")
    parser.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        name, value = given.role
        feed(given.folder, int(value)) if name == "feed" else drive(given.folder, value.split(","))
        return
    import stream_check as check

    schemes = given.schemes.split(",")
    with tempfile.TemporaryDirectory(prefix="rangecast-soak-") as scratch:
        folder = (given.folder or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bucket").write_text(given.bucket or "")
        told = [*schemes, "control"] if given.control else schemes
        seen = run(folder, given.kills, given.seconds, given.kinds.split(","), told, given.seed)
        print("  ".join(f"{name} {value}" for name, value in seen.items()))
        counted = {scheme: check.count(folder, scheme, schema()) for scheme in schemes}
        for scheme, numbers in counted.items():
            print(f"{scheme}: " + "  ".join(f"{name} {value:,}" for name, value in numbers.items()))
        if given.control:
            print(
                "control, without pins: "
                + "  ".join(f"{n} {v}" for n, v in check.count_control(folder).items())
            )
    bad = sum(numbers[key] for numbers in counted.values() for key in ("lost", "doubled", "wrong"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
