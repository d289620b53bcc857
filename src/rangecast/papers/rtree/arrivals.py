"""Events that arrive one by one: what shortest first does to the mean, to the tail and to long events.

The batch search paper (Wang, Zhang and Kitsuregawa, 2004) weighs the mean response of a batch that is there
at once. Here events arrive as a process and wait for one server, which takes the next one when it is done
with the last: the one that came first, or the one with the least work of those that wait. Shortest first
has the least mean of all orders that do not interrupt; who pays for it are the longest events, which may be
passed again and again.

    process    arrivals
    poisson    gaps drawn from an exponential distribution
    bursts     groups of some events at once, groups as a Poisson process
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError

EventTimes = npt.NDArray[np.float64]
ORDERS = ("arrival", "shortest")


class ResponseTimes(NamedTuple):
    """Response times of many events: mean, tail, the longest, and the mean of the tenth with most work."""

    mean: float
    p99: float
    longest: float
    long_events: float


def poisson(n: int, load: float, service: EventTimes, rng: np.random.Generator) -> EventTimes:
    """Arrivals of n events that keep a server busy for a share `load` of the time."""
    _check_load(load)
    times: EventTimes = np.cumsum(rng.exponential(float(service.mean()) / load, n))
    return times


def bursts(n: int, load: float, service: EventTimes, size: int, rng: np.random.Generator) -> EventTimes:
    """The same load in groups of `size` events that arrive together."""
    _check_load(load)
    if size < 1:
        raise OptionError(f"size must be at least 1, got {size}")
    groups = np.cumsum(rng.exponential(size * float(service.mean()) / load, -(-n // size)))
    times: EventTimes = np.repeat(groups, size)[:n]
    return times


def respond_in(order: str, arrivals: EventTimes, service: EventTimes, estimates: Any = None) -> EventTimes:
    """The response time of each event; the order goes by `estimates`, or else by the service itself.

    >>> respond_in("arrival", np.zeros(2), np.array([5.0, 1.0])).tolist()
    [5.0, 6.0]
    >>> respond_in("shortest", np.zeros(2), np.array([5.0, 1.0])).tolist()
    [6.0, 1.0]
    """
    if order not in ORDERS:
        raise OptionError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    keys = service if estimates is None else np.asarray(estimates, np.float64)
    waiting: list[tuple[float, int]] = []
    responses = np.zeros(len(service))
    now, came = 0.0, 0
    for _ in range(len(service)):
        if not waiting:
            now = max(now, float(arrivals[came]))
        while came < len(arrivals) and arrivals[came] <= now:
            heapq.heappush(waiting, (float(keys[came]) if order == "shortest" else 0.0, came))
            came += 1
        _, event = heapq.heappop(waiting)
        now += float(service[event])
        responses[event] = now - arrivals[event]
    return responses


def summed_up(responses: EventTimes, service: EventTimes) -> ResponseTimes:
    """Mean and tail of the responses, and what the tenth of the events with the most work waits."""
    long = service >= np.quantile(service, 0.9)
    return ResponseTimes(
        float(responses.mean()),
        float(np.quantile(responses, 0.99)),
        float(responses.max()),
        float(responses[long].mean()),
    )


def _check_load(load: float) -> None:
    if not 0 < load < 1:
        raise OptionError(f"load must be above 0 and below 1, got {load}")
