"""Pages of a list, for the specification's lists and those under `/lake/v1`.

The parameters are `pageToken` and `pageSize`, and the response has `next-page-token`. A token contains the
sort key of the last entry of its page and a hash of its list; it is opaque to clients. A list of the
specification is returned whole if the request has no `pageToken`; a list of Calve is always paged.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field

from catalog.api.dependencies import CatalogDep, raw_query
from catalog.errors import Invalid

T = TypeVar("T")

INTEGER_MAX = 2**62
EVERYTHING = 1_000_000_000


class Paged(BaseModel):
    """The field that every list has beside its entries."""

    next_page_token: str | None = Field(
        None,
        serialization_alias="next-page-token",
        description="Pass this as `pageToken` for the next page; null on the last page",
    )


class Page:
    """The page that a request selects."""

    def __init__(self, list_hash: str, token: str, size: int) -> None:
        self.size = size
        self._list_hash = list_hash
        self._token = token

    @property
    def rows_max(self) -> int:
        """The number of rows to fetch: one more than the page has, to see whether there is a next page."""
        return self.size + 1

    def after(self, *first: int | str) -> Any:
        """The sort key of the last entry of the previous page; `first` for the first page."""
        if not self._token:
            return first
        values = _decode(self._token)
        types = [str, *(type(value) for value in first)]
        if (
            [type(value) for value in values] != types
            or values[0] != self._list_hash
            or not all(map(_is_valid, values))
        ):
            raise Invalid("pageToken is not one that this list gave out: begin again with an empty pageToken")
        return tuple(values[1:])

    def cut(self, rows: Sequence[T], key: Callable[[T], tuple[int | str, ...]]) -> tuple[list[T], str | None]:
        """The entries of the page, and the token of the next one."""
        if len(rows) <= self.size:
            return list(rows), None
        shown = list(rows[: self.size])
        token = base64.urlsafe_b64encode(orjson.dumps([self._list_hash, *key(shown[-1])]))
        return shown, token.decode().rstrip("=")


def _decode(token: str) -> list[Any]:
    try:
        value = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError):
        return []
    return value if isinstance(value, list) else []


def _is_valid(value: int | str) -> bool:
    return "\0" not in value if isinstance(value, str) else 0 <= value <= INTEGER_MAX


_TOKEN = Query(alias="pageToken", description="`next-page-token` of the previous page; empty for the first")
_SIZE = Query(alias="pageSize", ge=1, description="Maximum number of entries; the server has a limit")
PageSize = Annotated[int | None, _SIZE]


async def page(
    request: Request, catalog: CatalogDep, page_token: Annotated[str, _TOKEN] = "", page_size: PageSize = None
) -> Page:
    size_max = catalog.limits.page_size_max
    return Page(_list_hash(request), page_token, min(page_size or size_max, size_max))


async def spec_page(
    request: Request,
    catalog: CatalogDep,
    page_token: Annotated[str | None, _TOKEN] = None,
    page_size: PageSize = None,
) -> Page:
    if page_token is None:
        return Page(_list_hash(request), "", EVERYTHING)
    return await page(request, catalog, page_token, page_size)


def _list_hash(request: Request) -> str:
    """Binds a token to its list. The namespaces below each parent are a separate list."""
    list_name = f"{request.scope['path']}\0{raw_query(request, 'parent')}"
    return hashlib.blake2b(list_name.encode(), digest_size=6).hexdigest()


PageDep = Annotated[Page, Depends(page)]
SpecPageDep = Annotated[Page, Depends(spec_page)]
