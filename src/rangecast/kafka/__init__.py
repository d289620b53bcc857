"""Kafka without Spark: events from a topic, matches to a topic, subscriptions from a compacted topic.

connection.py        settings, consumers and producers, and the error when something is missing
values.py            formats of values; avro_values.py, protobuf_values.py and registry.py for schemas
messages.py          values of messages to events, and matches to messages
worker.py            one process of a group: consume, match, produce, in one transaction
metrics.py           a worker's counts, lag and times for Prometheus
subscriptions.py     a compacted topic of subscriptions into a store
lag.py               how far a group is behind
spans.py             offsets of a topic: which a batch takes, and reading them again (for Spark)
"""

from rangecast.kafka.lag import Lag, read_lag
from rangecast.kafka.subscriptions import SubscriptionTopic
from rangecast.kafka.worker import TopicMatch, TopicWorker, WorkerCounts

__all__ = ["Lag", "SubscriptionTopic", "TopicMatch", "TopicWorker", "WorkerCounts", "read_lag"]
