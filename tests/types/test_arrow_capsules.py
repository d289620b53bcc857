"""Columns and tables that come by Arrow's C interface from anybody."""

import numpy as np
import pyarrow as pa
import pytest

import rangecast as rc
from rangecast.types.frames import kind_of, table_of

pytestmark = pytest.mark.without_kernels

TABLE = pa.table({"price": [1, None, 3], "symbol": ["A", "B", None], "other": [1.5, 2.5, 3.5]})


class Stream:
    """What knows nothing of PyArrow but its C interface."""

    def __init__(self, held):
        self._held = held

    def __arrow_c_stream__(self, requested_schema=None):
        return self._held.__arrow_c_stream__(requested_schema)


class Array:
    def __init__(self, held):
        self._held = held

    def __arrow_c_array__(self, requested_schema=None):
        return self._held.__arrow_c_array__(requested_schema)


def schema():
    return rc.Schema(rc.Int("price"), rc.Category("symbol", ["A", "B"]))


@pytest.mark.parametrize("given", [Stream(TABLE), Array(TABLE.to_batches()[0]), TABLE.to_batches()[0]])
def test_tables_by_the_c_interface(given):
    wanted = rc.Events.from_arrow(schema(), TABLE)
    assert np.array_equal(rc.Events.from_arrow(schema(), given).codes, wanted.codes)
    assert kind_of(given) == "pyarrow"
    assert table_of(given, "events").equals(TABLE)


def test_columns_by_the_c_interface():
    wanted = rc.Events.from_arrow(schema(), TABLE)
    columns = {
        "price": Stream(TABLE["price"]),
        # not by a cast: what that gives cannot be handed over by PyArrow below 26
        "symbol": Array(pa.array(TABLE["symbol"].to_pylist(), pa.string_view())),
    }
    assert np.array_equal(rc.Events.from_arrays(schema(), columns).codes, wanted.codes)
