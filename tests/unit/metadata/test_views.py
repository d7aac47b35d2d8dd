"""The view engine: create, the eight updates, the requirement, history, dialects, and hostile requests."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from pyiceberg.view.metadata import ViewMetadata

from catalog.errors import CatalogError, IllegalArgument, Invalid, RequirementFailed
from catalog.metadata.document import Metadata
from catalog.metadata.view_invariants import view_violations
from catalog.metadata.view_updates import UPDATES, VIEW_UPDATES_MAX
from catalog.metadata.views import apply_view, check_view_requirements, is_view_replay, new_view

UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"
OTHER_UUID = "00000000-7681-40c8-86dc-e36561f83385"
LAST = {"action": "set-current-view-version", "view-version-id": -1}


def schema(*names: str, **more: Any) -> Metadata:
    fields = [{"id": i, "name": name, "required": False, "type": "int"} for i, name in enumerate(names, 1)]
    return {"type": "struct", "fields": fields, **more}


def version(sql: str = "select 1", *, time_ms: int = 100, schema_id: int = -1, **more: Any) -> Metadata:
    return {
        "version-id": 1,
        "timestamp-ms": time_ms,
        "schema-id": schema_id,
        "summary": {"engine-name": "spark"},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
        **more,
    }


def query(dialect: str, sql: str = "select 1") -> Metadata:
    return {"type": "sql", "sql": sql, "dialect": dialect}


def created(**properties: str) -> Metadata:
    request = {"name": "v", "schema": schema("a"), "view-version": version(), "properties": properties}
    return new_view(request, location="s3://b/v", view_uuid=UUID, now_ms=1000)


def commit(base: Metadata | None, *updates: Metadata, now_ms: int = 2000) -> Metadata:
    """Apply, and check what must hold after every commit."""
    before = copy.deepcopy(base)
    after = apply_view(base, [], list(updates), now_ms=now_ms)
    assert base == before, "the document that went in was changed"
    assert view_violations(after) == []
    ViewMetadata.model_validate_json(orjson.dumps(after))
    return after


def add_version(**more: Any) -> Metadata:
    return {"action": "add-view-version", "view-version": version(**more)}


def set_current(version_id: int) -> Metadata:
    return {"action": "set-current-view-version", "view-version-id": version_id}


def set_properties(**updates: str) -> Metadata:
    return {"action": "set-properties", "updates": updates}


def replaced(base: Metadata, sql: str, time_ms: int = 100, **more: Any) -> Metadata:
    return commit(base, add_version(sql=sql, time_ms=time_ms, schema_id=0, **more), LAST)


def version_ids(metadata: Metadata) -> list[int]:
    return [entry["version-id"] for entry in metadata["versions"]]


def logged(metadata: Metadata) -> list[tuple[int, int]]:
    return [(entry["version-id"], entry["timestamp-ms"]) for entry in metadata["version-log"]]


# --- create -------------------------------------------------------------------------------------------------


def test_a_new_view_has_our_ids_and_our_time() -> None:
    request = {
        "name": "v",
        "schema": schema("a", "b", **{"schema-id": 7}),
        "view-version": version("select 2", time_ms=5, schema_id=7, **{"version-id": 9, "x-kept": 1}),
        "properties": {"comment": "c"},
    }
    view = new_view(request, location="s3://b/v", view_uuid=UUID, now_ms=1000)
    assert view == {
        "view-uuid": UUID,
        "format-version": 1,
        "location": "s3://b/v",
        "schemas": [schema("a", "b", **{"schema-id": 0})],
        "current-version-id": 1,
        "versions": [version("select 2", time_ms=1000, schema_id=0, **{"version-id": 1, "x-kept": 1})],
        "version-log": [{"timestamp-ms": 1000, "version-id": 1}],
        "properties": {"comment": "c"},
    }
    assert view_violations(view) == []
    ViewMetadata.model_validate_json(orjson.dumps(view))


def test_properties_may_be_absent_or_null_on_create() -> None:
    for more in ({}, {"properties": None}):
        request = {"name": "v", "schema": schema("a"), "view-version": version(), **more}
        assert new_view(request, location="l", view_uuid=UUID, now_ms=1)["properties"] == {}


def test_two_queries_of_one_dialect_are_refused_in_the_words_clients_expect() -> None:
    request = {
        "name": "v",
        "schema": schema("a"),
        "view-version": version(representations=[query("trino"), query("Trino", "select 2")]),
        "properties": {},
    }
    expected = "^Invalid view version: Cannot add multiple queries for dialect trino$"
    with pytest.raises(IllegalArgument, match=expected):
        new_view(request, location="l", view_uuid=UUID, now_ms=1)
    with pytest.raises(IllegalArgument, match=expected):
        commit(created(), {"action": "add-view-version", "view-version": request["view-version"]})


def test_the_type_of_a_representation_is_stored_in_lower_case() -> None:
    after = commit(created(), add_version(schema_id=0, representations=[query("spark") | {"type": "SQL"}]))
    assert after["versions"][0]["representations"][0]["type"] == "sql"


# --- versions -----------------------------------------------------------------------------------------------


def test_a_replace_adds_a_version_and_a_log_entry_with_the_time_of_the_version() -> None:
    base = created()
    add_schema = {"action": "add-schema", "schema": schema("a", "b")}
    after = commit(base, add_schema, add_version(sql="select 2", time_ms=1500), LAST)
    assert after["current-version-id"] == 2
    assert version_ids(after) == [1, 2]
    assert after["versions"][1]["schema-id"] == 1
    assert logged(after) == [(1, 1000), (2, 1500)]
    assert after["versions"][0] is base["versions"][0], "untouched parts are shared"


def test_an_equal_version_is_used_again_whatever_its_id_and_time() -> None:
    base = replaced(created(), "select 2")
    after = commit(base, add_version(sql="select 1", schema_id=0, time_ms=77, **{"version-id": 40}), LAST)
    assert after["current-version-id"] == 1
    assert version_ids(after) == [1, 2]
    assert logged(after)[-1] == (1, 2000), "a version that is taken up again is logged with the present time"


@pytest.mark.parametrize(
    "change",
    [
        {"summary": {"engine-name": "trino"}},
        {"default-catalog": "c"},
        {"default-namespace": ["other"]},
        {"representations": [query("spark"), query("trino")]},
        {"x-unknown": True},
    ],
)
def test_a_version_that_differs_in_anything_that_matters_is_a_new_one(change: Metadata) -> None:
    assert version_ids(commit(created(), add_version(schema_id=0, **change))) == [1, 2]


def test_a_null_default_catalog_is_none() -> None:
    base = created()
    assert commit(base, add_version(schema_id=0, **{"default-catalog": None}), LAST) is base


def test_the_ids_of_the_client_are_never_trusted_but_understood_within_the_request() -> None:
    base = replaced(created(), "select 2")
    after = commit(
        base,
        {"action": "add-schema", "schema": schema("a", "b", **{"schema-id": 0})},
        add_version(sql="select 3", schema_id=0, **{"version-id": 2}),
        set_current(2),
    )
    assert after["current-version-id"] == 3
    assert after["versions"][-1]["schema-id"] == 1
    assert [entry["schema-id"] for entry in after["schemas"]] == [0, 1]


def test_two_replaces_that_did_not_see_each_other_both_apply() -> None:
    base = created()
    one = [add_version(sql="select 2", schema_id=0, **{"version-id": 2}), LAST]
    two = [add_version(sql="select 3", schema_id=0, **{"version-id": 2}), LAST]
    after = commit(commit(base, *one), *two)
    assert version_ids(after) == [1, 2, 3]
    assert after["current-version-id"] == 3


def test_several_changes_of_the_current_version_in_one_commit_are_one_log_entry() -> None:
    base = replaced(created(), "select 2")
    after = commit(base, set_current(1), add_version(sql="select 3", schema_id=0, time_ms=9), LAST)
    assert logged(after)[len(base["version-log"]) :] == [(3, 9)]
    there_and_back = commit(base, set_current(1), set_current(2))
    assert there_and_back is base


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ([LAST], "no view version has been added"),
        ([set_current(9)], "^Cannot set current version to unknown version: 9$"),
        ([add_version()], "^Cannot set last added schema: no schema has been added$"),
        ([add_version(schema_id=9)], "^Cannot add version with unknown schema: 9$"),
    ],
)
def test_a_reference_to_nothing_is_refused(updates: list[Metadata], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        commit(created(), *updates)


def test_no_id_is_given_beyond_what_clients_can_read() -> None:
    base = created()
    base["versions"][0]["version-id"] = base["current-version-id"] = 2**31 - 1
    base["version-log"] = []
    with pytest.raises(IllegalArgument, match="highest"):
        replaced(base, "select 2")


# --- schemas ------------------------------------------------------------------------------------------------


def test_an_equal_schema_is_used_again() -> None:
    base = created()
    add_schema = {"action": "add-schema", "schema": schema("a", **{"schema-id": 5}), "last-column-id": 1}
    assert commit(base, add_schema) is base
    after = commit(base, add_schema, add_version(sql="select 2"))
    assert after["schemas"] is base["schemas"]
    assert after["versions"][1]["schema-id"] == 0


def test_the_field_ids_of_a_view_stay_as_they_are() -> None:
    odd = {"type": "struct", "fields": [{"id": 40, "name": "a", "required": True, "type": "long", "x": 1}]}
    after = commit(created(), {"action": "add-schema", "schema": odd})
    assert after["schemas"][1] == odd | {"schema-id": 1}


# --- dialects -----------------------------------------------------------------------------------------------

LOSS = (
    r"^Cannot replace view due to loss of view dialects \(replace.drop-dialect.allowed=false\):\n"
    r"Previous dialects: \[spark, trino\]\nNew dialects: \[trino\]$"
)


def two_dialects(**properties: str) -> Metadata:
    both = version(representations=[query("spark"), query("Trino")])
    request = {"name": "v", "schema": schema("a"), "view-version": both, "properties": properties}
    return new_view(request, location="s3://b/v", view_uuid=UUID, now_ms=1000)


def test_a_replace_that_loses_a_dialect_is_refused() -> None:
    with pytest.raises(IllegalArgument, match=LOSS):
        replaced(two_dialects(), "", representations=[query("trino", "select 2")])


def test_a_dialect_may_be_lost_if_the_view_allows_it() -> None:
    allowed = {"replace.drop-dialect.allowed": "TRUE"}
    after = replaced(two_dialects(**allowed), "", representations=[query("trino", "select 2")])
    assert after["current-version-id"] == 2
    in_one_commit = commit(
        two_dialects(),
        set_properties(**allowed),
        add_version(schema_id=0, representations=[query("trino")]),
        LAST,
    )
    assert in_one_commit["current-version-id"] == 2


def test_the_comparison_is_with_the_version_that_was_current() -> None:
    base = commit(two_dialects(), add_version(schema_id=0, representations=[query("trino")]))
    with pytest.raises(IllegalArgument, match=LOSS):
        commit(base, set_current(2))
    with pytest.raises(IllegalArgument, match=LOSS):
        commit(base, set_current(2), set_properties(**{"replace.drop-dialect.allowed": "yes"}))


def test_the_case_of_a_dialect_does_not_matter_and_more_dialects_are_welcome() -> None:
    more = [query("SPARK", "select 2"), query("trino", "select 2"), query("duckdb", "select 2")]
    assert replaced(two_dialects(), "", representations=more)["current-version-id"] == 2


# --- history ------------------------------------------------------------------------------------------------


def test_ten_versions_are_kept_by_default() -> None:
    view = created()
    for number in range(2, 15):
        view = replaced(view, f"select {number}", time_ms=number)
    assert version_ids(view) == list(range(5, 15))
    assert [version_id for version_id, _ in logged(view)] == list(range(5, 15))


def test_the_number_of_versions_is_a_property_and_applies_at_once() -> None:
    view = created()
    for number in range(2, 8):
        view = replaced(view, f"select {number}")
    view = commit(view, set_properties(**{"version.history.num-entries": "3"}))
    assert version_ids(view) == [5, 6, 7]


def test_the_versions_of_this_commit_are_kept() -> None:
    added = [add_version(sql=f"select {number}", schema_id=0) for number in range(2, 6)]
    view = commit(created(**{"version.history.num-entries": "2"}), *added, LAST)
    assert version_ids(view) == [2, 3, 4, 5]
    assert logged(view) == [(5, 100)], "the log before an expired version is gone"


def test_the_current_version_never_expires() -> None:
    view = created(**{"version.history.num-entries": "2"})
    for number in range(2, 6):
        view = commit(view, add_version(sql=f"select {number}", schema_id=0))
    assert view["current-version-id"] == 1
    assert version_ids(view) == [1, 5]


def test_the_log_begins_after_the_last_version_that_expired() -> None:
    view = replaced(replaced(created(), "select 2"), "select 3")
    view = commit(view, set_current(1), set_properties(**{"version.history.num-entries": "2"}))
    assert version_ids(view) == [1, 3]
    assert [version_id for version_id, _ in logged(view)] == [3, 1]


def test_the_highest_id_stays_so_that_it_is_not_given_twice() -> None:
    view = replaced(created(**{"version.history.num-entries": "5"}), "select 2")
    view = commit(view, set_current(1), set_properties(**{"version.history.num-entries": "1"}))
    assert version_ids(view) == [1, 2]
    assert version_ids(replaced(view, "select 3")) == [3]


@pytest.mark.parametrize("value", ["0", "-1", "", "ten", "1.5", "1_0", " 5", "99999999999"])
def test_a_history_size_that_is_not_positive_is_refused(value: str) -> None:
    with pytest.raises(IllegalArgument, match=r"^version.history.num-entries must be "):
        commit(created(), set_properties(**{"version.history.num-entries": value}))


# --- properties, location, uuid, format version -------------------------------------------------------------


def test_properties_and_location_add_no_version() -> None:
    after = commit(
        created(a="1", b="2"),
        set_properties(a="3", c="4"),
        {"action": "remove-properties", "removals": ["b", "missing"]},
        {"action": "set-location", "location": "s3://b/w"},
    )
    assert after["properties"] == {"a": "3", "c": "4"}
    assert after["location"] == "s3://b/w"
    assert version_ids(after) == [1]
    assert logged(after) == [(1, 1000)]


def test_a_commit_without_effect_is_the_same_object() -> None:
    base = created(a="1")
    for updates in (
        [],
        [set_properties(a="1")],
        [set_properties()],
        [set_properties(b="1"), {"action": "remove-properties", "removals": ["b"]}],
        [{"action": "remove-properties", "removals": ["missing"]}],
        [{"action": "set-location", "location": "s3://b/v"}],
        [{"action": "assign-uuid", "uuid": UUID.upper()}],
        [{"action": "upgrade-format-version", "format-version": 1}],
        [set_current(1)],
    ):
        assert commit(base, *updates) is base


def test_properties_may_be_absent_in_a_document_of_others() -> None:
    base = {key: value for key, value in created().items() if key != "properties"}
    assert commit(base, {"action": "remove-properties", "removals": ["a"]}) is base
    assert commit(base, set_properties(a="1"))["properties"] == {"a": "1"}


def test_unknown_fields_survive() -> None:
    base = created() | {"x-ours": {"deep": [1]}}
    base["versions"][0]["x-version"] = 1
    after = commit(base, add_version(sql="select 2", schema_id=0, **{"x-new": [None]}), LAST)
    assert after["x-ours"] is base["x-ours"]
    assert [entry.get("x-version") for entry in after["versions"]] == [1, None]
    assert after["versions"][1]["x-new"] == [None]


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"action": "assign-uuid", "uuid": OTHER_UUID}, "^Cannot reassign uuid$"),
        ({"action": "upgrade-format-version", "format-version": 0}, "^Cannot downgrade v1 view to v0$"),
        ({"action": "upgrade-format-version", "format-version": 2}, "^Unsupported format version: 2$"),
    ],
)
def test_what_cannot_change_is_refused(update: Metadata, message: str) -> None:
    with pytest.raises(IllegalArgument, match=message):
        commit(created(), update)


# --- requirements -------------------------------------------------------------------------------------------


def test_the_uuid_is_compared_without_case() -> None:
    base = created()
    assert apply_view(base, [{"type": "assert-view-uuid", "uuid": UUID.upper()}], [], now_ms=1) is base
    assert apply_view(base, None, [], now_ms=1) is base


def test_another_uuid_fails_the_requirement() -> None:
    requirement = {"type": "assert-view-uuid", "uuid": OTHER_UUID}
    message = f"^Requirement failed: view UUID does not match: expected {UUID} != {OTHER_UUID}$"
    with pytest.raises(RequirementFailed, match=message):
        apply_view(created(), [requirement], [], now_ms=1)
    with pytest.raises(RequirementFailed, match=r"^Requirement failed: view does not exist$"):
        check_view_requirements(None, [requirement])


# --- a view from updates alone ------------------------------------------------------------------------------


def test_a_view_can_be_made_of_updates() -> None:
    view = commit(
        None,
        {"action": "assign-uuid", "uuid": UUID.upper()},
        {"action": "set-location", "location": "s3://b/v"},
        {"action": "add-schema", "schema": schema("a")},
        add_version(),
        LAST,
    )
    assert view["view-uuid"] == UUID
    assert logged(view) == [(1, 100)]


@pytest.mark.parametrize("missing", range(5))
def test_a_view_without_one_of_its_parts_is_refused(missing: int) -> None:
    updates: list[Metadata] = [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "set-location", "location": "s3://b/v"},
        {"action": "add-schema", "schema": schema("a")},
        add_version(),
        LAST,
    ]
    del updates[missing]
    with pytest.raises(Invalid):
        commit(None, *updates)


# --- replay -------------------------------------------------------------------------------------------------


def test_a_commit_that_has_landed_is_recognised_even_after_others() -> None:
    base = created()
    add_schema = {"action": "add-schema", "schema": schema("a", "b")}
    updates = [add_schema, add_version(sql="select 2", time_ms=1500), LAST]
    requirements = [{"type": "assert-view-uuid", "uuid": UUID}]
    assert not is_view_replay(base, requirements, updates)
    landed = commit(base, *updates)
    assert is_view_replay(landed, requirements, updates)
    assert commit(landed, *updates) is landed
    later = replaced(landed, "select 3")
    assert is_view_replay(later, requirements, updates)


def test_what_only_looks_alike_is_no_replay() -> None:
    landed = replaced(created(), "select 2", time_ms=1500)
    again = [add_version(sql="select 2", schema_id=0, time_ms=1600), LAST]
    other_schema = [
        {"action": "add-schema", "schema": schema("b")},
        add_version(sql="select 2", time_ms=1500),
        LAST,
    ]
    same = [add_version(sql="select 2", schema_id=0, time_ms=1500), LAST]
    assert is_view_replay(landed, [], same)
    assert not is_view_replay(landed, [], again)
    assert not is_view_replay(landed, [], other_schema)
    assert not is_view_replay(landed, [], [set_properties(a="1")])
    assert not is_view_replay(landed, [{"type": "assert-view-uuid", "uuid": OTHER_UUID}], same)
    assert not is_view_replay(landed, [], [{"action": "nonsense"}])
    assert not is_view_replay(None, [], same)


# --- hostile requests ---------------------------------------------------------------------------------------

UPDATE_KEYS = (
    "uuid",
    "format-version",
    "schema",
    "location",
    "updates",
    "removals",
    "view-version",
    "view-version-id",
)
JUNK: list[Any] = [None, True, 1, -7, 1.5, 2**70, "", "x", [], [1], [[]], {}, {"a": 1}, {"type": "struct"}]


@pytest.mark.parametrize("action", ["add-snapshot", "set-current-schema", "nonsense", "", "Assign-UUID"])
def test_an_unknown_update_is_refused(action: str) -> None:
    with pytest.raises(Invalid):
        commit(created(), {"action": action})


@pytest.mark.parametrize("kind", ["assert-create", "assert-table-uuid", "nonsense", ""])
def test_an_unknown_requirement_is_refused(kind: str) -> None:
    with pytest.raises(Invalid):
        apply_view(created(), [{"type": kind, "uuid": UUID}], [], now_ms=1)


@pytest.mark.parametrize("action", sorted(UPDATES))
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_in_an_update_is_refused_or_harmless(action: str, junk: Any) -> None:
    keys = (
        "uuid",
        "format-version",
        "schema",
        "location",
        "updates",
        "removals",
        "view-version",
        "view-version-id",
    )
    for update in ({"action": action}, {"action": action, **dict.fromkeys(keys, junk)}):
        _refused_or_sound([update])


@pytest.mark.parametrize("key", [*version(), "default-catalog"])
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_in_a_version_is_refused_or_harmless(key: str, junk: Any) -> None:
    _refused_or_sound([{"action": "add-view-version", "view-version": version(schema_id=0) | {key: junk}}])
    if key != "default-catalog":
        incomplete = {name: value for name, value in version().items() if name != key}
        request = {"name": "v", "schema": schema("a"), "view-version": incomplete}
        with pytest.raises(Invalid, match="is missing"):
            new_view(request, location="l", view_uuid=UUID, now_ms=1)


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_in_a_create_request_or_in_the_lists_is_refused(junk: Any) -> None:
    for key in ("schema", "view-version"):
        request = {"name": "v", "schema": schema("a"), "view-version": version()} | {key: junk}
        with pytest.raises(Invalid):
            new_view(request, location="l", view_uuid=UUID, now_ms=1)
    if junk not in (None, {}, {"type": "struct"}):
        with pytest.raises(Invalid):
            new_view(
                {"schema": schema("a"), "view-version": version(), "properties": junk},
                location="l",
                view_uuid=UUID,
                now_ms=1,
            )
    for junk_list in (junk, [junk]):
        if junk_list != []:
            with pytest.raises(Invalid):
                apply_view(created(), [], junk_list, now_ms=1)
            if junk_list is not None:
                with pytest.raises(Invalid):
                    apply_view(created(), junk_list, [], now_ms=1)


def test_too_many_updates_are_refused() -> None:
    with pytest.raises(Invalid, match="at most"):
        commit(created(), *[set_current(1)] * (VIEW_UPDATES_MAX + 1))
    with pytest.raises(Invalid, match="at most"):
        check_view_requirements(created(), [{"type": "assert-view-uuid", "uuid": UUID}] * 1001)


def test_nesting_too_deep_to_write_is_refused() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    with pytest.raises(Invalid, match="nested"):
        commit(created(), add_version(schema_id=0, **{"x-deep": deep}))
    with pytest.raises(Invalid, match="nested"):
        commit(created(), {"action": "add-schema", "schema": schema("a", **{"x-deep": deep})})


def _refused_or_sound(updates: list[Metadata]) -> None:
    base = created()
    before = copy.deepcopy(base)
    try:
        after = apply_view(base, [], updates, now_ms=1)
    except CatalogError as refusal:
        assert isinstance(refusal, Invalid)  # noqa: PT017 - either answer is right, any other exception is not
    else:
        assert view_violations(after) == []
    assert base == before


# --- invariants ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"format-version": 2}, "format-version"),
        ({"format-version": True}, "format-version"),
        ({"view-uuid": None}, "view-uuid"),
        ({"location": 1}, "location"),
        ({"location": ""}, "location"),
        ({"properties": {"a": 1}}, "properties.a"),
        ({"properties": None}, "properties"),
        ({"schemas": None}, "schemas"),
        ({"schemas": [schema("a")]}, "schema-id"),
        ({"schemas": [schema("a", **{"schema-id": 0})] * 2}, "occurs 2 times"),
        ({"schemas": []}, "unknown schema"),
        ({"versions": [1]}, "versions"),
        ({"versions": []}, "current-version-id"),
        ({"versions": [version(schema_id=0), version(schema_id=0)]}, "occurs 2 times"),
        ({"versions": [version(schema_id=-1)]}, "schema-id"),
        ({"versions": [version(schema_id=0, representations=[query("a"), query("A")])]}, "dialect"),
        ({"current-version-id": 2}, "current-version-id"),
        ({"version-log": [{"version-id": 1}]}, "timestamp-ms"),
        ({"version-log": [{"version-id": 2, "timestamp-ms": 1}]}, "version-log"),
    ],
)
def test_a_violation_is_found(change: Metadata, expected: str) -> None:
    found = view_violations(created() | change)
    assert found
    assert expected in "; ".join(found)


def test_a_document_that_is_no_object_is_a_violation() -> None:
    assert view_violations([]) == ["the document must be an object"]
    for key in created():
        document = created()
        del document[key]
        assert bool(view_violations(document)) == (key != "properties")
