"""What every run needs before anything else: a Numba cache of its own, a seed, a Hypothesis profile per leg.

Numba's disk cache notices neither an edit in another file nor NUMBA_BOUNDSCHECK, so a stale kernel
could pass the tests of the new one. The folder is therefore named by a hash of all kernels and of
Numba's settings; it overrides a NUMBA_CACHE_DIR from outside, which the package would honour.
"""

import hashlib
import importlib
import itertools
import os
import random
import re
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
from _pytest.doctest import DoctestModule

import seeds

ROOT = Path(__file__).resolve().parent.parent


# as simd/compiler.py has it
KERNEL_FILE = re.compile(r"kernels\.py|kernels_\w+\.py|\w+_kernels\.py")


def flag(name: str) -> bool:
    """Whether an environment switch of Numba's is on."""
    return os.environ.get(name, "0") not in ("", "0")


LEG = "nojit" if flag("NUMBA_DISABLE_JIT") else "bounds" if flag("NUMBA_BOUNDSCHECK") else "compiled"


def numba_cache_dir() -> Path:
    """The cache folder for this state of the kernels and these settings of Numba."""
    state = hashlib.sha256()
    for path in sorted((ROOT / "src/rangecast").rglob("*.py")):
        if path.parent.name == "simd" or KERNEL_FILE.fullmatch(path.name):
            state.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    for name in sorted(os.environ):
        if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR":
            state.update(f"{name}={os.environ[name]}\0".encode())
    return ROOT / ".cache" / "numba" / f"{LEG}-{state.hexdigest()[:16]}"


if "numba" in sys.modules:
    raise pytest.UsageError("numba was imported before tests/conftest.py chose its cache folder")
os.environ["NUMBA_CACHE_DIR"] = str(numba_cache_dir())

# No deadline, since the first call of a kernel compiles it. What is drawn depends on the seed of the run, so
# that a run is repeated without a database.
for name, max_examples in {"compiled": 20, "bounds": 10, "nojit": 7}.items():
    hypothesis.settings.register_profile(
        name,
        max_examples=max_examples,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile(LEG)

# drawn before pytest-xdist starts its workers, which get it through the environment
seeds.run_seed()
FOUND = ROOT / ".cache" / "seeds-that-found-something"


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its option
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seeds.run_seed())


