"""Hashing ids and the open-addressing table that finds a slot by its id."""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import kernel

_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_C = np.uint64(0x9E3779B97F4A7C15)
_AT_ONCE = 4096


@kernel
def mix(x):
    """The finaliser of splitmix64: every bit of x reaches every bit of the result."""
    x = (x ^ (x >> np.uint64(30))) * _A
    x = (x ^ (x >> np.uint64(27))) * _B
    return x ^ (x >> np.uint64(31))


@kernel
def hash_integer(value):
    """A well-mixed 64-bit hash."""
    return mix(np.uint64(value) + _C)


@kernel
def hash_integers(values, out):
    """out[i] = a well-mixed 64-bit hash of values[i]."""
    for i in range(values.size):
        out[i] = hash_integer(values[i])


@kernel
def hash_strings(starts, letters, out):
    """out[i] = a 64-bit hash of the bytes of string i, eight at a time."""
    for i in range(starts.size - 1):
        a = starts[i]
        b = starts[i + 1]
        h = np.uint64(b - a) * _C
        word = np.uint64(0)
        held = 0
        for q in range(a, b):
            word = (word << np.uint64(8)) | np.uint64(letters[q])
            held += 1
            if held == 8:
                h = mix(h ^ word)
                word = np.uint64(0)
                held = 0
        out[i] = mix(h ^ word ^ np.uint64(held))


@kernel
def _same(values, starts, letters, i, other_values, other_starts, other_letters, j, textual):
    if not textual:
        return values[i] == other_values[j]
    a = starts[i]
    b = other_starts[j]
    n = starts[i + 1] - a
    if other_starts[j + 1] - b != n:
        return False
    for q in range(n):
        if letters[a + q] != other_letters[b + q]:
            return False
    return True


@kernel
def enter(table, hashes, values, starts, letters, textual, first):
    """Put slots first, first + 1, ... into the table.

    With first = 0 an id that stands twice keeps its first slot; later entries (an id inserted again)
    replace the slot that held the id before.
    """
    mask = np.uint64(table.size - 1)
    for k in range(hashes.size):
        slot = first + k
        p = hashes[k] & mask
        while True:
            held = table[p]
            if held < 0:
                table[p] = slot
                break
            if _same(values, starts, letters, held, values, starts, letters, slot, textual):
                if first > 0:
                    table[p] = slot
                break
            p = (p + np.uint64(1)) & mask


@kernel
def enter_living(table, hashes, alive):
    """Put the living slots into an empty table; living ids are distinct, so nothing is compared."""
    mask = np.uint64(table.size - 1)
    for slot in range(hashes.size):
        if alive[slot]:
            p = hashes[slot] & mask
            while table[p] >= 0:
                p = (p + np.uint64(1)) & mask
            table[p] = slot


@kernel
def find(table, values, starts, letters, hashes, other_values, other_starts, other_letters, textual, out):
    """out[j] = the slot whose id is other j; left alone when there is none."""
    mask = np.uint64(table.size - 1)
    for j in range(hashes.size):
        p = hashes[j] & mask
        while table[p] >= 0:
            if _same(
                values, starts, letters, table[p], other_values, other_starts, other_letters, j, textual
            ):
                out[j] = table[p]
                break
            p = (p + np.uint64(1)) & mask


@kernel
def count_from(first, slots, out):
    """out[p] = first + slots[p] (numpy widens the slots first, at four times the cost for a few thousand)."""
    for p in range(slots.size):
        out[p] = np.int64(first) + np.int64(slots[p])


@kernel
def gather(values, slots, out):
    """out[p] = values[slots[p]] (numpy's take first widens the slots, at several times the cost)."""
    for p in range(slots.size):
        # unsigned, so that Numba does not look for negative indexes: 2.3 ns instead of 3.9 at random
        out[p] = values[np.uint32(slots[p])]


@kernel
def counts_up(values):
    """Whether each value is one more than the one before it."""
    # block by block: a loop that may end at any value is not vectorised, and takes three times as long
    for first in range(0, values.size - 1, _AT_ONCE):
        last = min(first + _AT_ONCE, values.size - 1)
        before = values[first:last]
        after = values[first + 1 : last + 1]
        n = 0
        for i in range(before.size):
            n += after[i] - before[i] == 1
        if n < last - first:
            return False
    return True
