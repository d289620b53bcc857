"""What went wrong in the workers, said on the driver in the words that the workers found for it.

An action that fails in a worker comes back as Spark's own error: pages of two languages with our sentence
somewhere inside, or, where no worker could start, with none of ours. `told` is put around the actions that
rangecast starts by itself (ingest, file mode, stripes, the doctor): it raises the worker's own error here. A
lazy DataFrame is evaluated by whoever uses it, so there Spark's error stays what it is.

`beside_driver` is the worker's half: around what a worker reads and writes in folders that it shares with
the driver. A user who may not, and a folder that is not there, get a sentence that says what to do.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
from collections.abc import Iterator

from rangecast import errors
from rangecast.errors import RangecastError, SetupError, StorageError

_OURS = re.compile(r"rangecast\.\w[\w.]*\.(\w+Error): ([^\n]+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Raise what a worker said as the error that it was there."""
    try:
        yield
    except RangecastError:
        raise
    except Exception as error:  # PySpark's own, or Py4J's where it has none for what the JVM threw
        found = explained(str(error))
        if found is None:
            raise
        raise found from error


def explained(text: str) -> RangecastError | None:
    """The error of ours that a text of Spark's is about; None if it is about none.

    >>> str(explained("ModuleNotFoundError: No module named 'numba.core'")).partition(":")[0]
    "the workers' Python has no package 'numba'"
    """
    program = _NO_PROGRAM.search(text)
    if program:
        return SetupError(
            f"the workers cannot run {program[1]!r}: they need a Python at this path; put the same "
            "environment there, or name theirs by spark.pyspark.python or PYSPARK_PYTHON"
        )
    module = _NO_MODULE.search(text)
    if module:
        return SetupError(
            f"the workers' Python has no package {module[1].partition('.')[0]!r}: install rangecast and what "
            "it needs there, or send a packed environment by spark.archives"
        )
    said = _OURS.findall(text)
    if not said:
        return None
    name, sentence = said[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, RangecastError)):
        kind = StorageError
    return kind(sentence)


@contextlib.contextmanager
def beside_driver(folder: str | os.PathLike[str]) -> Iterator[None]:
    """In a worker: say it well when a folder that the driver has made is not here, or not for this user."""
    try:
        yield
    except (StorageError, PermissionError, FileNotFoundError) as error:
        cause = error if not isinstance(error, StorageError) else error.__cause__
        if isinstance(cause, PermissionError):
            raise StorageError(
                f"{folder}: the worker's user {_user()!r} may not write there; give the driver's user and "
                "this one a common group, and let it write to the folder above (chgrp, chmod g+ws)"
            ) from None
        if isinstance(cause, FileNotFoundError):
            raise StorageError(
                f"{folder}: is not here; a worker must see the same files as the driver"
            ) from None
        raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
