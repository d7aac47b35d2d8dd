"""The parameters of a statement: the values that a request gives for them."""

from __future__ import annotations

from typing import Any

from catalog.errors import Invalid

PARAMETERS_MAX = 1000


def parameter_values(given: dict[str, Any] | list[Any] | None) -> dict[str, Any] | list[Any] | None:
    """Return the values that DuckDB gets."""
    if given is None:
        return None
    if len(given) > PARAMETERS_MAX:
        raise Invalid(f"params: at most {PARAMETERS_MAX} are allowed")
    # Positional parameters may be given by their numbers, as GET does.
    if isinstance(given, dict) and given and all(name.isdigit() for name in given):
        return [given[name] for name in sorted(given, key=int)]
    return given


def check_parameters(expected: list[str], given: dict[str, Any] | list[Any] | None) -> None:
    """Check that each parameter of the SQL has a value, and each value a parameter. Raises Invalid."""
    have = {str(index + 1) for index in range(len(given))} if isinstance(given, list) else set(given or ())
    missing = [name for name in expected if name not in have]
    if missing:
        raise Invalid(f"params: the SQL has the parameter ${missing[0]}, and no value was given for it")
    unknown = sorted(have - set(expected))
    if unknown:
        raise Invalid(f"params: the SQL has no parameter ${unknown[0]}")
