"""Kafka without Spark: events from a topic, matches to a topic, subscriptions from a compacted topic.

connection.py      settings, consumers and producers, and what is said when something is missing
messages.py        values of messages to events, and matches to messages
worker.py          one process of a group: consume, match, produce, in one transaction
subscriptions.py   a compacted topic of subscriptions into a store
lag.py             how far a group is behind
"""

from rangecast.kafka.lag import Lag, read_lag
from rangecast.kafka.subscriptions import SubscriptionTopic
from rangecast.kafka.worker import TopicMatch, TopicWorker, WorkerCounts

__all__ = ["Lag", "SubscriptionTopic", "TopicMatch", "TopicWorker", "WorkerCounts", "read_lag"]
