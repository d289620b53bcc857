"""rangecast: which of millions of stored subscriptions does this event match?"""

from rangecast.attributes import Attribute, Category, Float, Int, Timestamp
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
from rangecast.indexes import Index, load_index, open_index
from rangecast.matches import Matches
from rangecast.schema import Schema
from rangecast.store import Store
from rangecast.subscriptions import Subscriptions

__version__ = "0.1.0"

__all__ = [
    "Attribute",
    "CapacityError",
    "Category",
    "EventError",
    "Events",
    "Explanation",
    "Float",
    "Index",
    "Int",
    "LanguageError",
    "Matches",
    "OptionError",
    "RangecastError",
    "Schema",
    "SchemaError",
    "SetupError",
    "StorageError",
    "Store",
    "SubscriptionError",
    "Subscriptions",
    "Timestamp",
    "UnknownIndexError",
    "load_index",
    "open_index",
]
