"""`rangecast demo`, `stream-demo` and `serve-demo`: scripts of examples/demo, of which each has one command.

A wheel carries the scripts as rangecast/examples/demo; a clone has them at its root. They are loaded by their
names from that folder, which stays on the path: processes that a demo starts load them from there as well.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from rangecast.errors import SetupError

_HERE = Path(__file__).resolve()
FOLDERS = tuple(root / "examples" / "demo" for root in (_HERE.parents[1], _HERE.parents[3]))
SCRIPTS = {"demo": "market_day", "stream_demo": "tick_stream", "serve_demo": "market_broker"}


def load_script(name: str) -> ModuleType:
    """The script of this name."""
    folder = next((folder for folder in FOLDERS if (folder / f"{name}.py").exists()), None)
    if folder is None:
        places = " nor ".join(map(str, FOLDERS))
        raise SetupError(f"the scripts of the demos are neither in {places}: install rangecast again")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module(name)


def __getattr__(name: str) -> Any:
    if name not in SCRIPTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load_script(SCRIPTS[name]), name)
