"""File mode: Spark hands out pieces of files, the workers do the rest with Arrow.

    events/*.parquet --plan--> units (row groups, files) --one task each--> out/part-00017.parquet

No row crosses into the JVM, which is most of what a DataFrame costs. On 200,000 events and a million
rectangles, Parquet in and out, file mode took 1.05 to 1.15 us of processor time per event, 22 to 30
times less than a join on a grid. The output folder keeps its own state, so that a run can be taken up again:

    out/part-00017.parquet            the matches of unit 17
    out/_rangecast/plan.json          units, snapshot, options: fixed when the run begins
    out/_rangecast/done/00017.json    unit 17 is done; what was counted
    out/_rangecast/rejected/          events that could not be read, with reasons
    out/_rangecast/manifest.json      all is done; totals
    out/_rangecast/tmp/               being written

A second call with the same arguments does only what is missing, against the snapshot that the plan
names, so the whole is what one run would have given, though the store may have moved on meanwhile.
Spark and Arrow skip names that begin with `_` when they read the folder.

Events and output may be in buckets. There a part has the name of the attempt that wrote it
(`part-00017-<id>.parquet`), the entries in `done/` say which attempts count, and the manifest lists them.
"""

from __future__ import annotations

import dataclasses
import glob
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from rangecast.durable.bucket import is_address, objects_at, place_of, seekable_file, size_of
from rangecast.errors import EventError, OptionError, StorageError
from rangecast.loading import EventFile, format_of, open_rows
from rangecast.loading.events import bad_id_type, no_column, whole_file_reason
from rangecast.loading.ids import column_type
from rangecast.spark.batch.file_tasks import STATE, FileRun, Unit, done_name, run_unit
from rangecast.spark.output import ALL, Answer, Output, OutputKeywords
from rangecast.spark.report import Report
from rangecast.spark.session import context_of
from rangecast.spark.snapshots import Snapshot, resolve
from rangecast.spark.worker import is_beside, mapped, told
from rangecast.store.home import Home, home_of
from rangecast.types.attributes import Timestamp
from rangecast.types.frames import flat_table, named_columns
from rangecast.types.schema import Schema

_ROWS_AT_LEAST = 100_000
_FORMAT = 1
_UNFINISHED = (".tmp", "._COPYING_", ".part", ".crdownload")
_LOOK_SECONDS = 0.3


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


_HINT = "; absent= names attributes without one"
_HOLDS: dict[str, tuple[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "int": ("a whole number", (pa.types.is_integer,)),
    "float": ("a number", (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)),
    "category": (
        "string, boolean or lists of strings",
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean, pa.types.is_dictionary, _is_list),
    ),
    "text": (
        "string or lists of strings",
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary, _is_list),
    ),
    "tags": ("lists of strings, or a string", (_is_list, pa.types.is_string, pa.types.is_large_string)),
    "point": (
        "a struct of lon and lat, lists of numbers or a string",
        (
            pa.types.is_struct,
            _is_list,
            pa.types.is_fixed_size_list,
            pa.types.is_string,
            pa.types.is_large_string,
        ),
    ),
    "bool": (
        "boolean, a string or a whole number",
        (pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string, pa.types.is_integer),
    ),
    "timestamp": ("timestamp or date", (pa.types.is_timestamp, pa.types.is_date)),
}


