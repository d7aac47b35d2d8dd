"""Names of tables, and the paths that they have in the API. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

TableName = str | Sequence[str]
"""`shop.orders`, or the levels and the name, for names that contain dots: `("shop", "orders")`."""

DEFAULT_NAMESPACE = "default"


def levels_of(table: TableName, namespace: str | None = None) -> tuple[str, ...]:
    """The levels of the namespace, then the name. ValueError if a part is empty."""
    parts = tuple(table.split(".")) if isinstance(table, str) else tuple(table)
    if len(parts) == 1:
        parts = (*(namespace or DEFAULT_NAMESPACE).split("."), *parts)
    if not all(parts):
        raise ValueError(f"{table!r} is not the name of a table: write namespace.name")
    return parts


def namespace_path(levels: Sequence[str], separator: str) -> str:
    return quote(separator.join(levels), safe="")


def table_path(levels: Sequence[str], separator: str) -> str:
    """`namespaces/shop/tables/orders`."""
    return f"namespaces/{namespace_path(levels[:-1], separator)}/tables/{quote(levels[-1], safe='')}"


def dotted(levels: Sequence[str]) -> str:
    return ".".join(levels)
