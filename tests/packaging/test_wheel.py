"""`python -m build` makes a wheel that installs into an empty environment and runs README's example there."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration
pytest.importorskip("build")
pytest.importorskip("hatchling")


def run(*command, cwd):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_has_what_it_needs_and_nothing_else(built):
    wheel, sdist = built
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (place,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(file.read(place))
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "rangecast").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    demos = {f"rangecast/examples/demo/{path.name}" for path in (ROOT / "examples" / "demo").glob("*.py")}
    assert {name for name in names if ".dist-info/" not in name} == sources | demos
    assert {"rangecast/py.typed", "rangecast/broker/page.html"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert metadata["Version"] == project["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("Provides-Extra") == sorted(project["optional-dependencies"])
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "LICENSE", "CHANGELOG.md", "Makefile", "constraints.txt", "pyproject.toml"}
    assert wanted <= packed
    assert {f"src/{name}" for name in sources} <= packed
    assert not {name for name in packed if name.startswith((".venv", "build/", ".cache"))}


def test_the_wheel_runs_the_example_of_the_readme(built, tmp_path):
    wheel, _ = built
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, "-c", ROOT / "constraints.txt", cwd=tmp_path)
    readme = (ROOT / "README.md").read_text()
    example = re.search(r"^```python\n(.*?)^```\n\s*^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (tmp_path / "example.py").write_text(example[1])
    assert run(python, "example.py", cwd=tmp_path) == example[2]
    place = run(python, "-c", "import rangecast; print(rangecast.__file__)", cwd=tmp_path)
    assert str(tmp_path / "empty") in place
    rangecast = tmp_path / "empty" / "bin" / "rangecast"
    assert "auto" in run(rangecast, "indexes", cwd=tmp_path)
    (tmp_path / "rules.csv").write_text("id,condition\n1,price < 20\n2,price > 100\n")
    (tmp_path / "events.csv").write_text("id,price\n11,12\n12,200\n")
    (tmp_path / "schema.toml").write_text(run(rangecast, "schema", "infer", "events.csv", cwd=tmp_path))
    files = ("--schema", "schema.toml", "--subscriptions", "rules.csv", "--events", "events.csv")
    assert run(rangecast, "match", *files, cwd=tmp_path) == "event_id,subscription_id\n11,1\n12,2\n"
    # the demos' scripts are in the wheel, and run in an empty folder
    small = ("--subscriptions", "600", "--events", "800")
    run(rangecast, "demo", "--no-spark", *small, cwd=tmp_path)
    assert (tmp_path / "demo-output" / "matches.parquet").exists()
    assert "--rate" in run(rangecast, "stream-demo", "--help", cwd=tmp_path)
    # a missing extra is named with what to do, without a traceback
    for command, said in (
        (("demo",), "rangecast: the demo on Spark needs PySpark: install the extra 'spark'"),
        (("serve-demo",), "install the extra 'serve'"),
        (("serve", "--data", "d", "--schema", "schema.toml"), "install the extra 'serve'"),
    ):
        done = subprocess.run(
            [rangecast, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (2, ""), command
        assert said in done.stderr
        assert "Traceback" not in done.stderr
