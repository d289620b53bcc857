"""The short form of the soak: two kills, and every expected pair of event and subscription, none other."""

import importlib.util
from pathlib import Path

import pytest

import seeds

pytestmark = pytest.mark.integration


def test_nothing_is_lost_or_wrong_over_kills(tmp_path):
    spec = importlib.util.spec_from_file_location("soak", Path(__file__).with_name("soak.py"))
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    counts = soak.soak(tmp_path, seconds=4, kills=2, n_consumers=5, seed=seeds.seed_of("soak"))
    assert counts["expected"] > 10
    assert counts["lost"] == 0
    assert counts["wrong"] == 0
