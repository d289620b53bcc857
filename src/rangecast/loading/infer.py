"""Guessing a schema from the events of a file, in one pass and bounded memory.

For each column, count how many values could be a whole number, a number, an instant or a boolean. The first
of these that all values fit is taken; when none is, and one but booleans fits at least SURE of them, it is
taken and the exceptions are reported, since a few typing errors should not make a price a category. In text,
true and false or yes and no make a boolean; 1 and 0 are numbers until somebody says otherwise.
What is inside of an object or a struct has the path to it for its name: `user.country`.
Anything else is a category. Parquet says its types itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import SchemaError
from rangecast.loading.files import RowBatch, RowFile
from rangecast.loading.ids import in_one_piece
from rangecast.types.attributes import KINDS, MISSING, Attribute, Bool, Category, Float, Int, Timestamp
from rangecast.types.columns import describe
from rangecast.types.frames import flat_object, flat_table
from rangecast.types.schema import Schema

SURE = 0.95
_WHOLE = r"^\s*[+-]?[0-9]+\s*$"
_DATED = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TRUTH = r"^\s*(?i:true|false|yes|no)\s*$"
_GUESSED: tuple[type[Attribute], ...] = (Int, Float, Timestamp, Bool)


@dataclass
class _Evidence:
    """What the values of one column have been so far."""

    n: int = 0
    fits: dict[str, int] = field(default_factory=lambda: dict.fromkeys([k.kind for k in _GUESSED], 0))
    misfits: dict[str, Any] = field(default_factory=dict)
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Inferred:
    """A schema, and remarks on columns that were not clear."""

    schema: Schema
    remarks: list[str]


def infer_schema(source: RowFile, skip: tuple[str, ...], rows: int, domains: bool) -> Inferred:
    """The schema of a file by its first `rows` rows; `domains` adds the ends of what was seen."""
    names = column_names(source)
    evidence: dict[str, _Evidence] = {name: _Evidence() for name in names if not _skipped(name, skip)}
    objects: dict[str, Any] = {}
    fixed: Schema | None = None
    seen = 0
    for batch in source.batches():
        if isinstance(batch.data, pa.Table):
            table = flat_table(batch.data)
            table = table.select([name for name in table.column_names if not _skipped(name, skip)])
            batch = replace(batch, data=table)
        else:
            batch = replace(batch, data=[flat_object(row) for row in _noted(batch.data, objects)])
        if isinstance(batch.data, pa.Table) and not source.textual and fixed is None:
            fixed = Schema.infer(batch.data)
        names = batch.data.column_names if isinstance(batch.data, pa.Table) else batch.columns
        for name in names:
            if not _skipped(name, skip):
                known = None if fixed is None else (type(fixed[name]),)
                _weigh(evidence.setdefault(name, _Evidence()), batch, name, known, domains)
        seen += len(batch)
        if seen >= rows:
            break
    for name, value in objects.items():
        if name in evidence and evidence[name].n:
            raise SchemaError(
                f"no attribute can hold {describe(value)}, as in {name!r} beside other values; "
                f"leave it out with --skip {name}"
            )
    if not evidence:
        raise SchemaError("no columns are left to make attributes of")
    attributes: list[Attribute] = []
    remarks: list[str] = []
    for name, found in evidence.items():
        kind = type(fixed[name]) if fixed is not None else _decide(name, found, remarks)
        attributes.append(_attribute(kind, name, found.ends.get(kind.kind)))
    return Inferred(Schema(*attributes), remarks)


def column_names(source: RowFile) -> list[str]:
    """The columns of a file with those inside of structs by their paths; none where only reading can tell."""
    if not source.types:
        return list(source.names or ())
    return list(flat_table(pa.schema(list(source.types.items())).empty_table()).column_names)


def _skipped(name: str, skip: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in skip)


def _noted(rows: list[dict[str, Any]], objects: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows; `objects` gets the first object that each key has."""
    for row in rows:
        for name, value in row.items():
            if isinstance(value, dict):
                objects.setdefault(name, value)
    return rows


def _decide(name: str, found: _Evidence, remarks: list[str]) -> type[Attribute]:
    if found.n == 0:
        remarks.append(f"{name!r} has no values: taken as a category")
        return Category
    best = max(_GUESSED, key=lambda kind: found.fits[kind.kind])  # of equals the first, the narrowest
    fitting = found.fits[best.kind]
    if fitting == found.n:
        return best
    if fitting < SURE * found.n or best is Bool:
        return Category
    remarks.append(
        f"{name!r} is taken as {best.kind}, which {found.n - fitting:,} of {found.n:,} values do not fit, "
        f"such as {describe(found.misfits[best.kind])}"
    )
    return best


def _weigh(
    found: _Evidence, batch: RowBatch, name: str, known: tuple[type[Attribute], ...] | None, domains: bool
) -> None:
    """Take the values of a column in one batch into account."""
    column = batch.column(name)
    if isinstance(column, list):
        values, guesses = _of_json(name, column)
    else:
        values, guesses = in_one_piece(column.drop_null()), _GUESSED
    found.n += len(values)
    if known is None:
        for kind in guesses:
            mask = _fits(kind, values)
            found.fits[kind.kind] += int(mask.sum())
            if not mask.all():
                first = values[int(np.flatnonzero(~mask)[0])]
                found.misfits.setdefault(kind.kind, first.as_py() if isinstance(first, pa.Scalar) else first)
    if domains:
        for kind in known or guesses:
            if not issubclass(kind, Category | Bool):
                _stretch(found, kind, name, values)


def _fits(kind: type[Attribute], values: Any) -> npt.NDArray[np.bool_]:
    """Which values are of a kind."""
    out: npt.NDArray[np.bool_] = np.ones(len(values), bool)
    if isinstance(values, pa.Array):
        shape = {Int: _WHOLE, Timestamp: _DATED, Bool: _TRUTH}.get(kind)
        if shape is not None:
            out = pc.match_substring_regex(values, shape).to_numpy(zero_copy_only=False).copy()
            if not out.any():
                return out
    elif kind is Int:
        out = np.array([type(value) is int for value in values], bool)
    elif kind is Float:
        out = np.array([type(value) in (int, float) for value in values], bool)
    out[kind("column").encode(values).bad] = False
    return out


def _of_json(name: str, column: list[Any]) -> tuple[Any, tuple[type[Attribute], ...]]:
    """Values as JSON types them: a number in quotes is a string, though it may be an instant."""
    values = [value for value in column if value is not None]
    for value in values:
        if isinstance(value, dict | list):
            raise SchemaError(
                f"no attribute can hold {describe(value)}, as in {name!r}; leave it out with --skip {name}"
            )
    if values and all(isinstance(value, str) for value in values):
        return pa.array(values, pa.string()), (Timestamp,)
    if values and all(isinstance(value, bool) for value in values):
        return values, (Bool,)
    return values, (Int, Float)


def _stretch(found: _Evidence, kind: type[Attribute], name: str, values: Any) -> None:
    codes = kind(name).encode(values).codes
    codes = codes[codes != MISSING]
    if len(codes):
        low, high = found.ends.get(kind.kind, (int(codes[0]), int(codes[0])))
        found.ends[kind.kind] = min(low, int(codes.min())), max(high, int(codes.max()))


def _attribute(kind: type[Attribute], name: str, ends: tuple[int, int] | None) -> Attribute:
    plain = kind(name)
    if ends is None or issubclass(kind, Category | Bool):
        return plain
    low, high = (plain.decode(code) for code in ends)
    return KINDS[kind.kind](name, low, high)