def match_files(  # noqa: PLR0913 - each is an option of whoever calls it
    spark: SparkSession,
    events: str | os.PathLike[str] | Sequence[str],
    subscriptions: Any,
    out: str | os.PathLike[str],
    output: Output | None = None,
    *,
    version: int | None = None,
    format: str | None = None,
    compression: str = "snappy",
    overwrite: bool = False,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **keywords: Unpack[OutputKeywords],
) -> Report:
    """Match files of events and write Parquet files of matches; the fast path for big batches.

    `events` is a file, a folder, a pattern or a list of those; Parquet, CSV and JSON lines are read.
    `output`, its keywords and `version` are those of `match`; ids of events are int64 or strings, as
    `id_type` says or as the files tell (rangecast.loading.ids). Events that cannot be read are rejected:
    they are kept under out/_rangecast/rejected and counted. So is a file that is damaged, as a whole, unless
    `strict`; row groups of it that were read before are kept. `progress` is called with units done and units
    in all.
    """
    said = Output.of(output, keywords)
    report = Report(step="match_files", out=str(out))
    target = home_of(out)
    with report.timed("plan"):
        files = list_files(events)
        kinds = {path: format_of(path, format) for path in files}
        old = _read_plan(target)
        if old is not None and overwrite:
            _clear(target)
            old = None
        snapshot = _snapshot(subscriptions, version, old, target)
        damaged = set() if strict else damaged_files(files, kinds)
        # if there is no other, what is wrong with them is said
        good = [path for path in files if path not in damaged] or files
        if ALL in said.keep:
            said = said.expanded(_columns_of(good[0], kinds[good[0]]))
        answer = said.answer(snapshot.schema, snapshot.ids_are_text)
        settled = check_files(good, kinds, snapshot.schema, answer)
        if answer.order is not None:
            answer.check_index(mapped(snapshot.path))
        new = _make_plan(files, kinds, snapshot, answer, answer.id_type or settled, compression, damaged)
        if strict:
            new["strict"] = True
        _adopt(target, new, old)
    report.describe(snapshot)
    with target.holding(f"{STATE}/lock", 0.0), report.timed("match"):
        home_of(target.path / STATE / "tmp").clear()
        for name in ("tmp", "done", "rejected"):
            home_of(target.path / STATE / name).prepare()
        run = FileRun.read(str(target.path))
        finished = run.done_units()
        todo = [n for n in range(len(run.units)) if n not in finished]
        _run(spark, run, todo, progress)
        home_of(target.path / STATE / "tmp").clear()
        done = [target.read(done_name(n)) or {} for n in range(len(run.units))]
        _drop_strays(target, done)
        totals = {
            k: sum(entry[k] for entry in done) for k in ("events", "rows", "pairs", "rejected", "bytes")
        }
        manifest = {"version": snapshot.version, "snapshot": snapshot.path, **totals, "units": done}
        target.put(f"{STATE}/manifest.json", lambda file: file.write(json.dumps(manifest, indent=1).encode()))
    report.files, report.skipped = len(run.units), len(run.units) - len(todo)
    report.rows, report.pairs, report.rejected_rows = totals["events"], totals["pairs"], totals["rejected"]
    if totals["rejected"]:
        report.rejected = _rejected(spark, target, done)
    report.log()
    return report


def _drop_strays(target: Home, done: list[dict[str, Any]]) -> None:
    """Delete what attempts that do not count have put into a bucket."""
    if target.locks:
        return
    for folder, key in (("", "part"), (f"{STATE}/rejected", "rejected_part")):
        counted = {entry[key].rpartition("/")[2] for entry in done}
        there = [name for name in target.names(folder) if name.startswith("part-")]
        target.remove_all(f"{folder}/{name}".lstrip("/") for name in there if name not in counted)


def _rejected(spark: SparkSession, target: Home, done: list[dict[str, Any]]) -> DataFrame:
    if target.locks:
        return spark.read.parquet(str(target.path / STATE / "rejected"))
    # whether Spark itself can read the bucket is not known
    parts = [target.get(entry["rejected_part"]) for entry in done if entry["rejected_part"]]
    tables = [pq.read_table(io.BytesIO(part)) for part in parts if part is not None]
    return spark.createDataFrame(pa.concat_tables(tables))


