"""Dropping a table with its files. Only files that its metadata reaches, and only inside its own places."""

from __future__ import annotations

from catalog.names import Identifier
from catalog.service.catalog import Catalog
from catalog.service.states import State
from catalog.service.tables import drop
from catalog.service.writing import Asked


def drop_table(catalog: Catalog, state: State, asked: Asked, identifier: Identifier, *, purge: bool) -> None:
    """Drop; with `purge` the files go too, for ever, and soon (`purging.py`).

    Inside a transaction they go when it is published.
    """
    entry = drop(catalog, state, asked, identifier, forever=purge)
    if purge and not state.holds_back:
        catalog.purging.soon(state.warehouse.name, [entry.uuid])
