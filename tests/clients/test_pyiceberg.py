"""PyIceberg makes, changes and reads tables; DuckDB checks the rows it left behind."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestampType
from pyiceberg.view.metadata import ViewVersion

from tests.clients.duckdb_client import DuckLake
from tests.clients.pyiceberg_client import arrow, rows
from tests.harness.rest import Rest

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    identifier_field_ids=[1],
)
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


@pytest.fixture
def table(iceberg: RestCatalog, namespace: str) -> Table:
    made: Table = iceberg.create_table((namespace, "t"), SCHEMA)
    return made


def _named(*pairs: tuple[int, str]) -> pa.Table:
    return arrow(*({"id": number, "name": name} for number, name in pairs), schema=ARROW)


def test_namespaces(iceberg: RestCatalog, namespace: str) -> None:
    inner = (namespace, "inner näme")
    iceberg.create_namespace(inner, {"a": "1", "b": "2"})
    with pytest.raises(NamespaceAlreadyExistsError):
        iceberg.create_namespace(inner)
    assert iceberg.list_namespaces((namespace,)) == [inner]
    assert iceberg.namespace_exists(inner)
    done = iceberg.update_namespace_properties(inner, removals={"a", "missing"}, updates={"b": "3"})
    assert (done.removed, done.updated, done.missing) == (["a"], ["b"], ["missing"])
    properties = iceberg.load_namespace_properties(inner)
    assert {key: value for key, value in properties.items() if key != "location"} == {"b": "3"}
    iceberg.create_table((*inner, "t"), SCHEMA)
    with pytest.raises(NamespaceNotEmptyError):
        iceberg.drop_namespace(inner)
    iceberg.drop_table((*inner, "t"))
    iceberg.drop_namespace(inner)
    assert iceberg.list_namespaces((namespace,)) == []


def test_rows_are_appended_overwritten_upserted_and_deleted(
    table: Table, duck: DuckLake, namespace: str
) -> None:
    table.append(_named((1, "a"), (2, "b"), (3, "c")))
    table.overwrite(_named((3, "C")), overwrite_filter="id = 3")
    done = table.upsert(_named((2, "B"), (4, "d")))
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    table.delete("id = 1")
    expected = [(2, "B"), (3, "C"), (4, "d")]
    assert rows(table.refresh()) == expected
    assert duck.sql(f"SELECT * FROM lake.{namespace}.t ORDER BY id") == expected
    table.overwrite(_named((9, "only")))
    assert duck.sql(f"SELECT * FROM lake.{namespace}.t") == [(9, "only")]


def test_create_with_everything(iceberg: RestCatalog, rest: Rest, namespace: str) -> None:
    schema = Schema(
        NestedField(10, "id", LongType(), required=True, doc="which"),
        NestedField(20, "at", TimestampType()),
        NestedField(30, "place", StructType(NestedField(40, "x", IntegerType()))),
    )
    iceberg.create_table(
        (namespace, "t"),
        schema,
        partition_spec=PartitionSpec(PartitionField(20, 1000, DayTransform(), "day")),
        sort_order=SortOrder(SortField(10, IdentityTransform())),
        properties={"owner": "me"},
    )
    metadata = rest.load(namespace, "t")["metadata"]
    assert [field["id"] for field in metadata["schemas"][0]["fields"]] == [1, 2, 3]
    assert metadata["partition-specs"][0]["fields"][0]["source-id"] == 2
    assert metadata["sort-orders"][-1]["fields"][0]["source-id"] == 1
    assert metadata["properties"]["owner"] == "me"
    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table((namespace, "t"), schema)
    assert (
        iceberg.create_table_if_not_exists((namespace, "t"), schema).metadata.location == metadata["location"]
    )


def test_the_schema_evolves(table: Table, iceberg: RestCatalog, duck: DuckLake, namespace: str) -> None:
    table.append(_named((1, "a")))
    with table.update_schema() as update:
        update.add_column("count", IntegerType(), doc="how many")
        update.add_column("place", StructType(NestedField(1, "x", IntegerType())))
        update.rename_column("name", "label")
    with table.update_schema() as update:
        update.update_column("count", LongType())
        update.add_column(("place", "y"), IntegerType())
        update.move_first("count")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("label")
        update.set_identifier_fields()
        update.make_column_optional("id")
    found = iceberg.load_table((namespace, "t"))
    assert [field.name for field in found.schema().fields] == ["count", "id", "place"]
    assert {"place.x", "place.y"} <= set(found.schema().column_names)
    assert duck.sql(f"SELECT id, place FROM lake.{namespace}.t") == [(1, None)]
    with table.update_schema() as update:
        update.union_by_name(Schema(NestedField(1, "extra", StringType())))
    assert "extra" in iceberg.load_table((namespace, "t")).schema().column_names


def test_partitions_and_properties_evolve(table: Table, iceberg: RestCatalog, namespace: str) -> None:
    table.append(_named((1, "a")))
    with table.update_spec() as update:
        update.add_identity("name")
    table.append(_named((2, "b")))
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "shard")  # PyIceberg needs one package more to write these
        update.rename_field("name", "label")
    with table.update_spec() as update:
        update.remove_field("shard")
    table.append(_named((3, "c")))
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    with table.transaction() as transaction:
        transaction.set_properties(a="1", b="2")
    with table.transaction() as transaction:
        transaction.remove_properties("a")
    found = iceberg.load_table((namespace, "t"))
    assert [field.name for field in found.spec().fields] == ["label"]
    assert (len(found.specs()), len(found.sort_order().fields)) == (4, 1)
    assert ("a" in found.properties, found.properties["b"]) == (False, "2")
    assert rows(found) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_table_moves_from_format_1_to_2(iceberg: RestCatalog, duck: DuckLake, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), SCHEMA, properties={"format-version": "1"})
    assert table.format_version == 1
    table.append(_named((1, "a")))
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    table.append(_named((2, "b")))
    assert iceberg.load_table((namespace, "t")).format_version == 2
    assert duck.sql(f"SELECT * FROM lake.{namespace}.t ORDER BY id") == [(1, "a"), (2, "b")]


def test_branches_tags_and_time_travel(table: Table, iceberg: RestCatalog, namespace: str) -> None:
    table.append(_named((1, "a")))
    first = table.current_snapshot()
    assert first is not None
    with table.manage_snapshots() as snapshots:
        snapshots.create_tag(first.snapshot_id, "first", max_ref_age_ms=86_400_000)
        snapshots.create_branch(first.snapshot_id, "audit", min_snapshots_to_keep=2)
    table.append(_named((2, "b")), branch="audit")
    table.append(_named((3, "c")))
    found = iceberg.load_table((namespace, "t"))
    assert rows(found) == [(1, "a"), (3, "c")]
    assert found.refs()["first"].max_ref_age_ms == 86_400_000
    audit = found.snapshot_by_name("audit")
    assert audit is not None
    assert rows(found, snapshot_id=audit.snapshot_id) == [(1, "a"), (2, "b")]
    assert rows(found, snapshot_id=first.snapshot_id) == [(1, "a")]
    with table.manage_snapshots() as snapshots:
        snapshots.remove_tag("first").remove_branch("audit")
    with table.manage_snapshots() as snapshots:
        snapshots.rollback_to_snapshot(first.snapshot_id)
    table.maintenance.expire_snapshots().by_id(audit.snapshot_id).commit()
    found = iceberg.load_table((namespace, "t"))
    assert set(found.refs()) == {"main"}
    assert len(found.metadata.snapshots) == 2
    assert rows(found) == [(1, "a")]


def test_a_transaction_is_one_commit(table: Table, rest: Rest, namespace: str) -> None:
    before = rest.head()
    with table.transaction() as transaction:
        transaction.set_properties(checked="yes")
        with transaction.update_schema() as update:
            update.add_column("count", IntegerType())
        transaction.append(_named((1, "a")))
        transaction.append(_named((2, "b")))
    assert rest.head() == before + 1
    metadata = rest.load(namespace, "t")["metadata"]
    assert len(metadata["snapshots"]) == 2
    # A reader "as of" a time in between must not see half of it.
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [metadata["current-snapshot-id"]]
    with pytest.raises(ValueError, match="Could not find field"):
        _append_and_fail(table)
    assert rest.head() == before + 1


def _append_and_fail(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.append(_named((3, "c")))
        transaction.delete("nothing = 1")


def test_a_create_transaction(iceberg: RestCatalog, rest: Rest, namespace: str) -> None:
    with iceberg.create_table_transaction((namespace, "t"), SCHEMA) as transaction:
        transaction.append(_named((1, "a")))
        with transaction.update_spec() as update:
            update.add_field("id", BucketTransform(2), "shard")
        assert rest.tables(namespace) == []
    assert rows(iceberg.load_table((namespace, "t"))) == [(1, "a")]


def test_two_writers(table: Table, iceberg: RestCatalog, namespace: str) -> None:
    """Schema changes of two writers clash; the second is told so, and nothing of it is there."""
    other = iceberg.load_table((namespace, "t"))
    with table.update_schema() as update:
        update.add_column("mine", IntegerType())
    with pytest.raises(CommitFailedException, match="Requirement failed"), other.update_schema() as update:
        update.add_column("theirs", IntegerType())
    assert iceberg.load_table((namespace, "t")).schema().column_names == ["id", "name", "mine"]


def test_rename_drop_purge_and_register(table: Table, iceberg: RestCatalog, namespace: str) -> None:
    table.append(_named((1, "a")))
    iceberg.rename_table((namespace, "t"), (namespace, "renamed"))
    assert not iceberg.table_exists((namespace, "t"))
    found = iceberg.load_table((namespace, "renamed"))
    iceberg.drop_table((namespace, "renamed"))
    with pytest.raises(NoSuchTableError):
        iceberg.load_table((namespace, "renamed"))
    again = iceberg.register_table((namespace, "again"), found.metadata_location)
    assert rows(again) == [(1, "a")]
    iceberg.purge_table((namespace, "again"))
    assert iceberg.list_tables((namespace,)) == []


def test_a_dropped_table_comes_back(
    table: Table, iceberg: RestCatalog, duck: DuckLake, rest: Rest, namespace: str
) -> None:
    table.append(_named((1, "a")))
    iceberg.drop_table((namespace, "t"))
    dropped = rest.lake("GET", "main/dropped").json()["dropped"]
    (found,) = [entry["id"] for entry in dropped if entry["namespace"] == [namespace]]
    assert rest.lake("POST", f"main/dropped/{found}/undrop").status_code == 200
    assert duck.sql(f"SELECT * FROM lake.{namespace}.t") == [(1, "a")]
    table.refresh().append(_named((2, "b")))
    assert duck.sql(f"SELECT count(*) FROM lake.{namespace}.t") == [(2,)]


def test_a_name_is_given_back_to_an_older_state(
    iceberg: RestCatalog, table: Table, duck: DuckLake, namespace: str
) -> None:
    """Register over an existing name."""
    table.append(_named((1, "a")))
    older = table.metadata_location
    table.append(_named((2, "b")))
    assert rows(iceberg.register_table((namespace, "t"), older, overwrite=True)) == [(1, "a")]
    assert duck.sql(f"SELECT * FROM lake.{namespace}.t") == [(1, "a")]


def test_views(iceberg: RestCatalog, namespace: str) -> None:
    identifier = (namespace, "v")
    version = ViewVersion.model_validate(
        {
            "version-id": 1,
            "schema-id": 0,
            "timestamp-ms": 1_700_000_000_000,
            "summary": {"engine-name": "test"},
            "representations": [{"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}],
            "default-namespace": [namespace],
        }
    )
    made = iceberg.create_view(identifier, Schema(NestedField(1, "id", LongType())), version)
    found = iceberg.load_view(identifier)
    assert found.metadata.view_uuid == made.metadata.view_uuid
    assert iceberg.list_views((namespace,)) == [identifier]
    assert iceberg.list_tables((namespace,)) == []
    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table(identifier, SCHEMA)
    iceberg.drop_view(identifier)
    assert not iceberg.view_exists(identifier)
