"""Partition specs from text: `days(ts)`, `bucket(16, id)`, `truncate(10, name)`, or a column alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from catalog.errors import Invalid
from catalog.metadata.document import PARTITION_FIELD_ID_START
from catalog.metadata.partitioning import bind_partition_spec
from catalog.metadata.schemas import SchemaIndex, index_schema

_CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(\d{1,10})\s*,\s*)?(.*?)\s*\)\s*", re.DOTALL)
# How users write a transform -> the spec's name, and the end of the partition field's name.
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
    """The spec as a create request takes it. `Invalid` names what is wrong and what could be meant."""
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
    """For a table that does not exist yet: `Invalid` if a text cannot be a partition of any table."""
    for text in partitioning:
        match = _CALL.fullmatch(text)
        if match is not None:
            _transform(text, match)


def _read(text: str, index: SchemaIndex) -> tuple[str, str, str]:
    """The transform, the column, and the end of the field's name."""
    if text in index.ids_by_name:  # any name is one, also "days(x)"
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
    """A partition field may bear a column's name only if it comes from it, unchanged."""
    name, count = wanted, 1
    while name in used or (name in index.ids_by_name and name != column):
        count += 1
        name = f"{wanted}_{count}"
    return name
