"""The data pipeline on Spark: ingest, publish, match; and reduce by covering.

    DataFrame --ingest--> store (change log, snapshots) --match, files, SQL, streams--> matches

Each step is useful alone. All of it works on a classic session and over Spark Connect: closures
carry the path of a snapshot that workers map, and nothing needs sparkContext, RDDs or broadcasts. File
mode has its tasks as an RDD where one machine does all, since that is cheaper.

    session.py                 a session, and a Java to run it
    output.py                  what comes out of matching, for every mode: Output, and Answer for workers
    version_policy.py          which version of a store a batch is matched against, for both streams
    snapshots.py               whatever subscriptions were given, as one saved index
    shipped.py                 saved indexes that Spark brings to the workers
    cuts.py                    where the space is cut into stripes, and what is in which
    stripe_files.py            the stripes of a version: found, built by the workers, brought forward
    worker.py                  what a worker keeps of an index, and how it answers a batch of events
    doctor.py                  what the workers of a cluster are like, with a sentence for each trouble
    failures.py                what went wrong in the workers, in our own words
    report.py                  what a step did
    ingest.py                  a DataFrame of subscriptions into a store: the driver's part
    ingest_tasks.py            its tasks: find words, parse, put fragments of the change
    small_inputs.py            inputs that the driver reads and parses by itself
    payload.py                 the users' own columns of subscriptions, to be joined with matches
    object_parts.py            Parquet objects of a bucket as a DataFrame, read by the workers
    subscription_files.py      files of subscriptions as a DataFrame
    reduce.py                  which subscriptions of a DataFrame others cover
    batch/match.py             match a DataFrame of events; explain
    batch/stripes.py           the same with an index larger than a machine's memory
    batch/sql.py               match_events(TABLE(events), 'store')
    batch/tables.py            what must be merged into a table of matches
    batch/files.py             match files of events, without the JVM in between: the driver's part
    batch/file_tasks.py        the workers' part: one unit of files
    stream/stream.py           match a stream of events while subscriptions change; read what it wrote
    stream/event_files.py      files of events as a stream, as they arrive
    stream/micro_batch.py      one micro-batch: pin, match, put in place, commit
    stream/tasks.py            its workers' part
    stream/striped.py          the same against a store in stripes
    stream/kafka_sink.py       its matches to a Kafka topic, each once
    stream/tracking.py         what objects enter and leave: their states, batch by batch
    stream/ledger.py           what is written down so that a batch that is run again agrees
    stream/batch_files.py      where the files of a batch are staged and put, in folders and buckets
    stream/metrics.py          how a stream does: rates, lag, times, disk
    source/store_source.py     what every source does with its store: versions, offsets, checkpoints
    source/source.py           format("rangecast"): matches as a source, in batch and as a stream
    source/options.py          its options and columns
    source/arrivals.py         its log of files, which gives a file its number
    source/tasks.py            its workers' part
    source/topic_source.py     format("rangecast-kafka"): the matches of a Kafka topic's events
    source/topic_options.py    its options and columns
    source/topic_tasks.py      its workers' part

Words: a *run* is one call of match_files, with a *plan* that is fixed when it begins; a *stream* is cut
into *batches* by Spark, each *pinned* to a version; a *source* is what Spark reads from.
"""

from rangecast.errors import extra_hint

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError:
    raise ImportError(f"rangecast.spark needs PySpark and a Java: {extra_hint('spark')}") from None

from rangecast.spark.batch.files import match_files
from rangecast.spark.batch.match import explain, match
from rangecast.spark.batch.sql import register_sql
from rangecast.spark.batch.tables import TableRefresh, begin_refresh, table_changes
from rangecast.spark.ingest import ingest
from rangecast.spark.output import Output
from rangecast.spark.payload import payload
from rangecast.spark.reduce import ReducedFrame as Reduction
from rangecast.spark.reduce import reduce
from rangecast.spark.report import Report
from rangecast.spark.session import session
from rangecast.spark.source.source import register_source
from rangecast.spark.source.topic import read_kafka
from rangecast.spark.stream.event_files import read_events
from rangecast.spark.stream.kafka_sink import kafka_sink
from rangecast.spark.stream.metrics import StreamMetrics, StreamStatus, stream_status, watch_stream
from rangecast.spark.stream.stream import committed, match_stream, read_matches, read_rejects, track

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
