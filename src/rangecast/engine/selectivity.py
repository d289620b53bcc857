"""How much of its attribute a predicate lets through, estimated from the subscriptions alone.

Widths are measured in ranks among a sample of all end points, so the estimate does not depend on
units or on where values crowd, and an equality counts about one over the sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes import Boxes
from rangecast.errors import OptionError
from rangecast.types.attributes import LAST, MISSING
from rangecast.types.schema import Schema

SAMPLE = 2048


def bounded_attributes(boxes: Boxes, numbers: npt.NDArray[np.int64], without: Any = ()) -> list[int]:
    """The attributes that some of the boxes bound."""
    return [j for j in boxes.bounded(numbers) if j not in without]


def estimate_selectivity(boxes: Boxes, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Per attribute, the mean share of values that a box lets through (1 where it is not bounded)."""
    out = np.ones(boxes.n_attributes)
    if not len(numbers):
        return out
    picked = numbers[:: max(1, len(numbers) // SAMPLE)]
    for j in boxes.bounded(picked):
        lows, highs = boxes.column(j, picked)
        bounded = (lows != MISSING) | (highs != LAST)
        points = np.sort(np.concatenate([lows[bounded], highs[bounded]]))
        ranks = np.searchsorted(points, highs, "right") - np.searchsorted(points, lows, "left")
        shares = np.where(bounded, ranks / len(points), 1.0)
        out[j] = shares.mean()
    return out


def choose_attributes(
    schema: Schema,
    on: str | tuple[str, ...] | list[str] | None,
    count: int,
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
) -> tuple[int, ...]:
    """Positions of the attributes to index: those named, or the most selective ones."""
    if on is not None:
        return named_attributes(schema, on, count)
    order = np.argsort(estimate_selectivity(boxes, numbers), kind="stable")
    return tuple(int(j) for j in order[:count])


def named_attributes(schema: Schema, on: str | tuple[str, ...] | list[str], count: int) -> tuple[int, ...]:
    """Positions of the attributes named by an `on=` option."""
    names = [on] if isinstance(on, str) else list(on)
    if len(names) != count or len(set(names)) != count:
        word = "one attribute name" if count == 1 else f"{count} different attribute names"
        raise OptionError(f"on= takes {word}, got {on!r}")
    return tuple(schema.position(name) for name in names)
