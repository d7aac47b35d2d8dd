"""The schema plan of a table: which row columns a batch stages, and how the table's schema must change for it.

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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from catalog.errors import Invalid
from ingest.change import Change, Declared
from ingest.columns.declared import encoding_of
from ingest.columns.fields import FieldIds, evolved, full_names, new_field
from ingest.columns.infer import infer
from ingest.columns.partitioning import partition_spec
from ingest.columns.requests import create_request, schema_updates
from ingest.columns.sightings import Sightings, sight
from ingest.columns.types import IcebergType, arrow_type, creatable, merged, promotes, shape

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

Policy = Literal["evolve", "freeze", "reject"]

# The key of tables whose producer only says a name for each row. Iceberg's own `_row_id` cannot be used.
ROW_ID = "_cdc_row_id"
STAGING_PREFIX = "_calve_"
# With a column of such a name, Spark cannot merge into the table, or not even read it.
ICEBERG_NAMES = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
_NEVER_IDENTIFIER = frozenset({"float", "double"})


@dataclass(frozen=True, slots=True)
class Column:
    """A row column to stage. `encoding` is what the newest declaration says; each change has its own."""

    name: str
    type: IcebergType
    encoding: str | None = None
    required: bool = False


@dataclass(slots=True)
class Plan:
    columns: list[Column]  # in table order
    schema: dict[str, Any] | None  # the new schema, with field ids, if it is created or changed
    refused: dict[str, str] = field(default_factory=dict)  # column -> why it is not taken
    policy: Policy = "evolve"


def plan(
    existing: dict[str, Any] | None,
    changes: Sequence[Change],
    *,
    policy: Policy,
    key: Sequence[str],
    extra: Sequence[tuple[str, str]],
    last_column_id: int,
) -> Plan:
    """The plan for these changes. `Invalid` only if the table has an added column with another type."""
    making = _Making(existing, sight(changes, key), policy, key, extra, last_column_id)
    return making.plan()


class _Making:
    """One plan in the making."""

    __slots__ = ("added", "existing", "extra", "fields", "ids", "key", "policy", "refused", "seen", "taken")

    def __init__(
        self,
        existing: dict[str, Any] | None,
        seen: Sightings,
        policy: Policy,
        key: Sequence[str],
        extra: Sequence[tuple[str, str]],
        last_column_id: int,
    ) -> None:
        self.existing = existing
        self.seen = seen
        self.policy = policy
        self.key = list(key)
        self.extra = dict(extra)
        self.fields: list[dict[str, Any]] = list(existing["fields"]) if existing else []
        self.taken = full_names(self.fields)
        self.ids = FieldIds(last_column_id)
        self.refused: dict[str, str] = {}
        self.added: list[dict[str, Any]] = []

    def plan(self) -> Plan:
        if self.policy == "evolve":
            self.fields = [self._widened(known) for known in self.fields]
        known = {each["name"] for each in self.fields}
        for name in self.seen.names:
            if name not in known:
                self._consider(name)
        columns = [self._column(each) for each in self.fields + self.added if self._is_staged(each)]
        for name, type_ in self.extra.items():
            self._add_extra(name, type_)
        return Plan(columns, self._schema(), self.refused, self.policy)

    def _widened(self, known: dict[str, Any]) -> dict[str, Any]:
        name = known["name"]
        if name in self.extra:
            return known
        type_ = known["type"]
        for declared in self.seen.declared.get(name, ()):
            type_ = evolved(type_, declared, self.ids)
        if name in self.seen.undeclared:
            type_ = _needed(type_, self.seen.undeclared[name])
        return known if type_ == known["type"] else known | {"type": type_}

    def _consider(self, name: str) -> None:
        """Add a column that the table lacks, or say why not."""
        reason = self._name_refusal(name)
        if reason is None and self.existing is not None and self.policy != "evolve":
            reason = f"the table has no such column, and its schema policy is {self.policy}"
        type_ = None
        if reason is None:
            try:
                type_ = self._new_type(name)
            except Invalid as refused:
                reason = refused.message
        if reason is not None:
            self.refused[name] = reason
        elif type_ is not None:
            self.added.append(new_field(name, type_, self.ids, required=name in self.key))
            self.taken |= full_names(self.added[-1:])

    def _name_refusal(self, name: str) -> str | None:
        if not name:
            return "a column needs a name"
        if name in self.extra:
            return f'the column "{name}" of the table is written by the ingest itself; give it another name'
        if name.startswith(STAGING_PREFIX):
            return f'names that begin with "{STAGING_PREFIX}" are kept for staging'
        if name in ICEBERG_NAMES:
            return f'"{name}" is a name of Iceberg\'s own; Spark cannot work on a table with such a column'
        if name in self.taken:
            return f'"{name}" is already the full name of a nested field'
        try:
            name.encode()
        except UnicodeEncodeError:
            return "its name is not valid Unicode"
        return None

    def _new_type(self, name: str) -> IcebergType | None:
        """Declared, else inferred; None as long as nothing but nulls came."""
        found: IcebergType | None = None
        for declared in self.seen.declared.get(name, ()):
            wanted = creatable(declared)
            if found is None:
                found = wanted
            elif wanted is not None:
                found = merged(found, wanted) or found
        if found is None and self.key == [name] and self.seen.keyed_by_row_id:
            found = "string"
        return found or infer(self.seen.undeclared.get(name, ()))

    def _add_extra(self, name: str, type_: str) -> None:
        known = next((each for each in self.fields if each["name"] == name), None)
        if known is None:
            self.added.append(new_field(name, type_, self.ids, required=False))
        elif not promotes(type_, known["type"]):
            raise Invalid(
                f'the column "{name}" of the table is {known["type"]}, but the ingest writes {type_} there: '
                f"rename it, or set another name for the added column"
            )

    def _is_staged(self, each: dict[str, Any]) -> bool:
        name = each["name"]
        if name in self.extra or name.startswith(STAGING_PREFIX):
            return False
        try:
            arrow_type(each["type"])
        except Invalid as refused:
            self.refused[name] = refused.message
            return False
        return True

    def _column(self, each: dict[str, Any]) -> Column:
        name = each["name"]
        return Column(name, each["type"], encoding_of(self.seen.newest, name), bool(each["required"]))

    def _schema(self) -> dict[str, Any] | None:
        if self.existing is None:
            fields = self.ids.numbered(self.added)
            schema = {"type": "struct", "schema-id": 0, "fields": fields}
            identifiers = _identifiers(fields, self.key)
            return schema | ({"identifier-field-ids": identifiers} if identifiers else {})
        fields = self.fields + self.ids.numbered(self.added)
        return None if fields == self.existing["fields"] else self.existing | {"fields": fields}


def _needed(type_: IcebergType, values: Sequence[Any]) -> IcebergType:
    """A wider type only where a value that nobody declared asks for it."""
    if type_ == "int" and any(type(v) is int and not -(2**31) <= v < 2**31 for v in values):
        return "long"
    if type_ == "float" and any(type(v) is float and 3.5e38 < abs(v) < float("inf") for v in values):
        return "double"
    return type_


def _identifiers(fields: Iterable[dict[str, Any]], key: Sequence[str]) -> list[int]:
    """The ids of the key columns. A part of a key identifies nothing, so it is all of them or none."""
    ids = {each["name"]: each["id"] for each in fields if _may_identify(each["type"])}
    return [ids[name] for name in key] if all(name in ids for name in key) else []


def _may_identify(type_: IcebergType) -> bool:
    return isinstance(type_, str) and type_ not in _NEVER_IDENTIFIER


def offending(changes: Sequence[Change], plan: Plan) -> dict[int, str]:
    """Under the policy `reject`: the changes, by row number, that do not agree with the table, and why."""
    if plan.policy != "reject":
        return {}
    types = {column.name: column.type for column in plan.columns}
    verdicts: dict[int, str | None] = {}  # by the identity of a declaration: changes share them
    found: dict[int, str] = {}
    for row, change in enumerate(changes):
        if change.after is None:
            continue
        unknown = next((name for name in change.after if name in plan.refused), None)
        declared = change.declared
        if unknown is not None:
            found[row] = f'column "{unknown}": {plan.refused[unknown]}'
        elif declared is not None:
            if id(declared) not in verdicts:
                verdicts[id(declared)] = _type_change(declared, types)
            reason = verdicts[id(declared)]
            if reason is not None:
                found[row] = reason
    return found


def _type_change(declared: Declared, types: dict[str, IcebergType]) -> str | None:
    for name, type_ in declared.columns.items():
        known = types.get(name)
        if known is not None and not _agrees(type_, known):
            return f'column "{name}" is declared as {type_}, but is {known} in the table (policy reject)'
    return None


def _agrees(declared: Any, known: IcebergType) -> bool:
    """Whether every value of the declared type has its place in the known one."""
    try:
        forms = [shape(declared), creatable(declared)]
    except Invalid:
        return False
    return any(form is None or merged(form, known) == shape(known) for form in forms)
