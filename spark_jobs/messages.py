"""The messages of a worker: jobs as the server describes them, and the messages between the driver and its
tasks.

`BadJob` means that the description itself is wrong, so that another attempt cannot succeed.
"""

from __future__ import annotations

import traceback
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

STAGED = "_calve_"  # the prefix of the reserved columns of a staged file
OPERATIONS = ("insert", "update", "delete", "read", "truncate")
CHANGE_COLUMNS = (
    "operation",
    "commit-timestamp",
    "source-timestamp",
    "source",
    "position",
    "transaction",
    "event-id",
    "before",
    "order",
    "absent",
)


class BadJob(Exception):
    """The job cannot be done as described; the message says why."""


class _Message(BaseModel):
    model_config = ConfigDict(
        frozen=True, alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True
    )


# -- from the server


class LeasedTable(_Message):
    """An Iceberg table as it is when the job is leased, with its new columns.

    It may not exist yet. The requirements and updates create it or change its schema: they are part of the
    commit.
    """

    metadata: dict[str, Any]
    requirements: tuple[dict[str, Any], ...] = ()
    updates: tuple[dict[str, Any], ...] = ()

    @property
    def is_new(self) -> bool:
        return {"type": "assert-create"} in self.requirements


class Rejects(_Message):
    name: str
    files: tuple[str, ...]


class TableJob(_Message):
    """The changes of one table. `mirror` and `changes` are table names, None where there is no such table."""

    namespace: tuple[str, ...] = Field(min_length=1)
    name: str = Field(min_length=1)
    files: tuple[str, ...] = ()
    events: int = 0
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    mirror: str | None = None
    changes: str | None = None
    append_only: bool = False
    rejects: Rejects | None = None
    names: dict[str, str] = Field(default_factory=dict, validate_default=True)
    counts: dict[str, int] = Field(default_factory=dict, validate_default=True)
    has_absent: bool = False
    has_moves: bool = False
    late: bool = False
    schema_only: bool = False  # no rows: only the commits in `states`
    first_load: bool = False  # all rows are of one load, which found the mirror empty
    guessed: bool = False  # the key is a guess, which inserts may contradict
    checksums: bool = False  # the checksums of the mirror are kept: return what the batch adds
    rekeyed: bool = False  # of a rebuild: changes have landed while the table had another key
    states: dict[str, LeasedTable] = Field(default_factory=dict)  # by name

    @field_validator("names")
    @classmethod
    def _all_names(cls, given: dict[str, str]) -> dict[str, str]:
        return {name: given.get(name) or "_" + name.replace("-", "_") for name in CHANGE_COLUMNS}

    @field_validator("counts")
    @classmethod
    def _all_counts(cls, given: dict[str, int]) -> dict[str, int]:
        if any(count < 0 for count in given.values()):
            raise ValueError("a count is below zero")
        return {operation: given.get(operation, 0) for operation in OPERATIONS}

    @model_validator(mode="after")
    def _check(self) -> TableJob:
        if self.mirror is not None and self.files and not self.append_only and not self.key:
            raise ValueError(f"{self.label} has a mirror and no key")
        unknown = [column for column in self.key if column not in self.columns]
        if unknown:
            raise ValueError(f"the key column {unknown[0]} is not among the columns")
        reserved = [column for column in self.columns if column.startswith(STAGED)]
        if reserved:
            raise ValueError(f"the column name {reserved[0]} is reserved")
        return self

    @property
    def written(self) -> list[str]:
        """The names of the Iceberg tables that the job writes to."""
        rejects = self.rejects.name if self.rejects is not None else None
        return [name for name in (self.mirror, self.changes, rejects) if name is not None]

    @property
    def label(self) -> str:
        return ".".join((*self.namespace, self.name))


class Job(_Message):
    """A batch to land. `epoch` identifies the lease: a later lease of the same job has a higher epoch."""

    id: str = Field(min_length=1)
    epoch: int
    kind: str
    warehouse: str = Field(min_length=1)
    lease_s: float = 30.0
    commit_timestamp_us: int
    batch_id: str
    tables: tuple[TableJob, ...]

    @field_validator("tables")
    @classmethod
    def _have_states(cls, given: tuple[TableJob, ...]) -> tuple[TableJob, ...]:
        for table in given:
            missing = [name for name in table.written if name not in table.states]
            if missing:
                raise ValueError(f"the table {missing[0]} of {table.label} is not described")
        return given


class OneTableJob(_Message):
    """A job on one table that lands no batch."""

    id: str
    epoch: int
    kind: str = ""
    warehouse: str
    namespace: tuple[str, ...] = Field(min_length=1)
    name: str
    lease_s: float = 30.0

    @property
    def label(self) -> str:
        return ".".join((*self.namespace, self.name))

    @property
    def lease(self) -> Job:
        """Return the part of the job that heartbeats and the end of the job need."""
        return Job(
            id=self.id,
            epoch=self.epoch,
            kind=self.kind,
            warehouse=self.warehouse,
            lease_s=self.lease_s,
            commit_timestamp_us=0,
            batch_id=self.id,
            tables=(),
        )


