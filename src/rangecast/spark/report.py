"""What a step did: rows in, rows rejected, rows out, bytes, seconds; one line per step in the log.

A step that runs at once (`ingest`, `match_files`) gives its report back, filled. `match` is lazy, so it
takes a report and has Spark count as rows pass (`DataFrame.observe`): the numbers are there after
the first action on its result, and belong to that action.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from rangecast.errors import OptionError
from rangecast.loading.rejected import REJECTED
from rangecast.memory import readable
from rangecast.spark.output import column_named

if TYPE_CHECKING:
    from rangecast.spark.snapshots import Snapshot

_logger = logging.getLogger("rangecast.spark")
# rejected rows as Spark has them, of every step
REJECTED_FIELDS = from_arrow_schema(REJECTED)


@dataclass
class Report:
    """Counts, sizes and times of a step; what does not apply stays None.

    >>> print(Report(step="ingest", version=3, rows=10, accepted=9, rejected_rows=1))
    ingest: version 3, 10 rows, 9 accepted, 1 rejected
    """

    step: str = "match"
    version: int | None = None
    rows: int | None = None
    accepted: int | None = None
    deleted: int | None = None
    superseded: int | None = None
    rejected_rows: int | None = None
    rejected: DataFrame | None = field(default=None, repr=False)
    pairs: int | None = None
    files: int | None = None
    skipped: int | None = None
    subscriptions: int | None = None
    index_bytes: int | None = None
    out: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    _watched: list[Observation] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        said = [f"version {self.version}"] if self.version is not None else []
        for name, word in _COUNTED:
            number = getattr(self, name)
            if number is not None:
                said.append(f"{number:,} {word}")
        if self.index_bytes is not None:
            said.append(f"index {readable(self.index_bytes)}")
        said += [f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items()]
        return f"{self.step}: " + ", ".join(said)

    def describe(self, snapshot: Snapshot) -> None:
        """Take over what is known of the snapshot."""
        self.version = snapshot.version
        self.subscriptions = snapshot.n_subscriptions
        self.index_bytes = snapshot.n_bytes

    def watch(self, frame: DataFrame, observation: Observation, **counts: str | None) -> DataFrame:
        """Have Spark count the rows of a frame as they pass: all, or those with a null in a column."""
        self._watched.append(observation)
        one = F.lit(1)
        counted = {
            what: one if column is None else F.when(column_named(column).isNull(), one)
            for what, column in counts.items()
        }
        return frame.observe(observation, *(F.count(each).alias(what) for what, each in counted.items()))

    def observed(self, timeout: float = 10.0) -> dict[str, int]:
        """After an action: how many `events` went in, how many of them were `rejected`, for want of an id,
        and how many `rows` came out.

        Spark says so a moment after the action; OptionError if it does not within `timeout` seconds, as
        before any action.
        """
        until = time.monotonic() + timeout
        return {what: n for observation in self._watched for what, n in _counted(observation, until).items()}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measure a part of the step."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def log(self) -> Any:
        """Write the line of this step to the log; returns the report."""
        _logger.info("%s", self)
        return self


def _counted(observation: Observation, until: float) -> dict[str, int]:
    """The counts of an observation, which a classic session gives late and a Connect client with the rows."""
    # `Observation.get` of a classic session waits for an action without an end
    jvm = getattr(observation, "_jo", None)
    while jvm is not None and not jvm.future().isCompleted():
        if time.monotonic() >= until:
            break
        time.sleep(0.01)
    else:
        found = observation.get
        if found:
            return {what: int(n) for what, n in found.items()}
    raise OptionError(
        "observed() needs an action that has ended on what match returned, such as collect() or a write: "
        "nothing was counted yet"
    )


_COUNTED = (
    ("files", "files"),
    ("skipped", "files done before"),
    ("rows", "rows"),
    ("accepted", "accepted"),
    ("deleted", "deleted"),
    ("superseded", "superseded"),
    ("rejected_rows", "rejected"),
    ("pairs", "pairs"),
    ("subscriptions", "subscriptions"),
)
