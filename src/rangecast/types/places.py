"""Points of the earth as an attribute: longitude and latitude (WGS84), in degrees.

A point is kept to 1e-7 degrees, about a centimetre, as one code: its latitude above 32 bits, its longitude
below, counted from the south pole and from 180 degrees west. So an event has all of a point in one code, as
it has of any value.

What conditions ask of a point is of two kinds. Its longitude and its latitude are hidden attributes
(`longitude(at)`, `latitude(at)`, derived.py), and a box on the map is intervals of those. A circle or a
polygon is a *region* (places.py): the attribute keeps a dictionary of the regions that subscriptions name,
and an entry of a box names them by their codes. An event's values of the attribute are, in this sense, the
regions that its point is in. No event lists them: the covering of a region, intervals of longitude and
latitude, selects it, and what was selected is decided by the region itself (engine/catalog.py).

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

import contextlib
import hashlib
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.durable import lock
from rangecast.errors import EventError, SchemaError
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
    ValueCoder,
    decoded_floats,
)
from rangecast.types.columns import Column, arrow_of, as_column, describe
from rangecast.types.kernels import SCALE, SOUTH, WEST, RegionArrays, mark_inside
from rangecast.types.numerals import Mask
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
        """The words of the regions that subscriptions name (places.py)."""
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

    def coder(self) -> ValueCoder:
        def code(value: Any) -> int:
            if value is None:
                return MISSING
            numbers = _point_of(value)
            found = None if numbers is None else self.code_of(*numbers)
            if found is None:
                raise EventError(str(self.wrong(value)))
            return found

        return code

    def code_of(self, longitude: float, latitude: float) -> int | None:
        """The code of one point by its numbers, as `joined` gives it; None where they are no point."""
        if abs(longitude) <= 180 and abs(latitude) <= 90:
            return (round(latitude * SCALE) + SOUTH) << 32 | (round(longitude * SCALE) + WEST)
        return MISSING if math.isnan(longitude) and math.isnan(latitude) else None

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


# Regions of the earth: circles and polygons, their words, their coverings, and tables of them for kernels.
#
# An *area* is a circle or a polygon. A *region* is what a box asks of one attribute of points: areas that
# hold the point, and denied ones that do not, all together. Its word, by which a dictionary (vocabulary.py)
# keeps it and a file has it, joins the words of its areas:
#
#     region    area { " & " area }       sorted; a denied one begins with "!"
#     circle    circle LONGITUDE LATITUDE METRES
#     polygon   polygon RING { "," RING } { ";" RING { "," RING } }     a ";" between its parts
#     ring      X Y { X Y }                 whole numbers, in units of 1e-7 degrees; the first corner ends it
#
# A circle is on a sphere of EARTH_RADIUS, the mean radius of the earth: its points are those whose great
# circle to the centre is not longer than the radius, the border included. A polygon is in the plane of
# longitude and latitude, as in GeoJSON and in WKT: its edges are straight lines there, its border belongs to
# it, and its corners are on the grid of points. Longitudes beyond 180 degrees take it over the date line.
#
# The covering of a region is a box in longitude and latitude: intervals of two attributes, by which an index
# finds it. What is found is then decided by the areas themselves (types/kernels.py).

Floats = npt.NDArray[np.float64]

EARTH_RADIUS = 6_371_008.8
"""Metres: the mean radius of the earth's ellipsoid (IUGG, WGS84)."""

MOST_CORNERS = 65_536
"""Of one polygon."""

MOST_REMEMBERED = 1 << 18
"""Polygons that a memory has: a process may well hold as many."""

UNITS = {"m": 1.0, "km": 1_000.0, "mi": 1_609.344}
"""Metres of each unit of a distance."""

