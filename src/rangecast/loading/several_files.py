"""Several files of events as one: their names, in order, and the events of one after the other.

What is settled by the first file holds for all of them: the type of ids. Rows without ids are numbered on
from file to file. A file is opened when the one before it has been read, so that thousands of them are no
trouble; that all are there with their columns is checked at the start.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from rangecast.buckets.object_files import objects_at, size_of
from rangecast.durable.bucket import is_address, place_of
from rangecast.errors import StorageError
from rangecast.loading.events import EventBatch, EventFile
from rangecast.types.column_names import describe_absent
from rangecast.types.schema import Schema


def expand_paths(names: Sequence[str]) -> list[str]:
    """The files that names and patterns such as `trades/*.csv` stand for, each once; StorageError for none.

    >>> expand_paths(["/dev/null", "/dev/nul[l]"])
    ['/dev/null']
    """
    found: dict[str, None] = {}
    for name in map(place_of, names):
        there = [name]
        if is_address(name):
            there = objects_at(name)
            if not there:
                raise StorageError(f"{name}: there is no such object, and no folder of objects")
        elif glob.has_magic(name) and not os.path.exists(name):
            there = sorted(glob.glob(name, recursive=True))
            if not there:
                raise StorageError(f"{name}: no file has a name like this")
        elif not os.path.exists(name):
            raise StorageError(f"{name}: there is no such file")
        found |= dict.fromkeys(there)
    return list(found)


class EventFiles:
    """The events of several files, as `EventFile` has those of one; `remarks` are on single files."""

    def __init__(self, schema: Schema, paths: Sequence[str], **options: Any) -> None:
        self.paths = tuple(paths)
        self.path = self.paths[0]
        self.n_events = 0
        self.remarks: list[str] = []
        self._schema = schema
        self._options = options
        for path in self.paths[1:]:  # a file that cannot be read must not end a run that has written
            EventFile(schema, path, **options).close()
        self._open = EventFile(schema, self.path, **options)
        self._kept_types = self._open.kept_types
        self._absent = set(schema.names)
        self._absent_kept = set(self._kept_types)
        self._near: dict[str, str] = {}
        # a Parquet file counts its rows and others their bytes; bytes are the unit for all of them here
        self._sizes = [size_of(path) for path in self.paths]
        self.size: int | None = sum(self._sizes)

    def close(self) -> None:
        """Close the file that is open."""
        self._open.close()

    def __enter__(self) -> EventFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id_type(self) -> pa.DataType:
        """The type of ids, by the first file."""
        return self._open.id_type

    @property
    def kept_types(self) -> dict[str, pa.DataType]:
        """The types of the columns that come along, by the first file."""
        return self._kept_types

    @property
    def absent(self) -> list[str]:
        """Attributes for which no event of any file had a value."""
        return [name for name in self._schema.names if name in self._absent]

    @property
    def absent_kept(self) -> list[str]:
        """Columns to keep that no event of any file had, where files do not say their columns."""
        return [name for name in self._kept_types if name in self._absent_kept]

    def refuse_absent(self) -> None:
        """As of an EventFile, by the first file."""
        self._open.refuse_absent()

    def near_misses(self) -> dict[str, str]:
        """Attributes that no event had, and the columns that were probably meant."""
        return {name: column for name, column in self._near.items() if name in self._absent}

    def __iter__(self) -> Iterator[EventBatch]:
        id_type = self.id_type
        done = 0
        for number, (path, size) in enumerate(zip(self.paths, self._sizes, strict=True)):
            if number:
                rows = self._open.n_rows
                self._open.close()
                options = self._options | {"id_type": id_type, "first_row": rows}
                self._open = EventFile(self._schema, path, **options)
            file = self._open
            for batch in file:
                share = batch.position / file.size if file.size else 0.0
                yield batch._replace(position=done + int(size * min(share, 1.0)))
            done += size
            self.n_events += file.n_events
            if file.n_events:
                self._absent_kept &= set(file.absent_kept)
                near = file.near_misses()
                self._near |= near
                self._absent &= set(file.absent)
                if near:
                    self.remarks.append(describe_absent(list(near), near, f"no event of {path}"))
