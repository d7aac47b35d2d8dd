"""Dead letters over HTTP: list, load, fix, replay, drop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import ReaderWarehouse, WriterWarehouse
from catalog.errors import Conflict, Invalid, NotFound
from ingest.change import Change, ParsedRequest, Refused, RequestContext, TableName
from ingest.formats.detect import parse
from ingest.formats.json_body import NotJson, decode
from ingest.journal import encoding
from ingest.journal.dead_letters import DeadLetter, change_from_json, replay_identity
from ingest.journal.journal import Journal
from ingest.sources.store import NO_RULES, SourceStore, WarehouseRules, hide_columns
from ingest.staging.context import UNROUTED

router = APIRouter(prefix="/lake/v1", tags=["Dead letters"])
REPLAYED_MAX = 100_000
PAGE = 1_000

State = Literal["open", "fixed", "replayed", "dropped"]


class LetterAnswer(BaseModel):
    id: str
    table: list[str]
    state: State
    code: str
    reason: str
    key: str | None = Field(None, description="The key of the row as JSON, if it is known")
    source: str
    position: str
    received_ms: int = Field(serialization_alias="received-ms")


class LetterDetail(LetterAnswer):
    original: str = Field(description="The original event; bytes that are not text are replaced")
    replaced: str | None = Field(None, description="The event that a replay sends instead")


class ReasonAnswer(BaseModel):
    """Dead letters of one table and source that could not land for the same reason."""

    model_config = ConfigDict(from_attributes=True)
    table: list[str]
    source: str
    code: str
    reason: str = Field(description="Without the values of single events")
    count: int
    waiting: int = Field(description="Of these, open or fixed")
    first_ms: int = Field(serialization_alias="first-ms")
    last_ms: int = Field(serialization_alias="last-ms")
    example: str = Field(description="The id of one of them")


class LetterList(BaseModel):
    dead_letters: list[LetterAnswer] = Field(serialization_alias="dead-letters")
    reasons: list[ReasonAnswer] | None = Field(
        None, description="With `group=reason`: in place of the letters"
    )
    next_page_token: str | None = Field(None, serialization_alias="next-page-token")


class FixRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    event: dict[str, Any] = Field(description="The corrected event, in any format")


class ReplayRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    ids: list[str] | None = Field(
        None,
        description="The letters to replay; if left out, all that are open or fixed, of one table or of all",
    )
    table: list[str] | None = None


class ReplayAnswer(BaseModel):
    replayed: int = Field(description="The number of changes that were appended to the journal")


def _journal(request: Request) -> Journal:
    journal: Journal = request.app.state.ingest.journal
    return journal


JournalOf = Annotated[Journal, Depends(_journal)]


def _sources(request: Request) -> SourceStore:
    sources: SourceStore = request.app.state.ingest.sources
    return sources


SourcesOf = Annotated[SourceStore, Depends(_sources)]


@router.get("/{warehouse}/dead-letters", operation_id="listDeadLetters", response_model=LetterList)
def list_letters(
    journal: JournalOf,
    warehouse: ReaderWarehouse,
    table: Annotated[str | None, Query(description="Only the letters of this table: namespace.name")] = None,
    state: State | None = None,
    group: Annotated[
        Literal["reason"] | None,
        Query(description="Count letters with the same reason, the most frequent first"),
    ] = None,
    page_token: Annotated[str | None, Query(alias="pageToken")] = None,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=1000)] = 100,
) -> Any:
    """List dead letters, in the order of arrival; or count them by reason."""
    name = tuple(table.split(".")) if table else None
    if group is not None:
        if page_token:
            raise Invalid("pageToken: reasons have no pages, raise pageSize or name a table")
        return {
            "dead_letters": [],
            "reasons": journal.dead_letters.reasons(warehouse, name, state)[:page_size],
        }
    if page_token:
        _letter(journal, warehouse, page_token)
    found = journal.dead_letters.all(warehouse, name, state, page_token or None, page_size)
    return {
        "dead_letters": [_shown(letter) for letter in found],
        "next_page_token": found[-1].id if len(found) == page_size else None,
    }


@router.get("/{warehouse}/dead-letters/{letter}", operation_id="loadDeadLetter", response_model=LetterDetail)
def load_letter(journal: JournalOf, warehouse: ReaderWarehouse, letter: str) -> Any:
    """Load one dead letter with its original event."""
    return _detail(_letter(journal, warehouse, letter))


@router.put("/{warehouse}/dead-letters/{letter}", operation_id="fixDeadLetter", response_model=LetterDetail)
def fix_letter(
    journal: JournalOf, sources: SourcesOf, warehouse: WriterWarehouse, letter: str, body: FixRequest
) -> Any:
    """Set the event that a replay sends. 400 if it cannot be parsed either."""

    found = _letter(journal, warehouse, letter)
    try:
        event = json.dumps(body.event, allow_nan=False).encode()
    except ValueError as error:
        raise Invalid(f"the event holds a number that JSON does not have: {error}") from error
    rules = sources.rules(warehouse)
    own = rules.of(found.source)
    if own is not None and own.hides_columns and found.change is None:
        raise Invalid("the source of this event hides columns: post the corrected event to /cdc instead")
    check_fix(found, event, rules)
    journal.dead_letters.fix(found.id, event)
    return _detail(_letter(journal, warehouse, letter))


@router.delete("/{warehouse}/dead-letters/{letter}", operation_id="dropDeadLetter", status_code=204)
def drop_letter(journal: JournalOf, warehouse: WriterWarehouse, letter: str) -> None:
    """Drop a dead letter: it will not be replayed, and later changes of its key no longer wait."""
    found = _letter(journal, warehouse, letter)
    if found.state == "replayed":
        raise Conflict(f"Dead letter {letter} has been replayed already")
    journal.dead_letters.set_state([found.id], "dropped")


@router.post(
    "/{warehouse}/dead-letters/replay", operation_id="replayDeadLetters", response_model=ReplayAnswer
)
def replay_letters(
    journal: JournalOf, sources: SourcesOf, warehouse: WriterWarehouse, body: ReplayRequest
) -> Any:
    """Append dead letters to the journal again, in the order of arrival. Each keeps its position among the
    changes of its row.
    """

    if body.ids is not None:
        found = [_letter(journal, warehouse, letter) for letter in body.ids]
        over = [letter.id for letter in found if letter.state not in ("open", "fixed")]
        if over:
            raise Conflict(f"These are neither open nor fixed: {', '.join(over[:10])}")
    else:
        found = waiting(journal, warehouse, tuple(body.table) if body.table is not None else None)
    return {"replayed": replay(journal, warehouse, found, sources.rules(warehouse))}


def waiting(journal: Journal, warehouse: str, table: TableName | None) -> list[DeadLetter]:
    """Return all letters that are open or fixed."""
    found: list[DeadLetter] = []
    after: str | None = None
    while len(found) < REPLAYED_MAX:
        page = journal.dead_letters.all(warehouse, table, None, after, PAGE)
        found += [letter for letter in page if letter.state in ("open", "fixed")]
        if len(page) < PAGE:
            break
        after = page[-1].id
    return found


def _letter(journal: Journal, warehouse: str, letter: str) -> DeadLetter:
    found = journal.dead_letters.get(letter)
    if found.warehouse != warehouse:
        raise NotFound(f"Dead letter does not exist: {letter}")
    return found


def _shown(letter: DeadLetter) -> dict[str, Any]:
    names = ("id", "state", "code", "reason", "key", "source", "position", "received_ms")
    return {name: getattr(letter, name) for name in names} | {"table": list(letter.table)}


def _detail(letter: DeadLetter) -> dict[str, Any]:
    replaced = letter.replaced.decode(errors="replace") if letter.replaced is not None else None
    original = letter.original.decode(errors="replace")
    return _shown(letter) | {"original": original, "replaced": replaced}


# -- replay

GROUP = 1_000  # letters in one append


def replay(
    journal: Journal, warehouse: str, letters: Sequence[DeadLetter], rules: WarehouseRules = NO_RULES
) -> int:
    """Append the letters to the journal again. Returns the number of changes.

    A change keeps its source and position, so it does not overwrite later changes. All letters of a call are
    parsed before the first is appended: one that is still unreadable stops the call, and the message names
    it.
    """
    ordered = sorted(letters, key=lambda letter: (letter.journal_id, letter.ordinal))
    read = [(letter, _changes_of(letter, rules)) for letter in ordered]
    count = 0
    for start in range(0, len(read), GROUP):
        group = read[start : start + GROUP]
        changes = [change for _, found in group for change in found]
        for index, change in enumerate(changes):
            change.index = index
        parsed = ParsedRequest("replay", len(changes), changes)
        journal.submit(warehouse, parsed, priority=0).result()
        journal.dead_letters.set_state([letter.id for letter, _ in group], "replayed")
        count += len(changes)
    return count


def check_fix(letter: DeadLetter, fixed: bytes, rules: WarehouseRules = NO_RULES) -> None:
    """Raise Invalid if the fixed event cannot be parsed."""
    _read_letter(letter, fixed, rules, is_fixed=True)


def _changes_of(letter: DeadLetter, rules: WarehouseRules = NO_RULES) -> list[Change]:
    known = _known(letter)
    if letter.replaced is not None:
        found = _read_letter(letter, letter.replaced, rules, is_fixed=True)
    else:
        found = [known] if known is not None else _read_letter(letter, letter.original, rules, is_fixed=False)
    for number, change in enumerate(found):
        change.source = letter.source or change.source
        change.position = letter.position or change.position
        change.number = None
        change.identity = replay_identity(letter.id, letter.changed_ms, number)
    return found


def _read_letter(letter: DeadLetter, body: bytes, rules: WarehouseRules, *, is_fixed: bool) -> list[Change]:
    kept = _kept_change(letter, body)
    if kept is not None:
        return [kept]
    parsed = parse(body, _context(letter, is_fixed=is_fixed))
    if parsed.rejects:
        raise Invalid(f"dead letter {letter.id} cannot be read: {parsed.rejects[0].reason}")
    for change in parsed.changes:
        change.source = letter.source or change.source
    try:
        return hide_columns(parsed.changes, rules)
    except Refused as refused:
        raise Invalid(f"dead letter {letter.id} cannot be replayed: {refused.reason}") from None


def _context(letter: DeadLetter, *, is_fixed: bool) -> RequestContext:
    """Return the context of the request that brought the event. A fixed event may have another format."""
    given = dict(orjson.loads(letter.context)) if letter.context else {}
    detected = given.pop("detected", "auto")
    if not is_fixed:
        given["format"] = detected
    for name in ("key", "namespace"):
        if given.get(name) is not None:
            given[name] = tuple(given[name])
    # The fixed event may name a table, although the original named none.
    return RequestContext(**given, table=None if letter.table == UNROUTED else letter.table)


def _known(letter: DeadLetter) -> Change | None:
    """Return the change, if it could be parsed on arrival and did not fit its table."""
    if letter.change is None:
        return None
    [change], _ = encoding.decode(letter.change, letter.table)
    return change


def _kept_change(letter: DeadLetter, body: bytes) -> Change | None:
    """Return the same as text, which people can read and fix."""
    try:
        event: Any = decode(body)
    except NotJson:
        return None
    return change_from_json(event, letter.table, _known(letter)) if isinstance(event, dict) else None
