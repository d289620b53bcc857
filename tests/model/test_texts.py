"""The column of texts: what is kept through selecting and joining, what is read, and what is refused."""

from __future__ import annotations

import contextlib
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.durable.arrays import read_arrays
from rangecast.model import texts as module
from rangecast.model.texts import PackedTexts, Texts

pytestmark = pytest.mark.without_kernels

WRITTEN = st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)))


@given(st.data())
def test_a_history_of_selecting_joining_and_packing(data):
    """Against plain lists: what is taken from columns, put together and packed stays the same."""
    held = [(Texts.of(texts), texts) for texts in data.draw(st.lists(WRITTEN, min_size=1, max_size=3))]
    for _ in range(data.draw(st.integers(0, 6))):
        texts, plain = data.draw(st.sampled_from(held))
        step = data.draw(st.sampled_from(["select", "concat", "pack", "map", "pad", "pickle"]))
        if step == "select":
            rows = data.draw(st.lists(st.integers(0, len(plain) - 1))) if plain else []
            texts, plain = texts.select(np.array(rows, np.int64)), [plain[row] for row in rows]
        elif step == "concat":
            others = data.draw(st.lists(st.sampled_from(held), max_size=3))
            texts = Texts.concat([texts, *(other for other, _ in others)])
            plain = [*plain, *(text for _, other in others for text in other)]
        elif step == "pad":
            n = data.draw(st.integers(0, 5))
            texts, plain = texts.padded(len(plain) + n), [*plain, *[None] * n]
        elif step == "pickle":
            texts = pickle.loads(pickle.dumps(texts))
        else:
            texts = Texts.unpack(texts.pack(), resident=step == "pack")
        held.append((texts, plain))
        assert len(texts) == len(plain)
        assert texts.to_list() == plain
        assert [texts[row] for row in range(len(plain))] == plain
        assert list(texts) == texts.arrow().to_pylist()


def test_blocks():
    plain = [None if row % 7 == 0 else f"price < {row}" for row in range(5000)]
    texts = Texts.of(pa.chunked_array([plain[:2000], plain[2000:]]))
    assert texts.to_list() == plain
    rows = np.random.default_rng(3).permutation(5000)[:4000]
    assert texts.select(rows).to_list() == [plain[row] for row in rows]
    assert texts.nbytes < sum(len(text or "") for text in plain) / 2
    assert texts.pack() is texts.pack()


def test_one_text_reads_one_block(monkeypatch):
    texts = Texts.of([f"price < {row}" for row in range(5000)])
    read = []
    plain = PackedTexts._read
    monkeypatch.setattr(PackedTexts, "_read", lambda self, block: read.append(block) or plain(self, block))
    some = Texts.concat([texts, texts]).select(np.arange(9000, 0, -3))
    assert read == []
    assert some[0] == "price < 4000"
    assert read == [3]


def test_what_is_gone_is_given_back_but_not_read_from_a_file():
    texts = Texts.of([f"price < {row}" for row in range(5000)])
    few = np.arange(0, 5000, 10)
    assert texts.select(few).nbytes < texts.nbytes / 4
    mapped = Texts.unpack(texts.pack(), resident=False)
    assert mapped.select(few).nbytes == texts.nbytes + 4 * len(few)
    both = Texts.concat([mapped, Texts.of([f"price > {row}" for row in range(3000)])])
    rows = np.array([4999, 5001, 1, 7999])
    assert both.select(rows).to_list() == ["price < 4999", "price > 1", "price < 1", "price > 2999"]
    assert both.select(rows).nbytes < mapped.nbytes + 200


def test_texts_that_come_one_by_one_are_packed_together():
    texts = Texts.of([])
    for row in range(1200):
        texts = Texts.concat([texts, Texts.of([f"price < {row}"])])
        assert len(texts._runs) <= module._MANY_RUNS + 1
    assert texts.to_list() == [f"price < {row}" for row in range(1200)]


def test_refused():
    with pytest.raises(rc.SubscriptionError, match="row 1: a text must be a string or None, got 5"):
        Texts.of(["price < 3", 5])
    with pytest.raises(IndexError, match="there are 1 texts, got row 1"):
        Texts.of(["a"])[1]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda raw: raw[:10], "their head is cut off"),
        (lambda raw: np.concatenate([np.zeros(1, np.uint8), raw[1:]]), "their head is none"),
        (lambda raw: raw[:30], "their head is none"),
        (lambda raw: raw[:-1], r"they must have \d+ bytes, got \d+"),
    ],
)
def test_damage_at_the_head(harm, reason):
    raw = Texts.of(["price < 3", "price > 4"]).pack()
    with pytest.raises(rc.StorageError, match=f"the texts of the subscriptions are damaged: {reason}"):
        Texts.unpack(harm(raw))


def saved(tmp_path, n=3000):
    schema = rc.Schema(rc.Int("price"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {row: f"price = {row}" for row in range(n)}))
    index.save(tmp_path / "x.index")
    return tmp_path / "x.index"


def test_a_mapped_index_matches_without_its_texts(tmp_path, monkeypatch):
    path = saved(tmp_path)
    read = []
    plain = PackedTexts._read
    monkeypatch.setattr(PackedTexts, "_read", lambda self, block: read.append(block) or plain(self, block))
    index = rc.load_index(path)
    events = rc.Events.from_rows(index.schema, [{"price": 7}, {"price": -1}])
    assert index.match(events).row(0).tolist() == [7]
    index.delete(range(0, 3000, 2))
    index.insert(rc.Subscriptions.parse(index.schema, {5000: "price = -1"}))
    index.compact()
    assert index.match(events).row(1).tolist() == [5000]
    assert read == []
    subs = index.subscriptions()
    assert dict(zip(subs.ids.values.tolist(), subs.texts, strict=True)) == {
        **{row: f"price = {row}" for row in range(1, 3000, 2)},
        5000: "price = -1",
    }
    assert set(read) == {0, 1, 2}


def test_a_damaged_text_is_found_when_it_is_read_and_harms_no_match(tmp_path):
    path = saved(tmp_path)
    raw = bytearray(path.read_bytes())
    end = len(raw) - 1
    while raw[end] == 0:
        end -= 1
    raw[end] ^= 255
    path.write_bytes(raw)
    index = rc.load_index(path)
    events = rc.Events.from_rows(index.schema, [{"price": 2999}])
    assert index.match(events).row(0).tolist() == [2999]
    subs = index.subscriptions()
    assert subs.texts[5] == "price = 5"
    with pytest.raises(rc.StorageError, match="texts of the subscriptions are damaged: block 2 does not"):
        subs.texts[2999]
    with pytest.raises(rc.StorageError, match=r"array 'catalog\.texts' is damaged"):
        read_arrays(path)


def test_no_bit_of_packed_texts_is_relied_on():
    texts = [f"price > {n} and symbol = 'S{n % 7}'" for n in range(60)] + [None]
    raw = Texts.of(texts).pack()
    refused = 0
    for bit in range(0, 8 * len(raw), 3):
        damaged = raw.copy()
        damaged[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(rc.StorageError):
            assert Texts.unpack(damaged).to_list() == texts
            continue
        refused += 1
    assert refused == len(range(0, 8 * len(raw), 3))
