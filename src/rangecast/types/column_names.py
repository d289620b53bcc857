"""Which column of the input belongs to which attribute, by one rule at every door.

A column is an attribute's when it has its name; or, where no column has, when the two differ in capitals
alone and no other column or attribute does. That is how names in conditions are read as well. A column that
is nobody's is ignored, but for one thing: when its name is close to that of an attribute that has no column,
it was probably meant, and without a word every predicate on that attribute would be false.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from rangecast.errors import EventError, RangecastWarning

_SHOWN = 8


class NamedColumns(NamedTuple):
    """The column of each attribute that has one, the attributes without, and the columns of nobody."""

    columns: dict[str, str]
    absent: list[str]
    unused: list[str]

    def near_misses(self) -> dict[str, str]:
        """Attributes without a column, and the column that was probably meant."""
        folded = {name.casefold(): name for name in self.unused}
        found: dict[str, str] = {}
        for attribute in self.absent if folded else ():
            near = difflib.get_close_matches(attribute.casefold(), folded, n=1, cutoff=0.7)
            if near:
                found[attribute] = folded[near[0]]
        return found

    def check(self, *, strict: bool, every: bool, what: str = "no event", stacklevel: int = 3) -> None:
        """Warn of attributes without a column, all of them or (not `every`) those with a near miss.

        With `strict`, raise EventError for all of them.
        """
        taken = {column.casefold(): column for column in self.columns.values()}
        twins = [name for name in self.unused if name.casefold() in taken]
        if twins:
            beside = taken[twins[0].casefold()]
            message = (
                f"{twins[0]!r} is ignored, because there is also {beside!r}, which differs in capitals alone"
            )
            warnings.warn(message, RangecastWarning, stacklevel=stacklevel)
        near = self.near_misses()
        said = self.absent if every or strict else list(near)
        if said:
            message = describe_absent(said, near, what)
            if strict:
                raise EventError(message)
            warnings.warn(message, RangecastWarning, stacklevel=stacklevel)


def row_keys(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Every key that some row has, in the order of their coming.

    >>> list(row_keys([{"a": 1}, {"b": 2, "a": 3}]))
    ['a', 'b']
    """
    # mostly all rows have the same ones, which comparing tells in a third of the time of gathering
    each = list(map(tuple, rows))
    return each[0] if each.count(each[0]) == len(each) else dict.fromkeys(chain.from_iterable(each))


def named_columns(attributes: Sequence[str], names: Iterable[str]) -> NamedColumns:
    """Match the columns of an input to attributes.

    >>> named_columns(["price", "symbol", "amount"], ["id", "Price", "symbol", "amuont"]).columns
    {'price': 'Price', 'symbol': 'symbol'}
    """
    there = dict.fromkeys(name for name in names if isinstance(name, str))
    known = set(attributes)
    folded: dict[str, list[str]] = {}
    for name in there:
        if name not in known:
            folded.setdefault(name.casefold(), []).append(name)
    alike: dict[str, int] = {}
    for name in attributes:
        alike[name.casefold()] = alike.get(name.casefold(), 0) + 1
    columns: dict[str, str] = {}
    for name in attributes:
        fold = name.casefold()
        if name in there:
            columns[name] = name
        elif len(folded.get(fold, ())) == 1 and alike[fold] == 1:
            columns[name] = folded[fold][0]
    taken = set(columns.values())
    absent = [name for name in attributes if name not in columns]
    return NamedColumns(columns, absent, [name for name in there if name not in taken])


def describe_absent(absent: Sequence[str], near: dict[str, str], what: str = "no event") -> str:
    """The warning about attributes that no event has.

    >>> describe_absent(["amount", "at"], {"amount": "amuont"})
    "no event has a value for 'amount' (did you mean its column 'amuont'?), 'at'"
    """
    shown = [
        f"{name!r}" + (f" (did you mean its column {near[name]!r}?)" if name in near else "")
        for name in absent[:_SHOWN]
    ]
    more = f", and {len(absent) - _SHOWN:,} more" if len(absent) > _SHOWN else ""
    return f"{what} has a value for {', '.join(shown)}{more}"
