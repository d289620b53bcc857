"""rangecast: which of millions of stored subscriptions does this event match?

Importing the package loads next to nothing: a name is loaded with its module when it is first asked for, and
compilers, Arrow and the rest with it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rangecast.errors import (
    CapacityError,
    EventError,
    ForkError,
    LanguageError,
    OddConditionWarning,
    OptionError,
    RangecastError,
    RangecastWarning,
    SchemaError,
    SetupError,
    StorageError,
    SubscriptionError,
    UnknownIndexError,
)

if TYPE_CHECKING:
    from rangecast import covering
    from rangecast.covering import CoverIndex
    from rangecast.engine import Index, load_index, open_index, register_index
    from rangecast.engine.match_frames import match
    from rangecast.loading import FileMatch, Rejects, load_subscriptions
    from rangecast.loading.match_file import match_file
    from rangecast.model.events import Events
    from rangecast.model.explanation import Explanation
    from rangecast.model.matches import Matches
    from rangecast.model.subscriptions import Subscriptions
    from rangecast.papers.rtree.structures import AdaptiveLevel, ShortestFirst
    from rangecast.routing import Network, Router
    from rangecast.store.follower import Follower
    from rangecast.store.store import Store
    from rangecast.tracking import Tracker
    from rangecast.types.attributes import Attribute, Bool, Category, Float, Int, Timestamp
    from rangecast.types.schema import Schema
    from rangecast.workloads.warm_up import warm_up

_HOMES = {
    "rangecast.covering": ("CoverIndex",),
    "rangecast.engine": ("Index", "load_index", "open_index", "register_index"),
    "rangecast.engine.match_frames": ("match",),
    "rangecast.loading": ("FileMatch", "Rejects", "load_subscriptions", "match_file"),
    "rangecast.model.events": ("Events",),
    "rangecast.model.explanation": ("Explanation",),
    "rangecast.model.matches": ("Matches",),
    "rangecast.model.subscriptions": ("Subscriptions",),
    "rangecast.papers.rtree.structures": ("AdaptiveLevel", "ShortestFirst"),
    "rangecast.routing": ("Network", "Router"),
    "rangecast.store.follower": ("Follower",),
    "rangecast.store.store": ("Store",),
    "rangecast.tracking": ("Tracker",),
    "rangecast.types.attributes": (
        "Attribute",
        "Bool",
        "Category",
        "Float",
        "Int",
        "Tags",
        "Text",
        "Timestamp",
    ),
    "rangecast.types.places": ("Point",),
    "rangecast.types.schema": ("Schema",),
    "rangecast.workloads.warm_up": ("warm_up",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_FOLDERS = (
    "covering",
    "engine",
    "language",
    "loading",
    "model",
    "papers",
    "routing",
    "store",
    "tracking",
    "types",
    "workloads",
    "zorder",
    "durable",
    "simd",
    "memory",
)


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        thing = getattr(importlib.import_module(_HOME_OF[name]), name)
    elif name in _FOLDERS:
        thing = importlib.import_module(f"rangecast.{name}")
    else:
        raise AttributeError(f"module 'rangecast' has no attribute {name!r}")
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__version__ = "0.4.0"

__all__ = [
    "AdaptiveLevel",
    "Attribute",
    "Bool",
    "CapacityError",
    "Category",
    "CoverIndex",
    "EventError",
    "Events",
    "Explanation",
    "FileMatch",
    "Float",
    "Follower",
    "ForkError",
    "Index",
    "Int",
    "LanguageError",
    "Matches",
    "Network",
    "OddConditionWarning",
    "OptionError",
    "Point",
    "RangecastError",
    "RangecastWarning",
    "Rejects",
    "Router",
    "Schema",
    "SchemaError",
    "SetupError",
    "ShortestFirst",
    "StorageError",
    "Store",
    "SubscriptionError",
    "Subscriptions",
    "Tags",
    "Text",
    "Timestamp",
    "Tracker",
    "UnknownIndexError",
    "covering",
    "load_index",
    "load_subscriptions",
    "match",
    "match_file",
    "open_index",
    "register_index",
    "warm_up",
]
