"""JSON lines of flat objects as events: what most publishers send, read by the kernel that reads files.

The reader of files (loading/json_codes.py) writes codes where each value stands, and takes no line that means
anything else to the reader of any JSON. A body with one line that it does not take is left to the ordinary
reader as a whole, which has words for what is wrong with it.

A reader knows the keys that it has met. It is kept for the next body of its schema, and one that has met too
many keys is not.
"""

from __future__ import annotations

from collections import OrderedDict, deque

import numpy as np

from rangecast.loading.json_codes import LineCoder, WholeLines
from rangecast.types.schema import Schema

_MOST_SCHEMAS = 16
_MOST_OTHER_KEYS = 32  # each is compared with the first key of every line
_readers: OrderedDict[int, tuple[Schema, deque[LineCoder]]] = OrderedDict()
"""Readers that nobody uses, by the identity of their schema: equal schemas may know other words."""


def read_flat(raw: bytes, schema: Schema) -> WholeLines | None:
    """The lines of a body; None where they are not flat, or not UTF-8."""
    schema = schema.declared
    if schema.computed or not LineCoder.fits(schema, {}):
        return None
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return None
    ends = np.flatnonzero(np.frombuffer(raw, np.uint8) == ord("\n"))
    starts = np.empty(len(ends) + 2, np.int64)
    starts[0], starts[-1] = 0, len(raw)
    np.add(ends, 1, out=starts[1:-1])
    free = _free_readers(schema)
    try:
        reader = free.pop()
    except IndexError:
        reader = LineCoder(schema, {})
    found = reader.whole(raw, starts)
    if len(reader.keys) <= len(schema.names) + _MOST_OTHER_KEYS:
        free.append(reader)
    return found


def _free_readers(schema: Schema) -> deque[LineCoder]:
    found = _readers.get(id(schema))
    if found is None:
        found = _readers[id(schema)] = schema, deque(maxlen=8)
        while len(_readers) > _MOST_SCHEMAS:
            _readers.popitem(last=False)
    return found[1]
