"""HAS, of attributes with several values: beside Python's sets, in every index, at every door."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import rows_of
from rangecast.engine import REGISTRY

pytestmark = pytest.mark.without_kernels

WORDS = ["x", "y", "z", "it's"]
LISTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True)


def schema_of():
    return rc.Schema(rc.Tags("tags"), rc.Int("a"))


def quoted(words):
    return ", ".join("'" + word.replace("'", "''") + "'" for word in words)


# a condition as its text, and what it says of a set of tags (None where there are none) and a
ATOMS = st.one_of(
    st.sampled_from(WORDS).map(lambda w: (f"tags has {quoted([w])}", lambda tags, a: w in tags)),
    LISTS.map(lambda ws: (f"tags has any ({quoted(ws)})", lambda tags, a: bool(tags & set(ws)))),
    LISTS.map(lambda ws: (f"tags has all ({quoted(ws)})", lambda tags, a: tags >= set(ws))),
    LISTS.map(lambda ws: (f"tags has none ({quoted(ws)})", lambda tags, a: not tags & set(ws))),
    st.integers(0, 2).map(lambda n: (f"a > {n}", lambda tags, a: a > n)),
)


def joined(word, parts):
    text = "(" + f" {word} ".join(text for text, _ in parts) + ")"
    return text, lambda tags, a: (all if word == "and" else any)(said(tags, a) for _, said in parts)


CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda p: joined(*p)
        ),
        inner.map(lambda part: (f"not {part[0]}", lambda tags, a: not part[1](tags, a))),
    ),
    max_leaves=6,
)
EVENTS = st.tuples(st.sets(st.sampled_from([*WORDS, "never named"]), min_size=1), st.integers(0, 3))


@given(st.lists(CONDITIONS, min_size=1, max_size=4), st.lists(EVENTS, min_size=1, max_size=5))
def test_any_condition_says_what_sets_say(conditions, events):
    schema = schema_of()
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {k: text for k, (text, _) in enumerate(conditions)}))
    rows = [{"tags": sorted(tags), "a": a} for tags, a in events]
    wanted = [[k for k, (_, said) in enumerate(conditions) if said(tags, a)] for tags, a in events]
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == wanted
    assert [sorted(index.match_one(row)) for row in rows] == wanted


def test_without_tags_nothing_holds_but_missing():
    schema = schema_of()
    texts = {
        1: "tags has 'x'",
        2: "tags has none ('x')",
        3: "not tags has 'x'",
        4: "tags is missing",
        5: "a = 1",
    }
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    rows = [{"a": 1}, {"tags": [], "a": 1}, {"tags": [None], "a": 1}, {"tags": "y"}]
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == [[4, 5], [4, 5], [4, 5], [2, 3]]


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_every_index(kind, tmp_path, leg):
    schema = schema_of()
    words = [f"w{k}" for k in range(6)]
    texts = {k: f"tags has all ('{words[k % 6]}', '{words[k % 4]}') and a > {k // 6}" for k in range(40)}
    texts |= {40 + k: f"tags has '{words[k]}' and not tags has '{words[(k + 1) % 6]}'" for k in range(6)}
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    rows = [{"tags": [words[k % 6], words[k % 5], words[k % 4]], "a": k % 9} for k in range(40)]
    if leg == "nojit":  # the curve of ubtree has a dimension for each tag: 0.2 s for each event
        rows = rows[::4]

    def holds(k, row):
        tags = set(row["tags"])
        if k >= 40:
            return words[k - 40] in tags and words[(k - 39) % 6] not in tags
        return {words[k % 6], words[k % 4]} <= tags and row["a"] > k // 6

    wanted = [[k for k in texts if holds(k, row)] for row in rows]
    assert sum(map(len, wanted)) > len(rows)
    index.save(tmp_path / "index")
    loaded = rc.load_index(tmp_path / "index")
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == wanted
    assert rows_of(loaded.match(pa.Table.from_pylist(rows))) == wanted


def test_files_of_json_and_what_is_written_down(tmp_path):
    schema = schema_of()
    assert rc.Schema.infer([{"tags": ["x"], "a": 1}]) == schema
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    assert rc.Schema.from_toml(tmp_path / "schema.toml") == schema
    store = rc.Store.open(tmp_path / "store", schema)
    store.insert(
        rc.Subscriptions.parse(store.schema, {1: "tags has all ('x', 'it''s')", 2: "tags has none ('x')"})
    )
    events = tmp_path / "events.jsonl"
    rows = [
        {"id": 1, "tags": ["x", "it's"], "a": 5},
        {"id": 2, "tags": ["z"]},
        {"id": 3, "tags": "x"},
        {"id": 4},
    ]
    events.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"id": 5, "tags": [7]}]))
    again = rc.Store.open(tmp_path / "store")
    done = rc.match_file(again.index(), events, tmp_path / "out.csv", event_id="id")
    assert (tmp_path / "out.csv").read_text().split() == ["event_id,subscription_id", "1,1", "2,2"]
    assert done.n_rejected == 1
    told = str(again.index().explain(1, {"tags": "x"}))
    assert "no   tags has all ('x', 'it''s'): 'x'" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tags = 'x'", "column 8: 'tags' has several values: write tags HAS 'x', or HAS ANY, ALL or NONE"),
        ("tags in ('x')", "'tags' has several values"),
        ("tags has 5", "got 5; a string is written '5'"),
        ("a has 'x'", "column 1: HAS takes an attribute of strings, 'a' is an int"),
        ("tags has all 'x'", "expected ( and the strings of HAS ALL, got 'x'"),
        ("tags starts with 'x'", "'tags' is a tags, which no expression takes"),
    ],
)
def test_refused(text, message):
    with pytest.raises(rc.LanguageError) as caught:
        rc.language.parse(text, schema_of())
    assert message in str(caught.value).split("\n")[0]
