"""What is asked about one subscription of an index, rather than about events."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from rangecast.engine.catalog import Catalog
from rangecast.errors import SubscriptionError
from rangecast.model.events import Events
from rangecast.model.explanation import Explanation, explain_boxes
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema


def explain_one(
    schema: Schema,
    catalog: Catalog,
    lock: contextlib.AbstractContextManager[Any],
    subscription: Any,
    event: Events | Mapping[str, Any],
) -> Explanation:
    """`Index.explain`: of a subscription of the catalog, or of one that is given outright."""
    events = event if isinstance(event, Events) else Events.from_rows(schema, [event])
    if len(events) != 1:
        raise SubscriptionError(f"explain takes one event, got {len(events)}")
    if isinstance(subscription, Subscriptions):
        if len(subscription) != 1:
            raise SubscriptionError(f"explain takes one subscription, got {len(subscription)}")
        subs = subscription.reconciled(schema)
        text = None if subs.texts is None else subs.texts[0]
        return explain_boxes(subs.schema, subs.ids[0], subs.boxes, events, text)
    wanted = Ids.of([subscription])
    with lock:
        slot = int(catalog.find(wanted)[0])
    if slot < 0:
        raise SubscriptionError(f"no subscription has the id {subscription!r}")
    return explain_boxes(schema, subscription, catalog.boxes_of(slot), events, catalog.text_of(slot))
