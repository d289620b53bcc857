"""A broker behind TLS, and copies of the folder of one that is being written to."""

import asyncio
import itertools
import shutil
import ssl
import subprocess
import threading

import httpx
import pytest

from rangecast.client import AsyncClient, Client

pytestmark = pytest.mark.once


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """A certificate for 127.0.0.1 that clients of this process trust, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    made = made_for("127.0.0.1", tmp_path / "made.pem", "-addext", "subjectAltName=IP:127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    return made, made.with_suffix(".key")


def made_for(name, path, *options):
    """A certificate that is signed by itself, with its key beside it."""
    form = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", path.with_suffix(".key"), "-out", path]
    command = ["openssl", "req", *form, "-subj", f"/CN={name}", *options, *files]
    subprocess.run(command, check=True, capture_output=True)
    return path


def test_everything_goes_over_tls(start, certificate):
    made, key = certificate
    with start(certificate=made, key=key) as url:
        assert url.startswith("https://")
        with Client(url) as client:
            client.subscribe("alice", "a", "price > 5")
            assert client.publish([{"price": 7}, {"price": 3}])["last"] == 2
            message = next(client.stream("alice", start=1))
            assert (message.sequence, message.subscriptions) == (1, ("a",))

        async def ask():
            async with AsyncClient(url) as client:
                return (await anext(client.stream("alice", start=1))).sequence

        assert asyncio.run(ask()) == 1
        # in the clear nothing is said, and nobody is served who trusts another
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.replace("https", "http") + "/healthz")
        trusting = ssl.create_default_context(
            cadata=made_for("other", made.with_name("other.pem")).read_text()
        )
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{url}/healthz", verify=trusting)


@pytest.mark.parametrize("first", ["log", "store", None])
def test_a_copy_of_a_live_space_has_all_that_was_acknowledged_before_it(first, start, tmp_path):
    """A copy made file by file, while events and subscriptions come, opens as some moment of the copying."""
    acknowledged, stop = [0], threading.Event()
    with start() as url, Client(url) as client:
        client.subscribe("alice", "all", "price >= 0")

        def publish():
            with Client(url) as own:
                for k in itertools.count():
                    if stop.is_set():
                        return
                    acknowledged.append(own.publish([{"price": 7, "change": float(k)}] * 3)["last"])
                    if k % 5 == 0:
                        own.subscribe("bob", f"b{k % 20}", f"price > {k % 9}")

        thread = threading.Thread(target=publish)
        thread.start()
        copies = []
        for k in range(3):
            while len(acknowledged) < 10 * (k + 1):
                stop.wait(0.01)
            before = acknowledged[-1]
            source, copy = tmp_path / "data", tmp_path / f"copy{k}"
            if first is not None:
                shutil.copytree(source / "main" / first, copy / "main" / first)
            shutil.copytree(
                source, copy, dirs_exist_ok=True, ignore=lambda at, _: {first} if at.endswith("main") else {}
            )
            copies.append((before, acknowledged[-1]))
        stop.set()
        thread.join(30)
    for k, (before, _) in enumerate(copies):
        with start(data=tmp_path / f"copy{k}") as url, Client(url) as client:
            last = client.status()["spaces"][0]["next"] - 1
            assert last >= before > 0
            messages = list(itertools.islice(client.stream("alice", start=1), last))
            assert [one.sequence for one in messages] == list(range(1, last + 1))
            assert client.publish({"price": 1})["last"] == last + 1
