"""Which modules of rangecast a simple errand passes, in their order: what one has to read to follow it.

    python tests/errands.py                      each errand: how many modules, and its budget
    python tests/errands.py match_one parse      these errands, with their modules in order

Each errand is done twice in a process of its own, with the kernels as plain Python, and the second time
counts. A module is passed when one of its functions is called, in any thread and in a worker of Spark as
well. What an import runs does not count. A kernel counts once, and what it calls does not.
"""

import argparse
import contextlib
import csv
import http.client
import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from source_trees import KERNEL_FILE

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"

N_SUBSCRIPTIONS = 3_000
N_BUILT = 600  # more than a tail may hold, so that a part is built


class Budget(NamedTuple):
    """How many modules an errand may pass, and how many it should."""

    most: int
    aim: int


# A budget may only fall: whoever has shortened a path writes the new number here.
BUDGETS = {
    "parse": Budget(14, 12),
    "match_one": Budget(12, 9),
    "match": Budget(9, 9),
    "insert": Budget(33, 20),
    "match_frames": Budget(39, 30),
    "match_files": Budget(52, 40),
    "subscribe": Budget(47, 40),
    "stream": Budget(45, 40),
}


class Passed(NamedTuple):
    """A module, and the function that it was entered by."""

    module: str
    function: str


