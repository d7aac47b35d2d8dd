"""Plan the schema of a table: which columns a batch stages, and how the schema must change for it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from catalog.errors import Invalid
from catalog.metadata.document import PARTITION_FIELD_ID_START
from catalog.metadata.partitioning import bind_partition_spec
from catalog.metadata.schemas import SchemaIndex, index_schema
from ingest.change import Change, Declared
from ingest.types.dates import INT_END
from ingest.types.evolution import creatable, evolved, merged
from ingest.types.iceberg import (
    FieldIds,
    IcebergType,
    ObservedColumns,
    arrow_type,
    encoding_of,
    full_names,
    observe_columns,
    promotes,
)
from ingest.types.numbers import FLOAT_MAX, infer_type
from ingest.types.type_changes import Conversion, Split, TypeChangeRules, fits

Policy = Literal["evolve", "freeze", "reject"]


@dataclass(frozen=True, slots=True)
class Column:
    """A row column to stage. `encoding` is that of the newest declaration; each change has its own."""

    name: str
    type: IcebergType
    encoding: str | None = None
    required: bool = False


@dataclass(slots=True)
class SchemaPlan:
    columns: list[Column]  # in table order
    schema: dict[str, Any] | None  # the new schema, with field ids, if it is created or changed
    refused: dict[str, str] = field(default_factory=dict)  # column -> why it is not stored
    policy: Policy = "evolve"
    conversions: dict[str, Conversion] = field(default_factory=dict)  # to be done before anything lands
    split: list[str] = field(default_factory=list)  # columns that were renamed for a new one


# -- partition specs from text

_CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(\d{1,10})\s*,\s*)?(.*?)\s*\)\s*", re.DOTALL)
# The transform as users write it -> its name in the spec, and the suffix of the partition field's name.
_TRANSFORMS = {
    "year": ("year", "_year"),
    "month": ("month", "_month"),
    "day": ("day", "_day"),
    "hour": ("hour", "_hour"),
    "bucket": ("bucket", "_bucket"),
    "truncate": ("truncate", "_trunc"),
    "identity": ("identity", ""),
}
_WITH_WIDTH = frozenset({"bucket", "truncate"})


def partition_spec(schema: dict[str, Any], partitioning: Sequence[str]) -> dict[str, Any]:
    """Return the spec for a create request. `Invalid` says what is wrong and what is allowed."""
    index = index_schema(schema)
    fields: list[dict[str, Any]] = []
    for text in partitioning:
        transform, column, suffix = _read(text, index)
        name = _free_name(column + suffix, column, {field["name"] for field in fields}, index)
        field = {"source-id": index.ids_by_name[column], "name": name, "transform": transform}
        fields.append(field | {"field-id": PARTITION_FIELD_ID_START + len(fields)})
    bind_partition_spec(fields, index)
    return {"spec-id": 0, "fields": fields}


def check_partitioning(partitioning: Sequence[str]) -> None:
    """Check the partitions of a table that does not exist yet: `Invalid` if a text cannot be one."""
    for text in partitioning:
        match = _CALL.fullmatch(text)
        if match is not None:
            _transform(text, match)


def _read(text: str, index: SchemaIndex) -> tuple[str, str, str]:
    """Return the transform, the column, and the suffix of the field's name."""
    if text in index.ids_by_name:  # any column name is allowed, also "days(x)"
        return "identity", text, ""
    match = _CALL.fullmatch(text)
    if match is None:
        raise Invalid(f'Cannot partition by "{text}": no such column')
    transform, column, suffix = _transform(text, match)
    if column not in index.ids_by_name:
        raise Invalid(f'Cannot partition by "{text}": no column "{column}"')
    return transform, column, suffix


def _transform(text: str, match: re.Match[str]) -> tuple[str, str, str]:
    word, width, column = match[1].lower(), match[2], match[3]
    known = _TRANSFORMS.get(word) or _TRANSFORMS.get(word.removesuffix("s"))
    if known is None:
        raise Invalid(
            f'Cannot partition by "{text}": no such transform. There are years, months, days, hours, '
            f"bucket(n, column), truncate(n, column), or a column alone"
        )
    transform, suffix = known
    if (transform in _WITH_WIDTH) != (width is not None):
        form = f"{transform}(16, {column})" if transform in _WITH_WIDTH else f"{word}({column})"
        raise Invalid(f'Cannot partition by "{text}": write {form}')
    return f"{transform}[{width}]" if width is not None else transform, column, suffix


def _free_name(wanted: str, column: str, used: set[str], index: SchemaIndex) -> str:
    """Return a free name. A partition field may have a column's name only if it is its identity transform."""
    name, count = wanted, 1
    while name in used or (name in index.ids_by_name and name != column):
        count += 1
        name = f"{wanted}_{count}"
    return name


# -- the plan

# The key of tables whose producer sends only an id of each row. Iceberg's own `_row_id` cannot be used.
ROW_ID = "_cdc_row_id"
STAGING_PREFIX = "_calve_"
# With a column of such a name, Spark cannot merge into the table, or cannot even read it.
ICEBERG_NAMES = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
_NEVER_IDENTIFIER = frozenset({"float", "double"})
_WIDENED_BY_VALUES = ("int", "float")
_WHOLE = {int, type(None)}


