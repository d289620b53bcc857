"""Who may do what: bearer tokens, kept as hashes in a file, and tickets for browsers.

    {"name": "feed", "hash": "9f86d0...", "scopes": ["publish"], "spaces": ["*"], "consumers": []}

A token is `rc_` and 32 random bytes in letters, shown once when it is made. Its SHA-256 stands in the file:
the token has more randomness than the hash, so nothing slower is needed to keep it from being guessed.

    scope       allows
    publish     to publish events and to match them
    subscribe   to subscribe, stream, poll and acknowledge, for its own consumers (its name, or those listed)
    read        to see schemas, spaces, metrics and the status
    admin       everything

A ticket stands for one connection of one consumer, for half a minute: a browser's EventSource cannot send
headers, and a token in an address would end up in logs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rangecast.errors import OptionError, RangecastError, StorageError

SCOPES = ("publish", "subscribe", "read", "admin")
TICKET_SECONDS = 30.0


@dataclass(frozen=True)
class Access:
    """What the sender of a request may do."""

    name: str
    scopes: frozenset[str]
    spaces: frozenset[str] = frozenset({"*"})
    consumers: frozenset[str] = frozenset({"*"})
    key: str = field(default="", repr=False)
    """The hash of the token, by which it is found again; empty where no tokens are asked for."""

    def may_see(self, space: str) -> bool:
        """Whether the space is one of its own."""
        return bool({"*", space} & self.spaces)

    def check(self, scope: str, space: str | None = None, consumer: str | None = None) -> None:
        """Raise ForbiddenError unless the scope, the space and the consumer are allowed."""
        if "admin" not in self.scopes:
            if scope not in self.scopes:
                raise ForbiddenError(f"the token {self.name!r} has no scope {scope!r}")
            if consumer is not None and not {"*", consumer} & self.consumers:
                raise ForbiddenError(f"the token {self.name!r} is not for the consumer {consumer!r}")
        if space is not None and not self.may_see(space):
            raise ForbiddenError(f"the token {self.name!r} is not for the space {space!r}")


ANYBODY = Access("anybody", frozenset(SCOPES))
"""Where no tokens are asked for: on this machine alone."""


class TokenFile:
    """The tokens of a file; read again when it changes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._read: tuple[int, int, int] | None = None
        self._known: dict[str, Access] = {}
        self.n_reads = 0
        """How often the file was read, which is whenever it has changed."""
        self.refresh()

    def find(self, token: str) -> Access:
        """What a token allows; UnauthorizedError for one that is not known."""
        self.refresh()
        wanted = _hash(token)
        found: Access | None = None
        # every known hash is compared, each in the same time wherever it differs
        for known, access in self._known.items():
            if hmac.compare_digest(known, wanted):
                found = access
        if found is None:
            raise UnauthorizedError("the token is not known")
        return found

    def now(self, access: Access) -> Access:
        """What a token that was let in allows now; UnauthorizedError when it is not in the file any more."""
        found = self._known.get(access.key)
        if found is None:
            raise UnauthorizedError("the token was revoked")
        return found

    def refresh(self) -> None:
        """Read the file if it has changed."""
        try:
            status = self.path.stat()
            state = status.st_mtime_ns, status.st_size, status.st_ino
            if state == self._read:
                return
            lines = self.path.read_text().splitlines()
        except OSError as error:
            raise StorageError(f"{self.path}: the tokens cannot be read: {error.strerror}") from error
        known = {}
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    entry = json.loads(line)
                    known[entry["hash"]] = Access(
                        entry["name"],
                        frozenset(entry["scopes"]),
                        frozenset(entry.get("spaces", ["*"])),
                        frozenset(entry.get("consumers") or [entry["name"]]),
                        entry["hash"],
                    )
                except (ValueError, KeyError, TypeError) as error:
                    raise StorageError(f"{self.path}, line {number}: is not a token: {error!r}") from None
        self._known, self._read = known, state
        self.n_reads += 1


def add_token(
    path: str | os.PathLike[str],
    name: str,
    scopes: Iterable[str],
    spaces: Iterable[str] = ("*",),
    consumers: Iterable[str] = (),
) -> str:
    """Make a token, write its hash to a file, and return it: it cannot be had again."""
    wanted = list(scopes)
    wrong = [scope for scope in wanted if scope not in SCOPES]
    if wrong or not wanted:
        raise OptionError(f"a scope must be one of {', '.join(SCOPES)}, got {', '.join(wrong) or 'none'}")
    token = "rc_" + secrets.token_urlsafe(32)
    entry = {
        "name": name, "hash": _hash(token), "scopes": wanted, "spaces": list(spaces),
        "consumers": list(consumers),
    }  # fmt: skip
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "a") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return token


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def new_ticket() -> str:
    """A ticket that nobody knows yet."""
    return secrets.token_urlsafe(24)


