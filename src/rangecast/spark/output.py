"""What comes out of matching: one `Output` for every mode, and the `Answer` that workers make of it.

`match`, `match_files`, `match_stream`, `explain`, `read_events`, the source and SQL take an Output, or its
fields as keywords, which are folded into one at once (`Output.of`); nothing below them sees a keyword.

A column may be a field of a struct, by its path: where the events have no column `order.price`, it is the
field `price` of the column `order`. Column names with dots need no backquotes.

For a schema an Output becomes an Answer: which attributes are read, and whether ids are strings. It goes
to the workers, who shape their matches by it (worker.py).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rangecast.engine import Index
from rangecast.errors import EventError, OptionError
from rangecast.loading.ids import named_type
from rangecast.model.events import Events
from rangecast.types.attributes import Timestamp
from rangecast.types.columns import describe
from rangecast.types.schema import Schema

PAIRS, LISTS, COUNTS = "pairs", "lists", "counts"
FORMS = (PAIRS, LISTS, COUNTS)
SHORTEST_FIRST = "shortest-first"
ALL = "*"
_SECOND = {PAIRS: "subscription_id", LISTS: "subscription_ids", COUNTS: "matches"}
_WHOLE: tuple[type[T.DataType], ...] = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_PLACES: tuple[type[T.DataType], ...] = (T.StructType, T.ArrayType, T.StringType)
_TAKEN: dict[str, tuple[str, tuple[type[T.DataType], ...]]] = {
    "int": ("byte, short, int or long", _WHOLE),
    "float": ("a number", (*_WHOLE, T.FloatType, T.DoubleType, T.DecimalType)),
    "category": ("string, boolean or an array of strings", (T.StringType, T.BooleanType, T.ArrayType)),
    "text": ("string or an array of strings", (T.StringType, T.ArrayType)),
    "tags": ("an array of strings, or a string", (T.ArrayType, T.StringType)),
    "point": ("a struct of lon and lat, an array of numbers or a string", _PLACES),
    "bool": ("boolean, a string or a whole number", (T.BooleanType, T.StringType, *_WHOLE)),
    "timestamp": ("timestamp, timestamp_ntz or date", (T.TimestampType, T.TimestampNTZType, T.DateType)),
}


class OutputKeywords(TypedDict, total=False):
    """The fields of an Output as keywords of a function."""

    event_id: str
    keep: Sequence[str] | str
    form: str
    outer: bool
    absent: Sequence[str]
    order: str | None
    text_ids: bool | None
    id_type: str | None


@dataclass(frozen=True)
class Output:
    """What comes out of matching: columns, form and order.

    >>> Output(event_id="key", keep=["symbol"], form="counts").names
    ['event_id', 'matches', 'symbol']
    """

    event_id: str = "id"
    """The column of the events' ids, which comes out as `event_id`."""
    keep: Sequence[str] | str = ()
    """Other columns of the events that come along; "*" stands for all of them."""
    form: str = PAIRS
    """The form: "pairs" for a row per match, "lists" for a row per event with an array of ids, "counts" for
    a row per event with their number; the last two cost less."""
    outer: bool = False
    """Whether events without a match leave a row too."""
    absent: Sequence[str] = ()
    """Attributes that the events have no column for: they are missing in all of them."""
    order: str | None = None
    """None, or "shortest-first": within each step of a worker (an Arrow batch), the matches of cheap events
    come before those of expensive ones, if the index can estimate the cost."""
    text_ids: bool | None = None
    """Whether the ids of subscriptions are strings, while there is no subscription to tell by."""
    id_type: str | None = None
    """The type of the events' ids, "int64" or "string", where files would suggest another
    (rangecast.loading.ids); the ids of a DataFrame keep their type."""

    def __post_init__(self) -> None:
        for name in ("keep", "absent"):
            value = getattr(self, name)
            if name == "keep" and value == ALL:
                value = (ALL,)
            if isinstance(value, str):
                raise OptionError(f"{name} must be a list of column names, got the string {value!r}")
            object.__setattr__(self, name, tuple(value))
        if self.form not in FORMS:
            raise OptionError(f"form must be one of {', '.join(FORMS)}, got {self.form!r}")
        if self.order not in (None, SHORTEST_FIRST):
            raise OptionError(f"order must be None or {SHORTEST_FIRST!r}, got {self.order!r}")
        named_type(self.id_type)
        if len(set(self.names)) < len(self.names):
            raise OptionError(
                f"columns of the answer must differ, got {', '.join(self.names)}; rename the columns that "
                "you keep"
            )

    @classmethod
    def of(cls, output: Output | None, keywords: OutputKeywords) -> Output:
        """The output with the fields that the keywords name replaced.

        >>> Output.of(Output(outer=True), {"keep": ["symbol"]}) == Output(outer=True, keep=("symbol",))
        True
        """
        known = [field.name for field in dataclasses.fields(Output)]
        unknown = [name for name in keywords if name not in known]
        if unknown:
            raise TypeError(f"there is no argument {unknown[0]!r}; those of an output are {', '.join(known)}")
        if output is not None and not isinstance(output, Output):
            raise OptionError(f"output must be an Output, got {type(output).__name__}")
        return dataclasses.replace(output or Output(), **keywords)

    def expanded(self, columns: Sequence[str]) -> Output:
        """The same with the columns that "*" stands for: all but the id, which comes out anyway.

        >>> Output(keep="*").expanded(["id", "price"]).names
        ['event_id', 'subscription_id', 'price']
        """
        if ALL not in self.keep or ALL in columns:
            return self
        keep = dict.fromkeys(name for name in self.keep if name != ALL)
        keep |= dict.fromkeys(name for name in columns if name != self.event_id)
        return dataclasses.replace(self, keep=tuple(keep))

    @property
    def names(self) -> list[str]:
        """The names of the columns that come out."""
        return ["event_id", _SECOND[self.form], *self.keep]

    def second_type(self, ids: T.DataType) -> T.DataType:
        """The type of the second column: an id, ids or their number."""
        return {PAIRS: ids, LISTS: T.ArrayType(ids, False), COUNTS: T.LongType()}[self.form]

    def answer(self, schema: Schema, textual: bool | None) -> Answer:
        """The same for a schema, and for ids of subscriptions that are strings or not, if that is known."""
        for name in self.absent:
            if name not in schema:
                raise OptionError(
                    f"absent: the schema has no attribute {name!r}; it has {', '.join(schema.names)}"
                )
        attributes = tuple(name for name in schema.read_names if name not in self.absent)
        if not attributes:
            raise EventError(f"the events must have a column of the schema ({', '.join(schema.names)})")
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(Output)}
        ids_are_text = self.text_ids if textual is None else textual
        return Answer(**fields, attributes=attributes, textual=bool(ids_are_text))

    def check_index(self, index: Index) -> None:
        """Raise when an index cannot give the order that is asked for."""
        if self.order is not None:
            index.estimate(Events(index.schema, np.empty((len(index.schema), 0), np.int64)))

    def check_id_type(self, settled: str | None = None) -> None:
        """Raise when ids are asked for in another type than `settled`, or in any type if that is None."""
        if self.id_type not in (None, settled):
            has = f", which settled on {settled}" if settled else ""
            raise OptionError(
                f"id_type goes with the reader of files{has}, got {self.id_type!r}; cast the column of a "
                "DataFrame instead"
            )

    def options(self) -> dict[str, str]:
        """The same as options of `format("rangecast")`.

        >>> Output(keep=["symbol", "price"], outer=True).options()
        {'keep': '["symbol", "price"]', 'outer': 'true'}
        """
        said = {}
        for field in dataclasses.fields(Output):
            value = getattr(self, field.name)
            if value != field.default:
                said[field.name] = value if isinstance(value, str) else json.dumps(value)
        return said

    @classmethod
    def from_options(cls, given: Mapping[str, str]) -> Output:
        """The output that the options of `format("rangecast")` describe; their names have no capitals or
        underscores.

        >>> Output.from_options({"eventid": "key", "keep": "symbol, price"}).keep
        ('symbol', 'price')
        """
        text_ids = given.get("textids")
        return cls(
            event_id=given.get("eventid", "id"),
            keep=_names(given, "keep"),
            form=given.get("form", PAIRS).lower(),
            outer=_truth("outer", given.get("outer", "false")),
            absent=_names(given, "absent"),
            order=given.get("order"),
            text_ids=None if text_ids is None else _truth("textIds", text_ids),
            id_type=given.get("idtype"),
        )