def plan(
    existing: dict[str, Any] | None,
    changes: Sequence[Change],
    *,
    policy: Policy,
    key: Sequence[str],
    extra: Sequence[tuple[str, str]],
    last_column_id: int,
    reserved: Collection[str] = (),
    type_changes: Callable[[], TypeChangeRules] = TypeChangeRules,
) -> SchemaPlan:
    """Return the plan for these changes. `Invalid` only if the table has an added column with another type.

    `reserved` are further names that no row column may have: the added columns of the other table.
    """
    making = _SchemaPlanner(existing, observe_columns(changes, key, ROW_ID), policy, key, last_column_id)
    making.added_columns = dict(extra)
    making.reserved = frozenset(reserved) | making.added_columns.keys()
    making.type_changes = type_changes
    return making.plan()


class _SchemaPlanner:
    """Builds one plan."""

    def __init__(
        self,
        existing: dict[str, Any] | None,
        seen: ObservedColumns,
        policy: Policy,
        key: Sequence[str],
        last_column_id: int,
    ) -> None:
        self.existing = existing
        self.seen = seen
        self.policy = policy
        self.key = list(key)
        self.added_columns: dict[str, str] = {}
        self.reserved: frozenset[str] = frozenset()
        self.known: list[dict[str, Any]] = list(existing["fields"]) if existing else []
        self.used_names = full_names(self.known)
        self.ids = FieldIds(last_column_id)
        self.new: list[dict[str, Any]] = []
        self.refused: dict[str, str] = {}
        self.type_changes: Callable[[], TypeChangeRules] = TypeChangeRules
        self.conversions: dict[str, Conversion] = {}
        self.split: list[str] = []

    def plan(self) -> SchemaPlan:
        if self.policy == "evolve":
            self.known = [self._widened(each) for each in self.known]
            self.known = [self._changed(each) for each in self.known]
        known_names = {each["name"] for each in (*self.known, *self.new)}
        for name in self.seen.names:
            if name not in known_names:
                self._consider(name)
            elif name in self.reserved:
                self.refused[name] = self._name_refusal(name) or ""
        for name, type_ in self.added_columns.items():
            self._add(name, type_)
        fields = self.known + self.ids.numbered(self.new)
        columns = [self._column(each) for each in fields if self._is_staged(each)]
        schema = self._schema(fields)
        return SchemaPlan(columns, schema, self.refused, self.policy, self.conversions, self.split)

    def _widened(self, each: dict[str, Any]) -> dict[str, Any]:
        name = each["name"]
        if name in self.reserved:
            return each
        type_ = each["type"]
        for declared in self.seen.declared.get(name, ()):
            type_ = evolved(type_, declared, self.ids)
        if type_ in _WIDENED_BY_VALUES:
            type_ = _needed(type_, self.seen.undeclared(name))
        wider = each | {"type": type_}
        grown = full_names([wider]) - full_names([each])
        if type_ == each["type"] or grown & self.used_names:
            return each
        self.used_names |= grown
        return wider

    def _changed(self, each: dict[str, Any]) -> dict[str, Any]:
        """Handle a column whose values need a type that Iceberg cannot widen it to."""
        name = each["name"]
        if name in self.reserved or not self._may_change(name, each["type"]):
            return each
        change = self.type_changes().of_column(each, self.seen, self.key)
        if isinstance(change, Conversion):
            self.conversions[name] = change
        if not isinstance(change, Split):
            return each
        old_type = each["type"] if isinstance(each["type"], str) else each["type"]["type"]
        former = wanted = f"{name}__{re.split('[^a-z0-9]', old_type)[0]}"
        for count in range(2, len(self.used_names) + 2):
            former = former if former not in self.used_names else f"{wanted}_{count}"
        self.split.append(name)
        self.new.append({"name": name, "required": False, "type": change.new_type})
        renamed = each | {"name": former, "required": False}
        self.used_names |= full_names([renamed]) | full_names([self.new[-1]])
        return renamed

    def _may_change(self, name: str, type_: IcebergType) -> bool:
        """Return whether the type may have to change; usually not, which is found at once."""
        declared = self.seen.declared.get(name)
        if declared:
            return any(one != type_ for one in declared)
        return type_ in ("int", "long") and not set(map(type, self.seen.undeclared(name))) <= _WHOLE

    def _consider(self, name: str) -> None:
        """Add a column that the table lacks, or record why not."""
        reason = self._name_refusal(name)
        if reason is None and self.existing is not None and self.policy != "evolve":
            reason = f"the table has no such column, and its schema policy is {self.policy}"
        if reason is None:
            reason = self._take(name)
        if reason is not None:
            self.refused[name] = reason

    def _take(self, name: str) -> str | None:
        try:
            type_ = self._new_type(name)
        except Invalid as refused:
            return refused.message
        if type_ is None:
            return None  # it is created when a value arrives
        # A table that has rows cannot get a required column.
        required = self.existing is None and name in self.key
        column = {"name": name, "required": required, "type": type_}
        names = full_names([column])
        if names & self.used_names:
            return f'"{min(names & self.used_names)}" would be the full name of two fields'
        self.used_names |= names
        self.new.append(column)
        return None

    def _name_refusal(self, name: str) -> str | None:
        if not name:
            return "a column needs a name"
        if name in self.reserved:
            return f'"{name}" is written by the ingest itself: rename one of the two'
        if name.startswith(STAGING_PREFIX):
            return f'names that begin with "{STAGING_PREFIX}" are kept for staging'
        if name in ICEBERG_NAMES:
            return f'"{name}" is a name of Iceberg\'s own: Spark cannot work on a table with such a column'
        try:
            name.encode()
        except UnicodeEncodeError:
            return "its name is not valid Unicode"
        return None

    def _new_type(self, name: str) -> IcebergType | None:
        """Return the declared type, else the inferred one; None while all values are null."""
        if self.key == [name] and self.seen.keyed_by_row_id:
            return "string"
        found: IcebergType | None = None
        for declared in self.seen.declared.get(name, ()):
            wanted = creatable(declared)
            if found is None or wanted is None:
                found = found or wanted
            else:
                found = merged(found, wanted) or found
        return found or infer_type(self.seen.undeclared(name))

    def _add(self, name: str, type_: str) -> None:
        known = next((each for each in self.known if each["name"] == name), None)
        if known is None:
            self.new.append({"name": name, "required": False, "type": type_})
        elif not promotes(type_, known["type"]):
            raise Invalid(
                f'the column "{name}" of the table is {known["type"]}, but the ingest writes {type_} there: '
                f"rename it, or set another name for the added column"
            )

    def _is_staged(self, each: dict[str, Any]) -> bool:
        name = each["name"]
        if name in self.reserved or name.startswith(STAGING_PREFIX):
            return False
        try:
            arrow_type(each["type"])
        except Invalid as refused:
            self.refused[name] = refused.message
            return False
        return True

    def _column(self, each: dict[str, Any]) -> Column:
        encoding = encoding_of(self.seen.newest, each["name"])
        return Column(each["name"], each["type"], encoding, bool(each["required"]))

    def _schema(self, fields: list[dict[str, Any]]) -> dict[str, Any] | None:
        if self.existing is not None:
            return None if fields == self.existing["fields"] else self.existing | {"fields": fields}
        schema = {"type": "struct", "schema-id": 0, "fields": fields}
        identifiers = _identifiers(fields, self.key)
        return schema | ({"identifier-field-ids": identifiers} if identifiers else {})


