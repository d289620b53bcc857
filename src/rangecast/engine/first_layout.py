"""Whether layouts can be had at once, or have kernels to be compiled first: then `auto` goes on scanning.

The kernels of `auto`'s access paths come from Numba's cache on the disk in a fifth of a second. Where they
are not compiled yet they take 10 to 20 seconds, and scanning needs next to none of them: 10,000 boxes are
scanned in 30 us per event. So on a machine that has not laid anything out yet, building has the price of
compiling: up to COLD_BOXES boxes are scanned, until COLD_WORK of them were looked at, some three seconds of
scanning. Then a layout is built as anywhere else, and the machine is one that has. A scan is exact, so that
all this changes is the time. The first match of a fresh process with 10,000 subscriptions comes after a
quarter of the time.

That a layout was built is noted by an empty file in the folder of Numba's cache, named by what else the cache
depends on. Which access paths it had is not noted: another data set may still compile some, as before.
Whoever wants layouts without waiting for events says so by `lay_out_at_once`, as warming up and measuring do,
or by the variable RANGECAST_LAYOUTS=at-once. What is saved is always laid out, for who reads it may be
elsewhere.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

# the folder of Numba's cache is chosen there, before Numba is loaded
importlib.import_module("rangecast.simd.compiler")
_numba: Any = importlib.import_module("numba")
_llvm: Any = importlib.import_module("llvmlite.binding")

COLD_BOXES = 1 << 17
COLD_WORK = 1 << 30


class _Layouts:
    """What this process knows: whether it is to lay out at once."""

    at_once = bool(_numba.config.DISABLE_JIT) or os.environ.get("RANGECAST_LAYOUTS") == "at-once"


def _note() -> Path:
    version = f"{_numba.__version__}-{sys.implementation.cache_tag}"
    return Path(os.environ["NUMBA_CACHE_DIR"]) / f"laid-out-{version}-{_llvm.get_host_cpu_name()}"


def are_layouts_compiled() -> bool:
    """Whether something was laid out here before, by this process or another."""
    if not _Layouts.at_once:
        _Layouts.at_once = _note().exists()
    return _Layouts.at_once


def lay_out_at_once() -> None:
    """From now on this process lays out what it gets, whether kernels have to be compiled or not."""
    _Layouts.at_once = True


def note_layout() -> None:
    """Something was laid out: its kernels are in the cache."""
    lay_out_at_once()
    # a folder that cannot be written to keeps no kernels either
    with contextlib.suppress(OSError):
        _note().touch()
