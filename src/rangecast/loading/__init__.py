"""The only way in: files, pipes and tables of subscriptions and events; and the files that a run writes.

    formats.py files.py json.py   one reader per format, all giving batches; text files as chunks of whole
                                  lines
    ids.py                        which ids are whole numbers: one rule for all
    events.py subscriptions.py    rows become events or subscriptions, or are rejected; several files as one
    match_file.py                 match a file, so many events at a time
    pairs.py rejected.py          what a run writes: matches, rejected rows, files by rename
    infer.py                      guess a schema

A row that cannot be loaded never stops a file and never vanishes: it is in the list of rejected rows.
"""

from __future__ import annotations

from rangecast.loading.events import EventFile
from rangecast.loading.files import RowBatch, RowFile, UnreadRow, format_of
from rangecast.loading.formats import open_rows
from rangecast.loading.match_file import FileMatch, match_file
from rangecast.loading.pairs import PAIR_WRITERS, OutputFile, PairWriter
from rangecast.loading.rejected import RejectedRow, Rejects
from rangecast.loading.subscriptions import load_subscriptions

__all__ = [
    "PAIR_WRITERS",
    "EventFile",
    "FileMatch",
    "OutputFile",
    "PairWriter",
    "RejectedRow",
    "Rejects",
    "RowBatch",
    "RowFile",
    "UnreadRow",
    "format_of",
    "load_subscriptions",
    "match_file",
    "open_rows",
]
