"""The Z curve: one order for all points of a universe of whole-number coordinates.

The address of a point is its coordinates with their bits interleaved: first the top bit of every
dimension, then the next bit of every dimension, and so on (Morton order). A box that halves the
universe again and again is one run of addresses, so points that are close tend to have addresses that
are close, and a sorted list of addresses serves as an index of points.

    array    dtype    shape      meaning
    dims     int32    n_bits     the dimension of each bit of an address, from the top
    shifts   int32    n_bits     which bit of that coordinate it is

Addresses are rows of `n_words` uint64, the most significant word first, unused low bits 0: 16
attributes as 32 dimensions of 16 bits are 512 bits, 8 words. Dimensions may have different numbers of
bits; a short one gives its bits at the top and then no more.

Source: Bayer, "The universal B-tree for multidimensional indexing" (1996); the jump into a box is the
range search of Ramsak, Markl, Fenk, Zirkel, Elhardt and Bayer, "Integrating the UB-tree into a
database system kernel" (VLDB 2000), here as one walk down the bits of the address (zorder/kernels.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError
from rangecast.zorder import kernels

Addresses = npt.NDArray[np.uint64]


class ZCurve:
    """The order of bits of one universe, and addresses on it.

    >>> curve = ZCurve([2, 2])
    >>> addresses = curve.encode(np.array([[0, 1, 3], [0, 2, 3]]))
    >>> [int(a >> np.uint64(60)) for a in addresses[:, 0]], curve.decode(addresses).tolist()
    ([0, 6, 15], [[0, 1, 3], [0, 2, 3]])
    """

    def __init__(self, bits: Sequence[int]) -> None:
        self.bits = tuple(int(b) for b in bits)
        if not self.bits or not all(0 <= b <= 63 for b in self.bits) or not any(self.bits):
            raise OptionError(f"a Z curve needs 1 to 63 bits a dimension, got {list(bits)}")
        places = [(level, k) for k, b in enumerate(self.bits) for level in range(b)]
        places.sort()
        self.dims = np.array([k for _, k in places], np.int32)
        self.shifts = np.array([self.bits[k] - 1 - level for level, k in places], np.int32)

    @property
    def n_dims(self) -> int:
        """How many coordinates a point has."""
        return len(self.bits)

    @property
    def n_words(self) -> int:
        """How many 64-bit words an address has."""
        return -(-len(self.dims) // 64)

    def encode(self, coordinates: npt.NDArray[Any]) -> Addresses:
        """The address of each point of a (n_dims, n) array of coordinates, as rows of words."""
        out = np.empty((coordinates.shape[1], self.n_words), np.uint64)
        kernels.interleave(coordinates, self.dims, self.shifts, out)
        return out

    def decode(self, addresses: Addresses) -> npt.NDArray[np.int64]:
        """The coordinates of each address, (n_dims, n)."""
        out = np.zeros((self.n_dims, len(addresses)), np.int64)
        kernels.separate(addresses, self.dims, self.shifts, out)
        return out

    def jump_in(
        self, addresses: Addresses, lows: npt.ArrayLike, highs: npt.ArrayLike
    ) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """For each address, the first one from there on in the box lows..highs, and whether there is any."""
        out = np.zeros_like(addresses)
        found = np.zeros(len(addresses), np.bool_)
        box = np.asarray(lows).astype(np.uint64), np.asarray(highs).astype(np.uint64)
        kernels.jump_in_each(addresses, *box, self.dims, self.shifts, out, found)
        return out, found
