"""Frames of every kind as Arrow tables, and tables as frames of the same kind.

A frame is known by the module of its type, so that no library of frames is imported before somebody has one.
Any other object that hands out Arrow data (`__arrow_c_stream__`, or `__arrow_c_array__` of a struct) is taken
as well, and what comes back for it is an Arrow table.
"""

from __future__ import annotations

import difflib
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import EventError, OptionError, RangecastWarning
from rangecast.types.columns import describe

_WAYS = ("__arrow_c_stream__", "__arrow_c_array__")
ARROW, PANDAS, POLARS, DUCKDB, ROWS = "pyarrow", "pandas", "polars", "duckdb", "rows"
_KNOWN = {
    (PANDAS, "DataFrame"),
    (POLARS, "DataFrame"),
    (POLARS, "LazyFrame"),
    (DUCKDB, "DuckDBPyRelation"),
}


def kind_of(frame: Any) -> str | None:
    """Which library a frame is of; ARROW for what hands out Arrow data, ROWS for a list of dicts, None for
    what is no frame.

    >>> kind_of(pa.table({"a": [1]})), kind_of([{"a": 1}]), kind_of(5)
    ('pyarrow', 'rows', None)
    """
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return ARROW
    if isinstance(frame, Sequence) and not isinstance(frame, str | bytes):
        return ROWS if all(isinstance(row, Mapping) for row in frame) else None
    library, name = type(frame).__module__.partition(".")[0].lstrip("_"), type(frame).__name__
    if (library, name) in _KNOWN:
        return library
    return ARROW if any(hasattr(frame, way) for way in _WAYS) else None


def table_of(frame: Any, what: str) -> pa.Table:
    """A frame as an Arrow table; OptionError for what is no frame, or has a column that Arrow cannot hold."""
    table, unreadable = readable_table(frame, what)
    for name, reason in unreadable.items():
        raise OptionError(f"{what}: {describe_unreadable(name, reason)}")
    return table


def describe_unreadable(name: str, reason: str) -> str:
    """What is wrong with a column that Arrow cannot hold.

    >>> describe_unreadable("a", "Expected bytes, got a 'int' object")
    "the values of 'a' cannot be read as a column of one type: Expected bytes, got a 'int' object"
    """
    return f"the values of {name!r} cannot be read as a column of one type: {reason}"


def readable_table(frame: Any, what: str) -> tuple[pa.Table, dict[str, str]]:
    """The columns of a frame that Arrow can hold as a table, and why it cannot hold the others; OptionError
    for what is no frame.

    >>> readable_table([{"a": 1, "b": "x"}, {"a": 2, "b": 3}], "events")[0].column_names
    ['a']
    """
    match kind_of(frame):
        case "pyarrow":
            table = _arrow_table(frame, what)
            _check_names(table.column_names, what)
            return table, {}
        case "pandas":
            _check_names(list(map(str, frame.columns)), what)
            try:
                return pa.Table.from_pandas(frame, preserve_index=False), {}
            except (pa.ArrowException, OverflowError):
                names = list(frame.columns)
                return _readable_columns(
                    names, lambda k: pa.Table.from_pandas(frame.iloc[:, [k]], preserve_index=False).column(0)
                )
        case "polars":
            frame = frame.collect() if hasattr(frame, "collect") else frame
            if not any(str(kind) == "Object" for kind in frame.dtypes):
                return frame.to_arrow(), {}
            columns = frame.get_columns()
            return _readable_columns(frame.columns, lambda k: _objects_or_arrow(columns[k]))
        case "duckdb":
            _check_names(frame.columns, what)
            return frame.to_arrow_table(), {}
        case "rows":
            names = list(dict.fromkeys(name for row in frame for name in row))
            return _readable_columns(names, lambda k: pa.array([row.get(names[k]) for row in frame]))
    raise OptionError(
        f"{what} must be a DataFrame of pandas or Polars, an Arrow table, a DuckDB relation or a list of "
        f"dicts, got {describe(frame)}"
    )


def _check_names(names: Sequence[str], what: str) -> None:
    """A join of SQL, say, leaves two columns `id`, and none of the two would be meant."""
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise OptionError(f"{what}: the columns must have different names, got {twice[0]!r} more than once")


def _readable_columns(names: Sequence[Any], column: Callable[[int], Any]) -> tuple[pa.Table, dict[str, str]]:
    columns: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for k, name in enumerate(names):
        try:
            columns[str(name)] = column(k)
        except (pa.ArrowException, OverflowError) as error:
            unreadable[str(name)] = str(error.args[0] if error.args else error)
    return pa.table(columns), unreadable