def _needed(type_: IcebergType, values: Sequence[Any]) -> IcebergType:
    """Return a wider type, only if a value without a declared type needs it."""
    if type_ == "int" and any(type(v) is int and not -INT_END <= v < INT_END for v in values):
        return "long"
    if type_ == "float" and any(type(v) is float and FLOAT_MAX < abs(v) < math.inf for v in values):
        return "double"
    return type_


def _identifiers(fields: Iterable[dict[str, Any]], key: Sequence[str]) -> list[int]:
    """Return the ids of the key columns: all or none, because a part of a key identifies nothing."""
    ids = {each["name"]: each["id"] for each in fields if _may_identify(each["type"])}
    return [ids[name] for name in key] if all(name in ids for name in key) else []


def with_identifiers(schema: dict[str, Any], key: Sequence[str]) -> dict[str, Any]:
    """Return a schema whose identifier fields are the key columns, which are then required."""
    identifiers = _identifiers(schema["fields"], key)
    fields = [
        each | {"required": True} if each["id"] in identifiers and not each["required"] else each
        for each in schema["fields"]
    ]
    return schema | {"fields": fields, "identifier-field-ids": identifiers}


def _may_identify(type_: IcebergType) -> bool:
    return isinstance(type_, str) and type_ not in _NEVER_IDENTIFIER


# -- the policy `reject`


def policy_violations(changes: Sequence[Change], plan: SchemaPlan) -> dict[int, str]:
    """Under the policy `reject`: return the changes, by row number, that do not fit the table, and why."""
    if plan.policy != "reject":
        return {}
    types = {column.name: column.type for column in plan.columns}
    # by the identity of a declaration, because changes share declarations
    reasons_of: dict[int, str | None] = {}
    found: dict[int, str] = {}
    for row, change in enumerate(changes):
        if change.after is None:
            continue
        unknown = next((name for name in change.after if name in plan.refused), None)
        declared = change.declared
        if unknown is not None:
            found[row] = f'column "{unknown}": {plan.refused[unknown]}'
        elif declared is not None:
            if id(declared) not in reasons_of:
                reasons_of[id(declared)] = _type_change(declared, types)
            reason = reasons_of[id(declared)]
            if reason is not None:
                found[row] = reason
    return found


def _type_change(declared: Declared, types: dict[str, IcebergType]) -> str | None:
    for name, type_ in declared.columns.items():
        known = types.get(name)
        if known is not None and not fits(type_, known):
            return f'column "{name}" is declared as {type_}, but is {known} in the table (policy reject)'
    return None
