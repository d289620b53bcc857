"""`rangecast warm-up`: the kernels of matching, compiled before anybody waits for them."""

from __future__ import annotations

from rangecast.cli.console import OK, say
from rangecast.workloads.warm_up import warm_up as compile_all


def warm_up() -> None:
    """Compile what matching needs, once per machine or image.

    Run it when a service or an image is built, so that no first event waits. Compiled code is kept in the
    user's cache, or in NUMBA_CACHE_DIR where that is set. On an empty cache this takes minutes; a line on
    stderr says which step has begun.
    """
    seconds = compile_all()
    say(f"compiled for {seconds:.1f} s" if seconds else "everything was compiled before")
    raise SystemExit(OK)
