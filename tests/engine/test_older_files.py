"""Files that older code has written are read, by building anew."""

from pathlib import Path

import pytest

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.durable.arrays import write_arrays
from rangecast.engine.index import Index

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


def test_what_has_not_changed_since_is_taken_as_it_is(tmp_path, monkeypatch):
    """A file of layout 5 is laid out anew only if it holds what has another form now."""
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    index = rc.open_index("auto", schema)
    texts = {k: f"price > {k} and symbol = 's{k % 7}'" for k in range(2_000)}
    index.insert(rc.Subscriptions.parse(schema, texts))
    meta, arrays = index._dump()
    built = []
    compact = Index._compact
    monkeypatch.setattr(Index, "_compact", lambda self, source: (built.append(1), compact(self, source))[1])
    for structure, times in ((meta["structure"], 0), ({"of": {"LeadLists": {}}}, 1)):
        write_arrays(tmp_path / "i", {**meta, "layout": 5, "structure": structure}, arrays)
        batch = rc.Events.from_rows(schema, [{"price": 900, "symbol": "s3"}])
        loaded = rc.load_index(tmp_path / "i")
        assert len(built) == times
        assert rows_of(loaded.match(rc.Events(loaded.schema, batch.codes))) == rows_of(index.match(batch))