_bytes = bytes.fromhex
_M = TypeVar("_M", bound=BaseModel)


def job_from(given: Any) -> Job:
    return parsed(Job, given)


def parsed(model: type[_M], given: Any) -> _M:
    """Parse a message. BadJob names the field that is missing or has the wrong type."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "job"
        raise BadJob(f"{where}: {first['msg']}") from error


# -- between the driver and its tasks


class LiveFile(_Message):
    """A data file of the mirror. `partition` has the values in the JSON form of the REST specification, in
    the order of the spec. The bounds are those of the first key column, as hexadecimal text.
    """

    path: str
    sequence: int  # its data sequence number
    spec_id: int
    partition: tuple[Any, ...] = ()
    lower: str | None = None
    upper: str | None = None


class LiveDeletes(_Message):
    """A file of position deletes of the mirror, whose bounds are paths of data files as hexadecimal text. Or
    a deletion vector: a part of a Puffin file, for one data file.
    """

    path: str
    sequence: int
    lower: str | None = None
    upper: str | None = None
    referenced: str | None = None  # the data file of a vector
    offset: int | None = None
    bytes: int | None = None
    rows: int = 0
    file_bytes: int = 0

    @property
    def is_vector(self) -> bool:
        return self.offset is not None

    def may_refer_to(self, path: str) -> bool:
        if self.is_vector:
            return self.referenced == path
        if self.lower is None or self.upper is None:
            return True
        return _bytes(self.lower) <= path.encode() <= _bytes(self.upper)


class TableState(_Message):
    """A table as tasks need it: its metadata as JSON, with only its current snapshot."""

    name: str
    metadata: str
    format_version: int = 2
    files: tuple[LiveFile, ...] = ()
    deletes: tuple[LiveDeletes, ...] = ()


class KeyFileSettings(_Message):
    """The folder and the size limit of an executor's key files. "" is its temporary folder."""

    folder: str = ""
    bytes_max: int = 4 * 2**30


class WorkItem(_Message):
    """The work of one task: a share of the keys of one table. Item 0 of a table also writes its rejects."""

    job: TableJob
    commit_us: int
    share: int = 0
    shares: int = 1
    mirror: TableState | None = None
    changes: TableState | None = None
    rejects: TableState | None = None
    io: dict[str, str] = Field(default_factory=dict, repr=False)  # properties of PyIceberg's FileIO
    key_files: KeyFileSettings = KeyFileSettings()

    @property
    def has_vectors(self) -> bool:
        """Return whether the mirror has deletion vectors instead of position deletes."""
        return self.mirror is not None and self.mirror.format_version > 2


class FoundPositions(_Message):
    """Rows of one data file that a share deletes. The second stage joins them to one deletion vector."""

    table: str
    mirror: TableState  # without its files; with the deletes of the data file
    io: dict[str, str] = Field(default_factory=dict, repr=False)
    file: LiveFile
    positions: tuple[int, ...]


class ItemResult(_Message):
    """What a task did. `files` has, for each table, file descriptions in the JSON of the REST specification.
    `bad_job` says why the job cannot be done at all, `error` why this attempt at it has failed.
    """

    table: str
    share: int = 0
    files: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    removed: tuple[str, ...] = ()  # deletion vectors of the mirror that new ones replace
    found: tuple[FoundPositions, ...] = ()  # for the second stage
    paths: tuple[str, ...] = ()
    truncated: bool = False  # the mirror is emptied before these files are added
    rows: int = 0  # of the mirror, deletes included
    deleted: int = 0  # positions
    rejects: int = 0
    repeated: int = 0  # events that the changes table already has
    staged_bytes: int = 0  # of the changes in memory
    bytes: int = 0
    times_ms: dict[str, int] = Field(default_factory=dict)
    attempt: int = -1  # Spark's number of the task attempt; -1 outside Spark
    pid: int = 0
    clashes: int = 0  # inserts of a guessed key that another row has
    differing: tuple[tuple[str, ...], ...] = ()  # for some clashes, the columns that differ
    lost: int = 0  # rows with missing values that are not known any more
    # What the item adds to the checksums of the mirror, and the columns that they cover. None: unknown.
    checksums: dict[str, tuple[int, int]] | None = None
    hashed: str = ""
    bad_job: str | None = None
    error: str | None = None

    @classmethod
    def failed(cls, error: Exception, table: str, share: int) -> ItemResult:
        """Describe the error of a task that has deleted its files. It is not raised: Spark would drop the
        results of the other tasks, and the driver would not learn which files they wrote.
        """
        if isinstance(error, BadJob):
            return cls(table=table, share=share, bad_job=str(error))
        traceback.print_exception(error)  # into the log of the executor
        return cls(table=table, share=share, error=f"{type(error).__name__}: {error}")
