"""Where the stores of these tests live: a folder, and a bucket in memory; both keep the same promises."""

import uuid

import pytest

from rangecast.durable.bucket import BucketAddress


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("RANGECAST_CACHE", str(tmp_path_factory.getbasetemp() / "fetched"))


@pytest.fixture(params=["folder", "bucket"])
def home(request, tmp_path):
    """The place below which a test makes its stores; `/` goes on from there."""
    return tmp_path if request.param == "folder" else BucketAddress(f"memory://{uuid.uuid4().hex}/tests")
