"""Which files this machine has checked: so that a hundred workers read a file against its sums once.

A worker maps a snapshot that somebody else has checked before, maybe on another machine, maybe days ago.
Reading all of it against its sums again would cost each worker as much as the file is large. So whoever has
done that leaves a marker among the user's own files (kernels.cache_folders), named for all that changes when
a file does: its path, device, inode, size, and the times of the last change of its content and of its inode,
and for the start of the machine. A file that was written to since, in whatever way, has no marker and is
checked again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path

from rangecast.simd.compiler import cache_folders

_MOST = 4096


def marker_of(path: str | os.PathLike[str]) -> Path:
    """Where the marker of a file in its present state is, or would be."""
    status = os.stat(path)
    state = (
        os.path.abspath(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns,
        status.st_ctime_ns, _start_of_machine(),
    )  # fmt: skip
    return _folder() / hashlib.sha256(repr(state).encode()).hexdigest()


def mark_verified(marker: Path) -> None:
    """Leave a marker; what cannot be written costs a check more, and nothing else."""
    with contextlib.suppress(OSError):
        if len(os.listdir(marker.parent)) >= _MOST:
            for other in marker.parent.iterdir():
                other.unlink(missing_ok=True)
        marker.touch()


@functools.cache
def _folder() -> Path:
    return Path(next(cache_folders("verified")))


@functools.cache
def _start_of_machine() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    return ""
