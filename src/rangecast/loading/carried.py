"""Columns that come along with matches: of the events (`keep`) and of the subscriptions (`payload`).

A payload column is in the order of the subscriptions, and joined by id. An index gives matches as slots of a
list of ids that seldom changes, so the join of those ids is made once and each batch is a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import EventError, OptionError
from rangecast.loading.ids import in_one_piece
from rangecast.model.ids import Ids
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import narrowed

PAIR = ("event_id", "subscription_id")


class PayloadColumns:
    """Columns of the payload of subscriptions, for the matches of an index that holds them.

    >>> from rangecast import Int, Schema
    >>> rows = [{"id": 7, "price": 1, "owner": "ann"}, {"id": 8, "price": 2, "owner": "bob"}]
    >>> subs = Subscriptions.from_rows(Schema(Int("price")), rows, payload=["owner"])
    >>> PayloadColumns(subs, ["owner"]).of(Matches.from_ids([0, 1], [8]))["owner"].to_pylist()
    ['bob']
    """

    def __init__(self, subs: Subscriptions, names: Sequence[str]) -> None:
        self._ids = subs.ids.arrow()
        self._columns: dict[str, Any] = {name: pa.array([], pa.string()) for name in names}
        if len(subs) and names:  # none have no payload either
            table = narrowed(subs.beside.table(tuple(names)))
            self._columns = {name: in_one_piece(table[name]) for name in names}
        self._joined: tuple[Ids, Any] | None = None  # ids of an index, and the row of each here

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of the columns."""
        return {name: column.type for name, column in self._columns.items()}

    def of(self, matches: Matches) -> dict[str, Any]:
        """The columns, a row for each pair of some matches."""
        if self._joined is None or not _same(self._joined[0], matches.names):
            ids = matches.names.arrow()
            self._joined = (matches.names, pc.index_in(ids, self._ids.cast(ids.type)))
        rows = self._joined[1].take(pa.array(matches.slots))
        return {name: column.take(rows) for name, column in self._columns.items()}


def _same(these: Ids, those: Ids) -> bool:
    """Whether two lists of ids are the same memory: an index makes a new object of it for each batch."""
    one = these.starts if these.textual else these.values
    other = those.starts if those.textual else those.values
    return len(one) == len(other) and one.ctypes.data == other.ctypes.data


def check_names(keep: Sequence[str], payload: Sequence[str]) -> None:
    """Raise OptionError when two columns of the output would have one name."""
    names = [*PAIR, *keep, *payload]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"columns of the output must differ, got twice: {', '.join(twice)}")


def cast_column(column: Any, kind: pa.DataType, name: str, path: str) -> Any:
    """A column of a later file in the type of the first one."""
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise EventError(
            f"{path}: the column {name!r} must be {kind} as in the first file, got {column.type}"
        ) from None
