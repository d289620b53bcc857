"""Match a DataFrame of events: each worker maps the snapshot, batches go through it as Arrow.

    events --select--> [event_id, attributes, kept columns] --mapInArrow--> event_id, subscription_id, kept

The result is lazy, like any DataFrame. What can be checked before anything runs is checked at once: the
snapshot's sums, that each attribute has a column, and that its type can hold the attribute's values
exactly. Everything here works on a classic session and over Spark Connect alike.

How events would be matched, in words: which snapshot, which columns, where the index is placed and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rangecast.errors import EventError, OptionError
from rangecast.memory import readable
from rangecast.spark.batch.stripes import choose_placement, plan_cuts
from rangecast.spark.report import Report
from rangecast.spark.snapshots import Snapshot, resolve
from rangecast.spark.worker import COUNTS, FORMS, LISTS, PAIRS, Answer, answer_names, mapped, matcher
from rangecast.types.schema import Schema

_WHOLE: tuple[type[T.DataType], ...] = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TAKEN: dict[str, tuple[str, tuple[type[T.DataType], ...]]] = {
    "int": ("byte, short, int or long", _WHOLE),
    "float": ("a number", (*_WHOLE, T.FloatType, T.DoubleType, T.DecimalType)),
    "category": ("string or boolean", (T.StringType, T.BooleanType)),
    "timestamp": ("timestamp, timestamp_ntz or date", (T.TimestampType, T.TimestampNTZType, T.DateType)),
}


def match(
    events: DataFrame,
    subscriptions: Any,
    *,
    event_id: str = "id",
    keep: Sequence[str] = (),
    form: str = PAIRS,
    outer: bool = False,
    absent: Sequence[str] = (),
    version: int | None = None,
    mode: str = "auto",
    stripes: int | None = None,
    memory: int | None = None,
    report: Report | None = None,
) -> DataFrame:
    """The subscriptions that each event matches, as a lazy DataFrame.

    `subscriptions` is a Store, the path of a store or of a saved index, Subscriptions or an Index;
    `version` names a version of a store, else the newest is taken now. `form` "pairs" gives a row per
    match (event_id, subscription_id), "lists" a row per event with an array of ids, "counts" with
    their number; the last two cost less. Columns in `keep` come along. Events without a match leave
    no row unless `outer`. A null value is missing; an attribute that the events have no column for
    must be named in `absent`. `mode` places the index: "whole" in every worker, "stripes" cut into
    `stripes` parts, "auto" by its size and `memory`, the bytes that a worker's machine may use for
    it. A `report` counts events and matches as the DataFrame is evaluated.
    """
    snapshot = resolve(subscriptions, version)
    answer = plan_answer(events.schema, snapshot, event_id, keep, form, outer, absent)
    chosen = events.select(*[F.col(_quoted(name)) for name in answer.columns])
    fields = answer_fields(events.schema, answer)
    if report is not None:
        report.describe(snapshot)
        chosen = report.watch(chosen, "events", Observation())
    from rangecast.spark.batch.stripes import choose_placement, match_in_stripes

    placement = choose_placement(snapshot, mode, stripes, memory, events.sparkSession)
    if placement.stripes > 1:
        found = match_in_stripes(chosen, snapshot, answer, fields, placement)
    else:
        found = chosen.mapInArrow(matcher(snapshot.path, answer), fields)
    if report is not None:
        found = report.watch(found, "rows", Observation())
    return found


def plan_answer(
    given: T.StructType,
    snapshot: Snapshot,
    event_id: str,
    keep: Sequence[str],
    form: str,
    outer: bool,
    absent: Sequence[str],
    texts: bool = False,
) -> Answer:
    """Check columns and options, and say what goes in and out; `texts` are taken where bad ones can go."""
    if form not in FORMS:
        raise OptionError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    if isinstance(keep, str):
        raise OptionError(f"keep must be a list of column names, got the string {keep!r}")
    names = [field.name for field in given.fields]
    for name, what in [(event_id, "event_id"), *((k, "keep") for k in keep)]:
        if name not in names:
            raise EventError(f"{what}: the events have no column {name!r}; they have {', '.join(names)}")
    attributes = check_attributes(given, snapshot.schema, absent, texts)
    answer = Answer(event_id, attributes, tuple(keep), form, outer, snapshot.textual)
    out = answer_names(answer)
    if len(set(out)) < len(out):
        raise OptionError(f"columns of the answer must differ, got {', '.join(out)}; rename what is kept")
    return answer


def check_attributes(
    given: T.StructType, schema: Schema, absent: Sequence[str], texts: bool = False
) -> tuple[str, ...]:
    """The attributes that have a column, each of a type that holds its values exactly, or as `texts`."""
    types = {field.name: field.dataType for field in given.fields}
    for name in absent:
        if name not in schema:
            raise OptionError(
                f"absent: the schema has no attribute {name!r}; it has {', '.join(schema.names)}"
            )
    found = []
    for attribute in schema:
        name = attribute.name
        if name in absent:
            continue
        if name not in types:
            raise EventError(
                f"the events have no column {name!r} ({attribute.kind}); they have {', '.join(types)}. "
                f"If {name!r} is missing in all of them, say absent=[{name!r}]"
            )
        words, taken = _TAKEN[attribute.kind]
        if not isinstance(types[name], taken) and not (texts and isinstance(types[name], T.StringType)):
            raise EventError(
                f"column {name!r} must be {words} for {attribute.article} {attribute.kind}, got "
                f"{types[name].simpleString()}; cast it first, and see what the cast makes of bad values"
            )
        found.append(name)
    if not found:
        raise EventError(f"the events must have a column of the schema ({', '.join(schema.names)})")
    return tuple(found)


def answer_fields(given: T.StructType, answer: Answer) -> T.StructType:
    """The columns that come out, with their types."""
    id_type: T.DataType = T.StringType() if answer.textual else T.LongType()
    second = {PAIRS: id_type, LISTS: T.ArrayType(id_type, False), COUNTS: T.LongType()}[answer.form]
    names = answer_names(answer)
    fields = [T.StructField(names[0], given[answer.event_id].dataType), T.StructField(names[1], second)]
    fields += [T.StructField(name, given[name].dataType) for name in answer.keep]
    return T.StructType(fields)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def explain(
    events: DataFrame,
    subscriptions: Any,
    *,
    event_id: str = "id",
    keep: Sequence[str] = (),
    form: str = PAIRS,
    outer: bool = False,
    absent: Sequence[str] = (),
    version: int | None = None,
    mode: str = "auto",
    stripes: int | None = None,
    memory: int | None = None,
) -> str:
    """What `match` with the same arguments would do; prints it and gives it back."""
    snapshot = resolve(subscriptions, version)
    answer = plan_answer(events.schema, snapshot, event_id, keep, form, outer, absent)
    placement = choose_placement(snapshot, mode, stripes, memory, events.sparkSession)
    index = mapped(snapshot.path)
    place = f", version {snapshot.version} of {snapshot.store}" if snapshot.store else ""
    lines = [
        f"subscriptions  {snapshot.n_subscriptions:,} in an index {index.name!r} of "
        f"{readable(snapshot.n_bytes)}{place}",
        f"snapshot       {snapshot.path}",
        f"columns in     {', '.join(answer.columns)}",
        f"columns out    {', '.join(answer_names(answer))}",
        f"placement      {placement.reason}",
    ]
    if placement.stripes > 1:
        cuts = plan_cuts(index.subscriptions(), placement.stripes)
        along = " and ".join(
            f"{snapshot.schema.names[j]} ({len(at) + 1})" for j, at in zip(cuts.on, cuts.at, strict=True)
        )
        lines += [
            f"stripes        {cuts.n} along {along}, by quantiles of a sample",
            f"copies         {cuts.copies:.2f} of each box; about "
            f"{readable(snapshot.n_bytes * cuts.copies / cuts.n)} a stripe",
            "steps          route in the workers, shuffle by stripe, match; hot stripes are salted",
        ]
    else:
        lines.append("steps          each worker maps the snapshot and matches its own events; no shuffle")
    text = "\n".join(lines)
    print(text)
    return text
