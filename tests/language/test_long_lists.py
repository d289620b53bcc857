"""Long IN lists that are cut out of their texts: the same boxes, errors and doubts as when compiled whole."""

import warnings

import numpy as np
import pytest

import rangecast as rc
from rangecast.language import long_lists
from rangecast.language.compiler import compile_conditions

SCHEMA = rc.Schema(rc.Int("product"), rc.Int("price"), rc.Float("change"), rc.Category("symbol"))
N = long_lists.LEAST


def written(values, between=", ") -> str:
    return between.join(map(str, values))


def numbers(n: int = N, seed: int = 1, low: int = -500, high: int = 4_000) -> str:
    return written(np.random.default_rng(seed).integers(low, high, n).tolist())


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
    # two long ones on two attributes: one is cut out
    f"product in ({numbers(seed=8)}) and price in ({numbers(seed=9)})",
]
OTHERS = [
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
    "product in (" + written(range(N)) + ") and symbol = '\u00e9'",
    "product in (1, 2, 3)",
]
WRONG = [
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


@pytest.mark.parametrize("texts", [PLAIN, OTHERS, WRONG, [*PLAIN, *WRONG, *OTHERS, *PLAIN]])
def test_a_list_that_is_cut_out_gives_what_the_whole_text_does(texts, monkeypatch):
    assert said(compile_conditions(SCHEMA, texts)) == said(compiled_whole(texts, monkeypatch))


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
    assert all(len(cut.without(row, text)) < len(text) for row, text in enumerate(PLAIN))
    assert len(cut.found) == len(PLAIN)
    assert all(cut.without(99, text) is text for text in [*OTHERS, *WRONG[:4]])
    assert len(cut.found) == len(PLAIN)


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
