"""Logs as lines of text and of JSON."""

import io
import json
import logging

import pytest

import rangecast as rc
from rangecast.broker.metrics import JsonLines, TextLines, log_to

pytestmark = pytest.mark.once


def record(message, *arguments, error=None, **fields):
    found = logging.getLogger("rangecast.broker").makeRecord(
        "rangecast.broker", logging.ERROR, "", 0, message, arguments,
        None if error is None else (type(error), error, None), extra=fields,
    )  # fmt: skip
    found.created = 1_769_860_800.25
    return found


def test_a_line_of_json():
    line = JsonLines().format(
        record("a tick failed: %s", "x\ny", error=rc.StorageError("full"), space="main")
    )
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-01-31T12:00:00.250Z",
        "level": "error",
        "logger": "rangecast.broker",
        "message": "a tick failed: x\ny",
        "space": "main",
        "error": "StorageError: full",
        "trace": "rangecast.errors.StorageError: full",
    }


def test_a_line_of_text():
    line = TextLines().format(record("ends %d", 3, space="a\nb", port=80))
    assert line == r"2026-01-31T12:00:00.250Z ERROR rangecast.broker ends 3 space=a\nb port=80"
    assert TextLines().format(record("x\x1b[2J")).endswith(r"x\x1b[2J")
    # uvicorn says each message twice, once with escapes
    assert TextLines().format(record("Started", color_message="\x1b[36mStarted")).endswith("Started")


def test_forms(monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    out = io.StringIO()
    log_to(out, "json")
    logging.getLogger("rangecast.broker").info("serves", extra={"port": 8080})
    assert json.loads(out.getvalue())["port"] == 8080
    with pytest.raises(rc.OptionError, match="logs are written as text or json, got 'xml'"):
        log_to(out, "xml")
