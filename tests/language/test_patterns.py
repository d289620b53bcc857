"""CONTAINS, LIKE with any pattern, MATCHES: what they mean, beside Python's own searches."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import rows_of

pytestmark = pytest.mark.without_kernels

LETTERS = "ab%_\\'.\nä"
WORDS = st.text(LETTERS, max_size=12)


def schema_of():
    return rc.Schema(rc.Category("title"), rc.Int("a"))


def matching(texts, rows, kind="scan"):
    schema = schema_of()
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    return rows_of(index.match(rc.Events.from_rows(schema, rows)))


def quoted(word):
    return "'" + word.replace("'", "''") + "'"


def like(pattern):
    """The pattern as a regular expression of Python's."""
    found, letters = "", iter(pattern)
    for letter in letters:
        found += {"%": ".*", "_": "."}.get(letter) or re.escape(next(letters) if letter == "\\" else letter)
    return re.compile(found, re.DOTALL)


PATTERNS = st.lists(st.sampled_from(["%", "_", "a", "b", "ä", "'", "\n", r"\%", r"\_", "\\\\"]), max_size=8)


@given(st.lists(WORDS, min_size=1, max_size=5), st.lists(PATTERNS.map("".join), min_size=1, max_size=5))
def test_like_equals_a_regular_expression(words, patterns):
    texts = {k: f"title like {quoted(pattern)}" for k, pattern in enumerate(patterns)}
    n = len(patterns)
    texts |= {n + k: f"title not like {quoted(pattern)}" for k, pattern in enumerate(patterns)}
    # a word that fits each pattern, and one letter more
    words += [re.sub(r"\\(.)", r"\1", p.replace("%", "ab").replace("_", "ä"), flags=re.S) for p in patterns]
    words += [word + "b" for word in words]
    wanted = []
    for word in words:
        fits = [like(pattern).fullmatch(word) is not None for pattern in patterns]
        wanted.append([k for k in range(n) if fits[k]] + [n + k for k in range(n) if not fits[k]])
    assert matching(texts, [{"title": word} for word in words]) == wanted


@given(st.lists(WORDS, min_size=1, max_size=5), st.lists(WORDS, min_size=1, max_size=5))
def test_contains_equals_in(words, parts):
    texts = {k: f"title contains {quoted(part)}" for k, part in enumerate(parts)}
    n = len(parts)
    texts |= {n + k: f"not (title contains {quoted(part)} or a = 1)" for k, part in enumerate(parts)}
    words += [f"b{part}a" for part in parts]
    rows = [{"title": word, "a": 0} for word in words]
    wanted = [
        [k for k in range(n) if parts[k] in word] + [n + k for k in range(n) if parts[k] not in word]
        for word in words
    ]
    assert matching(texts, [*rows, {"a": 0}]) == [*wanted, []]


def test_matches_searches_for_a_regular_expression():
    texts = {
        1: "title matches '^error [0-9]+$'", 2: "title matches 'disk|memory'", 3: "title matches '(?i)DISK'",
        4: "title not matches 'error'", 5: "lower(title) matches 'ä.e'",
    }  # fmt: skip
    words = ["error 17", "error 17 ", "Disk full", "no memory", "ÄBE"]
    found = matching(texts, [{"title": word} for word in words] + [{"a": 1}])
    assert found == [[1], [], [3, 4], [2, 4], [4, 5], []]


@pytest.mark.parametrize("kind", ["scan", "auto", "bitmap", "cells", "opindex"])
def test_indexes_and_what_is_saved(kind, tmp_path):
    schema = schema_of()
    words = ["alpha", "beta", "gamma", "delta"]
    texts = {k: f"title contains '{words[k % 4]}' and a > {k // 4}" for k in range(80)}
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    assert index.schema.n_hidden == 3
    assert index.schema.traits.vocabulary.words() == [f"contains(title, '{word}')" for word in words]
    index.save(tmp_path / "index")
    rows = [{"title": f"some {words[k % 4]}{words[k % 3]}", "a": k} for k in range(20)] + [{"a": 9}]
    wanted = [
        [k for k in texts if words[k % 4] in row.get("title", "") and row["a"] > k // 4] for row in rows
    ]
    for own in (index, rc.load_index(tmp_path / "index")):
        assert rows_of(own.match(rc.Events.from_rows(own.schema, rows))) == wanted
        assert [sorted(own.match_one(row)) for row in rows] == wanted


def test_a_store_keeps_patterns_and_explains_them(tmp_path):
    store = rc.Store.open(tmp_path / "store", schema_of())
    store.insert(rc.Subscriptions.parse(store.schema, {7: "title contains 'it''s' and not title like '%x_'"}))
    again = rc.Store.open(tmp_path / "store")
    rows = [{"title": "it's"}, {"title": "it's xy"}, {"title": "its"}]
    found = again.index().match(rc.Events.from_rows(again.schema, rows))
    assert rows_of(found) == [[7], [], []]
    told = again.index().explain(7, rows[1])
    assert "yes  title contains 'it''s': \"it's xy\"" in str(told)
    assert "yes  title like '%x_'" in str(told)
