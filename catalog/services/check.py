"""`calve check` compares the rows with the metadata files and checks the invariants of every document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalog.errors import CatalogError, FileNotFound
from catalog.metadata.document import decode_metadata, with_defaults
from catalog.metadata.invariants import violations
from catalog.metadata.view_invariants import view_violations
from catalog.models import CatalogEntry
from catalog.names import Namespace
from catalog.services.catalog import Catalog
from catalog.services.writes import encode_metadata

PAGE_ROWS = 200


@dataclass(slots=True)
class Finding:
    """One table or view, and the problems found in it."""

    warehouse: str
    name: str
    problems: list[str] = field(default_factory=list)
    repaired: str | None = None


def check(catalog: Catalog, *, repair: bool = False) -> Iterator[Finding]:
    """Check every table and view of every warehouse."""
    for warehouse in catalog.warehouses.all():
        namespace, name = "", ""
        while True:
            rows = catalog.records.entries_after(warehouse.name, namespace, name, PAGE_ROWS)
            for entry in rows:
                if entry.kind != "namespace":
                    yield _check_entry(catalog, warehouse.name, entry, repair)
            if len(rows) < PAGE_ROWS:
                break
            namespace, name = rows[-1].namespace, rows[-1].name


def _check_entry(catalog: Catalog, warehouse: str, entry: CatalogEntry, repair: bool) -> Finding:
    finding = Finding(warehouse, f"{Namespace.from_key(entry.namespace)}.{entry.name}")
    document = entry.document or b""
    try:
        metadata = orjson.loads(document)
    except orjson.JSONDecodeError:
        finding.problems.append("the document of the row cannot be read")
        return finding
    found = violations(metadata) if entry.kind == "table" else view_violations(metadata)
    finding.problems += found
    if metadata.get(f"{entry.kind}-uuid") != entry.uuid:
        finding.problems.append("the row and its document name different uuids")
    location = str(entry.metadata_location)
    try:
        if _as_stored(entry, decode_metadata(location, catalog.files.read(location))) != metadata:
            finding.problems.append(f"the file {location} differs from the row")
    except FileNotFound:
        if repair:
            catalog.files.create(location, *encode_metadata(location, document))
            finding.repaired = location
        else:
            finding.problems.append(f"the file {location} is missing (--repair writes it again)")
    except (CatalogError, orjson.JSONDecodeError) as error:
        finding.problems.append(f"the file {location} cannot be read: {error}")
    return finding


def _as_stored(entry: CatalogEntry, text: bytes) -> Any:
    """The content of the file in the form that the row stores: registering an old file adds default
    values.
    """
    found = orjson.loads(text)
    is_table = entry.kind == "table" and isinstance(found, dict)
    return with_defaults(found, table_uuid=entry.uuid) if is_table else found
