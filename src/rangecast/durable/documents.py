"""Small documents with a sum: JSON objects of one line, whose last entry is the CRC-32 of all before it.

    {"version": 12, "note": "", "time": 1700000000000000, "crc32": "5d41402a"}

A document is checked before anything in it is used, and one that does not check is a StorageError with its
path. Documents of before there were sums have no such entry and are read as they are; one that ends in what
may have been a sum is none of those.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangecast.durable.arrays import replacing
from rangecast.errors import StorageError

_SUM = re.compile(rb'"crc32": "([0-9a-f]{8})"\}\n?\Z')
_DAMAGED_SUM = re.compile(rb'"[^"]{5}": "[^"]{8}"\}.?\Z', re.DOTALL)


def seal(content: Mapping[str, Any]) -> bytes:
    """The bytes of a document, without a newline at its end.

    >>> seal({"version": 12})
    b'{"version": 12, "crc32": "28d8395c"}'
    >>> unseal(_, "here")
    {'version': 12}
    """
    body = json.dumps(content).encode()[:-1] + (b", " if content else b"") + b'"crc32": "'
    return body + b'%08x"}' % zlib.crc32(body)


def is_sealed(raw: bytes) -> bool:
    """Whether these bytes are a whole document with its sum."""
    found = _SUM.search(raw)
    return found is not None and int(found[1], 16) == zlib.crc32(raw[: found.start(1)])


def unseal(raw: bytes, where: str | os.PathLike[str]) -> dict[str, Any]:
    """What was sealed, checked; `where` is what a StorageError names."""
    if not is_sealed(raw) and _DAMAGED_SUM.search(raw):
        raise StorageError(f"{where}: cannot be read: its sum does not hold; restore it from a copy")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{where}: cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise StorageError(f"{where}: cannot be read: it must be a JSON object, got {type(content).__name__}")
    content.pop("crc32", None)
    return content


def read_document(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The document of a file, checked; None when there is no file."""
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    return unseal(raw, path)


def write_document(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Put a document in place, whole and on disk."""
    with replacing(path) as file:
        file.write(seal(content) + b"\n")
