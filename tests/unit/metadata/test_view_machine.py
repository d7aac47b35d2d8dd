"""Random histories of a view against what must hold after each commit, and against a small model."""

from __future__ import annotations

import copy
from typing import Any

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pyiceberg.view.metadata import ViewMetadata

from catalog.errors import Invalid
from catalog.metadata.document import Metadata
from catalog.metadata.view_invariants import view_violations
from catalog.metadata.views import apply_view, is_view_replay, new_view

UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"

COLUMNS = st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True)
DIALECTS = st.lists(st.sampled_from(["spark", "Spark", "trino", "duckdb"]), min_size=1, max_size=3)
UNIQUE_DIALECTS = st.lists(st.sampled_from(["spark", "trino"]), min_size=1, unique=True)
IDS = st.integers(-1, 12)
PROPERTIES = {
    "version.history.num-entries": st.sampled_from(["1", "2", "3", "10"]),
    "replace.drop-dialect.allowed": st.sampled_from(["true", "TRUE", "false"]),
}
ACTIONS = st.one_of(
    st.builds(lambda names: {"action": "add-schema", "schema": _schema(names)}, COLUMNS),
    st.builds(
        lambda number, names, id_, schema_id: {
            "action": "add-view-version",
            "view-version": _version(number, names, id_, schema_id),
        },
        st.integers(1, 6),
        DIALECTS,
        IDS,
        st.integers(-1, 3),
    ),
    st.builds(lambda id_: {"action": "set-current-view-version", "view-version-id": id_}, IDS),
    st.builds(
        lambda size: {"action": "set-properties", "updates": {"version.history.num-entries": str(size)}},
        st.integers(0, 4),
    ),
    st.builds(
        lambda allowed: {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": allowed}},
        st.sampled_from(["true", "false", "True"]),
    ),
    st.just({"action": "remove-properties", "removals": ["version.history.num-entries"]}),
    st.builds(lambda end: {"action": "set-location", "location": f"s3://b/{end}"}, st.sampled_from("vw")),
    st.sampled_from(
        [
            {"action": "assign-uuid", "uuid": UUID},
            {"action": "upgrade-format-version", "format-version": 1},
            {"action": "assign-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
        ]
    ),
)


def _schema(names: list[str]) -> Metadata:
    fields = [{"id": i, "name": name, "required": False, "type": "int"} for i, name in enumerate(names, 1)]
    return {"type": "struct", "fields": fields}


def _version(number: int, dialects: list[str], version_id: int = 1, schema_id: int = -1) -> Metadata:
    return {
        "version-id": version_id,
        "timestamp-ms": number,
        "schema-id": schema_id,
        "summary": {},
        "default-namespace": [],
        "representations": [
            {"type": "sql", "sql": f"select {number}", "dialect": dialect} for dialect in dialects
        ],
    }


def _content(version: Metadata) -> bytes:
    return orjson.dumps(version, option=orjson.OPT_SORT_KEYS)


def _dialects(metadata: Metadata) -> set[str]:
    current = next(v for v in metadata["versions"] if v["version-id"] == metadata["current-version-id"])
    return {entry["dialect"].lower() for entry in current["representations"]}


class ViewHistory(RuleBasedStateMachine):
    """Every version and schema ever seen is remembered by its id: an id must never mean two things."""

    def __init__(self) -> None:
        super().__init__()
        self.view: Metadata = {}
        self.versions: dict[int, bytes] = {}
        self.schemas: dict[int, bytes] = {}
        self.now_ms = 1000

    @initialize(names=COLUMNS, dialect=st.sampled_from(["spark", "trino"]))
    def create(self, names: list[str], dialect: str) -> None:
        request = {"name": "v", "schema": _schema(names), "view-version": _version(1, [dialect])}
        self.view = new_view(request, location="s3://b/v", view_uuid=UUID, now_ms=self.now_ms)

    @rule(names=COLUMNS, dialects=UNIQUE_DIALECTS, number=st.integers(1, 30))
    def replace(self, names: list[str], dialects: list[str], number: int) -> None:
        self.commit(
            [
                {"action": "add-schema", "schema": _schema(names)},
                {"action": "add-view-version", "view-version": _version(number, dialects)},
                {"action": "set-current-view-version", "view-version-id": -1},
            ]
        )

    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        known = [version["version-id"] for version in self.view["versions"]]
        version_id = data.draw(st.sampled_from(known))
        self.commit([{"action": "set-current-view-version", "view-version-id": version_id}])

    @rule(properties=st.fixed_dictionaries({}, optional=PROPERTIES))
    def set_properties(self, properties: dict[str, str]) -> None:
        self.commit([{"action": "set-properties", "updates": properties}])

    @rule(updates=st.lists(ACTIONS, max_size=5))
    def commit(self, updates: list[dict[str, Any]]) -> None:
        self.now_ms += 1
        before = copy.deepcopy(self.view)
        try:
            after = apply_view(self.view, [], copy.deepcopy(updates), now_ms=self.now_ms)
        except Invalid:
            assert self.view == before
            return
        assert self.view == before
        assert after == before if after is self.view else after != before
        self._check_step(before, after)
        self._check_replay(after, updates)
        self.view = after

    def _check_step(self, before: Metadata, after: Metadata) -> None:
        moved = after["current-version-id"] != before["current-version-id"]
        # The log grows by one entry at most, and loses nothing but its beginning.
        log = after["version-log"]
        was = log[: len(log) - moved]
        assert was == before["version-log"][len(before["version-log"]) - len(was) :]
        if moved:
            assert log[-1]["version-id"] == after["current-version-id"]
        if after["properties"].get("replace.drop-dialect.allowed", "").lower() != "true":
            assert _dialects(before) <= _dialects(after)
        assert after["schemas"][: len(before["schemas"])] == before["schemas"]

    def _check_replay(self, after: Metadata, updates: list[dict[str, Any]]) -> None:
        """Sending a landed commit again changes nothing, or is recognised.

        It cannot be recognised if it adds more versions than the view keeps: some are deleted already.
        """
        uses_given_ids = any(update.get("view-version-id", -1) != -1 for update in updates)
        added = sum(update["action"] == "add-view-version" for update in updates)
        is_pruned = added > int(after["properties"].get("version.history.num-entries", added))
        again = apply_view(after, [], updates, now_ms=self.now_ms)
        assert again == after or is_view_replay(after, [], updates) or uses_given_ids or is_pruned

    @invariant()
    def is_sound(self) -> None:
        if not self.view:
            return
        assert view_violations(self.view) == []
        ViewMetadata.model_validate_json(orjson.dumps(self.view))
        for version in self.view["versions"]:
            assert self.versions.setdefault(version["version-id"], _content(version)) == _content(version)
        for schema in self.view["schemas"]:
            assert self.schemas.setdefault(schema["schema-id"], _content(schema)) == _content(schema)
        size = int(self.view["properties"].get("version.history.num-entries", 10))
        assert len(self.view["versions"]) <= max(size, 2) + 5


TestViewHistory = ViewHistory.TestCase
TestViewHistory.settings = settings(max_examples=150, stateful_step_count=15, deadline=None)
