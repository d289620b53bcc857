"""Values in JSON, Avro and Protobuf become the same events; what is none of its format is rejected."""

import base64
import datetime as dt
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import rangecast as rc
from rangecast.errors import OptionError, StorageError
from rangecast.kafka import formats as registry_module
from rangecast.kafka.formats import ValueFormat
from rangecast.kafka.messages import MessageForm, matches_to_messages, read_events

sys.path.insert(0, str(Path(__file__).parent))
from schema_registry import serving, wire
from test_messages import Message

SCHEMA = rc.Schema(
    rc.Int("price"),
    rc.Float("change"),
    rc.Category("symbol"),
    rc.Timestamp("at"),
    rc.Category("user.country"),
)
MOMENT = dt.datetime(2026, 1, 31, 8, 0, 0, 250_000, dt.UTC)
ROWS = [
    {"id": "a", "price": 5, "change": -0.5, "symbol": "IBM", "at": MOMENT, "country": "FR"},
    {"id": "b", "price": None, "change": 1.5, "symbol": "HAL", "at": MOMENT, "country": None},
    {"id": "c", "price": 2**62 + 1, "change": 0.0, "symbol": "IBM", "at": MOMENT, "country": "DE"},
]
TEXTS = {
    1: "price < 10",
    2: "symbol = 'IBM'",
    3: "change > 1",
    4: "\"user.country\" = 'FR'",
    5: f"price = {2**62 + 1}",
    6: "price is missing",
    7: "at >= '2026-01-31T08:00:00.25Z' and at < '2026-01-31T08:00:00.250001Z'",
}
RIGHT = {"a": [1, 2, 4, 7], "b": [3, 6, 7], "c": [2, 5, 7]}
AVRO = {
    "type": "record",
    "name": "Tick",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "price", "type": ["null", "long"]},
        {"name": "Change", "type": "double"},
        {"name": "symbol", "type": {"type": "enum", "name": "Symbol", "symbols": ["IBM", "HAL"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": "bytes"},
        {"name": "user", "type": ["null", {"type": "record", "name": "User", "fields": [
            {"name": "country", "type": "string"}]}]},
    ],
}  # fmt: skip


def avro_body(row, schema=AVRO):
    fastavro = pytest.importorskip("fastavro")
    user = None if row["country"] is None else {"country": row["country"]}
    out = io.BytesIO()
    record = {**row, "Change": row["change"], "note": b"\xff", "user": user}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def proto_files():
    """Descriptors of `tick.proto` and of `user.proto`, which it imports, as protoc would make them."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    user = descriptor_pb2.FileDescriptorProto(name="user.proto", package="t", syntax="proto3")
    message = user.message_type.add(name="User")
    message.field.add(name="country", number=1, type=kinds.TYPE_STRING, label=1)
    tick = descriptor_pb2.FileDescriptorProto(name="tick.proto", package="t", syntax="proto3")
    tick.dependency.extend(
        ["user.proto", "google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"]
    )
    tick.message_type.add(name="Other").field.add(name="x", number=1, type=kinds.TYPE_INT64, label=1)
    symbol = tick.enum_type.add(name="Symbol")
    symbol.value.add(name="NONE", number=0)
    symbol.value.add(name="IBM", number=1)
    symbol.value.add(name="HAL", number=2)
    message = tick.message_type.add(name="Tick")
    message.field.add(name="id", number=1, type=kinds.TYPE_STRING, label=1)
    wrapper = {"type": kinds.TYPE_MESSAGE, "type_name": ".google.protobuf.Int64Value"}
    message.field.add(name="price", number=2, label=1, **wrapper)
    message.field.add(name="change", number=3, type=kinds.TYPE_DOUBLE, label=1)
    message.field.add(name="symbol", number=4, type=kinds.TYPE_ENUM, type_name=".t.Symbol", label=1)
    stamp = {"type": kinds.TYPE_MESSAGE, "type_name": ".google.protobuf.Timestamp"}
    message.field.add(name="at", number=5, label=1, **stamp)
    message.field.add(name="user", number=6, type=kinds.TYPE_MESSAGE, type_name=".t.User", label=1)
    return user, tick


def proto_class():
    from google.protobuf import descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in proto_files():
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Tick"))


def proto_body(row):
    out = proto_class()(id=row["id"], change=row["change"], symbol=row["symbol"])
    out.at.FromDatetime(row["at"])
    if row["price"] is not None:
        out.price.value = row["price"]
    if row["country"] is not None:
        out.user.country = row["country"]
    return out.SerializeToString()


def json_body(row):
    user = None if row["country"] is None else {"country": row["country"]}
    return json.dumps({**row, "at": row["at"].isoformat(), "user": user}).encode()


def run(values, form, keep=()):
    """What matches each event, what is sent of it, and what was rejected."""
    index = rc.open_index("scan", SCHEMA)
    index.insert(rc.Subscriptions.parse(SCHEMA, TEXTS))
    messages = [Message(value, offset=k) for k, value in enumerate(values)]
    shape, reader = MessageForm(keep=keep), form.reader()
    sent, rejected = {}, {}
    for batch in read_events(SCHEMA, messages, shape.columns(SCHEMA), "ticks", values=reader):
        matches = index.match(batch.events).sort()
        for out in matches_to_messages(batch, matches, messages, shape, reader):
            found = json.loads(out.value)
            sent[found.pop("event_id")] = found
        rejected |= {row.row: row.reason for row in batch.rejected}
        assert isinstance(batch.rows, np.ndarray)
    return sent, rejected


def ids(sent):
    return {event: found["subscription_ids"] for event, found in sent.items()}


@pytest.fixture
def registry():
    with serving() as (registry, url):
        user, tick = (base64.b64encode(f.SerializeToString()).decode() for f in proto_files())
        registry.add(7, json.dumps(AVRO))
        registry.add(8, "syntax = ...", "PROTOBUF", [("user.proto", "user", 2)], tick)
        registry.refer("user", 2, "syntax = ...", "PROTOBUF", (), user)
        registry.add(9, "{}", "JSON")
        yield registry, url


BODIES = {"json": (9, json_body, b""), "avro": (7, avro_body, b""), "protobuf": (8, proto_body, b"\x02\x02")}


@pytest.mark.parametrize("format", BODIES)
def test_all_formats_are_the_same_events_by_a_registry(registry, format):
    number, body, indexes = BODIES[format]
    good = [wire(number, body(row), indexes) for row in ROWS]
    bad = [None, b"", b"\x01abcd", b"\0\0", wire(99, b"\0"), wire(number, body(ROWS[0])[:-3], indexes)]
    sent, rejected = run([*bad[:3], *good, *bad[3:]], ValueFormat(format, registry[1]), ("symbol", "price"))
    assert ids(sent) == RIGHT
    assert sent["b"] == {"subscription_ids": RIGHT["b"], "symbol": "HAL", "price": None}
    assert sorted(rejected) == [1, 2, 3, 7, 8, 9]
    assert "null or empty" in rejected[1]
    assert "must begin with the byte 0" in rejected[3]
    if format != "json":
        assert rejected[8] == "the registry does not have the schema 99"
        assert rejected[9].startswith("a value must be a ")
        # an answer is kept, and so is that there is none
        assert len(registry[0].asked) == len(set(registry[0].asked))


def test_all_formats_by_a_file(tmp_path):
    from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

    (tmp_path / "tick.avsc").write_text(json.dumps(AVRO))
    known = [descriptor_pb2.FileDescriptorProto.FromString(m.DESCRIPTOR.serialized_pb)
             for m in (timestamp_pb2, wrappers_pb2)]  # fmt: skip
    files = descriptor_pb2.FileDescriptorSet(file=[*known, *proto_files()])
    (tmp_path / "tick.desc").write_bytes(files.SerializeToString())
    avro = ValueFormat("avro", schema_file=str(tmp_path / "tick.avsc"))
    proto = ValueFormat("protobuf", schema_file=str(tmp_path / "tick.desc"), message="t.Tick")
    for form, body in ((ValueFormat(), json_body), (avro, avro_body), (proto, proto_body)):
        sent, rejected = run([body(row) for row in ROWS], form)
        assert ids(sent) == RIGHT, form
        assert not rejected
    with pytest.raises(OptionError, match=r"name the message: it has t\.Other, t\.Tick"):
        ValueFormat("protobuf", schema_file=str(tmp_path / "tick.desc")).reader()
    with pytest.raises(OptionError, match=r"has no message 't\.Tock'; it has t\.Other, t\.Tick"):
        ValueFormat("protobuf", schema_file=str(tmp_path / "tick.desc"), message="t.Tock").reader()
    (tmp_path / "lone.desc").write_bytes(
        descriptor_pb2.FileDescriptorSet(file=proto_files()[1:]).SerializeToString()
    )
    with pytest.raises(OptionError, match="--include_imports"):
        ValueFormat("protobuf", schema_file=str(tmp_path / "lone.desc")).reader()
    for name, said in (("tick.desc", "no Avro schema"), ("none.avsc", "no Avro schema")):
        with pytest.raises(OptionError, match=said):
            ValueFormat("avro", schema_file=str(tmp_path / name)).reader()
    with pytest.raises(OptionError, match="is not a descriptor set"):
        ValueFormat("protobuf", schema_file=str(tmp_path / "tick.avsc")).reader()


def test_schemas_that_differ_within_a_batch(registry):
    """A field that changed its type, one that went, one in another record."""
    other = {"type": "record", "name": "Old", "fields": [{"name": "id", "type": "long"},
             {"name": "price", "type": "string"}]}  # fmt: skip
    registry[0].add(17, json.dumps(other))
    import fastavro

    bodies = []
    for price in ("7", "seven"):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(other), {"id": 12, "price": price})
        bodies.append(wire(17, out.getvalue()))
    sent, rejected = run([wire(7, avro_body(ROWS[0])), *bodies], ValueFormat("avro", registry[1]))
    assert ids(sent) == {"a": RIGHT["a"], "12": [1]}
    assert list(rejected) == [3]
    assert "'price' is an int, got the string 'seven'" in rejected[3]


def test_avro_with_references(registry):
    user = {"type": "record", "name": "User", "fields": [{"name": "country", "type": "string"}]}
    fields = [*AVRO["fields"][:-1], {"name": "user", "type": ["null", "User"]}]
    registry[0].refer("people", 1, json.dumps(user))
    registry[0].add(5, json.dumps({**AVRO, "fields": fields}), references=[("User", "people", 1)])
    sent, _ = run([wire(5, avro_body(ROWS[0]))], ValueFormat("avro", registry[1]))
    assert ids(sent) == {"a": RIGHT["a"]}


def test_a_registry_that_is_down_is_no_fault_of_the_values(registry, monkeypatch):
    monkeypatch.setattr(registry_module.time, "sleep", lambda seconds: None)
    found, url = registry
    found.broken = 2
    assert ids(run([wire(7, avro_body(ROWS[0]))], ValueFormat("avro", url))[0]) == {"a": RIGHT["a"]}
    found.broken = 9
    with pytest.raises(StorageError, match="does not answer: HTTP 503"):
        run([wire(7, avro_body(ROWS[0]))], ValueFormat("avro", url))
    found.broken = 0
    found.user = f"Basic {base64.b64encode(b'ann:s3:cret').decode()}"
    with pytest.raises(StorageError, match="HTTP 401"):
        run([wire(7, avro_body(ROWS[0]))], ValueFormat("avro", url))
    known = url.replace("http://", "http://ann:s3%3Acret@")
    assert ids(run([wire(7, avro_body(ROWS[0]))], ValueFormat("avro", known))[0]) == {"a": RIGHT["a"]}


def test_a_schema_that_comes_later_is_asked_for_again(registry, monkeypatch):
    found, url = registry
    reader = ValueFormat("avro", url).reader()
    text = json.dumps(AVRO)

    def rejected():
        value = [wire(30, avro_body(ROWS[0]))]
        return [row.reason for batch in reader.batches(value, {"id": None}, "t") for row in batch.unread]

    assert rejected() == ["the registry does not have the schema 30"]
    found.add(30, text)
    now = registry_module.time.monotonic()
    assert rejected()
    monkeypatch.setattr(registry_module.time, "monotonic", lambda: now + 60)
    assert rejected() == []


def test_a_schema_of_another_kind_or_none_at_all(registry):
    found, url = registry
    found.add(31, "no json")
    found.add(32, '"string"')
    values = [wire(8, b"x"), wire(31, b"x"), wire(32, b"x")]
    _, rejected = run(values, ValueFormat("avro", url))
    assert rejected[1] == "the schema 8 must be one of Avro, got PROTOBUF"
    assert rejected[2].startswith("the schema 31 cannot be read")
    assert "must be a record" in rejected[3]
    _, rejected = run([wire(7, b"\0"), wire(8, b"\0", b"\x02\x12"), wire(8, b"", b"\xff")],
                      ValueFormat("protobuf", url))  # fmt: skip
    assert rejected[1] == "the schema 7 must be one of Protobuf, got AVRO"
    assert rejected[2] == "the schema 8 has no message at the indexes [9]"
    assert "indexes" in rejected[3]


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_whatever_bytes_come_they_are_an_event_or_rejected(registry, format):
    """Nothing but a row or a reason comes of values that were cut or changed."""
    number, body, indexes = BODIES[format]
    draw = np.random.default_rng(5)
    whole = wire(number, body(ROWS[0]), indexes)
    values = [whole[:k] for k in range(len(whole))]
    for _ in range(300):
        changed = bytearray(whole)
        for at in draw.integers(5, len(whole), 3):
            changed[at] = draw.integers(0, 256)
        values.append(bytes(changed))
    messages = [Message(value) for value in values]
    shape, reader = MessageForm(), ValueFormat(format, registry[1]).reader()
    seen = []
    for batch in read_events(SCHEMA, messages, shape.columns(SCHEMA), "t", values=reader):
        seen += [*batch.rows.tolist(), *(row.row for row in batch.rejected)]
    assert sorted(seen) == list(range(1, len(values) + 1))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"format": "xml"}, "must be one of json, avro, protobuf"),
        ({"format": "avro"}, "need a registry or a schema file"),
        ({"format": "avro", "registry": "http://a", "schema_file": "b"}, "not from both"),
        ({"schema_file": "b"}, "no schema file"),
        ({"format": "avro", "schema_file": "b", "message": "t"}, "nowhere else"),
    ],
)
def test_formats_that_cannot_be(fields, said):
    with pytest.raises(OptionError, match=said):
        ValueFormat(**fields)


def test_a_registry_is_an_address():
    with pytest.raises(OptionError, match="an address such as"):
        ValueFormat("avro", "localhost:8081").reader()