def pytest_report_header() -> str:
    return f"{seeds.repeat()} in the environment draws what this run draws"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say again what a red run has drawn, and keep it."""
    failed = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    if not failed:
        return
    terminalreporter.write_line(f"{seeds.repeat()} in the environment draws what this run drew")
    FOUND.parent.mkdir(exist_ok=True)
    with FOUND.open("a") as kept:
        for report in failed:
            kept.write(f"{time.strftime('%Y-%m-%d %H:%M')} {seeds.repeat()} {LEG} {report.nodeid}\n")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Tests have no doctests, and looking for them takes a tenth of the time of collecting."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


def pytest_make_parametrize_id(val: object) -> str | None:
    """A long text is named by its beginning: whole, some names were of 90,000 letters, in every report."""
    if isinstance(val, str) and len(val) > 100:
        return val[:80].encode("unicode_escape").decode("ascii") + "..."
    return None


@pytest.fixture(scope="session")
def leg() -> str:
    """Which leg runs: "compiled", "nojit" (kernels are plain Python) or "bounds"."""
    return LEG


# Files that say of a machine that something was laid out there; none of them exists before a test.
NOTES = map("laid-out-{}".format, itertools.count())


@pytest.fixture(autouse=True)
def machine(request, monkeypatch, tmp_path_factory) -> Callable[[str], None]:
    """The machine that a test runs on, as far as its own process goes: a "new" one, where `auto` scans until
    a layout is worth compiling (engine/planner.py), or a "used" one, where it lays out at once because
    something was laid out before.

    Which of them depends on the name of the test and on the seed of the run. A test that is about layouts
    asks for a fixture below. Kernels of plain Python have nothing to compile: there the package lays out at
    once.
    """
    first_layout = importlib.import_module("rangecast.engine.planner")

    def become(kind: str) -> None:
        note = tmp_path_factory.getbasetemp() / next(NOTES)
        monkeypatch.setattr(first_layout, "_note", lambda: note)
        monkeypatch.setattr(first_layout._Layouts, "at_once", kind == "used")

    # pytest-xdist adds a group to the id of a test, which is to run as it does alone
    name = f"machine of {request.node.path.stem} {request.node.name}"
    drawn = random.Random(seeds.seed_of(name)).choice(["new", "used"])
    become("used" if LEG == "nojit" else drawn)
    return become


@pytest.fixture
def new_machine(machine) -> None:
    """A machine on which nothing was laid out yet."""
    machine("new")


@pytest.fixture
def used_machine(machine) -> None:
    """A machine on which something was laid out before."""
    machine("used")


@pytest.fixture(scope="session")
def size(leg: str):
    """Scale a number of subscriptions or events to the leg: plain Python is some 100 times slower."""
    divisor = {"compiled": 1, "bounds": 4, "nojit": 50}[leg]
    return lambda n: max(1, n // divisor)


# Tests that call the same kernels go to the same worker process: otherwise each worker compiles them, at the
# same time, and the run takes half as long again.
FAMILIES = {
    "engine": (
        "answers",
        "auto",
        "bitmap",
        "cells",
        "equalities",
        "equality",
        "limited",
        "nested",
        "packed",
        "parts",
        "planner",
        "said",
        "shared",
        "small",
        "tracking",
        "windows",
    ),
    "intervals": ("cei", "direct", "hint", "islist", "vci"),
    "vcr": ("vcr", "plane"),
    "ztree": ("counting", "covering", "opindex", "rein", "routing", "ubtree", "zorder"),
    "rtree": ("rtree", "scheduling"),
    # no kernels: these read and parse every source file, once in a process
    "house": ("house",),
}
LONGEST_FIRST = ("spark", "engine", "ztree", "intervals", "test_connect", "vcr", "rtree", "house")
PAPERS = ("intervals", "vcr", "ztree", "rtree")
FAMILY_OF = {member: name for name, members in FAMILIES.items() for member in members}


def subjects(item: pytest.Item) -> list[str]:
    """What a test is about: its index, if it has one as a parameter, its module and its folder."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    kind = next((parameters[name] for name in ("kind", "make", "variant") if name in parameters), None)
    kind = kind[0] if isinstance(kind, tuple) else kind
    found = [kind] if isinstance(kind, str) else []
    return [*found, item.path.stem.removeprefix("test_"), item.path.parent.name]


def family(item: pytest.Item, of: slice = slice(None)) -> str | None:
    """The family of kernels that a test is about, if any: by its index, its module or its folder."""
    found = (FAMILY_OF.get(subject.replace("-", "_").split("_")[0]) for subject in subjects(item)[of])
    return next(filter(None, found), None)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups; behind it they would be ignored
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = {}
    for item in items:
        # One Spark session costs seconds and a gigabyte: its tests are a family too.
        # What starts sessions of its own in other processes need not wait for it.
        alone = item.path.stem in ("test_connect", "test_soak")
        marked = item.get_closest_marker("spark")
        # where nothing is compiled, only what reads the sources stays together
        kernels = family(item, slice(-1, None) if LEG == "nojit" else slice(None))
        group = item.path.stem if marked and alone else "spark" if marked else kernels
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
        groups[item] = group
        if item.path.parent.name == "papers" or family(item) in PAPERS:
            item.add_marker(pytest.mark.papers)
    # The Makefile asks pytest-xdist to keep this order: by itself it begins with the largest groups,
    # and that on Spark, which waits most, would begin when the others are done.
    ranks = {group: rank for rank, group in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(groups[item], len(ranks)))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """The address of a server of our own."""
    pytest.importorskip("obstore")
    from jars import NoJars
    from s3_server import running

    try:
        with running(tmp_path_factory.mktemp("s3")) as address:
            yield address
    except NoJars as why:
        pytest.skip(str(why))


@pytest.fixture
def s3(s3_server, monkeypatch, tmp_path):
    """A new address in its bucket, with all variables set and a cache of its own."""
    from s3_server import BUCKET, settings

    for name, value in settings(s3_server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANGECAST_CACHE", str(tmp_path / "cache"))
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def spark():
    """One Spark session for the run; over Connect where RANGECAST_SPARK says so (test_spark_connect.py)."""
    pytest.importorskip("pyspark")
    from rangecast.spark import session

    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # small batches, so that few rows make several
        "spark.sql.execution.arrow.maxRecordsPerBatch": "300",
    }
    place = (
        {"remote": "local[2]"} if os.environ.get("RANGECAST_SPARK") == "connect" else {"master": "local[2,3]"}
    )
    started = session(**place, conf=conf)
    yield started
    started.stop()
