"""Stage one table of a batch: order its changes, type them, reject what does not fit, write Parquet."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.errors import Conflict, Invalid
from ingest.change import Change, TableName
from ingest.identity import (
    ArrivedChange,
    JournalPosition,
    Key,
    after_loads,
    in_order,
    is_guess,
    is_late,
    journal_position,
    leave_counts_out,
    load_key,
    may_be_repeated,
    pieces_of,
    watermarks,
    without_repeats,
)
from ingest.journal.encoded_request import name_key
from ingest.settings import IS_DELETED, TableSettings, TypeChanges
from ingest.sources.store import SourceStore
from ingest.staging.arrow_table import typed_changes
from ingest.staging.context import (
    UNROUTED,
    BatchRange,
    CannotPrestage,
    NeedsConversion,
    StagedBatch,
    StagingContext,
)
from ingest.staging.generation import in_generation, is_marker
from ingest.staging.rebuilds import evidence_of, rebuild_by_key, rebuilt_instead
from ingest.staging.rejects import (
    RejectedChange,
    blocked_changes,
    columns_not_stored,
    dead_letters,
    rejected,
    rejects_table,
)
from ingest.staging.renames import Renames, plan_renamed, renamed_key, without_renames
from ingest.staging.targets import (
    REJECTS_SCHEMA,
    TABLE_PROPERTIES,
    CatalogRequest,
    TablePlan,
    TableState,
    create_table,
    metadata_of,
    plan_table,
    set_missing_properties,
)
from ingest.store.checksums import are_kept
from ingest.store.jobs import staged_folder
from ingest.store.mirrors import LATE, why_paused
from ingest.store.tables import REJECTS_SUFFIX, TableAdvance
from ingest.types.schema_plan import policy_violations


class TableStaging:
    """Stages one table. `prestaging`: the previous batch is being landed, so only files may be written."""

    def __init__(
        self,
        context: StagingContext,
        batch_range: BatchRange,
        number: int,
        table_state: TableState,
        *,
        prestaging: bool,
    ) -> None:
        self._context = context
        self._range = batch_range
        self._number = number
        self._state = table_state
        self._settings = table_state.landed.settings
        self._prestaging = prestaging
        self._oldest_ms = 0
        self._from_id = 0

    def stage(self, table: TableName, span: tuple[int, int], batch: StagedBatch) -> None:
        arrived, refused = self._read(table, span)
        self._from_id = span[0]
        key = table
        table = table or UNROUTED  # rejects that name no table
        ordered, renames = self._ordered(arrived), Renames()
        if any(item.change.operation == "rename" for item in ordered):
            ordered, renames = without_renames(ordered)
        is_known = self._state.mirror is not None or self._state.changes is not None
        described: dict[str, Any] = {"namespace": list(table[:-1]), "name": table[-1]}
        described |= {"files": [], "requests": []}
        notice, found, kept = None, None, list[ArrivedChange]()
        if ordered or (renames and is_known):
            self._require_unchanged()
            changes = [item.change for item in ordered]
            known = Key(self._state.landed.known_key, self._state.landed.key_reason)
            tables = self._state.mirror, self._state.changes
            of_source = partial(self._type_changes, changes)
            if renames:
                known = renamed_key(known, renames)
                found = plan_renamed(table, self._settings, tables, changes, renames, known, of_source)
            else:
                found = plan_table(table, self._settings, *tables, changes, known, of_source)
            self._require_key(found, known)
            notice = found.notice or (columns_not_stored(found.plan) if found.plan.refused else None)
            self._require_types(found)
            if found.key:
                leave_counts_out(changes)
            ordered = without_repeats(ordered)
            kept = self._write(found, ordered, refused, described, batch)
            described["schema-only"] = bool(renames) and not kept
        else:
            described |= {"events": 0, "columns": [], "key": [], "mirror": None, "changes": None}
        self._write_rejects(table, refused, described, batch)
        changes = [item.change for item in ordered]
        batch.tables.append(described)
        batch.steps.append(
            TableAdvance(
                key,
                span[0],
                span[1],
                len(kept),
                len(refused),
                described.get("load-key"),
                notice,
                watermarks(changes),
                self._oldest_ms,
                self._state.resync.generation if self._state.resync is not None else None,
                keeps_changes=found is None or found.changes is not None,
                key=() if found is None else found.key,
                key_reason=None if found is None else found.key_reason,
                doubt=LATE if described.get("late") and _has_only_a_mirror(described) else None,
                **(evidence_of(found, changes) if found is not None and is_guess(found.key_reason) else {}),
            )
        )

    def _ordered(self, arrived: list[ArrivedChange]) -> list[ArrivedChange]:
        resync, known = self._state.resync, self._state.watermarks
        if resync is None:
            return in_order(after_loads(arrived, known))
        if self._prestaging:
            raise CannotPrestage
        return in_generation(arrived, known, resync.begin_id)

    def _require_unchanged(self) -> None:
        state = self._state
        reason = why_paused(state.landed, state.mirror, state.changes)
        if reason is None:
            return
        if self._prestaging:
            raise CannotPrestage
        raise Conflict(rebuilt_instead(self._context, self._range.warehouse, state, reason))

    def _require_key(self, found: TablePlan, known: Key) -> None:
        """Raise Conflict if the mirror has rows of another key. `known` is the key by which they landed."""
        has_both = bool(found.mirror and self._state.mirror and found.key and known.columns)
        if not has_both or set(found.key) == set(known.columns):
            return
        if self._prestaging:
            raise CannotPrestage
        raise rebuild_by_key(self._context, self._range.warehouse, self._state, found)

    def _type_changes(self, changes: list[Change]) -> TypeChanges:
        rules = SourceStore(self._context.catalog.database).rules(self._range.warehouse)
        found = rules.type_changes({change.source for change in changes})
        return "reject" if found == "split" and self._settings.policy != "evolve" else found

    def _require_types(self, found: TablePlan) -> None:
        """Raise NeedsConversion if columns must be converted first: the changes wait for that job."""
        columns = {name: one.described() for name, one in found.plan.conversions.items()}
        if columns and self._prestaging:
            raise CannotPrestage
        if columns:
            names = [name for name in (found.mirror, found.changes) if name is not None]
            raise NeedsConversion(found.table, names, columns)

    def _read(
        self, table: TableName, span: tuple[int, int]
    ) -> tuple[list[ArrivedChange], list[RejectedChange]]:
        arrived, refused = [], []
        for entry in self._context.journal.read(self._range.warehouse, table, span[0], span[1]):
            self._oldest_ms = min(self._oldest_ms or entry.received_ms, entry.received_ms)
            arrived += [ArrivedChange(entry.id, n, change) for n, change in enumerate(entry.changes)]
            refused += [
                RejectedChange(entry.id, -1 - n, reject.reason, reject.code, reject.original, reject.source,
                        reject.position, None, reject.context)
                for n, reject in enumerate(entry.rejects)
            ]  # fmt: skip
        return prepared(arrived, self._state), refused

    def _write(
        self,
        found: TablePlan,
        ordered: list[ArrivedChange],
        refused: list[RejectedChange],
        described: dict[str, Any],
        batch: StagedBatch,
    ) -> list[ArrivedChange]:
        """Type the changes, reject those that do not fit, write the others."""
        changes = [item.change for item in ordered]
        bad = dict(policy_violations(changes, found.plan))
        if found.append_only:
            if self._state.resync is not None:
                raise Conflict("the table has no mirror with a key any more: abort its resync")
            bad |= _not_appendable(changes)
        reasons = {journal_position(ordered[row]): ("refused", reason) for row, reason in bad.items()}
        pieces, typed, has_key_changes = self._typed(found, ordered, reasons)
        waiting = self._held(found, ordered, set(reasons))
        if waiting:
            reasons = {index: ("waits", reason) for index, reason in waiting.items()} | reasons
            pieces, typed, has_key_changes = self._typed(found, ordered, reasons)
        refused += [
            rejected(item, *reasons[journal_position(item)])
            for item in ordered
            if journal_position(item) in reasons
        ]
        kept = [item for item in ordered if journal_position(item) not in reasons]
        if self._prestaging and (refused or found.requests or found.notice):
            raise CannotPrestage
        described |= self._description(found, [item.change for item in pieces], has_key_changes, typed)
        if kept:
            described["files"] = [self._put(typed, "changes", batch)]
        return kept

    def _typed(
        self, found: TablePlan, ordered: list[ArrivedChange], reasons: dict[JournalPosition, tuple[str, str]]
    ) -> tuple[list[ArrivedChange], pa.Table, bool]:
        """Return the changes that land, key changes as two, and as Arrow; whether rows moved to another key.

        Adds to `reasons` the changes that do not fit. A key change is refused as a whole.
        """
        while True:
            pieces = pieces_of([item for item in ordered if journal_position(item) not in reasons], found.key)
            typed, unfit, has_key_changes = typed_changes(pieces, found.plan, found.key)
            if not unfit:
                return pieces, typed, has_key_changes
            for row, reason in unfit.items():
                reasons.setdefault(journal_position(pieces[row]), ("unfit", reason))

    def _held(
        self, found: TablePlan, ordered: list[ArrivedChange], failed: set[JournalPosition]
    ) -> dict[JournalPosition, str]:
        """Return the changes that wait for an earlier change of their row, by the setting of the table."""
        if self._settings.after_reject != "wait" or not found.key:
            return {}
        kept, where = self._context.journal.dead_letters, (self._range.warehouse, found.table)
        letters = kept.waiting(*where) if kept.open_keys(*where) else []
        return blocked_changes(ordered, failed, letters, found.key, self._from_id)

    def _description(
        self, found: TablePlan, changes: list[Change], has_key_changes: bool, typed: pa.Table
    ) -> dict[str, Any]:
        counts = dict.fromkeys(("insert", "update", "delete", "read", "truncate"), 0)
        for change in changes:
            counts[change.operation] += 1
        loading = load_key(changes)
        resumes = loading is not None and loading == self._state.landed.load_key
        first_load = loading is not None and (resumes or self._state.is_empty)
        return {
            "requests": found.requests,
            "events": len(changes),
            "columns": [column.name for column in found.plan.columns],
            "key": list(found.key),
            "mirror": found.mirror,
            "changes": found.changes,
            "append-only": found.append_only,
            "names": dict(self._settings.names),
            "counts": counts,
            "has-absent": typed.column("_calve_absent").null_count < typed.num_rows,
            "has-moves": has_key_changes,
            # The rows of a resync replace all rows of the table, so there is nothing to compare with.
            "late": not resumes and self._state.resync is None and self._is_late(found, changes),
            "first-load": first_load,
            "guessed": is_guess(found.key_reason),
            "checksums": are_kept(self._settings, self._context.checksums),
            "load-key": loading if first_load else None,
        }

    def _is_late(self, found: TablePlan, changes: list[Change]) -> bool:
        """Return whether the batch has to be compared with the changes table."""
        known_since_ms = time.time_ns() // 1_000_000 - self._context.journal.limits.window_ms
        return is_late(changes, self._state.watermarks) or (
            found.changes is not None and may_be_repeated(changes, known_since_ms)
        )

    def _write_rejects(
        self, table: TableName, refused: list[RejectedChange], described: dict[str, Any], batch: StagedBatch
    ) -> None:
        described["rejects"] = None
        if not refused:
            return
        if self._prestaging:
            raise CannotPrestage
        job = (self._range.warehouse, self._range.job_id)
        letters = dead_letters(job, table, refused, described["key"], batch.commit_us // 1000)
        self._context.journal.dead_letters.add(letters)
        name = table[-1] + REJECTS_SUFFIX
        described["requests"] = [*described["requests"], *self._ensure_rejects((*table[:-1], name))]
        files = [self._put(rejects_table(letters, batch.commit_us), "rejects", batch)]
        described["rejects"] = {"name": name, "files": files}

    def _ensure_rejects(self, rejects: TableName) -> list[CatalogRequest]:
        existing = metadata_of(self._context, self._range.warehouse, rejects)
        if existing is not None:
            return set_missing_properties(rejects, existing)
        body = {
            "name": rejects[-1],
            "schema": REJECTS_SCHEMA,
            "properties": {**TABLE_PROPERTIES, "format-version": "2"},
        }
        return [create_table(rejects, body)]

    def _put(self, table: pa.Table, what: str, batch: StagedBatch) -> str:
        options = self._context.options
        sink = io.BytesIO()
        pq.write_table(table, sink, compression=options.compression, row_group_size=options.row_group_rows)
        root = self._context.catalog.warehouse(self._range.warehouse).root
        location = f"{staged_folder(root)}/{self._range.job_id}/{self._number}-{what}.parquet"
        self._context.catalog.files.create(location, sink.getvalue())
        batch.files.append(location)
        return location


def prepared(arrived: list[ArrivedChange], state: TableState) -> list[ArrivedChange]:
    """Return the changes after the settings of their table are applied."""
    _name_sources([item.change for item in arrived])
    # The policies do not apply to a marker. The marker of an aborted resync is ignored.
    markers = [item for item in arrived if item.change.operation == "truncate" and is_marker(item.change)]
    if not markers:
        return under_policies(arrived, state.landed.settings)
    kept = [item for item in arrived if not is_marker(item.change)]
    return [*under_policies(kept, state.landed.settings), *(markers if state.resync is not None else ())]


def _name_sources(changes: Sequence[Change]) -> None:
    """Replace the names of sources by those in SQL: a producer may use any text."""
    names = {source: name_key(source) for source in {change.source for change in changes}}
    if any(source != name for source, name in names.items()):
        for change in changes:
            change.source = names[change.source]


def _not_appendable(changes: Sequence[Change]) -> dict[int, str]:
    reason = "the table has no key, so this row cannot be found in it: set a key, then replay"
    operations = enumerate(change.operation for change in changes)
    return {row: f"{name}: {reason}" for row, name in operations if name not in ("insert", "read")}


def _has_only_a_mirror(described: dict[str, Any]) -> bool:
    return described["changes"] is None and not described["append-only"]


def under_policies(arrived: Sequence[ArrivedChange], settings: TableSettings) -> list[ArrivedChange]:
    """Apply the policies of a table. Invalid if a truncate waits for a decision."""
    if settings.truncate != "apply":
        arrived = _without_truncates(arrived, settings)
    if settings.deletes == "soft":
        return [ArrivedChange(item.journal_id, item.ordinal, _soft(item.change)) for item in arrived]
    return list(arrived)


def _without_truncates(arrived: Sequence[ArrivedChange], settings: TableSettings) -> list[ArrivedChange]:
    kept = [item for item in arrived if item.change.operation != "truncate"]
    if settings.truncate == "hold" and len(kept) < len(arrived):
        raise Invalid("the source has truncated the table: set truncate to apply or ignore, and it goes on")
    return kept


def _soft(change: Change) -> Change:
    """Turn a delete into an update that marks the row as deleted; every other column keeps its value."""
    if change.operation in ("truncate", "rename"):
        return change
    is_delete = change.operation == "delete"
    row = {} if is_delete else change.after or {}
    declared = change.declared
    if declared is not None:
        columns = {**declared.columns, IS_DELETED: "boolean"}
        declared = replace(declared, columns=columns)
    return replace(
        change,
        operation="update" if is_delete else change.operation,
        before=change.before if not is_delete else {**(change.after or {}), **(change.before or {})},
        after={**row, IS_DELETED: is_delete},
        declared=declared,
        unchanged=None if is_delete else change.unchanged,
    )
