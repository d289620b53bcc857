"""Derived attributes: expressions as attributes, hidden ones included, and their values as columns.

A condition may compare any expression over one event (`price * quantity > 1000`). The expression becomes a
*hidden attribute* of the schema, named by its canonical text, and the comparison an interval of its codes;
all subscriptions that use the expression share it. So no index knows about expressions.

Where they live: `Derivations` is a list that only grows, shared by all schema objects that were made from
one, as a category's dictionary is. A `Schema` object never changes: it has the first so many of them, after
the declared attributes, and `widest()` gives one that has all. `Subscriptions` come with the schema that
their conditions needed. An index takes that schema over and lays its boxes out again when it gets a wider
one. `Events` hold what was given, for declared attributes alone, and compute the columns that an index asks
for when it is matched, once per batch; so events that were made before an expression was first used match
it too. A file or a change log has the texts of the hidden attributes in their order.

Strings become codes of eight bytes each that keep their order, the first as one attribute, the next eight
as another, as far as a condition names that many: a digit per byte of UTF-8, base 246, of which 0 is the
end. UTF-8 has no byte above 244, so that eight digits fit into 64 bits.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.durable import lock
from rangecast.errors import CapacityError, SchemaError
from rangecast.types import addresses
from rangecast.types.arrow_compute import pc
from rangecast.types.attributes import (
    LAST,
    MISSING,
    PRESENT,
    Attribute,
    Codes,
    Float,
    Int,
    Timestamp,
    float_code,
    float_codes,
)
from rangecast.types.expressions import FLOAT, INSTANT, PATTERNS, TEXT, Expression, parse_expression
from rangecast.types.kernels import code_texts
from rangecast.types.numerals import Mask
from rangecast.types.patterns import HeldBundle, TraitBundles, buffers_of, names
from rangecast.types.places import degrees_of
from rangecast.types.strings import arrow_words

MAX_DERIVED = 256
"""How many expressions the conditions of one schema may use."""

PART = 8
_BASE = 246
_PART_NAME = re.compile(r"(.*)\[([0-9]+):[0-9]+\]\Z", re.DOTALL)
_KINDS = {"int": "int", "float": "float", "timestamp": INSTANT, "category": TEXT}
_DAY, _HOUR, _MINUTE = 86_400_000_000, 3_600_000_000, 60_000_000
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_OF_WORDS: dict[str, Callable[[str], Any]] = {
    "lower": str.lower,
    "upper": str.upper,
    "reverse": lambda word: word[::-1],
    "length": len,
}


class Values(NamedTuple):
    """A column: int64 or float64 values, or the numbers of words; what is missing has any value."""

    data: npt.NDArray[Any]
    missing: Mask
    words: list[str] | None = None


Look = Callable[[str], Values]


class TextBytes(Attribute):
    """Eight bytes of a string, as a code that keeps their order."""

    kind = "text part"
    __slots__ = ("part",)

    def __init__(self, expression: Expression, part: int) -> None:
        super().__init__(f"{expression.text}[{PART * part}:{PART * part + PART}]")
        self.expression = expression
        self.part = part

    def decode(self, code: int) -> Any:
        if code == MISSING:
            return None
        number, digits = code - PRESENT, []
        for _ in range(PART):
            number, digit = divmod(number, _BASE)
            digits.append(digit)
        raw = bytes(digit - 1 for digit in reversed(digits) if digit)
        return raw.decode(errors="replace")


def derived_attribute(expression: Expression, part: int = 0) -> Attribute:
    """The hidden attribute of an expression, or of a part of it where it gives text."""
    if expression.kind == TEXT:
        return TextBytes(expression, part)
    kinds: dict[str, type[Attribute]] = {FLOAT: Float, INSTANT: Timestamp}
    kind = kinds.get(expression.kind, Int)
    found = kind(expression.text)
    found.expression = expression
    return found


def kinds_of(attributes: Iterable[Attribute]) -> dict[str, str]:
    """What kind of expression each declared attribute is, by name."""
    return {a.name: _KINDS.get(a.kind, a.kind) for a in attributes}


def declared_expression(attribute: Attribute, operands: Mapping[str, str | Expression]) -> Expression:
    """The expression of an attribute that a schema computes."""
    assert attribute.formula is not None
    try:
        found = parse_expression(attribute.formula, operands)
    except SchemaError as error:
        raise SchemaError(f"attribute {attribute.name!r}: {error}") from None
    if found.kind != _KINDS.get(attribute.kind):
        raise SchemaError(
            f"attribute {attribute.name!r}: the expression {attribute.formula!r} gives {found.kind}, "
            f"so it is no {attribute.kind}"
        )
    if found.op == "constant":
        raise SchemaError(f"attribute {attribute.name!r}: {attribute.formula!r} reads no attribute")
    return found


class Derivations:
    """The hidden attributes of a schema: a list that only grows; see the module head.

    >>> from rangecast.types.expressions import attribute
    >>> some = Derivations()
    >>> some.take(0, [derived_attribute(attribute("price", "int"))]), len(some)
    (True, 1)
    """

    def __init__(self, attributes: Iterable[Attribute] = ()) -> None:
        self.attributes: list[Attribute] = list(attributes)
        self.positions = {a.name: k for k, a in enumerate(self.attributes)}
        self.schemas: dict[int, Any] = {}
        self._lock = threading.Lock()
        lock.watch(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self.positions = {a.name: k for k, a in enumerate(self.attributes)}

    def __len__(self) -> int:
        return len(self.attributes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Derivations, (list(self.attributes),)

    def take(self, known: int, fresh: list[Attribute]) -> bool:
        """Append attributes for who knew `known` of them; False if there are more by now."""
        if not fresh:
            return True
        with self._lock:
            if len(self.attributes) != known:
                return False
            if known + len(fresh) > MAX_DERIVED:
                raise CapacityError(
                    f"the conditions of a schema may use {MAX_DERIVED} expressions, and with "
                    f"{fresh[-1].name!r} these use more; bring constants to the other side of a comparison "
                    "(price / close > 1.05 for price > 1.05 * close), so that conditions share an expression"
                )
            for attribute in fresh:
                self.positions[attribute.name] = len(self.attributes)
                self.attributes.append(attribute)
        return True

    def names(self) -> list[str]:
        """The texts of the hidden attributes, in order."""
        return [a.name for a in list(self.attributes)]


def hidden_from(name: str, kinds: Mapping[str, str], traits: TraitBundles) -> Attribute:
    """The hidden attribute of a text that `Derivations.names` gave."""
    if name in names:
        return HeldBundle(name, traits)
    part = _PART_NAME.match(name)
    if part is not None:
        expression = parse_expression(part[1], kinds)
        if expression.kind == TEXT:
            return derived_attribute(expression, int(part[2]) // PART)
    return derived_attribute(parse_expression(name, kinds))


def codes_of(attribute: Attribute, look: Look, n: int, memo: dict[str, Values]) -> Codes:
    """The codes of a derived attribute for n events."""
    assert attribute.expression is not None
    found = evaluate(attribute.expression, look, n, memo)
    if isinstance(attribute, TextBytes):
        assert found.words is not None
        table = np.zeros(max(1, len(found.words)), np.int64)
        code_texts(*buffers_of(arrow_words(found.words)), attribute.part, table)
        codes = table[found.data]
    elif attribute.kind == "float":
        codes = float_codes(found.data.astype(np.float64))
    else:
        codes = found.data.astype(np.int64)
    return np.where(found.missing, MISSING, codes)


def text_code(raw: bytes, part: int) -> int:
    """The code of eight bytes of a string.

    >>> text_code(b"AB", 0) < text_code(b"ABC", 0) < text_code(b"B", 0), text_code(b"AB", 1) == PRESENT
    (True, True)
    """
    return text_range(raw[PART * part : PART * part + PART], whole=True)[0]


def text_range(raw: bytes, *, whole: bool = False) -> tuple[int, int]:
    """The codes of what begins with up to eight bytes; with `whole` of what equals them."""
    number = 0
    for byte in raw:
        number = number * _BASE + byte + 1
    room: int = _BASE ** (PART - len(raw))
    low = number * room + PRESENT
    return low, low if whole else low + room - 1


def evaluate(expression: Expression, look: Look, n: int, memo: dict[str, Values]) -> Values:
    """The values of an expression for n events; `memo` keeps those of its parts by their texts."""
    found = memo.get(expression.text)
    if found is None:
        found = memo[expression.text] = _evaluated(expression, look, n, memo)
    return found


def _evaluated(expression: Expression, look: Look, n: int, memo: dict[str, Values]) -> Values:
    op = expression.op
    if op == "attribute":
        return look(expression.value)
    if op == "constant":
        value = expression.value
        data = np.full(n, float(value)) if expression.kind == FLOAT else np.full(n, int(value), np.int64)
        return Values(data, np.zeros(n, bool))
    args = [evaluate(arg, look, n, memo) for arg in expression.args]
    missing = np.zeros(n, bool)
    if op in ("coalesce", "least", "greatest"):  # missing where all of them are
        missing = np.logical_and.reduce([arg.missing for arg in args])
    else:
        for arg in args:
            missing = missing | arg.missing
    if op in _OF_WORDS:
        return _of_words(op, args[0])
    if op in PATTERNS:
        return _fitting(op, expression.value, args[0])
    if op in ("longitude", "latitude"):
        both = degrees_of(args[0].data)
        return Values(both[op == "latitude"], missing)
    if op in addresses.WORDS:
        return _of_addresses(addresses.WORDS.index(op), args[0])
    with np.errstate(all="ignore"):
        if expression.kind == FLOAT:
            data = _floats(expression, args)
            return (
                Values(data, missing | ~np.isfinite(data))
                if op != "coalesce"
                else _coalesced(args, data.dtype)
            )
        return _whole(expression, args, missing)


def _floats(expression: Expression, args: list[Values]) -> npt.NDArray[np.float64]:
    out: npt.NDArray[np.float64]
    columns = [arg.data.astype(np.float64) for arg in args]
    match expression.op:
        case "sum":
            coefficients, total = expression.value
            out = np.zeros(len(columns[0]))
            for k, (column, coefficient) in enumerate(zip(columns, coefficients, strict=True)):
                term = column if coefficient == 1 else float(coefficient) * column
                out = term if k == 0 else out + term
            return out + float(total) if total else out
        case "product":
            out = columns[0]
            for column in columns[1:]:
                out = out * column
            return out
        case "quotient":
            return np.where(columns[1] == 0, np.nan, columns[0] / columns[1])
        case "abs":
            return np.abs(columns[0])
        case "floor":
            return np.floor(columns[0])
        case "ceil":
            return np.ceil(columns[0])
        case "round":
            scale = 10.0 ** int(expression.args[1].value) if len(columns) > 1 else 1.0
            size = np.abs(columns[0]) * scale
            whole = np.floor(size)
            return np.copysign((whole + (size - whole >= 0.5)) / scale, columns[0])
        case "least":
            out = np.minimum.reduce(_with(args, columns, math.inf))
        case _:
            out = np.maximum.reduce(_with(args, columns, -math.inf))
    return out


def _with(args: list[Values], columns: list[npt.NDArray[Any]], instead: float) -> list[npt.NDArray[Any]]:
    """The columns of some values, with another value instead of those that are missing."""
    return [np.where(arg.missing, instead, column) for arg, column in zip(args, columns, strict=True)]


def _whole(expression: Expression, args: list[Values], missing: Mask) -> Values:
    columns = [np.where(arg.missing, 0, arg.data) for arg in args]
    match expression.op:
        case "sum":
            coefficients, total = expression.value
            sizes = [abs(c) * _largest(column) for c, column in zip(coefficients, columns, strict=True)]
            wide = sum(sizes) + abs(total) > LAST
            data = np.full(len(missing), int(total), object if wide else np.int64)
            for coefficient, column in zip(coefficients, columns, strict=True):
                data = data + int(coefficient) * (column.astype(object) if wide else column)
            return _narrowed(data, missing)
        case "product":
            wide = math.prod(map(_largest, columns)) > LAST
            data = columns[0].astype(object) if wide else columns[0]
            for column in columns[1:]:
                data = data * column
            return _narrowed(data, missing)
        case "abs":
            return Values(np.abs(columns[0]), missing)
        case "least":
            return Values(np.minimum.reduce(_with(args, columns, LAST)), missing)
        case "greatest":
            return Values(np.maximum.reduce(_with(args, columns, PRESENT)), missing)
        case "coalesce":
            return _coalesced(args, np.dtype(np.int64))
        case "round" | "floor" | "ceil":
            return Values(columns[0], missing)
        case _:
            return Values(_calendar(expression.op, columns[0]), missing)


def _calendar(op: str, instants: Any) -> Any:
    """Parts of instants; hour, minute and weekday of plain numbers too."""
    if op == "date":
        return np.where(instants < PRESENT + _DAY, PRESENT, instants // _DAY * _DAY)
    if op == "hour":
        return instants % _DAY // _HOUR
    if op == "minute":
        return instants % _HOUR // _MINUTE
    if op == "weekday":  # 1970-01-01 was a Thursday; Monday is 1
        return (instants // _DAY + 3) % 7 + 1
    days = (instants // _DAY).view("datetime64[D]")
    if op == "day":
        found = (days - days.astype("datetime64[M]")).astype(np.int64) + 1
    elif op == "month":
        found = days.astype("datetime64[M]").astype(np.int64) % 12 + 1
    else:
        found = days.astype("datetime64[Y]").astype(np.int64) + 1970
    return np.asarray(found, np.int64)


def _coalesced(args: list[Values], kind: np.dtype[Any]) -> Values:
    data, missing = args[0].data.astype(kind), args[0].missing
    for arg in args[1:]:
        data = np.where(missing, arg.data.astype(kind), data)
        missing = missing & arg.missing
    return Values(data, missing)


def _of_words(op: str, arg: Values) -> Values:
    assert arg.words is not None
    found = list(map(_OF_WORDS[op], arg.words))
    if op == "length":
        return Values(np.array(found or [0], np.int64)[arg.data], arg.missing)
    return Values(arg.data, arg.missing, found)


def _fitting(op: str, pattern: str, arg: Values) -> Values:
    assert arg.words is not None
    fits = {"contains": pc.match_substring, "like": pc.match_like, "matches": pc.match_substring_regex}[op]
    found = fits(pa.array(arg.words or [""], pa.large_string()), pattern)
    return Values(found.to_numpy(zero_copy_only=False).astype(np.int64)[arg.data], arg.missing)


def _of_addresses(word: int, arg: Values) -> Values:
    assert arg.words is not None
    found = [addresses.words_of(text) for text in arg.words]
    numbers = np.array([0 if one is None else one[word] for one in found] or [0], np.int64)
    absent = np.array([one is None for one in found] or [True], bool)
    # where a value is missing, its place among the words says nothing
    return Values(numbers[arg.data], arg.missing | absent[arg.data])


# The same of one event. Columns of one value would take 20 to 100 us for each expression, mostly spent on
# calls of numpy, where plain numbers take 0.5 to 2 us. A new operator goes into both, and into the texts of
# tests/model/test_one_event.py, by which they are compared.


class Said(Protocol):
    """What one event says."""

    def value(self, name: str) -> Any:
        """The value of an attribute, None where it is missing: an int, a float or a string."""

    def every(self, name: str) -> list[str]:
        """All strings of an attribute."""


def code_of(attribute: Attribute, said: Said) -> int:
    """The code of a derived attribute for one event, as `codes_of` gives it for columns."""
    assert attribute.expression is not None
    found = value_of(attribute.expression, said)
    if found is None:
        return MISSING
    if isinstance(attribute, TextBytes):
        return text_code(found.encode(), attribute.part)
    return float_code(float(found)) if attribute.kind == "float" else int(found)


def value_of(expression: Expression, said: Said) -> Any:
    """The value of an expression for one event, None where it is missing, as `evaluate` gives columns."""
    op, value = expression.op, expression.value
    if op == "attribute":
        return said.value(value)
    if op == "constant":
        return float(value) if expression.kind == FLOAT else int(value)
    if op == "has":
        words = said.every(expression.args[0].value)
        return int(value in words) if words else None
    args = [value_of(arg, said) for arg in expression.args]
    if op == "coalesce":
        found = next((arg for arg in args if arg is not None), None)
        return float(found) if expression.kind == FLOAT and found is not None else found
    if op in ("least", "greatest"):
        args = [arg for arg in args if arg is not None]
    if not args or None in args:
        return None
    if op in _OF_WORDS:
        return _OF_WORDS[op](args[0])
    if op in PATTERNS:
        return int(_fitting(op, value, Values(np.zeros(1, np.int64), np.zeros(1, bool), args)).data[0])
    if op in ("longitude", "latitude"):
        return degrees_of(args[0])[op == "latitude"]
    if op in addresses.WORDS:
        parts = addresses.words_of(args[0])
        return None if parts is None else parts[addresses.WORDS.index(op)]
    if expression.kind == FLOAT:
        number = _float_of(expression, [float(arg) for arg in args])
        return number if math.isfinite(number) else None
    whole = _whole_of(expression, args)
    return whole if -LAST <= whole <= LAST else None


def _float_of(expression: Expression, args: list[float]) -> float:
    first = args[0]
    match expression.op:
        case "sum":
            coefficients, total = expression.numbers
            out = 0.0
            # one by one: Python's sum would correct what rounding loses, and columns do not
            for coefficient, arg in zip(coefficients, args, strict=True):
                out += coefficient * arg
            return out + float(total)
        case "product":
            for arg in args[1:]:
                first *= arg
            return first
        case "quotient":
            return first / args[1] if args[1] else math.nan
        case "abs":
            return abs(first)
        case "floor":
            return float(math.floor(first)) if math.isfinite(first) else first
        case "ceil":
            return float(math.ceil(first)) if math.isfinite(first) else first
        case "round":
            scale = 10.0 ** int(expression.args[1].value) if len(args) > 1 else 1.0
            size = abs(first) * scale
            if not math.isfinite(size):
                return size
            whole = float(math.floor(size))
            return math.copysign((whole + (size - whole >= 0.5)) / scale, first)
        case "least":
            return min(args)
        case _:
            return max(args)


def _whole_of(expression: Expression, args: list[int]) -> int:
    match expression.op:
        case "sum":
            coefficients, out = expression.numbers
            return int(out + sum(c * arg for c, arg in zip(coefficients, args, strict=True)))
        case "product":
            return math.prod(args)
        case "abs":
            return abs(args[0])
        case "least":
            return min(args)
        case "greatest":
            return max(args)
        case "round" | "floor" | "ceil":
            return args[0]
        case "hour" | "minute" | "weekday":
            return int(_calendar(expression.op, args[0]))
        case op:
            day = args[0] // _DAY + _EPOCH_DAY
            if op == "date" or not 1 <= day <= dt.date.max.toordinal():
                return int(_calendar(op, np.array([args[0]]))[0])
            return int(getattr(dt.date.fromordinal(day), op))


def _largest(column: npt.NDArray[Any]) -> int:
    return max(abs(int(column.max())), abs(int(column.min()))) if len(column) else 0


def _narrowed(data: npt.NDArray[Any], missing: Mask) -> Values:
    if data.dtype != object:
        return Values(data, missing)
    beyond = np.array([not -LAST <= value <= LAST for value in data.tolist()], bool)
    return Values(np.where(beyond, 0, data).astype(np.int64), missing | beyond)


def spans_of_number(attribute: Attribute, operator: str, value: Fraction) -> tuple[tuple[int, int], ...]:
    """The intervals of `attribute operator value`, for an exact number."""
    if attribute.kind == "float":
        try:
            return attribute.intervals(operator, float(value))
        except OverflowError:
            return attribute.intervals(operator, math.copysign(math.inf, value))
    if value.denominator == 1:
        return attribute.intervals(operator, int(value))
    if operator in ("=", "!="):
        return ((PRESENT, LAST),) if operator == "!=" else ()
    return attribute.intervals("<=" if operator[0] == "<" else ">", math.floor(value))
