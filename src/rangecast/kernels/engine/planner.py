"""Who holds what, in a sample of boxes: a bit for each event, attribute and box."""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import kernel


@kernel
def mark_holders(values, lows, highs, out):
    """out[k, e, w] has bit b when box 64 w + b holds the value of event e on attribute k.

    values: (attributes, events), lows and highs: (attributes, 64 times words).
    """
    for k in range(out.shape[0]):
        for e in range(out.shape[1]):
            v = values[k, e]
            for w in range(out.shape[2]):
                own_lows = lows[k, 64 * w : 64 * w + 64]
                own_highs = highs[k, 64 * w : 64 * w + 64]
                word = np.uint64(0)
                for b in range(64):
                    word |= np.uint64((own_lows[b] <= v) & (v <= own_highs[b])) << np.uint64(b)
                out[k, e, w] = word
