"""Every reader of an event gives the same for it: the same values or rejection, whatever stands beside.

An event is written as the text of a JSON object. Each reader takes a list of such texts and says of each what
it gave: the values of all attributes, or the reason why it was rejected. Readers are compared with the one
that reads a list of dicts, alone; and that one, for values of which there could be doubt, with `MEANT`.

    beside       what else is read in the same call
    alone        nothing
    a few        two other cases
    sixteen      fifteen good events: so many lines are read by a kernel in the broker
    a thousand   so many other cases

What a format cannot carry is not given to its reader; the reasons are in `CANNOT`. The seed is drawn anew in
each run and named where something differs; RANGECAST_SEED repeats a run.
"""

import io
import json
import math
import os
import random
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rangecast as rc
from rangecast.broker import bodies
from rangecast.broker.access import SpaceLimits
from rangecast.kafka.formats import JsonValues
from rangecast.loading import EventFile
from rangecast.loading import json as jsonl_files
from rangecast.loading.events import ARROW_TYPES, EventColumns, load_events
from rangecast.model import events as marshalled_rows
from rangecast.model.one_event import EventPlan

# of keys that look like an attribute, which many cases have
pytestmark = pytest.mark.filterwarnings("ignore::rangecast.errors.RangecastWarning")

WORDS = ["a", "IBM", "ü", "true", "10.0.0.1"]


def flat():
    """What the kernels read."""
    return rc.Schema(
        rc.Int("n"),
        rc.Float("x"),
        rc.Category("word", WORDS),
        rc.Text("text"),
        rc.Bool("up"),
        rc.Timestamp("at"),
    )


def wide():
    """What they leave to others: names with dots, several values, places, other units."""
    return rc.Schema(
        *flat(), rc.Timestamp("ms", unit="ms"), rc.Tags("tags"), rc.Point("spot"), rc.Float("user.age"),
        rc.Category("user.home.country"),
    )  # fmt: skip


SCHEMAS = {"flat": flat, "wide": wide}
LIMITS = SpaceLimits(line_bytes=100_000, request_events=5_000)

