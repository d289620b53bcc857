"""Areas of many texts of one shape at once: what region_clauses.py does for one text, on columns.

A predicate on a point that stands without a NOT becomes intervals of longitude and latitude and a region of
its own. Two of them on one point have no region in common, so that their conjunction is empty here and the
row is doubtful; rows whose circle reaches over the date line or a pole are doubtful too, and so is whatever
is no place. Doubtful rows are expanded one by one (templates.py), and make the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from rangecast.errors import SchemaError
from rangecast.language.span_columns import SpanColumns, one_span
from rangecast.language.tree import Inside, Literal, value_of
from rangecast.types import regions
from rangecast.types.attributes import Attribute, Codes, Float, decoded_floats, float_codes
from rangecast.types.numerals import Mask
from rangecast.types.places import Point

Brackets = Callable[[Attribute, Sequence[Literal]], tuple[Codes, Codes]]
_DEGREES = Float("degrees")


def inside_columns(
    attribute: Point, condition: Inside, texts: list[str], brackets: Brackets, doubtful: Mask
) -> dict[int, SpanColumns]:
    """The clause of a predicate for each text; sets `doubtful`. `texts` are the polygons, if it has one."""
    if condition.area == "polygon":
        words, ends = _polygons(texts, doubtful)
    else:
        numbers = decoded_floats(brackets(_DEGREES, condition.literals)[0])
        if condition.area == "box":
            return _bounds(condition, numbers.T, doubtful, regions.boxes_hold(numbers.T))
        metres = numbers[:, 0] * regions.UNITS[condition.unit]
        ends, plain = regions.circle_extents(numbers[:, 1], numbers[:, 2], metres)
        doubtful |= ~plain
        rows = zip(numbers[:, 1].tolist(), numbers[:, 2].tolist(), metres.tolist(), strict=True)
        words = [f"circle {x!r} {y!r} {m!r}" for x, y, m in rows]
    add = attribute.vocabulary.add
    codes = np.array([0 if odd else add(word) for word, odd in zip(words, doubtful, strict=True)], np.int64)
    found = _bounds(condition, ends, doubtful, ~doubtful)
    found[condition.position] = one_span(codes, codes)
    return found


def _bounds(
    condition: Inside, ends: npt.NDArray[np.float64], doubtful: Mask, plain: Mask
) -> dict[int, SpanColumns]:
    """West, south, east and north ends as intervals of the hidden attributes."""
    doubtful |= ~plain
    west, south, east, north = (float_codes(np.where(plain, row, 0.0)) for row in ends)
    return {condition.longitude: one_span(west, east), condition.latitude: one_span(south, north)}


def _polygons(texts: Sequence[str], doubtful: Mask) -> tuple[list[str], npt.NDArray[np.float64]]:
    words, ends = [""] * len(texts), np.zeros((4, len(texts)))
    for row, text in enumerate(texts):
        try:
            word = regions.polygon(str(value_of(text)))
            extent = regions.extent_of(word)
        except SchemaError:
            doubtful[row] = True
            continue
        # lint.py looks at texts one by one
        doubtful[row] |= extent.longitudes[-1][1] - extent.longitudes[0][0] > 180
        words[row] = word
        (west, east), *more = extent.longitudes
        ends[:, row] = west, extent.south, east, extent.north
        doubtful[row] |= bool(more)
    return words, ends
