"""Conditions that were probably meant otherwise: each kind is found, at its place, and nothing else is.

The warning of a load must agree with `lint`: it is found by cheaper means, over shapes and a memo.
"""

import datetime as dt
import random
import warnings

import pyarrow as pa
import pytest

import rangecast as rc
from rangecast.language import clauses_of, lint

pytestmark = pytest.mark.without_kernels

SCHEMA = rc.Schema(
    rc.Int("qty"), rc.Float("price"), rc.Timestamp("at"), rc.Category("symbol"), rc.Bool("active")
)

# condition, the odd part of it, what is said of it, what was probably meant
ODD = [
    ("qty = 10.5", "qty = 10.5", "never equals 10.5", "qty = 10 or qty = 11"),
    ("active and qty != 10.5", "qty != 10.5", "never equals 10.5", "qty IS PRESENT"),
    ("qty in (1, 2.5)", "2.5", "never equals 2.5", "2 or 3"),
    ("qty = 9007199254740993.5", "qty = 9007199254740993.5", "never equals", "9007199254740993 or"),
    ("price > 10 and price < 5", "price > 10 and price < 5", "never hold together", "BETWEEN 5 AND 10"),
    ("qty = 1 or (price < 5 and price > 10)", "price < 5 and price > 10", "never hold", "OR price > 10"),
    ("symbol = 'A' and symbol = 'B'", "symbol = 'A' and symbol = 'B'", "never", "symbol IN ('A', 'B')"),
    ("qty > 3 and qty in (1, 2)", "qty > 3 and qty in (1, 2)", "never hold", "qty > 3 OR qty IN (1, 2)"),
    ("active and not active", "active and not active", "contradict", "OR instead of AND"),
    ("not (price < 6 and price > 6)", "price < 6 and price > 6", "NOT (price", "OR within it"),
    ("not (qty > 1 or qty < 5)", "qty > 1 or qty < 5", "can never hold", "AND within it"),
    ("qty is missing and qty > 3", "qty is missing and qty > 3", "never hold", "qty IS MISSING OR qty > 3"),
    ("price * 2 > 5 and price * 2 < 1", "price * 2 > 5 and price * 2 < 1", "never hold", "OR instead"),
    ("symbol != 'A' or symbol != 'B'", "symbol != 'A' or symbol != 'B'", "every value", "NOT IN ('A', 'B')"),
    ("price > 5 or price < 6", "price > 5 or price < 6", "every value of price", "AND instead of OR"),
    ("qty > 99999999999999999999", "qty > 99999999999999999999", "no value fulfils", "a number from"),
    ("qty < 99999999999999999999", "qty < 99999999999999999999", "every value fulfils", "a number from"),
    ("at = '2026-01-31'", "at = '2026-01-31'", "midnight alone", "at ON 2026-01-31"),
    ("at = 2026-01-31", "at = 2026-01-31", "midnight alone", "at ON 2026-01-31"),
    ("at != 2026-01-31", "at != 2026-01-31", "leaves out midnight", "NOT at ON 2026-01-31"),
    ("at in ('2026-01-31', '2026-02-01T12:00')", "'2026-01-31'", "midnight alone", "at ON 2026-01-31"),
    ("at between 2026-01-01 and 2026-01-31", "2026-01-31", "the day itself", "at < 2026-02-01"),
    ("'2025-12-01' <= at <= '2025-12-31'", "'2025-12-31'", "the day itself", "at < '2026-01-01'"),
    ("at <= '2026-01-31'", "at <= '2026-01-31'", "the day itself", "at < '2026-02-01'"),
    ("at > 1769817600", "at > 1769817600", "microseconds", "2026-01-31T00:00:00Z, if these are seconds"),
    ("at > 1769817600000", "at > 1769817600000", "microseconds", "2026-01-31T00:00:00Z, if these are milli"),
    ("at between 1769817600 and 1769817601", "1769817600", "microseconds", "2026-01-31T00:00:00Z"),
    ("hour(at) = 24", "hour(at) = 24", "hour(at) gives 0 to 23", "0 to 23"),
    ("qty = 1 and not hour(at) >= 24", "hour(at) >= 24", "gives 0 to 23", "0 to 23"),
    ("hour(at) between 22 and 24", "hour(at) between 22 and 24", "hour(at) <= 24", "0 to 23"),
    ("weekday(at) = 0", "weekday(at) = 0", "gives 1 to 7", "Sunday 7"),
    ("weekday(at) in (0, 6)", "weekday(at) in (0, 6)", "weekday(at) = 0", "Monday being 1"),
    ("month(at) = 13 or qty = 1", "month(at) = 13", "gives 1 to 12", "1 to 12"),
    ("minute(at) = 0.5", "minute(at) = 0.5", "minute(at) = 0.5", "0 to 59"),
    ("length(symbol) < 0", "length(symbol) < 0", "length(symbol) gives 0 and more", "0 and more"),
    ("lower(symbol) = 'UA'", "lower(symbol) = 'UA'", "lower(symbol) never equals 'UA'", "'ua'"),
    ("upper(symbol) in ('UA', 'de')", "upper(symbol) in ('UA', 'de')", "never equals 'de'", "'DE'"),
    ("at < 1769817600000000000", "at < 1769817600000000000", "microseconds", "if these are nanoseconds"),
]

