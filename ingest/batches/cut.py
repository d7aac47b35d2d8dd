"""A cut of the journal, and what staging makes of it. Plain data, and light to import: the server's own
process knows nothing of Parquet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from catalog.errors import CatalogError
from catalog.services.catalog import Catalog
from ingest.change import TableName
from ingest.journal.journal import Journal
from ingest.landing.tables import LandingTables, Step

UNROUTED: TableName = ("default", "unrouted")  # where events are kept that name no table


def staged_folder(root: str) -> str:
    """Where the files of jobs are, below the root of their warehouse; each job has a folder with its id."""
    return f"{root.rstrip('/')}/_calve/staged"


@dataclass(frozen=True, slots=True)
class StagedOptions:
    row_group_rows: int = 100_000
    compression: str = "zstd"


@dataclass(frozen=True, slots=True)
class Ground:
    """What staging stands on: the catalog for schemas and files, the journal, the landing rows."""

    catalog: Catalog
    journal: Journal
    tables: LandingTables
    options: StagedOptions = field(default_factory=StagedOptions)


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of the journal goes into a job: for each table, after which id and up to which."""

    job_id: str
    warehouse: str
    spans: Mapping[TableName, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the batch before will leave behind once it is published."""

    commit_us: int
    steps: Mapping[TableName, Step]


class CannotStage(CatalogError):
    """One table of a cut keeps it from being staged; the others could go without it."""

    def __init__(self, message: str, table: TableName = ()) -> None:
        super().__init__(message)
        self.table = table

    def __reduce__(self) -> tuple[type[CannotStage], tuple[str, TableName]]:
        return CannotStage, (self.message, self.table)  # it crosses from one process to another


@dataclass(frozen=True, slots=True)
class StagedBatch:
    tables: list[dict[str, Any]]  # as in the job's description
    steps: list[Step]
    commit_us: int
    files: list[str]
    basis: str = ""  # what was gone by besides the changes themselves, as a digest