@dataclass(frozen=True)
class Answer(Output):
    """An Output for a schema: which attributes come in, and whether the ids that go out are strings."""

    attributes: tuple[str, ...] = ()
    textual: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "attributes", tuple(self.attributes))

    @property
    def columns(self) -> list[str]:
        """The columns that are read of the events, each once."""
        return list(dict.fromkeys([self.event_id, *self.attributes, *self.keep]))

    def written(self, given: T.StructType) -> dict[str, str]:
        """The columns that a DataFrame has in other capitals alone, by the names that are read here.

        >>> given = T.StructType().add("ID", T.LongType()).add("price", T.LongType())
        >>> Answer(attributes=("price",)).written(given)
        {'id': 'ID'}
        """
        attributes = [name.casefold() for name in self.attributes]
        found = {}
        for name in self.columns:
            if type_at(given, name) is not None or attributes.count(name.casefold()) > 1:
                continue
            alike = [column for column in given.names if column.casefold() == name.casefold()]
            if len(alike) == 1:
                found[name] = alike[0]
        return found

    def check_columns(
        self, given: T.StructType, schema: Schema, *, texts: bool = False, case_sensitive: bool = False
    ) -> None:
        """Raise unless a DataFrame has the columns, each of a type that holds its attribute's values exactly.

        With `texts`, strings are taken for every attribute: for who can reject those that are no value. A
        column of nulls alone has no type in Spark, and is missing in all events. Where Spark tells capitals
        apart, they must be those of the attribute.
        """
        written = self.written(given)
        if case_sensitive and written:
            name, column = next(iter(written.items()))
            raise EventError(
                f"the events have no column {name!r}, but {column!r}, which differs in capitals alone, and "
                "spark.sql.caseSensitive is true: rename the column"
            )
        wanted = [name for name in self.columns if name not in given.names]
        types = {field.name: field.dataType for field in given.fields}
        types |= {name: kind for name in wanted if (kind := type_at(given, name)) is not None}
        types |= {name: types[column] for name, column in written.items()}
        for name, what in [(self.event_id, "event_id"), *((name, "keep") for name in self.keep)]:
            if name not in types:
                raise EventError(
                    f"{what}: the events have no column {name!r}; they have {', '.join(given.names)}"
                )
        for name in self.attributes:
            attribute = schema[name]
            if name not in types:
                inside = [path for path in _paths(given) if path.casefold() == name.casefold()]
                if inside:
                    raise EventError(
                        f"the events have no column {name!r}, but {inside[0]!r}, which differs in capitals "
                        "alone: rename the fields"
                    )
                has = ", ".join(given.names)
                raise EventError(
                    f"the events have no column {name!r} ({attribute.kind}); they have {has}. "
                    f"If {name!r} is missing in all of them, say absent=[{name!r}]"
                )
            words, taken = _TAKEN[attribute.kind]
            if isinstance(attribute, Timestamp) and attribute.unit != "us":
                words, taken = f"{words}, or a number", (*taken, *_TAKEN["float"][1])
            taken = (*taken, T.NullType, T.StringType) if texts else (*taken, T.NullType)
            if not isinstance(types[name], taken):
                raise EventError(
                    f"column {name!r} must be {words} for {attribute.article} {attribute.kind}, got "
                    f"{types[name].simpleString()}; cast it first, and check what the cast does with bad "
                    "values"
                )

    def fields(self, given: T.StructType) -> T.StructType:
        """The columns that come out with their types, for events that have these columns."""
        ids: T.DataType = T.StringType() if self.textual else T.LongType()
        written = self.written(given)
        named = (written.get(name, name) for name in (self.event_id, *self.keep))
        event_id, *kept = (type_at(given, name) or T.NullType() for name in named)
        kinds = [event_id, self.second_type(ids), *kept]
        return T.StructType([T.StructField(n, kind) for n, kind in zip(self.names, kinds, strict=True)])


