"""Files that are seen whole or not at all: written under a scratch name, then renamed.

A run that is killed leaves its scratch file. Whoever writes holds a lock on its own, which ends with the
process on whatever machine it is; so the next run that writes the same file can tell, and clears the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
from pathlib import Path
from typing import BinaryIO

from rangecast.durable.bucket import local_place
from rangecast.errors import StorageError


class OutputFile:
    """A file being written; `keep` puts it in its place, `drop` leaves what was there before.

    As a context, it is kept when the block ends and dropped when it fails.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(local_place(path, "a file of results"))
        self._scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            _clear_scratch(self.path)
            self.stream: BinaryIO = _open_locked(self._scratch)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror}") from None

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.keep()
        else:
            self.drop()

    def keep(self) -> None:
        """Close the file and give it its name."""
        self.stream.close()
        os.replace(self._scratch, self.path)

    def drop(self) -> None:
        """Close the file and remove it."""
        self.stream.close()
        self._scratch.unlink(missing_ok=True)


def _open_locked(path: Path) -> BinaryIO:
    while True:
        stream = open(path, "wb")  # noqa: SIM115
        with contextlib.suppress(OSError):  # a file system without locks clears nothing
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # somebody who cleared may have come between the two
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                return stream
        stream.close()


def _clear_scratch(path: Path) -> None:
    """Remove what runs that are no more have left of this file."""
    pattern = os.path.join(glob.escape(str(path.parent)), f".{glob.escape(path.name)}.*.tmp")
    for left in glob.glob(pattern):
        if not left.removesuffix(".tmp").rpartition(".")[2].isdigit():
            continue
        with contextlib.suppress(OSError), open(left, "rb+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(left)
