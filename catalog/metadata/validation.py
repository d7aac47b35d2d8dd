"""Read values from JSON that a client sent, with limits. A wrong value raises Invalid with its path."""

from __future__ import annotations

import math
from typing import Any

from catalog.errors import Invalid

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
FORMAT_VERSION_MIN = 1
FORMAT_VERSION_MAX = 3
FORMAT_VERSION_DEFAULT = 2
# The spec reserves the highest 200 ids for metadata columns; a column there would also leave no id for the
# next.
FIELD_ID_MAX = INT_MAX - 201
UPDATES_MAX = 10_000
REQUIREMENTS_MAX = 1_000
SCHEMA_FIELDS_MAX = 20_000
SCHEMA_DEPTH_MAX = 64
SPEC_FIELDS_MAX = 1_000
TYPE_TEXT_CHARS_MAX = 1_000
COLUMN_NAME_CHARS_MAX = 10_000
# orjson writes at most 254 levels, and the document adds a few around the client's value.
JSON_DEPTH_MAX = 200
# Java readers refuse a document whose logs go back by more than this.
CLOCK_SKEW_MS_MAX = 60_000
METADATA_LOG_ENTRIES_DEFAULT = 100
JsonObject = dict[str, Any]
_ABSENT = object()
_PREVIEW_CHARS_MAX = 80


def path(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def preview(value: object) -> str:
    """The value for a message: short, on one line, without traversing it."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        return ascii(value) if len(value) <= _PREVIEW_CHARS_MAX else ascii(value[:_PREVIEW_CHARS_MAX]) + "..."
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)[:_PREVIEW_CHARS_MAX] if isinstance(value, float) or _is_long(value) else "a huge number"


def _is_long(value: object) -> bool:
    return isinstance(value, int) and -LONG_MAX - 1 <= value <= LONG_MAX


def wrong(at: str, expected: str, value: object) -> Invalid:
    return Invalid(f"{at} must be {expected}, not {preview(value)}")


def present(obj: JsonObject, key: str, at: str = "") -> Any:
    value = obj.get(key)
    if value is None:
        raise Invalid(f"{path(at, key)} is missing")
    return value


def text(obj: JsonObject, key: str, at: str = "") -> str:
    value = present(obj, key, at)
    if not isinstance(value, str):
        raise wrong(path(at, key), "a string", value)
    if not value:
        raise Invalid(f"{path(at, key)} must not be empty")
    return value


def integer(obj: JsonObject, key: str, at: str = "", *, low: int = 0, high: int = INT_MAX) -> int:
    value = present(obj, key, at)
    if type(value) is not int or not low <= value <= high:
        raise wrong(path(at, key), f"an integer from {low} to {high}", value)
    return value


def long(obj: JsonObject, key: str, at: str = "", *, low: int = 0) -> int:
    return integer(obj, key, at, low=low, high=LONG_MAX)


def optional_long(obj: JsonObject, key: str, at: str = "", *, low: int = 0) -> int | None:
    return None if obj.get(key) is None else integer(obj, key, at, low=low, high=LONG_MAX)


def boolean(obj: JsonObject, key: str, at: str = "") -> bool:
    value = present(obj, key, at)
    if not isinstance(value, bool):
        raise wrong(path(at, key), "true or false", value)
    return value


def array(obj: JsonObject, key: str, at: str = "") -> list[Any]:
    value = present(obj, key, at)
    if not isinstance(value, list):
        raise wrong(path(at, key), "an array", value)
    return value


def mapping(obj: JsonObject, key: str, at: str = "") -> JsonObject:
    value = present(obj, key, at)
    if not isinstance(value, dict):
        raise wrong(path(at, key), "an object", value)
    return value


def integers(obj: JsonObject, key: str, at: str = "", *, low: int = 0, high: int = INT_MAX) -> list[int]:
    values = array(obj, key, at)
    for position, value in enumerate(values):
        if type(value) is not int or not low <= value <= high:
            raise wrong(f"{path(at, key)}[{position}]", f"an integer from {low} to {high}", value)
    return values


def objects(obj: JsonObject, key: str, at: str = "") -> list[JsonObject]:
    values = array(obj, key, at)
    for position, value in enumerate(values):
        if not isinstance(value, dict):
            raise wrong(f"{path(at, key)}[{position}]", "an object", value)
    return values


def strings(obj: JsonObject, key: str, at: str = "") -> list[str]:
    values = array(obj, key, at)
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise wrong(f"{path(at, key)}[{position}]", "a string", value)
    return values


def string_map(obj: JsonObject, key: str, at: str = "") -> dict[str, str]:
    """Refuse properties that are not strings: clients crash on them."""
    values = mapping(obj, key, at)
    for name, value in values.items():
        if not isinstance(value, str):
            raise wrong(path(path(at, key), name), "a string", value)
    return values


def without_nulls(obj: JsonObject, *keys: str) -> JsonObject:
    """The object without those of `keys` that are null: Java readers accept a missing field there, but not
    null.
    """
    if any(obj.get(key, _ABSENT) is None for key in keys):
        return {key: value for key, value in obj.items() if value is not None or key not in keys}
    return obj


def check_json(value: object, at: str) -> None:
    """Refuse values that cannot be stored: nested too deeply, integers beyond 64 bits, numbers not finite."""
    level: list[object] = [value]
    for _ in range(JSON_DEPTH_MAX):
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                continue
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif _problem(item) is not None:
                raise Invalid(f"{at}: {_path_of_problem(value)}")
        if not below:
            return
        level = below
    raise Invalid(f"{at}: nested more than {JSON_DEPTH_MAX} levels deep")


def _problem(item: object) -> str | None:
    if isinstance(item, float):
        return None if math.isfinite(item) else "must be a finite number"
    if item is None or isinstance(item, bool | str | dict | list) or _is_long(item):
        return None
    return "must fit into 64 bits" if isinstance(item, int) else "must be JSON"


def _path_of_problem(value: object) -> str:
    """Find the path of a wrong value. This runs only after an error, so that the usual case tracks no
    paths.
    """
    waiting: list[tuple[str, object]] = [("", value)]
    for at, item in waiting:
        problem = _problem(item)
        if problem is not None:
            return f"{at} {problem}".strip()
        if isinstance(item, dict):
            waiting.extend((path(at, str(key)), inner) for key, inner in item.items())
        elif isinstance(item, list):
            waiting.extend((f"{at}[{index}]", inner) for index, inner in enumerate(item))
    return "must be JSON"
