"""Rules of sources: settings that are checked, and what they do to a request."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import Invalid
from ingest.change import Change, Declared, ParsedRequest, Reject, RequestContext
from ingest.formats.detect import parse
from ingest.journal.encoded_request import encode_request
from ingest.sources.hiding import hashed
from ingest.sources.rules import SourceRules, rules_of_table
from ingest.sources.store import EXCLUDED, WarehouseRules, apply

SALT = b"salt" * 8
SECRET = "ada@example.org"


def rules(source: Any = "s", **given_rules: Any) -> WarehouseRules:
    return WarehouseRules({source: SourceRules.of(given_rules)}, SALT)


def change(table: tuple[str, ...] = ("shop", "orders"), index: int = 0, **fields: Any) -> Change:
    return Change(index, table, "insert", **{"after": {"id": 1}, "source": "s", **fields})


def request(*changes: Change, rejects: tuple[Reject, ...] = ()) -> ParsedRequest:
    return ParsedRequest("native", len(changes) + len(rejects), list(changes), list(rejects))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"include": ["orders"]}, r"include: 'orders' names no table: write namespace.table"),
        ({"exclude": [""]}, "exclude: a pattern must be a text"),
        ({"route": [{"from": "a.b", "to": "c.*"}]}, "has more \\* than"),
        ({"route": [{"from": "a.*", "to": "c"}]}, "'c' names no table"),
        ({"route": [{"from": "a.*", "to": "c.x__changes"}]}, "reserved"),
        ({"route": [{"from": "a.*", "to": "c..x"}]}, "name in a route"),
        ({"drop-columns": {"a.b": []}}, "drop-columns: 'a.b' must list"),
        ({"hash-columns": {"t": ["x"]}}, "hash-columns: 't' names no table"),
        ({"include": ["a.b"] * 1001}, "may have 1000"),
    ],
)
def test_rules_that_cannot_be_used_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        SourceRules.of(settings)


def test_rules_survive_json() -> None:
    settings = {
        "include": ["a.*"],
        "exclude": ["a.b"],
        "route": [{"from": "a.*", "to": "c.*"}],
        "drop-columns": {"*": ["p"]},
        "hash-columns": {"a.c": ["q", "r"]},
        "type-changes": "split",
    }
    assert SourceRules.of(settings).as_json() == settings


def test_tables_are_included_excluded_and_routed() -> None:
    own = rules(include=["shop.*"], exclude=["*.tmp"], route=[{"from": "shop.*", "to": "lake.s_*"}])
    names = [("shop", "orders"), ("shop", "tmp"), ("crm", "people")]
    parsed = request(*(change(table, index) for index, table in enumerate(names)))
    found = apply(parsed, own)
    assert [one.table for one in found.changes] == [("lake", "s_orders")]
    assert found.ignored == {1: EXCLUDED, 2: EXCLUDED}
    assert [(one.index, one.after) for one in found.excluded] == [(1, None), (2, None)]


def test_other_sources_are_left_alone() -> None:
    parsed = request(change(source="other"))
    assert apply(parsed, rules(exclude=["*"])) == request(change(source="other"))


def test_columns_of_a_request_stay_columns_if_no_rule_concerns_them() -> None:
    events = [
        {
            "sequence": n,
            "timestamp": 1,
            "operation": "INSERT",
            "table": "a.b",
            "rowId": "1",
            "after": {"id": n},
        }
        for n in (1, 2)
    ]
    parsed = parse(orjson.dumps({"events": events}), RequestContext(source="s"))
    assert parsed.columns is not None
    assert apply(parsed, rules("other", exclude=["*"])).columns is not None
    assert apply(parsed, rules(exclude=["*"])).change_count == 0


def test_a_column_is_hashed_or_dropped_in_all_its_places() -> None:
    declared = Declared({"id": "long", "email": "decimal(9,2)", "card": "string"}, {"email": "base64"})
    one = change(
        before={"email": SECRET},
        after={"id": 1, "email": SECRET, "card": "4111"},
        identity=f"key:{SECRET}",
        declared=declared,
    )
    own = rules(**{"drop-columns": {"*": ["card"]}, "hash-columns": {"shop.*": ["email"]}})
    [found] = apply(request(one), own).changes
    token = hashed(SECRET, SALT)
    assert (found.before, found.after) == ({"email": token}, {"id": 1, "email": token})
    assert found.declared == Declared({"id": "long", "email": "string"}, {})
    assert SECRET not in found.identity
    assert found.identity


def test_rules_for_columns_match_the_name_before_and_after_a_route() -> None:
    both = {"hash-columns": {"a.t": ["x"], "b.t": ["y"]}, "route": [{"from": "a.*", "to": "b.*"}]}
    assert rules_of_table(SourceRules.of(both), ("a", "t")).hashed == {"x", "y"}


def test_a_dropped_key_column_makes_a_dead_letter_without_values() -> None:
    own = rules(**{"drop-columns": {"*": ["email"]}})
    found = apply(request(change(key=("email",), after={"email": SECRET}, identity=SECRET)), own)
    assert found.changes == []
    [reject] = found.rejects
    assert "hash the column instead" in reject.reason
    assert SECRET not in repr(reject)


def test_a_row_id_that_has_a_hidden_value_is_refused_unless_it_is_hidden_too() -> None:
    named = change(row_id=SECRET, after={"email": SECRET})
    [reject] = apply(request(named), rules(**{"hash-columns": {"*": ["email"]}})).rejects
    assert reject.code == "hidden-row-id"
    assert SECRET not in repr(reject)
    [found] = apply(request(named), rules(**{"hash-columns": {"*": ["email", "rowId"]}})).changes
    assert found.row_id == found.after["email"] == hashed(SECRET, SALT)  # type: ignore[index]
    by_id = change(row_id="1", after={"id": 1, "points": 1})
    assert apply(request(by_id), rules(**{"hash-columns": {"*": ["points"]}})).rejects == []


def test_an_event_that_cannot_be_read_keeps_only_the_names_of_its_fields() -> None:
    original = orjson.dumps({"after": {"email": SECRET, "list": [1, True, None]}})
    own = rules(**{"hash-columns": {"*": ["email"]}})
    told = Reject(0, f"cannot read {SECRET}", original, source="s", identity=SECRET)
    broken = Reject(1, "not JSON", b'{"email": "ada@example.org"', source="")
    found = apply(request(rejects=(told, broken)), own).rejects
    assert orjson.loads(found[0].original) == {"after": {"email": "***", "list": ["***", True, None]}}
    assert SECRET not in repr(found)
    assert "not kept" in found[0].reason


def test_excluded_changes_are_counted_with_their_source_and_transaction() -> None:
    own = rules(exclude=["shop.tmp"])
    tables = [("shop", "tmp"), ("shop", "orders"), ("shop", "tmp")]
    transactions = ["t1", "t1", "t2"]
    parsed = apply(
        request(
            *(
                change(table, index, number=index + 1, transaction=transaction)
                for index, (table, transaction) in enumerate(zip(tables, transactions, strict=True))
            )
        ),
        own,
    )
    packed = encode_request("main", parsed, priority=1, deduplicate=True)
    assert [entry.key for entry in packed.entries] == ["shop\x1forders"]
    assert sorted(packed.numbered[0].numbers) == [1, 2, 3]
    steps = [(step.transaction, step.table) for step in packed.steps]
    assert steps == [("t1", None), ("t1", "shop\x1forders"), ("t2", None)]


VALUES = st.one_of(st.none(), st.text("xyz", min_size=6, max_size=9), st.integers(10**6, 10**9))
ROWS = st.dictionaries(st.sampled_from(["id", "email", "card", "name"]), VALUES)


@given(
    st.lists(
        st.builds(
            change,
            table=st.sampled_from([("shop", "orders"), ("shop", "tmp"), ("crm", "people")]),
            before=st.none() | ROWS,
            after=st.none() | ROWS,
            identity=st.text("xyz", max_size=9),
        ),
        max_size=5,
    )
)
def test_nothing_of_a_hidden_column_is_left(changes: list[Change]) -> None:
    """And nothing else is lost, and the input is not changed."""
    for index, one in enumerate(changes):
        one.index = index
    parsed = request(*changes)
    before = copy.deepcopy(parsed)
    own = rules(exclude=["*.tmp"], **{"drop-columns": {"*": ["card"]}, "hash-columns": {"*": ["email"]}})
    found = apply(parsed, own)
    assert parsed == before
    assert {one.index for one in (*found.changes, *found.excluded)} == set(range(len(changes)))
    by_index = {one.index: one for one in found.changes}
    for index, one in enumerate(changes):
        if one.table[-1] == "tmp":
            continue
        stored = by_index[index]
        for row, kept in ((one.before, stored.before), (one.after, stored.after)):
            if row is None:
                assert kept is None
                continue
            assert kept is not None
            assert kept.keys() == row.keys() - {"card"}
            assert all(kept[name] == row[name] for name in kept if name != "email")
            assert kept.get("email") == hashed(row.get("email"), SALT)
        secrets = {
            str(row[name])
            for row in (one.before, one.after)
            if row is not None
            for name in ("email", "card")
            if row.get(name) is not None
        }
        plain = {
            str(row[name])
            for row in (stored.before, stored.after)
            if row is not None
            for name in ("id", "name")
            if name in row
        }
        assert not {value for value in secrets if value in stored.identity} - plain
