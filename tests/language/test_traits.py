"""Patterns and HAS as bundles of traits: any number of them, what is kept, what older code makes of it."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import rows_of
from rangecast.language import clauses_of
from rangecast.types import patterns
from rangecast.types.expressions import parse_expression
from rangecast.types.kernels import fits_like
from rangecast.types.patterns import like_marks, longest_piece, needed_piece

pytestmark = pytest.mark.without_kernels


def schema_of():
    return rc.Schema(rc.Category("title"), rc.Tags("tags"), rc.Int("a"), rc.Category("body"))


def index_of(texts, kind="auto", schema=None):
    schema = schema or schema_of()
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    return index


def test_many_patterns_are_three_attributes():
    words = [f"w{k}x" for k in range(260)]
    texts = {k: f"title contains '{word}'" for k, word in enumerate(words)}
    texts |= {1000 + k: f"not title contains '{word}' and a = 1" for k, word in enumerate(words)}
    texts |= {2000 + k: f"title like '%w{k}_y%'" for k in range(20)}
    index = index_of(texts, "scan")
    assert index.schema.n_hidden == 3
    titles = ["w7x", "w7x w8xy", "nothing", " ".join(words[:9])]
    found = rows_of(index.match(rc.Events.from_rows(index.schema, [{"title": t, "a": 1} for t in titles])))
    for title, ids in zip(titles, found, strict=True):
        held = {k for k, word in enumerate(words) if word in title}
        likes = {2000 + k for k in range(20) if re.search(f"w{k}.y", title)}
        assert ids == sorted(held | {1000 + k for k in range(260) if k not in held} | likes)


def test_an_event_may_fulfil_more_than_the_variants_of_lists():
    """260 patterns hold beside four values, 1,040 variants: what is computed is not rejected."""
    words = [f"{k:04}" for k in range(260)]
    texts = {k: f"title contains '{word}' and tags has 't{k % 5}'" for k, word in enumerate(words)}
    index = index_of(texts, "scan")
    row = {"title": " ".join(words), "tags": ["t0", "t1", "t2", "t3"]}
    assert sorted(index.match_one(row).tolist()) == [k for k in range(260) if k % 5 < 4]


def test_patterns_of_two_attributes_and_tags_in_one_bundle():
    texts = {
        1: "title contains 'x' and body contains 'y' and not tags has 'z'",
        2: "not title contains 'x' and not body contains 'y'",
        3: "not title contains 'x' or tags has all ('p', 'q')",
        4: "title contains 'x' and title contains 'xy' and not title like '%z'",
    }
    index = index_of(texts)
    assert len(index.schema.traits.vocabulary) == 5
    rows = [
        {"title": "x", "body": "y", "tags": ["p"]},
        {"title": "x", "body": "y", "tags": ["p", "z"]},
        {"title": "x", "body": "y"},
        {"title": "a", "body": "b"},
        {"title": "a"},
        {"title": "xy", "tags": ["q", "p"]},
        {"title": "xyz"},
        {},
    ]
    wanted = [[1], [], [], [2, 3], [3], [3, 4], [], []]
    assert rows_of(index.match(rc.Events.from_rows(index.schema, rows))) == wanted
    told = str(index.explain(1, rows[1]))
    assert "yes  title contains 'x': 'x'" in told or "traits" in told


def test_no_bundle_is_kept_that_no_box_asks_for():
    texts = {k: f"tags has all ('a{k}', 'b{k}') and not title contains 'c{k}'" for k in range(20)}
    texts |= {20 + k: f"title contains 'c{k}' and a > {k}" for k in range(20)}
    texts |= {
        40: "title contains 'x' and not title contains 'x'",
        41: "title contains 'q' or a > 3 and a < 2",
    }
    schema = schema_of()
    with pytest.warns(rc.RangecastWarning):
        rc.Subscriptions.parse(schema, texts)
    assert len(schema.traits.vocabulary) == 41


def test_one_of_several_texts_must_fulfil_all_of_it():
    index = index_of({1: "title contains 'x' and title contains 'y'", 2: "not title contains 'x'"})
    rows = [{"title": ["x", "y"]}, {"title": ["xy", "z"]}, {"title": ["x"]}]
    assert rows_of(index.match(rc.Events.from_rows(index.schema, rows))) == [[2], [1, 2], []]


@pytest.mark.parametrize(
    "pattern", ["title contains 'x'", "title like 'x_y%'", "title matches 'x'", "tags has all ('x', 'y')"]
)
@pytest.mark.parametrize("everything", ["a is missing or a is present", "(a = 1 or not a = 1 or a is null)"])
@pytest.mark.parametrize("n", [1, 20])
def test_what_holds_everywhere_holds_beside_a_pattern(pattern, everything, n):
    texts = [f"{pattern} or {everything}", f"not {pattern} or {everything}", f"{pattern} and ({everything})"]
    index = index_of({k: texts[k % 3] for k in range(3 * n)}, "scan")
    rows = [{}, {"a": 1}, {"title": "z", "tags": ["z"]}, {"title": "xzy", "tags": ["x", "y"], "a": 2}]
    found = rows_of(index.match(rc.Events.from_rows(index.schema, rows)))
    of_pattern = [[], [], [], range(2, 3 * n, 3)]
    always = [k for k in range(3 * n) if k % 3 < 2]
    assert found == [sorted([*always, *own]) for own in of_pattern]
    assert not any(bounds for bounds in clauses_of(index.schema, texts[0]))


def test_events_that_were_made_before_a_pattern_match_it_too():
    schema = schema_of()
    index = rc.open_index("auto", schema)
    events = rc.Events.from_rows(schema, [{"title": "alpha"}, {"title": "beta"}])
    for k, part in enumerate(["al", "e", "a", "lph", "x"]):
        denied = {100 + k: f"not title contains '{part}'"}
        index.insert(rc.Subscriptions.parse(schema, {k: f"title contains '{part}'"} | denied))
        parts = ["al", "e", "a", "lph", "x"][: k + 1]
        wanted = [
            [i for i, p in enumerate(parts) if p in title]
            + [100 + i for i, p in enumerate(parts) if p not in title]
            for title in ("alpha", "beta")
        ]
        assert rows_of(index.match(events)) == wanted
        assert rows_of(index.match(events.select([1, 0]))) == wanted[::-1]


def test_a_store_of_the_form_before_is_read_and_goes_on(tmp_path):
    store = rc.Store.open(tmp_path / "store", schema_of())
    store.schema.traits.single_columns = True  # each pattern an expression, as it was
    old = {1: "title contains 'x'", 2: "not title like '%a_b%'", 3: "tags has all ('p', 'q')"}
    store.insert(rc.Subscriptions.parse(store.schema, old))
    assert "contains(title, 'x')" in store.schema.hidden_names()
    again = rc.Store.open(tmp_path / "store")
    new = {4: "title contains 'x'", 5: "not title like '%a_b%'", 6: "tags has all ('p', 'q')"}
    again.insert(rc.Subscriptions.parse(again.schema, new))
    assert again.schema.hidden_names()[-3:] == list(patterns.names)
    rows = [{"title": "x a-b", "tags": ["q", "p"]}, {"title": "y"}, {"tags": ["p"]}]
    for index in (again.index(), rc.Store.open(tmp_path / "store").index()):
        found = rows_of(index.match(rc.Events.from_rows(index.schema, rows)))
        assert found == [[1, 3, 4, 6], [2, 5], []]
    again.compact()
    index = rc.Store.open(tmp_path / "store").index()
    assert rows_of(index.match(rc.Events.from_rows(index.schema, rows))) == [[1, 3, 4, 6], [2, 5], []]


def test_code_that_knows_no_traits_refuses_them():
    """The name of a hidden attribute is read as an expression by whoever knows no better."""
    for name in patterns.names:
        with pytest.raises(rc.SchemaError, match="unknown function traits"):
            parse_expression(name, {"title": "text"})


def test_schemas_and_subscriptions_are_pickled_and_taken_over():
    index = index_of({1: "title contains 'x'", 2: "not title contains 'y'"})
    subs = pickle.loads(pickle.dumps(rc.Subscriptions.parse(index.schema, {3: "title contains 'z'"})))
    index.insert(subs)
    rows = [{"title": "xz"}, {"title": "y"}]
    assert rows_of(index.match(rc.Events.from_rows(index.schema, rows))) == [[1, 2, 3], []]
    again = rc.Schema.from_dict(index.schema.to_dict(words=True))
    assert again.traits.vocabulary.words() == index.schema.traits.vocabulary.words()
    other = rc.Subscriptions.parse(schema_of(), {4: "title contains 'other'"})
    with pytest.raises(rc.SchemaError, match="whose traits have other codes"):
        index.insert(other)


def test_too_many_patterns_without_a_fixed_part_are_refused():
    schema = schema_of()
    texts = {k: f"title matches '[{chr(97 + k % 26)}-z]{{{k // 26 + 1}}}$'" for k in range(300)}
    subs = rc.Subscriptions.parse(schema, texts, on_error="collect")
    assert len(subs) == patterns.MOST_WITHOUT_PIECES
    assert "256 patterns without a fixed part" in subs.rejected[0].reason
    more = rc.Subscriptions.parse(schema, {1: "title matches 'disk [0-9]+'", 2: "title matches '[a-z]{1}$'"})
    assert len(more) == 2


@given(st.text("ab_%\\é", max_size=6), st.text("ab_%é\n", max_size=8))
def test_like_by_bytes(pattern, text):
    try:
        marks = np.array(like_marks(pattern), np.int16)
    except rc.SchemaError:
        return
    found, letters = "", iter(pattern)
    for letter in letters:
        found += {"%": ".*", "_": "."}.get(letter) or re.escape(next(letters) if letter == "\\" else letter)
    raw = np.frombuffer(text.encode() or b"\0", np.uint8).copy()
    fits = fits_like(marks, 0, len(marks), raw, 0, len(text.encode()))
    assert bool(fits) is (re.fullmatch(found, text, re.DOTALL) is not None)
    assert not fits or longest_piece(pattern) in text


PIECES = r"a b ab a? b* (ab)? (a|b) [ab] a{0} b{2} a+ \. . ^ $ \b | (?:ab) a{0,1} [^a] (b)+ a?? b+?"


@given(st.lists(st.sampled_from(PIECES.split()), max_size=6).map("".join), st.text("ab.", max_size=8))
def test_what_an_expression_needs_is_in_what_it_finds(pattern, text):
    try:
        found = re.search(pattern, text, re.DOTALL)
    except re.error:
        return
    if found:
        assert needed_piece(pattern) in text


def test_an_explanation_asks_all_of_one_of_several_values():
    schema = rc.Schema(rc.Category("title"), rc.Int("n"), rc.Tags("tags"))
    index = rc.open_index("scan", schema)
    texts = {
        1: "length(title) > 3 and title starts with 'b'",
        2: "title contains 'x' and title contains 'y'",
        3: "n > 3 and n < 7 or n = 9 and title = 'b'",
        4: "tags has all ('a', 'b') and not tags has 'c'",
    }
    index.insert(rc.Subscriptions.parse(schema, texts))
    rows = [
        {"title": ["abcd", "b"], "n": [2, 9], "tags": ["a", "b"]},
        {"title": ["x", "y"], "n": [2, 8]},
        {"title": "bxyz", "n": 5, "tags": ["a", "b", "c"]},
        {"title": ["abcd", "bxyz", "xy"]},
    ]
    found = [sorted(index.match_one(row).tolist()) for row in rows]
    assert found == [[3, 4], [], [1, 2, 3], [1, 2]]
    for row, ids in zip(rows, found, strict=True):
        assert [k for k in texts if index.explain(k, row).matches] == ids
    shown = index.explain(1, rows[0]).in_boxes().splitlines()
    assert shown[0] == "subscription 1 does not match"
    assert shown[-1] == "  no   all of it for one of several values"
