"""A compacted topic of subscriptions into a store: the key is the id, the value says what it asks for.

    value                                            meaning
    {"condition": "price < 10"}                      a text of the language
    {"price_low": 1, "price_high": 5, "symbol": "A"} bounds, named as in a file of subscriptions
    null                                             the subscription goes

Further members may be columns of the users' own (`payload` names them, model/user_columns.py) and when the
subscription ends (`expires` names it).

A batch of messages is one change of the store, and how far the topic was read is a note of the same change:
both are there or neither, so nothing is taken twice or lost, whenever the process ends. Of several messages
of a key the last good one counts; one that cannot be read is rejected with its reason, and an earlier one
stands.

The note names the cluster, so that another topic of the same name is not taken for this one. A topic that
ends before what was read is another one as well, and one that begins after it has lost messages: both are
refused. Kafka forgets deletes of a compacted topic after `delete.retention.ms`, so whoever is away for
longer must start over.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import StorageError
from rangecast.kafka.connection import PATIENCE, client, make_consumer, partitions_of, what
from rangecast.loading.ids import INT64, STRING, typed_ids
from rangecast.loading.rejected import RejectedRow
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.store import Store

_log = logging.getLogger(__name__)
_GROUP = "rangecast-subscriptions"
_ROW = "rangecast_row"


class TopicEntry(NamedTuple):
    """What a message says: the row of its batch, and its members; none of these for a delete."""

    row: int
    members: Mapping[str, Any] | None = None

    @property
    def condition(self) -> Any:
        """Its text, None where it has bounds or is a delete."""
        return None if self.members is None else self.members.get("condition")


@dataclass
class TopicCounts:
    """What was taken in so far."""

    messages: int = 0
    upserts: int = 0
    deletes: int = 0
    rejected: int = 0
    version: int = 0
    first_rejected: list[RejectedRow] = field(default_factory=list)


class SubscriptionTopic:
    """Follows a topic; `run` takes in what comes until it is told to stop."""

    def __init__(
        self,
        store: Store | str,
        bootstrap: str,
        topic: str,
        *,
        id_type: str | None = None,
        payload: Sequence[str] = (),
        expires: str | None = None,
        batch: int = 20_000,
        linger: float = 0.2,
        settings: Mapping[str, str] | None = None,
        on_rejected: Callable[[RejectedRow], None] | None = None,
    ) -> None:
        """Ids are those of the store, and strings in an empty one unless `id_type` says int64.

        `payload` names members of the values that are kept with the subscriptions, and `expires` the member
        that says when one ends.
        """
        self.store = store if isinstance(store, Store) else Store.open(store)
        self.counts = TopicCounts(version=self.store.version)
        self.name = f"kafka:{topic}"
        self._topic, self._bootstrap = topic, bootstrap
        self._batch, self._linger = batch, linger
        self._id_type = id_type
        self._payload, self._expires = tuple(payload), expires
        self._on_rejected = on_rejected
        self._kafka = client()
        self._consumer = make_consumer(bootstrap, settings or {}, {"group.id": _GROUP})
        try:
            self._places = partitions_of(self._consumer, topic, bootstrap)
            self._cluster = self._consumer.cluster_id(PATIENCE)
            self._next = self._begin()
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> SubscriptionTopic:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def run(self, stopped: Callable[[], bool], *, until_end: bool = False) -> TopicCounts:
        """Take in messages until `stopped()`, or with `until_end` until all that is there is in."""
        ends = self._ends() if until_end else {}
        while not stopped():
            if until_end and all(self._next[p] >= end for p, end in ends.items()):
                break
            self.step()
        return self.counts

    def step(self) -> int:
        """One change, if something came; returns how many messages it was."""
        messages = []
        for message in self._consumer.consume(self._batch, timeout=self._linger):
            if message.error() is not None:
                raise StorageError(f"{self._bootstrap}: {self._topic}: {message.error().str()}")
            messages.append(message)
        if not messages:
            self._skip_gaps()
            return 0
        fresh = self.store.exclusively(lambda: self._take(messages))
        for message in messages:
            self._next[message.partition()] = message.offset() + 1
        self.counts.messages += len(fresh)
        return len(messages)

    def _take(self, messages: list[Any]) -> list[Any]:
        """Apply those of some messages that nobody else has taken in meanwhile; returns these."""
        taken = self._noted()
        fresh = [m for m in messages if m.offset() >= taken.get(m.partition(), 0)]
        if fresh:
            self._apply(fresh, taken)
        return fresh

    # where to begin

    def _noted(self) -> dict[int, int]:
        note = self.store.notes.get(self.name)
        if note is None:
            return {}
        if note["cluster"] != self._cluster:
            raise StorageError(
                f"{self.store.path}: was filled from {self._topic!r} of the cluster {note['cluster']}, and "
                f"{self._bootstrap} is the cluster {self._cluster}"
            )
        return {int(partition): int(offset) for partition, offset in note["offsets"].items()}

    def _begin(self) -> dict[int, int]:
        taken = self._noted()
        starts = {}
        for partition in self._places:
            first, end = self._limits(partition)
            at = taken.get(partition)
            if at is not None and not first <= at <= end:
                raise StorageError(
                    f"{self._bootstrap}: partition {partition} of {self._topic!r} has the offsets {first} "
                    f"to {end}, and {self.store.path} has read up to {at}: it is another topic, or messages "
                    "are gone; fill a new store from it"
                )
            starts[partition] = first if at is None else at
        places = [self._kafka.TopicPartition(self._topic, p, at) for p, at in starts.items()]
        self._consumer.assign(places)
        return starts

    def _limits(self, partition: int) -> tuple[int, int]:
        try:
            place = self._kafka.TopicPartition(self._topic, partition)
            first, end = self._consumer.get_watermark_offsets(place, PATIENCE)
        except self._kafka.KafkaException as error:
            raise StorageError(f"{self._bootstrap}: {self._topic}: {what(error)}") from error
        return int(first), int(end)

    def _ends(self) -> dict[int, int]:
        return {partition: self._limits(partition)[1] for partition in self._places}

    def _skip_gaps(self) -> None:
        """Go past offsets that have no message: compacted away, or the marks of transactions."""
        for place in self._consumer.position(self._consumer.assignment()):
            self._next[place.partition] = max(self._next[place.partition], place.offset)

    # one change

    def _apply(self, messages: list[Any], taken: dict[int, int]) -> None:
        ids, reasons = self._ids(messages)
        said = [_said(message, row, reasons) for row, message in enumerate(messages)]
        coming = self._load([s for s in said if s is not None and s.row not in reasons], reasons)
        last: dict[Any, int] = {}
        for s in said:
            if s is not None and s.row not in reasons:
                last[ids[s.row]] = s.row
        rows = np.array(sorted(last.values()), np.int64)
        at = {int(row): k for k, row in enumerate(coming.ids.values.tolist())}
        kept = [row for row in rows.tolist() if row in at]
        upserts = coming.select(np.array([at[row] for row in kept], np.int64))
        named = Ids.of([ids[row] for row in kept]) if kept else Ids.of([])
        subs = Subscriptions.of_boxes(self.store.schema, named, upserts.boxes, texts=upserts.beside)
        # an id that is not there may be deleted as well: nothing happens
        gone = [ids[row] for row in rows.tolist() if row not in at]
        offsets = dict(taken)
        for message in messages:
            offsets[message.partition()] = message.offset() + 1
        note = {self.name: {"cluster": self._cluster, "offsets": {str(p): o for p, o in offsets.items()}}}
        self.counts.version = self.store.apply(subs, gone, note=note)
        self.counts.upserts += len(subs)
        self.counts.deletes += len(gone)
        for row in sorted(reasons):
            self._reject(messages[row], reasons[row])

    def _ids(self, messages: list[Any]) -> tuple[list[Any], dict[int, str]]:
        textual = self.store.ids_are_text
        if textual is None:
            textual = self._id_type != "int64"
        keys = [_text(message.key()) for message in messages]
        ids, reasons = typed_ids(pa.array(keys, STRING), STRING if textual else INT64, "a subscription")
        return ids.to_pylist(), reasons

    def _load(self, said: list[TopicEntry], reasons: dict[int, str]) -> Subscriptions:
        """The subscriptions of some rows, which are their ids; what is wrong goes to the reasons."""
        schema = self.store.schema
        parts = []
        texts = [s for s in said if s.condition is not None]
        if texts:
            rows = np.array([s.row for s in texts], np.int64)
            given = [s.condition for s in texts]
            beside = {name: _values(texts, name) for name in self._payload}
            ends = None if self._expires is None else [(s.members or {}).get(self._expires) for s in texts]
            parts.append(
                Subscriptions.parse(
                    schema,
                    ids=rows,
                    texts=given,
                    payload=beside,
                    expires=ends,
                    on_error="collect",
                    remarks=False,
                )
            )
        bounds = [s for s in said if s.members is not None and s.condition is None]
        if bounds:
            kept = [*self._payload, *([self._expires] if self._expires else [])]
            table = _table(schema.names, bounds, kept, reasons)
            if len(table):
                options: dict[str, Any] = {"payload": self._payload, "expires": self._expires}
                loaded = Subscriptions.from_arrow(
                    schema, table, id=_ROW, condition=None, on_error="collect", **options
                )
                parts.append(loaded)
        for part in parts:
            for rejected in part.rejected:
                reasons[int(rejected.id)] = rejected.reason
        return Subscriptions.concat(parts) if parts else Subscriptions.empty(schema)

    def _reject(self, message: Any, reason: str) -> None:
        place = f"{self._topic}:{message.partition()}"
        raw = _text(message.value()) or ""
        rejected = RejectedRow(place, message.offset(), None, _text(message.key()), reason, raw)
        self.counts.rejected += 1
        if len(self.counts.first_rejected) < 10:
            self.counts.first_rejected.append(rejected)
        if self._on_rejected is not None:
            self._on_rejected(rejected)
        else:
            _log.warning("%s, offset %d rejected: %r", place, message.offset(), reason)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def _said(message: Any, row: int, reasons: dict[int, str]) -> TopicEntry | None:
    """What a message says; None and a reason when it cannot be read."""
    if row in reasons:
        return None
    if message.value() is None:
        return TopicEntry(row)
    try:
        value = json.loads(message.value())
    except (ValueError, RecursionError) as error:
        reasons[row] = f"a value must be a JSON object or null: {error}"
        return None
    if not isinstance(value, dict):
        reasons[row] = f"a value must be a JSON object or null, got {type(value).__name__}"
        return None
    condition = value.get("condition")
    if condition is not None and not isinstance(condition, str):
        reasons[row] = f"a condition must be a text, got {type(condition).__name__}"
        return None
    return TopicEntry(row, value)


def _values(said: list[TopicEntry], name: str) -> pa.Array[Any]:
    """A member of some values as a column; as texts where they have several types."""
    values = [None if s.members is None else s.members.get(name) for s in said]
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 and kinds <= {str, int, float, bool}:
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError):  # a whole number beyond 64 bits
            pass
    return pa.array([v if v is None or isinstance(v, str) else json.dumps(v) for v in values], STRING)


def _table(
    names: Sequence[str], said: list[TopicEntry], kept: Sequence[str], reasons: dict[int, str]
) -> pa.Table:
    """The bounds of some rows as columns of texts, which are read as those of a CSV file are."""
    columns = [n for name in names for n in (name, f"{name}_low", f"{name}_high") if n not in kept]
    good = []
    for s in said:
        assert s.members is not None
        if not any(s.members.get(name) is not None for name in columns):
            reasons[s.row] = f"a value must have a condition or bounds such as {names[0]}_low"
        else:
            good.append(s)
    out: dict[str, Any] = {_ROW: pa.array([s.row for s in good], INT64)}
    for name in columns:
        values = [None if s.members is None else s.members.get(name) for s in good]
        if any(value is not None for value in values):
            out[name] = pa.array(
                [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values]
            )
    return pa.table(out | {name: _values(good, name) for name in kept})
