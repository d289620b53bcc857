"""The map of modules at the head of rangecast.spark names what is there."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
SPARK = Path(__file__).resolve().parents[2] / "src" / "rangecast" / "spark"


def test_the_map_names_every_module_once():
    head = ast.get_docstring(ast.parse((SPARK / "__init__.py").read_text()))
    named = re.findall(r"^ +([\w/]+\.py) ", head, re.MULTILINE)
    there = [str(path.relative_to(SPARK)) for path in SPARK.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(named) == sorted(there)
