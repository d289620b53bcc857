"""Events by what they say: rows of attributes and codes, from columns and back."""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import kernel

_MISSING = np.iinfo(np.int64).min


@kernel
def keep_present(column, rows, codes):
    """The rows of a column that have a value, and the values; returns how many."""
    n = 0
    for e in range(column.size):
        rows[n] = e
        codes[n] = column[e]
        n += column[e] != _MISSING
    return n


@kernel
def count_rows(rows, counts):
    """counts[e] += how often event e is among the rows."""
    for i in range(rows.size):
        counts[rows[i]] += 1


@kernel
def enter_column(position, rows, values, cursors, attributes, codes):
    """Append an attribute to the entries of those who have it, at their cursors, which move on."""
    for i in range(rows.size):
        p = cursors[rows[i]]
        attributes[p] = position
        codes[p] = values[i]
        cursors[rows[i]] = p + 1


@kernel
def spread_entries(starts, attributes, codes, out):
    """out[j, e] = the code of event e on attribute j; what it does not say stays as it is."""
    for e in range(starts.size - 1):
        for p in range(starts[e], starts[e + 1]):
            out[attributes[p], e] = codes[p]
