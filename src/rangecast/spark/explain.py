"""How events would be matched, in words: which snapshot, which columns, where the index is placed and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from rangecast.memory import readable
from rangecast.spark.match import plan_answer
from rangecast.spark.snapshots import resolve
from rangecast.spark.stripes import choose_placement, plan_cuts
from rangecast.spark.worker import PAIRS, answer_names, mapped


def explain(
    events: DataFrame,
    subscriptions: Any,
    *,
    event_id: str = "id",
    keep: Sequence[str] = (),
    form: str = PAIRS,
    outer: bool = False,
    absent: Sequence[str] = (),
    version: int | None = None,
    mode: str = "auto",
    stripes: int | None = None,
    memory: int | None = None,
) -> str:
    """What `match` with the same arguments would do; prints it and gives it back."""
    snapshot = resolve(subscriptions, version)
    answer = plan_answer(events.schema, snapshot, event_id, keep, form, outer, absent)
    placement = choose_placement(snapshot, mode, stripes, memory, events.sparkSession)
    index = mapped(snapshot.path)
    place = f", version {snapshot.version} of {snapshot.store}" if snapshot.store else ""
    lines = [
        f"subscriptions  {snapshot.n_subscriptions:,} in an index {index.name!r} of "
        f"{readable(snapshot.n_bytes)}{place}",
        f"snapshot       {snapshot.path}",
        f"columns in     {', '.join(answer.columns)}",
        f"columns out    {', '.join(answer_names(answer))}",
        f"placement      {placement.reason}",
    ]
    if placement.stripes > 1:
        cuts = plan_cuts(index.subscriptions(), placement.stripes)
        along = " and ".join(
            f"{snapshot.schema.names[j]} ({len(at) + 1})" for j, at in zip(cuts.on, cuts.at, strict=True)
        )
        lines += [
            f"stripes        {cuts.n} along {along}, by quantiles of a sample",
            f"copies         {cuts.copies:.2f} of each box; about "
            f"{readable(snapshot.n_bytes * cuts.copies / cuts.n)} a stripe",
            "steps          route in the workers, shuffle by stripe, match; hot stripes are salted",
        ]
    else:
        lines.append("steps          each worker maps the snapshot and matches its own events; no shuffle")
    text = "\n".join(lines)
    print(text)
    return text
