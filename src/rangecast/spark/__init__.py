"""The data pipeline on Spark: ingest, publish, match; and reduce by covering.

    DataFrame --ingest--> store (change log, snapshots) --match, match_files, SQL--> matches

Each step is useful alone. All of it works on a classic session and over Spark Connect: closures
carry the path of a snapshot that workers map, and nothing uses sparkContext, RDDs or broadcasts.

    session.py                     a session, and a Java to run it
    ingest.py                      a DataFrame of subscriptions into a store
    reduce.py                      which subscriptions of a DataFrame others cover
    snapshots.py report.py         what is matched against; what was done
    worker.py worker_index.py      what runs in workers, and the index that they keep
    batch/match.py                 a DataFrame of events, and the plan in words
    batch/files.py file_tasks.py   files of events, without the JVM in between
    batch/stripes.py               an index larger than a machine's memory
    batch/sql.py                   match_events(TABLE(events), 'store')
    stream/stream.py               a stream of events, while subscriptions change
    stream/micro_batch.py tasks.py one micro-batch, and one task of it
    stream/event_files.py          files of events as they arrive
    stream/ledger.py               what it writes down so that a replay agrees
    stream/metrics.py              how it does: rates, lag, times, disk
    source/source.py               format("rangecast"): matches as a source, in batch and as a stream
    source/options.py arrivals.py tasks.py   its options, the order of its files, one task of it
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
