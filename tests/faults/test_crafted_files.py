"""Files with right sums and wrong content: every array that a kernel indexes by is looked at before it does.

Each array of a saved index gets values that no index would have written (too large, negative, descending, too
few, another type), and the file is written anew with right sums. It must be refused, or every match must stay
within its arrays: the leg with bounds checks proves that, and no leg may crash.
"""

import numpy as np
import pytest

import rangecast as rc
from oracle import rows_of
from rangecast.durable.arrays import read_arrays, write_arrays
from rangecast.engine import REGISTRY, checks
from rangecast.engine.grid import Grid
from strategies import int_schema, random_events, random_subscriptions

KINDS = {
    "scan": ("scan", {}),
    "cells": ("cells", {"on": ("a0",)}),
    "bitmap": ("bitmap", {}),
    "auto": ("auto", {}),
    "vci": ("vci", {}),
    "vci_table": ("vci", {"lookup": "table", "cells": 64}),
    "vci_bitmap": ("vci", {"lookup": "bitmap", "cells": 64}),
    "vci_clipped": ("vci", {"lookup": "clipped", "cells": 64}),
    "islist": ("islist", {}),
    "direct": ("direct", {"cells": 64}),
    "vcr": ("vcr", {}),
    "vcr_array": ("vcr", {"storage": "array", "cells": 32}),
    "vcr_hash": ("vcr", {"storage": "hash", "cells": 32}),
    "counting": ("counting", {}),
    "ubtree": ("ubtree", {"leaf": 16, "fanout": 4}),
    "rtree": ("rtree", {}),
    "hint": ("hint", {}),
    "cei": ("cei", {}),
    "rein": ("rein", {}),
    "opindex": ("opindex", {}),
}
CHANGED = ("islist", "vci_table", "vci_bitmap", "vci_clipped", "vcr_array", "vcr_hash", "ubtree", "rtree")
"""Those that change in place."""


