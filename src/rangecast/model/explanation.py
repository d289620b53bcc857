"""Why a subscription does or does not match an event, predicate by predicate."""

from __future__ import annotations

from typing import Any, NamedTuple

from rangecast.model.events import Events
from rangecast.types.attributes import LAST, MISSING, PRESENT, Attribute, Category, Codes
from rangecast.types.schema import Schema


class Predicate(NamedTuple):
    """One attribute of one box: what it asks for, what the event has, whether that holds."""

    attribute: str
    wanted: str
    value: Any
    holds: bool


class Explanation:
    """The verdict on one subscription and one event; `str` gives it as lines to read."""

    def __init__(self, id: Any, boxes: list[list[Predicate]]) -> None:
        self.id = id
        self.boxes = boxes

    @property
    def matches(self) -> bool:
        """Whether one of the boxes holds."""
        return any(all(p.holds for p in box) for box in self.boxes)

    def __bool__(self) -> bool:
        return self.matches

    def __str__(self) -> str:
        verdict = "matches" if self.matches else "does not match"
        lines = [f"subscription {self.id!r} {verdict}"]
        if not self.boxes:
            lines.append("  its condition can never hold")
        for number, box in enumerate(self.boxes, 1):
            mark = "yes" if all(p.holds for p in box) else "no"
            if len(self.boxes) > 1:
                lines.append(f"  alternative {number} of {len(self.boxes)}: {mark}")
            indent = "    " if len(self.boxes) > 1 else "  "
            if not box:
                lines.append(f"{indent}yes  it asks for nothing")
            for p in box:
                value = "missing" if p.value is None else repr(p.value)
                lines.append(f"{indent}{'yes' if p.holds else 'no':<4} {p.attribute} {p.wanted}: {value}")
        return "\n".join(lines)

    __repr__ = __str__


def explain_boxes(schema: Schema, id: Any, lows: Codes, highs: Codes, events: Events) -> Explanation:
    """The explanation for the boxes of one subscription (columns) and one event."""
    codes = events.codes_for(schema)
    boxes = []
    for b in range(lows.shape[1]):
        predicates = []
        for j, attribute in enumerate(schema):
            low, high, code = int(lows[j, b]), int(highs[j, b]), int(codes[j, 0])
            if low == MISSING and high == LAST:
                continue
            value = events.value(attribute.name, 0)
            predicates.append(
                Predicate(attribute.name, describe_interval(attribute, low, high), value, low <= code <= high)
            )
        boxes.append(predicates)
    return Explanation(id, boxes)


def describe_interval(attribute: Attribute, low: int, high: int) -> str:
    """A closed code interval in words of the language.

    >>> from rangecast import Int
    >>> describe_interval(Int("price"), PRESENT, 9), describe_interval(Int("price"), 3, 3)
    ('<= 9', '= 3')
    """
    if high == MISSING:
        return "is missing"
    if isinstance(attribute, Category) and PRESENT <= low < high and (low, high) != (PRESENT, LAST):
        return _describe_words(attribute, low, high)
    if low == MISSING:
        return "is missing or present" if high == LAST else f"is missing or <= {attribute.decode(high)!r}"
    if low == PRESENT:
        return "is present" if high == LAST else f"<= {attribute.decode(high)!r}"
    if low == high:
        return f"= {attribute.decode(low)!r}"
    if high == LAST:
        return f">= {attribute.decode(low)!r}"
    return f"between {attribute.decode(low)!r} and {attribute.decode(high)!r}"


def _describe_words(attribute: Category, low: int, high: int) -> str:
    """An interval of a dictionary: some words of it, or one side of what != cuts away."""
    if high == LAST:
        return f"!= {attribute.decode(low - 1)!r}, and named after it"
    if low == PRESENT:
        return f"!= {attribute.decode(high + 1)!r}, and named before it or by no subscription"
    shown = [repr(attribute.decode(code)) for code in range(low, min(high, low + 7) + 1)]
    more = f", and {high - low - 7} more" if high - low > 7 else ""
    return f"in ({', '.join(shown)}{more})"
