"""View versions: what one must hold, when two are the same, and which SQL dialects it speaks.

A version comes from a client as JSON and may be anything; `checked_version` answers with a version that the
rest of the view engine can rely on, or raises `Invalid` or `IllegalArgument` with the reason.
"""

from __future__ import annotations

from catalog.errors import IllegalArgument, Invalid
from catalog.metadata import shapes
from catalog.metadata.limits import LONG_MAX
from catalog.metadata.shapes import JsonObject

LAST_ADDED = -1

# What makes two versions the same: everything but the id and the time.
_NOT_COMPARED = frozenset(("version-id", "timestamp-ms"))


def checked_version(version: JsonObject) -> JsonObject:
    """A copy of a client's version in the spec's form; fields that we do not know are kept."""
    at = "view-version"
    shapes.check_json(version, at)
    shapes.integer(version, "version-id", at, low=LAST_ADDED)
    shapes.integer(version, "schema-id", at, low=LAST_ADDED)
    shapes.integer(version, "timestamp-ms", at, high=LONG_MAX)
    shapes.string_map(version, "summary", at)
    shapes.strings(version, "default-namespace", at)
    # null and absent mean the same: the catalog in which the view is.
    version = dict(shapes.without_nulls(version, "default-catalog"))
    if "default-catalog" in version:
        shapes.text(version, "default-catalog", at)
    version["representations"] = _checked_representations(shapes.objects(version, "representations", at))
    return version


def same_version(one: JsonObject, other: JsonObject) -> bool:
    """True if the two would behave alike: equal in all but id and time."""
    keys = (one.keys() | other.keys()) - _NOT_COMPARED
    return all(one.get(key) == other.get(key) for key in keys)


def dialects(version: JsonObject) -> set[str]:
    """The SQL dialects of a version, in lower case: `Spark` and `spark` are one dialect."""
    return {
        representation["dialect"].lower()
        for representation in version["representations"]
        if representation.get("type") == "sql"
    }


def _checked_representations(representations: list[JsonObject]) -> list[JsonObject]:
    if not representations:
        raise Invalid("Invalid view version: there must be at least one representation")
    checked = [_checked_representation(representation) for representation in representations]
    seen: set[str] = set()
    for representation in checked:
        dialect = representation["dialect"].lower()
        if dialect in seen:
            raise IllegalArgument(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
        seen.add(dialect)
    return checked


def _checked_representation(representation: JsonObject) -> JsonObject:
    at = "view-version.representations"
    kind = shapes.text(representation, "type", at)
    if kind.lower() != "sql":
        raise Invalid(f"Invalid view version: unsupported view representation: {shapes.shown(kind)}")
    shapes.text(representation, "sql", at)
    shapes.text(representation, "dialect", at)
    # Some readers take "sql" in lower case only.
    return {**representation, "type": "sql"}
