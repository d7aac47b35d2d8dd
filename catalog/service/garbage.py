"""Dropping a table with its files. Only files that its metadata reaches, and only inside its own places."""

from __future__ import annotations

import logging

import orjson

from catalog.changes import Entry
from catalog.errors import CatalogError
from catalog.names import Identifier
from catalog.service.catalog import Catalog
from catalog.service.states import State
from catalog.service.tables import drop
from catalog.service.writing import Asked

log = logging.getLogger(__name__)


def drop_table(catalog: Catalog, state: State, asked: Asked, identifier: Identifier, *, purge: bool) -> None:
    """Drop; with `purge` the files go too, at once and for ever.

    Inside a transaction they go when it is published.
    """
    entry = drop(catalog, state, asked, identifier, forever=purge)
    if purge and not state.holds_back:
        purge_files(catalog, state.warehouse.root, entry)


def purge_files(catalog: Catalog, root: str, entry: Entry) -> None:
    """Delete the files of a table that is dropped already: what fails now is litter, not a failed drop."""
    from catalog.storage.purge import purge  # brings an Avro reader that a server may never need

    metadata = orjson.loads(entry.document or b"{}")
    try:
        report = purge(catalog.files, metadata, str(entry.metadata_location), root)
        log.info("purged a table", extra={"table": entry.name, "report": str(report)})
    except CatalogError:
        log.exception(
            "could not purge all files of a dropped table",
            extra={"table": entry.name},
        )
