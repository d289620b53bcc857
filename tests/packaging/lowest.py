"""The lowest versions that pyproject.toml allows, as constraints for pip: `python tests/packaging/lowest.py`.

`make test-lowest` installs them into an environment of its own and runs the tests there, so that a bound is
never a promise that nobody tried.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def lowest(project: dict[str, object], extras: list[str]) -> list[str]:
    """Each dependency at its lower bound, as name==version.

    >>> lowest({"dependencies": ["numpy>=2.2,<3"], "optional-dependencies": {"x": ["a[b]>=1.0,<2"]}}, ["x"])
    ['a==1.0', 'numpy==2.2']
    """
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    found = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+),<[\d.]+", line) for line in wanted]
    return sorted({f"{one[1]}=={one[2]}" for one in found if one})


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print("\n".join(lowest(project, sys.argv[1:])))
