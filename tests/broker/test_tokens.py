"""Tokens of some spaces, tokens that are revoked, and tickets."""

import asyncio
import json
import time

import httpx
import pytest
import websockets

from rangecast import Int, Schema
from rangecast.broker.access import add_token
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving

pytestmark = pytest.mark.once
STREAM = "/v1/main/consumers/alice/stream"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def revoke(path, name):
    lines = [line for line in path.read_text().splitlines() if json.loads(line)["name"] != name]
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def two_spaces(tmp_path):
    path = tmp_path / "tokens"
    path.touch()
    broker = Broker(BrokerSettings(data=tmp_path / "data", port=0, tokens=path))
    for name in ("main", "second"):
        broker.ensure_space(name, Schema(Int("price")))
    with serving(broker) as url:
        yield broker, url, path


def test_metrics_and_status_show_the_spaces_of_a_token(two_spaces):
    _, url, path = two_spaces
    one = bearer(add_token(path, "one", ["read"], spaces=["main"]))
    other = bearer(add_token(path, "other", ["admin"], spaces=["second"]))
    every = bearer(add_token(path, "every", ["read"]))

    def seen(headers):
        metrics = httpx.get(f"{url}/metrics", headers=headers).text
        status = httpx.get(f"{url}/v1/admin/status", headers=headers).json()
        names = [space["space"] for space in status["spaces"]]
        return (
            names,
            ['space="main"' in metrics, 'space="second"' in metrics],
            "open_connections 1" in metrics,
        )

    assert seen(one) == (["main"], [True, False], False)
    assert seen(other) == (["second"], [False, True], False)
    assert seen(every) == (["main", "second"], [True, True], True)
    assert httpx.get(f"{url}/v1/spaces", headers=one).json() == {"spaces": ["main"]}


@pytest.mark.parametrize("how", ["revoked", "other consumer", "other scope", "other space"])
def test_a_stream_ends_soon_after_its_token(two_spaces, how):
    broker, url, path = two_spaces
    token = add_token(path, "alice", ["subscribe"])
    kept = add_token(path, "kept", ["subscribe"], consumers=["alice"])
    with (
        httpx.stream("GET", url + STREAM, headers=bearer(kept), timeout=60) as stays,
        httpx.stream("GET", url + STREAM, headers=bearer(token), timeout=60) as ends,
    ):
        assert (stays.status_code, ends.status_code) == (200, 200)
        listeners = broker.spaces["main"].listeners
        wait_for(lambda: len(listeners) == 2)
        if how == "revoked":
            revoke(path, "alice")
        else:
            entries = [json.loads(line) for line in path.read_text().splitlines()]
            changed = {
                "consumer": {"consumers": ["bob"]},
                "scope": {"scopes": ["read"]},
                "space": {"spaces": []},
            }
            entries[0] |= changed[how.removeprefix("other ")]
            path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        begin = time.monotonic()
        for _ in ends.iter_bytes():
            pass
        assert time.monotonic() - begin < 10
        assert len(listeners) == 1
        assert httpx.get(url + STREAM, headers=bearer(token)).status_code in (401, 403)


def test_websockets_and_polls_end_with_their_token(two_spaces):
    broker, url, path = two_spaces
    token = add_token(path, "alice", ["subscribe"])
    address = url.replace("http", "ws") + "/v1/main/consumers/alice/ws"
    listeners = broker.spaces["main"].listeners

    async def hold():
        async with (
            websockets.connect(address, additional_headers=bearer(token)) as socket,
            httpx.AsyncClient() as client,
        ):
            poll = asyncio.create_task(
                client.get(
                    f"{url}/v1/main/consumers/alice/messages?wait=60", headers=bearer(token), timeout=60
                )
            )
            while len(listeners) < 2:
                await asyncio.sleep(0.02)
            revoke(path, "alice")
            await asyncio.wait_for(socket.wait_closed(), 10)
            assert (await asyncio.wait_for(poll, 10)).json()["messages"] == []

    asyncio.run(hold())
    wait_for(lambda: not listeners)


def test_one_that_was_let_in_just_before_is_ended_too(two_spaces, monkeypatch):
    """A connection that is not among the listeners yet when the file is read again."""
    broker, url, path = two_spaces
    token = add_token(path, "alice", ["subscribe"])
    with httpx.stream("GET", url + STREAM, headers=bearer(token), timeout=60) as stream:
        listeners = broker.spaces["main"].listeners
        wait_for(lambda: listeners)
        hidden = set(listeners)
        listeners.clear()
        n_reads = broker.tokens.n_reads
        revoke(path, "alice")
        wait_for(lambda: broker.tokens.n_reads > n_reads)
        listeners |= hidden
        for _ in stream.iter_bytes():
            pass


def test_a_file_that_is_gone_ends_nobody(two_spaces, caplog):
    broker, url, path = two_spaces
    token = add_token(path, "alice", ["subscribe"])
    text = path.read_text()
    with httpx.stream("GET", url + STREAM, headers=bearer(token), timeout=60):
        wait_for(lambda: broker.spaces["main"].listeners)
        path.unlink()
        wait_for(lambda: "cannot be read" in caplog.text)
        assert httpx.get(url + STREAM, headers=bearer(token)).status_code == 503
        path.write_text(text)
        wait_for(lambda: not broker._told_of_tokens)
        assert len(broker.spaces["main"].listeners) == 1
        assert caplog.text.count("cannot be read") == 1


def test_a_ticket_of_a_revoked_token_opens_nothing(two_spaces):
    _, url, path = two_spaces
    token = add_token(path, "alice", ["subscribe"])
    answer = httpx.post(f"{url}/v1/main/consumers/alice/ticket", headers=bearer(token))
    revoke(path, "alice")
    refused = httpx.get(f"{url}{STREAM}?ticket={answer.json()['ticket']}")
    assert (refused.status_code, "was revoked" in refused.text) == (401, True)
