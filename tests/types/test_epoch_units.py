"""Timestamps whose numbers count seconds, milliseconds or nanoseconds since 1970."""

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import rows_of
from rangecast.language.lint import lint
from rangecast.types.attributes import LAST, MISSING

pytestmark = pytest.mark.without_kernels

TICKS = {"s": 1, "ms": 1_000, "us": 10**6, "ns": 10**9}
NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
SECONDS = int(NOON.timestamp())


def code_of(at, value):
    encoded = at.encode([value])
    assert not len(encoded.bad), list(encoded.reasons)
    return int(encoded.codes[0])


@pytest.mark.parametrize("unit", TICKS)
@pytest.mark.parametrize(
    "form",
    [
        lambda n: [n], lambda n: [n, None], lambda n: np.array([n]), lambda n: pa.array([n, None]),
        lambda n: [str(n)], lambda n: pa.array([str(n)]), lambda n: [n, NOON], lambda n: [decimal.Decimal(n)],
        lambda n: pa.array([decimal.Decimal(n)]),
    ],
)  # fmt: skip
def test_numbers_of_any_form(unit, form):
    if unit == "us" and isinstance(form(7)[0], str | decimal.Decimal | pa.StringScalar):
        pytest.skip("microseconds that are not declared are whole numbers alone")
    at = rc.Timestamp("at", unit=unit)
    encoded = at.encode(form(SECONDS * TICKS[unit]))
    assert not len(encoded.bad), list(encoded.reasons)
    assert encoded.codes[0] == SECONDS * 10**6
    assert all(code in (MISSING, SECONDS * 10**6) for code in encoded.codes.tolist())


@pytest.mark.filterwarnings("ignore:.*numbers count")
@given(st.integers(-(10**12), 10**12), st.sampled_from(["s", "ms", "ns"]))
def test_every_door_counts_alike(number, unit):
    schema = rc.Schema(rc.Timestamp("at", unit=unit))
    exact = number * 10**6 // TICKS[unit]
    (at,) = schema
    assert code_of(at, number) == exact
    assert at.bracket(number)[0] == exact
    index = rc.open_index("scan", schema)
    index.insert(
        rc.Subscriptions.parse(schema, {1: f"at <= {number}", 2: f"at > {number}", 3: f"at = {number}"})
    )
    whole = number * 10**6 % TICKS[unit] == 0
    wanted = [1, 3] if whole else [1]
    for rows in ([{"at": number}], [{"at": number}, {"at": "2500-01-01"}]):
        assert rows_of(index.match(rc.Events.from_rows(schema, rows)))[0] == wanted
    assert sorted(index.match_one({"at": number})) == wanted
    assert rows_of(index.match(pa.table({"at": [number]}))) == [wanted]


def test_fractions_and_instants():
    at = rc.Timestamp("at", unit="s")
    quarter = SECONDS * 10**6 + 250_000
    assert code_of(at, SECONDS + 0.25) == quarter
    assert code_of(at, f"{SECONDS}.25") == quarter
    assert at.encode(pa.array([SECONDS + 0.25, None])).codes.tolist() == [quarter, MISSING]
    assert at.encode(np.array([SECONDS + 0.25, np.nan])).codes.tolist() == [quarter, MISSING]
    for same in (NOON, NOON.isoformat(), np.datetime64("2026-01-31T12:00"), pa.scalar(NOON)):
        assert code_of(at, same.as_py() if isinstance(same, pa.Scalar) else same) == SECONDS * 10**6
    assert at.decode(SECONDS * 10**6) == NOON
    schema = rc.Schema(at)
    index = rc.open_index("auto", schema)
    index.insert(
        rc.Subscriptions.parse(schema, {1: f"at > {SECONDS}.1", 2: "at on 2026-01-31", 3: "hour(at) = 12"})
    )
    assert rows_of(index.match([{"at": SECONDS}, {"at": SECONDS + 0.25}])) == [[2, 3], [1, 2, 3]]


def test_what_does_not_fit_is_a_bad_row():
    for unit, beyond in (("s", LAST // 10**6 + 1), ("ms", LAST // 1_000 + 1), ("s", -(LAST // 10**6) - 1)):
        schema = rc.Schema(rc.Timestamp("at", unit=unit))
        for rows in ([{"at": beyond}], [{"at": beyond}, {"at": None}], [{"at": str(beyond)}, {"at": 2.5}]):
            assert [r.row for r in rc.Events.from_rows(schema, rows, on_error="collect").rejected] == [0]
        with pytest.raises(rc.EventError):
            rc.open_index("scan", schema).match_one({"at": beyond})
        inside = beyond - (1 if beyond > 0 else -1)
        assert len(rc.Events.from_rows(schema, [{"at": inside}]))
    with pytest.raises(rc.EventError, match="'at' is a timestamp"):
        rc.Events.from_rows(rc.Schema(rc.Timestamp("at", unit="s")), [{"at": True}])


def test_a_schema_file_says_the_unit(tmp_path):
    schema = rc.Schema(rc.Timestamp("at", 0, SECONDS, unit="s"), rc.Timestamp("seen"))
    assert repr(schema) == f"Schema(Timestamp('at', 0, {SECONDS}, unit='s'), Timestamp('seen'))"
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    again = rc.Schema.from_toml(tmp_path / "schema.toml")
    assert again == schema
    assert again["at"].domain == (0, SECONDS * 10**6)
    assert again != rc.Schema(rc.Timestamp("at", 0, SECONDS), rc.Timestamp("seen"))
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: f"at < {SECONDS}"}))
    index.save(tmp_path / "index")
    assert rc.load_index(tmp_path / "index").match_one({"at": SECONDS - 1}).tolist() == [1]
    with pytest.raises(rc.SchemaError, match="unit must be one of s, ms, us, ns, got the string 'sec'"):
        rc.Timestamp("at", unit="sec")
    with pytest.raises(rc.SchemaError, match="attribute 'n': unknown setting unit"):
        rc.Schema.from_dict({"n": {"type": "int", "unit": "s"}})


def test_another_unit_than_the_declared_one_is_said():
    with pytest.warns(
        rc.RangecastWarning, match=r"numbers count s since 1970, which puts these into the year 5"
    ):
        rc.Timestamp("at", unit="s").encode(np.array([SECONDS * 1_000]))
    with pytest.warns(
        rc.RangecastWarning, match="numbers count ms since 1970, which puts these into the year 1970"
    ):
        rc.Timestamp("at", unit="ms").encode(np.array([SECONDS]))
    with pytest.warns(rc.RangecastWarning, match=r"say so in the schema: Timestamp\('at', unit='ms'\)"):
        rc.Timestamp("at").encode(np.array([SECONDS * 1_000]))
    schema = rc.Schema(rc.Timestamp("at", unit="s"))
    assert lint(schema, f"at > {SECONDS} and at > 100") == []
    (found,) = lint(schema, f"at > {SECONDS * 1_000}")
    assert "is read as s since 1970" in str(found)
