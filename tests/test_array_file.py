"""Files of arrays: what is damaged is refused with a reason; what is written is all there or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import rangecast as rc
from rangecast.durable.arrays import (
    UNSAVED,
    count_bytes,
    flatten,
    make_folder,
    read_arrays,
    unflatten,
    write_arrays,
)
from rangecast.memory import check_fits
from strategies import int_schema, random_subscriptions

ARRAYS = {
    "a": np.arange(10),
    "b": np.zeros((3, 0), np.int32),
    "c": np.array([[1.5, 2], [3, 4]]),
    "e": np.empty(0, np.uint8),
}


@pytest.mark.parametrize("mmap", [True, False])
def test_round_trip(tmp_path, mmap):
    path = tmp_path / "x"
    assert write_arrays(path, {"k": [1, "é"]}, ARRAYS) == path.stat().st_size
    meta, arrays = read_arrays(path, mmap=mmap)
    assert meta == {"k": [1, "é"]}
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)
        assert arrays[name].flags.writeable
        assert arrays[name].ctypes.data % 64 == 0 or not mmap or not array.size
    arrays["a"][0] = 99  # a private page: the file stays
    assert read_arrays(path)[1]["a"][0] == 0
    assert os.listdir(tmp_path) == ["x"]


def test_no_arrays(tmp_path):
    write_arrays(tmp_path / "x", {}, {})
    assert read_arrays(tmp_path / "x") == ({}, {})


def test_every_damaged_byte_is_noticed(tmp_path):
    path = tmp_path / "x"
    write_arrays(path, {"k": 1}, {"a": np.arange(8)})
    whole = path.read_bytes()
    header_end = 20 + int.from_bytes(whole[8:16], "little")
    used = [*range(header_end), *range(len(whole) - 64, len(whole))]
    for position in used:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(rc.StorageError, match=r"damaged|not a file of rangecast|truncated"):
            read_arrays(path)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "x"
    write_arrays(path, {"k": 1}, {"a": np.arange(8)})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(rc.StorageError, match=r"damaged|not a file of rangecast|truncated"):
            read_arrays(path)


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(rc.StorageError, match="cannot be read: No such file"):
        rc.load_index(tmp_path / "none")
    write_arrays(tmp_path / "x", {}, {})
    with pytest.raises(rc.StorageError, match="holds no index"):
        rc.load_index(tmp_path / "x")


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_arrays(path, {"version": 1}, ARRAYS)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_arrays(path, {"version": 2}, ARRAYS)
    monkeypatch.undo()
    assert read_arrays(path)[0] == {"version": 1}
    assert os.listdir(tmp_path) == ["x"]


def test_damaged_index_is_refused(tmp_path):
    schema = int_schema(1)
    index = rc.open_index("scan", schema)
    index.insert(random_subscriptions(schema, 50, seed=1))
    path = tmp_path / "i"
    index.save(path)
    raw = bytearray(path.read_bytes())
    raw[-200] ^= 255
    path.write_bytes(raw)
    with pytest.raises(rc.StorageError, match="is damaged; save the index again"):
        rc.load_index(path)


@pytest.mark.once
def test_refusal_before_memory_runs_out():
    schema = rc.Schema(rc.Int("a", 0, 9_999))
    index = rc.open_index("direct", schema, memory_limit=1_000_000)
    n = 600
    lows, highs = np.zeros((1, n), np.int64), np.full((1, n), 9_999)
    with pytest.raises(
        rc.CapacityError,
        match=r"'direct' on 'a' with 6,000,000 list entries needs about .*MB, but may use 1.0 MB",
    ):
        index.insert(rc.Subscriptions(schema, np.arange(n), lows, highs))
    with pytest.raises(MemoryError, match="needs about 5 bytes"):
        check_fits(5, 4, "it", "take less")


@pytest.mark.parametrize("replaced", range(6))
def test_a_small_index_that_was_saved_with_dead_slots_still_replaces(tmp_path, replaced):
    schema = rc.Schema(rc.Int("price"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {id: f"price > {id}" for id in range(6)}))
    for _ in range(replaced):
        index.insert(rc.Subscriptions.parse(schema, {3: "price < 3"}))
    index.save(tmp_path / "x.index")
    loaded = rc.load_index(tmp_path / "x.index")
    loaded.insert(rc.Subscriptions.parse(loaded.schema, {3: "price = 50"}))
    assert len(loaded) == 6
    assert loaded.match(rc.Events.from_rows(loaded.schema, [{"price": 2}])).sort().row(0).tolist() == [0, 1]
    assert loaded.delete([3]) == []
    assert len(loaded) == 5


class Lists(NamedTuple):
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32] | None
    longest: int


class Layout:
    """A base whose kinds are dataclasses."""


@dataclass
class Flat(Layout):
    lists: Lists
    made: list[float] = field(default_factory=list, metadata=UNSAVED)


@dataclass
class Nested(Layout):
    layouts: tuple[Layout, ...]
    of: tuple[int, str]
    note: str | None = None
    lists: Lists | Flat | None = None


def test_a_tree_goes_into_arrays_and_plain_values_and_back():
    starts, slots = np.array([0, 2, 5]), np.arange(5, dtype=np.int32)
    flat = Flat(Lists(starts, slots, 3), made=[0.5])
    tree = Nested((flat, Nested((), (1, "b"))), (7, "a"), lists=Lists(starts, None, np.int64(9)))
    meta, arrays = flatten(tree)
    assert list(arrays) == ["layouts.0.lists.starts", "layouts.0.lists.slots", "lists.starts"]
    assert all(a is b for a, b in zip(arrays.values(), (starts, slots, starts), strict=True))
    again = unflatten(Layout, json.loads(json.dumps(meta)), arrays)
    assert isinstance(again, Nested)
    first, second = again.layouts
    assert isinstance(first, Flat)
    assert (first.lists.starts is starts, first.lists.slots is slots, first.lists.longest) == (True, True, 3)
    assert first.made == []
    assert second == Nested((), (1, "b"))
    assert (again.of, again.note) == ((7, "a"), None)
    assert isinstance(again.lists, Lists)
    assert (again.lists.slots, again.lists.longest) == (None, 9)


def test_a_tree_keeps_its_names_below_another():
    meta, arrays = flatten([Lists(np.array([0]), None, 1)], "part")
    assert list(arrays) == ["part.0.starts"]
    assert unflatten(list[Lists], meta, {**arrays, "starts": np.array([9])}, "part")[0].starts.tolist() == [0]


def test_bytes_of_a_tree_are_those_of_its_arrays():
    tree = Nested((Flat(Lists(np.arange(3), np.arange(4, dtype=np.int32), 3)),), (1, "a"))
    assert count_bytes(tree) == 3 * 8 + 4 * 4


def test_what_is_no_tree_is_refused():
    with pytest.raises(TypeError, match=r"lists\.0 must be an array, a plain value, .* got set"):
        flatten([{1}], "lists")
    meta, arrays = flatten(Flat(Lists(np.array([0]), None, 1)))
    with pytest.raises(rc.StorageError, match="the tree must be a kind of Nested, got 'Flat'"):
        unflatten(Nested, meta, arrays)


def test_folders_are_as_open_as_the_one_above(tmp_path):
    shared, closed, everybody = tmp_path / "shared", tmp_path / "closed", tmp_path / "everybody"
    for folder, mode in ((shared, 0o2770), (closed, 0o755), (everybody, 0o1777)):
        folder.mkdir()
        folder.chmod(mode)
        make_folder(folder / "a" / "b")
        make_folder(folder / "a" / "b")
    modes = {folder.name: (folder / "a" / "b").stat().st_mode & 0o022 for folder in tmp_path.iterdir()}
    assert modes == {"shared": 0o020, "closed": 0, "everybody": 0}
