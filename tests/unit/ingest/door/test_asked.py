"""What a request says besides its body."""

from __future__ import annotations

import pytest

from catalog.errors import Invalid
from ingest.door.asked import asked, priority_of, seconds
from ingest.door.settings import DoorSettings

SETTINGS = DoorSettings()


def test_defaults() -> None:
    request = asked({}, b"", {}, SETTINGS)
    assert (request.warehouse, request.wait, request.priority, request.verbose) == (
        "main",
        "journal",
        1,
        False,
    )
    assert request.timeout_s == SETTINGS.commit_wait_s
    context = request.context
    assert (context.format, context.table, context.source, context.key, context.batch) == (
        "auto",
        None,
        None,
        None,
        None,
    )


def test_everything_at_once() -> None:
    query = b"format=debezium&wait=commit&key=id,%20region&warehouse=w2&timeout_s=1.5&verbose=1"
    headers = {b"x-source-id": b"s", b"x-batch-seq": b"7", b"x-priority": b"P0", b"content-type": b"text/x"}
    request = asked({"namespace": "a%1Fb", "table": "t%20x"}, query, headers, SETTINGS)
    assert request.context.table == ("a", "b", "t x")
    assert request.context.key == ("id", "region")
    assert request.context.batch == "s#7"
    assert (request.warehouse, request.wait, request.timeout_s) == ("w2", "commit", 1.5)
    assert (request.priority, request.verbose, request.context.content_type) == (0, True, "text/x")


@pytest.mark.parametrize(
    ("raw", "levels"),
    [("a.b", ("a", "b")), ("a%1Fb.c", ("a", "b.c")), ("a", ("a",)), ("a%2Fb", ("a/b",))],
)
def test_levels_of_a_namespace(raw: str, levels: tuple[str, ...]) -> None:
    request = asked({"namespace": raw, "table": "t"}, b"", {}, SETTINGS)
    assert request.context.table == (*levels, "t")


def test_ack_means_wait() -> None:
    assert asked({}, b"ack=commit", {}, SETTINGS).wait == "commit"


@pytest.mark.parametrize(
    ("headers", "batch"),
    [
        ({b"idempotency-key": b"k", b"webhook-id": b"w"}, "k"),
        ({b"webhook-id": b"w", b"x-source-id": b"s", b"x-batch-seq": b"1"}, "w"),
        ({b"x-source-id": b"s"}, None),
    ],
)
def test_what_names_a_batch(headers: dict[bytes, bytes], batch: str | None) -> None:
    assert asked({}, b"", headers, SETTINGS).context.batch == batch


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        (b"wait=never", {}),
        (b"timeout_s=soon", {}),
        (b"timeout_s=-1", {}),
        (b"timeout_s=inf", {}),
        (b"timeout_s=nan", {}),
        (b"key=a,,b", {}),
        (b"key=a,a", {}),
        (b"warehouse=..", {}),
        (b"verbose=perhaps", {}),
        (b"format=%ff", {}),
        (b"", {b"x-batch-seq": b"1"}),
        (b"", {b"x-source-id": b""}),
        (b"", {b"x-source-id": b"\xff"}),
        (b"", {b"x-source-id": b"a\x01"}),
        (b"", {b"x-source-id": b"a" * 256}),
        (b"", {b"x-priority": b"9"}),
    ],
)
def test_refused(query: bytes, headers: dict[bytes, bytes]) -> None:
    with pytest.raises(Invalid):
        asked({}, query, headers, SETTINGS)


@pytest.mark.parametrize(("word", "number"), [(b"0", 0), (b"p3", 3), (b"high", 0), (b"low", 3), (b" 2 ", 2)])
def test_priorities(word: bytes, number: int) -> None:
    assert priority_of({b"x-priority": word}) == number


def test_a_time_is_cut_to_what_is_allowed() -> None:
    assert seconds("t", "1000", 5, 55) == 55
    assert seconds("t", None, 100, 55) == 55
