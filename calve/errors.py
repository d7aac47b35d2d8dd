"""What the client raises. Every class is a CalveError with `message`, `status` and `type` of the response."""

from __future__ import annotations


class CalveError(Exception):
    """The server refused a request, or could not be reached.

    `status` is the HTTP status, None if there was no response. `type` is the class of the error in the
    server's words (`NoSuchTableException`).
    """

    def __init__(self, message: str, *, status: int | None = None, type: str = "") -> None:  # noqa: A002 - the response's own name
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type


class InvalidRequest(CalveError):
    """400, 415, 422: an argument is wrong; the message says which."""


class Unauthorized(CalveError):
    """401: there is no token, or it is wrong or expired."""


class Forbidden(CalveError):
    """403: the token's principal does not have the role that this needs."""


class NotFound(CalveError):
    """404: no such table, namespace, warehouse, row or route."""


class Conflict(CalveError):
    """409: something else changed the same meanwhile."""


class Gone(CalveError):
    """410: the history does not reach back that far."""


class TooLarge(CalveError):
    """413: the request or the result is larger than the server accepts."""


class Unavailable(CalveError):
    """429, 5xx, or no response: it may work later. After a write, it is not known whether it took place."""


class Timeout(Unavailable):
    """504, or no response in time."""


class QueryFailed(CalveError):
    """The SQL is wrong, may not run, was cancelled, or its result broke off."""


class MissingPackage(CalveError, ImportError):
    """A method needs a package that is not installed; the message says which."""


class DeadLetterWarning(UserWarning):
    """Some rows of a write cannot land. The server keeps them as dead letters."""


_BY_STATUS: dict[int, type[CalveError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: InvalidRequest,
    422: InvalidRequest,
    429: Unavailable,
    504: Timeout,
}


def class_of(status: int) -> type[CalveError]:
    """The class for an HTTP status of 400 or more."""
    return _BY_STATUS.get(status, Unavailable if status >= 500 else CalveError)
