"""Invariants of every stored view document; used by tests, registration and `calve check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from catalog.errors import Invalid
from catalog.metadata import validation
from catalog.metadata.schemas import index_schema
from catalog.metadata.validation import LONG_MAX, JsonObject
from catalog.metadata.view_updates import FORMAT_VERSION, checked_version


def view_violations(metadata: object) -> list[str]:
    """The problems of a view document, one sentence each; empty if it is valid. Never raises."""
    if not isinstance(metadata, dict):
        return ["the document must be an object"]
    # References can be checked only if all parts have the right shape.
    return [*_fields(metadata), *_parts(metadata)] or [*_ids(metadata), *_references(metadata)]


def _fields(metadata: JsonObject) -> list[str]:
    found = [
        *_refusal(lambda: validation.check_json(metadata, "the document")),
        *_refusal(lambda: validation.text(metadata, "view-uuid")),
        *_refusal(lambda: validation.text(metadata, "location")),
        *_refusal(lambda: validation.integer(metadata, "current-version-id")),
        *_refusal(lambda: validation.integer(metadata, "format-version", low=1, high=FORMAT_VERSION)),
    ]
    if "properties" in metadata:
        found += _refusal(lambda: validation.string_map(metadata, "properties"))
    return found


def _parts(metadata: JsonObject) -> list[str]:
    found = []
    for key, check in _PARTS.items():
        try:
            parts = validation.objects(metadata, key)
        except Invalid as refusal:
            found.append(refusal.message)
            continue
        for part in parts:
            found += [f"{key}: {reason}" for reason in _refusal(partial(check, part))]
    return found


def _ids(metadata: JsonObject) -> list[str]:
    found = []
    for key, id_key in (("schemas", "schema-id"), ("versions", "version-id")):
        counts = Counter(part[id_key] for part in metadata[key])
        found += [f"{key}: {id_key} {id_} occurs {count} times" for id_, count in counts.items() if count > 1]
    return found


def _references(metadata: JsonObject) -> list[str]:
    schema_ids = {schema["schema-id"] for schema in metadata["schemas"]}
    version_ids = {version["version-id"] for version in metadata["versions"]}
    log = [entry["version-id"] for entry in metadata["version-log"]]
    current = metadata["current-version-id"]
    found = [
        f"versions: version {version['version-id']} has the unknown schema {version['schema-id']}"
        for version in metadata["versions"]
        if version["schema-id"] not in schema_ids
    ]
    if current not in version_ids:
        found.append(f"current-version-id: version {current} is not known")
    found += [
        f"version-log: version {id_} is not among the versions" for id_ in log if id_ not in version_ids
    ]
    if log and log[-1] != current:
        found.append(f"version-log: ends with version {log[-1]}, but version {current} is current")
    return found


def _check_schema(schema: JsonObject) -> None:
    validation.integer(schema, "schema-id")
    index_schema(schema)


def _check_version(version: JsonObject) -> None:
    validation.integer(version, "version-id")
    validation.integer(version, "schema-id")
    checked_version(version)


def _check_log_entry(entry: JsonObject) -> None:
    validation.integer(entry, "version-id")
    validation.integer(entry, "timestamp-ms", high=LONG_MAX)


_PARTS: dict[str, Callable[[JsonObject], None]] = {
    "schemas": _check_schema,
    "versions": _check_version,
    "version-log": _check_log_entry,
}


def _refusal(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except Invalid as refusal:
        return [refusal.message]
    return []
