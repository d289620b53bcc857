"""Files that are seen whole or not at all: written under a scratch name, then renamed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from rangecast.errors import StorageError


class OutputFile:
    """A file being written; `keep` puts it in its place, `drop` leaves what was there before.

    As a context, it is kept when the block ends and dropped when it fails.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            self.stream: BinaryIO = open(self._scratch, "wb")  # noqa: SIM115
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
