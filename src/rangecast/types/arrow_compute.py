"""Arrow's functions over columns as `pc`, loaded when the first of them is called.

Loading `pyarrow.compute` takes 40 ms, and a process that reads conditions and matches dicts calls none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:

    class _Compute:
        def __getattr__(self, name: str) -> Any:
            import pyarrow.compute

            found = getattr(pyarrow.compute, name)
            setattr(self, name, found)
            return found

    pc = _Compute()

__all__ = ["pc"]
