"""Mistakes of one line on the way of a change, and the suite that has to find each.

A mistake replaces a piece of text that a module has exactly once. The suite runs in a process of its own,
which imports the module with the replaced text (`tests/faults/mistaken_import.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mistake:
    name: str
    module: str
    right: str
    wrong: str
    suite: str


CONTRACT = "tests/contract/ingest"
UNIT = "tests/unit/ingest"
WORKER = "tests/unit/spark_jobs"
HISTORIES = f"{CONTRACT}/test_source_model.py"

MISTAKES = (
    # kept checksums
    Mistake(
        "a row that was deleted before is subtracted from the checksums again",
        "spark_jobs.landing.old_rows",
        "pc.invert(pc.is_in(hit.positions, deleted_positions(self._io, self._deletes, hit.file)))",
        "pc.is_valid(hit.positions)",
        f"{WORKER}/test_batch_checksums.py",
    ),
    Mistake(
        "the hash of a row does not cover its last column",
        "spark_jobs.tables.batch_checksums",
        "row_hashes([arrays[name] for name in self.columns])",
        "row_hashes([arrays[name] for name in self.columns[:-1]])",
        f"{WORKER}/test_batch_checksums.py",
    ),
    Mistake(
        "hashes of other columns are taken for those of the present ones",
        "spark_jobs.tables.batch_checksums",
        "described = [repr((found.name, found.field_id, str(found.field_type))) for found in fields]",
        "described = [repr(found.field_id) for found in fields]",
        f"{WORKER}/test_batch_checksums.py",
    ),
    Mistake(
        "checksums are added to those of a mirror that another writer has changed",
        "ingest.store.checksums",
        "    elif known.snapshot_id not in change.equal_ids:",
        "    elif False:",
        f"{UNIT}/test_kept_checksums.py",
    ),
    # identity
    Mistake(
        "an update that changes the key stays one change",
        "ingest.identity",
        "    if moved_from is None:\n        return (change,)",
        "    if True:\n        return (change,)",
        HISTORIES,
    ),
    Mistake(
        "a key as text differs from the same key as a number",
        "ingest.identity",
        "return one == other or str(one) == str(other)",
        "return one == other",
        f"{UNIT}/test_identity.py",
    ),
    Mistake(
        "the numbers of all epochs are one sequence",
        "ingest.journal.numbers",
        'return f"{source}~{epoch}" if epoch else source',
        "return source",
        f"{CONTRACT}/test_epochs.py",
    ),
    Mistake(
        "positions count on in another epoch",
        "ingest.journal.entries",
        "            put_in_epoch(change, epoch)",
        "            pass",
        f"{CONTRACT}/test_epochs.py",
    ),
    Mistake(
        "another server's log begins no epoch",
        "ingest.journal.epochs",
        "        begins = falls and bool(state.origins)",
        "        begins = False",
        f"{CONTRACT}/test_epochs.py",
    ),
    Mistake(
        "positions that fall while the time rises are taken",
        "ingest.journal.epochs",
        "    if not run.high or run.high >= newest or run.oldest_ms <= state.time_ms + CLOCK_ERROR_MS:",
        "    if True:",
        f"{CONTRACT}/test_epochs.py",
    ),
    # order
    Mistake(
        "changes of a source land in order of arrival",
        "ingest.identity",
        "        if _rises(positions):\n            continue",
        "        if True:\n            continue",
        f"{UNIT}/test_order.py",
    ),
    Mistake(
        "one order for all sources",
        "ingest.identity",
        "slots.setdefault(item.change.source, [])",
        'slots.setdefault("", [])',
        f"{UNIT}/test_order.py",
    ),
    Mistake(
        "an event that is sent again lands again",
        "ingest.identity",
        "        if mark not in seen:",
        "        if True:",
        f"{UNIT}/test_order.py",
    ),
    Mistake(
        "no batch is late",
        "ingest.identity",
        'change.position <= known.get(change.source, "") for change in changes)',
        "False for change in changes)",
        f"{CONTRACT}/test_staging.py",
    ),
    Mistake(
        "a watermark falls",
        "ingest.store.tables",
        "    elif position > found[0]:",
        "    else:",
        f"{CONTRACT}/test_staging.py",
    ),
    # keys
    Mistake(
        "the producer's key is stronger than the setting",
        "ingest.identity",
        "    if chosen:\n        return Key(tuple(chosen), SETTING)",
        "    if chosen and not any(change.key for change in changes):\n"
        "        return Key(tuple(chosen), SETTING)",
        f"{UNIT}/test_keys.py",
    ),
    Mistake(
        "a guess is stronger than the producer's key",
        "ingest.identity",
        "return Key(named, PRODUCER) if named is not None else _guessed(rows)",
        "return _guessed(rows)",
        f"{UNIT}/test_keys.py",
    ),
    Mistake(
        "a row that is deleted softly contradicts the guessed key",
        "spark_jobs.landing.clashes",
        "        if not one.get(IS_DELETED)",
        "        if True",
        f"{WORKER}/test_clashes.py",
    ),
    # folding
    Mistake(
        "the first row of a key wins",
        "spark_jobs.landing.fold",
        '.aggregate([("row", "max")]).column("row_max")',
        '.aggregate([("row", "min")]).column("row_min")',
        HISTORIES,
    ),
    Mistake(
        "rows before a truncate stay",
        "spark_jobs.landing.fold",
        "        start = truncates[-1] + 1",
        "        start = 0",
        f"{WORKER}/test_fold.py",
    ),
    Mistake(
        "a late row replaces a newer one",
        "spark_jobs.landing.fold",
        'max(self.newest.get((source, row), ""), self.emptied.get(source, "")) <= position',
        'position != ""',
        f"{WORKER}/test_fold.py",
    ),
    Mistake(
        "a deleted row gives its values to the next row of its key",
        "spark_jobs.landing.value_sources",
        "        elif state is None and origin != key:",
        "        elif state is None:",
        f"{WORKER}/test_value_sources.py",
    ),
    Mistake(
        "a delete after a swap of keys removes the new row",
        "spark_jobs.landing.value_sources",
        "        if hidden:\n",
        "        if False:\n",
        HISTORIES,
    ),
    Mistake(
        "a value that did not change becomes null",
        "spark_jobs.landing.value_sources",
        "        source = self._base(origin) if isinstance(state, _Unseen) else state",
        "        source = None if isinstance(state, _Unseen) else state",
        f"{WORKER}/test_value_sources.py",
    ),
    # the journal
    Mistake(
        "a number of the source that was seen is taken again",
        "ingest.journal.numbers",
        "        if at and lasts[at - 1] >= first:",
        "        if False:",
        f"{UNIT}/journal/test_ranges.py",
    ),
    Mistake(
        "identities are known before they are durable",
        "ingest.journal.group_commit",
        "duplicates.update(digests.take(request))",
        "digests.take(request)",
        f"{CONTRACT}/journal/test_appends.py",
    ),
    Mistake(
        "the journal deletes what has not landed",
        "ingest.journal.entries",
        '.where(*_of_landed_table, entries.c.id <= sa.bindparam("up_to"))',
        '.where(*_of_landed_table, entries.c.id <= sa.bindparam("up_to") + 1)',
        f"{CONTRACT}/journal/test_reading.py",
    ),
    Mistake(
        "a full journal accepts changes",
        "ingest.journal.group_commit",
        "            if request.entries and stored_bytes + request.stored_bytes > bound:",
        "            if False:",
        f"{CONTRACT}/journal/test_bounds.py",
    ),
    # staging
    Mistake(
        "a batch splits a source transaction",
        "ingest.journal.table_groups",
        "            spans.append((one.first_id, one.last_id - 1))",
        "            pass",
        f"{UNIT}/journal/test_cut_points.py",
    ),
    Mistake(
        "an open source transaction lands",
        "ingest.journal.table_groups",
        "            spans.append((one.first_id, None))",
        "            pass",
        f"{UNIT}/journal/test_cut_points.py",
    ),
    Mistake(
        "a change overtakes a dead letter of its row",
        "ingest.staging.rejects",
        "        elif own & blocked:",
        "        elif False:",
        f"{UNIT}/staging/test_rejects.py",
    ),
    # landing
    Mistake(
        "a batch lands on a table that has moved on",
        "ingest.store.tables",
        "_LAND = (\n    sa.update(landing_tables)\n"
        '    .where(*_of_table, landing_tables.c.landed_id == sa.bindparam("from_id"))',
        "_LAND = (\n    sa.update(landing_tables)\n    .where(*_of_table)",
        f"{CONTRACT}/test_staging.py",
    ),
    Mistake(
        "a worker publishes after it has lost its lease",
        "ingest.landing.job_service",
        '        if job.state != "leased" or job.epoch != epoch:',
        '        if job.state != "leased":',
        f"{CONTRACT}/test_staging.py",
    ),
    Mistake(
        "a table whose job failed goes with others again",
        "ingest.landing.batches",
        "    if first.events > thresholds.small_events or _is_any(first, alone):",
        "    if first.events > thresholds.small_events:",
        f"{UNIT}/landing/test_batches.py",
    ),
    # the worker
    Mistake(
        "a key with several rows in a file loses one of them",
        "spark_jobs.tables.key_files",
        'side="right")\n',
        'side="left")\n',
        f"{WORKER}/test_key_files.py",
    ),
    Mistake(
        "two composite keys are encoded alike",
        "spark_jobs.tables.key_files",
        '        parts += [length, pa.scalar(b":", pa.large_binary()), text]',
        "        parts += [text]",
        f"{WORKER}/test_key_files.py",
    ),
    Mistake(
        "verification forgets that a delete removes the row",
        "spark_jobs.verification.changes_fold",
        "            if transaction is None or hidden != transaction:\n                row = None",
        "            pass",
        f"{WORKER}/test_changes_fold.py",
    ),
)
