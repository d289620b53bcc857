"""Changes in fragments: files beside the log that one record names, so that they are one version.

    fragments/<stem>.<id>.arrays      some of the change: deleted.*, inserted.*, boxes.* and the rest, as in
                                  a record (record.py); no id is in two fragments of one change

Whoever loads millions of subscriptions puts fragments from many processes, none of which holds them all, and
then has the store take them (`Store.apply_fragments`): a record of some hundred bytes. Until then nobody sees
them. The stem has the time at which the load began, so what a load that was killed has left can be told,
and is removed by `compact` after a day.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence

from rangecast.durable.arrays import write_arrays_to
from rangecast.engine import index_type
from rangecast.errors import StorageError
from rangecast.model.expiry_times import instant
from rangecast.model.ids import Ids
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.change import FragmentEntry, change_arrays
from rangecast.store.entries import FRAGMENTS
from rangecast.store.home import Home

_DAY = 86_400_000_000


def new_stem() -> str:
    """What the names of all fragments of a load begin with."""
    return f"{instant():020}-{uuid.uuid4().hex}"


def put_fragment(home: Home, stem: str, kind: str, deleted: Ids, inserted: Subscriptions) -> FragmentEntry:
    """Put one fragment of a change of a store, whose snapshots are of a kind of index."""
    if inserted.has_sets and index_type(kind).sets == "multiplied":
        inserted.dense()  # what the store's index could not take must not be written
    name = f"{stem}.{uuid.uuid4().hex}.arrays"
    arrays = change_arrays(deleted, inserted, inserted.expires)
    home.put(f"{FRAGMENTS}/{name}", lambda file: write_arrays_to(file, {}, arrays))
    textual = (inserted.ids if len(inserted) else deleted).textual
    return FragmentEntry(name, len(deleted) + len(inserted), inserted.expires is not None, textual)


def check_fragments(home: Home, fragments: Sequence[FragmentEntry]) -> None:
    """Raise when a fragment is not there for this process."""
    there = set(home.names(FRAGMENTS))
    for fragment in fragments:
        if fragment.name not in there:
            raise StorageError(
                f"{home.path}/{FRAGMENTS}/{fragment.name}: a worker wrote this file, and the driver "
                "does not see it; the store must be on storage that all machines share, or in a bucket"
            )


def drop_fragments(home: Home, stem: str, keep: Collection[str] = ()) -> None:
    """Remove the fragments of a load but those with a name to keep."""
    names = [name for name in home.names(FRAGMENTS) if name.startswith(f"{stem}.") and name not in keep]
    home.remove_all(f"{FRAGMENTS}/{name}" for name in names)


def sweep_fragments(home: Home, gone: Iterable[str], living: Collection[str]) -> None:
    """Remove the fragments of changes that are gone, and those that no change names since a day."""
    dead = set(gone)
    before = f"{instant() - _DAY:020}"
    names = []
    for name in home.names(FRAGMENTS):
        stem = name.partition(".")[0]
        if stem in dead or (stem not in living and stem < before):
            names.append(f"{FRAGMENTS}/{name}")
    home.remove_all(names)
