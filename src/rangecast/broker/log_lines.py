"""What the broker says of itself: one line per message, as text for people or as JSON for programs.

    2026-01-31T12:00:00.000Z WARNING rangecast.broker a request failed
    {"time": "2026-01-31T12:00:00.000Z", "level": "warning", "logger": "rangecast.broker", "message": "...",
     "space": "main", "error": "StorageError: ..."}

Whatever a message was given as `extra` is a field of its own in JSON and stands behind the text otherwise.
Names and values come from others, so control characters are written out: no data begins a line.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from typing import Any, TextIO

from rangecast.errors import OptionError, visible

FORMATS = ("text", "json")
# color_message is the same message of uvicorn, with escapes of a terminal
_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}


class TextLines(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        fields.pop("logger")
        head = f"{fields.pop('time')} {record.levelname} {record.name} {fields.pop('message')}"
        fields.pop("level")
        # the trace of an error is of several lines, each of them its own
        trace = (
            "" if not record.exc_info else "\n" + visible(self.formatException(record.exc_info), lines=True)
        )
        return visible(" ".join([head, *(f"{key}={value}" for key, value in fields.items())])) + trace


class JsonLines(logging.Formatter):
    """A line for programs."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    fields: dict[str, Any] = {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    fields.update({key: value for key, value in vars(record).items() if key not in _PLAIN})
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = f"{type(error).__name__}: {error}"
    return fields


def log_to(stream: TextIO, form: str) -> None:
    """Let everything that is logged in this process come out as lines of a form."""
    if form not in FORMATS:
        raise OptionError(f"logs are written as {' or '.join(FORMATS)}, got {form!r}")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
