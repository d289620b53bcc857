"""rangecast: which of millions of stored subscriptions does this event match?"""

from rangecast import covering
from rangecast.attributes import Attribute, Category, Float, Int, Timestamp
from rangecast.covering import CoverIndex
from rangecast.errors import (
    CapacityError,
    EventError,
    LanguageError,
    OptionError,
    RangecastError,
    SchemaError,
    SetupError,
    StorageError,
    SubscriptionError,
    UnknownIndexError,
)
from rangecast.events import Events
from rangecast.explanation import Explanation
from rangecast.following import Follower
from rangecast.indexes import Index, load_index, open_index
from rangecast.matches import Matches
from rangecast.routing import Network, Router
from rangecast.scheduling import AdaptiveLevel, ShortestFirst
from rangecast.schema import Schema
from rangecast.store import Store
from rangecast.subscriptions import Subscriptions

__version__ = "0.1.0"

__all__ = [
    "AdaptiveLevel",
    "Attribute",
    "CapacityError",
    "Category",
    "CoverIndex",
    "EventError",
    "Events",
    "Explanation",
    "Float",
    "Follower",
    "Index",
    "Int",
    "LanguageError",
    "Matches",
    "Network",
    "OptionError",
    "RangecastError",
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
    "open_index",
]
