"""The schema of a table: its versions, a check of a proposed one, and changes to it."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType, NestedField, PrimitiveType

from catalog.errors import Invalid
from catalog.moments import AtTime
from query.tables.access import TableAccess
from query.tables.api.schema import EvolveRequest, Move, ProposedSchema, SchemaColumn
from query.tables.diff import schema_changes
from query.tables.moments import number_of_version, table_at, versions
from query.tables.opening import errors_as_catalog_errors
from query.tables.reading import schema_at

_TYPE: TypeAdapter[IcebergType] = TypeAdapter(IcebergType)


def load_schema(access: TableAccess, as_of: str | None) -> dict[str, Any]:
    moment = table_at(access, as_of)
    first = _first_commits(access)
    current = schema_at(moment).schema_id
    return {
        "as_of": moment.as_json(),
        "current_schema_id": current,
        "versions": [
            _version(schema, schema.schema_id == current, first.get(schema.schema_id))
            for schema in sorted(moment.table.metadata.schemas, key=lambda schema: schema.schema_id)
        ],
    }


def check_schema(access: TableAccess, body: ProposedSchema) -> dict[str, Any]:
    table = access.current()
    proposed = [_field(column) for column in body.columns]
    names = {field.name for field in proposed}
    if len(names) != len(proposed):
        raise Invalid("columns: a name is there twice")
    known = {field.name: field for field in table.schema().fields}
    found = [_checked(table, known.get(field.name), field) for field in proposed]
    found += [_missing(field) for name, field in known.items() if name not in names]
    return {"compatible": all(one["compatible"] for one in found), "columns": found}


def evolve_schema(access: TableAccess, body: EvolveRequest) -> dict[str, Any]:
    table = access.current()
    before = table.schema()
    with errors_as_catalog_errors("schema"):
        transaction = table.transaction()
        with transaction.update_schema() as update:
            _apply(update, body)
        changes = list(schema_changes(before, transaction.table_metadata.schema()))
        if body.dry_run or not changes:
            return {"schema_id": before.schema_id, "changes": changes, "number": None}
        transaction.commit_transaction()
    number = number_of_version(access, table.metadata_location)
    return {"schema_id": table.schema().schema_id, "changes": changes, "number": number}


def _apply(update: UpdateSchema, body: EvolveRequest) -> None:
    for old, new in body.rename.items():
        update.rename_column(_path(old), new)
    for name in body.drop:
        update.delete_column(_path(name))
    for name, type_ in body.widen.items():
        update.update_column(_path(name), field_type=_primitive(type_))
    for name in body.optional:
        update.make_column_optional(_path(name))
    for name, text in body.comment.items():
        update.update_column(_path(name), doc=text)
    for column in body.add:
        update.add_column(_path(column.name), _type(column.type), column.doc, column.required)
        if column.first:
            update.move_first(_path(column.name))
        elif column.after is not None:
            update.move_after(_path(column.name), _path(column.after))
    for move in body.reorder:
        _move(update, move)


def _move(update: UpdateSchema, move: Move) -> None:
    if [move.first, move.before is not None, move.after is not None].count(True) != 1:
        raise Invalid(f"reorder: say for {move.column} one of first, before and after")
    if move.first:
        update.move_first(_path(move.column))
    elif move.before is not None:
        update.move_before(_path(move.column), _path(move.before))
    else:
        update.move_after(_path(move.column), _path(str(move.after)))


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


def _field(column: SchemaColumn) -> NestedField:
    return NestedField(0, column.name, _type(column.type), required=column.required, doc=column.doc)


def _type(given: str | dict[str, Any]) -> IcebergType:
    try:
        return _TYPE.validate_python(given)
    except (ValidationError, ValueError, TypeError) as error:
        raise Invalid(f"type: {given!r} is no Iceberg type") from error


def _primitive(given: str) -> PrimitiveType:
    found = _type(given)
    if not isinstance(found, PrimitiveType):
        raise Invalid(f"widen: {given!r} is no primitive type")
    return found


def _checked(table: Table, known: NestedField | None, field: NestedField) -> dict[str, Any]:
    """Check one column of a proposed schema. PyIceberg decides, in a transaction that is never committed."""
    try:
        with errors_as_catalog_errors(), table.transaction().update_schema() as update:
            if known is None:
                update.add_column(field.name, field.field_type, field.doc, field.required)
            elif known.field_type != field.field_type:
                update.update_column(field.name, field_type=field.field_type)
    except Invalid as error:
        return _check_result(field.name, "refuse", error.message)
    if known is None:
        return _check_result(field.name, "add", f"A new column of type {field.field_type}")
    if known.field_type != field.field_type:
        return _check_result(field.name, "widen", f"{known.field_type} becomes {field.field_type}")
    if known.required and not field.required:
        return _check_result(
            field.name, "optional", "The column is required, and the proposed one may be null"
        )
    if field.doc is not None and field.doc != known.doc:
        return _check_result(field.name, "comment", "The comment changes")
    return _check_result(field.name, "none", "The column is the same")


def _missing(field: NestedField) -> dict[str, Any]:
    if field.required:
        return _check_result(field.name, "refuse", "The column is required, and the proposed schema lacks it")
    return _check_result(field.name, "keep", "The column stays and is null in new rows")


def _check_result(column: str, action: str, reason: str) -> dict[str, Any]:
    return {"column": column, "compatible": action != "refuse", "action": action, "reason": reason}


def _first_commits(access: TableAccess) -> dict[int, dict[str, Any]]:
    """Return the history row of the first commit with each schema as the current one."""
    rows = (row for row in versions(access) if "current-schema-id" in row["detail"])
    return {row["detail"]["current-schema-id"]: row for row in rows}  # newest first: the oldest one stays


def _version(schema: Schema, is_current: bool, commit: dict[str, Any] | None) -> dict[str, Any]:
    identifiers = set(schema.identifier_field_ids)
    return {
        "schema_id": schema.schema_id,
        "is_current": is_current,
        "columns": [field.model_dump(mode="json") for field in schema.fields],
        "identifier_columns": [field.name for field in schema.fields if field.field_id in identifiers],
        "number": commit["number"] if commit else None,
        "time": str(AtTime(commit["time_ms"])) if commit else None,
        "principal": commit["principal"] if commit else None,
    }
