"""Attributes: how values of each type become order-preserving int64 codes, exactly.

    type        code
    Int         the value itself
    Timestamp   microseconds since 1970 in UTC; what is finer is cut off
    Float       the IEEE bits, reordered so that integer order is float order; -0.0 is 0.0
    Category    position in the attribute's dictionary (vocabulary.py)
    Bool        0 for false, 1 for true (booleans.py)

The smallest int64 is MISSING, so a value is present when its code is at least PRESENT = MISSING + 1.
No index knows more than this: a predicate is a closed interval of codes, an open end is the
neighbouring code, and "any value or none" is [MISSING, LAST].

Bulk encoding never raises for a bad row: it gives the rows and the reasons back, and the caller
decides whether one bad row stops the load.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import SchemaError, warn
from rangecast.types.arrow_compute import pc
from rangecast.types.booleans import boolean_codes, boolean_of
from rangecast.types.columns import Column, as_column, describe, is_unicode
from rangecast.types.expressions import Expression
from rangecast.types.instants import (
    EPOCH,
    EPOCH_UNITS,
    MICROSECOND,
    instant_of_number,
    instants_of_numpy,
    microseconds_of,
    unit_of_numbers,
)
from rangecast.types.strings import StrangeStrings, is_text, strange_strings, without_views
from rangecast.types.vocabulary import FEW, UNKNOWN, Vocabulary

MISSING = -(2**63)
PRESENT = MISSING + 1
LAST = 2**63 - 1

Codes = npt.NDArray[np.int64]
Interval = tuple[int, int]

VALUE, LOW, HIGH = "value", "low", "high"
_BEFORE, _BEYOND = (MISSING - 2, MISSING - 1), (LAST + 1, LAST + 2)
_SIGN_MASK = np.int64(LAST)


class Encoded(NamedTuple):
    """Codes of a column; `bad` are the rows that have none, with a reason each; `strange` those whose string
    no subscription names, with the strings, where that was found on the way."""

    codes: Codes
    bad: npt.NDArray[np.int64]
    reasons: Sequence[str]
    strange: StrangeStrings | tuple[()] | None = None

    def note(self, reasons: dict[int, str], rows: Any = None, *, every: bool) -> None:
        """Add the reasons of bad rows to those that others have; the rows may have other numbers there.

        Unless `every` reason is wanted, only the first row gets one, and the others an empty text: to say why
        half a million values are wrong takes seconds, and an error names one of them.
        """
        numbers = (self.bad if rows is None else rows).tolist()
        if every:
            for row, reason in zip(numbers, self.reasons, strict=True):
                reasons.setdefault(row, reason)
        elif numbers:
            reasons.setdefault(numbers[0], self.reasons[0])
            for row in numbers:
                reasons.setdefault(row, "")


class Reasons(Sequence[str]):
    """Why an attribute cannot hold some values of a column, made when they are asked for."""

    def __init__(self, attribute: Attribute, column: Column, rows: npt.NDArray[np.int64]) -> None:
        self._attribute, self._column, self._rows = attribute, column, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> list[str]: ...
    def __getitem__(self, key: int | slice) -> str | list[str]:
        if isinstance(key, slice):
            values = self._column.values_at(self._rows[key])
            return [str(self._attribute.wrong(value)) for value in values]
        return self[key : key + 1 or None][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self[:] == list(other)

    __hash__ = None  # type: ignore[assignment]


class Attribute:
    """A named attribute with an optional domain (inclusive), which never changes a match; or, of numbers, one
    that is computed: Float("notional", "price * quantity")."""

    kind: ClassVar[str]
    __slots__ = ("expression", "formula", "high", "low", "name")
    expression: Expression | None
    """What it is computed from, for a hidden attribute (derived.py)."""

    def __init__(self, name: str, low: Any = None, high: Any = None) -> None:
        if not isinstance(name, str) or not name.isprintable() or not name.strip() == name != "":
            raise SchemaError(
                "an attribute's name must be a text in one line without blanks around it, got "
                + describe(name)
            )
        self.name = name
        self.expression = None
        self.formula: str | None = None
        """The expression that a schema declares under this name."""
        if isinstance(low, str) and high is None and self.kind in ("int", "float"):
            self.formula, low = low, None
        self.low = low
        self.high = high
        if low is not None and high is not None:
            a, b = self.bracket(low)[1], self.bracket(high)[0]
            if a > b:
                raise SchemaError(f"attribute {name!r}: low must not exceed high, got [{low}, {high}]")

    def __repr__(self) -> str:
        ends = "" if self.low is None and self.high is None else f", {self.low!r}, {self.high!r}"
        ends = ends if self.formula is None else f", {self.formula!r}"
        return f"{type(self).__name__}({self.name!r}{ends})"

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, Attribute)
            and (self.name, self.low, self.high, self.formula)
            == (other.name, other.low, other.high, other.formula)
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    @property
    def domain(self) -> tuple[int, int] | None:
        """The stated domain as codes, or None when it is not stated on both sides."""
        if self.low is None or self.high is None:
            return None
        return max(self.bracket(self.low)[1], PRESENT), min(self.bracket(self.high)[0], LAST)

    def bracket(self, value: Any) -> Interval:
        """The largest code not above `value` and the smallest not below it (equal when exact).

        Both may lie outside the codes, as Python integers. Raises SchemaError for a wrong type.
        """
        raise NotImplementedError

    def intervals(self, operator: str, value: Any) -> tuple[Interval, ...]:
        """The closed code intervals of `attribute operator value`, for = != < <= > >=."""
        floor, ceil = self.bracket(value)
        match operator:
            case "=":
                ends: tuple[Interval, ...] = ((ceil, floor),)
            case "!=":
                ends = ((PRESENT, ceil - 1), (floor + 1, LAST)) if floor == ceil else ((PRESENT, LAST),)
            case "<":
                ends = ((PRESENT, ceil - 1),)
            case "<=":
                ends = ((PRESENT, floor),)
            case ">":
                ends = ((floor + 1, LAST),)
            case ">=":
                ends = ((ceil, LAST),)
            case _:
                raise SchemaError(f"attribute {self.name!r}: unknown operator {operator!r}")
        clipped = ((max(a, PRESENT), min(b, LAST)) for a, b in ends)
        return tuple((a, b) for a, b in clipped if a <= b)

    def encode(self, values: Any, side: str = VALUE, grow: bool = False) -> Encoded:
        """Codes of a column; null and NaN are MISSING.

        `side` LOW or HIGH rounds a bound that falls between two codes inwards; a plain VALUE that
        falls between two codes is bad. `grow` lets a category name new strings.
        """
        raise NotImplementedError

    def decode(self, code: int) -> Any:
        """The value of a code, None for MISSING."""
        raise NotImplementedError

    def wrong(self, value: Any) -> SchemaError:
        """The error for a value that this attribute cannot hold."""
        return SchemaError(f"{self.name!r} is {self.article} {self.kind}, got {describe(value)}")

    @property
    def article(self) -> str:
        """'a' or 'an', for messages."""
        return "an" if self.kind[0] in "aeiou" else "a"

    def _encoded(self, codes: Codes, bad: npt.NDArray[np.bool_] | None, column: Column) -> Encoded:
        if bad is None or not bad.any():
            return Encoded(codes, np.empty(0, np.int64), [])
        codes[bad] = MISSING
        rows = np.flatnonzero(bad)
        return Encoded(codes, rows, Reasons(self, column, rows))


class Int(Attribute):
    """Whole numbers of 64 bits, except the smallest.

    >>> Int("price", 0, 4_999).intervals("<", 10.5)
    ((-9223372036854775807, 10),)
    """

    kind = "int"
    __slots__ = ()

    def bracket(self, value: Any) -> Interval:
        if isinstance(value, bool | np.bool_) or not isinstance(
            value, int | float | np.integer | np.floating
        ):
            raise self.wrong(value)
        if isinstance(value, int | np.integer):
            return int(value), int(value)
        if math.isnan(value):
            raise self.wrong(value)
        if math.isinf(value):
            return _BEYOND if value > 0 else _BEFORE
        return math.floor(value), math.ceil(value)

    def encode(self, values: Any, side: str = VALUE, grow: bool = False) -> Encoded:
        column = as_column(values)
        codes, bad = column.integers(side)
        return self._encoded(codes, bad, column)

    def decode(self, code: int) -> Any:
        return None if code == MISSING else int(code)


class Timestamp(Attribute):
    """Instants, to the microsecond, in UTC; a time without a zone is taken as UTC.

    Numbers count `unit`s since 1970: seconds "s", "ms", "us" or "ns".

    >>> Timestamp("at", unit="s").decode(Timestamp("at", unit="s").bracket(1_769_817_600)[0]).isoformat()
    '2026-01-31T00:00:00+00:00'
    >>> at = Timestamp("at")
    >>> at.decode(at.bracket("2026-01-02T03:04:05+01:00")[0]).isoformat()
    '2026-01-02T02:04:05+00:00'
    """

    kind = "timestamp"
    __slots__ = ("unit",)

    def __init__(self, name: str, low: Any = None, high: Any = None, *, unit: str = "us") -> None:
        if unit not in EPOCH_UNITS:
            raise SchemaError(
                f"attribute {name!r}: unit must be one of {', '.join(EPOCH_UNITS)}, got {describe(unit)}"
            )
        self.unit = unit
        super().__init__(name, low, high)

    def __repr__(self) -> str:
        told = "" if self.unit == "us" else f", unit={self.unit!r}"
        return f"{super().__repr__()[:-1]}{told})"

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, Timestamp) and self.unit == other.unit

    def __hash__(self) -> int:
        return super().__hash__()

    def bracket(self, value: Any) -> Interval:
        if isinstance(value, str):
            try:
                value = dt.datetime.fromisoformat(value.strip())
            except ValueError:
                raise self.wrong(value) from None
        if isinstance(value, np.datetime64) and not np.isnat(value):
            both = [instants_of_numpy(np.array([value]), side) for side in (HIGH, LOW)]
            if both[0][1] is not None:
                return _BEYOND if value > np.datetime64(0, "s") else _BEFORE
            return int(both[0][0][0]), int(both[1][0][0])
        if isinstance(value, dt.date) and value == value:
            return microseconds_of(value, HIGH), microseconds_of(value, LOW)
        fraction = self.unit != "us" and isinstance(value, float | np.floating) and math.isfinite(value)
        if fraction or (isinstance(value, int | np.integer) and not isinstance(value, bool)):
            return instant_of_number(value, self.unit, HIGH), instant_of_number(value, self.unit, LOW)
        raise self.wrong(value)

    def encode(self, values: Any, side: str = VALUE, grow: bool = False) -> Encoded:
        column = as_column(values)
        codes, bad = column.microseconds(side, self.unit)
        looks = unit_of_numbers(codes) if column.is_numeric else None
        if looks is not None and self.unit == "us":
            short = {"seconds": "s", "milliseconds": "ms"}.get(looks, "ns")
            warn(
                f"{self.name!r}: whole numbers are microseconds since 1970, and these look like {looks}; "
                f"give instants, or say so in the schema: Timestamp({self.name!r}, unit={short!r})"
            )
        elif looks is not None and (self.unit != "s" or looks == "nanoseconds"):
            year = 1970 + int(codes[codes != MISSING][0]) // 31_556_952_000_000
            warn(
                f"{self.name!r}: numbers count {self.unit} since 1970, which puts these into the year "
                f"{year}; is it another unit?"
            )
        return self._encoded(codes, bad, column)

    def decode(self, code: int) -> Any:
        if code == MISSING:
            return None
        try:
            return EPOCH + code * MICROSECOND
        except OverflowError:
            return int(code)


class Float(Attribute):
    """Double-precision numbers; infinities are values, NaN is missing.

    >>> change = Float("change")
    >>> change.decode(change.intervals("<", 0.5)[0][1])
    0.49999999999999994
    """

    kind = "float"
    __slots__ = ()

    def bracket(self, value: Any) -> Interval:
        if isinstance(value, bool | np.bool_) or not isinstance(
            value, int | float | np.integer | np.floating
        ):
            raise self.wrong(value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
        if math.isnan(number):
            raise self.wrong(value)
        # struct rather than float_codes: eight times faster for one number, and conditions hold many
        (bits,) = struct.unpack("<q", struct.pack("<d", number + 0.0))
        code = bits if bits >= 0 else bits ^ LAST
        return code, code

    def encode(self, values: Any, side: str = VALUE, grow: bool = False) -> Encoded:
        column = as_column(values)
        numbers, bad = column.floats()
        return self._encoded(float_codes(numbers), bad, column)

    def decode(self, code: int) -> Any:
        if code == MISSING:
            return None
        return float(decoded_floats(np.array([code], np.int64))[0])


class Category(Attribute):
    """Strings and booleans, compared for equality only; True is the string 'true'.

    >>> symbol = Category("symbol", ["IBM"])
    >>> symbol.intervals("=", "IBM"), symbol.vocabulary.words()
    (((1, 1),), ['IBM'])
    """

    kind = "category"
    __slots__ = ("vocabulary",)

    def __init__(self, name: str, values: Any = ()) -> None:
        super().__init__(name)
        if isinstance(values, str):
            raise SchemaError(f"attribute {name!r}: values must be a list of strings, got {values!r}")
        self.vocabulary = values if isinstance(values, Vocabulary) else Vocabulary(map(self._word, values))

    def _word(self, value: Any) -> str:
        if isinstance(value, bool | np.bool_):
            return "true" if value else "false"
        if isinstance(value, str) and is_unicode(value):
            return str(value)
        raise self.wrong(value)

    def bracket(self, value: Any) -> Interval:
        code = self.vocabulary.add(self._word(value))
        return code, code

    def intervals(self, operator: str, value: Any) -> tuple[Interval, ...]:
        if operator not in ("=", "!="):
            raise SchemaError(f"{self.name!r} is a category: it takes = != IN, got {operator}")
        return super().intervals(operator, value)

    def encode(self, values: Any, side: str = VALUE, grow: bool = False) -> Encoded:
        if not grow and (found := self.find(values)) is not None:
            return found
        column = as_column(values)
        words, bad = column.strings()
        codes = np.full(len(words), MISSING, np.int64)
        valid = pc.is_valid(words).to_numpy(zero_copy_only=False)
        codes[valid] = self.vocabulary.encode(words.drop_null(), grow)
        return self._encoded(codes, bad, column)

    def find(self, column: Any, out: Codes | None = None) -> Encoded | None:
        """What `encode` returns for an Arrow column of text, with its codes in `out` if that is given, and
        None if the column is something else, if it is short, or if some of it is not Unicode."""
        if not isinstance(column, pa.Array | pa.ChunkedArray) or len(column) < FEW:
            return None
        if not is_text(column.type):
            return None
        try:
            column = without_views(column)
            found = self.vocabulary.find(column, out)
            return Encoded(found.codes, np.empty(0, np.int64), [], strange_strings(column, found))
        except pa.ArrowInvalid:
            return None

    def decode(self, code: int) -> Any:
        if code == MISSING:
            return None
        return self.vocabulary.word(code) if code != UNKNOWN else "(a string that no subscription names)"


class Bool(Attribute):
    """True and false, however a column writes them: as booleans, 1 and 0, or words such as yes and no.

    >>> active = Bool("active")
    >>> active.encode(["True", "false", "", "1"]).codes.tolist() == [1, 0, MISSING, 1]
    True
    """

    kind = "bool"
    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name)

    @property
    def domain(self) -> tuple[int, int] | None:
        """Both values."""
        return 0, 1

    def bracket(self, value: Any) -> Interval:
        truth = boolean_of(value)
        if truth is None:
            raise self.wrong(value)
        return int(truth), int(truth)

    def intervals(self, operator: str, value: Any) -> tuple[Interval, ...]:
        if operator not in ("=", "!="):
            raise SchemaError(f"{self.name!r} is a bool: it takes = != IN and IS TRUE, got {operator}")
        code = self.bracket(value)[0] ^ (operator == "!=")
        return ((code, code),)

    def encode(self, values: Any, side: str = VALUE, grow: bool = False) -> Encoded:
        column = as_column(values)
        codes, bad = boolean_codes(column)
        return self._encoded(codes, bad, column)

    def decode(self, code: int) -> Any:
        return None if code == MISSING else code > 0


def float_codes(numbers: npt.NDArray[np.float64]) -> Codes:
    """Order-preserving codes of doubles; NaN is MISSING.

    >>> float_codes(np.array([0.0, -0.0, np.nan])).tolist() == [0, 0, MISSING]
    True
    """
    bits = (np.asarray(numbers, np.float64) + 0.0).view(np.int64)
    codes = np.where(bits < 0, bits ^ _SIGN_MASK, bits)
    codes[np.isnan(numbers)] = MISSING
    return codes


def decoded_floats(codes: Codes) -> npt.NDArray[np.float64]:
    """The doubles of their codes.

    >>> decoded_floats(float_codes(np.array([-1.5, 0.0, 2.0]))).tolist()
    [-1.5, 0.0, 2.0]
    """
    return np.where(codes < 0, codes ^ _SIGN_MASK, codes).view(np.float64)


class Tags(Category):
    """Several strings in one event: lists in rows, in JSON and in Arrow. Conditions ask with HAS."""

    kind = "tags"
    __slots__ = ()


KINDS: dict[str, type[Attribute]] = {k.kind: k for k in (Int, Float, Category, Timestamp, Bool, Tags)}
