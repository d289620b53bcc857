"""One S3-compatible server for the tests that need one."""

import uuid

import pytest


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """The address of a server of our own."""
    pytest.importorskip("obstore")
    from jars import NoJars
    from s3_server import running

    try:
        with running(tmp_path_factory.mktemp("s3")) as address:
            yield address
    except NoJars as why:
        pytest.skip(str(why))


@pytest.fixture
def s3(s3_server, monkeypatch, tmp_path):
    """A new address in its bucket, with all variables set and a cache of its own."""
    from s3_server import BUCKET, settings

    for name, value in settings(s3_server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANGECAST_CACHE", str(tmp_path / "cache"))
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