# texts of values as they stand in JSON
NUMBERS = [
    "0", "-0", "-0.0", "0.0", "1", "-1", "7.0", "7.5", "1e2", "1E+2", "100e-2", "1e-7", "0.1", "2.675",
    "9007199254740993", "9007199254740993.0", "1e22", "1e23", "123456789012345678.5",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "18446744073709551615", "18446744073709551616", "1e18", "9.223372036854775e18", "1e19", "1e308", "1e400",
    "-1e400", "5e-324", "1e-400", "1" * 40, "0." + "1" * 40, "1.7976931348623157e308", "1" * 400,
    "1767225600", "1767225600000", "1767225600000000", "1767225600000000.5", "253402300800000000", "1e15",
    "NaN", "Infinity", "-Infinity",
]  # fmt: skip
DATES = [
    "2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01 00:00", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00",
    "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.123456789Z", "20260101",
    "2026-01-01T24:00:00Z", "2026-06-30T23:59:60Z", "2026-02-29", "2026-13-01", "0000-01-01", "0001-01-01",
    "9999-12-31T23:59:59Z", "10000-01-01", "2026-1-1", "01.01.2026", "2026-01-01T00:00:00 Z",
    "2026-01-01T00Z",
    "2026-01-01t00:00:00z", "2026-01-01T00:00:00+0100", "2026-01-01T00:00:00+01", "2026-W01-1", "yesterday",
    "2026-01-01T00:00:00-00:00", "2026-01-01T00:00:00+24:00", " 2026-01-01", "2026-01-01 ", "2026-01-01T",
    "2026-01-01T00:00:00,5Z", "1767225600", "2026-001", "-2026-01-01", "+2026-01-01",
]  # fmt: skip
TEXTS = [
    *WORDS, "", " ", "A", "é", "e\u0301", "\U0001f600", "a\tb", "a\nb", "a\r\nb", "\x00", "\x1f", "\x7f",
    "\ufeffa",
    "false", "True", "TRUE", "yes", "no", "t", "1", "0", "12", " 12", "12 ", "+12", "1_000", "0x10", "١٢",
    "1e3", "1.5",
    "nan", "NaN", "inf", "Infinity", "null", "None", "-0", "1,5", "9223372036854775808", "1" * 40,
    "\u2028", '"', "\\",
    "POINT(13.4 52.5)", "POINT (13.4 52.5)", "13.4,52.5", "POINT(200 0)", "a" * 300, "::1",
]  # fmt: skip
RAW_STRINGS = [
    r'"\u0061"', r'"\u00fc"', r'"\ud83d\ude00"', r'"\ud800"', r'"\udc00\ud800"', r'"\u0000"', r'"\/"',
    r'"\x"',
    '"a\tb"', '"a\x01b"', '"\x7f"', "'a'", '"a',
]  # fmt: skip
OTHERS = [
    "null", "true", "false", "tru", "True", "[]", "{}", "[1]", "[1, 2]", "[1, null]", "[null]", '["a"]',
    '["a", "b"]', '["a", null]', '["a", 1]', "[true]", "[[1]]", "[{}]", '{"b": 1}', "[13.4, 52.5]", "[52.5]",
    '{"lon": 13.4, "lat": 52.5}', '{"lon": 13.4}', "[200, 0]", "[0, 91]", "[1, 2, 3]", '["1", "2"]',
    '{"lat": 1, "lon": "x"}', "", "01", "+1", ".5", "1.", "1e", "--1", "0x1", "1 2", "1,", "nan",
]  # fmt: skip
VALUES = [
    *NUMBERS,
    *(json.dumps(text, ensure_ascii=False) for text in [*DATES, *TEXTS]),
    *RAW_STRINGS,
    *OTHERS,
]
# whole lines
LINES = [
    "", " ", "{}", " {} ", "{", "}", "[]", "[{}]", "5", '"a"', "null", "true", "{}{}", "{} {}", "{},",
    "[1", '{"n"}',
    '{"n" 1}', '{"n":1,}', "{,}", '{n: 1}', "{'n': 1}", '{"n":1}x', '{"n":1}{"n":2}', '{"n":1 "x":2}',
    '\ufeff{"n":1}', '{"n":1} \t', '\t{ "n" : 1 }', '{"n":1}\r', '{"n":\r1}', '{"n":1}\x00', '{"n":1}\x0c',
    '\xa0{"n":1}',
    '{"n":1,"n":2}', '{"n":1,"n":null}', '{"n":"x","n":2}', '{"n":2,"n":"x"}', '{"n":1,"N":2}',
    '{"N":2,"n":1}',
    '{"N":3}', '{"N":3,"N":4}', '{"WORD":"a"}', '{"Word":"a","WORD":"IBM"}', '{"\\u006e":5}', '{"\\u004e":5}',
    '{"n":1,"\\u006e":5}', '{"n ":1}', '{" n":1}', '{"":1}', '{"n":1,"":2}', '{"other":{"n":3}}',
    '{"other":[{"n":3}]}',
    '{"n":1,"other":1e400}', '{"n":1,"other":NaN}', '{"n":1,"other":"\\ud800"}', '{"n":1,"\\ud800":2}',
    '{"n":1,"other":' + "1" * 4_000 + "}", '{"n":1,"other":"a\tb"}', '{"n":1,"other":"\x01"}',
    '{"n":1,"other":tru}', '{"n":1,"other":01}', '{"n":1,"other":"\\x"}',
    '{"n":1,"other":' + "[" * 200 + "]" * 200 + "}",
    '{"user":{"age":5}}', '{"User":{"AGE":5}}', '{"user.age":5}', '{"USER.AGE":5}',
    '{"user.age":5,"user":{"age":6}}',
    '{"user":{"age":6},"user.age":5}', '{"user.age":null,"user":{"age":6}}', '{"user":[{"age":5}]}',
    '{"user":5}',
    '{"user":{"age":"x"}}', '{"user":null}', '{"user":{}}', '{"user":{"home":{"country":"DE"}}}',
    '{"user":{"home.country":"DE"}}', '{"user.home":{"country":"DE"}}', '{"user":{"age":1,"age":2}}',
    '{"user":{"age":1},"user":{"age":2}}', '{"user":{"age":1},"user":null}',
    '{"user":{"age":1},"USER":{"age":2}}',
    '{"user":{"age":1,"AGE":2}}', '{"us\\u0065r":{"age":5}}', '{"user":{"\\u0061ge":5}}',
    '{"user":{"age":1,"home":5}}',
    '{"spot":{"lon":13.4,"lat":52.5}}', '{"spot.lon":13.4}', '{"SPOT":[13.4,52.5]}', '{"n":\u00a01}',
    '{"n":1\u2028}',
]  # fmt: skip