def _objects_or_arrow(series: Any) -> Any:
    """A column of Polars; one of Python objects, which Polars does not hand over, value by value."""
    return pa.array(series.to_list()) if str(series.dtype) == "Object" else series.to_arrow()


def _arrow_table(frame: Any, what: str) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    try:
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise OptionError(f"{what} must have rows of named columns, got {describe(frame)}: {error}") from None


def struct_inside(column: Any, path: Sequence[str], fold: bool = True) -> Any:
    """The values at a path of fields in a column of structs, by Arrow; None where there is no such field.

    >>> struct_inside(pa.array([{"mag": 5.1}, None]), ["mag"]).to_pylist()
    [5.1, None]
    """
    for step in path:
        if pa.types.is_null(column.type):
            return column  # an hour in which no object came: what would be inside is missing
        if not pa.types.is_struct(column.type):
            return None
        names = [field.name for field in column.type]
        key = key_of(step, names) if fold else step
        if key is None or names.count(key) != 1:
            return None
        column = pc.struct_field(column, names.index(key))
    return column


def flat_table(table: pa.Table) -> pa.Table:
    """A table with the fields of its structs as columns whose names are the paths to them.

    >>> flat_table(pa.table({"user": [{"country": "DE", "age": 40}]})).column_names
    ['user.country', 'user.age']
    """
    columns: dict[str, Any] = {}
    given = set(table.column_names)
    for name, column in zip(table.column_names, table.columns, strict=True):
        ahead = [(name, column)]
        while ahead:
            path, values = ahead.pop(0)
            if not pa.types.is_struct(values.type):
                # a column of that name is what the name means
                if path == name or path not in given:
                    columns[path] = values
                continue
            # a field with a dot in its own name is reached by no path
            fields = [(k, field) for k, field in enumerate(values.type) if "." not in field.name]
            ahead[:0] = [(f"{path}.{field.name}", pc.struct_field(values, k)) for k, field in fields]
    return pa.table(columns) if columns else table.select([])


def frame_like(table: pa.Table, frame: Any) -> Any:
    """A table as a frame of the kind that `frame` is."""
    match kind_of(frame):
        case "pandas":
            return table.to_pandas()
        case "polars":
            import polars

            made: Any = polars.from_arrow(table)
            return made.lazy() if hasattr(frame, "collect") else made
        case "duckdb":
            import duckdb

            return duckdb.from_arrow(table)
        case "rows":
            return table.to_pylist()
    return table


# Which column of the input belongs to which attribute, by one rule at every door.
#
# A column is an attribute's when it has its name; or, where no column has, when the two differ in capitals
# alone and no other column or attribute does. That is how names in conditions are read as well. A column that
# is nobody's is ignored, but for one thing: when its name is close to that of an attribute that has no
# column, it was probably meant, and without a word every predicate on that attribute would be false.
#
# An object names its values itself, so its keys are settled for each object alone: what another one has never
# changes what this one means (`ObjectNames`). A name with dots, `user.country`, that no key is, is looked for
# inside: the key `country` of the object that is the `user`. Each step is a name by the same rule. What is in
# a list is not looked for.

