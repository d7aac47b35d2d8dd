"""What a producer is told."""

from __future__ import annotations

import pytest

from catalog.errors import Invalid
from ingest.api.results import (
    LISTED_MAX,
    AppendResult,
    RequestSummary,
    commit_response,
    kafka_response,
    parse_token,
    receipt_response,
)
from ingest.change import Change, ParsedRequest, Reject
from ingest.journal.receipts import AppendReceipt
from ingest.settings import TableSettings
from ingest.store.tables import LandedTable

TABLE = ("a", "t")


def result(
    *,
    changes: int = 0,
    rejects: int = 0,
    ignored: int = 0,
    duplicates: set[int] | None = None,
    last: int | None = 7,
) -> AppendResult:
    """Changes come first, then rejects, then what is ignored."""
    events = changes + rejects + ignored
    parsed = ParsedRequest("native", events)
    parsed.changes = [Change(index, TABLE, "insert", after={}) for index in range(changes)]
    parsed.rejects = [Reject(changes + place, "bad", b"") for place in range(rejects)]
    parsed.ignored = dict.fromkeys(range(changes + rejects, events), "heartbeat")
    return AppendResult(
        "main", RequestSummary.of(parsed), AppendReceipt(last, last, frozenset(duplicates or ()), (TABLE,), 9)
    )


def test_plainly_accepted_events_are_not_listed() -> None:
    answer = receipt_response(result(changes=3))
    assert answer == {
        "success": True,
        "eventsReceived": 3,
        "eventsAccepted": 3,
        "isDuplicate": False,
        "duplicates": 0,
        "deadLettered": 0,
        "token": "main:7",
        "format": "native",
        "events": [],
    }


def test_all_others_are() -> None:
    answer = receipt_response(result(changes=2, rejects=1, ignored=1, duplicates={1}))
    assert (answer["eventsAccepted"], answer["duplicates"], answer["deadLettered"]) == (1, 1, 1)
    assert [(event["index"], event["status"]) for event in answer["events"]] == [
        (1, "duplicate"),
        (2, "dead_lettered"),
        (3, "ignored"),
    ]


def test_or_every_event() -> None:
    answer = receipt_response(result(changes=2, rejects=1), verbose=True)
    assert [event["status"] for event in answer["events"]] == ["accepted", "accepted", "dead_lettered"]


def test_nothing_new() -> None:
    answer = receipt_response(result(changes=2, rejects=1, duplicates={0, 1, 2}, last=None))
    assert (answer["isDuplicate"], answer["token"], answer["deadLettered"]) == (True, "main:9", 0)


def test_only_ignored_events_are_no_duplicate() -> None:
    assert receipt_response(result(ignored=2, last=None))["isDuplicate"] is False


def test_a_repeat_with_something_new_is_no_duplicate() -> None:
    assert receipt_response(result(changes=2, duplicates={0}))["isDuplicate"] is False


def test_the_list_has_an_end() -> None:
    answer = receipt_response(result(rejects=LISTED_MAX + 1))
    assert len(answer["events"]) == LISTED_MAX
    assert answer["truncated"] is True


def landed(number: int | None) -> LandedTable:
    return LandedTable(TABLE, TableSettings(), 7, number, 5_000_000, 11, None, None, 1, 0, None)


def test_after_the_commit() -> None:
    answer = commit_response(result(changes=1), {TABLE: landed(4), ("a", "u"): landed(None)})
    assert answer["committed"] is True
    assert answer["snapshots"] == [
        {
            "table": "a.t",
            "number": 4,
            "mirror-snapshot-id": 11,
            "changes-snapshot-id": None,
            "commit-timestamp": 5000,
        }
    ]
    late = commit_response(result(changes=1), None)
    assert (late["committed"], late["snapshots"], late["success"]) == (False, [], True)


def test_as_a_kafka_proxy_says_it() -> None:
    answer = kafka_response(result(changes=1, rejects=1))
    assert answer["offsets"] == [{"partition": 0, "offset": 7, "error_code": None, "error": None}] * 2


def test_tokens() -> None:
    assert parse_token("main:12") == ("main", 12)
    for wrong in ("", "main", "main:", ":1", "main:x", "main:-1", "main:" + "1" * 19, "main:\u0661"):
        with pytest.raises(Invalid):
            parse_token(wrong)
