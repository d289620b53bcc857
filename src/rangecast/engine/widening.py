"""Subscriptions whose conditions use more hidden attributes than an index has (types/derived.py).

An index has the schema that it was made with, and its structures as many dimensions. When it gets a wider
one, another index is made of all its boxes, and the first becomes it; whoever is matching goes on with what
was published before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rangecast.model.subscriptions import Subscriptions

if TYPE_CHECKING:
    from rangecast.engine.index import Index


def taken_over(index: Index, subs: Subscriptions) -> Subscriptions:
    """Subscriptions as an index takes them, made as wide as they are; for whoever has the index's lock."""
    subs = subs.reconciled(index.schema)
    if len(subs.schema) > len(index._catalog.schema):
        wide = type(index)(subs.schema, **index.options)
        wide._compact(index._catalog)
        index.__dict__.update(wide.__dict__ | {"_lock": index._lock, "_read": index._read})
        index._publish()
    return subs
