"""Routes for the partitions and files of a table."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import WriteSlot
from catalog.api.responses import json_response
from query.tables.api.snapshots import MomentAnswer
from query.tables.dependencies import (
    NOT_VISIBLE,
    PREDICATE_EXAMPLE,
    TABLE,
    TOO_LARGE,
    AsOf,
    ReaderTable,
    WriterTable,
)

router = APIRouter()

FILES_MAX = 10_000


class PartitionColumn(BaseModel):
    name: str
    column: str
    transform: str


class PartitionRow(BaseModel):
    partition: dict[str, Any] = Field(description="The values of the partition")
    spec_id: int
    rows: int
    files: int
    bytes: int
    delete_files: int


class PartitionList(BaseModel):
    as_of: MomentAnswer
    spec_id: int
    spec: list[PartitionColumn]
    partitions: list[PartitionRow]


class SpecRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    add: list[str] = Field(
        default_factory=list, description="`days(at)`, `bucket(16, id)`, `truncate(4, name)`, or a column"
    )
    drop: list[str] = Field(default_factory=list, description="Names of partition fields")
    rename: dict[str, str] = Field(default_factory=dict, description="Names of partition fields, old to new")


class SpecAnswer(BaseModel):
    spec_id: int
    spec: list[PartitionColumn]
    number: int | None


class FileAnswer(BaseModel):
    path: str
    format: str
    rows: int
    bytes: int
    spec_id: int
    delete_files: int


class FileNumbers(BaseModel):
    files: int
    rows: int
    bytes: int


class FileList(BaseModel):
    as_of: MomentAnswer
    total: FileNumbers = Field(description="All data files of the table")
    selected: FileNumbers = Field(description="Those that can have rows of the predicate")
    files: list[FileAnswer]


@router.get(
    TABLE + "/partitions",
    operation_id="listPartitions",
    response_model=PartitionList,
    responses=NOT_VISIBLE | TOO_LARGE,
)
def list_partitions(access: ReaderTable, as_of: AsOf = None) -> Response:
    """List how the table is partitioned, and the rows and bytes of each partition. Rows that delete files
    remove are still counted.
    """
    from query.tables import partitions

    return json_response(partitions.list_partitions(access, as_of))


@router.post(TABLE + "/partitions", operation_id="evolvePartitions", response_model=SpecAnswer)
def evolve_partitions(access: WriterTable, body: SpecRequest, _: WriteSlot) -> Any:
    """Change how new files are partitioned. Existing files stay as they are."""
    from query.tables import partitions

    return partitions.evolve_partitions(access, body)


@router.get(TABLE + "/files", operation_id="listFiles", response_model=FileList, responses=NOT_VISIBLE)
def list_files(
    access: ReaderTable,
    filter_: Annotated[
        str | None, Query(alias="filter", description=f"A predicate, such as `{PREDICATE_EXAMPLE}`")
    ] = None,
    as_of: AsOf = None,
    limit: Annotated[int, Query(ge=0, le=FILES_MAX)] = 1000,
) -> Response:
    """List the data files that match a predicate after pruning, and the numbers before."""
    from query.tables import partitions

    return json_response(partitions.list_files(access, filter_, as_of, limit))
