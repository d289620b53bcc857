"""The event log as a process sees it that another one writes.

The writer says after each sync how far the log is (`LogMark`); nothing beyond that is read. Records are read
by `pread` from the page cache, and not through a mapping: a file that is cut under a mapping, as after a
write that failed, would kill whoever reads it there.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from rangecast.broker.event_log import EventLog, LogMark, segments_of


class FollowedLog(EventLog):
    """A log that is read up to the last mark, and never written."""

    def __init__(self, folder: str | os.PathLike[str], mark: LogMark) -> None:
        self.folder = Path(folder)
        self.failed = None
        self.cut = 0
        self._lock = threading.Lock()
        self._segments = []
        self.follow(mark)

    def follow(self, mark: LogMark) -> None:
        """Take in what the writer says."""
        segments = self._segments
        if not segments or segments[-1].first != mark.segment or segments[0].first != mark.first:
            known = {segment.first: segment for segment in segments}
            found = [s for s in segments_of(self.folder) if mark.first <= s.first <= mark.segment]
            segments = [known.get(segment.first, segment) for segment in found]
            for segment, fresh in zip(segments[:-1], found, strict=False):
                segment.end = fresh.end  # it grows no more
        if segments and segments[-1].first == mark.segment:
            segments[-1].end = mark.end
        with self._lock:
            self._segments = segments
            self.next = self.durable = mark.durable

    @property
    def first(self) -> int:
        """The sequence number of the oldest event that is still there, or of the next one."""
        segments = self._segments
        return segments[0].first if segments else self.durable

    def close(self) -> None:
        """Nothing is open."""
