"""Jobs, claims and workers in SQL."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.errors import CommitFailed
from catalog.store.database import Database
from catalog.store.webhook_holds import HOLD_MS, is_held
from ingest.change import TableName
from ingest.store.schema import claims, jobs, workers
from ingest.store.tables import TableAdvance, key_of, name_of

KEPT_MS = 3600 * 1000  # how long a finished job is kept: one job a second has a description of some KB
SWEEP_EVERY_MS = 60_000
RETRY_MS_MAX = 30_000

_by_id = jobs.c.id == sa.bindparam("j")
_light = [column for column in jobs.c if column.name not in {"description", "landing"}]
_ONE = sa.select(jobs).where(_by_id)
_STATE = sa.select(jobs.c.state).where(_by_id)
_LIST = (
    sa.select(*_light)
    .where(jobs.c.warehouse == sa.bindparam("w"))
    .order_by(jobs.c.created_ms.desc(), jobs.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_DUE = (
    sa.select(jobs.c.id, jobs.c.epoch, jobs.c.state)
    .where(
        jobs.c.state != "done",
        jobs.c.lease_ends_ms <= sa.bindparam("now"),
        jobs.c.not_before_ms <= sa.bindparam("now"),
    )
    .order_by(jobs.c.created_ms)
)
_CLAIMED = sa.select(claims.c.table_key).where(claims.c.warehouse == sa.bindparam("w"))
_CLAIM_OF = sa.select(claims.c.job_id).where(
    claims.c.warehouse == sa.bindparam("w"), claims.c.table_key == sa.bindparam("t")
)
_TAKE = (
    sa.update(jobs)
    .where(
        _by_id, jobs.c.epoch == sa.bindparam("e"), sa.or_(jobs.c.state == "ready", jobs.c.state == "leased")
    )
    .values(
        epoch=jobs.c.epoch + 1,
        state="leased",
        worker=sa.bindparam("worker"),
        attempts=jobs.c.attempts + 1,
        lease_ends_ms=sa.bindparam("until"),
    )
)
_EXTEND = (
    sa.update(jobs)
    .where(_by_id, jobs.c.epoch == sa.bindparam("e"), jobs.c.state == "leased")
    .values(lease_ends_ms=sa.bindparam("until"), progress=sa.bindparam("progress"))
)
_GIVE_BACK = (
    sa.update(jobs)
    .where(_by_id, jobs.c.epoch == sa.bindparam("e"), jobs.c.state == "leased")
    .values(state="ready", lease_ends_ms=0, not_before_ms=sa.bindparam("after"), error=sa.bindparam("error"))
)
_FINISH = (
    sa.update(jobs)
    .where(_by_id, jobs.c.epoch == sa.bindparam("e"), jobs.c.state == "leased")
    .values(
        state="done",
        number=sa.bindparam("number"),
        finished_ms=sa.bindparam("now"),
        progress=sa.bindparam("progress"),
        error=sa.null(),
    )
)
_STAGED = (
    sa.update(jobs)
    .where(_by_id, jobs.c.state == "staging", jobs.c.epoch == sa.bindparam("e"))
    .values(
        state="leased",
        lease_ends_ms=sa.bindparam("until"),
        description=sa.bindparam("description"),
        landing=sa.bindparam("landing"),
    )
)
_KEEP_STAGING = (
    sa.update(jobs)
    .where(_by_id, jobs.c.epoch == sa.bindparam("e"), jobs.c.state == "staging")
    .values(lease_ends_ms=sa.bindparam("until"))
)
# Only while it is being staged: another process may have finished staging it meanwhile.
_FORGET = sa.delete(jobs).where(_by_id, jobs.c.epoch == sa.bindparam("e"), jobs.c.state == "staging")
_DISCARD = sa.delete(jobs).where(_by_id, jobs.c.epoch == sa.bindparam("e"), jobs.c.state == "leased")
_RELEASE = sa.delete(claims).where(claims.c.job_id == sa.bindparam("j"))
_is_old = sa.and_(jobs.c.state == "done", jobs.c.finished_ms < sa.bindparam("before"))
_is_held = is_held(jobs.c.warehouse, jobs.c.number, sa.bindparam("since", type_=sa.BigInteger))
_SWEEP = sa.delete(jobs).where(_is_old, sa.not_(_is_held))
# A webhook needs only the commit timestamp of the publish.
_SHORTEN = sa.update(jobs).where(_is_old, jobs.c.description != b"").values(description=b"")
_INSERT = sa.insert(jobs)
_CLAIM = sa.text(
    "INSERT INTO landing_claims (warehouse, table_key, job_id) VALUES (:w, :t, :j) ON CONFLICT DO NOTHING"
)
_SEEN = sa.text(
    "INSERT INTO landing_workers (worker, seen_ms, said) VALUES (:worker, :now, :said) "
    "ON CONFLICT (worker) DO UPDATE SET seen_ms = excluded.seen_ms, said = excluded.said"
)
_FORGET_WORKERS = sa.delete(workers).where(workers.c.seen_ms < sa.bindparam("before"))
_WORKERS = sa.select(workers).order_by(workers.c.worker)


@dataclass(frozen=True, slots=True)
class Job:
    """One row. `description` is what a worker gets, `landing` is what its publish sets."""

    id: str
    warehouse: str
    state: str
    epoch: int
    worker: str
    lease_ends_ms: int
    not_before_ms: int
    created_ms: int
    finished_ms: int | None
    attempts: int
    description: bytes
    landing: bytes
    progress: str
    error: str | None
    number: int | None

    @property
    def kind(self) -> str:
        """Return the kind of a staged job; `commit` if it lands a batch."""
        return str(orjson.loads(self.description).get("kind") or "")

    def described(self, epoch: int) -> dict[str, Any]:
        """Return the description with the epoch of the lease."""
        found: dict[str, Any] = orjson.loads(self.description)
        return found | {"epoch": epoch}


class LostLease(CommitFailed):
    """The job is not leased under this epoch, and nothing will be published under it any more."""

    type = "LostLeaseException"

    def __init__(self, job_id: str, epoch: int) -> None:
        super().__init__(f"job {job_id} is no longer held under epoch {epoch}: stop and forget it")


class _TablesClaimed(Exception):
    """Another job has one of the tables."""


class Jobs:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._swept_ms = 0

    def get(self, job_id: str) -> Job | None:
        row = self._database.fetch_one(_ONE, {"j": job_id})
        return Job(*row) if row is not None else None

    def state(self, job_id: str) -> str | None:
        """Return the state; None if there is no such job."""
        row = self._database.fetch_one(_STATE, {"j": job_id})
        return str(row[0]) if row is not None else None

    def newest(self, warehouse: str, limit: int) -> list[dict[str, Any]]:
        names = [column.name for column in _light]
        rows = self._database.fetch_all(_LIST, {"w": warehouse, "limit": limit})
        return [dict(zip(names, row, strict=True)) for row in rows]

    def claimed(self, warehouse: str) -> set[TableName]:
        return {name_of(row[0]) for row in self._database.fetch_all(_CLAIMED, {"w": warehouse})}

    def of_table(self, warehouse: str, table: TableName) -> str | None:
        """Return the id of the job that has claimed a table."""
        row = self._database.fetch_one(_CLAIM_OF, {"w": warehouse, "t": key_of(table)})
        return str(row[0]) if row is not None else None

    def due(self) -> list[tuple[str, int, str]]:
        """Return (id, epoch, state) of jobs without a worker: given back, or with an expired lease."""
        return [tuple(row) for row in self._database.fetch_all(_DUE, {"now": _now_ms()})]

    def begin(
        self, job_id: str, warehouse: str, worker: str, tables: Collection[TableName], lease_s: float
    ) -> bool:
        """Claim the tables for a new job. Returns False if another job has one of them."""

        def work(connection: sa.Connection) -> None:
            now_ms = _now_ms()
            for table in sorted(tables):
                claim = {"w": warehouse, "t": key_of(table), "j": job_id}
                if connection.execute(_CLAIM, claim).rowcount != 1:
                    raise _TablesClaimed
            row = {
                "id": job_id,
                "warehouse": warehouse,
                "state": "staging",
                "epoch": 1,
                "worker": worker,
                "lease_ends_ms": now_ms + int(lease_s * 1000),
                "not_before_ms": now_ms,
                "created_ms": now_ms,
                "attempts": 1,
                "description": b"",
                "landing": b"",
            }
            connection.execute(_INSERT, row)
            if now_ms - self._swept_ms >= SWEEP_EVERY_MS:
                self._swept_ms = now_ms
                connection.execute(_SWEEP, {"before": now_ms - KEPT_MS, "since": now_ms - HOLD_MS})
                connection.execute(_SHORTEN, {"before": now_ms - KEPT_MS})

        try:
            self._database.write(work)
        except _TablesClaimed:
            return False
        return True

    def staged(self, job_id: str, epoch: int, description: bytes, landing: bytes, lease_s: float) -> bool:
        """Set the description of a staged job. Returns False if staging took so long that the job was
        deleted.
        """
        params = {"j": job_id, "e": epoch, "description": description, "landing": landing}
        return self._update(_STAGED, params | {"until": _now_ms() + int(lease_s * 1000)})

    def keep_staging(self, job_id: str, epoch: int, lease_s: float) -> bool:
        """Extend the claim while files are written. Returns False if the job was deleted."""
        params = {"j": job_id, "e": epoch, "until": _now_ms() + int(lease_s * 1000)}
        return self._update(_KEEP_STAGING, params)

    def forget(self, job_id: str, epoch: int) -> None:
        """Delete a job whose staging failed or was abandoned."""

        def work(connection: sa.Connection) -> None:
            if connection.execute(_FORGET, {"j": job_id, "e": epoch}).rowcount == 1:
                connection.execute(_RELEASE, {"j": job_id})

        self._database.write(work)

    def take(self, job_id: str, epoch: int, worker: str, lease_s: float) -> bool:
        """Lease a job that is due; the epoch increases. Returns False if another worker leased it first."""
        params = {"j": job_id, "e": epoch, "worker": worker, "until": _now_ms() + int(lease_s * 1000)}
        return self._update(_TAKE, params)

    def extend(self, job_id: str, epoch: int, progress: dict[str, Any], lease_s: float) -> bool:
        params = {"j": job_id, "e": epoch, "progress": orjson.dumps(progress).decode()}
        return self._update(_EXTEND, params | {"until": _now_ms() + int(lease_s * 1000)})

    def give_back(self, job: Job, error: str) -> bool:
        """Give a job back after a failure. It is due again soon, later after each failure."""
        delay_ms = min(RETRY_MS_MAX, 250 * 2 ** min(job.attempts, 10))
        params = {"j": job.id, "e": job.epoch, "after": _now_ms() + delay_ms, "error": error[:4000]}
        return self._update(_GIVE_BACK, params)

    def discard(self, job: Job) -> bool:
        """Delete a job after failures that a repeat does not fix. Its tables are cut again."""

        def work(connection: sa.Connection) -> bool:
            if connection.execute(_DISCARD, {"j": job.id, "e": job.epoch}).rowcount != 1:
                return False
            connection.execute(_RELEASE, {"j": job.id})
            return True

        return self._database.write(work)

    def seen(self, worker: str, about: dict[str, Any]) -> None:
        def work(connection: sa.Connection) -> None:
            now_ms = _now_ms()
            text = orjson.dumps(about).decode()
            connection.execute(_SEEN, {"worker": worker, "now": now_ms, "said": text})
            connection.execute(_FORGET_WORKERS, {"before": now_ms - 600_000})

        self._database.write(work)

    def workers(self) -> list[tuple[str, int, dict[str, Any]]]:
        """Return (name, last seen, facts) of each worker."""
        return [(row[0], row[1], orjson.loads(row[2])) for row in self._database.fetch_all(_WORKERS, {})]

    def _update(self, statement: sa.Update, params: dict[str, Any]) -> bool:
        return self._database.write(
            lambda connection: bool(connection.execute(statement, params).rowcount == 1)
        )


def finish(connection: sa.Connection, job_id: str, epoch: int, number: int, metrics: dict[str, Any]) -> None:
    """End a job inside a publish. LostLease unless it is still leased under this epoch."""
    params = {"j": job_id, "e": epoch, "number": number, "now": _now_ms()}
    done = connection.execute(_FINISH, params | {"progress": orjson.dumps(metrics).decode()})
    if done.rowcount != 1:
        raise LostLease(job_id, epoch)
    connection.execute(_RELEASE, {"j": job_id})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- what a publish sets


@dataclass(frozen=True, slots=True)
class PublishPlan:
    commit_us: int
    files: list[str]  # staged files, which are not needed after the publish
    steps: list[TableAdvance]

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, text: bytes) -> PublishPlan:
        given = orjson.loads(text)
        steps = [
            TableAdvance(
                **{
                    **step,
                    "table": tuple(step["table"]),
                    "key": tuple(step.get("key", ())),
                    "columns": tuple(step.get("columns", ())),
                    "watermarks": {source: tuple(mark) for source, mark in step["watermarks"].items()},
                }
            )
            for step in given["steps"]
        ]
        return cls(given["commit_us"], given["files"], steps)


def staged_folder(root: str) -> str:
    """Return the folder of staged files below the root of a warehouse; each job has a folder with its id."""
    return f"{root.rstrip('/')}/_calve/staged"
