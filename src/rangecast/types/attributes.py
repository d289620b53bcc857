"""Attributes: how values of each type become order-preserving int64 codes, exactly.

    type        code
    Int         the value itself
    Timestamp   microseconds since 1970 in UTC; what is finer is cut off
    Float       the IEEE bits, reordered so that integer order is float order; -0.0 is 0.0
    Category    position in the attribute's dictionary (vocabulary.py)
    Bool        0 for false, 1 for true (attributes.py)

The smallest int64 is MISSING, so a value is present when its code is at least PRESENT = MISSING + 1.
No index knows more than this: a predicate is a closed interval of codes, an open end is the
neighbouring code, and "any value or none" is [MISSING, LAST].

Bulk encoding never raises for a bad row: it gives the rows and the reasons back, and the caller
decides whether one bad row stops the load.

An attribute has its encoding twice, side by side: `encode` is of a column, `coder` of one value. A column
takes 30 to 500 us before its first value is looked at, where a coder takes 0.1 us for a value of the types
that events commonly have:

    attribute              values that its coder reads
    Int, Float             int, float
    Category, Text, Tags   str, bool
    Timestamp              datetime, date, int, ISO 8601 as commonly written
    Bool                   bool; int, float or str that writes one
    Point                  all that it takes

Every other value is encoded as a column of its own, so it means the same and is refused for the same reason.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, ClassVar, NamedTuple, overload
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import EventError, SchemaError, warn
from rangecast.types.arrow_compute import pc
from rangecast.types.columns import LISTS, Column, as_column, describe, is_unicode
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
from rangecast.types.numerals import Mask
from rangecast.types.strings import StrangeStrings, is_text, strange_strings, without_views
from rangecast.types.vocabulary import FEW, UNKNOWN, Vocabulary

MISSING = -(2**63)
PRESENT = MISSING + 1
LAST = 2**63 - 1

Codes = npt.NDArray[np.int64]
Interval = tuple[int, int]
ValueCoder = Callable[[Any], int]
"""Gives the code of one value; EventError for a value that has none."""

VALUE, LOW, HIGH = "value", "low", "high"
_BEFORE, _BEYOND = (MISSING - 2, MISSING - 1), (LAST + 1, LAST + 2)
_SIGN_MASK = np.int64(LAST)
_DAY = 86_400_000_000
_FIRST_DAY = 719_163  # 1970-01-01 as Python numbers days
_NAIVE_EPOCH = EPOCH.replace(tzinfo=None)
# what Arrow and Python read alike; any other text is left to columns
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.([0-9]{3}|[0-9]{6}))?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?\Z"
)
# zones whose code is Python's own; another may do anything
_ZONES = (dt.timezone, ZoneInfo)
_double, _bits = struct.Struct("<d"), struct.Struct("<q")


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

    def coder(self) -> ValueCoder:
        """What encodes one value, as `encode` does a column."""
        return self.code_as_column

    def code_as_column(self, value: Any) -> int:
        """The code of one value as a column of its own, for what a coder does not read itself."""
        if isinstance(value, np.generic) and value.dtype.kind in "iuf":
            plain = value.item()
            # a column of numpy's whole numbers has no more than 63 bits
            if type(plain) is float or (type(plain) is int and plain <= LAST):
                return self.coder()(plain)
        if isinstance(value, LISTS):
            raise EventError(f"{self.name!r} must have one value here, got a list of {len(value)}")
        encoded = self.encode([value])
        if len(encoded.bad):
            raise EventError(encoded.reasons[0])
        return int(encoded.codes[0])

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

    def coder(self) -> ValueCoder:
        def code(value: Any) -> int:
            kind = type(value)
            if kind is int and MISSING < value <= LAST:
                return value  # type: ignore[no-any-return]
            if value is None:
                return MISSING
            if kind is float and value.is_integer() and abs(value) < 2.0**63:
                return int(value)
            return self.code_as_column(value)

        return code

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

    def coder(self) -> ValueCoder:
        scale, per = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}[self.unit]

        def code(value: Any) -> int:
            kind = type(value)
            if kind is int and MISSING < value * scale <= LAST:
                return value * scale // per  # type: ignore[no-any-return]
            if value is None:
                return MISSING
            if kind is str and _ISO.match(value):
                try:
                    value = dt.datetime.fromisoformat(value)
                except ValueError:  # a month 13, or the year 0
                    return self.code_as_column(value)
                kind = dt.datetime
            if kind is dt.datetime:
                zone = value.tzinfo
                if zone is None or type(zone) in _ZONES:
                    since = value - (_NAIVE_EPOCH if zone is None else EPOCH)
                    return since.days * _DAY + since.seconds * 1_000_000 + since.microseconds  # type: ignore[no-any-return]
            elif kind is dt.date:
                return int(value.toordinal() - _FIRST_DAY) * _DAY
            return self.code_as_column(value)

        return code

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
        code = float_code(number)
        return code, code

    def encode(self, values: Any, side: str = VALUE, grow: bool = False) -> Encoded:
        column = as_column(values)
        numbers, bad = column.floats()
        return self._encoded(float_codes(numbers), bad, column)

    def coder(self) -> ValueCoder:
        def code(value: Any) -> int:
            kind = type(value)
            if kind is not float:
                if value is None:
                    return MISSING
                if kind is not int or not MISSING < value <= LAST:
                    return self.code_as_column(value)
                value = float(value)
            return float_code(value) if value == value else MISSING

        return code

    def decode(self, code: int) -> Any:
        return None if code == MISSING else decoded_float(code)


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
        self.vocabulary = values if isinstance(values, Vocabulary) else Vocabulary(map(self.word_of, values))

    def word_of(self, value: Any) -> str:
        """The string that a value is here; SchemaError for one that is none."""
        if isinstance(value, bool | np.bool_):
            return "true" if value else "false"
        if isinstance(value, str) and is_unicode(value):
            return str(value)
        raise self.wrong(value)

    def bracket(self, value: Any) -> Interval:
        code = self.vocabulary.add(self.word_of(value))
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

    def coder(self) -> ValueCoder:
        # the dictionary itself: a look-up by a method takes twice the time
        look_up = self.vocabulary.codes.get

        def code(value: Any) -> int:
            if type(value) is str:
                found = look_up(value, UNKNOWN)
                # a string that cannot be written down is in no dictionary
                if found == UNKNOWN and not is_unicode(value):
                    return self.code_as_column(value)
                return found
            if value is None:
                return MISSING
            if type(value) is bool:
                return look_up("true" if value else "false", UNKNOWN)
            return self.code_as_column(value)

        return code

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

    def coder(self) -> ValueCoder:
        def code(value: Any) -> int:
            if type(value) is bool:
                return int(value)
            if value is None:
                return MISSING
            truth = boolean_of(value) if type(value) in (int, float, str) else None
            return self.code_as_column(value) if truth is None else int(truth)

        return code

    def decode(self, code: int) -> Any:
        return None if code == MISSING else code > 0


def float_code(number: float) -> int:
    """The code of a double that is a number.

    >>> float_code(0.0), float_code(-0.0), decoded_float(float_code(-2.5))
    (0, 0, -2.5)
    """
    # struct rather than float_codes: eight times faster for one number, and conditions hold many
    bits: int = _bits.unpack(_double.pack(number + 0.0))[0]
    return bits if bits >= 0 else bits ^ LAST


def decoded_float(code: int) -> float:
    """The double of its code."""
    number: float = _double.unpack(_bits.pack(code if code >= 0 else code ^ LAST))[0]
    return number


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


# Booleans as people and programs write them: true and false, yes and no, 1 and 0.
#
#     form                      true                       false
#     a boolean                 True                       False
#     a number                  1, 1.0                     0, 0.0
#     a text, in any case       true, t, yes, y, on, 1     false, f, no, n, off, 0
#
# An empty text, null and NaN are missing. Anything else is no boolean: it is given back as bad.

_TRUE = ("true", "t", "yes", "y", "on", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "off", "0", "0.0")
_WORDS = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)
_CODES = np.array([*_WORDS.values(), MISSING], np.int64)


def boolean_of(value: Any) -> bool | None:
    """The boolean that one value writes, None where it is none.

    >>> boolean_of("Yes"), boolean_of(0), boolean_of("maybe"), boolean_of(2)
    (True, False, None, None)
    """
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    if isinstance(value, bool | np.bool_ | int | float | np.integer | np.floating):
        return bool(value) if value in (0, 1) else None
    return None


def boolean_codes(column: Column) -> tuple[npt.NDArray[np.int64], Mask | None]:
    """1 for true, 0 for false, MISSING for none; and the rows with a value that is no boolean."""
    data = column.data
    if isinstance(data, pa.Array):
        kind = data.type
        if pa.types.is_boolean(kind):
            codes = data.cast(pa.int8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            if data.null_count:
                codes[data.is_null().to_numpy(zero_copy_only=False)] = MISSING
            return codes, None
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return _codes_of_texts(data)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            return np.full(len(data), MISSING, np.int64), data.is_valid().to_numpy(zero_copy_only=False)
    elif data.dtype.kind == "b":
        return data.astype(np.int64), None
    elif data.dtype.kind == "O":
        return _codes_of_objects(data)
    elif data.dtype.kind not in "iuf":
        return np.full(len(data), MISSING, np.int64), ~np.isnat(data)
    numbers, bad = column.floats()
    codes = np.where(numbers == 1, 1, np.where(numbers == 0, 0, MISSING))
    wrong = (codes == MISSING) & ~np.isnan(numbers)
    return codes, wrong if bad is None else wrong | bad


def _codes_of_texts(texts: pa.Array[Any]) -> tuple[npt.NDArray[np.int64], Mask]:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(texts.cast(pa.large_string())))
    known = pa.array(list(_WORDS), pa.large_string())  # not on import: that would load pandas
    found = pc.index_in(words, known).fill_null(len(known)).to_numpy(zero_copy_only=False)
    codes = _CODES[found]
    blank = pc.equal(words, "").fill_null(True).to_numpy(zero_copy_only=False)
    return codes, (codes == MISSING) & ~blank


def _codes_of_objects(items: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], Mask]:
    codes = np.full(len(items), MISSING, np.int64)
    bad = np.zeros(len(items), bool)
    for row, item in enumerate(items):
        truth = boolean_of(item)
        if truth is not None:
            codes[row] = truth
        elif item is not None and not (isinstance(item, str) and not item.strip()):
            # NaN, NaT and pandas' NA are nulls: none of them equals itself
            bad[row] = type(item).__name__ != "NAType" and bool(item == item)
    return codes, bad


# Strings with an order: `name >= 'M'`, `name BETWEEN 'A' AND 'C'`, beside all that a category takes.
#
# The order is that of the strings' UTF-8 bytes, which is that of their characters' numbers: 'Z' < 'a' < 'ä',
# and a string comes before those that it begins. Equality and IN are asked of the attribute's dictionary, as
# a category's are. An order is asked of hidden attributes (derived.py) with codes that keep it, eight bytes
# each: codes of a fixed width that depend on the string alone, so that they are the same in every process and
# version, whatever bounds come later, and exact for strings of any length, since as many parts are compared
# as a bound has. Ranks among the bounds that conditions name would be one attribute for bounds of any length;
# but each new bound would move those above it, in every index, file and log.


class Text(Category):
    """Strings, compared for equality, by their order and by patterns.

    >>> Text("name").kind, Text("name").vocabulary.words()
    ('text', [])
    """

    kind = "text"
    __slots__ = ()

    def intervals(self, operator: str, value: Any) -> tuple[Interval, ...]:
        if operator not in ("=", "!="):
            raise SchemaError(
                f"{self.name!r} is a text: its order is asked by conditions, got {operator} alone"
            )
        return super().intervals(operator, value)


KINDS[Text.kind] = Text


# Lists of Python values of one type to codes, with no step of Python per value.
#
# A list from rows mostly holds values of one type, and None where a row has none. Arrow takes such a list
# into a column several times as fast when it is told the type as when it has to find out, and strings are
# looked up in the vocabulary's own dictionary by a `map`. Every other list is left to columns.py.
#
#     attribute    types, beside None      by
#     Int          int                     Arrow, as int64
#     Float        float                   Arrow, as float64
#     Category     str                     the vocabulary's dictionary
#     Timestamp    int                     Arrow, as int64
#     Timestamp    datetime                Arrow, as timestamps; one without a zone is UTC

_NONE = type(None)
_SHORT = 4096
_TYPES: dict[type[Attribute], type] = {Int: int, Float: float, Category: str, Text: str, Timestamp: int}

_ARROW: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    dt.datetime: pa.timestamp("us"),
}


def list_codes(attribute: Attribute, items: list[Any]) -> Codes | None:
    """The codes of a list whose values are all good; None where columns.py has to look at it.

    >>> list_codes(Int("a"), [5, None, 7]).tolist() == [5, MISSING, 7]
    True
    >>> list_codes(Int("a"), [5, "7"]) is None
    True
    """
    wanted = _TYPES.get(type(attribute))
    types = set(map(type, items))
    some = _NONE in types
    types.discard(_NONE)
    if isinstance(attribute, Timestamp):
        if attribute.unit != "us":
            return None
        wanted = dt.datetime if types == {dt.datetime} else wanted
    if wanted is None or types != {wanted}:
        return None
    if isinstance(attribute, Category):
        return _words(attribute, items, some)
    if len(items) <= _SHORT and wanted is not dt.datetime and not (some and wanted is float):
        return _short(items, wanted, some)
    try:
        column = pa.array(items, _ARROW[wanted], from_pandas=False)
    except (pa.ArrowException, OverflowError):
        return None
    if wanted is dt.datetime:
        column = column.view(pa.int64())
    if wanted is float:
        return float_codes(column.to_numpy(zero_copy_only=False))
    codes: Codes = np.array(column.fill_null(MISSING)) if some else column.to_numpy()
    # the smallest number is no value, and None is
    if np.count_nonzero(codes == MISSING) != column.null_count:
        return None
    return codes


def _short(items: list[Any], wanted: type, some: bool) -> Codes | None:
    """A short list, whose types are known, packed at once: in a third of numpy's time and a fifth of Arrow's,
    which would import pandas first, half a second; whole numbers with None among them in half of Arrow's."""
    if wanted is float:
        return float_codes(np.frombuffer(struct.pack(f"={len(items)}d", *items), np.float64))
    whole = [MISSING if item is None else item for item in items] if some else items
    try:
        codes = np.frombuffer(struct.pack(f"={len(items)}q", *whole), np.int64)
    except struct.error:
        return None
    missing = np.count_nonzero(codes == MISSING)
    # the smallest number is no value, and None is
    return None if missing and missing != items.count(None) else codes


def _words(attribute: Category, items: list[Any], some: bool) -> Codes | None:
    codes = attribute.vocabulary.look_up_all(items)
    strangers = np.flatnonzero(codes == UNKNOWN)
    if not len(strangers):
        return codes
    # None is in no dictionary either
    unknown = list(map(items.__getitem__, strangers.tolist()))
    if some:
        none = np.fromiter(map(operator.is_, unknown, repeat(None)), bool, len(unknown))
        codes[strangers[none]] = MISSING
        unknown = list(filter(None, unknown))
    # a string that cannot be written down is in no dictionary
    return codes if is_unicode("".join(unknown)) else None
