"""The errors of queries, and the conversion of failures of query processes to them."""

from __future__ import annotations

from catalog.errors import CatalogError, Invalid, NoSuchTable, TooLarge, Unavailable
from query.pool import PoolBusy, ProcessEnded, QueryError


class QueryFailed(Invalid):
    """DuckDB refused the statement, or failed while it ran it."""

    type = "QueryFailedException"


class TooMuchMemory(TooLarge):
    type = "QueryMemoryExceededException"


class ResultTooLarge(TooLarge):
    type = "QueryResultTooLargeException"


class ProcessLost(CatalogError):
    status = 500
    type = "QueryProcessEndedException"


class Cancelled(CatalogError):
    """The caller or an administrator ended the query."""

    status = 409
    type = "QueryCancelledException"


def as_catalog_error(error: BaseException) -> BaseException:
    if isinstance(error, PoolBusy):
        return Unavailable(str(error))
    if isinstance(error, ProcessEnded):
        return ProcessLost(
            "The query process ended before the query did. It may have needed more memory than it may have; "
            "other queries are not affected"
        )
    if isinstance(error, QueryError):
        if error.type == "OutOfMemoryException":
            return TooMuchMemory(f"The query needs more memory than it may have: {error.message}")
        if error.type == "ResultTooLarge":
            return ResultTooLarge(error.message)
        if error.type == "CatalogException" and error.message.startswith("Catalog Error: Table with name"):
            return NoSuchTable(error.message)
        return QueryFailed(error.message)
    return error
