"""Lines that a kernel reads mean what the ordinary reader says, and everything else is left to it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("msgspec")

from rangecast import Bool, Category, Float, Int, Schema, Timestamp
from rangecast.broker import bodies
from rangecast.broker.access import SpaceLimits
from rangecast.broker.bodies import read_flat
from rangecast.broker.kernels import JoinedStrings

# both readers warn of keys that look like an attribute
pytestmark = pytest.mark.filterwarnings("ignore::rangecast.errors.RangecastWarning")

LIMITS = SpaceLimits(line_bytes=300, request_events=50)
LINES = "application/x-ndjson"


def schema():
    return Schema(
        Int("price"), Category("symbol", ["IBM", "\u00fc"]), Float("change"), Timestamp("at"), Bool("up")
    )


def both(raw, kind=LINES):
    """What the kernel's reader gives (None where it leaves the body alone), and the ordinary one."""
    found = []
    for fewest in (1, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bodies, "_FEWEST_LINES", fewest)
            known = schema()
            try:
                read = bodies.read_events(raw, kind, known, LIMITS)
            except bodies.BrokerError as error:
                found.append(str(error))
                continue
        codes = read.events.encoded(known).codes
        values = [[read.events.value(name, row) for name in known.names] for row in range(len(read.events))]
        texts = read.body.json(np.arange(len(read.body))).pieces()
        found.append((codes.tolist(), repr(values), texts, read.rejected))
    return found


NUMBERS = st.one_of(
    st.integers(-(10**19), 10**19), st.integers(-9, 9), st.floats(allow_nan=False),
    st.floats(-100, 100, width=16),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 0.1, 1e22, 1e23, -0.0, 5e-324]),
)  # fmt: skip
WORDS = st.one_of(st.sampled_from(["IBM", "HAL", "", "\u00fc", "2026-01-02T03:04:05Z"]), st.text(max_size=9))
VALUES = st.one_of(NUMBERS, WORDS, st.booleans(), st.none(), st.lists(st.integers(0, 3), max_size=2))
KEYS = st.sampled_from(["price", "symbol", "change", "at", "up", "Price", "note", "n", "pric\u00e9"])
TYPED = st.fixed_dictionaries(
    {},
    optional={
        "price": st.integers(-(10**18), 10**18), "symbol": WORDS, "up": st.booleans(),
        "change": st.one_of(st.floats(-1e6, 1e6), st.integers(-9, 9), st.none()),
        "at": st.integers(10**15, 2 * 10**15), "note": VALUES,
    },
)  # fmt: skip


@given(st.data())
def test_codes_texts_and_reasons_are_those_of_the_ordinary_reader(data):
    rows = data.draw(
        st.one_of(
            st.lists(TYPED, min_size=1, max_size=6),
            st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=6),
        )
    )
    tight = data.draw(st.booleans())
    lines = [
        json.dumps(row, ensure_ascii=False, separators=(",", ":") if tight else (", ", " : ")) for row in rows
    ]
    raw = data.draw(st.sampled_from(["\n", "\r\n", "\n\n", " \n\t"])).join(lines).encode()
    fast, slow = both(raw)
    assert fast == slow


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"}", b"{}", b"{,}", b'{"price":1,}', b'{"price":01}', b'{"price":-}', b'{"price":1.}',
        b'{"price":.5}', b'{"price":1e}', b'{"price":+1}', b'{"price":1 2}', b'{"price":1}x',
        b'{"price":tru}', b'{"price":1}{"price":2}', b'{"price" 1}', b'{"price":"a\tb"}',
        b'{"symbol":"\xff"}',
        b'{"symbol":"a\\u00e9"}',
        b'{"symbol":"a', b'{"price":1,"price":2}', b'{"price":nul}', b'{"change":-0}', b'{"change":-0.0}',
        b'{"change":1E+2}', b'{"change":123456789012345678.5}', b'[]', b'{"price":' + b"1" * 19 + b"}",
        b'{"note":{"price":3}}', b'{"note":"' + b"x" * 400 + b'"}', b'\xef\xbb\xbf{"price":1}',
        b'{"PRICE":4}',
    ],
)  # fmt: skip
def test_lines_at_the_edges(line):
    for raw in (line, line + b'\n{"price":7}', b'{"price":7}\n' + line):
        fast, slow = both(raw)
        assert fast == slow


def test_the_kernel_reads_what_publishers_send():
    """It must not leave everything to the ordinary reader, which would hide that it reads nothing."""
    rows = [
        {"price": k, "symbol": f"S{k}", "change": k / 4, "at": 10**15 + k, "up": k > 3, "note": None}
        for k in range(9)
    ]
    raw = "\n ".join(map(json.dumps, rows)).encode()
    flat = read_flat(raw, schema())
    assert flat is not None
    assert [flat.events.value("change", k) for k in range(9)] == [row["change"] for row in rows]
    assert [json.loads(text) for text in JoinedStrings(flat.letters, flat.starts).pieces()] == rows
    assert flat.longest == max(len(json.dumps(row)) for row in rows)
    assert read_flat(b'{"price": {}}', schema()) is None


def test_readers_are_kept_unless_they_have_met_many_keys():
    known, other = schema(), schema()
    known["symbol"].vocabulary.add("HAL")
    raw = b'{"symbol":"HAL"}'
    for _ in range(2):
        assert read_flat(raw, known).events.codes[1].tolist() == [3]
        # of an equal schema with other words
        assert read_flat(raw, other).events.value("symbol", 0) == "HAL"
        assert len(other["symbol"].vocabulary.table().starts) == 3
    free = bodies._free_readers(known)
    assert [reader.keys for reader in free] == [["symbol"]]
    assert read_flat(b'{"symbol":"IBM","a":1}', known) is not None
    assert [reader.keys for reader in free] == [["symbol", "a"]]
    assert read_flat(json.dumps({f"key{k}": k for k in range(50)}).encode(), known) is not None
    assert not free


def test_many_schemas_do_not_keep_their_readers():
    for _ in range(40):
        assert read_flat(b'{"price":1}', Schema(Int("price"))) is not None
    assert len(bodies._readers) <= 16