# all texts with every reader take minutes; each run draws others
FULL = os.environ.get("RANGECAST_FULL") == "1"


def seed():
    return int(os.environ.get("RANGECAST_SEED") or int.from_bytes(os.urandom(4)))


def cases(schema, chooser, n):
    """Texts of events: each odd value in each attribute, whole lines, and events of several values."""
    names = list(schema.names)
    out = [f'{{"{name}": {value}}}' for name in names for value in VALUES]
    out += LINES
    keys = [*names, "N", "Word", "user", "User", "other", "id"]
    for _ in range(n):
        some = chooser.choices(keys, k=chooser.randint(1, 5))
        out.append("{" + ", ".join(f'"{key}": {chooser.choice(VALUES)}' for key in some) + "}")
    return out


def said(events, k):
    """The values of an event."""
    return tuple((name, repr(events.value(name, k))) for name in events.schema.names)


def plain(reason):
    """A reason; each reader has its own words for what is no JSON, and columns of floats no whole numbers."""
    reason = re.sub(r"(?<=\d)\.0(?=[],])", "", reason)
    # beside numbers with fractions a whole number is one of them, and its rejection says so
    reason = re.sub(r"got (?:the number )?(-?\d+)(?:\.0)?$", r"got \1", reason)
    unread = ("a line must be", "not JSON", "an event must be a JSON object", "the body is not")
    return NOT_JSON if reason.startswith(unread) else ("rejected", reason)


def outcomes(n, events, rejected):
    """Of each of n events what was given: its values, or the reason why it was rejected."""
    out = [plain(rejected[k]) if k in rejected else None for k in range(n)]
    rest = iter(range(len(events)))
    return [said(events, next(rest)) if one is None else one for one in out]


def loaded(text):
    """The object of a text as Python reads it, None where it is none."""
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


NOT_JSON = ("rejected", "no JSON object")


def of_rows(schema, texts, read):
    """What a reader of dicts gives; texts that are no object are rejected before it."""
    rows = [loaded(text) for text in texts]
    good = [row for row in rows if row is not None]
    found = iter(read(schema, good))
    return [NOT_JSON if row is None else next(found) for row in rows]


def list_of_dicts(schema, texts):
    def read(schema, rows):
        events = rc.Events.from_rows(schema, rows, on_error="collect")
        return outcomes(len(rows), events, dict(events.rejected))

    return of_rows(schema, texts, read)


def marshalled(schema, texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marshalled_rows, "PATIENCE", 0)
        patch.setattr(marshalled_rows, "FEW", 1)
        return list_of_dicts(schema, texts)


def one_dict(schema, texts):
    def read(schema, rows):
        plan = EventPlan(schema)
        return [of_codes(schema, plan, row) for row in rows]

    return of_rows(schema, texts, read)


def of_codes(schema, plan, row):
    """What `match_one` makes of an event: codes, which are compared, and values of those who read columns."""
    try:
        codes = plan.encode(row)
        events = rc.Events.from_rows(schema, [row])
    except rc.EventError as error:
        return plain(str(error).removeprefix("event 0: ").removesuffix(" (1 of 1 events)"))
    if codes is not None:
        assert np.array_equal(np.unique(codes, axis=1), np.unique(events.codes, axis=1)), row
    return said(events, 0)


