"""Which subscriptions fulfil a condition on their own columns, such as `owner = 'ann'`.

The condition is in the language of all conditions, and a payload is an event for it: its columns are the
attributes, and nulls are missing. Only columns that the condition may name are read.
"""

from __future__ import annotations

import numpy as np

from rangecast.engine import open_index
from rangecast.errors import SubscriptionError
from rangecast.model.events import Events
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema


def fulfilling(subs: Subscriptions, where: str) -> Ids:
    """The ids of the subscriptions whose payload fulfils a condition.

    >>> from rangecast import Int
    >>> subs = Subscriptions.parse(Schema(Int("price")), {7: "price < 10", 8: "price > 5"})
    >>> fulfilling(subs.with_payload({"owner": ["ann", "bob"]}), "owner = 'bob'").values.tolist()
    [8]
    """
    beside = subs.beside
    if not beside.payload:
        raise SubscriptionError(f"no subscription has a payload, so none can be chosen by {where!r}")
    named = [name for name in beside.payload if name.casefold() in where.casefold()]
    # none is named: the error lists all columns
    table = beside.table(named) if named else beside.table(rows=np.empty(0, np.int64))
    schema = Schema.infer(table)
    index = open_index("scan", schema)
    index.insert(Subscriptions.parse(schema, {0: where}))
    if not named:
        return subs.ids.select(np.empty(0, np.int64))
    return subs.ids.select(np.flatnonzero(index.match_any(Events.from_arrow(schema, table))))
