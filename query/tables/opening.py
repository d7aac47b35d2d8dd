"""Open PyIceberg tables for a request, without HTTP.

PyIceberg loads and commits a table through its catalog. Here that catalog is this server: `ServerCatalog`
reads the table from the services and commits through `catalog/services/commits`, after the route has checked
the rights of the caller. A RestCatalog over HTTP would need the caller's token, the server's own address, and
a second thread for each request; this needs none of them, and one commit is one request in the logs.

Files are read and written with the server's own storage keys. So `WarehouseFileIO` refuses every location
outside the warehouse: a forged manifest cannot make the server read the files of other tenants.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ResolveError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate

from catalog import locations
from catalog.errors import CommitFailed, FileNotFound, Forbidden, Invalid
from catalog.models import CatalogEntry, Warehouse
from catalog.services import commits, tables
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import WriteContext
from query.tables.access import TableAccess


class WarehouseFileIO(PyArrowFileIO):
    """Files of one warehouse, and no others."""

    def __init__(self, warehouse: Warehouse, properties: Mapping[str, str]) -> None:
        super().__init__(dict(properties))
        self._warehouse = warehouse

    def new_input(self, location: str) -> PyArrowFile:
        return super().new_input(self._checked(location))

    def new_output(self, location: str) -> PyArrowFile:
        return super().new_output(self._checked(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        text = location if isinstance(location, str) else location.location
        super().delete(self._checked(text))

    def _checked(self, text: str) -> str:
        location = locations.require_inside(self._warehouse, text, "file", file=True)
        if location.scheme == "file":
            root = locations.Location.parse(self._warehouse.root)
            path, below = (os.path.realpath("/" + "/".join(part.segments)) for part in (location, root))
            if not path.startswith(below + "/"):
                raise Forbidden(f"The file {text} leaves its warehouse through a symbolic link")
        return text


class ServerCatalog(NoopCatalog):
    """The catalog of one opened table. It has only the methods that tables call."""

    def __init__(self, access: TableAccess, state: WarehouseState, context: WriteContext | None) -> None:
        super().__init__(access.warehouse.name)
        self._access = access
        self._state = state
        self._context = context

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        return self._opened(tables.load(self._state, self._access.identifier))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        if self._context is None:
            raise Forbidden("This table was opened to be read")
        identifier = self._access.identifier
        commit = commits.TableCommit(identifier, _as_json(requirements), _as_json(updates))
        try:
            entry = commits.commit_tables(self._access.catalog, self._state, self._context, [commit])[0]
        except CommitFailed as error:  # PyIceberg applies the change to the new state and tries again
            raise CommitFailedException(error.message) from error
        return CommitTableResponse.model_validate(
            {"metadata": _metadata(entry), "metadata-location": entry.metadata_location}
        )

    @staticmethod
    def _delete_old_metadata(io: Any, base: TableMetadata, metadata: TableMetadata) -> None:
        """Do nothing: `commit_tables` deletes them."""

    def _opened(self, entry: CatalogEntry) -> Table:
        identifier = self._access.identifier
        name = identifier.parts
        return Table(name, _metadata(entry), str(entry.metadata_location), self._access.io, self)


@contextmanager
def errors_as_catalog_errors(what: str = "") -> Iterator[None]:
    """Convert errors of PyIceberg and Arrow to errors of the API. A ValueError is caused by the request."""
    try:
        yield
    except (CommitFailedException, ValidationException) as error:
        cause = error.__cause__
        raise cause if isinstance(cause, CommitFailed) else CommitFailed(str(error)) from error
    except FileNotFoundError as error:
        raise FileNotFound(f"A file of the table is gone: {error}") from error
    except (ValueError, TypeError, NotImplementedError, ValidationError, ResolveError) as error:
        raise Invalid(f"{what}: {error}" if what else str(error)) from error


def _as_json(models: Iterable[TableRequirement | TableUpdate]) -> list[Any]:
    return [orjson.loads(model.model_dump_json()) for model in models]


def _metadata(entry: CatalogEntry) -> TableMetadata:
    assert entry.document is not None
    return TableMetadataUtil.parse_raw(entry.document.decode())
