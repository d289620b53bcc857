"""The stripes of a version: found, or built by the workers, with no process that holds all subscriptions.

    file                            meaning
    SNAPSHOT.stripes-N/cuts.json    attributes, cuts, and what was estimated; there when all stripes are
    SNAPSHOT.stripes-N/00003.index  stripe 3 (Index.save)

They are built from what there is:

    a whole snapshot of the version      each worker scans it for its own stripe
    stripes of an older version          each worker brings a stripe forward by the changes since
    the log alone                        twice over the changes, as a shuffle would: first each piece of a
    change
                                         is cut into sections, one per stripe, in a file of its own; then each
                                         stripe is built from its sections of all files

The first and the last take cuts from a sample, the second keeps those that it finds. Where the log no longer
begins with the first version, a whole snapshot is made first, by this process.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from rangecast.durable.arrays import Arrays, read_arrays, write_arrays_to
from rangecast.engine import Index, load_index, open_index
from rangecast.engine.catalog import without_regions
from rangecast.errors import EventError, OptionError, StorageError
from rangecast.memory import available_bytes
from rangecast.model.boxes import hulls, select
from rangecast.model.events import Events
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.spark.output import ArrowWork
from rangecast.spark.snapshots import Snapshot
from rangecast.spark.worker import (
    WorkerFollower,
    beside_driver,
    creation_of,
    file_here,
    is_shipped,
    mapped,
    open_store,
    told,
)
from rangecast.store.change import Change, change_arrays, gathered, ids_arrays, ids_from, subscriptions_from
from rangecast.store.change_log import ChangePiece
from rangecast.store.home import Home, home_of
from rangecast.store.store import Store
from rangecast.types.attributes import LAST, MISSING, Codes
from rangecast.types.patterns import HeldBundle
from rangecast.types.schema import Schema

_CUTS = "cuts.json"
# pieces of a change that one task cuts, by how many subscriptions they name
_AT_ONCE = 500_000
_SAMPLED_PIECES = 16
# sections that are put into a stripe's index at once: each step may build what is there anew
_IN_A_STEP = 5_000_000


class StripeFiles(NamedTuple):
    """The stripes of a version, where they are and how they were cut; None for those of a saved index."""

    folder: str
    cuts: Cuts
    version: int | None
    n_bytes: int

    @property
    def asked(self) -> int:
        """How many were asked for; equal bounds may have made fewer."""
        return int(self.folder.rpartition("-")[2])

    def path(self, stripe: int) -> str:
        """The file of a stripe."""
        return f"{self.folder}/{stripe_name(stripe)}"


def stripe_name(stripe: int) -> str:
    """The name of a stripe's file."""
    return f"{stripe:05}.index"


def stripes_of_snapshot(spark: SparkSession, snapshot: Snapshot, n: int) -> StripeFiles:
    """The stripes of a saved index, beside it."""
    if is_shipped(snapshot.path):
        raise OptionError(
            "stripes are kept beside a snapshot that driver and workers see: insert the subscriptions into a "
            "store, or match them with mode 'whole'"
        )
    folder = f"{snapshot.path.removesuffix('.index')}.stripes-{n}"
    found = _found(folder, snapshot.version)
    if found is not None:
        return found
    home_of(folder).prepare()
    cuts = choose_cuts([mapped(snapshot.path).subscriptions()], n)
    _each(spark, cuts.n, from_snapshot(snapshot.path, folder, cuts))
    return _finished(folder, cuts, snapshot.version, cuts.to_dict(snapshot.schema))


def prepare_stripes(spark: SparkSession, store: Store, version: int, n: int) -> StripeFiles:
    """The stripes of a version of a store, built now if they are not there yet."""
    if n < 2:
        raise OptionError(f"stripes must be at least 2, got {n}")
    place = store.snapshot_path(version)
    folder = f"{str(place).removesuffix('.index')}.stripes-{n}"
    found = _found(folder, version)
    if found is not None:
        return found
    whole_there = version in store.snapshots()
    older = None if whole_there else newest_stripes(store, version, n)
    begun = store.nearest(version) > 0 or not store.changed(0, version)
    if older is None and (whole_there or begun):
        store.snapshot(version)
        whole = Snapshot(
            str(place), store.schema, bool(store.ids_are_text), None, 0, str(store.path), version
        )
        return stripes_of_snapshot(spark, whole, n)
    home_of(folder).prepare()
    if older is not None:
        cuts = older.cuts
        _each(spark, cuts.n, from_older(str(store.path), older, folder, version))
    else:
        cuts = _build_from_log(spark, store, version, n, folder)
    return _finished(folder, cuts, version, cuts.to_dict(store.schema))


