"""Handle type changes that Iceberg cannot widen: a column whose values need another type. Pure.

`convert`: the column gets a type that holds its old and its new values; a job writes the old values again.
`split`: the old column is renamed to `<name>__<type>`, and a new column gets its name. `reject`: the column
stays, and values that do not fit become dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from catalog.errors import Invalid
from catalog.metadata.types import primitive
from ingest.types.evolution import creatable, merged
from ingest.types.iceberg import IcebergType, ObservedColumns, encoding_of, promotes, shape
from ingest.types.numbers import LONG_MAX
from ingest.types.values import REFUSALS, converter

TypeChanges = Literal["convert", "split", "reject"]

# On tables that ingest created: their columns follow the types of the source.
FOLLOWS_SOURCE = "calve.follows-source"
# JSON: the types that each column was converted to, or could not be converted to.
TRIED_TYPES = "calve.tried-types"
DOUBLE_DIGITS = 15  # a decimal number with at most this many digits survives a conversion to double and back
_BYTES = frozenset({"binary", "fixed", "geometry", "geography"})
_FLOATING = frozenset({"float", "double"})
_INSTANTS = frozenset({"timestamp", "timestamptz"})
# Types that a column can become if each of its values fits: the worker checks all of them.
_NARROWER = {
    "string": frozenset(
        {"boolean", "int", "long", "float", "double", "decimal", "date", "timestamp", "timestamptz", "uuid"}
    ),
    "float": frozenset({"decimal"}),
    "double": frozenset({"decimal"}),
    "decimal": frozenset({"int", "long", "float", "double"}),
    "int": frozenset({"boolean"}),
    "long": frozenset({"boolean"}),
    "timestamp": frozenset({"date"}),
    "timestamptz": frozenset({"date"}),
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """A column that has to be converted. `to` are the candidate types in order; the last holds every
    value.
    """

    current: IcebergType
    to: tuple[str, ...]

    def described(self) -> dict[str, Any]:
        """Return the conversion as in the description of a job."""
        return {"from": self.current, "to": list(self.to)}


@dataclass(frozen=True, slots=True)
class Split:
    """A column to which a new one of this type is added. The old one is renamed."""

    new_type: IcebergType


@dataclass(frozen=True, slots=True)
class TypeChangeRules:
    """`follows_source`: the columns get the types that the source declares. Otherwise, in a table that its
    owner created, they change only for values that do not fit. `tried` are types that a column had or could
    not get: it is not narrowed to them again. `fixed_ids` are columns that partitions or sort orders use.
    """

    mode: TypeChanges = "reject"
    follows_source: bool = False
    tried: Mapping[str, Collection[str]] = field(default_factory=dict)
    fixed_ids: frozenset[int] = frozenset()

    @classmethod
    def of_table(cls, mode: TypeChanges, table: Mapping[str, Any]) -> TypeChangeRules:
        """Create the rules from a table's metadata document."""
        properties = table.get("properties") or {}
        used = [*(table.get("partition-specs") or ()), *(table.get("sort-orders") or ())]
        used_ids = [part["source-id"] for one in used for part in one["fields"] if "source-id" in part]
        tried = json.loads(properties.get(TRIED_TYPES) or "{}")
        return cls(mode, properties.get(FOLLOWS_SOURCE) == "true", tried, frozenset(used_ids))

    def of_column(
        self, column: Mapping[str, Any], seen: ObservedColumns, key: Sequence[str]
    ) -> Conversion | Split | None:
        """Return the change that a batch requires of a column of the table; None if it can stay."""
        name, current = column["name"], column["type"]
        if self.mode == "reject":
            return None
        declared = seen.declared.get(name, ())
        wanted = self._wanted(name, current, seen)
        if not wanted:
            return None
        is_rounded = _is_floating(current) and wanted == ["long"]
        types = ["string"] if is_rounded else _common(current, declared or wanted, self.tried.get(name, ()))
        if name in key:
            is_possible = types and column["id"] not in self.fixed_ids and not _FLOATING & set(types)
            return Conversion(current, tuple(types)) if types and is_possible else None
        if types is None or (types and (self.mode == "split" or column["id"] in self.fixed_ids)):
            return Split(creatable(wanted[-1]) or "string")
        return Conversion(current, tuple(types)) if types else None

    def _wanted(self, name: str, current: IcebergType, seen: ObservedColumns) -> list[Any]:
        """Return the types that the batch requires and that the column does not hold."""
        declared = [type_ for type_ in seen.declared.get(name, ()) if not fits(type_, current)]
        if not declared and _is_floating(current) and "long" in seen.declared.get(name, ()):
            return ["long"] if _is_rounded(name, seen) else []
        if declared:
            return declared if self.follows_source or _has_unfit(name, current, seen) else []
        # Numbers without a declared type. Other values that do not fit do not change the type of a column.
        is_whole = self.follows_source and current in ("int", "long")
        return ["double"] if is_whole and any(map(_has_fraction, seen.undeclared(name))) else []


