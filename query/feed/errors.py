"""Errors of the change feed."""

from __future__ import annotations

from catalog.errors import CatalogError


class MustRefetch(CatalogError):
    """The changes after a token are no longer available: the subscriber must read the tables again."""

    status = 410
    type = "MustRefetchException"


class TooManySubscriptions(CatalogError):
    status = 429
    type = "TooManyRequestsException"