def newest_stripes(store: Store, version: int, n: int | None = None) -> StripeFiles | None:
    """The newest stripes of a version, or of one before it from which the changes are there; None without
    any.

    `n` is how many were asked for when they were built; by default any will do.
    """
    home = home_of(store.path)
    base = store.oldest
    suffix = ".stripes-" if n is None else f".stripes-{n}"
    names = {name.partition("/")[0] for name in home.folders("snapshots")}
    stems = [name for name in names if (name.endswith(suffix) if n else suffix in name)]
    for name in sorted(stems, reverse=True):
        at = int(name.partition(".")[0])
        if base <= at <= version:
            found = _found(f"{store.path}/snapshots/{name}", at)
            if found is not None:
                return found
    return None


def _found(folder: str, version: int | None) -> StripeFiles | None:
    home = home_of(folder)
    known = home.read(_CUTS)
    if known is None:
        return None
    return StripeFiles(folder, Cuts.from_dict(known), version, home.size())


def _finished(folder: str, cuts: Cuts, version: int | None, known: dict[str, Any]) -> StripeFiles:
    # last, so that cuts that are there say that all stripes are
    home = home_of(folder)
    home.write(_CUTS, known)
    return StripeFiles(folder, cuts, version, home.size())


def _each(spark: SparkSession, n: int, work: ArrowWork) -> None:
    """Have the workers do something for each of so many numbers."""
    numbers = spark.range(0, n, 1, n)
    with told():
        numbers.mapInArrow(work, numbers.schema).collect()