_SHOWN = 8
_MANY_KINDS = 1_000  # sets of keys that are remembered


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

    def check(self, *, strict: bool, every: bool, what: str = "no event", stacklevel: int = 3) -> bool:
        """Warn of attributes without a column, all of them or (not `every`) those with a near miss; whether
        there was something to say.

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
        return bool(twins or said)


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


def key_of(name: str, keys: Collection[Any]) -> str | None:
    """The key that a name means: its own, or the only one that differs from it in capitals alone.

    >>> key_of("mag", ["MAG", "place"]), key_of("mag", ["MAG", "Mag"])
    ('MAG', None)
    """
    if name in keys:
        return name
    fold = name.casefold()
    alike = [key for key in keys if isinstance(key, str) and key.casefold() == fold]
    return alike[0] if len(alike) == 1 else None


def value_inside(found: Any, path: Sequence[str], fold: bool = True) -> Any:
    """The value at a path of keys in nested objects, None where there is none.

    >>> value_inside({"User": {"country": "DE"}}, ["user", "country"])
    'DE'
    """
    for step in path:
        if not isinstance(found, Mapping):
            return None
        key = key_of(step, found) if fold else step
        found = None if key is None else found.get(key)
    return found


class _Kind(NamedTuple):
    """What objects with the same keys have: the key of each attribute, the paths to look for inside, the keys
    of nobody, and whether the object says all that by the names of the attributes."""

    columns: dict[str, str]
    inside: dict[str, list[str]]
    unused: list[str]
    plain: bool


def flat_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """An object with what is inside of it under the paths of keys, unless that is the name of another key.

    >>> flat_object({"id": 7, "user": {"country": "DE", "tags": []}, "user.country": "FR"})
    {'id': 7, 'user.country': 'FR', 'user.tags': []}
    """
    flat: dict[str, Any] = {}
    ahead: list[tuple[str, Any]] = list(row.items())[::-1]
    while ahead:
        name, value = ahead.pop()
        if isinstance(value, Mapping):
            # a key with a dot in it is reached by no path
            ahead += [(f"{name}.{key}", inner) for key, inner in value.items() if "." not in key][::-1]
        else:
            flat[name] = value
    return flat | {name: value for name, value in row.items() if not isinstance(value, Mapping)}


class ObjectNames:
    """Which values of an object are of which attribute, each object by its own keys.

    >>> names = ObjectNames(["price", "user.country"])
    >>> names.settled({"Price": 5, "user": {"country": "DE"}, "id": 7})
    {'price': 5, 'user.country': 'DE'}
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        folds = Counter(name.casefold() for name in self.names)
        self._folds = frozenset(folds)
        self._paths = {name: name.split(".") for name in self.names if "." in name}
        self._heads = frozenset(path[0].casefold() for path in self._paths.values())
        self._exact = frozenset(name for name in self._paths if folds[name.casefold()] > 1)
        self._kinds: dict[tuple[Any, ...], _Kind] = {}
        self._unremarkable: set[tuple[Any, ...]] = set()
        self.plain_keys = frozenset(name for name in self.names if name.casefold() not in self._heads)
        """Attributes of which an object with no other keys needs no settling."""

    def kind_of(self, keys: tuple[Any, ...]) -> _Kind:
        """What objects with these keys have."""
        kind = self._kinds.get(keys)
        if kind is None:
            named = named_columns(self.names, keys)
            heads = {name: key_of(self._paths[name][0], keys) for name in named.absent if name in self._paths}
            inside = {name: self._paths[name] for name, head in heads.items() if head is not None}
            used = set(heads.values())
            unused = [key for key in named.unused if key not in used]
            plain = not inside and all(name == key for name, key in named.columns.items())
            kind = _Kind(named.columns, inside, unused, plain)
            if len(self._kinds) < _MANY_KINDS:
                self._kinds[keys] = kind
        return kind

    def folds(self, name: str) -> bool:
        """Whether capitals do not matter on the path to an attribute: no other differs in them alone."""
        return name not in self._exact

    def settled(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of an object by attribute; the object itself where its keys say no less."""
        columns, inside, _, plain = self.kind_of(tuple(row))
        if plain:
            return row
        values = {name: row[key] for name, key in columns.items()}
        for name, path in inside.items():
            value = value_inside(row, path, self.folds(name))
            if value is not None:
                values[name] = value
        return values

    def check(self, row: Mapping[str, Any], *, strict: bool, stacklevel: int) -> None:
        """Warn of keys of one object as `NamedColumns.check` does of columns."""
        keys = tuple(row)
        # near misses are looked for once, since that takes longer than to match the object
        if not strict and (row.keys() <= self.plain_keys or keys in self._unremarkable):
            return
        kind, settled = self.kind_of(keys), self.settled(row)
        columns = {name: kind.columns.get(name, name) for name in self.names if name in settled}
        absent = [name for name in self.names if name not in columns]
        named = NamedColumns(columns, absent, kind.unused)
        remarked = named.check(strict=strict, every=False, stacklevel=stacklevel + 1)
        if not remarked and not kind.inside and len(self._unremarkable) < _MANY_KINDS:
            self._unremarkable.add(keys)

    def needs_settling(self, keys: Iterable[Any]) -> bool:
        """Whether these keys of many objects do not tell by themselves what each of the objects means."""
        folds = [key.casefold() for key in keys if isinstance(key, str)]
        # two keys that differ in capitals alone may be of one object, or of two
        twins = len(set(folds)) < len(folds) and any(
            n > 1 and fold in self._folds for fold, n in Counter(folds).items()
        )
        return twins or not self._heads.isdisjoint(folds)

    def settled_rows(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], NamedColumns]:
        """Many objects by attribute, and which keys of any of them were taken."""
        columns: dict[str, str] = {}
        unused: dict[str, None] = {}
        values: list[dict[str, Any]] = []
        for row in rows:
            settled = self.settled(row)
            kind = self.kind_of(tuple(row))
            if settled is row:
                settled = {name: row[key] for name, key in kind.columns.items()}
            columns |= {name: kind.columns.get(name, name) for name in settled}
            unused |= dict.fromkeys(kind.unused)
            values.append(dict(settled))
        absent = [name for name in self.names if name not in columns]
        return values, NamedColumns(columns, absent, list(unused))


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
