"""Matches of a stream to a topic: what a message is, and that a sender may be killed anywhere."""

import datetime as dt
import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.errors import OptionError, StorageError

rs = pytest.importorskip("rangecast.spark")
from rangecast.spark.stream.kafka_sink import messages_of  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))


def test_messages_of_a_file(tmp_path):
    moment = dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC)
    columns = {
        "event_id": ["a", 'b"{}'],
        "subscription_id": pa.array([3, None], pa.int64()),
        "sy{m}": ["é", None],
        "x": [1.5, float("inf")],
        "at": [moment, None],
        "tags": [["p", "q"], []],
        "flag": [True, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    first, second = messages_of(tmp_path / "a.parquet", "event")
    assert first[0] == "a"
    rest = {"sy{m}": "é", "x": 1.5, "at": "2026-01-31T08:00:00+00:00", "tags": ["p", "q"], "flag": True}
    assert json.loads(first[1]) == {"event_id": "a", "subscription_id": 3, **rest}
    assert second[0] == 'b"{}'
    assert json.loads(second[1])["subscription_id"] is None
    assert json.loads(second[1])["x"] is None
    assert [key for key, _ in messages_of(tmp_path / "a.parquet", "subscription")] == ["3", None]
    pq.write_table(pa.table({"event_id": [7], "subscription_ids": [["x", "y"]]}), tmp_path / "b.parquet")
    assert list(messages_of(tmp_path / "b.parquet", "event")) == [
        ("7", '{"event_id": 7, "subscription_ids": ["x", "y"]}')
    ]


def test_a_sink_that_cannot_be():
    pytest.importorskip("confluent_kafka")
    with pytest.raises(OptionError, match="key must be event or subscription"):
        rs.kafka_sink("t", bootstrap="127.0.0.1:1", key="none")
    with pytest.raises(OptionError, match="take form pairs"):
        rs.kafka_sink("t", bootstrap="127.0.0.1:1", key="subscription").check("lists")


SENDER = """
import sys
sys.path[:0] = [{tests!r}]
import sink_soak
from pathlib import Path
from rangecast import spark as rs
from rangecast.spark.stream.ledger import Ledger, Commit
sink_soak.kill_at({point!r}, {nth})
ledger = Ledger({folder!r})
if ledger.last() < 4:
    sink = rs.kafka_sink({topic!r}, bootstrap={bootstrap!r})
    sink.send("s1", 4, Path({ready!r}), 9)
    ledger.commit(Commit(4, 9))
"""


@pytest.mark.integration
@pytest.mark.once
def test_a_sender_that_is_killed_anywhere_sends_each_file_once(bootstrap, topics, tmp_path):
    from sink_soak import read_tokens

    topic = topics("matches", partitions=2)
    ready = tmp_path / "ready"
    ready.mkdir()
    for name in "abc":
        ids = [f"{name}{k}" for k in range(50)]
        pq.write_table(pa.table({"event_id": ids, "subscription_id": range(50)}), ready / f"{name}.parquet")
    (tmp_path / "checkpoint" / "_rangecast").mkdir(parents=True)
    given = {
        "tests": str(Path(__file__).parent),
        "folder": str(tmp_path / "checkpoint"),
        "topic": topic,
        "bootstrap": bootstrap,
        "ready": str(ready),
    }

    def run(point, nth):
        code = SENDER.format(point=point, nth=nth, **given)
        return subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode

    # the second file's transaction open, then the first committed, then all sent and nothing committed
    for point, nth, sent in (
        ("marks", 1, ""),
        ("produce", 2, "a"),
        ("commit", 1, "ab"),
        ("ledger", 1, "abc"),
    ):
        assert run(point, nth) == -signal.SIGKILL, point
        seen = read_tokens(bootstrap, topic)
        assert sorted({token for _, _, token in seen}) == [f"s1/4/{name}.parquet" for name in sent], point
    assert run("none", 0) == 0
    seen = read_tokens(bootstrap, topic)
    assert sorted(value["event_id"] for value, _, _ in seen) == sorted(
        f"{name}{k}" for name in "abc" for k in range(50)
    )
    assert {version for _, version, _ in seen} == {9}


@pytest.mark.integration
@pytest.mark.once
def test_a_topic_that_lost_what_was_sent_is_refused(bootstrap, topics, tmp_path):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = topics("matches", partitions=1)
    pq.write_table(pa.table({"event_id": [1, 2], "subscription_id": [1, 2]}), tmp_path / "a.parquet")
    sink = rs.kafka_sink(topic, bootstrap=bootstrap)
    sink.send("s2", 0, tmp_path, None)
    sink.send("s2", 0, tmp_path, None)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        future.result(30)
    with pytest.raises(StorageError, match="nobody can tell which matches"):
        sink.send("s2", 0, tmp_path, None)
    with pytest.raises(StorageError, match="no topic 'nowhere'"):
        rs.kafka_sink("nowhere", bootstrap=bootstrap).check("pairs")
