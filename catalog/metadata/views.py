"""The view engine: the metadata of a view and its commits. Pure functions on plain dicts.

`new_view` creates the first document of a view. `apply_view` checks the requirements, applies the updates in
order, and then checks the commit as a whole: no SQL dialect is lost unless the view allows it, the version
log has one more entry if the current version changed, and old versions expire.

The input document is never changed; the result shares its unchanged parts, and unknown fields are kept. If
nothing has changed in effect, the same object is returned. A malformed request raises `Invalid`, a violation
of the rules of views `IllegalArgument`, a failed requirement `RequirementFailed`.
"""

from __future__ import annotations

import re

from catalog.errors import IllegalArgument, Invalid, RequirementFailed
from catalog.metadata import validation
from catalog.metadata.document import Metadata, with_id
from catalog.metadata.validation import REQUIREMENTS_MAX
from catalog.metadata.view_updates import (
    FORMAT_VERSION,
    LAST_ADDED,
    UPDATES,
    ViewDraft,
    actions,
    add_schema,
    add_view_version,
    checked_version,
    dialects,
    set_current_view_version,
)

HISTORY_SIZE = "version.history.num-entries"
HISTORY_SIZE_DEFAULT = 10
DROP_DIALECT_ALLOWED = "replace.drop-dialect.allowed"

_INTEGER = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII).fullmatch


def new_view(request: Metadata, *, location: str, view_uuid: str, now_ms: int) -> Metadata:
    """The first document of a view, from a CreateViewRequest. The server sets the id and the time of its
    version.
    """
    version = checked_version(validation.mapping(request, "view-version"))
    properties = {} if request.get("properties") is None else validation.string_map(request, "properties")
    draft = ViewDraft(_empty(), now_ms)
    draft.document.update({"view-uuid": view_uuid, "location": location})
    draft.document["properties"] = dict(properties)
    add_schema(draft, {"schema": validation.mapping(request, "schema")})
    add_view_version(draft, {"view-version": version | {"schema-id": LAST_ADDED, "timestamp-ms": now_ms}})
    set_current_view_version(draft, {"view-version-id": LAST_ADDED})
    return _finished(draft, None)


def apply_view(
    metadata: Metadata | None,
    requirements: list[Metadata] | None,
    updates: list[Metadata],
    *,
    now_ms: int,
) -> Metadata:
    """The document after a commit; `metadata` itself if nothing has changed in effect. None: no view yet."""
    check_view_requirements(metadata, requirements)
    draft = ViewDraft(dict(metadata) if metadata is not None else _empty(), now_ms)
    for update in actions(updates):
        UPDATES[update["action"]](draft, update)
    if metadata is not None and draft.document == metadata:
        return metadata
    return _finished(draft, metadata)


def check_view_requirements(metadata: Metadata | None, requirements: list[Metadata] | None) -> None:
    """Raise RequirementFailed unless all hold. Views have one requirement: assert-view-uuid."""
    if requirements is None:
        return
    checked = validation.objects({"requirements": requirements}, "requirements")
    if len(checked) > REQUIREMENTS_MAX:
        raise Invalid(f"requirements must be at most {REQUIREMENTS_MAX}, not {len(checked)}")
    for position, requirement in enumerate(checked):
        kind = validation.text(requirement, "type", f"requirements[{position}]")
        if kind != "assert-view-uuid":
            raise Invalid(f"Unknown view requirement: {validation.preview(kind)}")
        required = validation.text(requirement, "uuid", kind)
        if metadata is None:
            raise RequirementFailed("Requirement failed: view does not exist")
        actual = metadata["view-uuid"]
        if required.lower() != actual.lower():
            raise RequirementFailed(
                f"Requirement failed: view UUID does not match: expected {actual} != {required}"
            )


def is_view_replay(
    metadata: Metadata | None, requirements: list[Metadata] | None, updates: list[Metadata]
) -> bool:
    """True if this commit has landed before. Applying it again would undo later changes.

    A version is recognized by its content and its client's time. A commit without a new version needs no
    check: setting the same properties or location twice changes nothing.
    """
    if metadata is None:
        return False
    try:
        check_view_requirements(metadata, requirements)
        return _has_landed(ViewDraft(dict(metadata), now_ms=0), actions(updates))
    except (Invalid, RequirementFailed):
        # `apply_view` refuses it with the reason.
        return False


