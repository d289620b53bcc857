"""A small durable table from keys to JSON values, in one append-only file: cursors, payloads, webhooks.

    {"key": "alice", "value": 41, "crc32": "..."}

Each line is sealed (documents.py), and the last line of a key counts; null removes it. `put` remembers lines,
`sync` writes them and waits until they are on disk. A torn last line is cut off when the file is opened.
When most lines are outdated the file is rewritten, aside and renamed; and so it is after a write that
failed, which may have left half a line, since nothing may follow that. What such a write should have made
durable is taken back: who is refused must find everything as it was.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from rangecast.durable.arrays import replacing, sync_folder, writing_to
from rangecast.durable.documents import is_sealed, seal, unseal

_SLACK = 1_000


class Journal:
    """Keys and their values; one thread writes.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(folder.name + "/cursors.journal")
    >>> journal.put("alice", 41)
    >>> journal.sync()
    >>> Journal(folder.name + "/cursors.journal").get("alice")
    41
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._values: dict[str, Any] = {}
        self._before: dict[str, Any] = {}  # by key that was put since the last sync
        self._waiting: list[bytes] = []
        self._lines = 0
        self._torn = False
        self._load()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key."""
        return self._values.get(key, default)

    def items(self) -> list[tuple[str, Any]]:
        """All keys and their values."""
        return list(self._values.items())

    def put(self, key: str, value: Any) -> None:
        """Give a key a value, or take it out with None; `sync` makes it durable."""
        before = self._values.get(key)
        if value is None and before is None:
            return
        self._before.setdefault(key, before)
        self._set(key, value)
        self._waiting.append(seal({"key": key, "value": value}))

    def sync(self) -> None:
        """Write what was put, and see that it is on disk; what cannot be written is taken back."""
        if not self._waiting and not self._torn:
            return
        torn, self._torn = self._torn, True
        try:
            if torn or self._lines + len(self._waiting) > 4 * len(self._values) + _SLACK:
                self._rewrite()
            else:
                self._append()
        except BaseException:
            for key, value in self._before.items():
                self._set(key, value)
            raise
        finally:
            self._waiting, self._before = [], {}
        self._torn = False

    def _set(self, key: str, value: Any) -> None:
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def _append(self) -> None:
        fresh = not self.path.exists()
        with writing_to(self.path), open(self.path, "ab") as file:
            size = file.tell()
            try:
                file.write(b"\n".join(self._waiting) + b"\n")
                file.flush()
                os.fdatasync(file.fileno())
            except OSError:
                # lines that came to the disk whole would count after a crash
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), size)
                raise
        if fresh:
            sync_folder(self.path.parent)
        self._lines += len(self._waiting)

    def _rewrite(self) -> None:
        with replacing(self.path) as file:
            for key, value in self._values.items():
                file.write(seal({"key": key, "value": value}) + b"\n")
        self._lines = len(self._values)

    def _load(self) -> None:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return
        whole, _, rest = raw.rpartition(b"\n")
        lines = whole.split(b"\n") if whole else []
        for number, line in enumerate(lines, 1):
            if number == len(lines) and not is_sealed(line):
                rest = line + rest  # written by a crash: a newline may come to disk before what is before it
                break
            entry = unseal(line, f"{self.path}, line {number}")
            self._set(entry["key"], entry["value"])
        self._lines = len(lines)
        if rest:
            self._rewrite()
