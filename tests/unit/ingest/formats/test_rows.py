"""Plain rows."""

from __future__ import annotations

from ingest.change import RequestContext
from ingest.formats import detect, rows
from tests.unit.ingest.formats.recorded import parse

ROWS = [{"id": 1, "name": "a"}, {"id": 1, "name": "a"}]


def test_each_row_is_an_insert() -> None:
    parsed = parse(rows, ROWS, RequestContext(table=("lake", "t"), key=("id",), source="s"))
    for change in parsed.changes:
        assert (change.table, change.operation, change.after) == (("lake", "t"), "insert", ROWS[0])
        assert (change.key, change.source, change.position) == (("id",), "s", "")
        assert (change.identity, change.number) == ("", None)


def test_in_a_batch_with_a_name_the_place_is_the_identity() -> None:
    parsed = detect.parse(b'{"id":1}\n{"id":\n{"id":3}', RequestContext(table=("t",), batch="b-7"))
    assert parsed.format == "rows"
    assert [change.identity for change in parsed.changes] == ["t:b-7:0", "t:b-7:2"]
    assert [reject.identity for reject in parsed.rejects] == ["t:b-7:1"]


def test_without_a_table() -> None:
    parsed = parse(rows, ROWS)
    assert [reject.code for reject in parsed.rejects] == ["no-table", "no-table"]
    assert "/cdc/{namespace}/{table}" in parsed.rejects[0].reason


def test_what_is_no_row() -> None:
    parsed = parse(rows, [7], RequestContext(table=("t",)))
    assert parsed.rejects[0].code == "not-object"
