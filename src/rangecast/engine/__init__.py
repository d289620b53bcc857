"""The indexes, by name. A new one joins with one line in `REGISTRY`."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Any

from rangecast.array_file import read_arrays, reading_from
from rangecast.engine.contract import Index
from rangecast.engine.verified import mark_verified, marker_of
from rangecast.errors import StorageError, UnknownIndexError
from rangecast.types.schema import Schema

REGISTRY: dict[str, str] = {
    "auto": "rangecast.engine.auto:AutoIndex",
    "scan": "rangecast.engine.scan:ScanIndex",
    "direct": "rangecast.papers.vci.direct:DirectIndex",
    "islist": "rangecast.papers.vci.islist:IslistIndex",
    "vci": "rangecast.papers.vci.index:VciIndex",
    "vcr": "rangecast.papers.vcr.index:VcrIndex",
    "counting": "rangecast.papers.ubtree.counting:CountingIndex",
    "ubtree": "rangecast.papers.ubtree.index:UBTreeIndex",
    "rtree": "rangecast.papers.rtree.index:RTreeIndex",
    "hint": "rangecast.papers.hint:HintIndex",
    "cei": "rangecast.papers.cei:CeiIndex",
    "rein": "rangecast.papers.rein:ReinIndex",
    "opindex": "rangecast.papers.opindex:OpIndex",
    "cells": "rangecast.engine.cells:CellsIndex",
    "bitmap": "rangecast.engine.bitmap:BitmapIndex",
}


def index_type(name: str) -> type[Index]:
    """The class behind a name."""
    if name not in REGISTRY:
        raise UnknownIndexError(f"no index is called {name!r}; there are {', '.join(sorted(REGISTRY))}")
    module, _, kind = REGISTRY[name].partition(":")
    found: type[Index] = getattr(importlib.import_module(module), kind)
    return found


def open_index(name: str, schema: Schema, **options: Any) -> Index:
    """An empty index of a kind, for subscriptions of a schema.

    >>> from rangecast import Int, Schema
    >>> open_index("scan", Schema(Int("price")))
    <ScanIndex 'scan': 0 subscriptions>
    """
    return index_type(name)(schema, **options)


def load_index(path: str | os.PathLike[str], mmap: bool = True, verify: bool | None = True) -> Index:
    """The index that was saved to a file; `mmap` shares its pages, `verify` checks every array first.

    With None the arrays are checked unless this machine has checked the file as it is now (verified.py).
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


__all__ = ["REGISTRY", "Index", "index_type", "load_index", "open_index"]
