"""NamedAreas within clauses: circles and polygons that a condition names, and the regions that they come to.

A clause asks one set of codes of an attribute (normal_form.py), but several circles may be asked of one
point, some of them denied. So while a condition is expanded, each area that it names is an attribute of its
own, 1 where the point is in it and 0 where it is elsewhere: AND, OR and NOT are then what they are for any
attribute. At the end the areas of a clause become one region of the point's dictionary (types/regions.py)
and the intervals of longitude and latitude that cover it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rangecast.errors import SchemaError
from rangecast.language.tree import Inside, value_of
from rangecast.types import regions
from rangecast.types.attributes import LAST, PRESENT, Float, Interval
from rangecast.types.places import Point
from rangecast.types.regions import MapExtent
from rangecast.types.schema import Schema

FIRST = 1 << 40
"""Behind the positions of all attributes: area k stands for the attribute FIRST + k."""

HELD, DENIED = ((1, 1),), ((0, 0),)
_PRESENT_SPANS = ((PRESENT, LAST),)
_ANY_FLOAT = Float("degrees")

Bounds = dict[int, tuple[Interval, ...]]


class NamedAreas:
    """The areas that one condition names."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._noted: list[tuple[str, Inside]] = []
        self._numbers: dict[tuple[int, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, condition: Inside, texts: Sequence[str]) -> tuple[int, bool]:
        """The attribute that an area stands for, and whether lint.py should look at it."""
        word = word_of(condition, texts)
        odd = condition.area == "polygon" and regions.long_edge(word) is not None
        known = self._numbers.setdefault((condition.position, word), len(self._noted))
        if known == len(self._noted):
            self._noted.append((word, condition))
        return FIRST + known, odd

    def bounds(self, clause: Mapping[int, tuple[Interval, ...]]) -> Iterator[Bounds]:
        """What the areas of a clause ask of attributes, in steps that must all hold."""
        named: dict[int, list[tuple[str, bool]]] = {}
        for position, spans in clause.items():
            if position < FIRST:
                continue
            word, condition = self._noted[position - FIRST]
            yield {condition.position: _PRESENT_SPANS}
            if spans not in (HELD, DENIED):  # in it or not, the point is somewhere
                continue
            named.setdefault(condition.position, []).append((word, spans == DENIED))
            if spans == HELD:
                yield extent_bounds(condition, regions.extent_of(word))
        for position, areas in named.items():
            attribute = self._schema.attribute(position)
            assert isinstance(attribute, Point)
            code = attribute.vocabulary.add(regions.region(areas))
            yield {position: ((code, code),)}


def word_of(condition: Inside, texts: Sequence[str] | None = None) -> str:
    """The word of the circle or polygon of a predicate, with other literals if there are any."""
    if condition.area == "polygon":
        return regions.polygon(str(value_of(_texts(condition, texts)[0])))
    metres, longitude, latitude = numbers_of(condition, texts)
    return regions.circle(longitude, latitude, metres * regions.UNITS[condition.unit])


def extent_of(condition: Inside, texts: Sequence[str] | None = None) -> MapExtent:
    """The extent of a predicate that asks for a box."""
    return regions.box_extent(*numbers_of(condition, texts))


def extent_bounds(condition: Inside, extent: MapExtent) -> Bounds:
    """An extent as intervals of longitude and latitude."""
    across = tuple((_code(low), _code(high)) for low, high in extent.longitudes)
    return {condition.longitude: across, condition.latitude: ((_code(extent.south), _code(extent.north)),)}


def numbers_of(condition: Inside, texts: Sequence[str] | None = None) -> list[float]:
    """The numbers that a predicate has; SchemaError for a literal that is none."""
    out = []
    for text in _texts(condition, texts):
        value = value_of(text)
        if isinstance(value, bool | str) or not hasattr(value, "__float__"):
            raise SchemaError(f"{condition.attribute!r} is a point: expected a number, got {text}")
        out.append(float(value))
    return out


def _texts(condition: Inside, texts: Sequence[str] | None) -> list[str]:
    return [one.text if texts is None else one.among(texts) for one in condition.literals]


def _code(degrees: float) -> int:
    return _ANY_FLOAT.bracket(degrees)[0]