def pandas_frame(schema, texts):
    def read(schema, rows):
        try:
            # of another type than object, a column rounds whole numbers beside nothing
            events = rc.Events.from_pandas(schema, pd.DataFrame(rows, dtype=object), on_error="collect")
        except rc.EventError as error:
            if "the frame must have a column of the schema" not in str(error):
                raise
            return [None] * len(rows)
        return outcomes(len(rows), events, dict(events.rejected))

    return of_rows(schema, texts, read)


def lines(schema, texts, least=1 << 60):
    """A file of JSON lines, by Arrow and line by line; with `least` of 0 by the kernel where it takes it."""
    body = "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_files, "LEAST_CODED", least)
        with EventFile(schema, "lines", event_id=None, format="jsonl", stream=io.BytesIO(body)) as file:
            file._columns = file._columns._replace(id=None)
            for batch in file:
                at = batch.events
                numbers = [int(row) - 1 for row in (batch.rows if batch.rows is not None else [])]
                for k, row in enumerate(numbers):
                    found[row] = said(at, k)
                for row in batch.rejected:
                    found[row.row - 1] = plain(row.reason)
    # blank lines are none
    filled = iter([found[k] for k in sorted(found)])
    return [None if not text.strip(" \t\r") else next(filled) for text in texts]


def lines_by_kernel(schema, texts):
    return lines(schema, texts, 0)


def kafka_json(schema, texts):
    columns = EventColumns(None, schema.read_names)
    wanted = {name: ARROW_TYPES[schema[name].kind] for name in schema.read_names}
    found = {}
    given = [text.encode("utf-8", "surrogatepass") for text in texts]
    for batch in JsonValues().batches(given, wanted, "ticks"):
        got = load_events(schema, batch, columns, pa.string(), "ticks")
        for k, row in enumerate(got.rows):
            found[int(row) - 1] = said(got.events, k)
        for row in got.rejected:
            found[row.row - 1] = plain(row.reason)
    return [found[k] for k in range(len(texts))]


def broker(kind, join):
    def read(schema, texts):
        got = bodies.read_events(join(texts).encode("utf-8", "surrogatepass"), kind, schema, LIMITS)
        found = iter(outcomes(len(got.events) + len(got.rejected), got.events, dict(got.rejected)))
        return [next(found) if text.strip(BLANKS) else None for text in texts]

    return read


WIDE_NAMES = set(wide().names)
WIDE_HEADS = {name.partition(".")[0].casefold() for name in wide().names}
BLANKS = " \t\r\n"
broker_lines = broker("application/x-ndjson", "\n".join)
broker_array = broker("application/json", lambda texts: "[" + ",".join(texts) + "]")
broker_one = broker("application/json", "".join)


def broker_objects(schema, texts):
    return [broker_one(schema, [text])[0] for text in texts]


READERS = {
    "list of dicts": list_of_dicts,
    "list of dicts by a kernel": marshalled,
    "one dict": one_dict,
    "pandas": pandas_frame,
    "lines": lines,
    "lines by a kernel": lines_by_kernel,
    "Kafka, JSON": kafka_json,
    "broker, an object": broker_objects,
    "broker, lines": broker_lines,
    "broker, an array": broker_array,
}


def is_strict(text):
    """Whether every value of a text is one that JSON itself has, whoever reads it."""

    def number(found):
        if math.isinf(float(found)):
            raise ValueError(found)

    def constant(found):
        raise ValueError(found)

    try:
        json.loads(text, parse_float=number, parse_constant=constant)
    except ValueError as error:
        return isinstance(error, json.JSONDecodeError) or "digits" in str(error)
    except RecursionError:
        return True
    # of a key that comes twice, the value that does not count too
    pairs = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
    return re.search(r"\\u[dD][89a-fA-F]", pairs.sub("", text)) is None


