"""rangecast: which of millions of stored subscriptions does this event match?"""

from rangecast import covering
from rangecast.covering import CoverIndex
from rangecast.engine import Index, load_index, open_index
from rangecast.errors import (
    CapacityError,
    EventError,
    ForkError,
    LanguageError,
    OptionError,
    RangecastError,
    RangecastWarning,
    SchemaError,
    SetupError,
    StorageError,
    SubscriptionError,
    UnknownIndexError,
)
from rangecast.loading import FileMatch, Rejects, load_subscriptions, match_file
from rangecast.model.events import Events
from rangecast.model.explanation import Explanation
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.rtree.scheduling import AdaptiveLevel, ShortestFirst
from rangecast.routing import Network, Router
from rangecast.store.follower import Follower
from rangecast.store.store import Store
from rangecast.types.attributes import Attribute, Bool, Category, Float, Int, Timestamp
from rangecast.types.schema import Schema

__version__ = "0.2.0"

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
    "OptionError",
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
    "Timestamp",
    "UnknownIndexError",
    "covering",
    "load_index",
    "load_subscriptions",
    "match_file",
    "open_index",
]
