"""What the broker refuses, and the status of the answer.

BrokerError                400   a request that cannot be understood
├── UnauthorizedError      401   no token, or one that nobody knows
├── ForbiddenError         403   a token without the scope
├── LimitError             403   a limit of the space, named
├── NotFoundError          404
├── ConflictError          409   it does not fit to what is there
├── PreconditionError      412   If-Match
├── TooLargeError          413   a body, a line
├── UnsupportedError       415   a content type or encoding
├── BusyError              429   too much at a time; Retry-After
└── UnavailableError       503   not ready, or ending
"""

from __future__ import annotations

from rangecast.errors import RangecastError


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
