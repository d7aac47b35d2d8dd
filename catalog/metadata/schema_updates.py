"""The updates add-schema, set-current-schema and remove-schemas."""

from __future__ import annotations

from catalog.errors import Invalid
from catalog.metadata.document import with_id
from catalog.metadata.draft import LAST_ADDED, Draft
from catalog.metadata.limits import INT_MAX
from catalog.metadata.schema_equality import same_schema
from catalog.metadata.schemas import index_schema, tidy_schema
from catalog.metadata.shapes import JsonObject, integer, integers, mapping


def add_schema(draft: Draft, update: JsonObject) -> None:
    """An equal schema is used again; another gets the next id, whatever the client's was."""
    given = mapping(update, "schema")
    index = index_schema(given, draft.format_version)
    schema = tidy_schema(given, index)
    document = draft.document
    document["last-column-id"] = max(document["last-column-id"], index.highest_id)
    known = next((known for known in document["schemas"] if same_schema(known, schema)), None)
    if known is not None:
        draft.schemas.note(given.get("schema-id"), known["schema-id"])
    else:
        id_ = _next_schema_id(draft)
        draft.list_of("schemas").append(schema | {"schema-id": id_})
        draft.schemas.note(given.get("schema-id"), id_)
    if document["current-schema-id"] is None:
        draft.forget_schema_index()


def _next_schema_id(draft: Draft) -> int:
    """Above every known id, also those that snapshots still name although the schema was removed."""
    document = draft.document
    used = [schema["schema-id"] for schema in document["schemas"]]
    used += [snapshot.get("schema-id") or 0 for snapshot in document["snapshots"]]
    id_ = max(used, default=-1) + 1
    if id_ > INT_MAX:
        raise Invalid("no schema id is left")
    return id_


def set_current_schema(draft: Draft, update: JsonObject) -> None:
    id_ = draft.schemas.resolve(integer(update, "schema-id", low=LAST_ADDED), "schema")
    if draft.document["current-schema-id"] == id_:
        return
    if with_id(draft.document["schemas"], "schema-id", id_) is None:
        raise Invalid(f"Cannot set current schema to unknown schema: {id_}")
    draft.document["current-schema-id"] = id_
    draft.forget_schema_index()
    draft.layout_changed = True


def remove_schemas(draft: Draft, update: JsonObject) -> None:
    ids = set(integers(update, "schema-ids"))
    document = draft.document
    if document["current-schema-id"] in ids:
        raise Invalid("Cannot remove the current schema")
    draft.put_list("schemas", [schema for schema in document["schemas"] if schema["schema-id"] not in ids])
    draft.schemas.forget(ids)
    if document["current-schema-id"] is None:
        draft.forget_schema_index()
