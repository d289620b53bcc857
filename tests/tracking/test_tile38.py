"""What tile38 calls enter, exit, inside, outside and cross, derived from the tracker, as the page says."""

from pathlib import Path

import numpy as np
import pytest
import shapely

import rangecast as rc
from rangecast.workloads import workload

pytestmark = pytest.mark.without_kernels

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tracking.md"


def told(before, now, fences):
    """By its definition: of each fence, what is said when an object moved from one place to another."""
    out = {word: set() for word in ("enter", "exit", "inside", "outside", "cross")}
    for fence, area in fences.items():
        was = before is not None and area.covers(shapely.Point(before))
        is_ = area.covers(shapely.Point(now))
        out["inside" if is_ else "outside"].add(fence)
        if is_ and not was:
            out["enter"].add(fence)
        elif was and not is_:
            out["exit"].add(fence)
        elif before is not None and not is_ and area.intersects(shapely.LineString([before, now])):
            out["cross"].add(fence)
    return out


def derived(tracker, vehicle, before, now, fences):
    """The same from the tracker, which is given the way as the states in between."""
    way = [now] if before is None else np.linspace(before, now, 9)[1:].tolist()
    was = set(tracker.subscriptions_of(vehicle).tolist())
    changes = tracker.update([{"vehicle": vehicle, "lon": x, "lat": y} for x, y in way], stays=False)
    touched = set(changes.entered.ids.to_pylist())
    inside = set(tracker.subscriptions_of(vehicle).tolist())
    return {
        "enter": inside - was,
        "exit": was - inside,
        "inside": inside,
        "outside": set(fences) - inside,
        "cross": touched - inside - was,
    }


def test_each_word_of_tile38_is_derived_from_the_tracker():
    w = workload("vehicles", 60, 240, vehicles=6, streets=4, step=0.002)  # from crossing to crossing
    index = rc.open_index("scan", w.schema)
    subs = w.subscriptions()
    index.insert(subs)
    fences = {
        int(i): shapely.box(w.lows["lon"][k], w.lows["lat"][k], w.highs["lon"][k], w.highs["lat"][k])
        for k, i in enumerate(w.ids)
    }
    # and some between crossings, which a step passes by
    middle = {100 + k: (13.0009 + 0.002 * k, 52.2999, 13.0014 + 0.002 * k, 52.3001) for k in range(3)}
    for fence, (west, south, east, north) in middle.items():
        text = f"lon between {west:.4f} and {east:.4f} and lat between {south} and {north}"
        index.insert(rc.Subscriptions.parse(index.schema, {fence: text}))
        fences[fence] = shapely.box(round(west, 4), south, round(east, 4), north)
    tracker = rc.Tracker(index, "vehicle")
    places = {}
    counted = dict.fromkeys(("enter", "exit", "inside", "outside", "cross"), 0)
    columns = (w.columns[name].tolist() for name in ("vehicle", "lon", "lat"))
    for vehicle, *now in zip(*columns, strict=True):
        wanted = told(places.get(vehicle), now, fences)
        assert derived(tracker, vehicle, places.get(vehicle), now, fences) == wanted
        places[vehicle] = now
        for word, found in wanted.items():
            counted[word] += len(found)
    assert min(counted.values()) > 3
    page = PAGE.read_text()
    assert all(f"| `{word}`" in page for word in counted)
