"""Errors of the change feed."""

from __future__ import annotations

from catalog.errors import CatalogError


class MustRefetch(CatalogError):
    """The changes after a token are not all there any more: the subscriber reads the tables again."""

    status = 410
    type = "MustRefetchException"


class TooManySubscriptions(CatalogError):
    status = 429
    type = "TooManyRequestsException"
