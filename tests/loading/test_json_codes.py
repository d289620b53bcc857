"""Lines of JSON by the kernel, beside the same lines read one by one."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.loading import json as jsonl_files
from rangecast.loading.events import EventFile
from rangecast.loading.json import JsonLinesFile, LineCoder
from rangecast.model import kernels_rows as decimals

KNOWN = ["DE", "a longer word than eight", "ß", ""]


def make_schema():
    return rc.Schema(
        rc.Int("size"), rc.Float("price"), rc.Category("country", KNOWN), rc.Timestamp("at"), rc.Bool("open")
    )


def read(path, coded, **options):
    """All that a file of events gives, row by row."""
    schema = make_schema()
    rows, rejected = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_files, "LEAST_CODED", 0)
        if not coded:
            patch.setattr(JsonLinesFile, "read_events", lambda *_: None)
            patch.setattr(JsonLinesFile, "_fast", lambda *_: None)
            patch.setattr(jsonl_files, "FEW_LINES", 10**9)
        with EventFile(schema, str(path), **options) as file:
            for batch in file:
                events = batch.events
                for i in range(len(events)):
                    values = [events.value(name, i) for name in schema.names]
                    kept = [column[i].as_py() for column in batch.kept.values()]
                    rows.append((int(batch.rows[i]), batch.ids[i].as_py(), values, kept))
                rejected += batch.rejected
            absent = file.absent
    return rows, rejected, absent


def taken(path, schema=None, **options):
    """How many lines of a file the kernel took."""
    with (
        pytest.MonkeyPatch.context() as patch,
        EventFile(schema or make_schema(), str(path), **options) as file,
    ):
        patch.setattr(jsonl_files, "LEAST_CODED", 0)
        return sum(len(batch) for batch in file._file.batches() if batch.events is not None)


def write(path, lines, end="\n"):
    path.write_bytes(b"".join((x if isinstance(x, bytes) else x.encode()) + end.encode() for x in lines))


VALUES = {
    "size": [0, -7, 12, 2**63 - 1, None],
    "price": [0.0, -0.0, 1, -2.5, 1e-7, 1.7976931348623157e308, 0.1, 123456789.123456789, 5e-324, None],
    "country": ["DE", "a longer word than eight", "ß", "", "none of them", "FRANCE", None],
    "at": [
        "2026-02-28",
        "2024-02-29T23:59:59.123456Z",
        "2026-01-31 12:30",
        "1999-12-31T00:00:00.500+05:30",
        "0002-03-01T00:00-23:59",
        1769817600000000,
        None,
    ],
    "open": [True, False, None],
    "other": ["x", 5, -1.5e3, True, None],
    "id": [1, 2, -3],
}
ODD = [
    '{"size": "7"}', '{"size": 8.0}', '{"size": 1e2}', '{"size": 9223372036854775808}', '{"size": 012}',
    '{"size": -9223372036854775808}', '{"price": "5"}', '{"price": 1e999}',
    '{"price": 12345678901234567890.5}', '{"price": .5}', '{"price": 5.}', '{"price": 1e}', '{"price": -}',
    '{"price": NaN}', '{"country": 5}', '{"country": true}', '{"country": "D\\u0045"}',
    '{"country": "a\tb"}', '{"country": ["DE", "FR"]}', '{"at": "2026-02-30"}', '{"at": "2026-1-31"}',
    '{"at": "2026-01-31T24:00"}', '{"at": "2026-01-31T10:00:00.12"}', '{"at": "2026-01-31T10:00+24:00"}',
    '{"at": 1769817600}', '{"at": -1769817600000000}', '{"at": 1e15}', '{"at": 2.5}', '{"at": ""}',
    '{"open": 1}', '{"open": "true"}', '{"Size": 5}',
    '{"size": 5, "Size": 6}', '{"size": 5, "size": 6}', '{"other": {"a": [1, {}]}, "size": 5}',
    '{"other": {"a": }, "size": 5}', '{"other": tru}', '{"size": 5,}', '{"size": 5} {"size": 6}',
    '{"size": 5} x', '{"size" 5}', '{"size": 5', '{size: 5}', '[1]', '5', '', '  ', '{}',
    ' {"size" :\t5 } ', '{"id": "seven"}', '{"id": null, "size": 5}', '{"other": "a\\"b", "size": 5}',
    '{"oth\\u0065r": 1, "size": 5}', '{"other": "\\ud800"}',
]  # fmt: skip
OBJECTS = st.fixed_dictionaries({}, optional={name: st.sampled_from(v) for name, v in VALUES.items()})
PLAIN = OBJECTS.map(lambda o: json.dumps(o, ensure_ascii=False))
LINES = st.lists(st.one_of(PLAIN, PLAIN, PLAIN, st.sampled_from(ODD)), min_size=1, max_size=40)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from([pa.int64(), pa.string()]))
@example(ODD, "\n", pa.string())
@example(['{"id": 1, "size": 5}', *ODD], "\n", pa.int64())
def test_lines_mean_the_same_by_the_kernel_and_one_by_one(tmp_path_factory, lines, end, ids):
    path = tmp_path_factory.mktemp("lines") / "events.jsonl"
    write(path, lines, end)
    options = {"event_id": "id", "id_type": ids}
    with pytest.MonkeyPatch.context() as patch:
        # however many lines are odd
        patch.setattr("rangecast.loading.json.MOST_PIECES", 10**6)
        patch.setattr("rangecast.loading.json.MOST_ODD", 1.0)
        assert read(path, True, **options) == read(path, False, **options)
        assert read(path, True, keep=["other"], **options) == read(path, False, keep=["other"], **options)


def test_the_kernel_takes_what_is_common(tmp_path):
    path = tmp_path / "events.jsonl"
    rng = np.random.default_rng(3)
    lines = [{name: values[rng.integers(len(values))] for name, values in VALUES.items()} for _ in range(200)]
    # of all that is drawn, only the smallest floats are odd
    lines = [line | {"price": 7.25} if line["price"] == 5e-324 else line for line in lines]
    write(path, [json.dumps(line, ensure_ascii=False) for line in lines])
    assert taken(path) == 200
    assert read(path, True) == read(path, False)


def test_odd_lines_cost_themselves_alone(tmp_path):
    path = tmp_path / "events.jsonl"
    lines = [json.dumps({"id": k, "size": k}) for k in range(500)]
    lines[123], lines[124], lines[400] = "{", '{"id": 124, "size": "7"}', ""
    write(path, lines)
    given = {"event_id": "id", "id_type": pa.int64()}
    assert taken(path, **given) == 497
    # ids that have to be found out are looked for in the first chunk as a whole
    assert taken(path) == 0
    assert read(path, True, **given) == read(path, True) == read(path, False)


def test_many_odd_lines_or_keys_are_left_to_others(tmp_path):
    path = tmp_path / "events.jsonl"
    write(path, [json.dumps({"size": str(k)}) for k in range(50)])
    assert taken(path) == 0
    write(path, [json.dumps({f"key{k}": 1, "size": k}) for k in range(300)])
    assert taken(path) == 0
    assert read(path, True) == read(path, False)


def test_schemas_that_the_kernel_does_not_know_are_left_to_others(tmp_path):
    path = tmp_path / "events.jsonl"
    write(path, [json.dumps({"order": {"size": k}, "size": k}) for k in range(50)])
    assert taken(path, rc.Schema(rc.Int("order.size"))) == 0
    assert taken(path, rc.Schema(rc.Int("size"), rc.Tags("tags"))) == 0
    assert not LineCoder.fits(rc.Schema(rc.Int("id")), {"id": None})


def test_lines_that_are_read_again_leave_no_word_behind(tmp_path):
    path = tmp_path / "events.jsonl"
    # each key is new in the first line, after a word that nobody has named
    line = {"country": "strange"} | {f"key{k}": k for k in range(20)}
    write(path, [json.dumps(line), json.dumps(line)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_files, "LEAST_CODED", 0)
        with EventFile(make_schema(), str(path)) as file:
            (batch,) = file
    assert batch.events._strangers[2].rows.tolist() == [0, 1]
    assert batch.events._strangers[2].words.to_pylist() == ["strange", "strange"]


def test_a_word_that_is_named_after_reading_is_found(tmp_path):
    path = tmp_path / "events.jsonl"
    write(path, ['{"country": "new"}', '{"country": "DE"}', '{"country": "newer"}'])
    schema = make_schema()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_files, "LEAST_CODED", 0)
        with EventFile(schema, str(path)) as file:
            (batch,) = file
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "country = 'newer'", 2: "country != 'new'"}))
    assert [sorted(row.tolist()) for row in index.match(batch.events)] == [[], [2], [1, 2]]


DECIMALS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds("{}e{}".format, st.integers(-(2**63), 2**63), st.integers(-345, 310)),
    st.builds("{}.{}".format, st.integers(-(2**54), 2**54), st.integers(0, 10**6)),
    st.integers(2**53, 2**54).map("{}.5".format),
)


@given(st.lists(DECIMALS, min_size=1, max_size=20))
def test_a_decimal_is_the_nearest_double(tmp_path_factory, decimals):
    path = tmp_path_factory.mktemp("lines") / "events.jsonl"
    write(path, [f'{{"price": {text}}}' for text in decimals])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_files, "LEAST_CODED", 0)
        patch.setattr("rangecast.loading.json.MOST_ODD", 1.0)
        with EventFile(rc.Schema(rc.Float("price")), str(path), event_id="id", id_type=pa.int64()) as file:
            for batch in file._file.batches():
                if batch.events is not None:
                    wanted = rc.Events.from_rows(
                        batch.events.schema, [{"price": float(decimals[row - 1])} for row in batch.rows]
                    )
                    assert batch.events.codes.tolist() == wanted.codes.tolist()


@pytest.mark.parametrize("behind", [b"", b",", b"/0", b":9", b"\xff1", b"}\n", b" 12345678", b"x" * 9])
def test_digits_are_read_to_their_end(behind):
    for n in range(1, 22):
        for text in ("1234567890123456789012"[:n], "9" * n, "0." + "0" * (n - 1) + "7", f"{10**n}.{'5' * n}"):
            raw = np.frombuffer(b"-" + text.encode() + behind, np.uint8).copy()
            for begin, sign in ((0, -1), (1, 1)):
                stop, got, digits, power, whole, many = decimals.read_number(raw, begin, len(raw))
                exact = int(text.replace(".", ""))
                assert (stop, got, whole) == (len(text) + 1, sign, "." not in text)
                assert many == (exact >= 2**63)
                assert many or (digits, power) == (exact, -len(text.partition(".")[2]))
    # digits behind the end are not its own
    raw = np.frombuffer(b"12345678901234", np.uint8).copy()
    for end in range(1, 14):
        assert decimals.read_number(raw, 0, end)[:3] == (end, 1, int(raw[:end].tobytes()))


def test_powers_of_five_are_their_first_128_bits():
    table = decimals.powers_of_five().astype(object)
    for power in (0, 1, 27, 28, 55, 56, 308):
        upper, lower = table[power - decimals.LEAST_POWER]
        exact = 5**power
        assert (upper << 64 | lower) == exact << 256 >> (exact.bit_length() + 128)


def test_whole_numbers_of_another_unit_are_left_to_others(tmp_path):
    path = tmp_path / "events.jsonl"
    write(path, ['{"at": 176981760000000}'] * 50)
    assert taken(path, rc.Schema(rc.Timestamp("at"))) == 50
    assert taken(path, rc.Schema(rc.Timestamp("at", unit="ns"))) == 0
