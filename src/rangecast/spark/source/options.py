"""The options of the source "rangecast", and the columns that they give.

    option              meaning
    store               the folder of the store; must be given
    events              a file, a folder or a pattern of events; load("...") says the same
    format              parquet, csv, json or jsonl (both JSON lines); by the suffix of each file by default
    event_id, keep, form, outer, absent, order, textIds, idType
                        the output (spark/output.py); keep and absent are names with commas between, or a JSON
                        list. `.options(**output.options())` says the same of an Output
    version             newest (when a batch is planned), event-time, or the number of one version
    time                for event-time: the column with the time; the schema's only timestamp by default
    maxFilesPerBatch    at most so many files in a micro-batch
    maxBytesPerBatch    at most so many bytes, but one file at least
    rejects             folder for the events that are rejected; in `state` by default
    state               folder for the log of arrivals; in the store's folder by default
    tasks               tasks of a micro-batch at most; the driver's cores by default
    lostFiles           fail or reject: what to do about a file that is gone or was changed since it arrived

Spark does not tell capitals in options apart, and underscores are ignored: event_id is eventId.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from rangecast.durable.bucket import local_place
from rangecast.errors import OptionError, RangecastError
from rangecast.loading import format_of
from rangecast.spark.batch.files import check_files, files_at
from rangecast.spark.output import Answer, Output
from rangecast.spark.version_policy import NEWEST, VersionPolicy
from rangecast.store.store import Store

FAIL, REJECT = "fail", "reject"
_FORMATS = {"parquet": "parquet", "csv": "csv", "json": "jsonl", "jsonl": "jsonl", "ndjson": "jsonl"}
_NAMES = {
    "store", "events", "path", "format", "eventid", "keep", "absent", "form", "outer", "order", "textids",
    "idtype", "version", "time", "maxfilesperbatch", "maxbytesperbatch", "rejects", "state", "tasks",
    "lostfiles",
}  # fmt: skip
_TRIES = 16


@dataclass(frozen=True)
class Settings:
    """The options, checked; see the module head."""

    store: str
    events: str
    format: str | None
    output: Output
    versions: VersionPolicy
    max_files: int | None
    max_bytes: int | None
    rejects: str
    state: str
    tasks: int
    lost_files: str

    def answer(self, schema: Any, fields: T.StructType) -> Answer:
        """What is read of the events and what goes out, for the columns of a DataFrame."""
        return answer_of(self.output, schema, fields)


def answer_of(output: Output, schema: Any, fields: T.StructType) -> Answer:
    """An output for a schema, whose ids have the type that the columns of a DataFrame say."""
    second = fields[1].dataType
    element = second.elementType if isinstance(second, T.ArrayType) else second
    return output.answer(schema, isinstance(element, T.StringType))


def read_options(options: Mapping[str, str]) -> Settings:
    """Check the options of a reader."""
    given = {name.lower().replace("_", ""): value for name, value in options.items()}
    unknown = sorted(name for name in given if name not in _NAMES)
    if unknown:
        raise OptionError(f"the source has no option {unknown[0]!r}; it has {', '.join(sorted(_NAMES))}")
    events = given.get("events") or given.get("path")
    for name, value in (("store", given.get("store")), ("events", events)):
        if not value:
            raise OptionError(f"the option {name!r} must be given: .option({name!r}, folder)")
    store = local_folder(given["store"], "store")
    place = local_folder(str(events), "events")
    kind = given.get("format")
    key = hashlib.sha256(place.encode()).hexdigest()[:16]
    state = local_folder(given.get("state") or os.path.join(store, "sources", key), "state")
    return Settings(
        store=store,
        events=place,
        format=None if kind is None else _FORMATS[choice(given, "format", tuple(_FORMATS))],
        output=Output.from_options(given),
        versions=VersionPolicy.parse(given.get("version", NEWEST), given.get("time")),
        max_files=whole_number(given, "maxFilesPerBatch"),
        max_bytes=whole_number(given, "maxBytesPerBatch"),
        rejects=local_folder(given.get("rejects") or os.path.join(state, "rejects"), "rejects"),
        state=state,
        tasks=whole_number(given, "tasks") or os.cpu_count() or 1,
        lost_files=choice(given, "lostFiles", (FAIL, REJECT)),
    )


def local_folder(place: str | os.PathLike[str], option: str) -> str:
    """The absolute path of a place that an option names."""
    return os.path.abspath(local_place(place, f"the option {option!r}"))


def infer_fields(settings: Settings, store: Store) -> T.StructType:
    """The columns that come out, by the first file that can be read."""
    answer = settings.output.answer(store.schema, store.ids_are_text)
    trouble: RangecastError | None = None
    for path in sorted(files_at(settings.events))[:_TRIES]:
        try:
            kind = format_of(path, settings.format)
            named = check_files([path], {path: kind}, store.schema, answer)
            named = answer.id_type or named
        except RangecastError as error:
            trouble = trouble or error
            continue
        if kind == "parquet":
            given = from_arrow_schema(pq.read_schema(path), prefer_timestamp_ntz=True)
        else:
            given = T.StructType([T.StructField(name, T.StringType()) for name in answer.columns])
        given[answer.event_id].dataType = T.LongType() if named == "int64" else T.StringType()
        return answer.fields(given)
    if trouble is not None:
        raise trouble
    raise OptionError(
        f"{settings.events}: there are no files yet that would tell the types of the columns; "
        'put one there or say them: .schema("event_id long, subscription_id long")'
    )


def check_fields(output: Output, store: Store, fields: T.StructType) -> None:
    """Whether the columns that somebody named are those that the source gives."""
    output.answer(store.schema, store.ids_are_text)
    names = output.names
    if fields.fieldNames() != names:
        raise OptionError(
            f"the schema must have the columns {', '.join(names)}, got {', '.join(fields.fieldNames())}"
        )
    kinds: tuple[T.DataType, ...] = (
        (T.StringType(),) if store.ids_are_text else (T.LongType(), T.StringType())
    )
    wanted = list(dict.fromkeys(output.second_type(kind).simpleString() for kind in kinds))
    got = fields[1].dataType.simpleString()
    if got not in wanted:
        shown = " or ".join(wanted)
        raise OptionError(f"column {names[1]!r} must be {shown} for this store, got {got}")


def choice(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """One of several words, the first by default."""
    value = given.get(name.lower(), allowed[0]).lower()
    if value not in allowed:
        raise OptionError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def whole_number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    if not value.isdigit() or int(value) < 1:
        raise OptionError(f"{name} must be a whole number from 1 on, got {value!r}")
    return int(value)
