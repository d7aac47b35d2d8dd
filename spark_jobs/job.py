"""A job as a worker gets it: plain data, read from the jobs API's JSON and checked once.

`BadJob` means that the description itself is wrong, so that trying again cannot help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

STAGED = "_calve_"  # what the reserved columns of a staged file begin with
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
)


class BadJob(Exception):
    """The job cannot be done as it is described; the message says why."""


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """A call of the catalog that prepares a table: `{prefix}` in the path is the open transaction,
    `{warehouse}` the warehouse itself.
    """

    method: str
    path: str
    body: Any

    @property
    def is_outside(self) -> bool:
        """Made in the warehouse before the transaction is opened, which sees what is there by then."""
        return "{warehouse}" in self.path


@dataclass(frozen=True, slots=True)
class Rejects:
    name: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableJob:
    """The changes of one table. `mirror` and `changes` are table names, None where there is none."""

    namespace: tuple[str, ...]
    name: str
    files: tuple[str, ...] = ()
    events: int = 0
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    mirror: str | None = None
    changes: str | None = None
    append_only: bool = False
    rejects: Rejects | None = None
    names: Mapping[str, str] = field(default_factory=lambda: _names({}, "names"))
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATIONS, 0))
    has_absent: bool = False
    has_moves: bool = False
    late: bool = False
    first_load: bool = False
    requests: tuple[CatalogRequest, ...] = ()

    @property
    def label(self) -> str:
        return ".".join((*self.namespace, self.name))


@dataclass(frozen=True, slots=True)
class Job:
    """`epoch` is the right to work on it: whoever leases it later has a higher one."""

    id: str
    epoch: int
    kind: str
    warehouse: str
    lease_s: float
    commit_timestamp_us: int
    batch_id: str
    tables: tuple[TableJob, ...]
    watermark: str | None = None


def job_from(given: Any) -> Job:
    """BadJob names the field that is missing or of the wrong kind."""
    job = _Fields(given, "job")
    watermark = job.given.get("watermark")
    return Job(
        id=job.text("id"),
        epoch=job.integer("epoch"),
        kind=job.text("kind"),
        warehouse=job.text("warehouse"),
        lease_s=float(job.get("lease-s", (int, float), 30)),
        commit_timestamp_us=job.integer("commit-timestamp-us"),
        batch_id=job.text("batch-id"),
        tables=job.each("tables", _table),
        watermark=None if watermark is None else str(watermark),
    )


def _table(given: Any, where: str) -> TableJob:
    table = _Fields(given, where)
    found = TableJob(
        namespace=table.texts("namespace"),
        name=table.text("name"),
        files=table.texts("files"),
        events=table.integer("events"),
        columns=table.texts("columns"),
        key=table.texts("key"),
        mirror=table.get("mirror", (str, type(None)), None),
        changes=table.get("changes", (str, type(None)), None),
        append_only=table.flag("append-only"),
        rejects=_rejects(table.given.get("rejects"), f"{where}.rejects"),
        names=_names(table.get("names", (dict,), {}), where),
        counts=_counts(table.get("counts", (dict,), {}), where),
        has_absent=table.flag("has-absent"),
        has_moves=table.flag("has-moves"),
        late=table.flag("late"),
        first_load=table.flag("first-load"),
        requests=table.each("requests", _request),
    )
    _check(found, where)
    return found


def _check(table: TableJob, where: str) -> None:
    if not table.namespace:
        raise BadJob(f"{where}.namespace is empty")
    if table.mirror is not None and table.files and not table.append_only and not table.key:
        raise BadJob(f"{where}: {table.label} has a mirror and no key")
    unknown = [column for column in table.key if column not in table.columns]
    if unknown:
        raise BadJob(f"{where}: the key column {unknown[0]} is not among the columns")
    taken = [column for column in table.columns if column.startswith(STAGED)]
    if taken:
        raise BadJob(f"{where}: the column name {taken[0]} is reserved")


def _rejects(given: Any, where: str) -> Rejects | None:
    if given is None:
        return None
    rejects = _Fields(given, where)
    return Rejects(rejects.text("name"), rejects.texts("files"))


def _request(given: Any, where: str) -> CatalogRequest:
    request = _Fields(given, where)
    return CatalogRequest(request.text("method"), request.text("path"), request.given.get("body"))


def _names(given: dict[str, Any], where: str) -> dict[str, str]:
    names = {name: given.get(name, _default(name)) for name in CHANGE_COLUMNS}
    wrong = [name for name, value in names.items() if not isinstance(value, str) or not value]
    if wrong:
        raise BadJob(f"{where}.names.{wrong[0]} must be a text")
    return names


def _counts(given: dict[str, Any], where: str) -> dict[str, int]:
    counts = {operation: given.get(operation, 0) for operation in OPERATIONS}
    if not all(isinstance(count, int) and count >= 0 for count in counts.values()):
        raise BadJob(f"{where}.counts must be whole numbers")
    return counts


def _default(name: str) -> str:
    return "_" + name.replace("-", "_")


class _Fields:
    """The fields of a JSON object, each with its kind checked."""

    def __init__(self, given: Any, where: str) -> None:
        if not isinstance(given, dict):
            raise BadJob(f"{where} must be an object")
        self.given = given
        self._where = where

    def get(self, name: str, kinds: tuple[type, ...], default: Any = ...) -> Any:
        value = self.given.get(name, default)
        if value is ...:
            raise BadJob(f"{self._where}.{name} is missing")
        if not isinstance(value, kinds):
            raise BadJob(f"{self._where}.{name} must be {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    def text(self, name: str) -> str:
        value: str = self.get(name, (str,))
        if not value:
            raise BadJob(f"{self._where}.{name} is empty")
        return value

    def integer(self, name: str) -> int:
        value: int = self.get(name, (int,))
        return value

    def flag(self, name: str) -> bool:
        value: bool = self.get(name, (bool,), False)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values: list[Any] = self.get(name, (list,), [])
        if not all(isinstance(value, str) for value in values):
            raise BadJob(f"{self._where}.{name} must be a list of texts")
        return tuple(values)

    def each(self, name: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
        values: list[Any] = self.get(name, (list,), [])
        return tuple(read(value, f"{self._where}.{name}[{number}]") for number, value in enumerate(values))