def _build_from_log(spark: SparkSession, store: Store, version: int, n: int, folder: str) -> Cuts:
    pieces = [piece for piece in store.pieces(0, version) if piece.named]
    step = max(1, len(pieces) // _SAMPLED_PIECES)
    some = [change.inserted for change in store.read_pieces(pieces[::step])]
    cuts = choose_cuts([subs for subs in some if subs.n_boxes] or some[:1], n)
    groups = _grouped(pieces)
    sections = f"{folder}/sections"
    home_of(sections).prepare()
    try:
        _each(spark, len(groups), section_writer(str(store.path), groups, sections, cuts))
        _each(spark, cuts.n, from_sections(str(store.path), sections, len(groups), folder, cuts))
    finally:
        home_of(sections).clear()
    return cuts


def _grouped(pieces: Sequence[ChangePiece]) -> list[list[ChangePiece]]:
    """Pieces in their order, some together: as many as name about as much as a large one."""
    groups: list[list[ChangePiece]] = []
    named = 0
    for piece in pieces:
        if not groups or named + piece.named > _AT_ONCE:
            groups.append([])
            named = 0
        groups[-1].append(piece)
        named += piece.named
    return groups


# inside the workers


def _for_each(step: Callable[[int], None]) -> ArrowWork:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                step(number)
            yield batch

    return work


def from_snapshot(path: str, folder: str, cuts: Cuts) -> ArrowWork:
    """Builds the stripes whose numbers it gets, from a whole snapshot."""

    def build(stripe: int) -> None:
        home = home_of(folder)
        if not home.has(stripe_name(stripe)):
            whole = mapped(path)
            index = open_index(whole.name, whole.schema, **whole.options)
            index.insert(StripeSpans.of(whole.subscriptions(), cuts).cut_out(stripe))
            _save(home, index, stripe)

    return _for_each(build)


def from_older(store: str, older: StripeFiles, folder: str, version: int) -> ArrowWork:
    """Brings the stripes whose numbers it gets forward to a version."""

    def build(stripe: int) -> None:
        home = home_of(folder)
        if not home.has(stripe_name(stripe)):
            _save(home, StripeFollower(store, older, stripe).at(version), stripe)

    return _for_each(build)


def section_writer(store: str, groups: list[list[ChangePiece]], folder: str, cuts: Cuts) -> ArrowWork:
    """Cuts the changes of the groups whose numbers it gets into sections."""

    def write(number: int) -> None:
        home, name = home_of(folder), _sections_name(number)
        if home.has(name):
            return
        first = groups[0][0].version
        arrays: Arrays = {}
        steps = list(gathered(open_store(store).read_pieces(groups[number]), _AT_ONCE * 2))
        for k, step in enumerate(steps):
            spans = StripeSpans.of(step.inserted, cuts)
            none = Ids.of([])
            for stripe in range(cuts.n):
                some = change_arrays(none, spans.cut_out(stripe), None)
                arrays |= {f"{k}.{stripe}.{key}": array for key, array in some.items()}
            if groups[number][-1].version > first:
                # an id that was there before may have been in any stripe
                arrays |= ids_arrays(named_ids(step), f"{k}.named")
        meta = {"versions": [step.version for step in steps]}
        with beside_driver(folder):
            home.put(name, lambda file: write_arrays_to(file, meta, arrays))

    return _for_each(write)


def from_sections(store: str, sections: str, n_groups: int, folder: str, cuts: Cuts) -> ArrowWork:
    """Builds the stripes whose numbers it gets, from their sections."""

    def build(stripe: int) -> None:
        home = home_of(folder)
        if home.has(stripe_name(stripe)):
            return
        opened = open_store(store)
        # the words of all, for events are encoded by any stripe
        index = opened.empty_index(words=True)
        found = (c for g in range(n_groups) for c in _section(sections, g, stripe, opened))
        for step in gathered(found, _IN_A_STEP):
            step.apply_to(index)
        _save(home, index, stripe)

    return _for_each(build)


def _section(folder: str, number: int, stripe: int, store: Store) -> Iterator[Change]:
    """What the changes of a group do to a stripe."""
    file = home_of(folder).file(_sections_name(number))
    if file is None:
        raise StorageError(
            f"{folder}/{_sections_name(number)}: is not here; a worker must see the same files as the others"
        )
    # each stripe checks what it reads: the others' sections would be most of the file
    meta, arrays = read_arrays(file, unread=_OtherSections(stripe))
    schema = store.schema.widest()
    for k, version in enumerate(meta["versions"]):
        start = f"{k}.{stripe}."
        mine = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
        inserted = subscriptions_from(schema, ids_from(mine, "inserted"), mine)
        gone = Ids.of([])
        if any(name.startswith(f"{k}.named.") for name in arrays):
            gone = absent(ids_from(arrays, f"{k}.named"), inserted.ids)
        yield Change(version, 0, gone, inserted)


class _OtherSections:
    """The names of arrays that belong to other stripes than this one."""

    def __init__(self, stripe: int) -> None:
        self.own = ("named", str(stripe))

    def __contains__(self, name: object) -> bool:
        return str(name).split(".")[1] not in self.own


def _sections_name(number: int) -> str:
    return f"{number:06}.arrays"


def _save(home: Home, index: Index, stripe: int) -> None:
    with beside_driver(home.path):
        home.save(index, stripe_name(stripe))


class StripeFollower(WorkerFollower):
    """An index of one stripe that moves with the versions of a store, from the version it was built at on."""

    def __init__(self, path: str, files: StripeFiles, stripe: int) -> None:
        self.files = files
        self.stripe = stripe
        super().__init__(path)

    def _load(self, store: Store, version: int) -> tuple[int, Index]:
        start = self._nearest(store, version)
        # not the one that `mapped` keeps for all: this one moves
        index = load_index(file_here(self.files.path(self.stripe)), verify=None)
        for step in gathered(store.changes(start, version)):
            self._apply(step, index)
        return start, index

    def _apply(self, step: Change, index: Index) -> None:
        cut_change(step, self.files.cuts, self.stripe).apply_to(index)

    def _nearest(self, store: Store, version: int) -> int:
        built = self.files.version or 0
        if version < built:
            raise StorageError(f"{self.files.folder}: has stripes of version {built}, got version {version}")
        return built


_followers: OrderedDict[tuple[Any, ...], StripeFollower] = OrderedDict()


def followed_stripe(path: str, files: StripeFiles, stripe: int) -> StripeFollower:
    """What this process keeps of a stripe.

    Those of older stripes go when newer ones come, and those that were not used for longest when all together
    would take more than half of what the machine has left: Spark may give any stripe to any worker.
    """
    made = creation_of(path)
    key = path, made, files.folder, stripe
    found = _followers.get(key)
    if found is None:
        for old in [k for k in _followers if k[0] == path and k[1:3] != key[1:3]]:
            del _followers[old]
        most = max(1, int(available_bytes() / 2 * files.cuts.n / max(1, files.n_bytes)))
        while len(_followers) >= most:
            _followers.popitem(last=False)
        found = _followers[key] = StripeFollower(path, files, stripe)
    _followers.move_to_end(key)
    return found


# Where the space of codes is cut into stripes, and which stripes a box touches and an event is in.
#
# The space is cut along one or two attributes at sampled quantiles:
#
#     stripe      0        1            2          3
#     codes   ........|...........|............|.........      cuts[0]  cuts[1]  cuts[2]
#
# A subscription is put into every stripe that one of its boxes touches; an event has one code, so it
# goes to exactly one stripe and finds each of its subscriptions there, once. That is exact, and needs
# no removal of duplicates. A missing value is a code like any other and belongs to the first stripe.
#
# The attributes and the split among them are those that copy the fewest boxes, by a sample. Codes stay what
# they are when a store learns new words, so cuts hold for later versions as well: what changes after the
# stripes were built is cut in the same way (`cut_change`).

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
    batch = events.encoded(schema)
    # patterns give an event several columns, which differ in nothing that is cut
    codes = batch.codes if batch.firsts is None else batch.codes[:, batch.firsts[:-1]]
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
