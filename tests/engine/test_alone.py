"""Boxes that bound one attribute each, on several attributes: each attribute gets a path of its own."""

import numpy as np

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine import costs
from rangecast.engine.planner import Replanner


def test_many_boxes_of_one_attribute_get_their_own_path(monkeypatch):
    monkeypatch.setattr(costs, "MANY_ALONE", 200)
    rng = np.random.default_rng(4)
    schema = rc.Schema(*(rc.Int(name) for name in "abcd"))
    lows = rng.integers(0, 9000, 2400)
    texts = {}
    for k, low in enumerate(lows.tolist()):
        one, other = ("ab", "bc", "cd", "da")[k % 4]
        both = k % 3 == 0
        texts[k] = f"{one} between {low} and {low + 90}" + (f" and {other} > {low}" if both else "")
    texts |= {2400 + k: "a = 5" if k % 2 else "b is missing" for k in range(20)}
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    rows = [
        {name: int(v) for name, v in zip("abcd", own, strict=True) if v > 5}
        for own in rng.integers(0, 9900, (12, 4))
    ]
    events = rc.Events.from_rows(schema, rows)
    wanted = [sorted(row) for row in match_boxes(subs, events)]
    assert rows_of(index.match(events)) == wanted
    kinds = [(path["path"], path["on"]) for path in index.stats()["paths"]]
    assert sum(len(on) == 1 for _, on in kinds) >= 4, kinds
    assert index.match_one(rows[0]).size == len(wanted[0])
    # laid out anew, the boxes of these paths stay where they are and go nowhere else
    monkeypatch.setattr(Replanner, "pays", lambda *_: True)
    (covered,) = index._parts
    before = index._replanner.replans
    index._weigh(covered, events.encoded(schema).codes)
    assert index._replanner.replans == before + 1
    sizes = {(path["path"], tuple(path["on"])): path["boxes"] for path in index.stats()["paths"]}
    assert sum(sizes.values()) == len(texts)
    assert rows_of(index.match(events)) == wanted
    gone = list(range(0, 2420, 7))
    index.delete(gone)
    assert rows_of(index.match(events)) == [[k for k in row if k not in gone] for row in wanted]
