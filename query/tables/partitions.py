"""The partitions and files of a table: the spec and changes to it, the partitions, the files that match a
predicate.
"""

from __future__ import annotations

import re
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.transforms import parse_transform

from catalog.errors import Invalid, TooLarge
from query.tables.access import TableAccess
from query.tables.api.partitions import SpecRequest
from query.tables.moments import number_of_version, table_at
from query.tables.opening import errors_as_catalog_errors
from query.tables.predicates import parsed_where
from query.tables.reading import json_rows, planned, scan_at, schema_at

PARTITIONS_MAX = 10_000
_TRANSFORM = re.compile(
    r"(years?|months?|days?|hours?|bucket|truncate|identity|void)\((?:(\d{1,9})\s*,\s*)?([^(),]+)\)"
)
_SINGULAR = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


def list_partitions(access: TableAccess, as_of: str | None) -> dict[str, Any]:
    moment = table_at(access, as_of)
    rows = []
    if moment.snapshot is not None:
        with errors_as_catalog_errors():
            found = moment.table.inspect.partitions(snapshot_id=moment.snapshot_id)
        if found.num_rows > PARTITIONS_MAX:
            raise TooLarge(f"The table has {found.num_rows} partitions, more than {PARTITIONS_MAX}")
        rows = [_partition(row) for row in json_rows(found)]
    spec = moment.table.spec()
    answer = {"spec_id": spec.spec_id, "spec": _spec(spec, moment.table.schema()), "partitions": rows}
    return {"as_of": moment.as_json()} | answer


def evolve_partitions(access: TableAccess, body: SpecRequest) -> dict[str, Any]:
    table = access.current()
    before = table.metadata_location
    added = [_parsed(text) for text in body.add]
    with errors_as_catalog_errors("partitions"), table.update_spec() as update:
        for name in body.drop:
            update.remove_field(name)
        for old, new in body.rename.items():
            update.rename_field(old, new)
        for column, transform in added:
            update.add_field(column, parse_transform(transform))
    changed = table.metadata_location != before
    return {
        "spec_id": table.spec().spec_id,
        "spec": _spec(table.spec(), table.schema()),
        "number": number_of_version(access, table.metadata_location) if changed else None,
    }


def list_files(access: TableAccess, filter_: str | None, as_of: str | None, limit: int) -> dict[str, Any]:
    moment = table_at(access, as_of)
    where = parsed_where(filter_, schema_at(moment), "filter")
    total, selected = planned(scan_at(moment)), planned(scan_at(moment, where))
    return {
        "as_of": moment.as_json(),
        "total": _numbers(total),
        "selected": _numbers(selected),
        "files": [_file(task) for task in selected[:limit]],
    }


def _spec(spec: PartitionSpec, schema: Schema) -> list[dict[str, str]]:
    names = {field.field_id: schema.find_column_name(field.field_id) for field in schema.fields}
    return [
        {
            "name": field.name,
            "column": names.get(field.source_id) or schema.find_column_name(field.source_id) or "",
            "transform": str(field.transform),
        }
        for field in spec.fields
    ]


def _partition(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "partition": row.get("partition") or {},
        "spec_id": row.get("spec_id", 0),
        "rows": row["record_count"],
        "files": row["file_count"],
        "bytes": row["total_data_file_size_in_bytes"],
        "delete_files": row["position_delete_file_count"] + row["equality_delete_file_count"],
    }


def _parsed(text: str) -> tuple[str, str]:
    """Return the column and the transform, as PyIceberg names it."""
    if "(" not in text:
        return text.strip(), "identity"
    found = _TRANSFORM.fullmatch(text.strip())
    if found is None or (found[1] in ("bucket", "truncate")) != (found[2] is not None):
        raise Invalid(f"add: {text!r} is no transform; write days(at), bucket(16, id), or a column")
    name = _SINGULAR.get(found[1], found[1])
    return found[3].strip(), f"{name}[{found[2]}]" if found[2] is not None else name


def _numbers(tasks: list[FileScanTask]) -> dict[str, int]:
    return {
        "files": len(tasks),
        "rows": sum(task.file.record_count for task in tasks),
        "bytes": sum(task.file.file_size_in_bytes for task in tasks),
    }


def _file(task: FileScanTask) -> dict[str, Any]:
    return {
        "path": task.file.file_path,
        "format": str(task.file.file_format.value),
        "rows": task.file.record_count,
        "bytes": task.file.file_size_in_bytes,
        "spec_id": task.file.spec_id,
        "delete_files": len(task.delete_files),
    }
