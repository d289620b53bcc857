"""A snapshot that is damaged after somebody checked it: whoever maps it next sees that."""

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine import checks
from strategies import int_schema, random_subscriptions

SCHEMA = int_schema(2)


@pytest.fixture
def saved(tmp_path, monkeypatch):
    (tmp_path / "markers").mkdir()
    monkeypatch.setattr(checks, "_folder", lambda: tmp_path / "markers")
    index = rc.open_index("auto", SCHEMA)
    index.insert(random_subscriptions(SCHEMA, 900, seed=1))
    index.save(tmp_path / "index")
    return tmp_path / "index"


def reads_everything(path, monkeypatch):
    """Whether loading a file the way a worker does reads it against its sums."""
    from rangecast import engine

    seen = []
    read = engine.read_arrays
    with monkeypatch.context() as patch:
        patch.setattr(
            engine, "read_arrays", lambda *args, **more: (seen.append(args[2]), read(*args, **more))[1]
        )
        rc.load_index(path, verify=None)
    return seen[0]


def test_a_file_is_checked_once_per_state(saved, monkeypatch):
    assert [reads_everything(saved, monkeypatch) for _ in range(3)] == [True, False, False]
    saved.write_bytes(saved.read_bytes())
    assert [reads_everything(saved, monkeypatch) for _ in range(2)] == [True, False]
    copy = saved.with_name("copy")
    copy.write_bytes(saved.read_bytes())
    copy.replace(saved)
    assert [reads_everything(saved, monkeypatch) for _ in range(2)] == [True, False]


def test_damage_after_a_check_is_seen(saved):
    assert len(rc.load_index(saved)) == 900
    whole = saved.read_bytes()
    rng = np.random.default_rng(3)
    for place in rng.integers(0, len(whole), 60):
        raw = bytearray(whole)
        raw[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(raw)
        try:
            found = rc.load_index(saved, verify=None)
        except rc.StorageError:
            continue
        # between two arrays there are bytes that nobody reads
        fine = saved.with_name("fine")
        fine.write_bytes(whole)
        assert found.subscriptions().lows.tolist() == rc.load_index(fine).subscriptions().lows.tolist()


def test_markers_do_not_pile_up(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "_MOST", 5)
    (tmp_path / "markers").mkdir()
    for number in range(12):
        checks.mark_verified(tmp_path / "markers" / str(number))
    assert len(list((tmp_path / "markers").iterdir())) <= 5
    checks.mark_verified(tmp_path / "nowhere" / "x")
