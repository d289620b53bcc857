"""What a broker does before it is ready: it opens its spaces, and goes once through what requests will call.

A broker listens at once, and opens its spaces in a thread: `/healthz` answers, `/readyz` says what it waits
for, and requests to a space that is not open yet are answered with 503. On a machine where the kernels were
never compiled that takes half a minute, and with millions of subscriptions it takes seconds; `Opening` says
so while it lasts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from rangecast.broker.bodies import ARROW_TYPES, LINES_TYPES, ReceivedEvents, read_events
from rangecast.broker.directory import Directory
from rangecast.broker.frames import PinnedEvents, match_frames
from rangecast.broker.limits import SpaceLimits
from rangecast.broker.replay import EntryIndex
from rangecast.compile_clock import compile_seconds, when_compiling
from rangecast.engine import Index
from rangecast.kernels.broker import sockets as kernels
from rangecast.model.boxes import hulls
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import Category, Float, Int
from rangecast.types.names import quoted_name
from rangecast.types.schema import Schema

_log = logging.getLogger("rangecast.broker")

FIRST_NEWS = 2.0
"""Seconds after which a start is worth a word; compiling is told of at once."""
NEWS = 5.0
_SAMPLES = 200
_BATCHES = (1, 100)  # one event and many take different kernels
_MANY_EVENTS = 20_000
_SOME = (2_000, 20_000, 100_000)  # subscriptions of those who catch up


class Opening:
    """Tells what is being done, from time to time, until it has ended."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._step = "opening the spaces"
        self._began = time.monotonic()
        self._compiled = compile_seconds()
        self._news = threading.Event()
        self.ended = threading.Event()

    def __enter__(self) -> Opening:
        when_compiling(self._news.set)
        threading.Thread(target=self._run, name="opening", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._news.set()

    def begin(self, step: str) -> None:
        """Say which step begins."""
        self._step = step

    def describe(self) -> str:
        """What is being done, and for how long."""
        text = f"starting for {time.monotonic() - self._began:.0f} s: {self._step}"
        compiled = compile_seconds() - self._compiled
        if compiled or self._news.is_set():
            text += f"; compiling kernels, once per machine: {compiled:.0f} s so far"
        return text

    def _run(self) -> None:
        self._news.wait(FIRST_NEWS)
        while not self.ended.is_set():
            self._tell(self.describe())
            self.ended.wait(NEWS)


def warm(
    space: str, schema: Schema, index: Index, directory: Directory, begin: Callable[[str], None]
) -> None:
    """Go once through what requests to a space call, so that none of them waits for a kernel to be compiled
    or loaded; `begin` hears of each step.

    A step that fails is logged, and the others go on: a request may fail for the same reason, but a space
    that did not open would answer none at all, at this start and at every later one.
    """
    steps = list(_steps(schema, index, directory))
    for number, (name, step) in enumerate(steps, 1):
        begin(f"kernels for {name}, {number} of {len(steps)}")
        try:
            step()
        except Exception as error:
            text = "preparing the kernels for %s failed, and the start goes on without: %s"
            _log.warning(text, name, error, exc_info=True, extra={"space": space})


def _steps(schema: Schema, index: Index, directory: Directory) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "reading JSON", lambda: _read_lines(schema)
    yield "reading Arrow", lambda: _read_arrow(schema)
    yield "matching", lambda: _match(index, schema)
    yield "few subscriptions and messages", lambda: _serve_few(schema)
    yield "catching up", lambda: _catch_up(schema, index, directory)
    yield "sockets", _send_nothing


def _lines(schema: Schema, n: int) -> ReceivedEvents:
    return read_events(b"{}\n" * n, LINES_TYPES[0], schema, SpaceLimits())


def _read_lines(schema: Schema) -> None:
    for n in _BATCHES:
        _lines(schema, n)


def _samples(schema: Schema) -> dict[str, list[Any]]:
    """Values for the attributes of common kinds; a schema may have none of them."""
    kinds: dict[type, Callable[[int], Any]] = {Int: int, Float: float, Category: lambda k: f"w{k}"}
    own = [a for a in schema.attributes if type(a) in kinds]
    return {a.name: [kinds[type(a)](k) for k in range(_SAMPLES)] for a in own}


def _read_arrow(schema: Schema) -> None:
    samples = _samples(schema)
    if not samples:  # a table must have a column of the schema
        return
    table = pa.table(samples)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    read_events(out.getvalue().to_pybytes(), ARROW_TYPES[0], schema, SpaceLimits())


def _match(index: Index, schema: Schema) -> None:
    for n in _BATCHES:
        _take_all(index.match(_lines(schema, n).events))


def _take_all(matches: Matches) -> None:
    assert matches.n_pairs == len(matches.ids) == len(matches.events())


def _serve_few(schema: Schema) -> None:
    """What the first subscriptions of a space call, and those of a consumer that is catching up."""
    schema = Schema.from_dict(schema.to_dict())
    values = _samples(schema)
    terms = [
        f"{quoted_name(name)} = '{several[0]}'"
        if isinstance(several[0], str)
        else f"{quoted_name(name)} between 0 and {_SAMPLES}"
        for name, several in values.items()
    ]
    texts = [term for term in (*terms, " and ".join(terms)) if term] * 3
    subs = Subscriptions.parse(schema, ids=[f"c/{k}" for k in range(len(texts))], texts=texts)
    if not len(subs):
        return
    directory = Directory()
    directory.load(1, subs)
    index = directory.index(schema)
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    for n in _BATCHES:
        lines = b"\n".join(msgspec.json.encode(row) for row in rows[:n])
        found = read_events(lines, LINES_TYPES[0], schema, SpaceLimits())
        matches = index.match(found.events)
        stretches = [PinnedEvents(1, n, 1, found.body.json)]
        for wanted in (None, np.ones(len(directory.consumers) + 1, bool)):
            for frames in match_frames(
                stretches, matches.events(), np.asarray(matches.ids), directory, wanted
            ):
                assert frames.data
    index.delete(np.zeros(1, np.int64))
    index.match(found.events)


def _catch_up(schema: Schema, index: Index, directory: Directory) -> None:
    """What is called for consumers that catch up together: many events at a time, through an index of some of
    the subscriptions, which is of another make than one of few or of all."""
    n = directory.n_entries
    subs = directory.some(np.arange(0, n, max(1, n // _MANY_EVENTS))[:_MANY_EVENTS])
    if subs is None:
        return
    # an event in the corner of each: where nothing matches, less is called
    corners = hulls(subs.boxes, len(subs.schema.attributes)).lows
    places = np.arange(_MANY_EVENTS) % corners.shape[1]
    many = Events.coded(schema, np.ascontiguousarray(corners[:, places]))
    _take_all(index.match(many))
    for some in _SOME:
        held = EntryIndex(directory, schema)
        entries = np.arange(0, n, max(1, n // some))
        for part in (entries[::50], entries[::4], entries[::2], entries):  # as groups meet, it grows
            own = held.of(part)
            _match(own, schema)
        _take_all(own.match(many))


def _send_nothing() -> None:
    none = np.empty(0, np.int64)
    kernels.send_pieces(none, 0, none, none, none)