class Recorder:
    """Notes each module that is passed while it is switched on.

    The switch is one byte of a file that processes map, and notes are appended to another file, so that a
    worker of Spark is recorded as the process that started it is.
    """

    def __init__(self, folder: Path) -> None:
        switch = folder / "switch"
        if not switch.exists():
            switch.write_bytes(b"\0")
        with switch.open("r+b") as file:
            self._switch = mmap.mmap(file.fileno(), 1)
        self._notes = os.open(folder / "notes", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._path = folder / "notes"
        self._places: dict[CodeType, tuple[str | None, bool]] = {}
        self._noted: set[str] = set()
        self._threads = threading.local()

    def install(self) -> None:
        """Have all threads of this process that begin later recorded, and this one."""
        threading.setprofile(self)
        sys.setprofile(self)

    @contextlib.contextmanager
    def recording(self):
        self._switch[0] = 1
        try:
            yield
        finally:
            self._switch[0] = 0

    def passed(self) -> list[Passed]:
        """The modules that were passed, in order."""
        entries: dict[str, Passed] = {}
        for line in self._path.read_text().splitlines():
            entry = Passed(*line.split("\t"))
            entries.setdefault(entry.module, entry)
        return list(entries.values())

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._switch[0]:
            return
        skipped = getattr(self._threads, "skipped", None)
        if skipped is not None:  # within an import or a kernel, up to its end
            if event == "return" and frame is skipped:
                self._threads.skipped = None
            return
        if event != "call":
            return
        code = frame.f_code
        place = self._places.get(code)
        if place is None:
            place = self._places[code] = _place_of(code)
        module, is_leaf = place
        if is_leaf:
            self._threads.skipped = frame
        if module is not None and module not in self._noted:
            self._noted.add(module)
            os.write(self._notes, f"{module}\t{code.co_qualname}\n".encode())


def _place_of(code: CodeType) -> tuple[str | None, bool]:
    """The module of a function, if it is one of rangecast; and whether what it calls does not count."""
    if code.co_name == "<module>":
        return None, True
    if not code.co_filename.startswith(f"{SRC}/rangecast/"):
        return None, False
    path = Path(code.co_filename)
    name = ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
    return name, KERNEL_FILE.fullmatch(path.name) is not None or path.parent.name == "simd"


# Errands: each prepares what it needs and gives the call that is made twice.


def _schema() -> Any:
    import rangecast as rc

    return rc.Schema(rc.Int("price", 0, 4_999), rc.Category("symbol"))


def _alerts(first: int, n: int) -> Any:
    """Alerts on one of 40 symbols and a range of prices; one in ten is on prices alone."""
    import rangecast as rc

    texts = {}
    for number in range(first, first + n):
        low = number * 37 % 4_000
        symbol = "" if number % 10 == 0 else f" and symbol = 'S{number % 40}'"
        texts[number] = f"price between {low} and {low + 100 + number % 90}{symbol}"
    return rc.Subscriptions.parse(_schema(), texts)


def _index() -> Any:
    import rangecast as rc

    index = rc.open_index("auto", _schema())
    index.insert(_alerts(0, N_SUBSCRIPTIONS))
    return index


EVENT = {"price": 1_234, "symbol": "S7"}


def parse(stack: contextlib.ExitStack, folder: Path) -> Callable[[], Any]:
    """Parse the text of one subscription."""
    import rangecast as rc

    schema = _schema()
    return lambda: rc.Subscriptions.parse(schema, {7: "price between 10 and 20 and symbol = 'IBM'"})


def match_one(stack: contextlib.ExitStack, folder: Path) -> Callable[[], Any]:
    """Match one dict."""
    index = _index()
    return lambda: index.match_one(EVENT)


def match(stack: contextlib.ExitStack, folder: Path) -> Callable[[], Any]:
    """Match one event that is encoded."""
    import rangecast as rc

    index = _index()
    events = [rc.Events.from_rows(index.schema, [EVENT]) for _ in range(2)]
    return lambda: index.match(events.pop())


def insert(stack: contextlib.ExitStack, folder: Path) -> Callable[[], Any]:
    """Insert 600 boxes, so that a part is built."""
    index = _index()
    batches = [_alerts(N_SUBSCRIPTIONS + k * N_BUILT, N_BUILT) for k in range(2)]
    return lambda: index.insert(batches.pop())


def match_frames(stack: contextlib.ExitStack, folder: Path) -> Callable[[], Any]:
    """Match a frame of events against a frame of subscriptions."""
    import pandas as pd

    import rangecast as rc

    events = pd.DataFrame({"price": [10, 20, 30], "symbol": ["IBM", "KO", None]})
    alerts = pd.DataFrame({"id": [1, 2], "condition": ["price > 15", "symbol = 'IBM' and price < 15"]})
    return lambda: rc.match(events, alerts)


def match_files(stack: contextlib.ExitStack, folder: Path) -> Callable[[], Any]:
    """Run `rangecast match` on CSV files."""
    from typer.testing import CliRunner

    from rangecast.cli.app import app

    (folder / "schema.toml").write_text(
        "[attributes.price]\ntype = 'int'\n[attributes.symbol]\ntype = 'category'\n"
    )
    tables = {
        "alerts": [("id", "condition"), (1, "price > 15"), (2, "symbol = 'IBM' and price < 15")],
        "events": [("price", "symbol"), (10, "IBM"), (20, "KO"), (30, "")],
    }
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    arguments = ["match"]
    for option, name in {
        "schema": "schema.toml", "subscriptions": "alerts.csv", "events": "events.csv", "out": "matches.csv",
    }.items():  # fmt: skip
        arguments += [f"--{option}", str(folder / name)]

    def run() -> None:
        result = CliRunner().invoke(app, arguments)
        if result.exit_code:
            raise RuntimeError(result.output)

    return run


def subscribe(stack: contextlib.ExitStack, folder: Path) -> Callable[[], Any]:
    """Subscribe at a broker, over HTTP, until its matcher has the subscription."""
    from rangecast.broker.broker import Broker, BrokerSettings
    from rangecast.broker.server import serving

    broker = Broker(BrokerSettings(data=folder / "data", port=0))
    broker.ensure_space("main", _schema())
    address = stack.enter_context(serving(broker)).removeprefix("http://")
    names = iter(("first", "second"))

    def put() -> None:
        connection = http.client.HTTPConnection(address)
        body = json.dumps({"condition": "price between 10 and 20 and symbol = 'IBM'"})
        connection.request("PUT", f"/v1/main/consumers/alice/subscriptions/{next(names)}", body)
        answer = connection.getresponse()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{answer.status} {answer.read().decode()}")
        connection.close()
        time.sleep(1)  # the matcher takes changes within 0.2 s

    return put


def stream(stack: contextlib.ExitStack, folder: Path) -> Callable[[], Any]:
    """Match a micro-batch of a stream on Spark: the driver's part and the worker's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import rangecast as rc
    import rangecast.spark as rs

    # workers run this module at their start, and record what they pass too
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        f"import errands\nfrom pathlib import Path\nerrands.Recorder(Path({str(folder)!r})).install()\n"
    )
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "site"), str(SRC)])
    spark = rs.session(
        "local[1]",
        conf={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    stack.callback(spark.stop)
    store = rc.Store.open(folder / "store", _schema())
    store.insert(_alerts(0, 100))
    (folder / "events").mkdir()
    frame = spark.readStream.schema("id long, price long, symbol string").parquet(str(folder / "events"))
    query = rs.match_stream(frame, store, out=folder / "out", checkpoint=folder / "checkpoint")
    stack.callback(query.stop)
    numbers = iter(range(9))

    def add_batch() -> None:
        number = next(numbers)
        table = pa.table({"id": [number], "price": [1_234], "symbol": ["S7"]})
        pq.write_table(table, folder / "events" / f".{number}")
        os.rename(folder / "events" / f".{number}", folder / "events" / f"{number}.parquet")
        query.processAllAvailable()

    return add_batch


ERRANDS: dict[str, Callable[[contextlib.ExitStack, Path], Callable[[], Any]]] = {
    errand.__name__: errand
    for errand in (parse, match_one, match, insert, match_frames, match_files, subscribe, stream)
}


def record(name: str) -> list[Passed]:
    """The modules that an errand passes, when it is done for the second time in this process."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        recorder = Recorder(folder)
        recorder.install()
        again = ERRANDS[name](stack, folder)
        again()
        with recorder.recording():
            again()
        return recorder.passed()


def path_of(name: str) -> list[Passed]:
    """The modules that an errand passes, recorded in a process of its own with kernels as plain Python."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, __file__, "--record", name],
        env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr}")
    return [Passed(*entry) for entry in json.loads(done.stdout.splitlines()[-1])]


def described(path: list[Passed]) -> str:
    """One line for each module: its number, its name, and the function that it was entered by."""
    return "\n".join(f"  {k:3} {entry.module}: {entry.function}" for k, entry in enumerate(path, 1))


def complaint(name: str, path: list[Passed], budget: Budget) -> str | None:
    """What to say of a path that is longer than its budget."""
    if len(path) <= budget.most:
        return None
    about = (ERRANDS[name].__doc__ or "").rstrip(".")
    return (
        f"{name} passes {len(path)} modules, and its budget is {budget.most} (the aim is {budget.aim}).\n"
        f"{about}: whoever follows that reads these, in this order.\n{described(path)}\n"
        "Look for a module that was entered for a moment only: can its caller do without, or is it a part\n"
        "of a neighbour? Can what it prepares be made when it is first needed? A budget of tests/errands.py\n"
        "is raised only with the reason in the commit."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the modules that simple errands pass.")
    parser.add_argument("errands", nargs="*", metavar="ERRAND", help=", ".join(ERRANDS))
    parser.add_argument("--record", choices=ERRANDS, metavar="ERRAND", help="in this process, as JSON")
    given = parser.parse_args()
    if given.record:
        path = record(given.record)
        print(json.dumps(path))
        return
    if unknown := set(given.errands) - set(ERRANDS):
        parser.error(f"there is no errand {', '.join(sorted(unknown))}; there are {', '.join(ERRANDS)}")
    for name in given.errands or ERRANDS:
        path = path_of(name)
        about = (ERRANDS[name].__doc__ or "").partition("\n")[0]
        budget = BUDGETS[name]
        print(f"{name:13} {len(path):3} modules (budget {budget.most}, aim {budget.aim}): {about}")
        if given.errands:
            print(described(path))


if __name__ == "__main__":
    main()
