"""Compute the difference of a whole warehouse between two moments: which tables changed, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from catalog.api.pagination import Page
from catalog.errors import Invalid, TooLarge
from catalog.models import CatalogEntry, PastEntry
from catalog.moments import AtTime
from catalog.names import Namespace
from catalog.services.catalog import Catalog
from query.tables.moments import warehouse_moment

COMMITS_MAX = 100_000
CHUNK_COMMITS = 1000
KINDS = ("table", "view")

Name = tuple[str, str]  # the key of a namespace, and a name in it


def diff_warehouse(
    catalog: Catalog, warehouse: str, page: Page, from_: str, to: str | None
) -> dict[str, Any]:
    start, start_ms = warehouse_moment(catalog, warehouse, from_, "from")
    end, end_ms = warehouse_moment(catalog, warehouse, to or "now", "to")
    if start > end:
        raise Invalid(f"from (number {start}) is later than to (number {end})")
    if end - start > COMMITS_MAX:
        raise TooLarge(f"There are {end - start} commits between the two moments, more than {COMMITS_MAX}")
    found = sorted(_differences(catalog, warehouse, start, end), key=_order)
    after = tuple(page.after("", "", ""))
    shown, token = page.cut([one for one in found if _order(one) > after], _order)
    return {
        "from": {"number": start, "time": str(AtTime(start_ms))},
        "to": {"number": end, "time": str(AtTime(end_ms))},
        "commits": end - start,
        "entries": shown,
        "next_page_token": token,
    }


def _order(one: dict[str, Any]) -> tuple[str, str, str]:
    return "\x1f".join(one["namespace"]), one["name"], one["uuid"]


def _differences(catalog: Catalog, warehouse: str, start: int, end: int) -> Iterator[dict[str, Any]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(catalog, warehouse, start, end):
        rows.setdefault(row["uuid"], []).append(row)
    names = {(row["namespace"], row["name"]) for found in rows.values() for row in found}
    old, new = (_entries(catalog, warehouse, number, names) for number in (start, end))
    for uuid, touched in rows.items():
        before, after = old.get(uuid), new.get(uuid)
        last = after or before
        if last is None or (before and after and _is_same(before.entry, after.entry)):
            continue  # created and dropped between the moments, or unchanged
        yield _difference(last.entry, before, after, touched)


def _rows(catalog: Catalog, warehouse: str, start: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield the history between the moments, without namespaces."""
    for first in range(start, end, CHUNK_COMMITS):
        rows = catalog.history.events(warehouse, first, min(CHUNK_COMMITS, end - first))
        yield from (row for row in rows if row["kind"] in KINDS)


def _entries(catalog: Catalog, warehouse: str, number: int, names: set[Name]) -> dict[str, PastEntry]:
    """Return the entries of the names at a number, by uuid."""
    found = (catalog.history.entry(warehouse, number, *name) for name in names)
    return {past.entry.uuid: past for past in found if past is not None}


def _is_same(one: CatalogEntry, other: CatalogEntry) -> bool:
    return (one.namespace, one.name, one.metadata_location) == (
        other.namespace,
        other.name,
        other.metadata_location,
    )


def _difference(
    last: CatalogEntry, before: PastEntry | None, after: PastEntry | None, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    old, new = before.detail if before else {}, after.detail if after else {}
    former = [*_levels(before.entry), before.entry.name] if before else []
    is_renamed = after is not None and bool(former) and former != [*_levels(last), last.name]
    change = "created" if before is None else "dropped" if after is None else "changed"
    return {
        "namespace": _levels(last),
        "name": last.name,
        "uuid": last.uuid,
        "kind": last.kind,
        "change": "renamed" if is_renamed else change,
        "renamed_from": former if is_renamed else None,
        "commits": len({row["number"] for row in rows}),
        "operations": sorted({row["operation"] for row in rows}),
        "principals": sorted({row["principal"] for row in rows}),
        "snapshots_added": sum(len(row["detail"].get("added-snapshots", ())) for row in rows),
        "old_snapshot_id": _snapshot(old),
        "new_snapshot_id": _snapshot(new),
        "schema_changed": bool(before and after)
        and old.get("current-schema-id") != new.get("current-schema-id"),
    }


def _levels(entry: CatalogEntry) -> list[str]:
    return list(Namespace.from_key(entry.namespace).levels)


def _snapshot(detail: dict[str, Any]) -> int | None:
    found = detail.get("current-snapshot-id")
    return found if isinstance(found, int) and found >= 0 else None
