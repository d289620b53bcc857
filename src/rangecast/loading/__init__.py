"""The only way in: files, pipes and tables of subscriptions and events; and the files that a run writes.

    formats.py lines.py                     which reader; text files as chunks of whole lines
    csv_files.py jsonl_files.py parquet_files.py   one reader per format, all giving batches (batches.py)
    ids.py                                  which ids are whole numbers: one rule for all
    events.py subscriptions.py              rows become events or subscriptions, or are rejected
    several_files.py                        several files of events as one, by names and patterns
    match_file.py pace.py                   match a file, so many events at a time
    pairs.py rejected.py output.py          what a run writes: matches, rejected rows, files by rename
    inference.py                            guess a schema

A row that cannot be loaded never stops a file and never vanishes: it is in the list of rejected rows.
"""

from __future__ import annotations

from rangecast.loading.batches import RowBatch, RowFile, UnreadRow, format_of
from rangecast.loading.events import EventFile
from rangecast.loading.formats import open_rows
from rangecast.loading.match_file import FileMatch, match_file
from rangecast.loading.output import OutputFile
from rangecast.loading.pairs import PAIR_WRITERS, PairWriter
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
