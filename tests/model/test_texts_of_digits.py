"""Long texts of numbers, which are packed by half bytes: they come back as they were, or are refused."""

from __future__ import annotations

import pickle
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from rangecast.model import kernels
from rangecast.model import texts as module
from rangecast.model.texts import Texts

LETTERS = st.text(st.sampled_from("0123456789,, -abc'é€\n\0"), max_size=40)
PIECES = st.lists(st.one_of(LETTERS, st.sampled_from(["12, ", "1234567, ", "12345678", "123456789,", ",, "])))


def numbers(n: int, seed: int) -> str:
    values = np.random.default_rng(seed).integers(-(10**6), 10 ** (seed % 12 + 1), n)
    return f"price in ({', '.join(map(str, values.tolist()))})"


def packed(letters: bytes):
    padded = np.frombuffer(bytearray(letters + bytes(kernels.PADDING)), np.uint8)
    room = np.zeros(2 * len(letters) + kernels.PADDING + 1, np.uint8)
    end = kernels.pack_digits(padded, len(letters), room, 1)
    return np.frombuffer(room[1:end].tobytes(), np.uint8)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.none(), PIECES.map("".join))))
def test_any_letters_come_back(texts):
    raw = [None if text is None else text.encode() for text in texts]
    halves = np.concatenate([packed(text) for text in raw if text is not None] + [np.empty(0, np.uint8)])
    sizes = np.frombuffer(np.array([-1 if t is None else len(t) for t in raw], "<i4").tobytes(), "<i4")
    out = np.empty(int(np.maximum(sizes, 0).sum()), np.uint8)
    stored = np.frombuffer(halves.tobytes(), np.uint8)
    assert kernels.unpack_digits(stored, sizes, out) == len(stored)
    assert out.tobytes() == b"".join(text for text in raw if text is not None)


def test_a_digit_takes_half_a_byte():
    assert packed(b"123456, 7,8 -9").tolist() == [0x21, 0x43, 0x65, 0x7A, 0x8B, 0xDC, 0x09]
    assert packed(b"1a").tolist() == [0xF1, 0x61]
    assert len(packed(b"")) == 0


@pytest.mark.parametrize(
    ("halves", "size"),
    [([0xE1], 2), ([0x21], 3), ([0xA1], 2), ([0xF1], 2), ([0xF1, 0x06], 4), ([], 1)],
)
def test_what_pack_digits_never_writes(halves, size):
    stored = np.frombuffer(bytes(halves), np.uint8)
    sizes = np.frombuffer(np.array([size], "<i4").tobytes(), "<i4")
    assert kernels.unpack_digits(stored, sizes, np.zeros(size, np.uint8)) == -1


def test_blocks_of_digits_beside_others():
    long = [None if k % 50 == 3 else numbers(250, k) for k in range(module._BLOCK_ROWS)]
    words = ["symbol in (" + ", ".join(f"'w{i * k}'" for i in range(300)) + ")" for k in range(200)]
    both = [*long, *words, *[numbers(200, 9) + " and title = '\u20ac'"] * 900]
    texts = Texts.of(both)
    raw = texts.pack()
    assert raw.tobytes().count(module._DIGITS) == 2  # the second block begins with words
    assert raw[:8].tobytes() == module._MAGIC_OF_DIGITS
    assert texts.to_list() == both == Texts.unpack(raw, resident=False).to_list()
    assert texts[3] is None
    assert texts[700] == both[700]
    rows = np.random.default_rng(1).permutation(len(both))[:900]
    assert texts.select(rows).to_list() == [both[row] for row in rows]
    assert pickle.loads(pickle.dumps(texts)).to_list() == both
    assert len(raw) < 0.6 * sum(len(text) for text in both if text)
    # as a column of Arrow's they are compressed, and mean the same
    assert Texts.of(pa.array(both)).to_list() == both


def test_half_of_a_character_is_no_text():
    schema = rc.Schema(rc.Int("price"))
    texts = [numbers(250, k) for k in range(100)]
    texts[70] += " and \ud800"
    subs = rc.Subscriptions.parse(schema, ids=np.arange(100), texts=texts, on_error="collect")
    assert [bad.row for bad in subs.rejected] == [70]
    assert subs.texts.to_list() == [text for row, text in enumerate(texts) if row != 70]


def test_too_many_letters(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 100_000)
    with pytest.raises(rc.CapacityError, match="the texts of 100 subscriptions can have 100,000 bytes, got"):
        Texts.of([numbers(250, 4)] * 100)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda block: block[:-1], "block 0 cannot be decompressed"),
        (lambda block: block[:-4] + b"\xee" * 4, "block 0 cannot be decompressed"),
        (lambda block: block[:8] + b"\xff\xff\xff\x7f" + block[12:], "does not have the texts of 80 rows"),
        (lambda block: block[:100], "does not have the texts of 80 rows"),
    ],
)
def test_damage_that_has_its_sum(harm, reason):
    texts = Texts.of([numbers(250, k) for k in range(80)])
    raw = texts.pack().tobytes()
    head, block = raw[:48], harm(raw[48:])
    assert raw[48:56] == module._DIGITS
    head = head[:32] + np.array([48 + len(block)], "<i8").tobytes() + head[40:44]
    damaged = head + np.array([zlib.crc32(block)], "<u4").tobytes() + block
    with pytest.raises(rc.StorageError, match=reason):
        Texts.unpack(np.frombuffer(damaged, np.uint8)).to_list()


def test_what_cannot_be_made_smaller_has_room():
    """The first block takes half of its letters, and those behind it more than what is left."""
    rng = np.random.default_rng(3)
    strange = ["".join(map(chr, rng.integers(0x4E00, 0x9000, 1500).tolist())) for _ in range(300)]
    both = [*[numbers(250, k) for k in range(module._BLOCK_ROWS)], *strange]
    texts = Texts.of(both)
    assert texts.to_list() == both == Texts.unpack(texts.pack()).to_list()
    escaped = [numbers(600, k) + " and title = '" + "\u20ac" * 100 + "'" for k in range(100)]
    assert Texts.of(escaped).to_list() == escaped
