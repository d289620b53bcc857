"""The data pipeline on Spark: ingest, publish, match; and reduce by covering.

    DataFrame --ingest--> store (change log, snapshots) --match, match_files, SQL--> matches

Each step is useful alone. All of it works on a classic session and over Spark Connect: closures
carry the path of a snapshot that workers map, and nothing uses sparkContext, RDDs or broadcasts.

    session.py                     a session, and a Java to run it
    ingest.py ingest.py      a DataFrame of subscriptions into a store
    match.py worker.py             a DataFrame of events
    files.py file_tasks.py         files of events, without the JVM in between
    source.py options.py tasks.py arrivals.py
                                   format("rangecast"): matches as a source, in batch and as a stream
    stream.py micro_batch.py       a stream of events, while subscriptions change
    tasks.py following.py   what its workers do, and the index that they keep
    event_files.py                 files of events as they arrive
    ledger.py                      what it writes down so that a replay agrees
    metrics.py                     how it does: rates, lag, times, disk
    reduce.py reduce.py      which subscriptions of a DataFrame others cover
    stripes.py explain.py          an index larger than a machine's memory; the plan in words
    sql.py                         match_events(TABLE(events), 'store')
    snapshots.py report.py         what is matched against; what was done
"""

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError:
    raise ImportError("rangecast.spark needs PySpark and a Java: pip install 'rangecast[spark]'") from None

from rangecast.spark.batch.files import match_files
from rangecast.spark.batch.match import explain, match
from rangecast.spark.batch.sql import register_sql
from rangecast.spark.ingest import ingest
from rangecast.spark.reduce import ReducedFrame as Reduction
from rangecast.spark.reduce import reduce
from rangecast.spark.report import Report
from rangecast.spark.session import session
from rangecast.spark.source.source import register_source
from rangecast.spark.stream.event_files import read_events
from rangecast.spark.stream.metrics import StreamMetrics, StreamStatus, stream_status, watch_stream
from rangecast.spark.stream.stream import committed, match_stream, read_matches, read_rejects

__all__ = [
    "Reduction",
    "Report",
    "StreamMetrics",
    "StreamStatus",
    "committed",
    "explain",
    "ingest",
    "match",
    "match_files",
    "match_stream",
    "read_events",
    "read_matches",
    "read_rejects",
    "reduce",
    "register_source",
    "register_sql",
    "session",
    "stream_status",
    "watch_stream",
]
