"""Long IN lists that are cut out of their texts: the same boxes, errors and doubts as when compiled whole."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from rangecast.language import long_lists
from rangecast.language.compiler import compile_conditions
from rangecast.language.kernels import SET
from rangecast.language.tokens import MAX_LISTED

SCHEMA = rc.Schema(
    rc.Int("product"), rc.Int("price"), rc.Float("change"), rc.Category("symbol"), rc.Category("title"),
    rc.Text("named"), rc.Tags("tags"), rc.Timestamp("at"),
)  # fmt: skip
N = long_lists.LEAST


def written(values, between=", ") -> str:
    return between.join(map(str, values))


def numbers(n: int = N, seed: int = 1, low: int = -500, high: int = 4_000) -> str:
    return written(np.random.default_rng(seed).integers(low, high, n).tolist())


def strings(n: int = N, seed: int = 1, sign="'w%d'") -> str:
    return written([sign % k for k in np.random.default_rng(seed).integers(0, 4_000, n).tolist()])


def compiled_whole(texts, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(long_lists, "LEAST", 10**9)
        return compile_conditions(SCHEMA, texts)


def said(compiled):
    arrays = [(array.dtype, array.tolist()) for array in compiled[:9]]
    return arrays, [(row, str(error)) for row, error in compiled.errors], compiled.doubts


PLAIN = [
    f"product in ({numbers()})",
    f"product not in ({numbers(seed=2)})",
    f"PRODUCT IN({numbers(seed=3)})",
    f"product in ({numbers(seed=4)}) and price < 5",
    f"product in ({numbers(seed=5)}) and price < 7",
    f"price != 3 and product in (\n{numbers(seed=6)}\t) and symbol = 'in (1, 2)'",
    f"price in (3, 5, 9) and product not in ({numbers(seed=7)}) and change is missing",
    # lists of one span, and of the ends of what is read at once
    f"product in ({written(range(N))})",
    f"product not in ({written(range(N, 0, -1))})",
    f"product in ({written([-(10**18) + 1, 10**18 - 1, *range(0, 2 * N, 2)])})",
    f"product in ({written(['007', '-0', '-12', *range(N)])})",
    "symbol = '\u00e9' and product in (" + written(range(N)) + ") and symbol != '\u20ac'",
    # two long ones on two attributes: one is cut out
    f"product in ({numbers(seed=8)}) and price in ({numbers(seed=9)})",
]
WORDS = [
    f"symbol in ({strings()})",
    f"symbol not in ({strings(seed=2)}) and price < 5",
    f"price in (3, 5) and symbol IN( {strings(seed=3)}\n) and change > 2",
    "symbol in (" + written([f"'a long string of letters {k} and its end'" for k in range(N)]) + ")",
    "symbol in ('it''s', '''', '', 'a, b', ')', 'in (1, 2)', '\n', 'é', '\U0001f600', " + strings() + ")",
    "symbol in (" + written([f"'{'é' * (k % 9)}{k}''{k}'" for k in range(N)], "\t,\n") + ") and title = 'é'",
    f"symbol in ({strings()}) and title not in ({strings(seed=5)})",
    f"title in ({written([repr(str(k)) for k in range(N)])})",
]
OTHERS = [
    f"symbol in ({strings()}, 7)",
    f"symbol in ({strings()}, TRUE)",
    f"symbol in ({strings()}, \u2018w\u2019)",
    f"symbol in ({strings()} /* none */, 'a')",
    f"symbol in ({strings()}) or title in ({strings()})",
    f"symbol in ({strings()}) and symbol != 'w1'",
    f"not symbol in ({strings()})",
    "title = 'symbol in (" + strings(sign="''w%d''") + ")'",
    f"price < 5 -- symbol in ({strings()})",
    f"named in ({strings()})",
    "at in (" + written([f"'2026-01-{k % 28 + 1:02}'" for k in range(N)]) + ")",
    # what is not one clause, or bounds the attribute twice
    f"product in ({numbers()}) or price < 5",
    f"not (product in ({numbers()}) and price < 5)",
    f"not product in ({numbers()})",
    f"product in ({numbers()}) and product > 100",
    f"product in ({numbers()}) and (price < 5 or change > 2)",
    f"product in ({numbers()}) and product not in ({numbers(seed=2)})",
    # what is written in another way, or is of another type
    f"product in ({numbers()}, 1e3)",
    f"product in ({numbers()}, 2.5)",
    f"product in ({numbers()}, 3k, 1_000, +7)",
    f"product in ({numbers()}, {2**63})",
    f"product in ({numbers()}, {-(2**63)})",
    f"change in ({numbers()})",
    f"product in ({written(range(N), ' /* and */, ')})",
    f"symbol = 'product in ({numbers()})'",
    f"price < 5 -- product in ({numbers()})",
    f"price - product in ({numbers()})",
    "product in (1, 2, 3)",
]
WRONG = [
    f"product in (1,000, {numbers()})",
    f"product in ({numbers()},012)",
    f"symbol in ({strings()}",
    f"symbol in ({strings()}, 'a",
    f"symbol in ({strings()},)",
    f"symbol in ({strings()} 'a')",
    f"symbol in ({strings()}, NULL)",
    f"symbol in ({strings()}) and nothing = 3",
    f"product in ({strings()})",
    f"tags in ({strings()})",
    f"symbol in ({strings()}, '\ud800')",
    f"symbol in ({strings()}) and price < 'abc'",
    f"product in ({numbers()}) and",
    f"product in ({numbers()}",
    f"product in ({numbers()},)",
    f"product in ({numbers()}) and nothing = 3",
    f"product in ({numbers()}) and price < 'abc'",
    f"nothing in ({numbers()})",
    f"symbol in ({numbers()})",
    f"product in ({numbers()}) and price between 9 and 3",
    17,
]


@pytest.mark.parametrize(
    "texts", [PLAIN, WORDS, OTHERS, WRONG, [*PLAIN, *WORDS, *WRONG, *OTHERS, *WORDS, *PLAIN]]
)
def test_a_list_that_is_cut_out_gives_what_the_whole_text_does(texts, monkeypatch):
    whole = said(compiled_whole(texts, monkeypatch))  # which names all strings
    assert said(compile_conditions(SCHEMA, texts)) == whole


NUMBERS = [
    "0", "7", "-7", "8", "007", "12", "012", "000", "-012", "-0", "1234567", "12345678", "123456789",
    "999999999999999999", "1000000000000000000", str(2**63 - 1), str(2**63), "-999999999999999999",
    str(-(2**63)), "+7", "1e3", "2.5", "7.0", "1_000", "3k", "NULL", "x", "'7'", "- 7", "--7", "7-", "",
]  # fmt: skip
STRINGS = [
    "'a'", "'b'", "''", "''''", "'it''s'", "'''a'''", "' '", "'\n'", "'a, b'", "')'", "'é'",
    "'\u20ac\U0001f600'", "'sixteen letters!'", "'seventeen letters'", "'seventeen lEtters'",
    "'of more than sixteen letters, one'", "'of more than sixtEen letters, one'", "7", "TRUE", '"a"', "NULL",
    "x", "'a", "'a''", "a'", "",
]  # fmt: skip
GAPS = [",", ", ", ", ", ", ", " ,", ",\n", ",\t ", ",\u00a0", ",,", " ", ";", ", /* a */ ", "-- a\n,"]
AROUND = [
    "{} in ({})",
    "{} IN( {} )",
    "{} not in ({}) and price < 5",
    "change > 1 and {} in ({}\n)",
    "{} in ({}",
]


def lists_of(items, good):
    """Texts of lists of a few literals, mostly of those that a kernel reads."""
    item = st.one_of(*[st.sampled_from(items[:good])] * 9, st.sampled_from(items))
    gap = st.one_of(*[st.sampled_from(GAPS[:4])] * 9, st.sampled_from(GAPS))
    parts = st.lists(st.tuples(item, gap), min_size=2, max_size=9)
    inside = parts.map(lambda some: "".join(a + b for a, b in some[:-1]) + some[-1][0])
    return st.tuples(st.sampled_from(AROUND), inside)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(lists_of(NUMBERS, 14), lists_of(STRINGS, 17)), min_size=1, max_size=6))
def test_any_list_gives_what_the_whole_text_does(lists):
    names = ["symbol" if "'" in inside else "product" for _, inside in lists]
    texts = [around.format(name, inside) for name, (around, inside) in zip(names, lists, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        whole = said(compiled_whole(texts, patch))
        patch.setattr(long_lists, "LEAST", 2)
        assert said(compile_conditions(SCHEMA, texts)) == whole


def test_strings_are_named_as_they_come():
    schema = rc.Schema(rc.Category("a"), rc.Category("b"))
    rng = np.random.default_rng(3)
    drawn = [rng.integers(0, 9_000, 2 * N).tolist() for _ in range(60)]
    sizes = [1, 7, 8, 9, 15, 16, 17, 40]

    def word(k):
        return f"{k}'" + "x" * sizes[k % 8]

    def literal(k):
        return "'" + word(k).replace("'", "''") + "'"

    texts = [f"{'ab'[i % 2]} in ({written(map(literal, own))})" for i, own in enumerate(drawn)]
    compiled = compile_conditions(schema, texts)
    assert not compiled.errors
    for i, own in enumerate(drawn):
        vocabulary = schema["ab"[i % 2]].vocabulary
        spans = [(int(compiled.lows[i]), int(compiled.highs[i]))]
        if compiled.attributes[i] & SET:
            at = int(np.searchsorted(compiled.sets, i))
            own_set = slice(compiled.set_starts[at], compiled.set_starts[at + 1])
            spans = np.stack([compiled.set_lows, compiled.set_highs], axis=1)[own_set].tolist()
        codes = [code for low, high in spans for code in range(low, high + 1)]
        assert codes == sorted(vocabulary.look_up(word(k)) for k in set(own))
    asked = {k for own in drawn[::2] for k in own}
    assert sorted(schema["a"].vocabulary.words()) == sorted(map(word, asked))


@pytest.mark.parametrize("text", ["symbol in ({}", "symbol in ({}, 7)", "price < 5 -- symbol in ({})"])
def test_what_is_not_read_names_no_string(text):
    schema = rc.Schema(rc.Int("symbol"), rc.Category("price"), rc.Category("title"))
    compile_conditions(schema, [text.format(strings())])
    assert not schema["price"].vocabulary.words()
    schema = rc.Schema(rc.Category("symbol"), rc.Int("price"))
    assert len(compile_conditions(schema, [text.format(strings())]).errors) == ("--" not in text)
    assert not schema["symbol"].vocabulary.words()


def test_as_many_values_as_a_condition_may_have():
    texts = [f"product in ({written(['7'] * n, ',')})" for n in (MAX_LISTED, MAX_LISTED + 1)]
    cut = long_lists.LongLists(SCHEMA)
    assert cut.without(0, texts[0]) == "product in (0, 1)"
    assert cut.without(1, texts[1]) is texts[1]
    ((_, error),) = compile_conditions(SCHEMA, texts[1:]).errors
    assert "the IN lists of a condition may have at most 262,144 values" in str(error)


def test_values_that_touch_after_many_that_do_not():
    schema = rc.Schema(rc.Int("product"))
    lists = [range(0, 4 * N, 2), range(N), [5, *range(0, 6 * N, 3)], range(1, 4 * N, 2)]
    texts = [f"product in ({written(own)})" for own in lists] + [f"product not in ({written(lists[0])})"]
    subs = rc.Subscriptions.parse(schema, dict(enumerate(texts)))
    index = rc.open_index("auto", schema)
    index.insert(subs)
    values = range(-3, 6 * N)
    found = index.match(rc.Events.from_rows(schema, [{"product": k} for k in values])).sort()
    for row, value in enumerate(values):
        wanted = [k for k, own in enumerate(lists) if value in own] + [4] * (value not in lists[0])
        assert found.row(row).tolist() == wanted


@pytest.mark.parametrize("rest", ["", " and price < {}", " and symbol = 's{}' and change > {}"])
def test_many_texts_of_one_shape(rest, monkeypatch):
    texts = [
        f"product in ({numbers(N + k, k)})" + rest.format(*[k] * rest.count("{}")) + " " for k in range(20)
    ]
    # an end of what a price can be, and a rest that can never hold
    texts += [
        f"product in ({numbers()}) and price < {-(2**63) + 1}",
        f"product in ({numbers()}) and price > {2**63}",
    ]
    assert said(compile_conditions(SCHEMA, texts)) == said(compiled_whole(texts, monkeypatch))


def test_only_plain_texts_are_cut():
    cut = long_lists.LongLists(SCHEMA)
    good = [*PLAIN, *WORDS]
    assert all(len(cut.without(row, text)) < len(text) for row, text in enumerate(good))
    assert len(cut.found) == len(good)
    assert all(cut.without(99, text) is text for text in [*OTHERS, *WRONG[:11]])
    assert len(cut.found) == len(good)


def test_lists_match_as_they_say():
    texts = {k: f"product in ({numbers(2 * N, k)}) and price < {100 * k}" for k in range(12)}
    texts[99] = f"product not in ({numbers(3 * N, 99)})"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        subs = rc.Subscriptions.parse(SCHEMA, texts)
    index = rc.open_index("auto", SCHEMA)
    index.insert(subs)
    rows = [{"product": k, "price": 7 * k % 1_000} for k in range(-600, 4_100, 13)]
    found = index.match(rc.Events.from_rows(SCHEMA, rows)).sort()
    lists = {k: set(map(int, numbers(2 * N, k).split(", "))) for k in range(12)}
    denied = set(map(int, numbers(3 * N, 99).split(", ")))
    for e, row in enumerate(rows):
        wanted = [k for k in range(12) if row["product"] in lists[k] and row["price"] < 100 * k]
        assert found.row(e).tolist() == wanted + [99] * (row["product"] not in denied)


def test_room_for_lists_of_fewer_letters_than_the_first(monkeypatch):
    """Room is made by what the first list tells, and is made longer where that was too little."""
    far = [10**11 + 2 * k for k in range(N)]
    close = [f"product in ({written(range(k % 2, 10 * N, 9), ',')})" for k in range(40)]
    for first in (far, [*far, far[-1] + 1]):  # without and with values that touch
        texts = [f"product in ({written(first)})", *close, f"product in ({written(far)})"]
        assert said(compile_conditions(SCHEMA, texts)) == said(compiled_whole(texts, monkeypatch))


def test_strings_that_a_vocabulary_has_and_has_not():
    schema = rc.Schema(rc.Category("symbol"), rc.Category("title"))
    known = [f"w{k}" for k in range(0, 2 * N, 2)]
    schema["symbol"].encode(known, grow=True)
    others = ["", "it's", "it''s", "a word of more than sixteen letters", "\u20ac"]
    listed = [*(f"w{k}" for k in range(N)), *others]
    text = ", ".join("'" + word.replace("'", "''") + "'" for word in listed)
    for name in ("symbol", "title"):
        box = compile_conditions(schema, [f"{name} in ({text})"])
        # those of `title` are one span
        spans = (box.set_lows, box.set_highs) if len(box.sets) else (box.lows, box.highs)
        codes = [code for low, high in zip(*spans, strict=True) for code in range(low, high + 1)]
        assert sorted(map(schema[name].vocabulary.word, codes)) == sorted(listed)
    assert schema["symbol"].vocabulary.words()[:N] == known
    assert schema["title"].vocabulary.words() == listed
