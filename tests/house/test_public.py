"""The public face: `rangecast.__all__` is sorted, complete and documented."""

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rangecast
from rangecast import errors

pytestmark = pytest.mark.once


def test_all_is_sorted_and_without_repeats():
    assert list(rangecast.__all__) == sorted(set(rangecast.__all__))


def test_version_is_that_of_the_package():
    pyproject = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert rangecast.__version__ == tomllib.loads(pyproject.read_text())["project"]["version"]


@pytest.mark.parametrize("name", rangecast.__all__)
def test_every_public_name_exists_and_is_documented(name):
    thing = getattr(rangecast, name)
    if name == "__version__":
        return
    # A class without prose of its own would inherit that of its base, and a dataclass gets its signature.
    text = (vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)) or ""
    assert text.strip(), f"rangecast.{name} must say what it is"
    assert not text.startswith(f"{name}("), f"rangecast.{name} must say what it is, not only its signature"


def test_everything_imported_is_public():
    for name in rangecast.__all__:
        getattr(rangecast, name)
    things = {name: thing for name, thing in vars(rangecast).items() if not name.startswith("_")}
    visible = {name for name, thing in things.items() if not inspect.ismodule(thing)} - {
        "Any",
        "TYPE_CHECKING",
    }
    assert visible <= set(rangecast.__all__)


def test_names_that_are_loaded_late_are_the_public_ones():
    late = set(rangecast._HOME_OF)
    assert set(rangecast.__all__) - late <= {"__version__", "covering", *vars(errors)}
    assert late <= set(rangecast.__all__) <= set(dir(rangecast))
    with pytest.raises(AttributeError, match="module 'rangecast' has no attribute 'nothing'"):
        rangecast.nothing  # noqa: B018


def test_import_loads_no_compiler():
    heavy = ["numba", "pyarrow", "numpy"]
    code = f"import sys, rangecast; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_import_loads_no_optional_package():
    optional = ["pyspark", "pandas", "duckdb", "polars", "typer", "rich", "matplotlib"]
    code = (
        "import sys, rangecast; [getattr(rangecast, name) for name in rangecast.__all__]; "
        f"print([name for name in {optional} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_first_match_loads_no_pandas():
    code = """
import sys
import rangecast as rc
schema = rc.Schema(rc.Int("price"), rc.Float("change"), rc.Category("symbol"))
texts = {f"id{k}": f"price > {k} and symbol = 's{k % 5}'" for k in range(100)}
rows = [{"price": k, "change": 0.5, "symbol": f"s{k % 7}"} for k in range(100)]
for given in (texts, dict(enumerate(texts.values()))):
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, given))
    index.match(rc.Events.from_rows(schema, rows)).to_arrow()
    index.match_one(rows[0])
print("pandas" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
