"""The data that staging works on: the batch range, the context, the staged batch. Light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from catalog.errors import CatalogError
from catalog.services.catalog import Catalog
from ingest.change import TableName
from ingest.journal.journal import Journal
from ingest.settings import KeepChecksums, StagedOptions
from ingest.store.tables import LandingTables, TableAdvance

UNROUTED: TableName = ("default", "unrouted")  # the table for events that name no table


@dataclass(frozen=True, slots=True)
class StagingContext:
    """The objects that staging needs: the catalog for schemas and files, the journal, the landing rows."""

    catalog: Catalog
    journal: Journal
    tables: LandingTables
    options: StagedOptions = field(default_factory=StagedOptions)
    checksums: KeepChecksums = "each-batch"  # for tables without this setting


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The part of the journal that a job lands: for each table, after which id and up to which."""

    job_id: str
    warehouse: str
    ranges: Mapping[TableName, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected state of the tables after the previous batch is published."""

    commit_us: int
    steps: Mapping[TableName, TableAdvance]


class CannotStage(CatalogError):
    """One table prevents a batch from being staged; the others could be staged without it."""

    def __init__(self, message: str, table: TableName = ()) -> None:
        super().__init__(message)
        self.table = table

    def __reduce__(self) -> tuple[type[CannotStage], tuple[str, TableName]]:
        return CannotStage, (self.message, self.table)  # the exception is pickled to another process


class NeedsConversion(Exception):
    """Columns of a table must be converted before its changes can land. `tables` are the names of the mirror
    and the changes table; `columns` are the candidate types of each column, as in the job's description.
    """

    def __init__(self, table: TableName, tables: list[str], columns: dict[str, Any]) -> None:
        super().__init__(table, tables, columns)  # the exception is pickled to another process
        self.table, self.tables, self.columns = table, tables, columns


@dataclass(frozen=True, slots=True)
class StagedBatch:
    tables: list[dict[str, Any]]  # as in the job's description
    steps: list[TableAdvance]
    commit_us: int
    files: list[str]
    state_digest: str = ""  # digest of the table states for which it was staged


class CannotPrestage(Exception):
    """The batch needs more than rows (a new column, a dead letter), so it is staged when it is due."""
