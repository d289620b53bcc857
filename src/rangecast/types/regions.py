"""Regions of the earth: circles and polygons, their words, their coverings, and tables of them for kernels.

An *area* is a circle or a polygon. A *region* is what a box asks of one attribute of points: areas that hold
the point, and denied ones that do not, all together. Its word, by which a dictionary (vocabulary.py) keeps it
and a file has it, joins the words of its areas:

    region    area { " & " area }       sorted; a denied one begins with "!"
    circle    circle LONGITUDE LATITUDE METRES
    polygon   polygon RING { "," RING } { ";" RING { "," RING } }     a ";" between its parts
    ring      X Y { X Y }                 whole numbers, in units of 1e-7 degrees; the first corner ends it

A circle is on a sphere of EARTH_RADIUS, the mean radius of the earth: its points are those whose great circle
to the centre is not longer than the radius, the border included. A polygon is in the plane of longitude and
latitude, as in GeoJSON and in WKT: its edges are straight lines there, its border belongs to it, and its
corners are on the grid of points. Longitudes beyond 180 degrees take it over the date line.

The covering of a region is a box in longitude and latitude: intervals of two attributes, by which an index
finds it. What is found is then decided by the areas themselves (kernels/types/places.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import forks
from rangecast.errors import SchemaError
from rangecast.kernels.types.places import SCALE, RegionArrays
from rangecast.types.numerals import Mask

Floats = npt.NDArray[np.float64]

EARTH_RADIUS = 6_371_008.8
"""Metres: the mean radius of the earth's ellipsoid (IUGG, WGS84)."""

MOST_CORNERS = 65_536
"""Of one polygon."""

MOST_REMEMBERED = 1 << 18
"""Polygons that a memory has: a process may well hold as many."""

UNITS = {"m": 1.0, "km": 1_000.0, "mi": 1_609.344}
"""Metres of each unit of a distance."""

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WKT = re.compile(rf"\s*(?:([A-Za-z]+)|({_NUMBER})|([(),])|(\S))")
# one ring, as most are: read at once; whatever is not like this is read word by word, which makes the errors
_SIMPLE = re.compile(
    rf"\s*POLYGON\s*\(\s*\((\s*{_NUMBER}\s+{_NUMBER}\s*(?:,\s*{_NUMBER}\s+{_NUMBER}\s*)*)\)\s*\)\s*\Z",
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
        forks.watch(self)

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
