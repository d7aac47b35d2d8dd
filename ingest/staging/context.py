"""What staging works on: the batch range, the context, the staged batch. Plain data, light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from catalog.errors import CatalogError
from catalog.services.catalog import Catalog
from ingest.change import TableName
from ingest.journal.journal import Journal
from ingest.settings import StagedOptions
from ingest.store.tables import LandingTables, TableAdvance

UNROUTED: TableName = ("default", "unrouted")  # where events are kept that name no table


@dataclass(frozen=True, slots=True)
class StagingContext:
    """What staging stands on: the catalog for schemas and files, the journal, the landing rows."""

    catalog: Catalog
    journal: Journal
    tables: LandingTables
    options: StagedOptions = field(default_factory=StagedOptions)


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Which part of the journal goes into a job: for each table, after which id and up to which."""

    job_id: str
    warehouse: str
    ranges: Mapping[TableName, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the batch before will leave behind once it is published."""

    commit_us: int
    steps: Mapping[TableName, TableAdvance]


class CannotStage(CatalogError):
    """One table of a cut keeps it from being staged; the others could go without it."""

    def __init__(self, message: str, table: TableName = ()) -> None:
        super().__init__(message)
        self.table = table

    def __reduce__(self) -> tuple[type[CannotStage], tuple[str, TableName]]:
        return CannotStage, (self.message, self.table)  # it crosses from one process to another


class NeedsConversion(Exception):
    """Columns of a table must be converted before its changes can land. `tables` are the names of the mirror
    and the changes table; `columns` are the types to try of each column, as in the job's description.
    """

    def __init__(self, table: TableName, tables: list[str], columns: dict[str, Any]) -> None:
        super().__init__(table, tables, columns)  # it crosses from one process to another
        self.table, self.tables, self.columns = table, tables, columns


@dataclass(frozen=True, slots=True)
class StagedBatch:
    tables: list[dict[str, Any]]  # as in the job's description
    steps: list[TableAdvance]
    commit_us: int
    files: list[str]
    state_digest: str = ""  # of the table states that it was staged for


class CannotPrestage(Exception):
    """The table would have to change, or something to be put aside: that is for when its turn has come."""