# what a reader is not given, and why: its name begins so, which texts, the reason
CANNOT = [
    ("broker", lambda text: not is_strict(text), "NaN, Infinity, 1e400 and half of a surrogate pair are no "
     "JSON that every consumer reads, and the broker hands on the text as it came"),
    ("broker, an array", lambda text: loaded(text) is None, "what is no JSON makes the whole body none"),
    ("broker, an object", lambda text: not text.strip(BLANKS), "a body without an event has none"),
    ("broker, an object", lambda text: text.strip(BLANKS).startswith("["), "such a body is an array"),
    ("lines", lambda text: not text.strip(BLANKS), "a blank line is no event"),
    ("broker, lines", lambda text: not text.strip(BLANKS), "a blank line is no event"),
    ("lines", lambda text: text.startswith("\ufeff"), "a mark before the first line is of the file"),
]  # fmt: skip


def other_keys(text):
    """Whether a text has an attribute by another key than its name, as it stands."""
    keys = loaded(text) or ()
    return any(key not in WIDE_NAMES and key.partition(".")[0].casefold() in WIDE_HEADS for key in keys)


def carried(reader, beside, texts):
    """The texts that a reader is given."""
    own = [cannot for name, cannot, _ in CANNOT if f"{reader}, {beside}".startswith(name)]
    if reader == "pandas" and beside != "alone":
        own.append(other_keys)
    return [text for text in texts if not any(cannot(text) for cannot in own)]


GOOD = [f'{{"n": {k}, "x": {k}.5, "word": "IBM", "up": true, "text": "t{k}"}}' for k in range(15)]


def groups(beside, texts, chooser):
    """Lists of texts that are read in one call."""
    texts = texts.copy()
    match beside:
        case "alone":
            return [[text] for text in texts]
        case "sixteen":
            some = chooser.sample(texts, min(len(texts), 300 if FULL else 60))
            return [[*GOOD[:k], text, *GOOD[k:]] for text in some for k in [chooser.randint(0, 15)]]
        case "a few":
            chooser.shuffle(texts)
            return [texts[k : k + 3] for k in range(0, len(texts), 3)]
    chooser.shuffle(texts)
    return [texts[k : k + 1_000] for k in range(0, len(texts), 1_000)]


@pytest.fixture(scope="module", params=SCHEMAS)
def drawn(request):
    """A schema, a seed, texts of events, and what each of them means alone."""
    number = seed()
    make = SCHEMAS[request.param]
    chooser = random.Random(number)
    texts = cases(make(), chooser, 300)
    if not FULL:
        texts = chooser.sample(texts, 500)
    texts = list(dict.fromkeys([*texts, *GOOD]))
    return make, number, texts, {text: list_of_dicts(make(), [text])[0] for text in texts}


# what an attribute has by the documentation where there could be doubt; ... where the event is rejected
MEANT = [
    ('{"n": 7.0}', "n", 7), ('{"n": 7.5}', "n", ...), ('{"n": "12"}', "n", 12), ('{"n": 1e2}', "n", 100),
    ('{"n": 9223372036854775807}', "n", 2**63 - 1), ('{"n": 9223372036854775808}', "n", ...),
    ('{"n": true}', "n", ...), ('{"n": ""}', "n", None), ('{"n": null}', "n", None), ('{"n": []}', "n", None),
    ('{"n": NaN}', "n", None), ('{"x": -0.0}', "x", 0.0), ('{"x": 9223372036854775808}', "x", 2.0**63),
    ('{"x": NaN}', "x", None), ('{"x": Infinity}', "x", math.inf), ('{"x": "1e3"}', "x", 1000.0),
    ('{"word": true}', "word", "true"), ('{"word": 5}', "word", ...), ('{"word": ""}', "word", ""),
    ('{"word": null}', "word", None), ('{"word": "A"}', "word", "A"), ('{"up": "yes"}', "up", True),
    ('{"N": 3}', "n", 3), ('{"N": 3, "n": 4}', "n", 4), ('{"Word": "a", "WORD": "IBM"}', "word", None),
    ('{"n": 1, "n": 2}', "n", 2), ('{"n": "x", "n": 2}', "n", 2), ('{"\\u006e": 5}', "n", 5),
    ('{"n": [1, 2]}', "n", [1, 2]), ('{"n": {"b": 1}}', "n", ...), ('{"user": {"age": 5}}', "user.age", 5.0),
    ('{"USER": {"Age": 5}}', "user.age", 5.0), ('{"user.age": 5, "user": {"age": 6}}', "user.age", 5.0),
    ('{"user.age": null, "user": {"age": 6}}', "user.age", None), ('{"user": [{"age": 5}]}', "user.age",
    None),
]  # fmt: skip


