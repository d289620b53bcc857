"""Where the space of codes is cut into stripes, and which stripes a box touches and an event is in.

The space is cut along one or two attributes at sampled quantiles:

    stripe      0        1            2          3
    codes   ........|...........|............|.........      cuts[0]  cuts[1]  cuts[2]

A subscription is put into every stripe that one of its boxes touches; an event has one code, so it
goes to exactly one stripe and finds each of its subscriptions there, once. That is exact, and needs
no removal of duplicates. A missing value is a code like any other and belongs to the first stripe.

The attributes and the split among them are those that copy the fewest boxes, by a sample. Codes stay what
they are when a store learns new words, so cuts hold for later versions as well: what changes after the
stripes were built is cut in the same way (`cut_change`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.engine.checked_slots import without_regions
from rangecast.errors import EventError
from rangecast.model.boxes import hulls, select
from rangecast.model.events import Events
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.change import Change
from rangecast.types.attributes import LAST, MISSING, Codes
from rangecast.types.patterns import HeldBundle
from rangecast.types.schema import Schema

_SAMPLE = 20_000


class Cuts(NamedTuple):
    """Attributes by position, and for each the codes at which a new stripe begins."""

    on: tuple[int, ...]
    at: tuple[Codes, ...]
    copies: float

    @property
    def n(self) -> int:
        """How many stripes there are."""
        return math.prod(len(codes) + 1 for codes in self.at)

    def to_dict(self, schema: Schema) -> dict[str, Any]:
        """What a file says of them."""
        return {
            "on": list(self.on),
            "names": [schema[j].name for j in self.on],
            "cuts": [codes.tolist() for codes in self.at],
            "copies": self.copies,
        }

    @classmethod
    def from_dict(cls, known: dict[str, Any]) -> Cuts:
        """The cuts that a file tells."""
        at = tuple(np.array(codes, np.int64) for codes in known["cuts"])
        return cls(tuple(known["on"]), at, known["copies"])


def choose_cuts(several: Iterable[Subscriptions], n: int) -> Cuts:
    """The attributes and cuts that make about n stripes with the fewest copies of boxes.

    They go by a sample of these subscriptions, which are all there are or some that stand for them.
    """
    found = list(several)
    step = max(1, sum(subs.n_boxes for subs in found) // _SAMPLE)
    samples = [_sample(subs, step) for subs in found]
    lows, highs = (np.concatenate(part, axis=1) for part in zip(*samples, strict=True))
    schema = found[0].schema
    # an event has several bundles of traits, and is in one stripe
    whole = [j for j in range(len(lows)) if not isinstance(schema.attributes[j], HeldBundle)]
    single = [_cuts_on(lows, highs, (j,), (n,)) for j in whole]
    best = sorted(single, key=lambda cuts: (cuts.copies, -cuts.n))
    pairs = itertools.combinations([cuts.on[0] for cuts in best[:4]], 2)
    splits = [(a, n // a) for a in range(2, n // 2 + 1) if n % a == 0]
    double = [_cuts_on(lows, highs, pair, split) for pair in pairs for split in splits]
    # the load of a stripe is what counts: copies over stripes
    return min(single + double, key=lambda cuts: (cuts.copies / cuts.n, len(cuts.on)))


def _sample(subs: Subscriptions, step: int) -> tuple[Codes, Codes]:
    sample = np.arange(0, subs.n_boxes, step)
    lows, highs, _ = hulls(select(_reach(subs).boxes, sample, subs.owners[sample]), len(subs.schema))
    return lows, highs


def _cuts_on(lows: Codes, highs: Codes, on: tuple[int, ...], split: tuple[int, ...]) -> Cuts:
    spans = np.ones(lows.shape[1])
    at = []
    for j, n in zip(on, split, strict=True):
        ends = np.concatenate([lows[j][lows[j] > MISSING], highs[j][highs[j] < LAST]])
        shares = np.arange(1, n) / n
        cuts = np.unique(np.quantile(ends, shares, method="nearest")) if len(ends) else np.empty(0, np.int64)
        cuts = cuts.astype(np.int64)
        at.append(cuts)
        spans *= np.searchsorted(cuts, highs[j], "right") - np.searchsorted(cuts, lows[j], "right") + 1
    return Cuts(on, tuple(at), float(spans.mean()) if len(spans) else 1.0)


def stripe_of(cuts: Cuts, events: Events, schema: Schema) -> npt.NDArray[np.int32]:
    """The stripe of each event."""
    if events.owners is not None:
        raise EventError("events with several values of an attribute cannot be sent to stripes")
    codes = events.codes_for(schema)
    out = np.zeros(codes.shape[1], np.int32)
    for j, at in zip(cuts.on, cuts.at, strict=True):
        out = out * (len(at) + 1) + np.searchsorted(at, codes[j], "right").astype(np.int32)
    return out


class StripeSpans(NamedTuple):
    """Between which stripes each box lies, along each attribute that is cut."""

    subs: Subscriptions
    cuts: Cuts
    firsts: list[npt.NDArray[np.int32]]
    lasts: list[npt.NDArray[np.int32]]

    @classmethod
    def of(cls, subs: Subscriptions, cuts: Cuts) -> StripeSpans:
        """Those of the boxes of some subscriptions."""
        reach = _reach(subs)
        lows, highs, _ = hulls(reach.boxes, len(subs.schema)) if reach.has_sets else reach.dense()
        pairs = list(zip(cuts.on, cuts.at, strict=True))
        firsts = [np.searchsorted(at, lows[j], "right").astype(np.int32) for j, at in pairs]
        lasts = [np.searchsorted(at, highs[j], "right").astype(np.int32) for j, at in pairs]
        return cls(subs, cuts, firsts, lasts)

    def cut_out(self, stripe: int) -> Subscriptions:
        """The boxes that touch a stripe, with their subscriptions; without texts, for it is only matched."""
        inside = np.ones(self.subs.n_boxes, bool)
        rest = stripe
        for at, first, last in reversed(list(zip(self.cuts.at, self.firsts, self.lasts, strict=True))):
            rest, mine = divmod(rest, len(at) + 1)
            inside &= (first <= mine) & (mine <= last)
        return self.subs.select_boxes(np.flatnonzero(inside))


def cut_change(change: Change, cuts: Cuts, stripe: int) -> Change:
    """What a change does to a stripe: all that it names goes, and what touches the stripe comes."""
    inserted = StripeSpans.of(change.inserted, cuts).cut_out(stripe)
    return Change(change.version, change.time, absent(named_ids(change), inserted.ids), inserted)


def named_ids(change: Change) -> Ids:
    """All ids that a change deletes or inserts."""
    some = [ids for ids in (change.deleted, change.inserted.ids) if len(ids)]
    return Ids.of(pa.concat_arrays([ids.arrow() for ids in some])) if some else change.deleted


def absent(ids: Ids, there: Ids) -> Ids:
    """Those of some ids that others do not have."""
    if not len(there) or not len(ids):
        return ids
    return ids.select(np.flatnonzero(IdTable(there).find(ids) < 0))


def _reach(subs: Subscriptions) -> Subscriptions:
    """The boxes as events are compared with them: regions by their coverings."""
    covered = without_regions(subs)
    return subs if covered is None else covered[0]
