"""The changes that a batch of events made: which object entered, left or stays in which subscription."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.loading.ids import in_one_piece
from rangecast.tracking import kernels

WORDS = ("entered", "left", "stays")
FORGOTTEN = -1
"""The event of a change that no event made: its object was forgotten."""


class Changes:
    """Changes in the order of the events that made them; what objects left by being forgotten comes last.

    `late` are the rows of events that were older than what was known of their object, and changed nothing.
    """

    def __init__(
        self,
        events: npt.NDArray[np.int64],
        keys: pa.Array[Any],
        kinds: npt.NDArray[np.uint8],
        ids: pa.Array[Any],
        key: str,
        late: npt.NDArray[np.int64],
    ) -> None:
        self.events = events
        self.keys = keys
        self.kinds = kinds
        self.ids = ids
        self.key = key
        self.late = late

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        counts = np.bincount(self.kinds, minlength=len(WORDS))
        said = ", ".join(f"{n:,} {word}" for word, n in zip(WORDS, counts.tolist(), strict=True))
        return f"Changes({said}{f', {len(self.late):,} late' if len(self.late) else ''})"

    def __iter__(self) -> Iterator[tuple[str, Any, Any]]:
        """Each change as (word, key, subscription id)."""
        words = [WORDS[kind] for kind in self.kinds.tolist()]
        return zip(words, self.keys.to_pylist(), self.ids.to_pylist(), strict=True)

    @property
    def entered(self) -> Changes:
        """What was not so before."""
        return self._of(kernels.ENTERED)

    @property
    def left(self) -> Changes:
        """What is so no longer."""
        return self._of(kernels.LEFT)

    @property
    def stays(self) -> Changes:
        """What was so and is so still."""
        return self._of(kernels.STAYS)

    def _of(self, kind: int) -> Changes:
        rows = np.flatnonzero(self.kinds == kind)
        taken = pa.array(rows)
        return Changes(
            self.events[rows],
            self.keys.take(taken),
            self.kinds[rows],
            self.ids.take(taken),
            self.key,
            self.late,
        )

    def to_arrow(self, event_ids: Any = None) -> pa.Table:
        """A table: `event_id` (null where an object was forgotten), the key, `change`, `subscription_id`."""
        forgotten = self.events == FORGOTTEN
        rows = pa.array(self.events, mask=forgotten)
        if event_ids is not None:
            arrow = isinstance(event_ids, pa.Array | pa.ChunkedArray)
            rows = in_one_piece(event_ids if arrow else pa.array(event_ids)).take(rows)
        words = pa.DictionaryArray.from_arrays(pa.array(self.kinds.astype(np.int8)), pa.array(WORDS))
        return pa.table({"event_id": rows, self.key: self.keys, "change": words, "subscription_id": self.ids})

    def to_pandas(self, event_ids: Any = None) -> Any:
        """The table of `to_arrow` as a DataFrame of pandas."""
        return self.to_arrow(event_ids).to_pandas()

    def to_polars(self, event_ids: Any = None) -> Any:
        """The table of `to_arrow` as a DataFrame of Polars."""
        import polars

        return polars.from_arrow(self.to_arrow(event_ids))
