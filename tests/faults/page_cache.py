"""A disk that loses power: what of the writes since the last sync is there afterwards, and what is not.

Calls that reach the disk are watched while a store works in a real folder. Of each file the model keeps what
its last fsync saw, and of each folder every list of names since the last fsync of the folder. A crash at
some call leaves, drawn at random:

    of a folder   one of those lists: names that came and went without a sync are there up to some moment
    of a file     each sector of 512 bytes as it was at the last fsync, as it is now, or, where the file has
                  grown since, as zeros; its length as it was, as it is, or something in between

so writes between two syncs are reordered, torn and left out. A journaling file system keeps more order than
this.
"""

import os
import random
from pathlib import Path

SECTOR = 512
CALLS = ("fsync", "replace", "rename", "pwrite", "ftruncate", "unlink", "link", "mkdir")
Image = dict[str, bytes | None]
"""What a crash leaves: files by path with what they hold, folders with None."""


class PageCache:
    """Watches the calls below a folder; `crash` gives what a loss of power would leave now."""

    def __init__(self, folder: Path, monkeypatch, at_call) -> None:
        self.folder, self._at_call = str(folder), at_call
        self._synced: dict[int, bytes] = {}
        self._names: dict[int, list[dict[str, int]]] = {}
        # an inode that nobody holds would be given to another file
        self._held: dict[int, int] = {}
        self._look()
        for inode, handle in self._held.items():
            if inode not in self._names:
                self._synced[inode] = _read(handle)
        for lists in self._names.values():
            del lists[:-1]
        for name in CALLS:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def close(self) -> None:
        for handle in self._held.values():
            os.close(handle)

    def _watched(self, name, call):
        def watched(*args, **kwargs):
            self._look()
            self._at_call(self)
            found = call(*args, **kwargs)
            self._look()
            if name == "fsync":
                self._sync(os.fstat(args[0]).st_ino)
            self._at_call(self)
            return found

        return watched

    def _look(self) -> None:
        """Take note of names that are new, or gone."""
        for folder, folders, files in os.walk(self.folder):
            inode = self._hold(folder)
            names = {name: self._hold(os.path.join(folder, name)) for name in [*folders, *files]}
            lists = self._names.setdefault(inode, [{}])
            if lists[-1] != names:
                lists.append(names)

    def _hold(self, path: str) -> int:
        inode = os.stat(path).st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
        return inode

    def _sync(self, inode: int) -> None:
        if inode in self._names:
            del self._names[inode][:-1]
        elif inode in self._held:
            self._synced[inode] = _read(self._held[inode])

    def crash(self, rng: random.Random) -> Image:
        """What there is after a loss of power at this moment."""
        image: Image = {}
        root = os.stat(self.folder).st_ino
        waiting = [("", root)]
        while waiting:
            path, inode = waiting.pop()
            if inode in self._names:
                image[path] = None
                names = rng.choice(self._names[inode])
                waiting += [(os.path.join(path, name), below) for name, below in names.items()]
            else:
                image[path] = self._torn(inode, rng)
        return image

    def _torn(self, inode: int, rng: random.Random) -> bytes:
        old, new = self._synced.get(inode, b""), _read(self._held[inode])
        if old == new or rng.random() < 0.2:
            return old if old == new else rng.choice([old, new])
        length = rng.choice([len(old), len(new), rng.randint(*sorted([len(old), len(new)]))])
        out = bytearray(length)
        for first in range(0, length, SECTOR):
            last = min(first + SECTOR, length)
            source = rng.choice([old, new, new])
            piece = source[first:last]
            # beyond what either holds there are zeros
            out[first : first + len(piece)] = piece
        return bytes(out)


def _read(handle: int) -> bytes:
    return os.pread(handle, os.fstat(handle).st_size, 0)


def lay_out(image: Image, folder: Path) -> None:
    """Make the folder that a crash left."""
    for path, content in sorted(image.items()):
        if content is None:
            (folder / path).mkdir(exist_ok=True)
        else:
            (folder / path).write_bytes(content)