class Tickets:
    """Tickets that were given and not used yet."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[float, str, str, Access]] = {}

    def keep(self, ticket: str, space: str, consumer: str, access: Access) -> None:
        """Know a ticket, for half a minute."""
        now = time.monotonic()
        self._given = {t: entry for t, entry in self._given.items() if entry[0] > now}
        self._given[ticket] = now + TICKET_SECONDS, space, consumer, access

    def use(self, ticket: str, space: str, consumer: str) -> Access:
        """What a ticket allows, once."""
        end, wanted_space, wanted_consumer, access = self._given.pop(ticket, (0.0, "", "", ANYBODY))
        if end < time.monotonic() or (space, consumer) != (wanted_space, wanted_consumer):
            raise UnauthorizedError("the ticket is not known, was used, or is for another consumer")
        return access


# The limits of a space, and how fast somebody may go.


@dataclass(frozen=True)
class SpaceLimits:
    """What a space takes; 0 for a rate means that it is not limited.

    >>> SpaceLimits(boxes=10).changed()
    {'boxes': 10}
    """

    subscriptions: int = 10_000_000
    """Subscriptions of the space."""
    consumer_subscriptions: int = 1_000_000
    """Subscriptions of one consumer."""
    consumer_expressions: int = 64
    """Expressions that one consumer was the first to use; a space has 256 of all consumers together."""
    boxes: int = 1_024
    """Boxes of one condition."""
    connections: int = 20_000
    """Connections of all consumers together."""
    consumer_connections: int = 64
    """Connections of one consumer."""
    body_bytes: int = 64 << 20
    """Bytes of a request, also after it was decompressed."""
    line_bytes: int = 1 << 20
    """Bytes of one event."""
    request_events: int = 1_000_000
    """Events of one request."""
    match_pairs: int = 1_000_000
    """Pairs of an event and a subscription in one answer of `match`."""
    backlog: int = 400_000
    """Events that may wait to be matched."""
    events_per_second: int = 0
    """Per token."""
    changes_per_second: int = 0
    """Changed subscriptions, per token."""
    log_bytes: int = 4 << 30
    """Bytes of the event log; beyond them, its oldest segments are removed."""
    keep_seconds: int = 86_400
    """How long the event log keeps events."""
    segment_bytes: int = 64 << 20
    """Bytes after which the event log begins a new segment."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise OptionError(
                    f"the limit {name!r} must be a whole number and not negative, got {value!r}"
                )

    def changed(self) -> dict[str, int]:
        """The limits that differ from what is usual."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def of(cls, given: dict[str, Any]) -> SpaceLimits:
        """Limits by name; OptionError names one that there is not."""
        known = {f.name for f in fields(cls)}
        extra = sorted(set(given) - known)
        if extra:
            raise OptionError(
                f"there is no limit {', '.join(extra)}; the limits are {', '.join(sorted(known))}"
            )
        return cls(**given)


class Pacer:
    """How much each name has used of its rate: a bucket holds one second, or one request."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def spend(self, name: str, limit: str, rate: int, amount: int, now: float | None = None) -> None:
        """Take from a bucket; BusyError when it is empty."""
        if not rate:
            return
        moment = time.monotonic() if now is None else now
        left, since = self._buckets.get((name, limit), (float(rate), moment))
        left = min(float(rate), left + (moment - since) * rate)
        if left <= 0:
            wait = max(1, int(-left / rate) + 1)
            raise BusyError(f"the limit {limit!r} is {rate:,} per second; send again in {wait} s", wait)
        # one request may be larger than the bucket: what is owed is waited for by the next
        self._buckets[name, limit] = left - amount, moment


# What the broker refuses, and the status of the answer.
#
# BrokerError                400   a request that cannot be understood
# ├── UnauthorizedError      401   no token, or one that nobody knows
# ├── ForbiddenError         403   a token without the scope
# ├── LimitError             403   a limit of the space, named
# ├── NotFoundError          404
# ├── ConflictError          409   it does not fit to what is there
# ├── PreconditionError      412   If-Match
# ├── TooLargeError          413   a body, a line
# ├── UnsupportedError       415   a content type or encoding
# ├── BusyError              429   too much at a time; Retry-After
# └── UnavailableError       503   not ready, or ending


class BrokerError(RangecastError, ValueError):
    """A request that the broker refuses; `status` is that of the answer."""

    status = 400


class UnauthorizedError(BrokerError):
    """No token was given, or one that is not known."""

    status = 401


class ForbiddenError(BrokerError):
    """The token does not allow it."""

    status = 403


class LimitError(BrokerError):
    """A limit of the space is reached."""

    status = 403


class NotFoundError(BrokerError):
    """There is no such thing."""

    status = 404


class ConflictError(BrokerError):
    """The request does not fit to what is there."""

    status = 409


class PreconditionError(BrokerError):
    """What If-Match names is not the present state."""

    status = 412


class TooLargeError(BrokerError):
    """A body or a line is longer than allowed."""

    status = 413


class UnsupportedError(BrokerError):
    """A content type or encoding that is not read."""

    status = 415


class BusyError(BrokerError):
    """More than allowed at a time; `retry_after` seconds later it may be tried again."""

    status = 429

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(BrokerError):
    """The broker is not ready, or is ending; `retry_after` seconds later it may be tried again."""

    status = 503

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after