_COORDINATE = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WKT = re.compile(rf"\s*(?:([A-Za-z]+)|({_COORDINATE})|([(),])|(\S))")
# one ring, as most are: read at once; whatever is not like this is read word by word, which makes the errors
_SIMPLE = re.compile(
    rf"\s*POLYGON\s*\(\s*\((\s*{_COORDINATE}\s+{_COORDINATE}\s*(?:,\s*{_COORDINATE}\s+{_COORDINATE}\s*)*)\)\s*\)\s*\Z",
    re.IGNORECASE,
)
_MARGIN = 1e-7  # degrees: coverings are rounded outwards
_DENIED = "!"


class MapExtent(NamedTuple):
    """A covering: intervals of longitude, two where it crosses the date line, and one of latitude."""

    longitudes: tuple[tuple[float, float], ...]
    south: float
    north: float


def check_place(longitude: float, latitude: float) -> None:
    """Raise SchemaError unless these are a longitude and a latitude, saying what was probably meant."""
    if not -90 <= latitude <= 90:
        swapped = -90 <= longitude <= 90 and -180 <= latitude <= 180
        hint = f"; longitude comes first: is it ({latitude}, {longitude})?" if swapped else ""
        raise SchemaError(f"a latitude must lie within [-90, 90], got {latitude}{hint}")
    if not -180 <= longitude <= 180:
        same = (longitude + 180) % 360 - 180
        hint = f"; {same:g} is the same meridian" if math.isfinite(longitude) else ""
        raise SchemaError(f"a longitude must lie within [-180, 180], got {longitude}{hint}")


def circle(longitude: float, latitude: float, metres: float) -> str:
    """The word of a circle.

    >>> circle(13.4, 52.5, 500)
    'circle 13.4 52.5 500.0'
    """
    check_place(longitude, latitude)
    if not 0 <= metres < math.inf:
        raise SchemaError(f"a distance must not be negative, got {metres:g} m")
    return f"circle {float(longitude)!r} {float(latitude)!r} {float(metres)!r}"


def box_extent(west: float, south: float, east: float, north: float) -> MapExtent:
    """A box of longitudes and latitudes; one whose west is beyond its east crosses the date line.

    >>> box_extent(170, -20, -170, 10).longitudes
    ((-180.0, -170.0), (170.0, 180.0))
    """
    for longitude, latitude in ((west, south), (east, north)):
        check_place(longitude, latitude)
    if south > north:
        raise SchemaError(
            f"a box is (west, south, east, north), and south must not exceed north, got {south} and {north}"
        )
    if west > east:
        return MapExtent(((-180.0, float(east)), (float(west), 180.0)), float(south), float(north))
    spans = [(float(west), float(east))]
    # 180 degrees east and west are one meridian
    if east == 180 and west > -180:
        spans.insert(0, (-180.0, -180.0))
    if west == -180 and east < 180:
        spans.append((180.0, 180.0))
    return MapExtent(tuple(spans), float(south), float(north))


def boxes_hold(ends: Floats) -> Mask:
    """Which west, south, east and north ends (4, n) are boxes that have nothing to do with the date line."""
    west, south, east, north = ends
    within = (west > -180) & (east < 180) & (west <= east)
    held: Mask = within & (south >= -90) & (north <= 90) & (south <= north)
    return held


class PolygonMemory:
    """What polygons came to: their words by their texts, and their coverings by their words.

    Reading a polygon takes some 100 us, and texts are read twice where dictionaries are made first
    (spark/ingest_tasks.py): a memory of the first time saves the second. Nothing depends on what it has.
    """

    def __init__(self) -> None:
        self.words: dict[bytes, str] = {}
        self.extents: dict[str, MapExtent] = {}

    def note(self, key: bytes, word: str) -> str:
        """Note the word of a text, if it is not one too many; returns it."""
        if len(self.words) < MOST_REMEMBERED:
            self.words[key] = word
        return word


_thread = threading.local()


