"""Which tables can be followed: those that have a changes table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from catalog.errors import Conflict, NoSuchTable
from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState
from ingest.store.tables import CHANGES_SUFFIX
from query.feed.filters import Filter, Levels

if TYPE_CHECKING:
    from query.tables.access import TableOpener

LISTED_AT_ONCE = 1000


class FollowedTables:
    """These functions block: they read SQL and files."""

    def __init__(self, catalog: Catalog, opener: Callable[[], TableOpener]) -> None:
        self._catalog = catalog
        self._opener = opener

    def at(self, warehouse: str, wanted: Filter, number: int) -> list[Levels]:
        """Return the requested tables that have a changes table at the number. Conflict or NoSuchTable for a
        named table that has none.
        """
        state = self._catalog.state(WarehouseRef(warehouse, at=str(number)))
        found = {levels for levels in wanted.names if _require_followed(state, levels)}
        if wanted.has_patterns:
            found.update(levels for levels in _listed(state) if wanted.matches_table(levels))
        return sorted(found, key="\x1f".join)

    def require_columns(self, warehouse: str, levels: Levels, wanted: Filter) -> None:
        """Raise Invalid if the predicate or the columns do not fit a table."""
        if wanted.where is None and not wanted.columns:
            return
        from query.tables.predicates import parsed_where
        from query.tables.reading import require_columns

        identifier = Identifier(Namespace(levels[:-1]), levels[-1])
        schema = self._opener().access(warehouse, identifier).current().schema()
        parsed_where(wanted.where, schema)
        require_columns(schema, wanted.columns)


def _require_followed(state: WarehouseState, levels: Levels) -> bool:
    namespace, name = Namespace(levels[:-1]), levels[-1]
    for found in (name, name + CHANGES_SUFFIX):
        entry = state.entry(namespace.key, found)
        if entry is not None and entry.kind == "table":
            continue
        if found == name:
            raise NoSuchTable(f"Table does not exist: {'.'.join(levels)}")
        raise Conflict(
            f"{'.'.join(levels)} has no table {found}: only changes that come through /cdc are kept row by "
            "row. Use diff to compare two moments"
        )
    return True


def _listed(state: WarehouseState) -> Iterator[Levels]:
    """Return all tables that have a changes table."""
    waiting = [""]
    while waiting:
        parent = waiting.pop()
        waiting += _pages(lambda after, above=parent: state.children(above, after, LISTED_AT_ONCE))  # type: ignore[misc]
        if parent:
            names = set(_pages(lambda after, key=parent: state.names(key, "table", after, LISTED_AT_ONCE)))  # type: ignore[misc]
            levels = Namespace.from_key(parent).levels
            yield from ((*levels, name) for name in names if name + CHANGES_SUFFIX in names)


def _pages(page: Callable[[str], list[str]]) -> list[str]:
    found: list[str] = []
    while chunk := page(found[-1] if found else ""):
        found += chunk
        if len(chunk) < LISTED_AT_ONCE:
            break
    return found
