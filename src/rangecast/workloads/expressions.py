"""Boolean expressions over many attributes, of which each says little.

    name                  source
    boolean-expressions   Sadoghi, Jacobsen 2011 (BE-Tree): the parameters of their generator, BE-Gen
    wide                  the same generator with 500 attributes and at most 6 predicates

BE-Gen's grid, as the papers after it use it: 100 to 30,000 dimensions, 5 to 30 predicates per
subscription, 3 to 1,000 values per attribute, shares of equality, IN and NOT IN beside ranges, attributes
uniform or by Zipf's law, 0.1 to 50 % of the subscriptions matching an event. Drawn independently, next to
nothing would match, so matches are planted; the generator's docstring says how. Subscriptions and events are
sparse entries (registry.py), and dense columns only for those who ask: 100,000 subscriptions on 100
attributes are 80 MB per side, a million on 500 would be 4 GB. Lists of values have no such columns.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError
from rangecast.model.boxes import starts_of
from rangecast.types.attributes import Int
from rangecast.types.schema import Schema
from rangecast.workloads.applications import zipf_shares
from rangecast.workloads.registry import (
    AllowedSpans,
    Draw,
    Drawn,
    Entries,
    SparseColumns,
    at_least,
    in_unit_range,
    named,
)

_NAME = "boolean-expressions"
_BE_GEN = "Sadoghi, Jacobsen 2011, BE-Gen"
# Keys drawn at a time: what choosing attributes takes beside its answer is some 100 MB.
_MOST_KEYS = 1 << 22
# Sets of attributes that subscriptions without a planted event draw theirs from.
_SPARE_SETS = 256

Ints = npt.NDArray[np.int64]


@named(
    "wide", "hundreds of attributes, of which a subscription bounds six at most and an event has fifty",
    20_000, 1_000, _BE_GEN, dimensions=500, fewest=1, most=6, cardinality=10_000, width=0.01, present=50,
    matching=0.0002,
)  # fmt: skip
@named(
    "boolean-expressions", "many attributes, a handful of predicates each, matches of a chosen share",
    100_000, 1_000, _BE_GEN,
)  # fmt: skip
def expressions(
    draw: Draw,
    n: int,
    m: int,
    *,
    dimensions: int = 100,
    fewest: int = 5,
    most: int = 15,
    cardinality: int = 50,
    equality: float = 0.5,
    member: float = 0.0,
    excluded: float = 0.0,
    listed: int = 5,
    width: float = 0.2,
    skew: float = 0.0,
    present: int = 40,
    matching: float = 0.01,
    noise: float = 0.01,
) -> Drawn:
    """Values 0 to cardinality - 1; `fewest` to `most` predicates; events with `present` attributes.

    A share `equality` of the predicates are equalities, `member` are IN lists and `excluded` NOT IN lists of
    `listed` values each, and the others intervals of `width` of the domain. Attributes are drawn by Zipf's
    law with exponent `skew`; 0 makes them equal. Some points are drawn, each with its `present`
    attributes and their values, and each subscription belongs to one: its attributes are some of the
    point's, and its predicates hold the point's values. An event is one of the points, with a share
    `noise` of its values drawn again, so that no two are alike. The share of the subscriptions that
    belongs to a point makes up for what the noise costs and for what matches by chance, so that
    `matching` is what comes out; the remainder that fills no point belongs to none. With a `matching`
    of 0, or below what chance gives, subscriptions and events are independent.
    """
    at_least(_NAME, 1, dimensions=dimensions, fewest=fewest, cardinality=cardinality)
    in_unit_range(_NAME, equality=equality, member=member, excluded=excluded, width=width)
    in_unit_range(_NAME, matching=matching, noise=noise)
    _check_lists(equality, member, excluded, listed, cardinality)
    if not fewest <= most <= present <= dimensions:
        raise OptionError(
            f"workload {_NAME!r}: must hold fewest <= most <= present <= dimensions, got fewest {fewest}, "
            f"most {most}, present {present}, dimensions {dimensions}"
        )
    rng = draw.subscriptions
    shares = zipf_shares(dimensions, skew)[rng.permutation(dimensions)]
    spare = _choose(rng, _SPARE_SETS, present, shares)
    span = max(round(width * cardinality), 1)
    by_chance = (
        equality
        + member * listed
        + excluded * (cardinality - listed)
        + (1 - equality - member - excluded) * span
    ) / cardinality
    n_points, of_point = _points(spare, dimensions, fewest, most, by_chance, matching, noise)
    sets = np.concatenate([_choose(rng, n_points, present, shares), spare])
    values = rng.integers(0, cardinality, sets.shape)

    mine = rng.integers(n_points, len(sets), n)
    if n_points:
        drawn = (rng.random(n) / of_point).astype(np.int64)
        mine = np.where(drawn < n_points, drawn, mine)
    rows, slots = _slots(rng, n, rng.integers(fewest, most + 1, n), present)
    held = values[mine[rows], slots]
    # Those that belong to no event's point are drawn freely, not all around the same few values.
    alone = mine[rows] >= n_points
    held[alone] = rng.integers(0, cardinality, np.count_nonzero(alone))
    kind = rng.random(len(rows))
    equal = kind < equality
    first = np.clip(held - rng.integers(0, span, len(rows)), 0, cardinality - span)
    lows, highs = np.where(equal, held, first), np.where(equal, held, first + span - 1)
    spans = None
    if member or excluded:
        within = np.flatnonzero(~equal & (kind < equality + member))
        beyond = np.flatnonzero((kind >= equality + member) & (kind < equality + member + excluded))
        spans = _lists(rng, held, within, beyond, listed, cardinality, lows, highs)
    predicates = Entries.sorted(rows, sets[mine[rows], slots], lows, highs, spans)
    event_values = _events(draw.events, m, sets[:n_points], values[:n_points], shares, cardinality, noise)
    names = tuple(f"a{j}" for j in range(1, dimensions + 1))
    return Drawn(
        Schema(*(Int(name, 0, cardinality - 1) for name in names)),
        SparseColumns(predicates, predicates.lows, n, names),
        SparseColumns(predicates, predicates.highs, n, names),
        SparseColumns(event_values, event_values.lows, m, names),
        predicates,
        event_values,
    )


def _check_lists(equality: float, member: float, excluded: float, listed: int, cardinality: int) -> None:
    """Refuse shares that are more than all predicates, and lists that leave no value."""
    if equality + member + excluded > 1 + 1e-9:
        raise OptionError(
            f"workload {_NAME!r}: equality, member and excluded must be at most 1 in all, got {equality}, "
            f"{member} and {excluded}"
        )
    if (member or excluded) and not 1 <= listed < cardinality:
        raise OptionError(
            f"workload {_NAME!r}: listed must be from 1 to cardinality - 1, got {listed} with cardinality "
            f"{cardinality}"
        )


def _lists(
    rng: np.random.Generator,
    held: Ints,
    within: Ints,
    beyond: Ints,
    listed: int,
    cardinality: int,
    lows: Ints,
    highs: Ints,
) -> AllowedSpans:
    """The spans of predicates `within` a list of values and `beyond` one; their ends go to lows and highs.

    A list within holds the predicate's own value, one beyond does not. What is one interval has no spans.
    """
    others = _other_values(rng, held[within], listed - 1, cardinality)
    values = np.sort(np.column_stack([held[within], others]), axis=1)
    mine, begins, ends = np.repeat(within, listed), values.ravel(), values.ravel()
    left_out = np.sort(_other_values(rng, held[beyond], listed, cardinality), axis=1)
    outside = np.full((len(beyond), 1), -1), np.full((len(beyond), 1), cardinality)
    mine = np.concatenate([mine, np.repeat(beyond, listed + 1)])
    begins = np.concatenate([begins, np.hstack([outside[0], left_out]).ravel() + 1])
    ends = np.concatenate([ends, np.hstack([left_out, outside[1]]).ravel() - 1])
    some = begins <= ends
    mine, begins, ends = mine[some], begins[some], ends[some]
    # what touches is one span
    goes_on = (mine[1:] == mine[:-1]) & (begins[1:] == ends[:-1] + 1)
    begin, end = np.append(True, ~goes_on)[: len(mine)], np.append(~goes_on, True)[: len(mine)]
    mine, begins, ends = mine[begin], begins[begin], ends[end]
    order = np.argsort(mine, kind="stable")
    mine, begins, ends = mine[order], begins[order], ends[order]
    counts = np.bincount(mine, minlength=len(held))
    starts = starts_of(counts)
    any_of = np.flatnonzero(counts)
    lows[any_of], highs[any_of] = begins[starts[any_of]], ends[starts[any_of + 1] - 1]
    several = counts > 1
    kept = several[mine]
    return AllowedSpans(starts_of(np.where(several, counts, 0)), begins[kept], ends[kept])


def _other_values(rng: np.random.Generator, values: Ints, k: int, cardinality: int) -> Ints:
    """For each value k different ones from 0 to cardinality - 1 that are not it."""
    _, steps = _slots(rng, len(values), np.full(len(values), k), cardinality - 1)
    return (values[:, None] + 1 + steps.reshape(len(values), k)) % cardinality


def _points(
    spare: Ints, dimensions: int, fewest: int, most: int, by_chance: float, matching: float, noise: float
) -> tuple[int, float]:
    """How many points there are, and the share of the subscriptions that belongs to each."""
    sizes = np.arange(fewest, most + 1)
    # The chance that an attribute of one set is in another, as the spare sets show it.
    included = np.bincount(spare.ravel(), minlength=dimensions) / len(spare)
    in_both = float((included**2).sum() / spare.shape[1])
    other = float(np.mean((in_both * by_chance) ** sizes))
    own = float(np.mean((1 - noise * (1 - by_chance)) ** sizes))
    if matching > own:
        raise OptionError(
            f"workload {_NAME!r}: matching must be at most {own:.4f} with noise {noise} and "
            f"{fewest} to {most} predicates, got {matching}"
        )
    if matching <= other:
        return 0, 0.0
    of_point = (matching - other) / (own - other)
    return int(1 / of_point + 1e-9), of_point


def _choose(rng: np.random.Generator, n: int, k: int, shares: npt.NDArray[np.float64]) -> Ints:
    """n sets of k different attributes, each drawn by its share among those that are left."""
    # The largest k of keys log(share) + Gumbel noise are such a draw.
    weights = np.log(shares)
    step = max(_MOST_KEYS // len(shares), 1)
    parts = [np.empty((0, k), np.int64)]
    for start in range(0, n, step):
        keys = rng.gumbel(size=(min(step, n - start), len(shares))) + weights
        parts.append(np.argpartition(keys, len(shares) - k, axis=1)[:, len(shares) - k :])
    return np.concatenate(parts)


def _slots(rng: np.random.Generator, n: int, sizes: Ints, present: int) -> tuple[Ints, Ints]:
    """For each of n subscriptions, `sizes` different positions below `present`: the row, the position."""
    # The first steps of a Fisher-Yates shuffle; sorting keys takes five times as long for 6 of 50.
    step = max(_MOST_KEYS // present, 1)
    most = int(sizes.max(initial=0))
    slots = [np.empty(0, np.int64)]
    for start in range(0, n, step):
        part = sizes[start : start + step]
        shuffled = np.tile(np.arange(present), (len(part), 1))
        each = np.arange(len(part))
        for j in range(most):
            other = rng.integers(j, present, len(part))
            taken = shuffled[each, other]
            shuffled[each, other] = shuffled[:, j]
            shuffled[:, j] = taken
        slots.append(shuffled[:, :most][np.arange(most) < part[:, None]])
    return np.repeat(np.arange(n), sizes), np.concatenate(slots)


def _events(
    rng: np.random.Generator,
    m: int,
    sets: Ints,
    values: Ints,
    shares: npt.NDArray[np.float64],
    cardinality: int,
    noise: float,
) -> Entries:
    """Events at the points, some values drawn again; anywhere, where there are no points."""
    n_points, present = sets.shape
    if n_points:
        # No event twice while there are points left.
        theirs = rng.permutation(n_points)[:m] if m <= n_points else rng.integers(0, n_points, m)
        chosen, drawn = sets[theirs], values[theirs]
        again = rng.random(drawn.shape) < noise
        drawn[again] = rng.integers(0, cardinality, np.count_nonzero(again))
    else:
        chosen = _choose(rng, m, present, shares)
        drawn = rng.integers(0, cardinality, chosen.shape)
    flat = drawn.ravel()
    return Entries.sorted(np.repeat(np.arange(m), present), chosen.ravel(), flat, flat)
