"""The indexes, by name. A new one of ours joins with one line in `REGISTRY`.

One of another package is known by its entry point in the group `rangecast.indexes`, in every process where
the package is installed, Spark's workers too; or by `register_index` in the process that calls it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from importlib.metadata import entry_points
from typing import Any

from rangecast.durable.arrays import read_arrays, reading_from
from rangecast.engine.checks import mark_verified, marker_of
from rangecast.engine.index import Index
from rangecast.errors import OptionError, StorageError, UnknownIndexError
from rangecast.types.schema import Schema

REGISTRY: dict[str, str] = {
    "auto": "rangecast.engine.auto:AutoIndex",
    "scan": "rangecast.engine.layouts.scan:ScanIndex",
    "direct": "rangecast.papers.vci.structures:DirectIndex",
    "islist": "rangecast.papers.vci.structures:IslistIndex",
    "vci": "rangecast.papers.vci.structures:VciIndex",
    "vcr": "rangecast.papers.vcr.structures:VcrIndex",
    "counting": "rangecast.papers.ubtree.structures:CountingIndex",
    "ubtree": "rangecast.papers.ubtree.structures:UBTreeIndex",
    "rtree": "rangecast.papers.rtree.structures:RTreeIndex",
    "hint": "rangecast.papers.contrib.hint:HintIndex",
    "cei": "rangecast.papers.contrib.cei:CeiIndex",
    "rein": "rangecast.papers.contrib.rein:ReinIndex",
    "opindex": "rangecast.papers.contrib.opindex:OpIndex",
    "cells": "rangecast.engine.layouts.cells:CellsIndex",
    "bitmap": "rangecast.engine.layouts.bitmap:BitmapIndex",
}


GROUP = "rangecast.indexes"
"""The group of entry points by which a package says which indexes it has."""

_REGISTERED: dict[str, type[Index] | str] = {}


def index_names() -> list[str]:
    """The names that `open_index` takes: ours first."""
    return list(dict.fromkeys([*REGISTRY, *_REGISTERED, *_installed()]))


def index_type(name: str) -> type[Index]:
    """The class behind a name."""
    place = REGISTRY.get(name) or _REGISTERED.get(name) or _installed().get(name)
    if place is None:
        raise UnknownIndexError(f"no index is called {name!r}; there are {', '.join(sorted(index_names()))}")
    if not isinstance(place, str):
        return place
    module, _, kind = place.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError) as error:
        if name in REGISTRY:
            raise
        raise UnknownIndexError(f"index {name!r}: {place} cannot be loaded: {error}") from error
    return found if name in REGISTRY else _checked(name, found)


def register_index(name: str, kind: type[Index] | str) -> None:
    """Let `open_index` know an index of another package: its class, or where it is as "module:Class".

    The class derives from `rangecast.Index` and has this `name`, by which files tell what they hold. It
    may be registered twice; a name that another index has is refused.

    >>> from rangecast.engine.layouts.scan import ScanIndex
    >>> class Mine(ScanIndex):
    ...     name = "mine"
    >>> register_index("mine", Mine)
    >>> "mine" in index_names()
    True
    >>> unregister_index("mine")
    """
    if name in REGISTRY or _REGISTERED.get(name, kind) != kind:
        raise OptionError(f"an index is already called {name!r}; register_index takes another name")
    _REGISTERED[name] = kind if isinstance(kind, str) else _checked(name, kind)


def unregister_index(name: str) -> None:
    """Forget what `register_index` was told."""
    _REGISTERED.pop(name, None)


def _checked(name: str, kind: Any) -> type[Index]:
    if not (isinstance(kind, type) and issubclass(kind, Index)):
        raise OptionError(f"index {name!r} must be a class below rangecast.Index, got {kind!r}")
    if kind.name != name:
        raise OptionError(f"index {name!r} must have the name by which it is registered, got {kind.name!r}")
    return kind


@functools.cache
def _installed() -> dict[str, str]:
    """Indexes of installed packages; our own names cannot be taken."""
    return {point.name: point.value for point in entry_points(group=GROUP) if point.name not in REGISTRY}


def open_index(name: str, schema: Schema, **options: Any) -> Index:
    """An empty index of a kind, for subscriptions of a schema.

    >>> from rangecast import Int, Schema
    >>> open_index("scan", Schema(Int("price")))
    <ScanIndex 'scan': 0 subscriptions>
    """
    return index_type(name)(schema, **options)


def load_index(path: str | os.PathLike[str], mmap: bool = True, verify: bool | None = True) -> Index:
    """The index that was saved to a file; `mmap` shares its pages, `verify` checks every array first.

    With None the arrays are checked unless this machine has checked the file as it is now (checks.py).
    Ranges that kernels rely on are checked in any case. The texts and the payload of the subscriptions
    are left where they are, and checked when one is asked for.
    """
    marker = None
    if verify is not False:
        with reading_from(path), contextlib.suppress(FileNotFoundError):
            marker = marker_of(path)
    if verify is None:
        verify = marker is None or not marker.exists()
    meta, arrays = read_arrays(path, mmap, verify, unread=("catalog.texts", "catalog.payload"))
    if "index" not in meta:
        raise StorageError(f"{path}: holds no index")
    try:
        index = index_type(meta["index"])._from_dump(meta, arrays)
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # of plain values that no index would have written
        raise StorageError(f"{path}: holds no index that can be read: {error!r}") from None
    if verify and marker is not None:
        mark_verified(marker)
    return index


__all__ = [
    "REGISTRY",
    "Index",
    "index_names",
    "index_type",
    "load_index",
    "open_index",
    "register_index",
    "unregister_index",
]
