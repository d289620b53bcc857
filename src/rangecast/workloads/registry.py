"""What a workload is, and the table of those that have a name.

A generator is a function `(draw, n_subscriptions, n_events, **options) -> Drawn`, entered under one
or more names by `@named`; its keyword defaults are the workload's parameters, and a name may preset
some of them. Subscriptions are columns, as `Subscriptions.from_arrays` takes them:

    field     form
    ids       int64, 1 to n
    lows      attribute name -> column of n lower bounds, inclusive; NaN, NaT and None are "not bounded"
    highs     the same for upper bounds; an attribute in neither is ignored
    columns   attribute name -> column of the events' values; NaN, NaT and None are "missing"

A workload of many attributes, of which each row has few, has `predicates` and `values` as well: the same
subscriptions and events as sparse entries (registry.py), of which its columns are views.

Subscriptions and events come from two generators of one seed, so that a change of the number of
subscriptions leaves the events as they are wherever events do not follow subscriptions.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError
from rangecast.language.kernels import SET
from rangecast.model.boxes import SparseBoxes, ragged, starts_of
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.wide_events import EventEntries
from rangecast.types.attributes import Attribute, Category, Timestamp
from rangecast.types.schema import Schema

SEED = 2026

DrawnColumn = npt.NDArray[Any]
DrawnColumns = dict[str, DrawnColumn]
ColumnView = Mapping[str, DrawnColumn]


@dataclass(frozen=True)
class Draw:
    """The two sources of randomness of a workload."""

    subscriptions: np.random.Generator
    events: np.random.Generator


@dataclass(frozen=True)
class Drawn:
    """What a generator gives back."""

    schema: Schema
    lows: ColumnView
    highs: ColumnView
    columns: ColumnView
    predicates: Entries | None = None
    values: Entries | None = None


Generator = Callable[..., Drawn]


@dataclass(frozen=True)
class NamedWorkload:
    """One name of the table."""

    name: str
    trait: str
    n_subscriptions: int
    n_events: int
    source: str
    generate: Generator
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """Subscriptions and events as plain columns, with all that it takes to draw them again."""

    name: str
    trait: str
    schema: Schema
    ids: npt.NDArray[np.int64]
    lows: ColumnView
    highs: ColumnView
    columns: ColumnView
    parameters: Mapping[str, Any]
    seed: int
    source: str = field(default="", repr=False)
    predicates: Entries | None = field(default=None, repr=False)
    values: Entries | None = field(default=None, repr=False)

    @property
    def n_subscriptions(self) -> int:
        """How many subscriptions there are."""
        return len(self.ids)

    @property
    def n_events(self) -> int:
        """How many events there are."""
        return len(next(iter(self.columns.values())))

    @property
    def has_lists(self) -> bool:
        """Whether some predicates are lists of values, which `lows` and `highs` cannot say."""
        return self.predicates is not None and self.predicates.spans is not None

    def subscriptions(self) -> Subscriptions:
        """The subscriptions in normal form."""
        if self.predicates is not None:
            return Subscriptions.of_boxes(self.schema, self.ids, self.predicates.boxes(self.n_subscriptions))
        return Subscriptions.from_arrays(self.schema, self.ids, self.lows, self.highs)

    def events(self, start: int = 0, stop: int | None = None) -> Events:
        """The events in normal form, or a slice of them."""
        if self.values is not None:
            first, last, _ = slice(start, stop).indices(self.n_events)
            return Events(self.schema, self.values.said(len(self.schema), first, last))
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Events.from_arrays(self.schema, columns)

    def conditions(self, start: int = 0, stop: int | None = None) -> dict[int, str]:
        """The same subscriptions, or a slice of them, as texts of the subscription language.

        >>> workload("intervals", 1, 1, seed=5).conditions()
        {1: 'value between 1102 and 1183'}
        """
        first, last, _ = slice(start, stop).indices(self.n_subscriptions)
        if self.predicates is not None:
            predicates = self.predicates.texts(self.schema, first, max(first, last))
        else:
            predicates = self._texts_of_columns(start, stop)
        ids = self.ids[start:stop].tolist()
        # Nothing bounded is a condition too; the language has no word for it but this.
        whole = f"{self.schema.names[0]} is present or {self.schema.names[0]} is missing"
        return {i: " and ".join(said) or whole for i, said in zip(ids, predicates, strict=True)}

    def _texts_of_columns(self, start: int, stop: int | None) -> list[list[str]]:
        """What each subscription asks for, predicate by predicate, from the columns of its ends."""
        n = len(self.ids[start:stop])
        predicates: list[list[str]] = [[] for _ in range(n)]
        for attribute in self.schema:
            name = attribute.name
            if name not in self.lows and name not in self.highs:
                continue
            unquoted = not isinstance(attribute, Category | Timestamp)
            lows = _literals(self.lows.get(name), n, start, stop, unquoted)
            highs = _literals(self.highs.get(name), n, start, stop, unquoted)
            for said, low, high in zip(predicates, lows, highs, strict=True):
                if low is None and high is None:
                    continue
                if low == high:
                    said.append(f"{name} = {low}")
                elif high is None:
                    said.append(f"{name} >= {low}")
                elif low is None:
                    said.append(f"{name} <= {high}")
                else:
                    said.append(f"{name} between {low} and {high}")
        return predicates


_ENTRIES: dict[str, NamedWorkload] = {}


def named(
    name: str, trait: str, n_subscriptions: int, n_events: int, source: str = "", **presets: Any
) -> Callable[[Generator], Generator]:
    """Enter a generator in the table under a name, with some of its options preset."""

    def enter(generate: Generator) -> Generator:
        options = {
            p.name: p.default
            for p in inspect.signature(generate).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        _ENTRIES[name] = NamedWorkload(
            name, trait, n_subscriptions, n_events, source, generate, options | presets
        )
        return generate

    return enter


def names() -> list[str]:
    """The names of all workloads: the papers' first, then applications, expressions, adversarial ones.

    >>> names()[:2]
    ['intervals', 'intervals-wide-domain']
    """
    return [entry.name for entry in describe()]


def describe() -> list[NamedWorkload]:
    """The table itself: trait, default sizes, source and parameters of each name."""
    order = ("papers", "applications", "vehicles", "expressions", "adversarial")
    return sorted(_ENTRIES.values(), key=lambda e: order.index(e.generate.__module__.rpartition(".")[2]))


def workload(
    name: str,
    n_subscriptions: int | None = None,
    n_events: int | None = None,
    seed: int = SEED,
    **options: Any,
) -> Workload:
    """Draw a workload; sizes and options that are not given take the defaults of the name.

    >>> workload("rectangles", 10, 5, alpha=0.0).parameters["alpha"]
    0.0
    """
    entry = _ENTRIES.get(name)
    if entry is None:
        raise OptionError(f"unknown workload {name!r}; there are {', '.join(names())}")
    unknown = sorted(set(options) - set(entry.parameters))
    if unknown:
        known = ", ".join(entry.parameters) or "none"
        raise OptionError(f"workload {name!r}: unknown option {', '.join(unknown)}; it has {known}")
    n = _size(name, "n_subscriptions", entry.n_subscriptions if n_subscriptions is None else n_subscriptions)
    m = _size(name, "n_events", entry.n_events if n_events is None else n_events)
    parameters = {**entry.parameters, **options}
    draw = Draw(*np.random.default_rng(seed).spawn(2))
    drawn = entry.generate(draw, n, m, **parameters)
    ids = np.arange(1, n + 1, dtype=np.int64)
    return Workload(
        name,
        entry.trait,
        drawn.schema,
        ids,
        drawn.lows,
        drawn.highs,
        drawn.columns,
        parameters,
        seed,
        entry.source,
        drawn.predicates,
        drawn.values,
    )


def markdown_table() -> str:
    """The table of workloads as the documentation shows it."""
    lines = [
        "| workload | trait | subscriptions | events | parameters | source |",
        "|---|---|--:|--:|---|---|",
    ]
    for e in describe():
        parameters = ", ".join(f"{k}={_shown(v)}" for k, v in e.parameters.items())
        sizes = f"{e.n_subscriptions:,} | {e.n_events:,}"
        lines.append(f"| `{e.name}` | {e.trait} | {sizes} | {parameters} | {e.source or 'ours'} |")
    return "\n".join(lines) + "\n"


def in_unit_range(workload_name: str, **shares: float) -> None:
    """Refuse shares outside 0 to 1."""
    for option, share in shares.items():
        if not 0 <= share <= 1:
            raise OptionError(f"workload {workload_name!r}: {option} must be from 0 to 1, got {share}")


def at_least(workload_name: str, least: int, **numbers: int) -> None:
    """Refuse numbers below a floor."""
    for option, number in numbers.items():
        if number < least:
            raise OptionError(f"workload {workload_name!r}: {option} must be at least {least}, got {number}")


def _size(name: str, what: str, size: int) -> int:
    try:
        whole = operator.index(size)
    except TypeError:
        raise OptionError(f"workload {name!r}: {what} must be a whole number, got {size!r}") from None
    if whole < 0:
        raise OptionError(f"workload {name!r}: {what} must not be negative, got {size}")
    return whole


def _shown(value: Any) -> str:
    return f"{value:_}" if isinstance(value, int) else str(value)


def _literals(
    column: DrawnColumn | None, n: int, start: int, stop: int | None, unquoted: bool
) -> Iterable[str | None]:
    """A column of bounds as literals of the language, None where not bounded."""
    if column is None:
        return [None] * n
    part = column[start:stop]
    if part.dtype.kind == "f":
        # A whole number is written without its point: an Int attribute keeps NaN in a float column.
        return [None if x != x else str(int(x)) if x == int(x) else repr(x) for x in part.tolist()]
    if part.dtype.kind == "M":
        times = np.datetime_as_string(part, unit="us").tolist()
        return [None if t == "NaT" else f"'{t.removesuffix('.000000')}Z'" for t in times]
    if unquoted:
        return [str(x) for x in part.tolist()]
    return [None if x is None else "'" + str(x).replace("'", "''") + "'" for x in part.tolist()]


# Predicates and values of wide schemas, row by row of what was said, and columns of them on demand.
#
# With hundreds of attributes, of which a subscription bounds few and an event has few, dense columns hold
# almost nothing but "not bounded" and "missing". A generator of such a workload gives `Entries` instead:
#
#     array        dtype   shape   meaning
#     rows         int64   k       the subscription or event that an entry belongs to, from 0
#     attributes   int32   k       position in the schema, ascending; rows ascend within an attribute
#     lows         int64   k       inclusive bounds of a predicate, both sides always bounded;
#     highs        int64   k       the value twice for an event
#
# A predicate with a list of values (IN, NOT IN) has the ends of what it allows as its bounds, and `spans`
# tells what lies between.
#
# `SparseColumns` is a view of one side of them as a workload's columns: a mapping that makes a column when it
# is asked for and keeps none, so that 30,000 attributes cost nothing until somebody asks for all.


class AllowedSpans(NamedTuple):
    """What entries with a list allow: starts[e] .. starts[e + 1] of entry e, none where it is an interval."""

    starts: npt.NDArray[np.int64]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]

    def taken(self, order: npt.NDArray[np.int64]) -> AllowedSpans:
        """The spans of the same entries in another order."""
        chosen = ragged(self.starts, order)
        return AllowedSpans(starts_of(np.diff(self.starts)[order]), self.lows[chosen], self.highs[chosen])


@dataclass(frozen=True)
class Entries:
    """Predicates of subscriptions, or values of events, one row each."""

    rows: npt.NDArray[np.int64]
    attributes: npt.NDArray[np.int32]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    spans: AllowedSpans | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; an event's lows and highs are one array."""
        held = (self.rows, self.attributes, self.lows, self.highs, *(self.spans or ()))
        return sum({id(a): a.nbytes for a in held}.values())

    def boxes(self, n: int) -> SparseBoxes:
        """The predicates as boxes, one for each of n subscriptions; all attributes are of whole numbers."""
        order = np.argsort(self.rows, kind="stable")
        starts = starts_of(np.bincount(self.rows, minlength=n))
        none = np.empty(0, np.int64)
        spans = AllowedSpans(np.zeros(len(self) + 1, np.int64), none, none)
        if self.spans is not None:
            spans = self.spans.taken(order)
        sets = np.flatnonzero(np.diff(spans.starts))
        attributes = self.attributes[order]
        attributes[sets] |= SET
        ends = self.lows[order], self.highs[order]
        owners = np.arange(n, dtype=np.int32)
        # entries without a set have no spans, so these begin where the last of the others end
        set_starts = np.append(spans.starts[sets], len(spans.lows))
        return SparseBoxes(owners, starts, attributes, *ends, sets, set_starts, spans.lows, spans.highs)

    def texts(self, schema: Schema, first: int, last: int) -> list[list[str]]:
        """What each subscription from `first` to before `last` asks for, predicate by predicate, as text."""
        said: list[list[str]] = [[] for _ in range(first, last)]
        own = np.flatnonzero((self.rows >= first) & (self.rows < last))
        columns = self.rows[own], self.attributes[own], self.lows[own], self.highs[own]
        for e, row, position, low, high in zip(own.tolist(), *(c.tolist() for c in columns), strict=True):
            attribute = schema[position]
            text = (
                f"{attribute.name} = {low}" if low == high else f"{attribute.name} between {low} and {high}"
            )
            if self.spans is not None and self.spans.starts[e] < self.spans.starts[e + 1]:
                text = self._list_text(attribute, e)
            said[row - first].append(text)
        return said

    def _list_text(self, attribute: Attribute, e: int) -> str:
        """The shorter one of what an entry with a list allows, and of what it leaves out of the domain."""
        assert self.spans is not None
        own = slice(self.spans.starts[e], self.spans.starts[e + 1])
        lows, highs = self.spans.lows[own].tolist(), self.spans.highs[own].tolist()
        allowed = [v for low, high in zip(lows, highs, strict=True) for v in range(low, high + 1)]
        left_out = sorted(set(range(attribute.low, attribute.high + 1)).difference(allowed))
        operator, values = ("in", allowed) if len(allowed) <= len(left_out) else ("not in", left_out)
        return f"{attribute.name} {operator} ({', '.join(map(str, values))})"

    def said(self, n_attributes: int, first: int, last: int) -> EventEntries:
        """The values of the events from `first` to before `last`, by event."""
        own = np.flatnonzero((self.rows >= first) & (self.rows < last))
        order = own[np.argsort(self.rows[own], kind="stable")]
        starts = starts_of(np.bincount(self.rows[own] - first, minlength=last - first))
        return EventEntries(n_attributes, starts, self.attributes[order], self.lows[order])

    @classmethod
    def sorted(
        cls, rows: Any, attributes: Any, lows: Any, highs: Any, spans: AllowedSpans | None = None
    ) -> Entries:
        """Entries in the order of attributes and rows, from any order.

        >>> entries = Entries.sorted([1, 0, 0], [0, 2, 0], [5, 6, 7], [5, 6, 9])
        >>> entries.rows.tolist(), entries.attributes.tolist(), entries.highs.tolist()
        ([0, 1, 0], [0, 0, 2], [9, 5, 6])
        """
        rows, attributes = np.asarray(rows, np.int64), np.asarray(attributes, np.int32)
        order = np.lexsort((rows, attributes))
        one = np.asarray(lows, np.int64)[order]
        other = one if highs is lows else np.asarray(highs, np.int64)[order]
        return cls(rows[order], attributes[order], one, other, spans.taken(order) if spans else None)