def _is_floating(type_: IcebergType) -> bool:
    return isinstance(type_, str) and type_ in _FLOATING  # the type of a list or struct is a dict


def fits(declared: Any, known: IcebergType) -> bool:
    """Return whether every value of the declared type fits the known one."""
    try:
        forms = [shape(declared), creatable(declared)]
    except Invalid:
        return False
    return any(form is None or merged(form, known) == shape(known) for form in forms)


def _common(current: IcebergType, declared: Sequence[Any], tried: Collection[str]) -> list[str] | None:
    """Return the candidate types, the widest last; none if the column can stay; None if there is no common
    type.
    """
    if len(declared) == 1:
        return conversion(current, declared[0], tried)
    wide = current
    for each in declared:
        types = conversion(wide, each, None)
        if types is None:
            return None
        wide = types[0] if types else wide
    if wide == current:
        return []
    return [str(wide)] if wide == "string" else [str(wide), "string"]


def conversion(current: IcebergType, declared: Any, tried: Collection[str] | None) -> list[str] | None:
    """The same for one declared type. `tried` is None if the column must not be narrowed at all."""
    if fits(declared, current):
        return []
    try:
        wanted = creatable(declared)
    except Invalid:
        return []  # not a type: the values are checked one by one
    if not isinstance(current, str) or not isinstance(wanted, str):
        same_kind = isinstance(current, dict) and isinstance(wanted, dict)
        return [] if same_kind and current["type"] == wanted["type"] else None  # type: ignore[index]
    if promotes(current, wanted):
        return []
    kinds = primitive(current).kind, primitive(wanted).kind
    if _BYTES & set(kinds):
        return None
    wide = _wide(current, wanted)
    narrows = wanted != wide and kinds[1] in _NARROWER.get(kinds[0], ())
    found = [wanted] if narrows and tried is not None and wanted not in tried else []
    found.append(wide)
    if wide not in (current, "string"):
        found.append("string")  # a long beyond 2**53 is not exact in a double
    return [] if found == [current] else found


def _wide(current: str, wanted: str) -> str:
    """Return a type for all values of both; text if there is no other."""
    both = merged(current, wanted)
    if isinstance(both, str):
        return both
    one, other = primitive(current), primitive(wanted)
    kinds = {one.kind, other.kind}
    if "date" in kinds and kinds & _INSTANTS:
        return current if other.kind == "date" else wanted
    if kinds <= _INSTANTS or (one.kind == "boolean" and other.kind in ("int", "long")):
        return wanted
    if "decimal" in kinds and kinds & _FLOATING:
        digits = max(each.precision for each in (one, other) if each.kind == "decimal")
        return "double" if digits <= DOUBLE_DIGITS else "string"
    return "string"


def _has_fraction(value: Any) -> bool:
    if type(value) is float:
        return value - value == 0 and not value.is_integer()  # infinity minus infinity is not 0
    return type(value) is Decimal and value.is_finite() and value % 1 != 0


def _is_rounded(name: str, seen: ObservedColumns) -> bool:
    """Return whether an integer of the batch would be rounded in a floating-point column."""
    values = (change.after.get(name) for change in seen.changes if change.after)
    return any(type(value) is int and abs(value) <= LONG_MAX and float(value) != value for value in values)


def _has_unfit(name: str, current: IcebergType, seen: ObservedColumns) -> bool:
    """Return whether a value of the batch does not fit the column."""
    conversions: dict[str | None, Any] = {}
    for change in seen.changes:
        value = change.after.get(name) if change.after else None
        if value is None:
            continue
        encoding = encoding_of(change.declared, name)
        if encoding not in conversions:
            conversions[encoding] = converter(current, encoding)
        try:
            conversions[encoding](value)
        except REFUSALS:
            return True
    return False
