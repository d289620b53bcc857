"""What is replayed is what would have been delivered live: any group, either index, whatever has changed."""

import json
import random
import threading
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("msgspec")

import rangecast as rc
import seeds
from rangecast.broker import catch_up
from rangecast.broker.directory import Directory
from rangecast.broker.event_log import EventLog, PublishedBody, joined_strings
from rangecast.broker.frames import shared_frames, split_frames
from rangecast.broker.pump import LiveSet
from rangecast.model.events import Events
from rangecast.model.ids import Ids
from rangecast.store.change import Change


class History:
    """A log of events between which subscriptions change, and what each event matches, in plain loops."""

    def __init__(self, folder, random):
        self.random = random
        self.schema = rc.Schema(rc.Int("n"))
        self.directory = Directory()
        self.lock = threading.RLock()
        self.log = EventLog(folder)
        self.current = {}
        self.expected = []
        self.index = rc.open_index("auto", self.schema)
        for consumer in range(6):
            self.directory.consumer(f"c{consumer}")

    def change(self):
        """Replace, add and delete some; consumer 5 has most of all."""
        names = [
            f"c{self.random.choice([0, 1, 2, 3, 5, 5, 5, 5])}/s{self.random.randrange(3)}" for _ in range(3)
        ]
        gone = [id for id in self.current if id not in names and self.random.random() < 0.2]
        spans = {}
        for id in names:
            low = self.random.randrange(8)
            spans[id] = low, low + self.random.randrange(4)
        subs = rc.Subscriptions.parse(
            self.schema, ids=list(spans), texts=[f"n between {a} and {b}" for a, b in spans.values()]
        )
        version = self.directory.version + 1
        ended, _, _ = self.directory.apply(Change(version, 1, Ids.of(gone), subs))
        first = int(self.directory.n_entries) - len(subs)
        self.index.delete(np.array([e for e in ended if e < first], np.int64))
        self.index.insert(self.directory.numbered(first, subs))
        for id in gone:
            del self.current[id]
        self.current.update(spans)

    def publish(self):
        values = [self.random.randrange(10) for _ in range(self.random.randrange(1, 6))]
        events = Events.from_rows(self.schema, [{"n": n} for n in values])
        body = PublishedBody(joined_strings([b'{"n":%d}' % n for n in values]))
        self.log.append(events.encoded(self.schema).codes, body, self.directory.version)
        self.log.sync()
        for n in values:
            self.expected.append({id for id, (low, high) in self.current.items() if low <= n <= high})

    def of(self, consumer, position):
        """The messages of a consumer from an event on."""
        own = f"c{consumer}/"
        told = [{id.removeprefix(own) for id in ids if id.startswith(own)} for ids in self.expected]
        return [(k + 1, names) for k, names in enumerate(told) if names and k + 1 >= position]


def received(data):
    return [
        (message["sequence"], set(message["subscriptions"]))
        for kind, content in split_frames(bytes(data))
        for message in [json.loads(content)]
        if kind == "match"
    ]


@pytest.mark.parametrize("many", [1, 10**9, 0], ids=["by size", "live index", "own index"])
@pytest.mark.parametrize("seed", [0, 1, pytest.param(seeds.seed_of("replay"), id="new")])
def test_any_group_receives_what_it_would_have_live(tmp_path, monkeypatch, seed, many):
    monkeypatch.setattr(catch_up, "_MANY", many)
    monkeypatch.setattr(catch_up, "_LEAST_SHARE", 150)  # a message or two
    monkeypatch.setattr(catch_up, "BUFFER", 150)
    monkeypatch.setattr(catch_up, "_FIRST_ROUND", 16)
    monkeypatch.setattr(catch_up, "LEAST_ROUND", 2)
    dice = random.Random(seed)
    history = History(tmp_path, dice)
    served = catch_up.Replay(
        history.log, history.directory, history.schema, history.lock, history.index, build=many != 10**9
    )
    behind, got, began = [], {}, {}
    for _ in range(30):
        for _ in range(dice.randrange(4)):
            history.change()
        history.publish()
        if dice.random() < 0.3:
            start = dice.randrange(1, history.log.durable + 1)
            one = SimpleNamespace(number=dice.randrange(6), position=start)
            behind.append(one)
            got[id(one)], began[id(one)] = bytearray(), start
        late = [one for one in behind if one.position < history.log.durable]
        if late:
            give(served, late, dice, got)
    while late := [one for one in behind if one.position < history.log.durable]:
        give(served, late, dice, got)
    assert behind
    for one in behind:
        assert received(got[id(one)]) == history.of(one.number, began[id(one)])
    history.log.close()


def give(served, late, dice, got):
    """One round; some of the group have not taken what they were given before."""
    start = dice.choice([None, late[0].position])
    answers = served.serve(served.group(late, start))
    assert any(answer.position > answer.listener.position for answer in answers)
    for answer in answers:
        got[id(answer.listener)] += answer.data
        answer.listener.position = answer.position


def test_an_index_of_entries_is_kept_while_it_fits(monkeypatch):
    monkeypatch.setattr(catch_up, "_FEW", 100)
    schema = rc.Schema(rc.Int("n"))
    directory = Directory()
    ids = [f"c{k % 10}/s{k}" for k in range(1_000)]
    directory.load(1, rc.Subscriptions.parse(schema, ids=ids, texts=["n = 1"] * len(ids)))
    kept = catch_up.EntryIndex(directory, schema)
    first = kept.of(directory.entries_of([1], 0))
    assert len(first) == 100
    assert kept.of(directory.entries_of([1, 2, 3], 0)) is first
    assert len(first) == 300
    assert kept.of(directory.entries_of([2], 0)) is first  # it has more than is asked for
    kept.of(directory.entries_of([3, 4, 5, 6], 0))
    assert len(kept.of(directory.entries_of([7], 0))) == 100  # far more than that: built anew


def frames_of(sequences):
    data = b"".join(b'event: match\nid: %d\ndata: {"sequence":%d}\n\n' % (s, s) for s in sequences)
    ends = np.cumsum([len(frame) + 2 for frame in data.split(b"\n\n")[:-1]])
    made = shared_frames(data, sequences[-1])
    head = len(made.out) - len(data) - 2
    return made._replace(owner=3, n=len(sequences), sequences=np.array(sequences), ends=ends + head)


def test_one_who_has_read_beyond_what_is_matched_joins_there():
    live = LiveSet()
    there, ahead = (type("One", (), {"number": 3})() for _ in range(2))
    live.add(there, 10, matched=10)
    live.add(ahead, 14, matched=10)
    assert live.mask[3]
    assert (live.next_of(there, 10), live.next_of(ahead, 10)) == (10, 14)
    (_, all_of_it), (one, rest) = live.sends([frames_of([10, 11, 13, 14, 17])], 12)[0]
    assert [kind for kind, _ in split_frames(all_of_it.data)] == ["match"] * 5
    assert one is ahead
    assert [content for _, content in split_frames(rest.data)] == [b'{"sequence":14}', b'{"sequence":17}']
    # what was matched up to 12 does not concern it, and it stays ahead; then it is as the others
    assert [one for one, _ in live.sends([frames_of([10, 11])], 14)[0]] == [there]
    assert live.next_of(ahead, 14) == 14
    assert [one for one, _ in live.sends([frames_of([15, 16])], 17)[0]] == [there, ahead]
    live.remove(there)
    assert live.clear() == [ahead]
    assert not live
    assert not live.mask.any()
