"""`python -m build` makes a wheel that installs into an empty environment and runs README's example there."""

import os
import re
import subprocess
import sys
import venv
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


def test_the_wheel_runs_the_example_of_the_readme(tmp_path):
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert len(list(tmp_path.glob("*.tar.gz"))) == 1
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
    # what is not installed is said with what to do, without a traceback
    done = subprocess.run([rangecast, "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rangecast: the demo on Spark needs PySpark: install the extra 'spark'")