def _has_landed(draft: ViewDraft, updates: list[Metadata]) -> bool:
    versions_found = 0
    for update in updates:
        if update["action"] == "add-schema":
            add_schema(draft, update)
        elif update["action"] == "add-view-version":
            add_view_version(draft, update)
            known = draft.version(draft.versions_added.last)
            if known is None or known["timestamp-ms"] != update["view-version"]["timestamp-ms"]:
                return False
            versions_found += 1
    return versions_found > 0 and not draft.version_ids_new


# --- checks of the commit as a whole ------------------------------------------------------------------------


def _empty() -> Metadata:
    return {
        "view-uuid": None,
        "format-version": FORMAT_VERSION,
        "location": None,
        "schemas": [],
        "current-version-id": None,
        "versions": [],
        "version-log": [],
        "properties": {},
    }


def _finished(draft: ViewDraft, base: Metadata | None) -> Metadata:
    """The result of the commit: checked, logged and with expired versions removed."""
    document = draft.document
    for key in ("view-uuid", "location"):
        if document[key] is None:
            raise IllegalArgument(f"Invalid {key}: null")
    if not document["versions"]:
        raise IllegalArgument("Invalid view: no versions were added")
    current = draft.version(document["current-version-id"])
    if current is None:
        raise IllegalArgument("Invalid view: no current version was set")
    if base is not None:
        _check_no_dialect_is_lost(base, current, document.get("properties", {}))
    _log(draft, base, current)
    _expire(draft)
    return document


def _check_no_dialect_is_lost(base: Metadata, current: Metadata, properties: dict[str, str]) -> None:
    if properties.get(DROP_DIALECT_ALLOWED, "false").lower() == "true":
        return
    previous = with_id(base["versions"], "version-id", base["current-version-id"])
    if previous is None or dialects(previous) <= dialects(current):
        return
    raise IllegalArgument(
        f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false):\n"
        f"Previous dialects: [{', '.join(sorted(dialects(previous)))}]\n"
        f"New dialects: [{', '.join(sorted(dialects(current)))}]"
    )


def _log(draft: ViewDraft, base: Metadata | None, current: Metadata) -> None:
    """Add one log entry if the commit changes the current version, however often it was set in between."""
    current_id = current["version-id"]
    if base is not None and base["current-version-id"] == current_id:
        return
    # A version that becomes current again was created at another time.
    time_ms = current["timestamp-ms"] if current_id in draft.version_ids_new else draft.now_ms
    entry = {"timestamp-ms": time_ms, "version-id": current_id}
    draft.document["version-log"] = [*draft.document["version-log"], entry]


def _expire(draft: ViewDraft) -> None:
    """Keep the newest versions, the current one and those of this commit.

    The version with the highest id always stays, so that its id is not used for another one.
    """
    history_size = _history_size(draft.document.get("properties", {}))
    kept = {*draft.version_ids_new, draft.document["current-version-id"]}
    if len(draft.versions) <= max(history_size, len(kept)):
        return
    newest_first = sorted((version["version-id"] for version in draft.versions), reverse=True)
    kept.add(newest_first[0])
    for version_id in newest_first:
        if len(kept) >= history_size:
            break
        kept.add(version_id)
    draft.document["versions"] = [version for version in draft.versions if version["version-id"] in kept]
    log: list[Metadata] = []
    for entry in draft.document["version-log"]:
        # Log entries up to an expired version would refer to nothing.
        log = [*log, entry] if entry["version-id"] in kept else []
    draft.document["version-log"] = log


def _history_size(properties: dict[str, str]) -> int:
    value = properties.get(HISTORY_SIZE)
    if value is None:
        return HISTORY_SIZE_DEFAULT
    if _INTEGER(value) is None:
        raise IllegalArgument(f"{HISTORY_SIZE} must be an integer but was {value}")
    if int(value) <= 0:
        raise IllegalArgument(f"{HISTORY_SIZE} must be positive but was {value}")
    return int(value)
