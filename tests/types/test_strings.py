"""Strings of Arrow columns: the same codes as by a dictionary, for every type, slice and chunk of them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from rangecast.types.attributes import MISSING
from rangecast.types.strings import find_strings, is_text, word_table, words_of
from rangecast.types.vocabulary import Vocabulary

WORDS = [
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "abcdefg",
    "abcdefgh",
    "abcdefgi",
    "abcdefghi",
    "abcdefgh12345678",
    "abcdefghx12345678",
    "abcdefghy12345678",
    "日本",
    "ß" * 20,
    "x" * 100,
]
OTHERS = [
    *WORDS,
    None,
    "b",
    "abd",
    "abcdefghj",
    "y" + "x" * 99,
    "x" * 99 + "y",
    "日本語",
    "a\0",
    "\0",
    "abcdefghz12345678",
]


def forms(words):
    """A column of these words in every type that Arrow has for them."""
    plain = pa.array(words, pa.string())
    yield from (plain, plain.cast(pa.large_string()), plain.cast(pa.string_view()))
    for column in (plain, plain.cast(pa.large_string())):
        yield column.dictionary_encode()
    yield pa.DictionaryArray.from_arrays(pa.array(range(len(words)), pa.int16()), plain)
    yield pa.chunked_array([plain[:1], plain[1:1], plain[1:]], pa.string())
    yield pa.concat_arrays([pa.array(["zz", None]), plain, pa.array(["q"])])[2 : 2 + len(words)]


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.sampled_from(OTHERS), min_size=1, max_size=40),
    first=st.integers(0, 9),
    n=st.integers(0, 15),
)
def test_codes_are_those_of_a_dictionary(words, first, n):
    known = WORDS[:n]
    table = word_table(known)
    wanted = [MISSING if w is None else known.index(w) + 1 if w in known else 0 for w in words]
    for column in forms(words):
        assert find_strings(table, column).codes.tolist() == wanted, column.type
        assert find_strings(table, column[first:]).codes.tolist() == wanted[first:], column.type
        # counted, unless one of them is not ASCII or rows point into a dictionary
        n_strange = find_strings(table, column).n_strange
        strange = [word for word, code in zip(words, wanted, strict=True) if code == 0]
        if n_strange is not None:
            assert n_strange == len(strange)
        elif not pa.types.is_dictionary(column.type):
            assert not all(map(str.isascii, strange))


@pytest.mark.parametrize("n", range(30))
def test_nothing_behind_the_bytes_is_needed(n):
    # words of every length that differ in one place, each the last of a buffer that ends with it
    words = ["x" * n, *("x" * k + "y" + "x" * (n - k - 1) for k in range(n))]
    table = word_table(words)
    for code, word in enumerate(words, 1):
        letters = np.frombuffer(b"--" + word.encode(), np.uint8).copy()
        starts = pa.py_buffer(np.array([2, 2 + n], np.int32))
        column = pa.StringArray.from_buffers(1, starts, pa.py_buffer(letters))
        assert find_strings(table, column).codes.tolist() == [code]
        assert words_of(column, np.array([0])).to_pylist() == [word]
    assert find_strings(table, pa.array(["x" * (n + 1)])).codes.tolist() == [0]


def test_many_words(size):
    words = [f"{k:x}" * (k % 5 + 1) + str(k) for k in range(size(20_000))]
    column = pa.array(words[::-1])
    assert find_strings(word_table(words), column).codes.tolist() == list(range(len(words), 0, -1))


def test_a_vocabulary_that_grows_is_looked_up_as_it_is():
    vocabulary = Vocabulary(["w0"])
    names = pa.array([f"w{k}" for k in range(64)])
    assert vocabulary.find(names).codes.tolist() == [1, *63 * [0]]
    for k in range(1, 64):
        vocabulary.add(f"w{k}")
        assert vocabulary.find(names).codes.tolist() == [*range(1, k + 2), *(63 - k) * [0]]
    assert vocabulary.find(names.dictionary_encode()).codes.tolist() == [*range(1, 65)]


def test_words_that_are_younger_than_the_table_are_found_in_chunks():
    vocabulary = Vocabulary(["a"])
    columns = list(forms(["a", "b", "c", "b", None]))
    vocabulary.find(columns[0])
    vocabulary.add("b")
    for column in columns:
        assert vocabulary.find(column).codes.tolist() == [1, 2, 0, 2, MISSING]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_bytes_that_are_no_text_are_bad_as_before(kind):
    rows = [b"IBM"] * 40
    rows[7] = b"\xff\xfe"
    view = pa.array(rows, pa.binary()).cast(kind, safe=False)
    encoded = rc.Category("c", ["IBM"]).encode(view)
    assert encoded.bad.tolist() == [7]
    assert encoded.reasons == [r"'c' is a category, got b'\xff\xfe'"]
    assert encoded.codes.tolist() == [*7 * [1], MISSING, *32 * [1]]


def test_offsets_that_lead_beyond_are_refused():
    starts = pa.py_buffer(np.array([0, 3, 1 << 20, 6], np.int32))
    column = pa.StringArray.from_buffers(3, starts, pa.py_buffer(b"IBMHAL"))
    with pytest.raises(pa.ArrowInvalid, match="offsets"):
        find_strings(word_table(["IBM"]), column)


def test_what_is_text():
    assert is_text(pa.dictionary(pa.int8(), pa.large_string()))
    assert not is_text(pa.dictionary(pa.int8(), pa.int64()))
    assert not is_text(pa.bool_())
    assert rc.Category("c", ["true"]).encode(pa.array([True, False, None] * 20)).codes[:3].tolist() == [
        1,
        0,
        MISSING,
    ]


def test_events_of_every_type_of_column_match_alike():
    schema = rc.Schema(rc.Category("c"), rc.Int("n"))
    index = rc.open_index("auto", schema)
    index.insert(
        rc.Subscriptions.parse(schema, {1: "c = 'w1'", 2: "c != 'w2'", 3: "c is missing", 4: "n > 30"})
    )
    words = [None if k % 7 == 0 else f"w{k % 5}" for k in range(60)]
    wanted = index.match(rc.Events.from_rows(schema, [{"c": w, "n": k} for k, w in enumerate(words)]))
    late = []
    for column in forms(words):
        table = pa.table({"c": column, "n": range(60)})
        events = rc.Events.from_arrow(schema, table)
        assert index.match(events) == wanted
        assert events.value("c", 3) == "w3"
        late.append(events)
    index.insert(rc.Subscriptions.parse(schema, {9: "c = 'w3'"}))
    again = index.match(rc.Events.from_rows(schema, [{"c": w, "n": k} for k, w in enumerate(words)]))
    assert again.n_pairs > wanted.n_pairs
    for events in late:
        assert index.match(events) == again


def test_bad_values_and_lists_in_arrow_columns():
    schema = rc.Schema(rc.Int("n"), rc.Category("c"))
    bad = rc.Events.from_arrow(
        schema, pa.table({"n": ["x", *["5"] * 49], "c": ["w"] * 50}), on_error="collect"
    )
    assert [row.reason for row in bad.rejected] == ["'n' is an int, got the string 'x'"]
    assert len(bad) == 49
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "c = 'a'", 2: "c = 'b'"}))
    lists = rc.Events.from_arrow(schema, pa.table({"c": [["a", "b"], ["c"], None] * 20}))
    assert index.match(lists).n_pairs == 40


@pytest.mark.parametrize(
    "word", ["new", "sixteen letters.", "more than sixteen letters", "neu ü", "ü" * 9, "x" * 17 + "é"]
)
def test_strangers_are_known_when_they_are_asked_for(word):
    schema = rc.Schema(rc.Category("c", ["IBM", "日本"]), rc.Int("i"))
    words = [*["IBM", "日本", None] * 30, word, "last"]
    for column in forms(words):
        events = rc.Events.from_arrow(schema, pa.table({"c": column, "i": range(len(words))}))
        assert [events.value("c", row) for row in (0, 1, 2, 90, 91)] == ["IBM", "日本", None, word, "last"]
        kept = events.select([91, 1, 90])
        assert [kept.value("c", row) for row in range(3)] == ["last", "日本", word]
    only = rc.Events.from_arrow(schema, pa.table({"c": words[:90]}))
    assert only._strangers == {}


@pytest.mark.parametrize("at", [0, 40, 63])
@pytest.mark.parametrize("raw", [b"\xff", b"new \xed\xa0\x80", b"twenty letters \x80 here"])
def test_a_stranger_that_is_not_unicode_is_refused_at_once(at, raw):
    raws = [b"IBM", b"new"] * 32
    raws[at] = raw
    column = pa.array(raws, pa.binary()).view(pa.string())
    schema = rc.Schema(rc.Category("c", ["IBM"]))
    with pytest.raises(rc.EventError, match=f"event {at}: 'c' is a category"):
        rc.Events.from_arrow(schema, pa.table({"c": column}))
    good = rc.Events.from_arrow(schema, pa.table({"c": column}), on_error="collect")
    assert [row.row for row in good.rejected] == [at]


def test_strangers_stay_what_they_were_when_the_dictionary_grows():
    schema = rc.Schema(rc.Category("c", ["IBM"]))
    table = pa.table({"c": ["IBM", "new", "newer"] * 20})
    events = rc.Events.from_arrow(schema, table)
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "c = 'newer'"}))
    again = rc.Events.from_arrow(schema, table)
    for some in (events, again):
        assert index.match(some).counts.tolist() == [0, 0, 1] * 20
        assert some.value("c", 1) == "new"
