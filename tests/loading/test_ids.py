"""The rule for ids, and the pace at which events are matched."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import OptionError
from rangecast.loading import pairs
from rangecast.loading.ids import (
    INT64,
    STRING,
    are_whole,
    column_type,
    named_type,
    parse_id,
    settle,
    typed_ids,
)

pytestmark = pytest.mark.without_kernels

TEXT = st.one_of(
    st.text(alphabet="0123456789+-. x", max_size=21),
    st.integers(-(2**63) - 3, -(2**63) + 3).map(str),
    st.integers(2**63 - 3, 2**63 + 3).map(str),
)


def obvious(text):
    """A text is a whole number when it prints as it was written."""
    try:
        number = int(text)
    except ValueError:
        return False
    return str(number) == text and -(2**63) <= number < 2**63


@given(st.lists(st.one_of(st.none(), TEXT)))
def test_a_text_is_a_whole_number_when_it_prints_as_it_was_written(texts):
    expected = [text is not None and obvious(text) for text in texts]
    assert are_whole(pa.array(texts, pa.string())).to_pylist() == expected
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        ids, reasons = typed_ids(pa.array(texts, kind), INT64, "an event")
        assert ids.to_pylist() == [int(t) if e else None for t, e in zip(texts, expected, strict=True)]
        assert set(reasons) == {row for row, whole in enumerate(expected) if not whole}
    assert typed_ids(list(texts), INT64, "an event") == (ids, reasons)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["7", "8"]), INT64),
        (pa.array(["7", "008"]), STRING),
        (pa.array(["7", "008"]).dictionary_encode(), STRING),
        (pa.array([None, "7"]), INT64),
        (pa.array([None, None], pa.string()), None),
        (pa.array([7], pa.uint8()), INT64),
        ([7, None], INT64),
        ([7, "7"], STRING),
        ([7, 2**63], STRING),
        ([7, True, 5.0], INT64),
        ([None, True], None),
    ],
)
def test_settling(column, expected):
    assert settle(column, untyped=True) == expected
    if isinstance(column, pa.Array) and expected == INT64 and pa.types.is_string(column.type):
        assert settle(column, untyped=False) == STRING


def test_types_that_columns_have():
    assert column_type(pa.dictionary(pa.int32(), pa.large_string())) == STRING
    assert column_type(pa.int16()) == column_type(pa.uint64()) == column_type(pa.null()) == INT64
    assert column_type(pa.float64()) is column_type(pa.bool_()) is column_type(pa.binary()) is None
    assert (named_type("string"), named_type("int64"), named_type(None)) == (STRING, INT64, None)
    with pytest.raises(OptionError, match="id_type must be int64 or string, got 'long'"):
        named_type("long")
    assert [parse_id(text) for text in ("0", "-7", "-0", "x")] == [0, -7, "-0", "x"]


@pytest.mark.parametrize(
    ("column", "id_type", "ids", "reasons"),
    [
        (pa.array([1, 2**63], pa.uint64()), INT64, [1, None], {1: "must be a whole number in this run"}),
        (pa.array([1, 2**63], pa.uint64()), STRING, ["1", str(2**63)], {}),
        (pa.array([1, None], pa.int8()), STRING, ["1", None], {1: "an event must have an id, got null"}),
        (pa.array([1.0, None]), STRING, [None, None], {0: "got the number 1.0", 1: "got null"}),
        (pa.array(["a", "a"]).dictionary_encode(), STRING, ["a", "a"], {}),
        ([1, "1", "x", True, 2**63], INT64, [1, 1, None, None, None], {2: "'x'", 3: "True", 4: str(2**63)}),
        (
            [1, "x", 1.5, 2**63],
            STRING,
            ["1", "x", None, str(2**63)],
            {2: "whole number or a string, got the"},
        ),
    ],
)
def test_ids_in_the_type_of_the_run(column, id_type, ids, reasons):
    found, said = typed_ids(column, id_type, "an event")
    assert (found.type, found.to_pylist()) == (id_type, ids)
    assert set(said) == set(reasons)
    assert all(words in said[row] for row, words in reasons.items())


def test_a_step_follows_what_the_last_one_found(monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", 100)
    steps = pairs.Pace(largest=50)
    taken = []
    for first, last in steps.cut(400):
        taken.append(last - first)
        # ten pairs per event, then a hundred, then none
        steps.seen(last - first, (last - first) * (10 if last < 100 else 100 if last < 104 else 0))
    assert taken == [50, 10, 10, 10, 10, 10, 1, 1, 1, 1, 8, *[50] * 5, 38]
    assert sum(taken) == 400
    steps.seen(0, 0)
    assert pairs.Pace().events == 1000
