"""What is run from a cache must be the user's own: folders that another could have filled are passed over."""

import importlib
import importlib.resources
import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

import rangecast as rc
from rangecast.simd.compiler import cache_folders


@pytest.fixture
def homeless(tmp_path, monkeypatch):
    """A user whose cache cannot be made; gives the folder that would be taken among the temporary files."""
    (tmp_path / "file").write_text("")
    shared = tmp_path / "tmp"
    shared.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    return shared / f"rangecast-{os.getuid()}"


def first_folder(name="numba-x"):
    return next(cache_folders(name))


def test_a_cache_at_home_is_private_and_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = first_folder()
    assert folder == str(tmp_path / "rangecast" / "numba-x")
    assert stat.S_IMODE(os.stat(tmp_path / "rangecast").st_mode) == 0o700
    assert first_folder() == folder


def test_a_cache_that_others_made_in_older_versions_is_still_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "rangecast").mkdir(mode=0o755)
    assert first_folder() == str(tmp_path / "rangecast" / "numba-x")


def test_without_a_home_a_private_folder_among_temporary_files_is_taken(homeless):
    assert first_folder() == str(homeless / "numba-x")
    assert stat.S_IMODE(homeless.stat().st_mode) == 0o700
    assert first_folder() == str(homeless / "numba-x")


@pytest.mark.parametrize("planted", ["open", "link", "other", "inner"])
def test_a_planted_folder_is_passed_over(homeless, tmp_path, monkeypatch, planted):
    if planted == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        homeless.symlink_to(tmp_path / "theirs")
    else:
        homeless.mkdir()
        homeless.chmod(0o777 if planted == "open" else 0o700)
    if planted == "inner":
        (tmp_path / "theirs").mkdir(mode=0o700)
        (homeless / "numba-x").symlink_to(tmp_path / "theirs")
    if planted == "other":
        own = os.getuid()
        folder = homeless.with_name(f"rangecast-{own + 1}")
        homeless.rename(folder)
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
    folder = first_folder()
    assert os.path.basename(os.path.dirname(folder)) == "tmp"
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert os.listdir(folder) == []
    assert folder not in (str(homeless / "numba-x"), str(homeless))


@pytest.mark.once
def test_the_folder_of_kernels_goes_by_their_sources_in_a_zip_too(tmp_path):
    """Sent to workers, the package is a zip; another version must not find this one's kernels."""
    package = Path(rc.__file__).parent
    names = []
    for edit in (b"", b"\n# another version\n"):
        archive = tmp_path / f"rangecast-{len(edit)}.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("rangecast/__init__.py", "")
            for path in [*(package / "simd").glob("*.py"), *package.rglob("*kernels*.py")]:
                source = path.read_bytes() + (edit if path.name == "scan_kernels.py" else b"")
                file.writestr(str(path.relative_to(package.parent)), source)
        program = "import os, rangecast.simd.compiler as k; print(k.__file__, os.environ['NUMBA_CACHE_DIR'])"
        left = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        environment = left | {"PYTHONPATH": str(archive), "XDG_CACHE_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        where, folder = done.stdout.split()
        assert where.startswith(str(archive))
        names.append(folder)
    here = importlib.import_module("rangecast.simd.compiler")._sources
    assert dict(here(zipfile.Path(tmp_path / "rangecast-0.zip", "rangecast/"))) == dict(
        here(importlib.resources.files("rangecast"))
    )
    assert names[0] != names[1]
