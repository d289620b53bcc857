"""`vcr`: rectangles cut into virtual construct rectangles.

Source: Wu, Chen and Yu, "VCR indexing for fast event matching for highly-overlapping range
predicates" (IBM Research Report, 2004). A construct is a rectangle (x, y, 2**i, 2**j) with any
bottom-left corner and sides that are powers of two up to Lx and Ly. A subscription is cut into
constructs and listed with each; the subscriptions that an event matches are in the lists of the
constructs that hold its point.

    storage          module          what it is
    "runs"           runs.py     ours and the default: static, constructs of one size in one
                                     row next to each other, so that a point reads one run a size
    "array", "hash"  lists.py    the paper's: linked lists that change in place, a header for
                                     every construct or a hash table of those in use
    (pure functions) constructs.py ids, decompositions, covering set, distance table

All of them lie on a plane of cells (plane.py), so values of any type, outside the stated domain or
missing are matched exactly; attributes that are not on the plane are checked per candidate.
"""

from __future__ import annotations

import importlib
from typing import Any

from rangecast.engine.index import Index
from rangecast.errors import OptionError
from rangecast.types.schema import Schema

_STORAGES = {
    "runs": "rangecast.papers.vcr.structures:RectangleRunsIndex",
    "array": "rangecast.papers.vcr.lists:RectangleListsIndex",
    "hash": "rangecast.papers.vcr.lists:RectangleListsIndex",
}


class VcrIndex(Index):
    """Rectangles over two attributes, by the constructs that they are made of.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("x", 0, 299), rc.Int("y", 0, 199))
    >>> index = rc.open_index("vcr", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "x between 3 and 14 and y between 3 and 9"}))
    >>> index.match(rc.Events.from_rows(schema, [{"x": 14, "y": 9}, {"x": 15, "y": 9}])).counts.tolist()
    [1, 0]
    """

    name = "vcr"

    def __new__(cls, schema: Schema, **options: Any) -> VcrIndex:
        if cls is not VcrIndex:
            return super().__new__(cls)
        storage = options.get("storage", "runs")
        if storage not in _STORAGES:
            raise OptionError(f"storage must be one of {', '.join(_STORAGES)}, got {storage!r}")
        module, _, kind = _STORAGES[storage].partition(":")
        found: type[VcrIndex] = getattr(importlib.import_module(module), kind)
        return super().__new__(found)