def test_what_a_value_means():
    for text, name, value in MEANT:
        [given] = list_of_dicts(wide(), [text])
        assert (given[0] == "rejected") == (value is ...), (text, given)
        if value is not ...:
            assert dict(given)[name] == repr(value), text


@pytest.mark.parametrize("beside", ["alone", "a few", "sixteen", "a thousand"])
@pytest.mark.parametrize("reader", READERS)
def test_all_readers_give_the_same(drawn, reader, beside):
    make, number, texts, meant = drawn
    n, wrong = 0, []
    for group in groups(beside, carried(reader, beside, texts), random.Random(number)):
        found = READERS[reader](make(), group)
        assert len(found) == len(group)
        for text, given in zip(group, found, strict=True):
            # a frame or a table without any column of the schema is refused
            if given is None and reader == "pandas":
                continue
            n += 1
            if given != meant[text]:
                wrong.append((text, different(meant[text], given)))
    print(f"{reader}, {beside}: {n:,} events, RANGECAST_SEED={number}")
    assert not wrong, f"RANGECAST_SEED={number}: {len(wrong)} of {n}: {wrong[:40]}"


def different(meant, given):
    """What differs of two outcomes."""
    if meant is None or given is None or "rejected" in (meant[0], given[0]):
        return meant, given
    return [pair for pair in zip(meant, given, strict=True) if pair[0] != pair[1]]


COLUMN_TYPES = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string()),
    pa.list_(pa.int64()), pa.list_(pa.float64()), pa.list_(pa.string()), pa.large_list(pa.string()),
    pa.list_(pa.bool_()), pa.list_(pa.float64(), 2), pa.struct({"lon": pa.float64(), "lat": pa.float64()}),
    pa.null(),
]  # fmt: skip


def exactly(value, kind):
    """A column of a value beside nulls, None where a type does not hold just that."""
    try:
        column = pa.array([None, value, None], kind)
        held = column.to_pylist()[1]
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None
    same = held == value or (held != held and value != value)
    return column if same and repr(held) == repr(value) else None


def test_columns_of_every_type_of_arrow(drawn):
    make, number, texts, meant = drawn
    n, wrong = 0, []
    for text in texts:
        row = loaded(text)
        if row is None or len(row) != 1:
            continue
        [(name, value)] = row.items()
        for kind in COLUMN_TYPES:
            column = exactly(value, kind)
            if column is None or name not in make().names:
                continue
            for table, k in ((pa.table({name: column}), 1), (pa.table({name: column.slice(1, 1)}), 0)):
                events = rc.Events.from_arrow(make(), table, on_error="collect")
                given = outcomes(len(table), events, dict(events.rejected))[k]
                n += 1
                # a struct is no value of anything but a point, which its type says
                if "got a column of type struct" in given[1] and meant[text][0] == "rejected":
                    continue
                if given != meant[text]:
                    wrong.append((text, str(kind), different(meant[text], given)))
    print(f"Arrow: {n:,} columns, RANGECAST_SEED={number}")
    assert not wrong, f"RANGECAST_SEED={number}: {len(wrong)} of {n}: {wrong[:40]}"


def csv(schema, name, fields):
    """A column of CSV, each field as it stands in the file."""
    body = "".join(f"{line}\n" for line in [f"id,{name}", *(f"1,{field}" for field in fields)])
    found = {}
    with EventFile(schema, "lines", format="csv", stream=io.BytesIO(body.encode())) as file:
        for batch in file:
            for k, row in enumerate(batch.rows):
                found[int(row) - 1] = said(batch.events, k)
            for row in batch.rejected:
                found[row.row - 1] = plain(row.reason)
    return [found[k] for k in range(len(fields))]


def as_field(value):
    """A value as CSV has it, None where it has no such value."""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return None if value is not None else ""


