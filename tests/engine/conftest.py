"""The tests of this folder are about paths of `auto`, not about when they are built: few boxes have them."""

import pytest

from rangecast.engine.auto import AutoIndex


@pytest.fixture(autouse=True)
def _paths_of_small_sets(request, monkeypatch, used_machine):
    if "tail_alone" not in request.node.name:
        monkeypatch.setattr(AutoIndex, "tail_alone", 1)
