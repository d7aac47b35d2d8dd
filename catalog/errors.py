"""The exceptions of the catalog.

    CatalogError
    ├── Invalid                    400  the request is malformed or violates the specification
    │   └── IllegalArgument        400  the same, with the bare message (Java clients add no prefix)
    ├── NotAuthorized              401  no token, or one that is not valid
    ├── Forbidden                  403  the caller's role does not allow it, or the warehouse is read-only
    ├── NotFound                   404
    │   ├── NoSuchWarehouse
    │   ├── NoSuchNamespace
    │   ├── NoSuchTable
    │   ├── NoSuchView
    │   ├── NoSuchTransaction
    │   └── FileNotFound                a file that metadata refers to is missing
    ├── Unsupported                406
    ├── Conflict                   409
    │   ├── AlreadyExists
    │   ├── NamespaceNotEmpty
    │   └── CommitFailed                the change was not written
    │       └── RequirementFailed       the server does not retry it
    ├── TooLarge                   413
    ├── Unprocessable              422
    ├── CommitStateUnknown         500  the change may have been written; clients must check
    ├── Unavailable                503  not possible now; try again after `retry_after_s`
    │   └── NotWritten             503  the change was not written, not even by an earlier request
    └── DeadlineExceeded           504  the work may still be running

The metadata engine and the services raise them; `catalog/api/errors.py` turns them into HTTP responses. A
message says what is wrong and, unless that is obvious, what to do.
"""

from __future__ import annotations


class CatalogError(Exception):
    """The base class. `status` and `type` are sent to the client."""

    status = 500
    type = "InternalServerError"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Invalid(CatalogError):
    status = 400
    type = "BadRequestException"


class IllegalArgument(Invalid):
    type = "IllegalArgumentException"


class NotAuthorized(CatalogError):
    status = 401
    type = "NotAuthorizedException"


class Forbidden(CatalogError):
    status = 403
    type = "ForbiddenException"


class NotFound(CatalogError):
    status = 404
    type = "NotFoundException"


class NoSuchWarehouse(NotFound):
    type = "NoSuchWarehouseException"


class NoSuchNamespace(NotFound):
    type = "NoSuchNamespaceException"


class NoSuchTable(NotFound):
    type = "NoSuchTableException"


class NoSuchView(NotFound):
    type = "NoSuchViewException"


class NoSuchTransaction(NotFound):
    type = "NoSuchTransactionException"


class FileNotFound(NotFound):
    type = "NotFoundException"


class Unsupported(CatalogError):
    status = 406
    type = "UnsupportedOperationException"


class Conflict(CatalogError):
    status = 409
    type = "ConflictException"


class AlreadyExists(Conflict):
    type = "AlreadyExistsException"


class NamespaceNotEmpty(Conflict):
    type = "NamespaceNotEmptyException"


class CommitFailed(Conflict):
    type = "CommitFailedException"


class RequirementFailed(CommitFailed):
    pass


class TooLarge(CatalogError):
    status = 413
    type = "PayloadTooLargeException"


class Unprocessable(CatalogError):
    status = 422
    type = "UnprocessableEntityException"


class CommitStateUnknown(CatalogError):
    status = 500
    type = "CommitStateUnknownException"


class Unavailable(CatalogError):
    status = 503
    type = "ServiceUnavailableException"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotWritten(Unavailable):
    pass


class DeadlineExceeded(CatalogError):
    status = 504
    type = "GatewayTimeoutException"
