"""The commands, the examples for curl, and a real process that is killed."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from rangecast.cli.app import app
from rangecast.client import Client, ClientError

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = '[attributes.symbol]\ntype = "category"\n[attributes.price]\ntype = "int"\n'


def test_kill_and_drain(tmp_path, process, free_port):
    """What was acknowledged is there after kill -9; SIGTERM ends streams and the process in order."""
    port = free_port()
    with process(tmp_path, port=port) as (url, running), Client(url) as client:
        client.subscribe("alice", "a", "price > 0", payload={"n": 1})
        last = client.publish([{"price": n} for n in range(1, 50)])["last"]
        stream = client.stream("alice")
        assert next(stream).sequence == 1
        client.ack("alice", 10)
        running.send_signal(signal.SIGKILL)
        running.wait()
        with process(tmp_path, port=port) as (_, again):
            # the same stream goes on, in another process of the broker
            assert [next(stream).sequence for _ in range(last - 1)] == list(range(2, last + 1))
            stream.close()
            client.close()
            assert client.messages("alice", most=1)["messages"][0]["sequence"] == 11
            assert client.publish({"price": 1})["first"] == last + 1
            with httpx.stream("GET", f"{url}/v1/main/consumers/alice/stream") as response:
                again.send_signal(signal.SIGTERM)
                assert b"".join(response.iter_bytes()).endswith(b"\n\n")
            assert again.wait(20) == 0
    assert "Traceback" not in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("workers", ["2", "0", None])
def test_workers_are_accepted_and_said_to_have_no_effect(tmp_path, monkeypatch, caplog, workers):
    served = []
    monkeypatch.setattr("rangecast.broker.server.serve", lambda broker, *_: served.append(broker))
    monkeypatch.setattr("rangecast.broker.metrics.log_to", lambda *_: None)
    (tmp_path / "broker.toml").write_text("workers = 3\n")
    command = ["serve", "--data", str(tmp_path / "data"), "--config", str(tmp_path / "broker.toml")]
    command += [] if workers is None else ["--workers", workers]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert (done.exit_code, len(served)) == (0, 1)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == (workers != "0")
    assert all(text.startswith("--workers has no effect since 0.5: one process serves") for text in warnings)


CONFIG = """
data = "{0}/other"
listen = "127.0.0.1:{1}"
log = "json"
[limits]
boxes = 2
[spaces.main.attributes]
a.type = "int"
b.type = "int"
c.type = "int"
[spaces.fleet]
object_key = "a"
index = "vci"
[spaces.fleet.attributes]
a.type = "int"
b.type = "int"
[spaces.fleet.limits]
boxes = 1
"""


def test_a_configuration_alone(tmp_path, free_port):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (tmp_path / "broker.toml").write_text(CONFIG.format(tmp_path, port))
    command = [sys.executable, "-m", "rangecast", "serve", "--config", str(tmp_path / "broker.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        try:
            said = list(iter(running.stderr.readline, f"rangecast: serving fleet, main at {url}\n"))
            assert json.loads(said[0])["message"] == "listens"
            assert json.loads(said[-1])["spaces"] == ["fleet", "main"]
            assert httpx.get(f"{url}/readyz").json() == {"ready": True, "failed": []}
            found = httpx.get(f"{url}/v1/admin/status").json()["spaces"]
            assert {one["space"]: one["index"] for one in found} == {"fleet": "vci", "main": "auto"}
            for space, most in (("main", 2), ("fleet", 1)):
                text = " or ".join(f"{name} = 1" for name in "abc"[: most + 1])
                refused = pytest.raises(ClientError, match=f"'boxes' is {most}")
                with Client(url, space=space) as client, refused:
                    client.subscribe("a", "b", text)
        finally:
            running.terminate()
            running.stderr.read()
        assert running.wait(60) == 0


def test_commands(url, tmp_path):
    run = CliRunner().invoke
    here = ["--url", url]
    found = run(app, ["subscribe", "alice", "cheap", "price < 10", "--payload", '{"k": 1}', *here])
    assert json.loads(found.stdout) == {"id": "alice/cheap", "version": 1}
    lines = '{"price": 9}\n{"price": "x"}\nnonsense\n[1]\n{"price": 3}\n'
    found = run(app, ["publish", *here], input=lines)
    assert found.exit_code == 1
    assert "published 2 events, rejected 3" in found.stderr
    found = run(app, ["tail", "alice", "--ack", "--max", "2", *here])
    assert [json.loads(line)["event"] for line in found.stdout.splitlines()] == [{"price": 9}, {"price": 3}]
    with Client(url) as client:
        assert client.messages("alice")["messages"] == []
    assert json.loads(run(app, ["subscribe", "alice", "cheap", *here]).stdout)["version"] == 2
    assert run(app, ["subscribe", "alice", "cheap", "price <", *here]).exit_code == 2
    assert run(app, ["subscribe", "alice", "c", "price < 1", "--payload", "{", *here]).exit_code == 2
    assert run(app, ["publish", *here], input="").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--data must name"),
        (["--data", "x", "--listen", "8080"], "HOST:PORT"),
        (["--data", "x", "--listen", "0.0.0.0:8080"], "give --tokens FILE"),
        (["--config", "wrong.toml"], "there is no setting nothing"),
        (["--config", "limits.toml", "--data", "x"], "there is no limit boxen"),
    ],
)
def test_wrong_options_are_refused(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    Path("wrong.toml").write_text("nothing = 1")
    Path("limits.toml").write_text("[limits]\nboxen = 1")
    found = CliRunner().invoke(app, ["serve", *options])
    assert found.exit_code == 2
    assert message in found.stderr.replace("\n", " ")


def test_tokens_are_made_once(tmp_path):
    run = CliRunner().invoke
    path = tmp_path / "tokens.jsonl"
    made = run(app, ["token", "feed", "--tokens", str(path), "--scope", "publish"])
    assert made.stdout.startswith("rc_")
    assert made.stdout.strip() not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert run(app, ["token", "feed", "--tokens", str(path), "--scope", "all"]).exit_code == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not there")
def test_the_examples_for_curl(url):
    """Every curl line of the guide, in order, against a broker."""
    page = (ROOT / "docs" / "broker.md").read_text()
    lines = re.findall(r"^curl .*$", page, re.MULTILINE)
    assert len(lines) >= 5
    answers = []
    for line in lines:
        limit = " --max-time 1" if "/stream" in line else ""
        command = line.replace("localhost:8080", url) + limit
        found = subprocess.run(
            ["sh", "-c", command.replace("curl", "curl -sS", 1)], capture_output=True, check=False
        )
        assert found.returncode == (28 if limit else 0), found.stderr
        answers.append(found.stdout.decode())
    put, published, polled, acknowledged, streamed = answers
    assert json.loads(put)["id"] == "alice/cheap"
    assert json.loads(published)["first"] == 1
    assert json.loads(polled)["messages"][0]["subscriptions"] == ["cheap"]
    assert json.loads(acknowledged) == {"sequence": 1}
    assert "event: caught_up" in streamed
