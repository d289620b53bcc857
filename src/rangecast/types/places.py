"""Points of the earth as an attribute: longitude and latitude (WGS84), in degrees.

A point is kept to 1e-7 degrees, about a centimetre, as one code: its latitude above 32 bits, its longitude
below, counted from the south pole and from 180 degrees west. So an event has all of a point in one code, as
it has of any value.

What conditions ask of a point is of two kinds. Its longitude and its latitude are hidden attributes
(`longitude(at)`, `latitude(at)`, derived.py), and a box on the map is intervals of those. A circle or a
polygon is a *region* (regions.py): the attribute keeps a dictionary of the regions that subscriptions name,
and an entry of a box names them by their codes. An event's values of the attribute are, in this sense, the
regions that its point is in. No event lists them: the covering of a region, intervals of longitude and
latitude, selects it, and what was selected is decided by the region itself (engine/checked_slots.py).

A column of points may be

    rows, JSON     [13.4, 52.5], {"lon": 13.4, "lat": 52.5}, GeoJSON's {"type": "Point", "coordinates": ...}
    Arrow, Spark   a struct of such fields, a list or an array of two numbers, text
    CSV, text      POINT(13.4 52.5), or 13.4 52.5 with a blank or a comma between
    two columns    Point("at", longitude="lon", latitude="lat") in the schema: then `lon` and `lat` are
                   attributes of numbers as any other, and the point is made of their codes

Longitude comes first. A third number of a list, the altitude, is ignored. Fields are named lon, lng, long,
longitude or x, and lat, latitude or y.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import SchemaError
from rangecast.kernels.types.places import SCALE, SOUTH, WEST, RegionArrays, mark_inside
from rangecast.types.arrow_compute import pc
from rangecast.types.attributes import (
    KINDS,
    LAST,
    MISSING,
    VALUE,
    Attribute,
    Codes,
    Encoded,
    Interval,
    decoded_floats,
)
from rangecast.types.columns import Column, arrow_of, as_column, describe
from rangecast.types.numerals import Mask
from rangecast.types.regions import Floats, RegionTable, check_place
from rangecast.types.strings import is_text
from rangecast.types.vocabulary import Vocabulary

LONGITUDES = ("lon", "lng", "long", "longitude", "x")
LATITUDES = ("lat", "latitude", "y")
_NUMBER = r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_TEXT = re.compile(
    rf"\s*(?:POINT\s*\(\s*{_NUMBER}\s+{_NUMBER}\s*\)|{_NUMBER}(?:\s*,\s*|\s+){_NUMBER})\s*\Z", re.IGNORECASE
)
_LOW_BITS = (1 << 32) - 1
_NOWHERE = (math.nan, math.nan)


class Point(Attribute):
    """Places: a longitude and a latitude. Conditions ask with WITHIN, IN BOX and IN POLYGON.

    >>> at = Point("at")
    >>> at.decode(int(at.encode([[13.4, 52.5]]).codes[0]))
    (13.4, 52.5)
    """

    kind = "point"
    __slots__ = ("_table", "columns", "vocabulary")

    def __init__(
        self, name: str, regions: Any = (), *, longitude: str | None = None, latitude: str | None = None
    ) -> None:
        super().__init__(name)
        self.columns: tuple[str, str] | None = None
        """The columns of numbers that it is made of, if it has none of its own."""
        if longitude is not None or latitude is not None:
            self.columns = _two_columns(name, longitude, latitude)
        if isinstance(regions, str) or not all(isinstance(word, str) for word in _words(regions)):
            raise SchemaError(f"attribute {name!r}: a point takes no values, got {describe(regions)}")
        self.vocabulary = regions if isinstance(regions, Vocabulary) else Vocabulary(regions)
        """The words of the regions that subscriptions name (regions.py)."""
        self._table = RegionTable()

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_point, (self.name, self.vocabulary, self.columns)

    def __repr__(self) -> str:
        told = "" if self.columns is None else ", longitude={!r}, latitude={!r}".format(*self.columns)
        return f"Point({self.name!r}{told})"

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, Point) and self.columns == other.columns

    def __hash__(self) -> int:
        return super().__hash__()

    def regions(self) -> RegionArrays:
        """The regions that subscriptions name, as kernels take them."""
        return self._table.arrays(self.vocabulary.words())

    def bracket(self, value: Any) -> Interval:
        raise SchemaError(
            f"{self.name!r} is a point: it takes WITHIN 500 m OF (13.4, 52.5), IN BOX (west, south, east, "
            f"north), IN POLYGON 'POLYGON((...))' and IS MISSING, got {describe(value)}"
        )

    def holds(self, code: int, spans: Sequence[Interval]) -> bool:
        """Whether a box that asks for these spans of the attribute holds a point."""
        if code == MISSING:
            return spans[0][0] == MISSING
        if spans[-1][1] == LAST:
            return True
        words = [self.vocabulary.word(r) for low, high in spans for r in range(max(low, 1), high + 1)]
        return any(inside(word, code) for word in words if word is not None)

    def describe_spans(self, spans: Sequence[Interval]) -> str:
        """What a box asks of it, in words."""
        if spans[-1][1] == LAST:
            return "is missing or present" if spans[0][0] == MISSING else "is present"
        if spans[-1][1] == MISSING:
            return "is missing"
        words = [self.vocabulary.word(r) or "?" for low, high in spans for r in range(max(low, 1), high + 1)]
        return " or ".join(map(_shown, words[:4])) + (f", or {len(words) - 4:,} more" if words[4:] else "")

    def encode(self, values: Any, side: str = VALUE, grow: bool = False) -> Encoded:
        if side != VALUE:
            raise SchemaError(f"{self.name!r} is a point: give conditions for it, and no bounds")
        if self.columns is not None:
            one, other = self.columns
            raise SchemaError(f"{self.name!r} is made of the columns {one!r} and {other!r}: give those")
        return self._joined(_column(values))

    def joined(self, longitudes: Floats, latitudes: Floats) -> Encoded:
        """The codes of points whose numbers come in two columns; if both are NaN, there is no point."""
        return self._joined(_PointColumn(np.stack([longitudes, latitudes], axis=1)))

    def _joined(self, column: _PointColumn) -> Encoded:
        longitudes, latitudes, strange = _numbers(column)
        missing = np.isnan(longitudes) & np.isnan(latitudes) & ~strange
        with np.errstate(invalid="ignore"):
            good = (np.abs(longitudes) <= 180) & (np.abs(latitudes) <= 90)
        codes = np.full(len(good), MISSING, np.int64)
        codes[good] = point_codes(longitudes[good], latitudes[good])
        return self._encoded(codes, ~(good | missing), column)

    def decode(self, code: int) -> Any:
        if code == MISSING:
            return None
        longitudes, latitudes = degrees_of(np.array([code], np.int64))
        return float(longitudes[0]), float(latitudes[0])

    def wrong(self, value: Any) -> SchemaError:
        found = _point_of(value)
        if found is not None:
            if math.isnan(found[0]) or math.isnan(found[1]):
                if self.columns is not None:
                    there, absent = self.columns[:: -1 if math.isnan(found[0]) else 1]
                    number = found[1] if math.isnan(found[0]) else found[0]
                    return SchemaError(
                        f"{self.name!r} is made of {self.columns[0]!r} and {self.columns[1]!r}: {there!r} is "
                        f"{number!r}, and {absent!r} is missing"
                    )
                return SchemaError(
                    f"{self.name!r} is a point: it needs a longitude and a latitude, got {describe(value)}"
                )
            try:
                check_place(*found)
            except SchemaError as error:
                return SchemaError(f"{self.name!r}: {error}")
        return SchemaError(
            f"{self.name!r} is a point: a longitude and a latitude, as [13.4, 52.5], "
            f"{{'lon': 13.4, 'lat': 52.5}} or 'POINT(13.4 52.5)', got {describe(value)}"
        )


def _made_point(name: str, regions: Vocabulary, columns: tuple[str, str] | None) -> Point:
    longitude, latitude = columns or (None, None)
    return Point(name, regions, longitude=longitude, latitude=latitude)


def _two_columns(name: str, longitude: Any, latitude: Any) -> tuple[str, str]:
    named = [one for one in (longitude, latitude) if isinstance(one, str) and one]
    if len(set(named)) < 2 or name in named:
        raise SchemaError(
            f"attribute {name!r}: a point that is made of two columns names both and none of them as itself, "
            f"as longitude='lon', latitude='lat', got {describe(longitude)} and {describe(latitude)}"
        )
    return named[0], named[1]


def _words(regions: Any) -> Sequence[str]:
    return regions.words() if isinstance(regions, Vocabulary) else list(regions)


def point_codes(longitudes: Floats, latitudes: Floats) -> Codes:
    """The codes of points that are on the earth."""
    across = np.rint(longitudes * SCALE).astype(np.int64) + WEST
    up = np.rint(latitudes * SCALE).astype(np.int64) + SOUTH
    return (up << 32) | across


def degrees_from(attribute: Attribute, codes: Codes) -> Floats:
    """The numbers of an attribute of numbers by their codes, NaN where there is none."""
    numbers = decoded_floats(codes) if attribute.kind == "float" else codes.astype(np.float64)
    return np.where(codes == MISSING, math.nan, numbers)


def degrees_of(codes: Codes) -> tuple[Floats, Floats]:
    """The longitudes and latitudes of codes; of MISSING anything.

    >>> degrees_of(point_codes(np.array([-180.0]), np.array([45.0])))
    (array([-180.]), array([45.]))
    """
    return ((codes & _LOW_BITS) - WEST) / SCALE, ((codes >> 32) - SOUTH) / SCALE


def inside(word: str, code: int) -> bool:
    """Whether a region holds a point.

    >>> at = point_codes(np.array([13.4]), np.array([52.5]))
    >>> inside("circle 13.4 52.501 200.0", int(at[0])), inside("!circle 13.4 52.501 100.0", int(at[0]))
    (True, True)
    """
    out = np.zeros(1, np.uint8)
    mark_inside(RegionTable().arrays([word]), 0, np.array([code], np.int64), np.zeros((1, 4)), out)
    return bool(out[0])


def _shown(word: str) -> str:
    return word if len(word) <= 80 else word[:77] + "..."


class _PointColumn(Column):
    """A column whose values messages show as they are."""

    def values_at(self, rows: npt.NDArray[np.int64]) -> list[Any]:
        if isinstance(self.data, pa.Array):
            return list(self.data.take(pa.array(rows)).to_pylist())
        return [self.data[row] for row in rows]


def _column(values: Any) -> _PointColumn:
    """Points as one Arrow column where they are all of one form, otherwise as objects."""
    if isinstance(values, Column):
        return _PointColumn(values.data)
    values = arrow_of(values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _PointColumn(as_column(values).data)
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return _PointColumn(values)
    items = list(values)
    types = set(map(type, items)) - {type(None)}
    if types <= {list, tuple} or types == {dict}:
        try:
            made = pa.array(items, from_pandas=False)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            pass
        else:
            if _is_plain(made.type):
                return _PointColumn(made)
    out = np.empty(len(items), object)
    for row, item in enumerate(items):
        out[row] = item
    return _PointColumn(out)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether the numbers of a column are found without a look at its values."""
    return _coordinates(kind) is not None or pa.types.is_null(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _coordinates(kind: pa.DataType) -> tuple[str, ...] | None:
    """The fields of a struct that hold a point, two or "coordinates"; empty for a list of numbers."""
    if _is_list(kind):
        return () if _is_number(kind.value_type) or pa.types.is_null(kind.value_type) else None
    if not pa.types.is_struct(kind):
        return None
    fields = {field.name.casefold(): field for field in kind}
    if "coordinates" in fields and _coordinates(fields["coordinates"].type) == ():
        return (fields["coordinates"].name,)
    found = [
        [fields[name] for name in names if name in fields and _is_number(fields[name].type)]
        for names in (LONGITUDES, LATITUDES)
    ]
    return (found[0][0].name, found[1][0].name) if all(len(one) == 1 for one in found) else None


def _numbers(column: Column) -> tuple[Floats, Floats, Mask]:
    """Longitudes and latitudes, NaN where there is none, and which rows are no point at all."""
    data = column.data
    if isinstance(data, pa.Array):
        if pa.types.is_null(data.type):
            return np.full(len(data), math.nan), np.full(len(data), math.nan), np.zeros(len(data), bool)
        named = _coordinates(data.type)
        if named == ():
            return _of_lists(data)
        if named is not None and len(named) == 1:
            return _of_geojson(data, named[0])
        if named is not None:
            longitudes, latitudes = (_floats(pc.struct_field(data, name)) for name in named)
            return longitudes, latitudes, np.zeros(len(data), bool)
        if is_text(data.type):
            return _of_objects(data.to_pylist())
        if pa.types.is_struct(data.type) or _is_list(data.type):
            return _of_objects(data.to_pylist())
        strange = np.asarray(data.is_valid())
        if pa.types.is_floating(data.type):
            # NaN is no value, as everywhere
            strange = ~np.isnan(data.to_numpy(zero_copy_only=False))
        return np.full(len(data), math.nan), np.full(len(data), math.nan), strange
    if data.ndim == 2 and data.shape[1] == 2 and data.dtype.kind in "iuf":
        both = data.astype(np.float64)
        return both[:, 0].copy(), both[:, 1].copy(), np.zeros(len(data), bool)
    return _of_objects(list(data))


def _of_lists(data: pa.Array[Any]) -> tuple[Floats, Floats, Mask]:
    valid = np.asarray(data.is_valid())
    if pa.types.is_fixed_size_list(data.type):
        sizes = np.where(valid, data.type.list_size, 0)
    else:
        sizes = np.asarray(data.value_lengths().fill_null(0)).astype(np.int64)
    flat = _floats(data.flatten())
    firsts = np.cumsum(sizes) - sizes
    whole = (sizes == 2) | (sizes == 3)
    out = np.full((2, len(data)), math.nan)
    for k in range(2):
        out[k, whole] = flat[firsts[whole] + k]
    return out[0], out[1], valid & ~whole


def _of_geojson(data: pa.Array[Any], name: str) -> tuple[Floats, Floats, Mask]:
    longitudes, latitudes, strange = _of_lists(pc.struct_field(data, name))
    if data.type.get_field_index("type") >= 0:
        kinds = pc.struct_field(data, "type")
        if is_text(kinds.type):
            strange |= np.asarray(pc.not_equal(kinds, "Point").fill_null(False))
    for column in (longitudes, latitudes):
        column[strange] = math.nan
    return longitudes, latitudes, strange


def _floats(column: Any) -> Floats:
    """Numbers of an Arrow column, NaN for null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_null(column.type):
        return np.full(len(column), math.nan)
    found = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(found, np.float64)


def _of_objects(items: Sequence[Any]) -> tuple[Floats, Floats, Mask]:
    out = np.full((2, len(items)), math.nan)
    strange = np.zeros(len(items), bool)
    for row, item in enumerate(items):
        found = _point_of(item)
        if found is None:
            strange[row] = True
        else:
            out[:, row] = found
    return out[0], out[1], strange


def _point_of(value: Any) -> tuple[float, float] | None:
    """The numbers of one point, NaN for what is missing; None for what is no point.

    >>> _point_of("POINT(13.4 52.5)"), _point_of({"lng": 1, "lat": 2}), _point_of([1])
    ((13.4, 52.5), (1.0, 2.0), None)
    """
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return _NOWHERE
    if isinstance(value, str):
        if not value.strip():
            return _NOWHERE
        match = _TEXT.match(value)
        if match is None:
            return None
        first, second = (found for found in match.groups() if found is not None)
        return float(first), float(second)
    if isinstance(value, Mapping):
        return _of_mapping(value)
    if isinstance(value, list | tuple | np.ndarray) and len(value) in (2, 3):
        numbers = [_number(one) for one in list(value)[:2]]
        return None if None in numbers else (numbers[0], numbers[1])  # type: ignore[return-value]
    return None


def _of_mapping(value: Mapping[Any, Any]) -> tuple[float, float] | None:
    fields = {str(key).casefold(): key for key in value}
    if "coordinates" in fields:
        if "type" in fields and value[fields["type"]] not in ("Point", None):
            return None
        return _point_of(value[fields["coordinates"]])
    found = [[fields[name] for name in names if name in fields] for names in (LONGITUDES, LATITUDES)]
    if any(len(one) != 1 for one in found):
        return None
    numbers = [_number(value[one[0]]) for one in found]
    return None if None in numbers else (numbers[0], numbers[1])  # type: ignore[return-value]


def _number(value: Any) -> float | None:
    if value is None:
        return math.nan
    if isinstance(value, bool | np.bool_ | str):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


KINDS[Point.kind] = Point