def list_files(events: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    """The files behind names, folders and patterns, sorted; what is hidden or unfinished is not data."""
    given = [events] if isinstance(events, str | os.PathLike) else list(events)
    found: set[str] = set()
    named = map(place_of, given)
    for item in [name if is_address(name) else str(Path(name)) for name in named]:
        if is_address(item):
            there = list(files_at(item))
            if not there:
                raise OptionError(f"{item}: there is no such object, and nothing that looks like it")
            found.update(there)
            continue
        if not os.path.exists(item) and not glob.glob(item, recursive=True):
            raise OptionError(f"{item}: there is no such file, and nothing that looks like it")
        found.update(files_at(item))
    if not found:
        raise OptionError(f"{', '.join(map(str, given))}: no files to read")
    return sorted(found)


def files_at(place: str) -> Iterator[str]:
    """The files behind one name, folder or pattern as they are now, in no order; there may be none.

    Names with a leading _ or . are not data, nor are those that common tools give to half-written files.
    """
    if is_address(place):
        top = place.partition("*")[0].rpartition("/")[0] + "/"
        for address in objects_at(place):
            inner = address.removeprefix(top).split("/")
            if not any(map(_hidden, inner)):
                yield address
        return
    for top in [place] if os.path.exists(place) else glob.glob(place, recursive=True):
        if _hidden(os.path.basename(os.path.abspath(top))):
            continue
        if not os.path.isdir(top):
            yield os.path.abspath(top)
            continue
        for folder, inside, names in os.walk(os.path.abspath(top), followlinks=True):
            inside[:] = [name for name in inside if not _hidden(name)]
            yield from (os.path.join(folder, name) for name in names if not _hidden(name))


def _hidden(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith(_UNFINISHED)


def _run(
    spark: SparkSession, run: FileRun, todo: list[int], progress: Callable[[int, int], None] | None
) -> None:
    if progress is not None:
        progress(len(run.units) - len(todo), len(run.units))
    if not todo:
        return
    job = _job(spark, run, todo)
    if progress is None:
        with told():
            job()
        return
    with ThreadPoolExecutor(1) as pool, told():
        running = pool.submit(job)
        while not wait([running], _LOOK_SECONDS).done:
            progress(len(run.done_units()), len(run.units))
        running.result()
    progress(len(run.units), len(run.units))


def _job(spark: SparkSession, run: FileRun, todo: list[int]) -> Callable[[], object]:
    """What has the workers do units: one task for each, so that a lost worker costs one unit."""
    context = context_of(spark) if is_beside(spark) else None
    if context is not None:
        # an RDD has no plan: two tasks cost 48 ms of processor time, and those of a DataFrame 80. On other
        # machines its workers may lack what Spark brings to those of a DataFrame: artifacts of the session
        return context.parallelize(todo, len(todo)).mapPartitions(_work(run.out)).collect
    # positions, since units may be any subset; `id` is Spark's own name, and another one takes a step more
    schema = T.StructType([T.StructField("id", T.LongType(), False)])
    return (
        spark.range(0, len(todo), 1, len(todo)).mapInArrow(_arrow_work(run.out, tuple(todo)), schema).collect
    )


def _work(out: str) -> Callable[[Iterable[int]], Iterable[int]]:
    """The function for mapPartitions: does the units that it gets."""

    def work(numbers: Iterable[int]) -> Iterable[int]:
        run = FileRun.read(out)
        for number in numbers:
            run_unit(run, number)
            yield number

    return work


def _arrow_work(out: str, todo: tuple[int, ...]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for mapInArrow: does the units at the positions that it gets."""
    each = _work(out)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = list(each(todo[position] for position in batch.column(0).to_pylist()))
            yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], ["id"])

    return work


def _snapshot(subscriptions: Any, version: int | None, old: Any, target: Home) -> Snapshot:
    """What to match against: when a run is taken up again, the version that it began with."""
    if old is None or version is not None or old["version"] is None:
        return resolve(subscriptions, version)
    newest = resolve(subscriptions)
    if newest.version == old["version"]:
        return newest
    if target.has(f"{STATE}/manifest.json"):
        raise OptionError(
            f"{target.path}: holds the matches of version {old['version']}, and the store has version "
            f"{newest.version} by now; name another folder, or say overwrite=True"
        )
    return resolve(subscriptions, old["version"])


def _columns_of(path: str, kind: str) -> list[str]:
    """The columns of a file that says them before its rows."""
    with open_rows(path, format=kind) as file:
        if file.names is None:
            raise OptionError(
                f'{path}: lines of JSON do not say which columns keep="*" stands for; name them'
            )
        return file.names


def check_files(files: list[str], kinds: dict[str, str], schema: Schema, answer: Answer) -> str:
    """Check the columns of every file whose columns can be known; returns the type of event ids.

    Ids are whole numbers if they are in every Parquet file and at the start of the first text file, and
    strings otherwise (rangecast.loading.ids).
    """
    event_id, needed = answer.event_id, answer.columns
    settled: set[str] = set()
    with ThreadPoolExecutor(8) as pool:
        parquet = [path for path in files if kinds[path] == "parquet"]
        for path, found in zip(parquet, pool.map(_parquet_schema, parquet), strict=True):
            # as EventFile reads them: a path leads into structs, and an attribute's column may be written in
            # other capitals
            inner = flat_table(found.empty_table()).schema
            types = {field.name: field.type for field in (*inner, *found)}
            columns = named_columns(answer.attributes, types).columns
            for name in needed:
                if columns.get(name, name) not in types:
                    raise EventError(no_column(path, name, found.names) + _HINT)
            for name in needed:
                if name in schema and name not in (event_id, *answer.keep):
                    words, holds = _HOLDS[schema[name].kind]
                    attribute = schema[name]
                    if isinstance(attribute, Timestamp) and attribute.unit != "us":
                        words, holds = f"{words}, or a number", (*holds, *_HOLDS["float"][1])
                    got = types[columns.get(name, name)]
                    # a column of nulls alone may have no type
                    if not pa.types.is_null(got) and not any(test(got) for test in holds):
                        raise EventError(
                            f"{path}: column {name!r} must be {words} for {schema[name].article} "
                            f"{schema[name].kind}, got {got}"
                        )
            kind = column_type(types[event_id])
            if kind is None:
                raise EventError(bad_id_type(path, event_id, types[event_id]))
            settled.add(str(kind))
    text = next((path for path in files if kinds[path] != "parquet"), None)
    if text is not None:
        with EventFile(
            schema,
            text,
            event_id=event_id,
            attributes=answer.attributes,
            keep=answer.keep,
            format=kinds[text],
        ) as file:
            settled.add(str(file.id_type))
    return "int64" if settled == {"int64"} else "string"


def damaged_files(files: list[str], kinds: dict[str, str]) -> set[str]:
    """The Parquet files whose columns cannot be read, for what they hold and not for a disk that fails."""

    def is_damaged(path: str) -> bool:
        try:
            _parquet_schema(path)
        except StorageError as error:
            return whole_file_reason(error) is not None
        return False

    parquet = [path for path in files if kinds[path] == "parquet"]
    with ThreadPoolExecutor(8) as pool:
        return {path for path, bad in zip(parquet, pool.map(is_damaged, parquet), strict=True) if bad}


def _parquet_schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(seekable_file(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise StorageError(f"{path}: not a Parquet file that can be read: {error}") from None


def _make_plan(
    files: list[str],
    kinds: dict[str, str],
    snapshot: Snapshot,
    answer: Answer,
    id_type: str,
    compression: str,
    damaged: set[str],
) -> dict[str, Any]:
    units: list[Unit] = []
    for path in files:
        units += [Unit(path, kinds[path], 0, -1)] if path in damaged else units_of(path, kinds[path])
    return {
        "format": _FORMAT,
        "snapshot": snapshot.path,
        "store": snapshot.store,
        "version": snapshot.version,
        "subscriptions": snapshot.n_subscriptions,
        "answer": dataclasses.asdict(answer),
        "id_type": id_type,
        "compression": compression,
        "files": [[path, size_of(path)] for path in files],
        "units": [list(unit) for unit in units],
    }


def units_of(path: str, kind: str) -> Iterator[Unit]:
    """The pieces that a file is worked on in: row groups of a Parquet file, a whole text file."""
    if kind != "parquet":
        yield Unit(path, kind, 0, 0)
        return
    metadata = pq.read_metadata(seekable_file(path))
    first = rows = 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        # tiny row groups go together: a task costs 20 ms
        if rows >= _ROWS_AT_LEAST or group == metadata.num_row_groups - 1:
            yield Unit(path, "parquet", first, group + 1)
            first, rows = group + 1, 0


def _read_plan(target: Home) -> Any:
    plan = target.read(f"{STATE}/plan.json")
    if plan is None:
        others = target.names("")
        if others:
            raise OptionError(
                f"{target.path}: holds other files ({', '.join(others[:3])}); name an empty folder"
            )
    return plan


def _adopt(target: Home, new: dict[str, Any], old: Any) -> None:
    """Begin with a plan, or see that it is the one that the folder was begun with."""
    new = json.loads(json.dumps(new))
    if old is None:
        home_of(target.path / STATE).prepare()
        target.write(f"{STATE}/plan.json", new)
        return
    # a snapshot that is not a store's has a new name in each process
    aside = {"snapshot"} if new["version"] is None else set()
    differs = [key for key in new if key not in aside and new[key] != old.get(key)]
    if differs:
        raise OptionError(
            f"{target.path}: was begun with other {', '.join(differs)}; name another folder, or say "
            "overwrite=True"
        )
    if aside:
        target.write(f"{STATE}/plan.json", new)


def _clear(target: Home) -> None:
    parts = [name for name in target.names("") if name.startswith("part-") and name.endswith(".parquet")]
    target.remove_all(parts)
    home_of(target.path / STATE).clear()