FINE = [
    "qty = 10 and price = 10.5 and at ON 2026-01-31",
    "qty < 10.5",
    "0 <= hour(at) and hour(at) < 24 and hour(at) between 0 and 23 and weekday(at) in (1, 7, 'sun')",
    "month(at) = 12 and length(symbol) >= 0 and day(at) <= 31 and minute(at) != 59",
    "lower(symbol) = 'ua' or upper(symbol) != 'UA' and lower(symbol) > 'A' or lower(symbol) = '1ß'",
    "qty > -inf and price < inf",
    "price >= 5 and price <= 5",
    "qty is present or price > 1",
    "'2026-01-01' <= at < '2026-02-01'",
    "at > '2026-01-31' and at >= '2026-02-01'",
    "at = '2026-01-31T00:00'",
    "at <= '2026-01-31T23:59:59'",
    "at between 1769817600000000 and 1769817601000000",
    "not at between '2026-01-01' and '2026-01-31'",
    "symbol != 'A' and symbol != 'B'",
    "at > 5",
    "active or not active",
]


def loaded(texts, **options):
    """The warnings of a load."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rc.Subscriptions.parse(SCHEMA, dict(enumerate(texts)), **options)
    return [str(w.message) for w in said]


@pytest.mark.parametrize(("text", "part", "what", "meant"), ODD)
def test_what_is_odd_is_found_at_its_place(text, part, what, meant):
    found = lint(SCHEMA, text)
    assert text[found[0].start : found[0].end] == part
    assert what in found[0].what
    assert meant in found[0].meant
    # by the tree, and by the columns of its shape
    for texts in ([text], [text] * 12):
        (said,) = loaded(texts)
        assert said.startswith(f"subscription 0: {found[0]}")


@pytest.mark.parametrize("text", FINE)
def test_what_is_fine_is_not_found(text):
    assert lint(SCHEMA, text) == []
    assert loaded([text]) == loaded([text] * 12) == []


def test_a_load_warns_of_what_lint_finds_and_of_nothing_else():
    generator = random.Random(20)
    odd = [text for text, *_ in ODD]
    for _ in range(60):
        joint = generator.choice([" and ", " or "])
        texts = [
            joint.join(f"({generator.choice(odd + FINE * 4)})" for _ in range(generator.randrange(1, 4)))
            for _ in range(generator.randrange(1, 4))
        ]
        assert bool(loaded(texts)) == any(lint(SCHEMA, text) for text in texts), texts


def test_a_condition_without_boxes_is_always_odd():
    generator = random.Random(21)
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    for _ in range(300):
        parts = [
            f"{generator.choice('ab')} {generator.choice(['<', '>', '='])} {generator.randrange(4)}"
            for _ in range(3)
        ]
        text = f"{parts[0]} and ({parts[1]} {generator.choice(['and', 'or'])} {parts[2]})"
        if not clauses_of(schema, text):
            assert lint(schema, text), text


def test_the_warning_counts_and_names_the_line_of_the_caller():
    with pytest.warns(rc.RangecastWarning, match=r"subscription 1: .*\(2 of 3 subscriptions look") as said:
        rc.Subscriptions.parse(SCHEMA, {0: "qty = 1", 1: "qty = 1.5", 2: "at = 2026-01-31"})
    assert said[0].filename == __file__
    table = pa.table({"id": [1], "condition": ["qty = 1.5"]})
    with pytest.warns(rc.RangecastWarning, match="never equals") as said:
        rc.match([{"qty": 1}], table, schema=SCHEMA)
    assert said[0].filename == __file__
    assert loaded(["qty = 1.5"], remarks=False) == []


def test_a_condition_that_cannot_be_read_is_refused_by_lint():
    with pytest.raises(rc.LanguageError, match="unknown attribute"):
        lint(SCHEMA, "prise > 1")


@pytest.mark.parametrize(
    ("unit", "ticks"), [("seconds", 1), ("milliseconds", 1_000), ("nanoseconds", 1_000_000_000)]
)
def test_columns_of_instants_in_other_units_warn(unit, ticks):
    at = [1_769_817_600 * ticks, None, 1_769_817_700 * ticks]
    with pytest.warns(rc.RangecastWarning, match=f"these look like {unit}"):
        rc.Events.from_arrow(SCHEMA, pa.table({"at": pa.array(at, pa.int64())}))
    with pytest.warns(rc.RangecastWarning, match=f"these look like {unit}"):
        rc.Subscriptions.from_arrays(SCHEMA, [1, 2, 3], {"at": pa.array(at, pa.int64())}, {})


def test_columns_of_instants_do_not_warn():
    day = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for column in ([1_769_817_600_000_000], [day], ["2026-01-31"], [5, 1_769_817_600], [None]):
            rc.Events.from_arrays(SCHEMA, {"at": column})


def test_a_number_out_of_range_is_found_in_any_row():
    for k, texts in enumerate((["hour(at) = {}"], ["hour(at) in (1, {})"], ["hour(at) between 1 and {}"])):
        rows = [texts[0].format(3 + j % 5) for j in range(20)]
        for n in (20, 4):  # by columns, and one by one
            assert loaded(rows[:n]) == []
            (said,) = loaded([*rows[: n - 1], texts[0].format(24)])
            assert said.startswith(f"subscription {n - 1}: hour(at)"), k