def subscriptions(name, schema):
    rng = np.random.default_rng(5)
    if name == "auto":
        # equality, intervals, planes and boxes that are alike, so that most paths are taken
        n = 3000
        lows = rng.integers(0, 100, (n, len(schema))).astype(float)
        highs = lows + rng.integers(0, 30, lows.shape)
        highs[: n // 3, 0] = lows[: n // 3, 0]
        lows[n // 3 :, 2:] = np.nan
        highs[n // 3 :, 2:] = np.nan
        lows[n // 2 :, 0], highs[n // 2 :, 0] = np.nan, np.nan
        return rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)
    return random_subscriptions(schema, 900, seed=3, boxes=2)


def harmed(array, rng):
    """Copies of an array with one thing wrong each."""
    if not array.size:
        return
    flat = array.reshape(-1)
    place = int(rng.integers(flat.size))
    if array.dtype.kind in "iu":
        top = np.iinfo(array.dtype).max
        for value in (top, top // 2, np.iinfo(array.dtype).min, flat.size + 7):
            copy = flat.copy()
            copy[place] = min(value, top)
            yield copy.reshape(array.shape)
            copy = flat.copy()
            copy[-1] = min(value, top)
            yield copy.reshape(array.shape)
    yield np.ascontiguousarray(flat[::-1]).reshape(array.shape)
    yield np.ascontiguousarray(array[: len(array) // 2])
    yield array.astype(np.int64 if array.dtype != np.int64 else np.int32)
    yield flat.copy() if array.ndim > 1 else flat.reshape(1, -1).copy()


@pytest.mark.parametrize("kind", KINDS)
def test_a_crafted_file_is_refused_or_stays_within_its_arrays(kind, tmp_path, leg):
    if leg == "nojit":
        pytest.skip("no kernel reads beyond an array in plain Python")
    name, options = KINDS[kind]
    schema = int_schema(4 if name == "auto" else 3)
    index = rc.open_index(name, schema, **options)
    index.insert(subscriptions(name, schema))
    if kind in CHANGED:
        # nodes come and go, so that there are free ones
        index.delete(np.arange(100))
        index.insert(random_subscriptions(schema, 30, seed=9))
        index.delete(np.arange(200, 240))
    path = tmp_path / "index"
    index.save(path)
    meta, arrays = read_arrays(path, mmap=False)
    events = random_events(schema, 40, seed=4)
    expected = rows_of(index.match(events))
    assert rows_of(rc.load_index(path).match(events)) == expected
    rng = np.random.default_rng(7)
    refused = kept = 0
    for key in arrays:
        for wrong in harmed(arrays[key], rng):
            write_arrays(path, meta, {**arrays, key: wrong})
            try:
                loaded = rc.load_index(path)
                loaded.match(events)
                loaded.match(events.select(np.array([3])))
                if kind in CHANGED and not key.startswith("catalog") and kept % 4 == 0:
                    # built anew from the subscriptions, whatever the file had
                    loaded.delete([5])
                    index.delete([5])
                    assert rows_of(loaded.match(events)) == rows_of(index.match(events)), key
                kept += 1
            except rc.StorageError:
                refused += 1
    # what is kept are other bounds, other ids, other lists of the same lengths, and what only writes read
    assert 2 * refused > kept, (refused, kept)
    write_arrays(path, meta, arrays)
    assert rows_of(rc.load_index(path).match(events)) == expected
    print(f"{kind}: {refused} refused, {kept} kept")


def test_every_index_is_tried():
    assert {name for name, _ in KINDS.values()} == set(REGISTRY)


def test_plain_values_that_no_index_wrote_are_refused(tmp_path):
    schema = int_schema(2)
    index = rc.open_index("scan", schema)
    index.insert(random_subscriptions(schema, 900, seed=3))
    index.save(tmp_path / "index")
    meta, arrays = read_arrays(tmp_path / "index", mmap=False)
    (covered,) = meta["structure"]["_CoveredParts"]["parts"]
    covered["_Covered"]["part"] = {"ScanPart": {"first": 0, "last": 10**9}}
    write_arrays(tmp_path / "index", meta, arrays)
    with pytest.raises(rc.StorageError, match=r"index: that a range is one of boxes must hold"):
        rc.load_index(tmp_path / "index")
    covered["_Covered"]["part"] = {"ScanPart": {"first": "x"}}
    write_arrays(tmp_path / "index", meta, arrays)
    with pytest.raises(rc.StorageError, match=r"parts.0.part.first must be int, got .x.; save it again"):
        rc.load_index(tmp_path / "index")


@pytest.mark.parametrize("alike", [True, False])
def test_bounds_that_no_box_has_are_refused(tmp_path, alike):
    """The next box to be added would have them."""
    schema = int_schema(2)
    index = rc.open_index("scan", schema)
    texts = {1: "a0 = 1", 2: "a0 = 2" if alike else "a0 = 2 and a1 > 5"}
    index.insert(rc.Subscriptions.parse(schema, texts))
    index.save(tmp_path / "index")
    meta, arrays = read_arrays(tmp_path / "index", mmap=False)
    words = arrays["catalog.entries.words"]
    assert ("catalog.entries.starts" in arrays and len(arrays["catalog.entries.starts"]) > 0) is not alike
    for wrong in (np.append(words, np.uint32(2**28 - 1)), words[:-1]):
        write_arrays(tmp_path / "index", meta, {**arrays, "catalog.entries.words": wrong})
        with pytest.raises(rc.StorageError, match=r"must (hold|ascend)"):
            rc.load_index(tmp_path / "index")


def test_what_must_hold_is_said():
    with pytest.raises(rc.StorageError, match=r"x must be from 0 to 4, got -1 to 3; save it again"):
        checks.within("x", np.array([3, -1]), 5)
    with pytest.raises(rc.StorageError, match=r"x must be 3 places, got \(2,\)"):
        checks.ascending("x", np.array([0, 1]), 5, 3)
    with pytest.raises(rc.StorageError, match=r"x must say where its lists end, but is empty"):
        checks.ascending("x", np.empty(0, np.int64), 5)
    with pytest.raises(rc.StorageError, match=r"x must ascend from 0 to 5 at most"):
        checks.ascending("x", np.array([0, 3, 2]), 5)
    with pytest.raises(rc.StorageError, match=r"x must have the shape \(2,\), got \(3,\)"):
        checks.shaped("x", np.zeros(3), 2)
    with pytest.raises(rc.StorageError, match=r"that no two links lead to the same place must hold"):
        checks.linked("links", 5, np.array([-1, 3]), np.array([3, 4]))
    with pytest.raises(rc.StorageError, match=r"that a grid's shift stays within its cells"):
        Grid(np.array([-(2**63), -(2**63) + 1, 0, 2**40]), 0, 3).check()