@contextlib.contextmanager
def remembering(memory: PolygonMemory) -> Iterator[PolygonMemory]:
    """Have this thread look polygons up in a memory inside, and note there what it reads.

    >>> with remembering(PolygonMemory()) as memory:
    ...     word = polygon("POLYGON((0 0, 1 0, 1 1, 0 0))")
    >>> list(memory.words.values()) == [word]
    True
    """
    before, _thread.memory = getattr(_thread, "memory", None), memory
    try:
        yield memory
    finally:
        _thread.memory = before


def polygon(text: str) -> str:
    """The word of a polygon or several that are written as WKT.

    >>> polygon("POLYGON((0 0, 1 0, 1 1, 0 0))")
    'polygon 0 0 10000000 0 10000000 10000000'
    """
    memory: PolygonMemory | None = getattr(_thread, "memory", None)
    if memory is None:
        return read_polygon(text)
    key = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
    return memory.words.get(key) or memory.note(key, read_polygon(text))


def read_polygon(text: str) -> str:
    """As `polygon`, without a memory."""
    simple = _SIMPLE.match(text)
    if simple is not None and len(text) < 32 * MOST_CORNERS:
        corners = np.array(simple[1].replace(",", " ").split(), np.float64).reshape(-1, 2)
        closed = len(corners) > 3 and bool((corners[0] == corners[-1]).all())
        if closed and bool((np.abs(corners) <= (180, 90)).all()) and len(corners) <= MOST_CORNERS:
            grid = np.rint(corners[:-1] * SCALE).astype(np.int64)
            return "polygon " + " ".join(map(str, grid.ravel().tolist()))
    reader = _Wkt(text)
    parts = reader.polygons()
    n_corners = sum(len(ring) for part in parts for ring in part)
    if n_corners > MOST_CORNERS:
        raise SchemaError(f"a polygon has at most {MOST_CORNERS:,} corners, this one {n_corners:,}")
    return "polygon " + ";".join(
        ",".join(" ".join(f"{x} {y}" for x, y in ring) for ring in part) for part in parts
    )


def long_edge(word: str) -> tuple[float, float] | None:
    """The longitudes of the ends of an edge that goes more than half around the earth but not all
    of the way, if a polygon has one.

    >>> long_edge(polygon("POLYGON((179 0, -179 0, -179 1, 179 0))"))
    (179.0, -179.0)
    """
    for ring in re.split("[,;]", word.removeprefix("polygon ")):
        xs = np.array(ring.split()[::2], np.int64)
        ends = np.roll(xs, -1)
        sizes = np.abs(ends - xs)
        long = np.flatnonzero((sizes > 180 * SCALE) & (sizes < 360 * SCALE))  # 360 is all the way round
        if len(long):
            return float(xs[long[0]] / SCALE), float(ends[long[0]] / SCALE)
    return None


def region(areas: Sequence[tuple[str, bool]]) -> str:
    """The word of a region: of the words of its areas, and whether each is denied."""
    return " & ".join(sorted({_DENIED * denied + word for word, denied in areas}))


def extent_of(word: str) -> MapExtent:
    """The covering of an area.

    >>> extent_of("circle 0.0 89.0 200000.0").longitudes, extent_of("circle 0.0 89.0 200000.0").north
    (((-180.0, 180.0),), 90.0)
    """
    kind, _, rest = word.partition(" ")
    if kind == "circle":
        return _circle_extent(*map(float, rest.split()))
    memory: PolygonMemory | None = getattr(_thread, "memory", None)
    if memory is None:
        return _polygon_extent(rest)
    found = memory.extents.get(word)
    if found is None:
        found = _polygon_extent(rest)
        if len(memory.extents) < MOST_REMEMBERED:
            memory.extents[word] = found
    return found


def _polygon_extent(rest: str) -> MapExtent:
    """The covering of a polygon by its corners."""
    corners = np.array(re.split(r"[ ,;]", rest), np.int64).reshape(-1, 2)
    (west, south), (east, north) = corners.min(axis=0) / SCALE, corners.max(axis=0) / SCALE
    return MapExtent(_around(float(west), float(east)), float(south), float(north))


