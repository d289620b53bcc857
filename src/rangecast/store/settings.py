"""What a store is made with, once and for all: its schema, the kind of its index, its own id (store.json)."""

from __future__ import annotations

import uuid
from typing import Any

from rangecast.engine import index_type
from rangecast.errors import RangecastError, StorageError
from rangecast.model.expiry_times import instant
from rangecast.store.home import Home
from rangecast.types.schema import Schema

FORMAT = 1


def create_store(home: Home, schema: Schema, index: str, options: dict[str, Any], wait: float) -> None:
    """Make an empty store, unless another process was faster."""
    index_type(index)(schema, **options)
    settings = {
        "format": FORMAT,
        "id": uuid.uuid4().hex,
        "schema": schema.to_dict(),
        "index": index,
        "options": options,
    }
    home.begin(settings, schema, instant(), wait)


def read_settings(home: Home) -> dict[str, Any]:
    """What a store was made with, checked."""
    settings = home.read("store.json") or {}
    if settings.get("format") != FORMAT:
        raise StorageError(f"{home.path}: a store of format {FORMAT} is read, got {settings.get('format')}")
    absent = {"id", "schema", "index", "options"} - set(settings)
    if absent:
        lacks = ", ".join(sorted(absent))
        raise StorageError(f"{home.path}/store.json: cannot be read: it must have {lacks}")
    return settings


def stored_schema(home: Home, settings: dict[str, Any]) -> Schema:
    """The schema that a store was made with, after everything else was checked."""
    try:
        # what kind of index it is, and with which options, is checked along
        schema = Schema.from_dict(settings["schema"])
        index_type(settings["index"])(schema, **settings["options"])
    except (RangecastError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{home.path}/store.json: cannot be read: {error!r}") from None
    return schema
