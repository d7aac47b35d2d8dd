"""The schema plan of a table: which row columns a batch stages, and how the schema must change for it.

    evolve   new columns are added at the end, types widen as the spec allows
    freeze   unknown columns are left out, and named in `refused`; nothing widens
    reject   as freeze, and `offending` names each change that has an unknown column or another type

A new table takes every column under each policy. Declared types win over inferred ones. A declared type that
is no promotion of the existing one leaves the column as it is; the single values then fit, or they do not.
Nothing is ever dropped or narrowed: a column that the source lost keeps its values.

The added columns (`extra`, such as `_commit_timestamp`) are ours. They are made whatever the policy says, and
no row column takes their place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from catalog.errors import Invalid
from ingest.change import Change
from ingest.columns.declared import encoding_of
from ingest.columns.fields import FieldIds, evolved, full_names
from ingest.columns.infer import infer
from ingest.columns.numeric import FLOAT_MAX
from ingest.columns.offences import offending
from ingest.columns.partitioning import partition_spec
from ingest.columns.plans import Column, Plan, Policy
from ingest.columns.requests import create_request, schema_updates
from ingest.columns.sightings import Sightings, sight
from ingest.columns.temporal import INT_END
from ingest.columns.types import IcebergType, arrow_type, creatable, merged, promotes

__all__ = [
    "ROW_ID",
    "Column",
    "Plan",
    "Policy",
    "create_request",
    "offending",
    "partition_spec",
    "plan",
    "schema_updates",
]

# The key of tables whose producer only says a name for each row. Iceberg's own `_row_id` cannot be used.
ROW_ID = "_cdc_row_id"
STAGING_PREFIX = "_calve_"
# With a column of such a name, Spark cannot merge into the table, or not even read it.
ICEBERG_NAMES = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
_NEVER_IDENTIFIER = frozenset({"float", "double"})
_WIDENED_BY_VALUES = ("int", "float")


def plan(
    existing: dict[str, Any] | None,
    changes: Sequence[Change],
    *,
    policy: Policy,
    key: Sequence[str],
    extra: Sequence[tuple[str, str]],
    last_column_id: int,
    reserved: Collection[str] = (),
) -> Plan:
    """The plan for these changes. `Invalid` only if the table has an added column with another type.

    `reserved` are further names that no row column may take: the added columns of the sister table.
    """
    making = _Making(existing, sight(changes, key, ROW_ID), policy, key, last_column_id)
    making.added_columns = dict(extra)
    making.reserved = frozenset(reserved) | making.added_columns.keys()
    return making.plan()


class _Making:
    """One plan in the making."""

    def __init__(
        self,
        existing: dict[str, Any] | None,
        seen: Sightings,
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
        self.taken = full_names(self.known)
        self.ids = FieldIds(last_column_id)
        self.new: list[dict[str, Any]] = []
        self.refused: dict[str, str] = {}

    def plan(self) -> Plan:
        known_names = {each["name"] for each in self.known}
        if self.policy == "evolve":
            self.known = [self._widened(each) for each in self.known]
        for name in self.seen.names:
            if name not in known_names:
                self._consider(name)
            elif name in self.reserved:
                self.refused[name] = self._name_refusal(name) or ""
        for name, type_ in self.added_columns.items():
            self._add(name, type_)
        fields = self.known + self.ids.numbered(self.new)
        columns = [self._column(each) for each in fields if self._is_staged(each)]
        return Plan(columns, self._schema(fields), self.refused, self.policy)

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
        if type_ == each["type"] or grown & self.taken:
            return each
        self.taken |= grown
        return wider

    def _consider(self, name: str) -> None:
        """Take a column that the table lacks, or say why not."""
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
            return None  # it is made when a value comes
        # A table that has rows cannot get a required column.
        required = self.existing is None and name in self.key
        column = {"name": name, "required": required, "type": type_}
        names = full_names([column])
        if names & self.taken:
            return f'"{min(names & self.taken)}" would be the full name of two fields'
        self.taken |= names
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
        """Declared, else inferred; None as long as nothing but nulls came."""
        if self.key == [name] and self.seen.keyed_by_row_id:
            return "string"
        found: IcebergType | None = None
        for declared in self.seen.declared.get(name, ()):
            wanted = creatable(declared)
            if found is None or wanted is None:
                found = found or wanted
            else:
                found = merged(found, wanted) or found
        return found or infer(self.seen.undeclared(name))

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
    """A wider type only where a value that nobody declared asks for it."""
    if type_ == "int" and any(type(v) is int and not -INT_END <= v < INT_END for v in values):
        return "long"
    if type_ == "float" and any(type(v) is float and FLOAT_MAX < abs(v) < math.inf for v in values):
        return "double"
    return type_


def _identifiers(fields: Iterable[dict[str, Any]], key: Sequence[str]) -> list[int]:
    """The ids of the key columns. A part of a key identifies nothing, so it is all of them or none."""
    ids = {each["name"]: each["id"] for each in fields if _may_identify(each["type"])}
    return [ids[name] for name in key] if all(name in ids for name in key) else []


def _may_identify(type_: IcebergType) -> bool:
    return isinstance(type_, str) and type_ not in _NEVER_IDENTIFIER