def circle_extents(longitudes: Floats, latitudes: Floats, metres: Floats) -> tuple[Floats, Mask]:
    """West, south, east and north ends of circles (4, n), and which need no closer look: those that are
    circles, and reach neither over the date line nor over a pole."""
    with np.errstate(invalid="ignore"):
        angles = np.degrees(np.minimum(metres / EARTH_RADIUS, 4.0)) + _MARGIN
        south, north = latitudes - angles, latitudes + angles
        # where a great circle through the pole touches the circle
        ratios = np.sin(np.radians(angles)) / np.cos(np.radians(latitudes))
        wide = np.degrees(np.arcsin(np.minimum(ratios, 1.0))) + _MARGIN
        # on the grid, outwards: what is computed in another order, with another last bit, is the same
        west, low = (np.floor(ends * SCALE) / SCALE for ends in (longitudes - wide, south))
        east, high = (np.ceil(ends * SCALE) / SCALE for ends in (longitudes + wide, north))
        plain = (metres >= 0) & (low > -90) & (high < 90) & (west >= -180) & (east <= 180)
        plain &= (np.abs(latitudes) <= 90) & (west > -180) & (east < 180)
    return np.stack([west, low, east, high]), plain


def _circle_extent(longitude: float, latitude: float, metres: float) -> MapExtent:
    ends, plain = circle_extents(*(np.array([number]) for number in (longitude, latitude, metres)))
    west, south, east, north = ends[:, 0].tolist()
    if plain[0]:
        return MapExtent(((west, east),), south, north)
    if south <= -90 or north >= 90:
        return MapExtent(((-180.0, 180.0),), max(south, -90.0), min(north, 90.0))
    return MapExtent(_around(west, east), south, north)


def _around(west: float, east: float) -> tuple[tuple[float, float], ...]:
    """The longitudes from west to east, as ascending intervals from -180 to 180."""
    if east - west >= 360:
        return ((-180.0, 180.0),)
    spans: list[tuple[float, float]] = []
    for turn in (-360.0, 0.0, 360.0):
        low, high = max(west + turn, -180.0), min(east + turn, 180.0)
        if low <= high:
            spans.append((low, high))
    spans.sort()
    joined = [spans[0]]
    for low, high in spans[1:]:
        if low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return tuple(joined)


