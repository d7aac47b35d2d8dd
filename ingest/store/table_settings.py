"""The ingest settings of one table: plain data, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from catalog.errors import Invalid
from ingest.formats.fields import RESERVED_SUFFIXES

Mode = Literal["mirror+changes", "changes", "mirror", "append"]
Policy = Literal["evolve", "freeze", "reject"]
AfterReject = Literal["pass", "wait"]
Truncate = Literal["apply", "ignore", "hold"]
Deletes = Literal["hard", "soft"]
MirrorChanged = Literal["pause", "accept"]

IS_DELETED = "_is_deleted"  # Iceberg has reserved `_deleted`

NAMES = {
    "operation": "_operation",
    "commit-timestamp": "_commit_timestamp",
    "source-timestamp": "_source_timestamp",
    "source": "_source",
    "position": "_position",
    "transaction": "_transaction",
    "event-id": "_event_id",
    "before": "_before",
}
_CHOICES = {
    "mode": Mode,
    "policy": Policy,
    "after_reject": AfterReject,
    "truncate": Truncate,
    "deletes": Deletes,
    "mirror_changed": MirrorChanged,
}
CHANGES_SUFFIX, REJECTS_SUFFIX = RESERVED_SUFFIXES


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Choices of a table's owner; what is left out follows from the data or from the catalog."""

    mode: Mode = "mirror+changes"
    key: tuple[str, ...] | None = None
    policy: Policy = "evolve"
    after_reject: AfterReject = "pass"  # later changes of a key whose change was rejected
    truncate: Truncate = "apply"
    deletes: Deletes = "hard"  # soft: the row stays, with IS_DELETED
    mirror_changed: MirrorChanged = "pause"  # a mirror that others rolled back, emptied or dropped
    partition: tuple[str, ...] = ()  # of the mirror: days(x), months(x), bucket(16, x), x
    changes_partition: tuple[str, ...] | None = None  # None: days(commit timestamp)
    format_version: int = 2
    names: Mapping[str, str] = field(default_factory=lambda: dict(NAMES))
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TableSettings:
        """From JSON, with dashes or underscores; Invalid says which field is wrong and what is allowed."""
        values = {key.replace("-", "_"): value for key, value in given.items()}
        known = {entry.name for entry in fields(cls)}
        for name in values:
            if name not in known:
                raise Invalid(f"unknown table setting {name}: one of {', '.join(sorted(known))}")
        for name, allowed in _CHOICES.items():
            if name in values and values[name] not in get_args(allowed):
                raise Invalid(f"{name} must be one of {', '.join(get_args(allowed))}")
        for name in ("key", "partition", "changes_partition"):
            if values.get(name) is not None:
                values[name] = _texts(name, values[name])
        if values.get("format_version", 2) not in (2, 3):
            raise Invalid("format_version must be 2 or 3")
        if "names" in values:
            values["names"] = _names(values["names"])
        if "properties" in values:
            values["properties"] = _text_map("properties", values["properties"])
        if values.get("deletes") == "soft" and values.get("policy", "evolve") != "evolve":
            raise Invalid(f"deletes: soft adds the column {IS_DELETED}: set policy to evolve")
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        return {name.replace("_", "-"): value for name, value in asdict(self).items()}


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) and part for part in value):
        raise Invalid(f"{name} must be a list of texts")
    if len(set(value)) != len(value):
        raise Invalid(f"{name} must be a list of different texts")
    return tuple(value)


def _text_map(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(part, str) for part in value.values()):
        raise Invalid(f"{name} must be an object of texts")
    return dict(value)


def _names(value: Any) -> dict[str, str]:
    given = _text_map("names", value)
    for name in given:
        if name not in NAMES:
            raise Invalid(f"unknown name {name}: one of {', '.join(NAMES)}")
    merged = {**NAMES, **given}
    if len(set(merged.values())) != len(merged) or not all(merged.values()):
        raise Invalid("names must be different and not empty")
    return merged
