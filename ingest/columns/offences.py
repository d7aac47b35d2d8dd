"""The changes that the schema policy `reject` does not let pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog.errors import Invalid
from ingest.change import Change, Declared
from ingest.columns.plans import Plan
from ingest.columns.types import IcebergType, creatable, merged, shape


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
