"""The data pipeline on Spark: ingest, publish, match; and reduce by covering.

    DataFrame --ingest--> store (change log, snapshots) --match, files, SQL, streams--> matches

Each step is useful alone. All of it works on a classic session and over Spark Connect: closures
carry the path of a snapshot that workers map, and nothing needs sparkContext, RDDs or broadcasts. File
mode has its tasks as an RDD where one machine does all, since that is cheaper.

    session.py                 a session, and a Java to run it
    output.py                  what comes out of matching, for every mode: Output, and Answer for workers
    version_policy.py          which version of a store a batch is matched against, for both streams
    snapshots.py               whatever subscriptions were given, as one saved index; the users' own columns
                               of them
    stripes.py                 where the space is cut into stripes, and the files of each: found, built,
                               brought forward
    worker.py                  what a worker keeps of an index, how it answers a batch, and what went wrong
                               in it
    doctor.py                  what the workers of a cluster are like, with a sentence for each trouble
    report.py                  what a step did
    ingest.py                  a DataFrame or files of subscriptions into a store: the driver's part
    ingest_tasks.py            its tasks: find words, parse, put fragments of the change
    reduce.py                  which subscriptions of a DataFrame others cover
    batch/match.py             match a DataFrame of events, whole or in stripes, or by SQL; explain
    batch/tables.py            what must be merged into a table of matches
    batch/files.py             match files of events, without the JVM in between: the driver's part
    batch/file_tasks.py        the workers' part: one unit of files
    stream/stream.py           match a stream of events while subscriptions change; read what it wrote; files
                               as a stream
    stream/micro_batch.py      one micro-batch: pin, match, put in place, commit
    stream/tasks.py            its workers' part, whole or in stripes
    stream/kafka_sink.py       its matches to a Kafka topic, each once
    stream/tracking.py         what objects enter and leave: their states, batch by batch
    stream/ledger.py           what is written down so that a batch that is run again agrees, and where its
                               files are put
    stream/metrics.py          how a stream does: rates, lag, times, disk
    source/source.py           format("rangecast"): matches as a source; versions, offsets, checkpoints
    source/options.py          its options and columns
    source/arrivals.py         its log of files, which gives a file its number
    source/tasks.py            its workers' part
    source/topic.py            format("rangecast-kafka"): the matches of a Kafka topic's events, options and
                               tasks

Words: a *run* is one call of match_files, with a *plan* that is fixed when it begins; a *stream* is cut
into *batches* by Spark, each *pinned* to a version; a *source* is what Spark reads from.
"""

from rangecast.errors import extra_hint

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError:
    raise ImportError(f"rangecast.spark needs PySpark and a Java: {extra_hint('spark')}") from None

from rangecast.spark.batch.files import match_files
from rangecast.spark.batch.match import explain, match, register_sql
from rangecast.spark.batch.tables import TableRefresh, begin_refresh, table_changes
from rangecast.spark.ingest import ingest
from rangecast.spark.output import Output
from rangecast.spark.reduce import ReducedFrame as Reduction
from rangecast.spark.reduce import reduce
from rangecast.spark.report import Report
from rangecast.spark.session import session
from rangecast.spark.snapshots import payload
from rangecast.spark.source.source import register_source
from rangecast.spark.source.topic import read_kafka
from rangecast.spark.stream.kafka_sink import kafka_sink
from rangecast.spark.stream.metrics import StreamMetrics, StreamStatus, stream_status, watch_stream
from rangecast.spark.stream.stream import (
    committed,
    match_stream,
    read_events,
    read_matches,
    read_rejects,
    track,
)

__all__ = [
    "Output",
    "Reduction",
    "Report",
    "StreamMetrics",
    "StreamStatus",
    "TableRefresh",
    "begin_refresh",
    "committed",
    "explain",
    "ingest",
    "kafka_sink",
    "match",
    "match_files",
    "match_stream",
    "payload",
    "read_events",
    "read_kafka",
    "read_matches",
    "read_rejects",
    "reduce",
    "register_source",
    "register_sql",
    "session",
    "stream_status",
    "table_changes",
    "track",
    "watch_stream",
]
