"""Strings with an order: `name >= 'M'`, `name BETWEEN 'A' AND 'C'`, beside all that a category takes.

The order is that of the strings' UTF-8 bytes, which is that of their characters' numbers: 'Z' < 'a' < 'ä',
and a string comes before those that it begins. Equality and IN are asked of the attribute's dictionary, as a
category's are. An order is asked of hidden attributes (derived.py) with codes that keep it, eight bytes each:
codes of a fixed width that depend on the string alone, so that they are the same in every process and
version, whatever bounds come later, and exact for strings of any length, since as many parts are compared as
a bound has. Ranks among the bounds that conditions name would be one attribute for bounds of any length; but
each new bound would move those above it, in every index, file and log.
"""

from __future__ import annotations

from typing import Any

from rangecast.errors import SchemaError
from rangecast.types.attributes import KINDS, Category, Interval


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
