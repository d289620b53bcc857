"""Frames of many consumers at once are those that each would get by itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("msgspec")

from rangecast import Int, Schema, Subscriptions
from rangecast.broker.catch_up import Served, _fill
from rangecast.broker.directory import Directory
from rangecast.broker.event_log import PublishedBody, joined_strings
from rangecast.broker.frames import PinnedEvents, match_frames, split_frames

NAMES = ["a", "a~b", "\u00fc/x", 'with " quote', "line\nbreak", "long-" * 20, "plain", "z"]


def directory_of(owners):
    schema = Schema(Int("n"))
    ids = [f"c{owner}/{NAMES[k % len(NAMES)]}{k}" for k, owner in enumerate(owners)]
    out = Directory()
    for owner in range(max(owners) + 1):
        out.consumer(f"c{owner}")
    half = len(ids) // 2
    for some in (ids[:half], ids[half:]):  # names of several changes
        if some:
            out.load(1, Subscriptions.parse(schema, ids=some, texts=["n = 1"] * len(some)))
    return out


def defined(directory, stretches, pairs, texts):
    """Per consumer (sequence, message) in order, in plain loops."""
    pins = [stretch.pin for stretch in stretches for _ in range(stretch.n)]
    base, out = stretches[0].sequence, {}
    for row in sorted({row for row, _ in pairs}):
        for owner in sorted({int(directory.owners[e]) for r, e in pairs if r == row}):
            names = [
                directory.ids[e].partition("/")[2]
                for r, e in pairs
                if r == row and directory.owners[e] == owner
            ]
            message = {
                "sequence": base + row, "event": json.loads(texts[row]), "subscriptions": names,
                "version": pins[row],
            }  # fmt: skip
            out.setdefault(owner, []).append((base + row, message))
    return out


@given(st.data())
def test_frames_are_those_of_plain_loops(data):
    directory = directory_of(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=8)))
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    base = data.draw(st.sampled_from([1, 8, 97, 10**12]))
    n = sum(sizes)
    texts = [json.dumps({"n": k, "text": "\u00fc" * (k % 3)}).encode() for k in range(n)]
    stretches, first = [], 0
    for size in sizes:
        own = texts[first : first + size]
        stretches.append(PinnedEvents(base + first, size, 7 + first, PublishedBody(joined_strings(own)).json))
        first += size
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, directory.n_entries - 1))
    pairs = sorted(set(data.draw(st.lists(pair, max_size=20))))
    rows = np.array([row for row, _ in pairs], np.int64)
    entries = np.array([entry for _, entry in pairs], np.int64)
    wanted = None
    if data.draw(st.booleans()):
        wanted = np.array([*data.draw(st.lists(st.booleans(), min_size=4, max_size=4)), False])
        pairs = [(row, entry) for row, entry in pairs if wanted[directory.owners[entry]]]
    found = {}
    for own in match_frames(stretches, rows, entries, directory, wanted):
        owner, raw, (sequences, ends) = own.owner, own.data, own.places()
        assert owner not in found
        assert (own.n, own.last) == (len(sequences), sequences[-1])
        starts = [0, *ends.tolist()]
        messages = [list(split_frames(raw[a:b])) for a, b in zip(starts, ends.tolist(), strict=False)]
        assert all(len(each) == 1 and each[0][0] == "match" for each in messages)
        assert [int(raw[a:].split(b"\n")[1][4:]) for a in starts[:-1]] == sequences.tolist()
        assert starts[-1] == len(raw)
        assert own.out[own.begin : own.end].tobytes() == b"%08x\r\n%b\r\n" % (len(raw), raw)
        found[owner] = [
            (s, json.loads(each[0][1])) for s, each in zip(sequences.tolist(), messages, strict=True)
        ]
    assert found == defined(directory, stretches, pairs, texts)


@pytest.mark.parametrize("share", [0, 1, 150, 10**6])
@pytest.mark.parametrize("position", [1, 3, 4, 9])
def test_a_share_ends_with_a_whole_frame(share, position):
    directory = directory_of([0])
    stretches = [PinnedEvents(1, 6, 2, PublishedBody(joined_strings([b"{}"] * 6)).json)]
    rows = np.array([0, 2, 3, 5])
    (frames,) = match_frames(stretches, rows, np.zeros(4, np.int64), directory)
    sequences, ends = frames.places()
    one = Served(None, b"", position)
    _fill(one, frames, share, 7)
    wanted, size = [], 0
    for sequence, end, start in zip(sequences, ends, [0, *ends], strict=False):
        if sequence >= position and size <= share:
            wanted.append(int(sequence))
            size += int(end - start)
    assert [json.loads(message)["sequence"] for _, message in split_frames(one.data)] == wanted
    assert one.position == (wanted[-1] + 1 if wanted and size > share else max(position, 7))
