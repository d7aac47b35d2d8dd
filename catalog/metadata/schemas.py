"""Schemas as JSON objects: read and check one, compare two, assign fresh field ids.

`index_schema` is the only traversal of a schema: it checks shape and types, and indexes every field by id and
by full name. Views use this module too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from catalog.errors import Invalid
from catalog.metadata import types
from catalog.metadata.types import primitive
from catalog.metadata.validation import (
    COLUMN_NAME_CHARS_MAX,
    FIELD_ID_MAX,
    FORMAT_VERSION_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_FIELDS_MAX,
    JsonObject,
    boolean,
    integer,
    integers,
    objects,
    present,
    preview,
    text,
    without_nulls,
    wrong,
)

_DEFAULTS = ("initial-default", "write-default")


class Column(NamedTuple):
    """A field of a schema at any depth. `type` is a type string, or "struct", "list" or "map"."""

    id: int
    name: str
    type: str
    required: bool
    parent: int | None

    @property
    def is_primitive(self) -> bool:
        return self.type not in ("struct", "list", "map", "variant")

    @property
    def kind(self) -> str:
        return primitive(self.type).kind if self.is_primitive else self.type


class SchemaIndex:
    """Every field of one schema, by id and by full name ("a.b", "tags.element", "m.key")."""

    __slots__ = ("by_id", "ids_by_name", "null_defaults", "problems")

    def __init__(self) -> None:
        self.by_id: dict[int, Column] = {}
        self.ids_by_name: dict[str, int] = {}
        self.problems: list[tuple[int, str]] = []
        self.null_defaults = False

    @property
    def highest_id(self) -> int:
        return max(self.by_id, default=0)

    def ancestors(self, column: Column) -> list[Column]:
        """The ancestors of a field, from its parent to the top level."""
        found = []
        parent = column.parent
        while parent is not None:
            found.append(self.by_id[parent])
            parent = self.by_id[parent].parent
        return found


class _Walk:
    """One traversal of a schema, for one format version."""

    __slots__ = ("index", "version")

    def __init__(self, version: int) -> None:
        self.index = SchemaIndex()
        self.version = version

    def struct(self, struct: JsonObject, parent: int | None, prefix: str, at: str, depth: int) -> None:
        if depth > SCHEMA_DEPTH_MAX:
            raise Invalid(f"{at} is nested more than {SCHEMA_DEPTH_MAX} levels deep")
        for position, field in enumerate(objects(struct, "fields", at)):
            field_at = f"{at}.fields[{position}]"
            name = text(field, "name", field_at)
            if len(name) > COLUMN_NAME_CHARS_MAX:
                raise Invalid(f"{field_at}: name is longer than {COLUMN_NAME_CHARS_MAX} characters")
            id_ = integer(field, "id", field_at, high=FIELD_ID_MAX)
            required = boolean(field, "required", field_at)
            if not isinstance(field.get("doc", ""), str):
                raise wrong(f"{field_at}.doc", "a string", field["doc"])
            type_ = present(field, "type", field_at)
            self.field(id_, name, type_, required, parent, prefix, f"{field_at}.type", depth)
            self.field_defaults(field, type_, id_, prefix + name, field_at)

    def field(
        self,
        id_: int,
        name: str,
        type_: Any,
        required: bool,
        parent: int | None,
        prefix: str,
        at: str,
        depth: int,
    ) -> None:
        full_name = prefix + name
        if isinstance(type_, str):
            kind = type_
            self.check_primitive(type_, id_, full_name, required)
        elif isinstance(type_, dict) and type_.get("type") in ("struct", "list", "map"):
            kind = type_["type"]
        else:
            raise Invalid(f"{at}: cannot parse type from json: {preview(type_)}")
        self.add(Column(id_, full_name, kind, required, parent))
        if kind == "struct":
            self.struct(type_, id_, f"{full_name}.", at, depth + 1)
        elif kind == "list":
            self.element(type_, "element", "element-required", id_, f"{full_name}.", at, depth + 1)
        elif kind == "map":
            self.element(type_, "key", None, id_, f"{full_name}.", at, depth + 1)
            self.element(type_, "value", "value-required", id_, f"{full_name}.", at, depth + 1)

    def element(
        self,
        type_: JsonObject,
        key: str,
        required_key: str | None,
        parent: int,
        prefix: str,
        at: str,
        depth: int,
    ) -> None:
        if depth > SCHEMA_DEPTH_MAX:
            raise Invalid(f"{at} is nested more than {SCHEMA_DEPTH_MAX} levels deep")
        id_ = integer(type_, f"{key}-id", at, high=FIELD_ID_MAX)
        required = True if required_key is None else boolean(type_, required_key, at)
        self.field(id_, key, present(type_, key, at), required, parent, prefix, f"{at}.{key}", depth)

    def add(self, column: Column) -> None:
        index = self.index
        if column.id in index.by_id:
            other = index.by_id[column.id].name
            raise Invalid(
                f"Invalid schema: id {column.id} is used by both {preview(other)} and {preview(column.name)}"
            )
        if column.name in index.ids_by_name:
            raise Invalid(
                f"Invalid schema: multiple fields for name {column.name}: "
                f"{index.ids_by_name[column.name]} and {column.id}"
            )
        if len(index.by_id) >= SCHEMA_FIELDS_MAX:
            raise Invalid(f"Invalid schema: more than {SCHEMA_FIELDS_MAX} fields")
        index.by_id[column.id] = column
        index.ids_by_name[column.name] = column.id

    def check_primitive(self, type_: str, id_: int, name: str, required: bool) -> None:
        since = primitive(type_).version_since
        if since > self.version:
            problem = f"Invalid type for {name}: {type_} is not supported until v{since}"
            self.index.problems.append((id_, problem))
        if type_ == "unknown" and required:
            raise Invalid(f"Cannot create required field with unknown type: {name}")

    def field_defaults(self, field: JsonObject, type_: Any, id_: int, name: str, at: str) -> None:
        for key in _DEFAULTS:
            if key not in field:
                continue
            value = field[key]
            if value is None:
                self.index.null_defaults = True
                continue
            types.check_default(type_, value, f"{at}.{key}")
            if key == "initial-default" and self.version < 3:
                problem = f"Invalid initial default for {name}: non-null default ({preview(value)})"
                self.index.problems.append((id_, f"{problem} is not supported until v3"))


def index_schema(schema: JsonObject, version: int = FORMAT_VERSION_MAX, at: str = "schema") -> SchemaIndex:
    """Read and check one schema. Raises `Invalid` if it is malformed or needs a later format version."""
    if schema.get("type") != "struct":
        raise wrong(f"{at}.type", '"struct"', schema.get("type"))
    walk = _Walk(version)
    walk.struct(schema, None, "", at, 0)
    index = walk.index
    if index.problems:
        lines = "\n- ".join(problem for _, problem in sorted(index.problems))
        raise Invalid(f"Invalid schema for v{version}:\n- {lines}")
    if schema.get("identifier-field-ids") is not None:
        for id_ in integers(schema, "identifier-field-ids", at):
            _check_identifier(id_, index)
    return index


def _check_identifier(id_: int, index: SchemaIndex) -> None:
    column = index.by_id.get(id_)
    if column is None:
        raise Invalid(f"Cannot add fieldId {id_} as an identifier field: field does not exist")
    refusal = f"Cannot add field {column.name} as an identifier field"
    if not column.is_primitive:
        raise Invalid(f"{refusal}: not a primitive type field")
    if not column.required:
        raise Invalid(f"{refusal}: not a required field")
    if column.type in ("float", "double"):
        raise Invalid(f"{refusal}: must not be float or double field")
    for parent in index.ancestors(column):
        if parent.type != "struct":
            raise Invalid(f"{refusal}: must not be nested in {parent.name} ({parent.type})")
        if not parent.required:
            raise Invalid(f"{refusal}: must not be nested in an optional field {parent.name}")


def tidy_schema(schema: JsonObject, index: SchemaIndex) -> JsonObject:
    """The schema as it is stored: without null defaults, which mean no default but break Java readers."""
    schema = without_nulls(schema, "identifier-field-ids", "schema-id")
    return _without_null_defaults(schema) if index.null_defaults else schema


def _without_null_defaults(type_: Any) -> Any:
    if isinstance(type_, str):
        return type_
    kind = type_["type"]
    if kind == "struct":
        fields = [without_nulls(field, *_DEFAULTS) for field in type_["fields"]]
        return type_ | {"fields": [f | {"type": _without_null_defaults(f["type"])} for f in fields]}
    parts = ("element",) if kind == "list" else ("key", "value")
    return type_ | {part: _without_null_defaults(type_[part]) for part in parts}


def same_schema(one: JsonObject, other: JsonObject) -> bool:
    """Whether two checked schemas are equal, regardless of their schema ids and the spelling of types."""
    fields, others = one["fields"], other["fields"]
    # Most schemas of a table differ here, which saves the traversal.
    if [field.get("name") for field in fields] != [field.get("name") for field in others]:
        return False
    return bool(_canonical_form(one) == _canonical_form(other))


def _canonical_form(schema: JsonObject) -> Any:
    identifiers = frozenset(schema.get("identifier-field-ids") or ())
    rest = {key: value for key, value in schema.items() if key not in ("schema-id", "identifier-field-ids")}
    return identifiers, _canonical_type(rest)


def _canonical_type(type_: Any) -> Any:
    if isinstance(type_, str):
        return primitive(type_).canonical
    kind = type_["type"]
    if kind == "struct":
        fields = [
            {key: value for key, value in field.items() if value is not None}
            | {"type": _canonical_type(field["type"])}
            for field in type_["fields"]
        ]
        return type_ | {"fields": fields}
    parts = ("element",) if kind == "list" else ("key", "value")
    return type_ | {part: _canonical_type(type_[part]) for part in parts}


class _FreshIds:
    """Assigns new ids in Java's order: the fields of a struct first, then the fields inside each of them."""

    __slots__ = ("ids", "last")

    def __init__(self) -> None:
        self.last = 0
        self.ids: dict[int, int] = {}

    def next(self, old: int) -> int:
        self.last += 1
        self.ids[old] = self.last
        return self.last

    def type(self, type_: Any) -> Any:
        if isinstance(type_, str):
            return type_
        kind = type_["type"]
        if kind == "struct":
            renumbered = [field | {"id": self.next(field["id"])} for field in type_["fields"]]
            return type_ | {"fields": [field | {"type": self.type(field["type"])} for field in renumbered]}
        if kind == "list":
            element = {"element-id": self.next(type_["element-id"])}
            return type_ | element | {"element": self.type(type_["element"])}
        ids = {"key-id": self.next(type_["key-id"]), "value-id": self.next(type_["value-id"])}
        return type_ | ids | {"key": self.type(type_["key"]), "value": self.type(type_["value"])}


def fresh_ids(schema: JsonObject) -> tuple[JsonObject, dict[int, int], int]:
    """A checked schema with new ids from 1, the new id of each old one, and the last id."""
    fresh = _FreshIds()
    renumbered: JsonObject = fresh.type(schema)
    if schema.get("identifier-field-ids") is not None:
        renumbered["identifier-field-ids"] = [fresh.ids[id_] for id_ in schema["identifier-field-ids"]]
    return renumbered, fresh.ids, fresh.last