@pytest.mark.parametrize("beside", ["alone", "a thousand"])
def test_fields_of_csv(drawn, beside):
    """A field is a text: it means what the string means in JSON."""
    make, number, texts, meant = drawn
    n, wrong = 0, []
    for name in make().names:
        own = {}
        for text in texts:
            row = loaded(text)
            field = as_field(row[name]) if row is not None and list(row) == [name] else None
            if field is not None:
                own[text] = field
        for group in groups(beside, list(own), random.Random(number)):
            for text, given in zip(group, csv(make(), name, [own[t] for t in group]), strict=True):
                n += 1
                if given != meant[text]:
                    wrong.append((text, different(meant[text], given)))
    print(f"CSV, {beside}: {n:,} fields, RANGECAST_SEED={number}")
    assert not wrong, f"RANGECAST_SEED={number}: {len(wrong)} of {n}: {wrong[:40]}"


SPARK_TYPES = {
    "n": "long",
    "x": "double",
    "word": "string",
    "text": "string",
    "up": "boolean",
    "tags": "array<string>",
}
SPARK_TYPES |= {"user": "struct<age: double>"}
HELD = {"long": int, "double": float, "string": str, "boolean": bool}
ASKED = [
    *(f"{name} is missing" for name in ("n", "x", "word", "text", "up", "tags", "user.age")),
    "n > 0", "n = 7", "n < -9000000000000000000", "n = 9007199254740993", "n > 9223372036854775806", "x = 0",
    "x > 1e307", "x < -1e307", "x = 2.675", "x = 9007199254740992", "word = ''", "word = 'ü'",
    "word = 'true'",
    "word LIKE 'a%'",
    "text = ' '", "text LIKE '%\u2028%'", "text > 'a'",
    "up", "not up", "tags HAS ALL ('a', 'b')",
    "tags HAS 'a'", "user.age = 5", "user.age > 5",
]  # fmt: skip


def for_spark(text):
    """The object of a text where one column of Spark holds just its one value."""
    row = loaded(text)
    if row is None or len(row) != 1 or not row.keys() <= SPARK_TYPES.keys():
        return None
    [(name, value)] = row.items()
    kind = SPARK_TYPES[name]
    if value is None:
        return row
    if kind == "array<string>":
        return (
            row
            if isinstance(value, list) and all(one is None or isinstance(one, str) for one in value)
            else None
        )
    if name == "user":
        age = value.get("age") if isinstance(value, dict) and list(value) == ["age"] else ""
        return row if age is None or isinstance(age, float) else None
    fits = type(value) is HELD[kind] and (kind != "long" or -(2**63) < value < 2**63)
    return row if fits else None


@pytest.mark.spark
def test_rows_of_spark(spark):
    """A DataFrame has no place for rejected rows, and its columns have types; what it holds is the same."""
    from rangecast import spark as rs

    number = seed()
    names = ["n", "x", "word", "text", "up", "tags", "user.age"]
    schema = rc.Schema(*(wide()[name] for name in names))
    texts = [*cases(wide(), random.Random(number), 0), *(f'{{"user": {{"age": {v}}}}}' for v in NUMBERS)]
    rows = [row for row in map(for_spark, texts) if row is not None]
    subs = rc.Subscriptions.parse(schema, dict(enumerate(ASKED)))
    index = rc.open_index("scan", schema)
    index.insert(subs)
    given = [(k, *(row.get(name) for name in SPARK_TYPES)) for k, row in enumerate(rows)]
    columns = ", ".join(f"{name} {kind}" for name, kind in SPARK_TYPES.items())
    frame = spark.createDataFrame(given, f"id long, {columns}")
    table = rs.match(frame, subs, event_id="id").toArrow()
    pairs = set(zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True))
    wrong = []
    for k, row in enumerate(rows):
        expected = set(index.match([row]).ids.tolist())
        if {id for event, id in pairs if event == k} != expected:
            wrong.append(row)
    print(f"Spark: {len(rows):,} rows, RANGECAST_SEED={number}")
    assert len(rows) > 100
    assert not wrong, f"RANGECAST_SEED={number}: {len(wrong)} of {len(rows)}: {wrong[:40]}"
