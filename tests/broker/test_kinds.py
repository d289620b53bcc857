"""Spaces of every kind of index deliver the same, live, from the log, and after a start."""

import itertools
import random

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")

import rangecast as rc
import seeds
from rangecast.broker.access import ConflictError
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving
from rangecast.client import Client
from rangecast.engine import REGISTRY
from rangecast.errors import UnknownIndexError

pytestmark = pytest.mark.once
OPTIONS = {"cells": {"on": "price"}}


def market():
    return rc.Schema(rc.Int("price"), rc.Category("symbol"), rc.Float("change"))


def made_condition(source):
    low = source.randrange(20)
    terms = [
        f"price between {low} and {low + source.randrange(6)}",
        f"price in ({low}, {source.randrange(20)}, 40)",
        f"symbol = 'S{source.randrange(3)}'",
        f"symbol != 'S{source.randrange(3)}' and change is missing",
        f"change > {source.randrange(4)}.5 or price = {low}",
        f"price * 2 > {low}",
        "symbol like '%1'",
    ]
    return " and ".join(f"({term})" for term in source.sample(terms, source.choice([1, 2])))


def made_event(source):
    event = {
        "price": source.randrange(24),
        "symbol": f"S{source.randrange(4)}",
        "change": source.randrange(5),
    }
    return {name: value for name, value in event.items() if source.random() < 0.8}


def received(client, consumer):
    found = client.messages(consumer, most=1_000)
    assert found["notices"] == []
    return [(one["sequence"], tuple(sorted(one["subscriptions"]))) for one in found["messages"]]


def test_every_kind_delivers_the_same(tmp_path):
    broker = Broker(BrokerSettings(data=tmp_path / "data", port=0))
    for kind in REGISTRY:
        broker.ensure_space(kind, market(), index=kind, options=OPTIONS.get(kind))
    seed = seeds.seed_of("kinds")
    delivered = {}
    with serving(broker) as url:
        for kind in REGISTRY:
            source = random.Random(seed)
            with Client(url, space=kind, timeout=300) as client:
                live = client.stream("late", start="now", notices=True, patience=300)
                assert next(live).kind == "caught_up"
                for _ in range(4):
                    rows = [
                        {"consumer": source.choice(["alice", "late"]), "name": f"n{source.randrange(9)}"}
                        | source.choice([{"condition": made_condition(source)}] * 3 + [{"delete": True}])
                        for _ in range(6)
                    ]
                    assert client.subscribe_many(rows)["rejected"] == []
                    client.publish([made_event(source) for _ in range(20)])
                client.subscribe("late", "last", "price = 99")
                client.publish({"price": 99})
                matches = (one for one in live if one.kind == "match")
                seen = [
                    (one.sequence, tuple(sorted(one.subscriptions)))
                    for one in itertools.takewhile(lambda one: one.sequence <= 80, matches)
                ]
                live.close()
                assert seen == received(client, "late")[:-1]
                delivered[kind] = seen, received(client, "alice"), client.match([made_event(source)])
    assert all(found == delivered["auto"] for found in delivered.values()), list(delivered)
    assert delivered["auto"][0]
    again = Broker(BrokerSettings(data=tmp_path / "data", port=0))
    again.ensure_space("vci", market())
    again.ensure_space("cells", market(), index="cells", options=OPTIONS["cells"])
    with serving(again) as url:
        for kind in ("vci", "cells"):
            with Client(url, space=kind, timeout=300) as client:
                assert received(client, "alice") == delivered[kind][1]
                assert {one["space"]: one["index"] for one in client.status()["spaces"]}[kind] == kind
        with pytest.raises(ConflictError, match=r"was made with the index 'vci' and the options \{\}"):
            again.ensure_space("vci", market(), index="rtree")
        with pytest.raises(ConflictError, match=r"the options \{'on': 'price'\}"):
            again.ensure_space("cells", market(), options={})
        with pytest.raises(UnknownIndexError, match="no index is called 'none'"):
            again.ensure_space("new", market(), index="none")
