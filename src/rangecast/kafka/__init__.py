"""Kafka without Spark: events from a topic, matches to a topic, subscriptions from a compacted topic.

connection.py        settings, consumers and producers, and the error when something is missing
formats.py           formats of values: JSON, Avro, Protobuf, and schemas by their ids
messages.py          values of messages to events, and matches to messages
worker.py            one process of a group: consume, match, produce, in one transaction; its counts and lag
subscriptions.py     a compacted topic of subscriptions into a store
spans.py             offsets of a topic: which a batch takes, and reading them again (for Spark)
"""

from rangecast.kafka.subscriptions import SubscriptionTopic
from rangecast.kafka.worker import Lag, TopicMatch, TopicWorker, WorkerCounts, read_lag

__all__ = ["Lag", "SubscriptionTopic", "TopicMatch", "TopicWorker", "WorkerCounts", "read_lag"]
