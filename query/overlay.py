"""Read a table together with rows that replace or delete some of its rows. SQL text; pure.

The overlay is a relation with one row for each key. Its columns have names of their own, so that no column of
the table collides with them: `v0`, `v1`, … are the values of the columns; `m0`, … say that a value is missing
and is that of an old row; `b0`, … are the key of this old row; `is_deleted` says that the key has no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from query.sql import quoted

IS_DELETED = "is_deleted"


@dataclass(frozen=True, slots=True)
class OverlayShape:
    """What the columns of an overlay mean."""

    columns: tuple[str, ...]  # of `v0`, `v1`, …
    key: tuple[str, ...]  # empty: the rows are added to those of the table
    missing: tuple[str, ...]  # the columns with `m`, in their order
    is_truncated: bool  # no row of the table is left but those of the overlay

    def as_message(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(message: dict[str, Any]) -> OverlayShape:
        return OverlayShape(
            tuple(message["columns"]),
            tuple(message["key"]),
            tuple(message["missing"]),
            message["is_truncated"],
        )

    @property
    def names(self) -> list[str]:
        """Return the names of the columns of the overlay."""
        bases = self.key if self.missing else ()
        return [
            *(f"v{number}" for number in range(len(self.columns))),
            *(f"m{number}" for number in range(len(self.missing))),
            *(f"b{number}" for number in range(len(bases))),
            IS_DELETED,
        ]


def overlay_sql(table: str, columns: Sequence[tuple[str, str]], overlay: str, shape: OverlayShape) -> str:
    """Return a SELECT of the table with the overlay. `table` and `overlay` are quoted names, `columns` the
    names and SQL types of all columns of the table. A column that the overlay lacks is null in its rows.
    """
    types = dict(columns)
    values = {name: f"CAST(new.v{number} AS {types[name]})" for number, name in enumerate(shape.columns)}
    added = _added(table, types, overlay, shape, values)
    return added if shape.is_truncated else f"{_kept(table, types, overlay, shape, values)} UNION ALL {added}"


def _kept(
    table: str, types: Mapping[str, str], overlay: str, shape: OverlayShape, values: Mapping[str, str]
) -> str:
    """Return the old rows that the overlay leaves."""
    text = f"SELECT {', '.join(f'old.{quoted(name)}' for name in types)} FROM {table} AS old"  # noqa: S608 - quoted
    if not shape.key:
        return text
    return f"{text} ANTI JOIN {overlay} AS new ON {_is_key(shape.key, values)}"


def _added(
    table: str, types: Mapping[str, str], overlay: str, shape: OverlayShape, values: Mapping[str, str]
) -> str:
    """Return the rows of the overlay, with the values of old rows where theirs are missing."""
    missing = {name: f"new.m{number}" for number, name in enumerate(shape.missing)}
    shown = []
    for name, type_ in types.items():
        value = values.get(name, f"CAST(NULL AS {type_})")
        if name in missing:
            value = f"CASE WHEN {missing[name]} THEN old.{quoted(name)} ELSE {value} END"
        shown.append(f"{value} AS {quoted(name)}")
    text = f"SELECT {', '.join(shown)} FROM {overlay} AS new"  # noqa: S608 - quoted
    if missing:
        bases = {name: f"CAST(new.b{number} AS {types[name]})" for number, name in enumerate(shape.key)}
        text += f" LEFT JOIN {table} AS old ON {_is_key(shape.key, bases)}"
    return f"{text} WHERE NOT new.{IS_DELETED}"


def _is_key(key: Sequence[str], values: Mapping[str, str]) -> str:
    return " AND ".join(f"old.{quoted(name)} = {values[name]}" for name in key)