class _Wkt:
    """Reads POLYGON and MULTIPOLYGON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        for match in _WKT.finditer(text):
            kind = ("word", "number", "mark", "bad")[match.lastindex - 1 if match.lastindex else 3]
            self.tokens.append((kind, match[match.lastindex or 0]))
        self.next = 0

    def polygons(self) -> list[list[list[tuple[int, int]]]]:
        word = self.take("word", "POLYGON or MULTIPOLYGON").upper()
        if word not in ("POLYGON", "MULTIPOLYGON"):
            raise SchemaError(f"expected POLYGON or MULTIPOLYGON in {self.shown}, got {word}")
        if self.peek[0] == "word":
            what = "is empty" if self.peek[1].upper() == "EMPTY" else "must have two numbers for each corner"
            raise SchemaError(f"{word} {self.peek[1]} {what}")
        found = [self.rings()] if word == "POLYGON" else self.listed(self.rings)
        if self.next < len(self.tokens):
            raise SchemaError(f"expected the end of {self.shown}, got {self.peek[1]}")
        return found

    @property
    def shown(self) -> str:
        return repr(self.text if len(self.text) <= 60 else self.text[:57] + "...")

    @property
    def peek(self) -> tuple[str, str]:
        return self.tokens[self.next] if self.next < len(self.tokens) else ("end", "the end")

    def take(self, kind: str, expected: str) -> str:
        found, text = self.peek
        if found != kind or (kind == "mark" and text not in expected):
            raise SchemaError(f"expected {expected} in {self.shown}, got {text}")
        self.next += 1
        return text

    def listed(self, read: Any) -> list[Any]:
        self.take("mark", "(")
        found = [read()]
        while self.take("mark", ", or )") == ",":
            found.append(read())
        return found

    def rings(self) -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = self.listed(self.ring)
        return found

    def ring(self) -> list[tuple[int, int]]:
        corners = self.listed(self.corner)
        if corners[0] != corners[-1]:
            raise SchemaError(f"a ring of a polygon must end at the corner where it begins, in {self.shown}")
        if len(corners) < 4:
            raise SchemaError(
                f"a ring of a polygon must have three corners and the first one again, in {self.shown}"
            )
        found: list[tuple[int, int]] = corners[:-1]
        return found

    def corner(self) -> tuple[int, int]:
        longitude = float(self.take("number", "a longitude"))
        latitude = float(self.take("number", "a latitude"))
        if abs(longitude) > 360:
            raise SchemaError(
                f"a longitude of a polygon must lie within [-360, 360], got {longitude} in {self.shown}"
            )
        check_place((longitude + 180) % 360 - 180 if abs(longitude) > 180 else longitude, latitude)
        return round(longitude * SCALE), round(latitude * SCALE)


class RegionTable:
    """The regions of a dictionary as arrays for kernels; it grows at its end, so that who reads goes on.

    >>> table = RegionTable()
    >>> table.arrays(["circle 13.4 52.5 500.0", "polygon 0 0 9 0 9 9"]).areas.tolist()
    [0, -1]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._areas: dict[str, int] = {}
        self._n_words = 0
        zero = np.zeros(1, np.int64)
        self._columns: list[_Grown] = [
            _Grown(zero), _Grown(zero[:0]), _Grown(zero[:0]), _Grown(np.empty((0, 4))),
            _Grown(np.empty((0, 4), np.int64)), _Grown(zero), _Grown(zero), _Grown(zero),
            _Grown(zero[:0]), _Grown(zero[:0]), _Grown(zero[:0]),
        ]  # fmt: skip
        self._made: RegionArrays | None = None
        lock.watch(self)

    def _after_fork(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.__init__()  # type: ignore[misc]
        self._lock = threading.Lock()

    def arrays(self, words: Sequence[str]) -> RegionArrays:
        """The arrays of all these words, of which it may know the first."""
        with self._lock:
            if self._made is None or len(words) > self._n_words:
                for word in words[self._n_words :]:
                    self._add(word)
                    self._n_words += 1
                self._made = RegionArrays(*(column.view() for column in self._columns))
            return self._made

    def _add(self, word: str) -> None:
        try:
            self._take(word)
        except (ValueError, TypeError, OverflowError):
            shown = word if len(word) <= 60 else word[:57] + "..."
            raise SchemaError(f"{shown!r} is not a region") from None

    def _take(self, word: str) -> None:
        starts, named, *_ = self._columns
        numbers = []
        for area in word.split(" & "):
            denied = area.startswith(_DENIED)
            number = self._area(area.removeprefix(_DENIED)) + 1
            numbers.append(-number if denied else number)
        alone = self._columns[2].data[numbers[0] - 1] if len(numbers) == 1 and numbers[0] > 0 else -1
        self._columns[-1].append(np.array([max(alone, -1)], np.int64))
        named.append(np.array(numbers, np.int64))
        starts.append(np.array([named.n], np.int64))

    def _area(self, word: str) -> int:
        known = self._areas.get(word)
        if known is not None:
            return known
        _, _, areas, circles, extents, polygon_starts, part_starts, ring_starts, xs, ys, _ = self._columns
        kind, _, rest = word.partition(" ")
        if kind == "circle":
            number = circles.n
            circles.append(_on_sphere(*map(float, rest.split())))
        elif kind != "polygon":
            raise ValueError("neither a circle nor a polygon")
        else:
            number = -1 - extents.n
            for part in rest.split(";"):
                for ring in part.split(","):
                    corners = np.array(ring.split(), np.int64).reshape(-1, 2)
                    corners = np.concatenate([corners, corners[:1]])
                    if (np.abs(corners) > (360 * SCALE, 90 * SCALE)).any():
                        raise ValueError("beyond the earth")
                    xs.append(corners[:, 0])
                    ys.append(corners[:, 1])
                    ring_starts.append(np.array([xs.n], np.int64))
                part_starts.append(np.array([ring_starts.n - 1], np.int64))
            first = int(ring_starts.data[part_starts.data[polygon_starts.data[polygon_starts.n - 1]]])
            polygon_starts.append(np.array([part_starts.n - 1], np.int64))
            own_x, own_y = xs.data[first : xs.n], ys.data[first : ys.n]
            extents.append(np.array([[own_x.min(), own_y.min(), own_x.max(), own_y.max()]], np.int64))
        self._areas[word] = areas.n
        areas.append(np.array([number], np.int64))
        return areas.n - 1


class _Grown:
    """An array with room at its end."""

    __slots__ = ("data", "n")

    def __init__(self, data: npt.NDArray[Any]) -> None:
        self.data = data.copy()
        self.n = len(data)

    def append(self, more: npt.NDArray[Any]) -> None:
        if self.n + len(more) > len(self.data):
            room = max(64, self.n + len(more), self.n + (self.n >> 1))
            data = np.zeros((room, *self.data.shape[1:]), self.data.dtype)
            data[: self.n] = self.data[: self.n]
            self.data = data
        self.data[self.n : self.n + len(more)] = more
        self.n += len(more)

    def view(self) -> npt.NDArray[Any]:
        return self.data[: self.n]


def _on_sphere(longitude: float, latitude: float, metres: float) -> npt.NDArray[np.float64]:
    """A centre on the unit sphere, and the square of the straight line that reaches so many metres."""
    flat = math.cos(math.radians(latitude))
    angle = min(metres / EARTH_RADIUS, math.pi)
    chord = 2.0 * math.sin(angle / 2.0)
    square = 4.5 if angle >= math.pi else chord * chord  # beyond the antipode there is nothing
    east = math.radians(longitude)
    return np.array(
        [[flat * math.cos(east), flat * math.sin(east), math.sin(math.radians(latitude)), square]]
    )


def joined(tables: Sequence[RegionArrays]) -> RegionArrays:
    """The regions of several tables, one after the other."""
    if len(tables) == 1:
        return tables[0]
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in RegionArrays._fields}
    areas = named = circles = extents = parts_n = rings = corners = 0
    for k, t in enumerate(tables):
        skip = slice(1 if k else 0, None)
        parts["starts"].append(t.starts[skip] + named)
        parts["named"].append(t.named + np.sign(t.named) * areas)
        parts["areas"].append(np.where(t.areas >= 0, t.areas + circles, t.areas - extents))
        parts["circles"].append(t.circles)
        parts["extents"].append(t.extents)
        parts["polygon_starts"].append(t.polygon_starts[skip] + parts_n)
        parts["part_starts"].append(t.part_starts[skip] + rings)
        parts["ring_starts"].append(t.ring_starts[skip] + corners)
        parts["xs"].append(t.xs)
        parts["ys"].append(t.ys)
        parts["lone_circles"].append(np.where(t.lone_circles >= 0, t.lone_circles + circles, -1))
        areas, named = areas + len(t.areas), named + len(t.named)
        circles, extents = circles + len(t.circles), extents + len(t.extents)
        parts_n, rings = parts_n + len(t.part_starts) - 1, rings + len(t.ring_starts) - 1
        corners += len(t.xs)
    return RegionArrays(*(np.concatenate(parts[name]) for name in RegionArrays._fields))
