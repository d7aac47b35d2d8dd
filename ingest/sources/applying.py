"""The rules of sources applied to a request, after it is parsed and before anything of it is stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingest.change import Change, ParsedRequest, Reject, original_of
from ingest.formats.fields import Refused, checked_table
from ingest.journal.encoded_request import name_key
from ingest.sources.hiding import hashed, hide, hide_content
from ingest.sources.rules import SourceRules, rules_of_table

EXCLUDED = "the rules of the source exclude its table"


@dataclass(frozen=True, slots=True)
class WarehouseRules:
    """The rules of all sources of a warehouse, by the name of the source as SQL has it."""

    by_source: Mapping[str, SourceRules] = field(default_factory=dict)
    salt: bytes = b""

    def of(self, source: str) -> SourceRules | None:
        return self.by_source.get(name_key(source)) if self.by_source else None

    @property
    def hide_columns(self) -> bool:
        return any(rules.hides_columns for rules in self.by_source.values())


NO_RULES = WarehouseRules()


def apply(parsed: ParsedRequest, rules: WarehouseRules) -> ParsedRequest:
    """The request as it may be stored. Excluded changes are kept without their rows: they have been received,
    and a source that counts its changes or announces the size of a transaction counts them too.
    """
    if not _concerns(parsed, rules):
        return parsed
    found = ParsedRequest(parsed.format, parsed.events, ends=parsed.ends, begins=parsed.begins)
    found.batch = parsed.batch
    found.ignored = dict(parsed.ignored)
    found.excluded = list(parsed.excluded)
    found.rejects = [_reject(reject, rules) for reject in parsed.rejects]
    for change in parsed.changes:
        own = rules.of(change.source)
        if own is None:
            found.changes.append(change)
        else:
            _apply_to(change, own, rules.salt, found)
    stored = {change.index for change in found.changes} | {reject.index for reject in found.rejects}
    found.ignored |= {change.index: EXCLUDED for change in found.excluded if change.index not in stored}
    return found


def hide_columns(changes: Sequence[Change], rules: WarehouseRules) -> list[Change]:
    """Changes of events that a person has fixed, or that were stored before the rules were set."""
    found = []
    for change in changes:
        own = rules.of(change.source)
        table = None if own is None else rules_of_table(own, change.table)
        found.append(hide(change, table, rules.salt) if table is not None and table.hidden else change)
    return found


def _concerns(parsed: ParsedRequest, rules: WarehouseRules) -> bool:
    if not rules.by_source:
        return False
    if parsed.columns is not None and parsed.columns.size == parsed.events:
        return rules.of(parsed.columns.same["source"]) is not None  # the columns stay columns if not
    return True


def _apply_to(change: Change, rules: SourceRules, salt: bytes, found: ParsedRequest) -> None:
    own = rules_of_table(rules, change.table)
    if own.is_excluded:
        found.excluded.append(replace(change, before=None, after=None, row_id=None, declared=None))
        return
    try:
        hidden = hide(change, own, salt) if own.hidden else change
        found.changes.append(replace(hidden, table=checked_table(own.table)))
    except Refused as refused:
        found.rejects.append(
            Reject(
                change.index,
                refused.reason,
                original_of({"operation": change.operation, "table": ".".join(change.table)}),
                refused.code,
                None if refused.code == "bad-table" else own.table,
                change.source,
                change.position,
                hashed(change.identity, salt) or "" if change.identity else "",
                change.number,
            )
        )


def _reject(reject: Reject, rules: WarehouseRules) -> Reject:
    own = rules.of(reject.source)
    table = reject.table
    if own is not None and table is not None:
        table = rules_of_table(own, table).table
    hides = own.hides_columns if own is not None else not reject.source and rules.hide_columns
    return replace(hide_content(reject, rules.salt) if hides else reject, table=table)
