"""The options of the source "rangecast-kafka", and the columns that they give.

option              meaning
store               the folder of the store; must be given
bootstrap, topic    HOST:PORT of the cluster, and the topic of events; must be given
start               where a new stream begins: earliest, latest, or a time such as 2026-01-31T08:00:00Z
format, registry, schemaFile, message
                    the values (rangecast.kafka.values): json, avro or protobuf, and where schemas come from
event_id            a field of the values, @key (the message's key) or @offset ("3:1041": partition, offset)
keep, form, outer, absent, order, textIds, idType, version, time, tasks
                    as those of "rangecast" (options.py); ids of events are strings unless idType says int64,
                    and what is kept is a string
maxEventsPerBatch   at most so many messages in a micro-batch
rejects             folder for the events that are rejected; in the store's folder by default
lostMessages        fail or reject: what to do about messages that are gone before they were read
kafka.NAME          a setting of the client, as in kafka.security.protocol
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T

from rangecast.errors import OptionError
from rangecast.kafka.connection import EARLIEST, start_time
from rangecast.kafka.messages import KEY, OFFSET
from rangecast.kafka.values import JSON, ValueFormat
from rangecast.spark.output import ALL, Answer, Output
from rangecast.spark.source.options import FAIL, REJECT, answer_of, choice, local_folder, whole_number
from rangecast.spark.version_policy import NEWEST, VersionPolicy
from rangecast.store.store import Store

CLIENT = "kafka."
_NAMES = {
    "store", "bootstrap", "topic", "start", "format", "registry", "schemafile", "message", "eventid", "keep",
    "absent", "form", "outer", "order", "textids", "idtype", "version", "time", "maxeventsperbatch",
    "rejects", "tasks", "lostmessages",
}  # fmt: skip


@dataclass(frozen=True)
class TopicSettings:
    """The options, checked; see the module head."""

    store: str
    bootstrap: str
    topic: str
    start: str
    values: ValueFormat
    output: Output
    versions: VersionPolicy
    max_events: int | None
    rejects: str
    tasks: int
    lost_messages: str
    client: dict[str, str]

    def answer(self, schema: Any, fields: T.StructType) -> Answer:
        """What is read of the events and what goes out, for the columns of a DataFrame."""
        return answer_of(self.output, schema, fields)

    @property
    def id_field(self) -> str | None:
        """The field of the values that has the id, if one has."""
        return None if self.output.event_id in (KEY, OFFSET) else self.output.event_id


def read_topic_options(options: Mapping[str, str]) -> TopicSettings:
    """Check the options of a reader."""
    client = {
        name[len(CLIENT) :]: value for name, value in options.items() if name.lower().startswith(CLIENT)
    }
    given = {
        name.lower().replace("_", ""): value
        for name, value in options.items()
        if not name.lower().startswith(CLIENT)
    }
    unknown = sorted(name for name in given if name not in _NAMES)
    if unknown:
        raise OptionError(f"the source has no option {unknown[0]!r}; it has {', '.join(sorted(_NAMES))}")
    for name in ("store", "bootstrap", "topic"):
        if not given.get(name):
            raise OptionError(f"the option {name!r} must be given")
    output = Output.from_options(given)
    if ALL in output.keep:
        raise OptionError("keep names fields of the values: a topic has no columns that '*' could stand for")
    if output.event_id.startswith("@") and output.event_id not in (KEY, OFFSET):
        raise OptionError(f"an event's id is a field, {KEY} or {OFFSET}, got {output.event_id!r}")
    if output.event_id.startswith("@") and output.id_type == "int64":
        raise OptionError(f"ids by {output.event_id} are strings, got idType int64")
    start_time(given.get("start", EARLIEST))
    store = local_folder(given["store"], "store")
    key = hashlib.sha256(f"{given['bootstrap']}/{given['topic']}".encode()).hexdigest()[:16]
    return TopicSettings(
        store=store,
        bootstrap=given["bootstrap"],
        topic=given["topic"],
        start=given.get("start", EARLIEST),
        values=ValueFormat(
            given.get("format", JSON).lower(),
            given.get("registry"),
            given.get("schemafile"),
            given.get("message"),
        ),
        output=output,
        versions=VersionPolicy.parse(given.get("version", NEWEST), given.get("time")),
        max_events=whole_number(given, "maxEventsPerBatch"),
        rejects=local_folder(
            given.get("rejects") or os.path.join(store, "sources", key, "rejects"), "rejects"
        ),
        tasks=whole_number(given, "tasks") or os.cpu_count() or 1,
        lost_messages=choice(given, "lostMessages", (FAIL, REJECT)),
        client=client,
    )


def topic_fields(settings: TopicSettings, store: Store) -> T.StructType:
    """The columns that come out."""
    answer = settings.output.answer(store.schema, store.ids_are_text)
    given = T.StructType([T.StructField(name, T.StringType()) for name in answer.columns])
    if answer.id_type == "int64":
        given[answer.event_id].dataType = T.LongType()
    return answer.fields(given)
