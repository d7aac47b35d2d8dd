"""Random histories of a table: each document is sound, and what must never change has not."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.table.metadata import TableMetadataUtil

from catalog.errors import CatalogError, CommitFailed, Invalid, RequirementFailed
from catalog.metadata.commit import apply, is_replay
from catalog.metadata.document import Metadata, current_snapshot_id
from catalog.metadata.invariants import violations
from catalog.metadata.schemas import index_schema
from catalog.metadata.tables import with_refs_only
from tests.harness.documents import (
    NOW_MS,
    add_snapshot,
    encryption_key,
    field,
    partition_statistics,
    set_ref,
    snapshot,
    statistics,
    table,
)
from tests.harness.strategies import broken, primitive_types, schemas, sort_orders, specs

UNKNOWN = "x-not-of-this-version"
REFS = st.sampled_from(("main", "main", "audit", "v1"))
RISING = ("format-version", "last-column-id", "last-partition-id", "last-sequence-number", "next-row-id")


class Table(RuleBasedStateMachine):
    """One table and its one writer, who sometimes errs."""

    @initialize(data=st.data(), version=st.sampled_from((1, 2, 3)))
    def create(self, data: st.DataObject, version: int) -> None:
        schema = data.draw(schemas(version)) | {UNKNOWN: 1}
        spec = data.draw(specs(schema))
        self.now_ms = NOW_MS
        self.files = 0
        self.next_id = 1
        self.metadata: Metadata = table(
            version, schema, partition_spec=spec, write_order=data.draw(sort_orders(schema))
        ) | {UNKNOWN: {"deep": [None]}}
        self.began_as_v1 = version == 1
        # What each id stood for when it was first seen.
        self.seen: dict[tuple[str, int], Any] = {}

    # ── how a commit is made ──────────────────────────────────────────────────────────────────────

    def commit(self, *updates: dict[str, Any]) -> Metadata:
        before = orjson.dumps(self.metadata)
        asked = orjson.dumps(updates)
        self.now_ms += 1_000
        self.files += 1
        requirements = [{"type": "assert-table-uuid", "uuid": self.metadata["table-uuid"]}]
        after = apply(
            self.metadata,
            requirements,
            list(updates),
            now_ms=self.now_ms,
            metadata_location=f"file:///{self.files}.json",
        )
        assert orjson.dumps(self.metadata) == before
        assert orjson.dumps(updates) == asked
        self.check_step(self.metadata, after)
        self.metadata = after
        return after

    def check_step(self, before: Metadata, after: Metadata) -> None:
        if after is before:
            return
        assert after["table-uuid"] == before["table-uuid"]
        assert after[UNKNOWN] == before[UNKNOWN]
        for key in RISING:
            assert (after.get(key) or 0) >= (before.get(key) or 0)
        entry = {"timestamp-ms": before["last-updated-ms"], "metadata-file": f"file:///{self.files}.json"}
        assert after["metadata-log"][-1] == entry
        known = {entry["snapshot-id"] for entry in before["snapshots"]}
        new = [
            e["sequence-number"]
            for e in after["snapshots"]
            if e["snapshot-id"] not in known and not self.is_v1
        ]
        assert new == list(
            range(before.get("last-sequence-number", 0) + 1, after.get("last-sequence-number", 0) + 1)
        )

    @property
    def is_v1(self) -> bool:
        return bool(self.metadata["format-version"] == 1)

    def snapshot_ids(self) -> list[int]:
        return [entry["snapshot-id"] for entry in self.metadata["snapshots"]]

    def new_snapshot(self, parent: int | None, rows: int = 1, **more: Any) -> dict[str, Any]:
        self.next_id += 1
        made = snapshot(self.metadata, self.next_id, parent=parent, rows=rows, **more)
        return made | {"timestamp-ms": self.now_ms + 900, UNKNOWN: self.next_id}

    def current_schema(self) -> dict[str, Any]:
        id_ = self.metadata["current-schema-id"]
        schema: dict[str, Any] = next(s for s in self.metadata["schemas"] if s["schema-id"] == id_)
        return schema

    # ── what writers do ───────────────────────────────────────────────────────────────────────────

    @rule(branch=st.sampled_from(("main", "main", "audit")), rows=st.integers(0, 9))
    def append(self, branch: str, rows: int) -> None:
        ref = self.metadata["refs"].get(branch)
        if ref is not None and ref["type"] == "tag":
            return
        made = self.new_snapshot(None if ref is None else ref["snapshot-id"], rows)
        updates = [add_snapshot(made), set_ref(made["snapshot-id"], branch)]
        assert not is_replay(self.metadata, [], updates)
        after = self.commit(*updates)
        assert is_replay(after, [], updates)
        if branch == "main":
            assert current_snapshot_id(after) == made["snapshot-id"]
            assert after["snapshot-log"][-1] == {
                "timestamp-ms": made["timestamp-ms"],
                "snapshot-id": made["snapshot-id"],
            }
            assert after["last-updated-ms"] == made["timestamp-ms"]

    @rule(count=st.integers(2, 3))
    def append_several(self, count: int) -> None:
        updates = []
        parent = current_snapshot_id(self.metadata)
        logged = len(self.metadata["snapshot-log"])
        for place in range(count):
            made = self.new_snapshot(parent)
            if not self.is_v1:
                made["sequence-number"] += place
            if self.metadata["format-version"] > 2:
                made["first-row-id"] += place
            parent = made["snapshot-id"]
            updates += [add_snapshot(made), set_ref(made["snapshot-id"])]
        after = self.commit(*updates)
        assert len(after["snapshot-log"]) == logged + 1

    @precondition(lambda self: self.metadata["snapshots"])
    @rule(data=st.data(), name=REFS, type_=st.sampled_from(("branch", "tag")))
    def set_reference(self, data: st.DataObject, name: str, type_: str) -> None:
        id_ = data.draw(st.sampled_from(self.snapshot_ids()))
        if name == "main" and type_ == "tag":
            with pytest.raises(Invalid):
                self.commit(set_ref(id_, name, type_))
            return
        after = self.commit(set_ref(id_, name, type_, **{UNKNOWN: 1}))
        assert after["refs"][name] == {"type": type_, "snapshot-id": id_, UNKNOWN: 1}

    @rule(name=REFS)
    def remove_reference(self, name: str) -> None:
        assert name not in self.commit({"action": "remove-snapshot-ref", "ref-name": name})["refs"]

    @precondition(lambda self: self.metadata["snapshots"])
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.snapshot_ids()), min_size=1, max_size=3))
        parents = {
            entry["snapshot-id"]: entry.get("parent-snapshot-id") for entry in self.metadata["snapshots"]
        }
        after = self.commit({"action": "remove-snapshots", "snapshot-ids": ids})
        assert not set(ids) & set(self.snapshot_ids())
        for entry in after["snapshots"]:
            assert entry.get("parent-snapshot-id") == parents[entry["snapshot-id"]]

    @rule(data=st.data())
    def add_column(self, data: st.DataObject) -> None:
        schema = self.current_schema()
        id_ = self.metadata["last-column-id"] + 1
        type_ = data.draw(primitive_types(self.metadata["format-version"]))
        wider = schema | {"fields": [*schema["fields"], field(id_, f"added {id_}", type_, **{UNKNOWN: id_})]}
        after = self.commit(
            {"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}
        )
        assert after["last-column-id"] == id_

    @rule(data=st.data())
    def revert_schema(self, data: st.DataObject) -> None:
        schema = data.draw(st.sampled_from(self.metadata["schemas"]))
        count = len(self.metadata["schemas"])
        updates = [
            {"action": "add-schema", "schema": schema | {"schema-id": 77}},
            {"action": "set-current-schema", "schema-id": -1},
        ]
        if self.is_used(set(index_schema(self.current_schema()).by_id) - set(index_schema(schema).by_id)):
            with pytest.raises(Invalid, match="Cannot find source column"):
                self.commit(*updates)
            return
        after = self.commit(*updates)
        assert after["current-schema-id"] == schema["schema-id"]
        assert len(after["schemas"]) == count

    def is_used(self, columns: set[int]) -> bool:
        """Whether the default spec or sort order needs one of the columns."""
        spec_id, order_id = self.metadata["default-spec-id"], self.metadata["default-sort-order-id"]
        fields = [f for s in self.metadata["partition-specs"] if s["spec-id"] == spec_id for f in s["fields"]]
        fields += [f for o in self.metadata["sort-orders"] if o["order-id"] == order_id for f in o["fields"]]
        return any(f["source-id"] in columns and f["transform"] != "void" for f in fields)

    @rule(data=st.data())
    def remove_schemas_and_specs(self, data: st.DataObject) -> None:
        schema_ids = {schema["schema-id"] for schema in self.metadata["schemas"]}
        spec_ids = {spec["spec-id"] for spec in self.metadata["partition-specs"]}
        others = sorted(schema_ids - {self.metadata["current-schema-id"]})
        other_specs = sorted(spec_ids - {self.metadata["default-spec-id"]})
        self.commit(
            {"action": "remove-schemas", "schema-ids": others[:1]},
            {"action": "remove-partition-specs", "spec-ids": other_specs[:1]},
        )
        for id_ in others[:1]:
            self.seen.pop(("schemas", id_), None)
        for id_ in other_specs[:1]:
            self.seen.pop(("partition-specs", id_), None)

    @rule(data=st.data())
    def repartition(self, data: st.DataObject) -> None:
        spec = data.draw(specs(self.current_schema())) | {UNKNOWN: 1}
        spec["fields"] = [f | {"name": f"{f['name']}/{f['transform']}"} for f in spec["fields"]]
        self.commit({"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1})

    @rule(data=st.data())
    def resort(self, data: st.DataObject) -> None:
        order = data.draw(sort_orders(self.current_schema()))
        after = self.commit(
            {"action": "add-sort-order", "sort-order": order},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        )
        assert bool(order["fields"]) == (after["default-sort-order-id"] != 0)

    @rule(
        updates=st.dictionaries(st.sampled_from("abc"), st.text(max_size=2)), removals=st.sampled_from("abc")
    )
    def set_properties(self, updates: dict[str, str], removals: str) -> None:
        expected = self.metadata["properties"] | updates
        expected.pop(removals, None)
        after = self.commit(
            {"action": "set-properties", "updates": updates},
            {"action": "remove-properties", "removals": [removals]},
        )
        assert after["properties"] == expected

    @rule(version=st.sampled_from((1, 2, 3)))
    def upgrade(self, version: int) -> None:
        update = {"action": "upgrade-format-version", "format-version": version}
        if version < self.metadata["format-version"]:
            with pytest.raises(Invalid):
                self.commit(update)
        else:
            snapshots = self.metadata["snapshots"]
            assert self.commit(update)["snapshots"] is snapshots

    @precondition(lambda self: self.metadata["snapshots"])
    @rule(data=st.data())
    def describe(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.snapshot_ids()))
        self.commit(
            {"action": "set-statistics", "statistics": statistics(id_)},
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics(id_)},
        )

    @precondition(lambda self: self.metadata["format-version"] == 3)
    @rule(id_=st.sampled_from("kl"), add=st.booleans())
    def change_keys(self, id_: str, add: bool) -> None:
        if add:
            self.commit({"action": "add-encryption-key", "encryption-key": encryption_key(id_)})
        else:
            self.commit({"action": "remove-encryption-key", "key-id": id_})

    # ── what goes wrong ───────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: self.metadata["format-version"] > 1 and self.metadata["last-sequence-number"])
    @rule()
    def append_too_late(self) -> None:
        made = self.new_snapshot(parent=1, sequence_number=self.metadata["last-sequence-number"])
        with pytest.raises(CommitFailed):
            self.commit(add_snapshot(made))

    @rule(expected=st.integers(-1, 50))
    def expect_another_state(self, expected: int) -> None:
        main = self.metadata["refs"].get("main")
        requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": expected}
        if main is None or main["snapshot-id"] != expected:
            with pytest.raises(RequirementFailed):
                apply(self.metadata, [requirement], [], now_ms=self.now_ms)
        else:
            assert apply(self.metadata, [requirement], [], now_ms=self.now_ms) is self.metadata

    @rule(data=st.data())
    def send_nonsense(self, data: st.DataObject) -> None:
        valid = [
            add_snapshot(snapshot(self.metadata, 1_000_000)),
            {"action": "add-schema", "schema": self.current_schema()},
        ]
        before = self.metadata
        try:
            after = apply(before, [], data.draw(broken(valid)), now_ms=self.now_ms + 10_000)
        except CatalogError:
            return
        assert violations(after) == []

    # ── what holds at every moment ────────────────────────────────────────────────────────────────

    @invariant()
    def is_sound(self) -> None:
        assert violations(self.metadata) == []
        assert violations(with_refs_only(self.metadata) | {"snapshot-log": []}) == []

    @invariant()
    def ids_keep_their_meaning(self) -> None:
        for key, id_key in (
            ("schemas", "schema-id"),
            ("partition-specs", "spec-id"),
            ("sort-orders", "order-id"),
            ("snapshots", "snapshot-id"),
        ):
            for entry in self.metadata[key]:
                assert self.seen.setdefault((key, entry[id_key]), entry) == entry

    @invariant()
    def partition_field_ids_keep_their_meaning(self) -> None:
        # v1 numbers the fields of each spec from 1000, so there an id means something only within its spec.
        if self.began_as_v1:
            return
        for spec in self.metadata["partition-specs"]:
            for entry in spec["fields"]:
                meaning = (entry["source-id"], entry["transform"])
                assert self.seen.setdefault(("field-id", entry["field-id"]), meaning) == meaning

    @invariant()
    def unknown_fields_survive(self) -> None:
        for entry in self.metadata["snapshots"]:
            assert entry[UNKNOWN] == entry["snapshot-id"]
        assert self.metadata["schemas"][0].get(UNKNOWN) == 1
        for schema in self.metadata["schemas"]:
            for column in schema["fields"]:
                if column["name"].startswith("added "):
                    assert column[UNKNOWN] == column["id"]

    @invariant()
    def every_column_has_been_counted(self) -> None:
        for schema in self.metadata["schemas"]:
            assert index_schema(schema).highest_id <= self.metadata["last-column-id"]

    @invariant()
    def pyiceberg_reads_it(self) -> None:
        TableMetadataUtil.parse_obj(orjson.loads(orjson.dumps(self.metadata)))


TestTable = Table.TestCase
TestTable.settings = settings(
    max_examples=35,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
