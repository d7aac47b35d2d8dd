"""Plan a batch: the work items of each table, and whether tasks can write the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO

from spark_jobs.messages import TableJob, TableState, WorkItem
from spark_jobs.tables.table_state import NotServed, TableStates

TASK_ROWS = 50_000  # a larger batch is shared by several tasks, as long as there are cores
TASK_ROWS_MAX = 250_000  # for any number of cores


@dataclass(slots=True)
class TablePlan:
    """The work on one table: items for tasks. If tasks cannot write it, an item for MERGE, and the reason."""

    table: TableJob
    items: list[WorkItem]
    merged: WorkItem | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def written(self) -> list[str]:
        """Return the tables that tasks write to."""
        states = [state for item in self.items[:1] for state in (item.mirror, item.changes, item.rejects)]
        return [state.name for state in states if state is not None]


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans tables. `common` has the values that all items of a batch share."""

    states: TableStates
    io: FileIO
    cores: int
    common: WorkItem

    def plan(self, table: TableJob) -> TablePlan:
        plan = TablePlan(table, [], facts={"events": table.events} if table.files else {})
        # Tasks get the tables in another form, without their history.
        whole = self.common.model_copy(update={"job": table.model_copy(update={"states": {}})})
        if table.files and (table.mirror is not None or table.changes is not None):
            try:
                plan.items = self._shares(whole, table)
            except NotServed as error:
                known = self._changes(table) if table.late else None
                plan.merged = whole.model_copy(update={"changes": known})
                plan.facts |= {"by": "merge", "why": str(error)}
        if table.rejects is not None and table.rejects.files:
            name = table.rejects.name
            rejects = self.states.appended(name, table.states[name].metadata)
            if not plan.items:
                plan.items = [whole.model_copy(update={"job": whole.job.model_copy(update={"files": ()})})]
            plan.items[0] = plan.items[0].model_copy(update={"rejects": rejects})
        return plan

    def _shares(self, whole: WorkItem, table: TableJob) -> list[WorkItem]:
        """Return the items of a table. NotServed if tasks cannot write it."""
        mirror = None
        if table.mirror is not None:
            mirror = self.states.mirror(table.mirror, table.states[table.mirror].metadata, self.io, table)
        states = {"mirror": mirror, "changes": self._changes(table)}
        shares = self._share_count(table)
        return [
            whole.model_copy(update={**states, "share": share, "shares": shares}) for share in range(shares)
        ]

    def _changes(self, table: TableJob) -> TableState | None:
        if table.changes is None:
            return None
        document = table.states[table.changes].metadata
        return self.states.appended(table.changes, document, is_read=table.late)

    def _share_count(self, table: TableJob) -> int:
        """Return the number of tasks for the batch of a table."""
        if table.has_absent and table.has_moves:
            return 1  # a value may come from the row of any other key
        if table.late and table.counts["truncate"]:
            return 1  # the task looks at all keys of the mirror
        wanted = min(-(-table.events // TASK_ROWS), self.cores)
        return max(1, wanted, -(-table.events // TASK_ROWS_MAX))