class SparseColumns(Mapping[str, npt.NDArray[np.float64]]):
    """One side of entries as columns by attribute name, NaN where there is no entry.

    >>> entries = Entries.sorted([1, 0, 0], [0, 2, 0], [5, 6, 7], [5, 6, 9])
    >>> columns = SparseColumns(entries, entries.highs, 2, ("a", "b", "c"))
    >>> list(columns), columns["a"].tolist(), columns["b"].tolist()
    (['a', 'b', 'c'], [9.0, 5.0], [nan, nan])
    """

    def __init__(
        self, entries: Entries, side: npt.NDArray[np.int64], n_rows: int, names: Sequence[str]
    ) -> None:
        self._entries = entries
        self._side = side
        self._n_rows = n_rows
        self._positions = {name: position for position, name in enumerate(names)}
        self._starts = np.searchsorted(entries.attributes, np.arange(len(names) + 1))

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        position = self._positions[name]
        chosen = slice(self._starts[position], self._starts[position + 1])
        spans = self._entries.spans
        if spans is not None and spans.starts[chosen.start] < spans.starts[chosen.stop]:
            raise OptionError(
                f"some predicates on {name!r} have lists of values, which a low and a high end cannot say; "
                "take `predicates`, subscriptions() or conditions()"
            )
        # A float column keeps NaN beside whole numbers, which are exact below 2^53.
        column = np.full(self._n_rows, np.nan)
        column[self._entries.rows[chosen]] = self._side[chosen]
        return column

    def __contains__(self, name: object) -> bool:
        # a Mapping would make the column to find out
        return name in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)
