"""All errors of rangecast form one tree.

    RangecastError
    ├── SchemaError       (ValueError)   an impossible schema, or two that differ
    ├── LanguageError     (ValueError)   a condition's text: where, and what was expected
    ├── SubscriptionError (ValueError)   a subscription's id or bounds
    ├── EventError        (ValueError)   an event's value
    ├── OptionError       (ValueError)   an option of an index or a command
    ├── UnknownIndexError (LookupError)  a name that no index has
    ├── CapacityError     (MemoryError)  a build that would not fit into memory
    ├── SetupError        (RuntimeError) something outside the package is missing
    ├── ForkError         (RuntimeError) a forked object that was being changed
    └── StorageError      (OSError)      a saved index, store or file that cannot be read

Each error also inherits the built-in error in parentheses, so that callers can catch it without knowing
rangecast.

Input that is valid but was probably not meant causes a RangecastWarning (a UserWarning). If it is a
condition, the warning is an OddConditionWarning.
"""

from __future__ import annotations

import os
import re
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# control characters, and those that break lines or turn the direction of writing around
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSEEN_BUT_LINES = re.compile(_UNSEEN.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def extra_hint(extra: str) -> str:
    """How an optional part of the package is installed; what it says works before the package is published.

    >>> extra_hint("spark")
    "install the extra 'spark' (from a clone: pip install '.[spark]' -c constraints.txt)"
    """
    return f"install the extra {extra!r} (from a clone: pip install '.[{extra}]' -c constraints.txt)"


class RangecastError(Exception):
    """The root of everything that rangecast raises on purpose."""


class SchemaError(RangecastError, ValueError):
    """A schema is wrong in itself, or data made with one schema meets another."""


class LanguageError(RangecastError, ValueError):
    """A condition cannot be read; `position` is the offset in `text` where it went wrong."""

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        super().__init__(message)
        self.text = text
        self.position = position

    def __reduce__(self) -> tuple[type, tuple[str, str, int]]:
        return type(self), (str(self), self.text, self.position)


class SubscriptionError(RangecastError, ValueError):
    """A subscription has an id or a bound that cannot be."""


class EventError(RangecastError, ValueError):
    """An event has a value that its attribute cannot hold."""


class OptionError(RangecastError, ValueError):
    """An option is unknown or out of its range."""


class UnknownIndexError(RangecastError, LookupError):
    """No index has this name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CapacityError(RangecastError, MemoryError):
    """A build would need more memory than it may use; nothing was built."""


class SetupError(RangecastError, RuntimeError):
    """Something outside the package is missing, such as Java for Spark; the message says what to install."""


class ForkError(RangecastError, RuntimeError):
    """A forked process has an object that a thread of its parent was changing; it must be loaded again."""


class StorageError(RangecastError, OSError):
    """A saved index, a store or an input file is missing, damaged or of another version."""


def visible(text: str, *, lines: bool = False) -> str:
    """A text for people with its control characters written out, but for ends of lines where `lines` says so.

    Ids, values and names come from others: printed as they are, they could steer a terminal, or begin a line
    of a log that nobody wrote.

    >>> visible("7\\x1b[31m\\nERROR")
    '7\\\\x1b[31m\\\\nERROR'
    """
    return (_UNSEEN_BUT_LINES if lines else _UNSEEN).sub(lambda found: repr(found[0])[1:-1], text)


class RangecastWarning(UserWarning):
    """What was asked for is done, but is probably not what was meant; the message says what may have been
    meant."""


class OddConditionWarning(RangecastWarning):
    """A condition can never match, always does, or was probably meant otherwise (language/lint.py)."""


def warn(message: str, category: type[RangecastWarning] = RangecastWarning) -> None:
    """A warning at the line of whoever called into the package, however deep this is."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
