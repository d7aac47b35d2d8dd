"""Pages of the lists under `/lake/v1`, in the words of the spec: `pageToken`, `pageSize`, `next-page-token`.

An answer never holds more than a page, asked for or not, and says whether there is more. A token names the
last entry of its page by what the list is sorted by, and the list it belongs to; it is opaque to clients.
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

from catalog.api.lake.access import CatalogOf
from catalog.errors import Invalid

T = TypeVar("T")

INTEGER_MAX = 2**62


class Paged(BaseModel):
    """What every list has beside its entries."""

    next_page_token: str | None = Field(
        None,
        serialization_alias="next-page-token",
        description="Pass this as `pageToken` to go on; null on the last page",
    )


class Page:
    """The page that a request asks for."""

    def __init__(self, mark: str, token: str, size: int) -> None:
        self.size = size
        self._mark = mark
        self._token = token

    @property
    def rows_max(self) -> int:
        """How many to fetch: one more than fit shows that there is another page."""
        return self.size + 1

    def after(self, *first: int | str) -> Any:
        """What the last page ended with; without one, `first`, which stands before every entry."""
        if not self._token:
            return first
        values = _decoded(self._token)
        kinds = [str, *(type(value) for value in first)]
        if (
            [type(value) for value in values] != kinds
            or values[0] != self._mark
            or not all(map(_sane, values))
        ):
            raise Invalid("pageToken is not one that this list gave out: begin again with an empty pageToken")
        return tuple(values[1:])

    def cut(self, rows: Sequence[T], key: Callable[[T], tuple[int | str, ...]]) -> tuple[list[T], str | None]:
        """The entries of the page, and the token of the next one."""
        if len(rows) <= self.size:
            return list(rows), None
        shown = list(rows[: self.size])
        return shown, base64.urlsafe_b64encode(orjson.dumps([self._mark, *key(shown[-1])])).decode().rstrip(
            "="
        )


def _decoded(token: str) -> list[Any]:
    try:
        value = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError):
        return []
    return value if isinstance(value, list) else []


def _sane(value: int | str) -> bool:
    return "\0" not in value if isinstance(value, str) else 0 <= value <= INTEGER_MAX


def _page(
    request: Request,
    catalog: CatalogOf,
    page_token: Annotated[
        str, Query(alias="pageToken", description="`next-page-token` of the page before; empty for the first")
    ] = "",
    page_size: Annotated[
        int | None,
        Query(alias="pageSize", ge=1, description="Most entries to answer; the server has a limit"),
    ] = None,
) -> Page:
    # The path is the list: a token of another one is refused instead of answering nonsense.
    mark = hashlib.blake2b(request.scope["path"].encode(), digest_size=6).hexdigest()
    size_max = catalog.limits.page_size_max
    return Page(mark, page_token, min(page_size or size_max, size_max))


PageOf = Annotated[Page, Depends(_page)]
