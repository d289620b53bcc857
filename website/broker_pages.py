"""Pages of the broker's requests and of everybody's metrics."""

from __future__ import annotations

import inspect
from typing import Any

from rangecast.broker.metrics import Metrics
from rangecast.broker.openapi import document
from rangecast.kafka.worker import WorkerMetrics
from rangecast.spark.stream import metrics as stream_metrics


def request(method: str, path: str, operation: dict[str, Any]) -> str:
    """One request of the OpenAPI document."""
    parts = [f"### {method.upper()} {path}", operation["summary"]]
    rows = [
        f"| `{parameter['name']}` | {parameter['in']} | {parameter['schema']['type']} |"
        for parameter in operation["parameters"]
    ]
    if rows:
        parts.append("\n".join(["| parameter | in | type |", "|---|---|---|", *rows]))
    if "requestBody" in operation:
        kinds = ", ".join(f"`{kind}`" for kind in operation["requestBody"]["content"])
        parts.append(f"Body: {kinds}.")
    answers = ", ".join(f"`{kind}`" for kind in operation["responses"]["200"]["content"])
    parts.append(f"Answer: {answers}.")
    return "\n\n".join(parts)


def http_page() -> str:
    """All requests, as the broker's own document has them."""
    paths: dict[str, dict[str, Any]] = document()["paths"]
    groups: dict[str, list[str]] = {"Spaces": [], "The broker": []}
    for path, methods in paths.items():
        group = "Spaces" if "{space}" in path else "The broker"
        groups[group] += [request(method, path, operation) for method, operation in methods.items()]
    parts = [
        "# HTTP",
        "A broker serves this list itself, as an OpenAPI document at `/openapi.json`. An error is a JSON "
        "object `error` with a `type` and a `message`. [The broker's interface](../broker-api.md) explains "
        "the requests.",
    ]
    for group, texts in groups.items():
        parts += [f"## {group}", *texts]
    return "\n\n".join(parts) + "\n"


def metrics_page() -> str:
    """What the broker, a worker on a Kafka topic and a stream tell of themselves."""
    ending = {"counter": "_total"}
    broker = [
        f"| `{family.name}{ending.get(family.type, '')}` | {family.type} | {family.documentation}. |"
        for family in Metrics().registry.collect()
    ]
    kafka = inspect.cleandoc(WorkerMetrics.__doc__ or "").split("\n\n")[1]
    stream = inspect.cleandoc(stream_metrics.__doc__ or "")
    parts = [
        "# Metrics",
        "## Of a broker",
        "`GET /metrics` gives them in the text format of Prometheus; each has the label `space`.",
        "\n".join(["| name | kind | meaning |", "|---|---|---|", *broker]),
        "## Of a worker on a Kafka topic",
        "`rangecast kafka match --metrics HOST:PORT` serves them.",
        f"```text\n{inspect.cleandoc(kafka)}\n```",
        "## Of a stream on Spark",
        stream,
    ]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    return {"http.md": http_page(), "metrics.md": metrics_page()}
