"""Everything the catalog refuses, as one tree.

    CatalogError
    ├── Invalid                    400  the request cannot be understood or is against the spec
    │   └── IllegalArgument        400  the same, with the bare message (Java clients add no prefix)
    ├── NotAuthorized              401  no caller, or a token that is wrong or over
    ├── Forbidden                  403  a known caller without the right, or a read-only warehouse
    ├── NotFound                   404
    │   ├── NoSuchWarehouse
    │   ├── NoSuchNamespace
    │   ├── NoSuchTable
    │   ├── NoSuchView
    │   ├── NoSuchTransaction
    │   └── FileNotFound                a file that metadata points to is gone
    ├── Unsupported                406
    ├── Conflict                   409
    │   ├── AlreadyExists
    │   ├── NamespaceNotEmpty
    │   └── CommitFailed                surely did not happen
    │       └── RequirementFailed       final: never retried by the server
    ├── TooLarge                   413
    ├── Unprocessable              422
    ├── CommitStateUnknown         500  may have happened; clients must look before they retry
    ├── Unavailable                503  could not be done now; try again after `retry_after_s`
    │   └── NotWritten             503  ... and it is known that it has not happened before either
    └── DeadlineExceeded           504  may have happened

Raised by the pure core and the services; `catalog/api/errors.py` is the only place that turns one into HTTP.
A message says what is wrong and, where it is not plain, what to do.
"""

from __future__ import annotations


class CatalogError(Exception):
    """The root: `status` and `type` are what goes on the wire."""

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
