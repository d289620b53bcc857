"""Files that older code has written are read, by building anew."""

from pathlib import Path

import pytest

import rangecast as rc
from oracle import match_boxes, rows_of

# written by the code of layout 2, before structures were saved as trees, and by that of layout 4, when the
# bounds of all indexes were expanded
OLD_FILES = Path(__file__).parent / "files"


@pytest.mark.parametrize(
    ("layout", "name", "word"),
    [*((2, name, "in") for name in ("auto", "vci", "rtree")),
     *((4, name, "not in") for name in ("auto", "cells", "vci", "hint"))],
)  # fmt: skip
def test_a_file_of_an_older_layout_is_read(layout, name, word, tmp_path):
    loaded = rc.load_index(OLD_FILES / f"layout{layout}-{name}.index")
    conditions = [
        f"price between {3 * k} and {3 * k + 40} and symbol = '{'ABCD'[k % 4]}'"
        if k % 3
        else f"price < {k} or price > {100 - k} and symbol {word} ('A', 'B')"
        for k in range(24)
    ]
    schema = rc.Schema(rc.Int("price", 0, 199), rc.Category("symbol"), rc.Float("change"))
    kept = [k for k in range(24) if k not in (3, 7)]
    ids = [f"s{k}" for k in kept] if name == "vci" else kept
    subs = rc.Subscriptions.parse(schema, {i: conditions[k] for i, k in zip(ids, kept, strict=True)})
    rows = [{"price": price, "symbol": symbol} for price in range(0, 120, 7) for symbol in "ABCDX"]
    events = rc.Events.from_rows(schema, rows)
    want = [sorted(row) for row in match_boxes(subs, events)]
    assert sum(map(len, want)) > 100
    assert loaded.name == name
    assert rows_of(loaded.match(rc.Events.from_rows(loaded.schema, rows))) == want
    # and is of today's layout when it is saved again
    loaded.save(tmp_path / "i")
    again = rc.load_index(tmp_path / "i")
    assert rows_of(again.match(rc.Events.from_rows(again.schema, rows))) == want
