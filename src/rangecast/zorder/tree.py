"""A main-memory B+tree over Z-addresses, for the `ubtree` index and for the search of covers.

An entry is a number with an address, and may carry columns of 16-bit values. Leaves hold entries in the
order of their keys, each leaf as columns of its own, so that a scan of one column of a leaf reads
nothing else:

    array         dtype    shape                            meaning
    state         int64    9                                root, height, sizes, free lists (the kernels)
    counts        int64    leaves                           entries of a leaf
    nexts         int64    leaves                           the leaf that follows, -1 after the last
    keys          uint64   (leaves, capacity, n_words)      addresses, ascending
    entries       int32    (leaves, capacity)               numbers; ascending among equal addresses
    columns       uint16   (leaves, n_columns, capacity)    what entries carry
    node_counts   int64    nodes                            children of an inner node
    children      int64    (nodes, fanout)                  nodes of the level below, or leaves
    node_keys     uint64   (nodes, fanout, n_words)         the bound below which a child holds no key
    node_ties     int32    (nodes, fanout)                  and the number at that bound

Source: the structure is Bayer's UB-tree (1996); the leaf capacity is the parameter that Wang, Zhang and
Kitsuregawa (2004, sec. 4.1) found to decide in main memory: their best is 400 to 900. They take the
smallest fan-out they can, 4, to come near a binary search; here a node of 32 bounds is searched by
halving, which needs as many comparisons and fewer levels. Blocks are numbers, not objects: so a tree
pickles, saves and maps. Block numbers are int64 although int32 would do: with one integer type in all
calls Numba compiles each helper once, which halves the time of the first insert.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.durable.arrays import count_bytes
from rangecast.errors import OptionError
from rangecast.zorder import kernels
from rangecast.zorder import kernels as updates
from rangecast.zorder.curve import Addresses
from rangecast.zorder.kernels import TreeArrays

LEAF_CAPACITY = 512
FANOUT = 32
_FILL = 0.85
"""How full a load leaves leaves and nodes: room for the first inserts."""
EntryNumbers = npt.NDArray[np.int32]


class ZTree:
    """Entries in the order of their Z-addresses; see the module head.

    >>> from rangecast.zorder.curve import ZCurve
    >>> curve = ZCurve([4, 4])
    >>> tree = ZTree(curve.n_words)
    >>> tree.insert(curve.encode(np.array([[3, 9], [4, 9]])), np.array([70, 71]))
    >>> firsts, lasts = curve.encode(np.array([[0, 12], [0, 12]])), curve.encode(np.array([[7, 15], [7, 15]]))
    >>> tree.find(firsts, lasts).tolist()
    [70, -1]
    """

    def __init__(
        self, n_words: int, n_columns: int = 0, capacity: int = LEAF_CAPACITY, fanout: int = FANOUT
    ) -> None:
        if n_words < 1:
            raise OptionError(f"a Z-address needs at least one word, got {n_words}")
        if not 4 <= capacity <= 2**20:
            raise OptionError(f"the capacity of a leaf must be within 4 and {2**20}, got {capacity}")
        if not 4 <= fanout <= 2**16:
            raise OptionError(f"the fan-out must be within 4 and {2**16}, got {fanout}")
        self.n_words = n_words
        self.n_columns = n_columns
        self.capacity = capacity
        self.fanout = fanout
        self._clear(1)

    def _clear(self, n_leaves: int) -> None:
        n_nodes = 4 * n_leaves // self.fanout + 8
        state = np.zeros(kernels.N_STATE, np.int64)
        state[[kernels.FREE_LEAF, kernels.FREE_NODE]] = -1
        state[[kernels.LEAVES, kernels.LIVE_LEAVES]] = 1
        # zeros, for a file holds the room too, and must not show what was in memory before
        self.arrays = TreeArrays(
            state=state,
            counts=np.zeros(n_leaves, np.int64),
            nexts=np.full(n_leaves, -1, np.int64),
            keys=np.zeros((n_leaves, self.capacity, self.n_words), np.uint64),
            entries=np.zeros((n_leaves, self.capacity), np.int32),
            columns=np.zeros((n_leaves, self.n_columns, self.capacity), np.uint16),
            node_counts=np.zeros(n_nodes, np.int64),
            children=np.zeros((n_nodes, self.fanout), np.int64),
            node_keys=np.zeros((n_nodes, self.fanout, self.n_words), np.uint64),
            node_ties=np.zeros((n_nodes, self.fanout), np.int32),
        )

    def __len__(self) -> int:
        return int(self.arrays.state[kernels.SIZE])

    @property
    def height(self) -> int:
        """Levels of inner nodes above the leaves."""
        return int(self.arrays.state[kernels.HEIGHT])

    @property
    def n_leaves(self) -> int:
        """Leaves in use."""
        return int(self.arrays.state[kernels.LIVE_LEAVES])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, spare room included."""
        return count_bytes(self.arrays)

    def insert(
        self, addresses: Addresses, numbers: Any, columns: npt.NDArray[np.uint16] | None = None
    ) -> None:
        """Add entries, none of which may be there yet; the first ones, and many, are loaded at once."""
        numbers, values = self._checked(addresses, numbers, columns)
        if len(numbers) > len(self) // 4:
            if len(self):
                held, held_numbers, held_values = self.items()
                addresses = np.concatenate([held, addresses])
                numbers = np.concatenate([held_numbers, numbers])
                values = np.concatenate([held_values, values], axis=1)
            self._load(addresses, numbers, values)
            return
        order = key_order(addresses, numbers)
        done = 0
        while True:
            done = int(updates.insert(self.arrays, addresses, numbers, values, order, done))
            if done == len(order):
                return
            self._grow()

    def delete(self, addresses: Addresses, numbers: Any) -> npt.NDArray[np.bool_]:
        """Take entries out by address and number; says for each whether it was there."""
        numbers, _ = self._checked(addresses, numbers, np.empty((self.n_columns, len(addresses)), np.uint16))
        found = np.zeros(len(numbers), np.bool_)
        updates.delete(self.arrays, addresses, numbers, key_order(addresses, numbers), found)
        return found

    def find(self, firsts: Addresses, lasts: Addresses) -> EntryNumbers:
        """For each range of addresses, both ends inclusive, the first entry in it, or -1 when it is empty."""
        out = np.empty(len(firsts), np.int32)
        kernels.find_in_ranges(self.arrays, firsts, lasts, out)
        return out

    def items(self) -> tuple[Addresses, EntryNumbers, npt.NDArray[np.uint16]]:
        """All entries in the order of their keys: addresses, numbers, columns."""
        addresses = np.empty((len(self), self.n_words), np.uint64)
        numbers = np.empty(len(self), np.int32)
        columns = np.empty((self.n_columns, len(self)), np.uint16)
        kernels.read_all(self.arrays, addresses, numbers, columns)
        return addresses, numbers, columns

    def _checked(
        self, addresses: Addresses, numbers: Any, columns: npt.NDArray[np.uint16] | None
    ) -> tuple[EntryNumbers, npt.NDArray[np.uint16]]:
        numbers = np.ascontiguousarray(numbers, np.int32)
        values = np.empty((0, len(numbers)), np.uint16) if columns is None else columns
        if addresses.shape != (len(numbers), self.n_words) or values.shape != (self.n_columns, len(numbers)):
            raise OptionError(
                f"{len(numbers)} entries need addresses ({len(numbers)}, {self.n_words}) and columns "
                f"({self.n_columns}, {len(numbers)}), got {addresses.shape} and {values.shape}"
            )
        return numbers, values

    def _load(self, addresses: Addresses, numbers: EntryNumbers, values: npt.NDArray[np.uint16]) -> None:
        per_leaf = max(2, int(self.capacity * _FILL))
        n_leaves = max(1, -(-len(numbers) // per_leaf))
        self._clear(n_leaves + n_leaves // 16)
        order = key_order(addresses, numbers)
        per_node = max(3, int(self.fanout * _FILL))
        kernels.load(self.arrays, addresses, numbers, values, order, n_leaves, per_node)

    def _grow(self) -> None:
        arrays: tuple[npt.NDArray[Any], ...] = self.arrays[1:]
        leaves = len(self.arrays.counts) * 5 // 4 + 4
        nodes = max(len(self.arrays.node_counts), 4 * leaves // self.fanout + 8 + 2 * self.height)
        rooms = [leaves] * 5 + [nodes] * 4
        self.arrays = TreeArrays(
            self.arrays.state, *(_roomier(a, room) for a, room in zip(arrays, rooms, strict=True))
        )

    def stats(self) -> dict[str, int]:
        """Counts of the tree."""
        return {"leaves": self.n_leaves, "height": self.height, "leaf_capacity": self.capacity}

    @classmethod
    def of(cls, arrays: TreeArrays) -> ZTree:
        """The tree of these arrays, which it takes as they are."""
        _, capacity, n_words = arrays.keys.shape
        out = cls(n_words, arrays.columns.shape[1], capacity, arrays.children.shape[1])
        out.arrays = arrays
        return out


def key_order(addresses: Addresses, numbers: EntryNumbers) -> npt.NDArray[np.int64]:
    """Positions in the order of address, then number."""
    if len(numbers) == 1:
        return np.zeros(1, np.int64)
    return np.lexsort((numbers, *addresses.T[::-1])).astype(np.int64)


def _roomier(array: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    out = np.zeros((room, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out
