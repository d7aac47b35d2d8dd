"""Table metadata documents that the engine produced, for tests that read them with other libraries.

`produced_documents()` yields about a hundred, each with a name: every format version, every kind of change,
and random histories with fixed seeds. `write_documents(directory)` writes them as `<name>.json`. The builders
(`table`, `append`, `commit`, ...) are for tests of the engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from catalog.metadata.commit import apply
from catalog.metadata.document import Metadata, current_snapshot_id
from catalog.metadata.tables import new_table

JsonObject = dict[str, Any]

TABLE_UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
LOCATION = "file:///warehouse/db/t"
NOW_MS = 1_790_000_000_000
VERSIONS = (1, 2, 3)


def field(id_: int, name: str, type_: Any, *, required: Any = False, **more: Any) -> JsonObject:
    return {"id": id_, "name": name, "required": required, "type": type_, **more}


def struct(*fields: JsonObject, **more: Any) -> JsonObject:
    return {"type": "struct", "fields": list(fields), **more}


SCHEMA = struct(
    field(1, "id", "long", required=True, doc="the key 🧊"),
    field(2, "name", "string"),
    field(3, "at", "timestamptz"),
    **{"identifier-field-ids": [1]},
)
NESTED = struct(
    field(10, "id", "int", required=True),
    field(11, "place", struct(field(12, "lat", "double", required=True), field(13, "lon", "double"))),
    field(
        14,
        "tags",
        {"type": "list", "element-id": 15, "element": "string", "element-required": False},
        doc="all of them",
    ),
    field(
        16,
        "sizes",
        {
            "type": "map",
            "key-id": 17,
            "key": "string",
            "value-id": 18,
            "value": struct(field(19, "width", "decimal(9, 2)")),
            "value-required": True,
        },
    ),
)
TYPES = {
    1: [
        *(
            "boolean",
            "int",
            "long",
            "float",
            "double",
            "decimal(38,10)",
            "string",
            "uuid",
            "fixed[16]",
            "binary",
        ),
        *("date", "time", "timestamp", "timestamptz"),
    ],
    3: [
        *("timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geography"),
        *("geometry(srid:4326)", "geography(srid:4326)", "geography(srid:4326, karney)"),
    ],
}
DEFAULTS = {
    "boolean": True,
    "int": -7,
    "long": 2**40,
    "float": 1.5,
    "double": 2.0,
    "decimal(9,2)": "14.20",
    "date": "2007-12-03",
    "time": "22:31:08.123456",
    "timestamp": "2007-12-03T10:15:30.123456",
    "timestamptz": "2007-12-03T10:15:30.123456+00:00",
    "timestamp_ns": "2007-12-03T10:15:30.123456789",
    "timestamptz_ns": "2007-12-03T10:15:30.123456789+00:00",
    "string": "iceberg",
    "uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    "fixed[4]": "000102ff",
    "binary": "000102ff",
}


def table(version: int = 2, schema: JsonObject = SCHEMA, **request: Any) -> Metadata:
    """A new table; keys of the create request are given with `_` for `-`."""
    body = {key.replace("_", "-"): value for key, value in request.items()}
    body["properties"] = body.get("properties", {}) | {"format-version": str(version)}
    return new_table(body | {"schema": schema}, location=LOCATION, table_uuid=TABLE_UUID, now_ms=NOW_MS)


def commit(metadata: Metadata, *updates: JsonObject, later_ms: int = 1_000) -> Metadata:
    """The table a while later, with the updates applied."""
    now_ms = max(metadata["last-updated-ms"], NOW_MS) + later_ms
    return apply(
        metadata,
        [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}],
        list(updates),
        now_ms=now_ms,
        metadata_location=f"{metadata['location']}/metadata/{metadata['last-updated-ms']}.metadata.json",
    )


def snapshot(
    metadata: Metadata, id_: int, *, parent: int | None = None, rows: int = 3, **more: Any
) -> JsonObject:
    """The next snapshot of a table; `more` overrides, with `_` for `-`."""
    made: JsonObject = {
        "snapshot-id": id_,
        "timestamp-ms": max(metadata["last-updated-ms"], NOW_MS) + 500,
        "manifest-list": f"{metadata['location']}/metadata/snap-{id_}.avro",
        "summary": {"operation": "append", "added-records": str(rows), "engine-name": "test"},
        "schema-id": metadata["current-schema-id"],
    }
    if parent is not None:
        made["parent-snapshot-id"] = parent
    if metadata["format-version"] > 1:
        made["sequence-number"] = metadata["last-sequence-number"] + 1
    if metadata["format-version"] > 2:
        made |= {"first-row-id": metadata["next-row-id"], "added-rows": rows}
    return made | {key.replace("_", "-"): value for key, value in more.items()}


def add_snapshot(snapshot_: JsonObject) -> JsonObject:
    return {"action": "add-snapshot", "snapshot": snapshot_}


def set_ref(id_: int, name: str = "main", type_: str = "branch", **more: Any) -> JsonObject:
    more = {key.replace("_", "-"): value for key, value in more.items()}
    return {"action": "set-snapshot-ref", "ref-name": name, "type": type_, "snapshot-id": id_, **more}


def append(metadata: Metadata, id_: int, branch: str = "main", **more: Any) -> Metadata:
    parent = (metadata["refs"].get(branch) or {}).get("snapshot-id", current_snapshot_id(metadata))
    return commit(
        metadata, add_snapshot(snapshot(metadata, id_, parent=parent, **more)), set_ref(id_, branch)
    )


def appended(metadata: Metadata, count: int) -> Metadata:
    for id_ in range(1, count + 1):
        metadata = append(metadata, id_)
    return metadata


def partition_field(source_id: int, transform: str, name: str, **more: Any) -> JsonObject:
    return {"source-id": source_id, "transform": transform, "name": name} | {
        key.replace("_", "-"): value for key, value in more.items()
    }


def sort_field(source_id: int, transform: str = "identity", direction: str = "asc") -> JsonObject:
    null_order = "nulls-first" if direction == "asc" else "nulls-last"
    return {"source-id": source_id, "transform": transform, "direction": direction, "null-order": null_order}


def add_column(metadata: Metadata, name: str, type_: str = "string", **more: Any) -> Metadata:
    current = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    added = field(metadata["last-column-id"] + 1, name, type_, **more)
    schema = current | {"fields": [*current["fields"], added]}
    return commit(
        metadata,
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
    )


def statistics(snapshot_id: int) -> JsonObject:
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{LOCATION}/metadata/{snapshot_id}.stats",
        "file-size-in-bytes": 413,
        "file-footer-size-in-bytes": 42,
        "blob-metadata": [
            {
                "type": "apache-datasketches-theta-v1",
                "snapshot-id": snapshot_id,
                "sequence-number": 1,
                "fields": [1],
                "properties": {"ndv": "7"},
            }
        ],
    }


def partition_statistics(snapshot_id: int) -> JsonObject:
    path = f"{LOCATION}/metadata/{snapshot_id}.parquet"
    return {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 43}


def encryption_key(id_: str = "k1", **more: Any) -> JsonObject:
    return {"key-id": id_, "encrypted-key-metadata": "bG9yZW0=", "encrypted-by-id": "kms", **more}


def staged(version: int, *more: JsonObject, base: Metadata | None = None) -> Metadata:
    """A table made by the commit of a staged create, in the order in which DuckDB sends it."""
    begun = base or table(version)
    updates = [
        {"action": "assign-uuid", "uuid": begun["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": begun["schemas"][0], "last-column-id": begun["last-column-id"]},
        {"action": "add-spec", "spec": begun["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": 0},
        {"action": "add-sort-order", "sort-order": begun["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": begun["default-sort-order-id"]},
        {"action": "set-location", "location": begun["location"]},
        {"action": "set-properties", "updates": begun["properties"]},
        *more,
        {"action": "set-current-schema", "schema-id": 0},
    ]
    return apply(None, [{"type": "assert-create"}], updates, now_ms=NOW_MS + 2_000)


def _of_every_type(version: int) -> JsonObject:
    types = [type_ for since, all_ in TYPES.items() if since <= version for type_ in all_]
    return struct(*(field(index, f"c{index}", type_) for index, type_ in enumerate(types, start=1)))


def _with_defaults() -> JsonObject:
    fields = [
        field(index, f"c{index}", type_, **{"initial-default": value, "write-default": value})
        for index, (type_, value) in enumerate(DEFAULTS.items(), start=1)
    ]
    return struct(*fields, field(90, "none", "variant", **{"initial-default": None, "write-default": None}))


def _partitioned(version: int) -> Metadata:
    schema = struct(
        field(1, "n", "long"), field(2, "s", "string"), field(3, "t", "timestamp"), field(4, "d", "date")
    )
    transforms = (
        "identity n",
        "bucket[16] n",
        "truncate[4] s",
        "year t",
        "month t",
        "day d",
        "hour t",
        "void s",
    )
    ids = {"n": 1, "s": 2, "t": 3, "d": 4}
    spec = {"fields": [partition_field(ids[t[-1]], t[:-2], f"p{i}") for i, t in enumerate(transforms)]}
    spec["fields"].append(partition_field(1, "zorder[4]", "unknown_transform"))
    order = {
        "order-id": 9,
        "fields": [sort_field(1), sort_field(2, "bucket[4]", "desc"), sort_field(3, "day")],
    }
    return table(version, schema, partition_spec=spec, write_order=order)


def _with_unknown_fields(version: int) -> Metadata:
    made = table(version, struct(field(1, "id", "long", **{"x-field": [1]}), **{"x-schema": {"a": None}}))
    made = append(made | {"x-table": {"deep": [True]}}, 1, x_snapshot=1.5)
    return commit(made, set_ref(1, "tagged", "tag", x_ref="kept"))


def _respecified(version: int) -> Metadata:
    made = table(version, partition_spec={"fields": [partition_field(1, "bucket[4]", "id_bucket")]})
    void = partition_field(1, "void" if version == 1 else "bucket[4]", "id_bucket", field_id=1000)
    spec = {"fields": [void, partition_field(3, "day", "at_day", field_id=1001)]}
    made = commit(made, {"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1})
    order = {"order-id": 1, "fields": [sort_field(3, "identity", "desc")]}
    return commit(
        made,
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )


def _expired(version: int) -> Metadata:
    made = commit(
        appended(table(version), 5), set_ref(1, "old", "tag"), set_ref(4, "b", min_snapshots_to_keep=2)
    )
    made = commit(made, {"action": "set-statistics", "statistics": statistics(2)})
    return commit(made, {"action": "remove-snapshots", "snapshot-ids": [1, 2, 77]})


def _several_at_once(version: int) -> Metadata:
    made = appended(table(version), 1)
    first = snapshot(made, 2, parent=1)
    more = {"timestamp_ms": first["timestamp-ms"] + 1}
    if version > 1:
        more["sequence_number"] = first["sequence-number"] + 1
    if version > 2:
        more["first_row_id"] = first["first-row-id"] + first["added-rows"]
    second = snapshot(made, 3, parent=2, **more)
    return commit(made, add_snapshot(first), set_ref(2), add_snapshot(second), set_ref(3))


def _replaced(version: int) -> Metadata:
    made = commit(appended(table(version), 2), {"action": "remove-snapshot-ref", "ref-name": "main"})
    return commit(made, add_snapshot(snapshot(made, 9)), set_ref(9))


def _with_statistics(version: int) -> Metadata:
    return commit(
        appended(table(version), 2),
        {"action": "set-statistics", "snapshot-id": 1, "statistics": statistics(1)},
        {"action": "set-statistics", "statistics": statistics(2)},
        {"action": "set-partition-statistics", "partition-statistics": partition_statistics(2)},
    )


def _reverted_schema(version: int) -> Metadata:
    made = add_column(add_column(table(version), "more"), "most", "int")
    made = commit(made, {"action": "set-current-schema", "schema-id": 0})
    return commit(made, {"action": "remove-schemas", "schema-ids": [1, 55]})


def _few_previous_files(version: int) -> Metadata:
    made = table(version, properties={"write.metadata.previous-versions-max": "3"})
    return appended(made, 6)


KINDS: dict[str, Callable[[int], Metadata]] = {
    "empty": table,
    "nested": lambda version: table(version, NESTED),
    "every-type": lambda version: table(version, _of_every_type(version)),
    "partitioned": _partitioned,
    "one-append": lambda version: appended(table(version), 1),
    "ten-appends": lambda version: appended(table(version, NESTED), 10),
    "rolled-back": lambda version: commit(appended(table(version), 3), set_ref(1)),
    "branched": lambda version: append(appended(table(version), 2), 7, "audit"),
    "expired": _expired,
    "several-at-once": _several_at_once,
    "replaced": _replaced,
    "no-current": lambda v: commit(
        appended(table(v), 2), {"action": "remove-snapshot-ref", "ref-name": "main"}
    ),
    "new-column": lambda version: append(add_column(appended(table(version), 1), "more", doc="new"), 2),
    "reverted-schema": _reverted_schema,
    "respecified": _respecified,
    "statistics": _with_statistics,
    "unknown-fields": _with_unknown_fields,
    "few-previous-files": _few_previous_files,
    "moved": lambda version: commit(table(version), {"action": "set-location", "location": f"{LOCATION}2/"}),
    "staged": staged,
    "staged-partitioned": lambda version: staged(version, base=_partitioned(version)),
    "staged-with-data": lambda v: staged(v, add_snapshot(snapshot(table(v), 1)), set_ref(1)),
}


def _of_v3_only() -> Iterator[tuple[str, Metadata]]:
    yield "v3-defaults", table(3, _with_defaults())
    yield (
        "v3-default-of-new-column",
        add_column(table(3), "n", "int", **{"required": True, "initial-default": 1, "write-default": 2}),
    )
    keys = [{"action": "add-encryption-key", "encryption-key": encryption_key(id_)} for id_ in ("k1", "k2")]
    encrypted = commit(table(3, properties={"encryption.key-id": "kms"}), *keys)
    yield "v3-encrypted", append(encrypted, 1, key_id="k2")
    yield "v3-key-removed", commit(encrypted, {"action": "remove-encryption-key", "key-id": "k1"})


def _upgraded() -> Iterator[tuple[str, Metadata]]:
    for before, after in ((1, 2), (1, 3), (2, 3)):
        made = commit(
            appended(table(before), 2), {"action": "upgrade-format-version", "format-version": after}
        )
        yield f"upgraded-{before}-{after}", made
        yield f"upgraded-{before}-{after}-appended", append(made, 9)


def _random_step(metadata: Metadata, ids: Iterator[int], chance: random.Random) -> Metadata:
    known = [entry["snapshot-id"] for entry in metadata["snapshots"]]
    some = chance.choice(known) if known else None
    step = chance.choice(("append", "append", "column", "properties", "ref", "rollback", "expire", "upgrade"))
    if step == "column":
        return add_column(metadata, f"c{metadata['last-column-id']}", chance.choice(TYPES[1]))
    if step == "properties":
        return commit(metadata, {"action": "set-properties", "updates": {"p": str(chance.random())}})
    if step == "upgrade":
        version = min(3, metadata["format-version"] + 1)
        return commit(metadata, {"action": "upgrade-format-version", "format-version": version})
    if some is None or step == "append":
        return append(metadata, next(ids), chance.choice(("main", "main", "audit")))
    if step == "ref":
        return commit(metadata, set_ref(some, f"tag-{some}", "tag", max_ref_age_ms=1_000))
    if step == "rollback":
        return commit(metadata, set_ref(some))
    return commit(metadata, {"action": "remove-snapshots", "snapshot-ids": [some]})


def _random_history(seed: int) -> Metadata:
    chance = random.Random(seed)
    ids = iter(range(1_000, 2_000))
    metadata = table(1 + seed % 3, chance.choice((SCHEMA, NESTED)))
    for _ in range(chance.randrange(5, 25)):
        metadata = _random_step(metadata, ids, chance)
    return metadata


def produced_documents() -> Iterator[tuple[str, Metadata]]:
    """About a hundred documents with their names; the same ones each time."""
    for version in VERSIONS:
        for name, make in KINDS.items():
            yield f"v{version}-{name}", make(version)
    yield from _of_v3_only()
    yield from _upgraded()
    for seed in range(24):
        yield f"random-{seed}", _random_history(seed)


def write_documents(directory: Path) -> list[Path]:
    """Each document as `<name>.json`; the paths in the order of `produced_documents`."""
    paths = []
    for name, metadata in produced_documents():
        path = directory / f"{name}.json"
        path.write_bytes(orjson.dumps(metadata))
        paths.append(path)
    return paths