def check_frame(given: Any, door: str, advice: str) -> None:
    """Raise TypeError, with what to do, unless a DataFrame was given; `door` is the function that takes it.

    >>> check_frame("trades.parquet", "match", "match_files matches files")
    Traceback (most recent call last):
        ...
    TypeError: match takes a DataFrame of Spark, got the string 'trades.parquet'; match_files matches files
    """
    if not isinstance(given, DataFrame):
        kind = type(given)
        # with its library: a frame of pandas is a DataFrame as well
        library = "" if kind.__module__ == "builtins" else kind.__module__.partition(".")[0] + "."
        got = describe(given) if isinstance(given, str) else library + kind.__name__
        raise TypeError(f"{door} takes a DataFrame of Spark, got {got}; {advice}")


def column_named(name: str, given: T.StructType | None = None) -> Column:
    """A column of a DataFrame, whatever characters its name has; where there is none, the field at a path.

    Where Spark does not tell capitals apart, it finds a column that is written in others.
    """
    path = [name] if given is None or name in given.names else _path_to(given, name) or [name]
    quoted = ".".join("`" + part.replace("`", "``") + "`" for part in path)
    return F.col(quoted) if given is None or name in given.names else F.col(quoted).alias(name)


def tells_capitals(spark: SparkSession) -> bool:
    """Whether names of columns that differ in capitals alone are different ones to a session."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


ArrowWork = Callable[[Iterator[Any]], Iterator[Any]]
"""What mapInArrow calls in a worker."""


def map_arrow(frame: DataFrame, work: ArrowWork, fields: T.StructType) -> DataFrame:
    """`frame.mapInArrow(work, fields)`, whatever characters the names of the columns have.

    PySpark looks each column up by its name, takes a dot for a path and may not tell capitals apart. So
    columns go to the workers by number where that matters, and get their names back there.
    """
    names = tuple(frame.columns)
    plain = len({name.casefold() for name in names}) == len(names)
    if plain and not any(set(".`") & set(name) for name in names):
        return frame.mapInArrow(work, fields)
    return frame.toDF(*(f"c{i}" for i in range(len(names)))).mapInArrow(_with_names(work, names), fields)


def _with_names(work: ArrowWork, names: tuple[str, ...]) -> ArrowWork:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        return work(batch.rename_columns(list(names)) for batch in batches)

    return run


def type_at(given: T.StructType, name: str) -> T.DataType | None:
    """The type of a column, or of the field at a path such as `order.price`; None where there is none.

    >>> order = T.StructType().add("price", T.LongType())
    >>> type_at(T.StructType().add("order", order), "order.price")
    LongType()
    """
    kind: T.DataType = given
    for part in [name] if name in given.names else _path_to(given, name) or ():
        assert isinstance(kind, T.StructType)
        kind = kind[part].dataType
    return None if kind is given else kind


def _paths(given: T.StructType) -> Iterator[str]:
    """The paths to all fields inside of structs."""
    for field in given.fields:
        if isinstance(field.dataType, T.StructType):
            for name in [*field.dataType.names, *_paths(field.dataType)]:
                yield f"{field.name}.{name}"


def _path_to(given: T.StructType, name: str) -> list[str] | None:
    """The fields that lead to a path with dots; a name may have dots of its own."""
    for field in given.fields:
        if field.name == name:
            return [name]
        rest = name.removeprefix(f"{field.name}.")
        if rest != name and isinstance(field.dataType, T.StructType):
            inner = _path_to(field.dataType, rest)
            if inner is not None:
                return [field.name, *inner]
    return None


def _names(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    value = given.get(name, "").strip()
    if value.startswith("["):
        try:
            names = json.loads(value)
        except ValueError:
            raise OptionError(
                f"{name} must be names with commas between or a JSON list, got {value!r}"
            ) from None
        return tuple(str(item) for item in names)
    return tuple(item.strip() for item in value.split(",") if item.strip())


def _truth(name: str, value: Any) -> bool:
    if str(value).lower() not in ("false", "true"):
        raise OptionError(f"{name} must be one of false, true, got {value!r}")
    return str(value).lower() == "true"
