"""Ids: the one rule for which of them are whole numbers, whatever they come from.

An id is an int64 or a string, and all ids of one run have one type. It is settled once, before the first
event is matched, and by the same rule at every door:

    a column with a type    integers are int64, strings are strings; any other type is refused
    CSV                     a text is a whole number only when it prints as it was written and fits int64:
                            0, 7 and -12 are, and 007, +5, 5.0 and 9223372036854775808 are not
    JSON lines              a number that fits int64 is a whole number, one in quotes is a string

Events of text files are settled by the first block of lines (8 MB) of the first file that has an id: int64
when all ids in it are whole numbers, and strings otherwise. `id_type` overrules that. Subscriptions
are loaded as a whole, so all of their ids count. After that an id is taken if it is the same id in the
run's type: in a run of whole numbers a text that prints as one, in a run of strings any text, and a whole
number as it prints. Every other one is rejected with a reason.

The driver of a parallel run settles the type and tells its tasks: none of them could see the others' rows.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import OptionError
from rangecast.model.ids import is_uuid, uuids_as_text
from rangecast.types.columns import describe

INT64, STRING = pa.int64(), pa.string()
_TYPES = {"int64": INT64, "string": STRING}
_SHORT = r"^(0|-?[1-9][0-9]{0,17})$"
# the ends of int64 have 19 digits: texts of equal length compare as the numbers do
_LONG = ((r"^[1-9][0-9]{18}$", str(2**63 - 1)), (r"^-[1-9][0-9]{18}$", str(-(2**63))))


def named_type(name: str | None) -> pa.DataType | None:
    """The type that somebody asked for: "int64", "string", or None to settle it.

    >>> named_type("int64"), named_type(None)
    (DataType(int64), None)
    """
    if name is not None and name not in _TYPES:
        raise OptionError(f"id_type must be int64 or string, got {name!r}")
    return None if name is None else _TYPES[name]


def are_whole(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Which texts are whole numbers as ids; a null is none.

    >>> are_whole(pa.array(["7", "007", "+5", "5.0", "-0", str(2**63 - 1), str(2**63)])).to_pylist()
    [True, False, False, False, False, True, False]
    """
    whole = pc.match_substring_regex(texts, _SHORT).fill_null(False)
    if pc.all(whole).as_py() is False:
        for shape, end in _LONG:
            fits = pc.and_(pc.match_substring_regex(texts, shape), pc.less_equal(texts, end))
            whole = pc.or_(whole, fits.fill_null(False))
    return whole


def parse_id(text: str) -> int | str:
    """One id that came as a text.

    >>> parse_id("7"), parse_id("007")
    (7, '007')
    """
    return int(text) if are_whole(pa.array([text]))[0].as_py() else text


def column_type(kind: pa.DataType) -> pa.DataType | None:
    """What ids of an Arrow type are; None where they cannot be ids."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return INT64
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return STRING if text or is_uuid(kind) else None


def settle(column: Any, untyped: bool) -> pa.DataType | None:
    """The type of a run by some of its ids: an Arrow column, or Python values. None where all are null.

    `untyped` says that texts are all that the file has, as in CSV.
    """
    if isinstance(column, list):
        # what is an id in no run, such as true or 5.0, does not count
        seen = [value for value in column if isinstance(value, str) or type(value) is int]
        if not seen:
            return None
        return INT64 if all(map(_fits, seen)) else STRING
    if column.null_count == len(column):
        return None
    kind = column_type(column.type)
    if kind == STRING and untyped:
        texts = in_one_piece(column).drop_null()
        return INT64 if pc.all(are_whole(texts)).as_py() else STRING
    return kind


def typed_ids(column: Any, id_type: pa.DataType, owner: str) -> tuple[pa.Array[Any], dict[int, str]]:
    """Ids in the type of the run, null where they are none; and the reasons, by position.

    >>> typed_ids([7, "8", "x6", None], INT64, "an event")[0].to_pylist()
    [7, 8, None, None]
    """
    if isinstance(column, list):
        return _one_by_one(column, id_type, owner)
    plain = in_one_piece(column)
    kind = column_type(plain.type)
    if kind is None:
        return _one_by_one(plain.to_pylist(), id_type, owner)
    if pa.types.is_uint64(plain.type) and (pc.max(plain).as_py() or 0) >= 2**63:
        return _one_by_one(plain.to_pylist(), id_type, owner)
    if kind == STRING and id_type == INT64:
        texts = plain.cast(STRING)
        taken = pc.if_else(are_whole(texts), texts, pa.scalar(None, STRING)).cast(INT64)
    else:
        taken = plain.cast(id_type)
    if not taken.null_count:
        return taken, {}
    rows = np.flatnonzero(taken.is_null().to_numpy(zero_copy_only=False))
    given = plain.take(pa.array(rows)).to_pylist()
    return taken, {int(row): _reason(value, id_type, owner) for row, value in zip(rows, given, strict=True)}


def id_text(value: Any) -> str | None:
    """An id as the list of rejected rows shows it."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=str)


def in_one_piece(column: pa.ChunkedArray | pa.Array[Any]) -> pa.Array[Any]:
    """A column without chunks and without a dictionary, of a type that Arrow can take rows of."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    if pa.types.is_string_view(column.type):
        return column.cast(STRING)
    if is_uuid(column.type):
        return uuids_as_text(column).cast(STRING)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _fits(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _one_by_one(values: list[Any], id_type: pa.DataType, owner: str) -> tuple[pa.Array[Any], dict[int, str]]:
    """Values of several types: lines of JSON that Arrow could not read at once."""
    texts = pa.array([value if isinstance(value, str) else None for value in values], STRING)
    whole = are_whole(texts).to_pylist() if id_type == INT64 else []
    taken: list[Any] = []
    for row, value in enumerate(values):
        if id_type == STRING:
            known = isinstance(value, str) or type(value) is int
            taken.append(str(value) if known else None)
        else:
            taken.append(int(value) if _fits(value) or whole[row] else None)
    wrong = [row for row, value in enumerate(taken) if value is None]
    return pa.array(taken, id_type), {row: _reason(values[row], id_type, owner) for row in wrong}


def _reason(value: Any, id_type: pa.DataType, owner: str) -> str:
    if value is None:
        return f"{owner} must have an id, got null"
    if id_type == INT64:
        return f"{owner}'s id must be a whole number in this run, got {describe(value)}"
    return f"{owner}'s id must be a whole number or a string, got {describe(value)}"
