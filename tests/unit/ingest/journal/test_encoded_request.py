"""A request on its way into the journal: its tables, its claims, its transactions."""

from __future__ import annotations

import pytest

from catalog.errors import Invalid
from ingest.change import Change, ParsedRequest, Reject, TransactionEnd, table_key, table_name
from ingest.journal.encoded_request import (
    NUMBER_MAX,
    EncodedRequest,
    TransactionStep,
    encode_request,
    identity_digests,
    name_key,
)
from ingest.journal.encoding import decode

A, B = ("db", "a"), ("db", "b")


def encoded(parsed: ParsedRequest, *, deduplicate: bool = True) -> EncodedRequest:
    return encode_request("main", parsed, priority=1, deduplicate=deduplicate)


def test_events_go_to_their_tables_in_order() -> None:
    changes = [Change(n, (A, B, A)[n % 3], "insert", after={"n": n}) for n in range(6)]
    rejects = [Reject(6, "bad", b"x", table=B), Reject(7, "worse", b"y")]
    found = encoded(ParsedRequest("native", 8, changes, rejects))
    assert [(table_name(entry.key), list(entry.slots)) for entry in found.entries] == [
        (A, [0, 2, 3, 5]),
        (B, [1, 4, 6]),
        ((), [7]),
    ]
    assert [change.index for change in decode(found.entries[0].blob, A)[0]] == [0, 2, 3, 5]
    assert decode(found.entries[2].blob, ())[1] == [rejects[1]]
    assert found.indexes == list(range(8))
    assert found.stored_bytes == sum(len(entry.blob) for entry in found.entries)


def test_claims_by_number_by_identity_or_by_nothing() -> None:
    changes = [
        Change(0, A, "insert", source="s", number=5),
        Change(1, A, "insert", source="s", identity="x"),
        Change(2, A, "insert", source="s"),
        Change(3, A, "insert", source="r", number=7),
        Change(4, A, "insert", source="s", number=NUMBER_MAX),
    ]
    found = encoded(ParsedRequest("native", 5, changes, [Reject(5, "bad", b"", source="s", number=6)]))
    assert [(one.source, one.numbers, list(one.slots)) for one in found.numbered] == [
        ("s", [5, 6], [0, 5]),
        ("r", [7], [3]),
    ]
    assert found.digests == identity_digests("main", "s", ["x", f"#{NUMBER_MAX}"])
    assert list(found.digest_slots) == [1, 4]
    nothing = encoded(ParsedRequest("native", 5, changes), deduplicate=False)
    assert (nothing.numbered, nothing.digests) == ([], [])


def test_steps_of_transactions() -> None:
    changes = [
        Change(0, A, "insert", source="s", transaction="1"),
        Change(1, B, "insert", source="s"),
        Change(2, B, "insert", source="s", transaction="1", transaction_ends=True),
    ]
    found = encoded(ParsedRequest("native", 4, changes, ends=[TransactionEnd(3, "s", "1" * 300, 2)]))
    assert found.steps == [
        TransactionStep("s", "1", table_key(A), False, 0),
        TransactionStep("s", "1", table_key(B), True, 2),
    ]
    assert found.ends == [TransactionEnd(3, "s", name_key("1" * 300), 2)]


@pytest.mark.parametrize("table", [("a", ""), ("a\x1fb",), ("a\0",), ("\ud800",), ("x" * 3000,)])
def test_a_table_name_that_cannot_be_a_key_is_refused(table: tuple[str, ...]) -> None:
    with pytest.raises(Invalid):
        encoded(ParsedRequest("native", 1, [Change(0, table, "insert")]))


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(Invalid, match="cannot keep"):
        encoded(ParsedRequest("native", 1, [Change(0, A, "insert", after={"a": object()})]))


def test_names_of_any_kind_become_keys_that_differ() -> None:
    names = ["s", "", "ü", "a\0", "a\N{SYMBOL FOR NULL}", "x" * 200, "x" * 201, "x" * 202, "\ud800", "\ud801"]
    keys = [name_key(name) for name in names]
    assert len(set(keys)) == len(names)
    for key in keys:
        assert len(key) <= 200
        assert "\0" not in key
        key.encode()


def test_marks_are_of_a_warehouse_and_a_source() -> None:
    everyone = {
        mark
        for warehouse in ("main", "other")
        for source in ("s", "s1")
        for mark in identity_digests(warehouse, source, ["1", "11"])
    }
    assert len(everyone) == 8
