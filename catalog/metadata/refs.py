"""Branches and tags: the updates set-snapshot-ref and remove-snapshot-ref."""

from __future__ import annotations

from catalog.errors import Invalid
from catalog.metadata.document import MAIN, current_snapshot_id, set_current_snapshot_id
from catalog.metadata.draft import Draft
from catalog.metadata.limits import INT_MAX, LONG_MAX
from catalog.metadata.shapes import JsonObject, integer, long, shown, text, without_nulls
from catalog.metadata.snapshot_log import log_current_snapshot

_TYPES = ("branch", "tag")
_RETENTION = {"min-snapshots-to-keep": INT_MAX, "max-snapshot-age-ms": LONG_MAX, "max-ref-age-ms": LONG_MAX}
_BRANCH_ONLY = ("min-snapshots-to-keep", "max-snapshot-age-ms")


def set_snapshot_ref(draft: Draft, update: JsonObject) -> None:
    name = text(update, "ref-name")
    ref = _read_ref(update)
    if (draft.document.get("refs") or {}).get(name) == ref:
        return
    id_ = ref["snapshot-id"]
    if id_ not in draft.snapshots_added and id_ not in draft.snapshot_ids:
        raise Invalid(f"Cannot set {name} to unknown snapshot: {id_}")
    if name == MAIN:
        if ref["type"] != "branch":
            raise Invalid(f"Cannot set {MAIN} to a tag, it must be a branch")
        _set_current_snapshot(draft, id_)
    draft.map_of("refs")[name] = ref


def _read_ref(update: JsonObject) -> JsonObject:
    """The reference as it is stored: the update without its own two keys. Other keys are the reference's."""
    long(update, "snapshot-id")
    type_ = text(update, "type").lower()
    if type_ not in _TYPES:
        raise Invalid(f"Invalid snapshot ref type: {shown(update['type'])}")
    update = without_nulls(update, *_RETENTION)
    for key, high in _RETENTION.items():
        if key in update:
            integer(update, key, low=1, high=high)
            if type_ == "tag" and key in _BRANCH_ONLY:
                raise Invalid(f"Tags do not support setting {key}")
    return {key: value for key, value in update.items() if key not in ("action", "ref-name")} | {
        "type": type_
    }


def _set_current_snapshot(draft: Draft, id_: int) -> None:
    if current_snapshot_id(draft.document) == id_:
        return
    set_current_snapshot_id(draft.document, id_)
    log_current_snapshot(draft, id_)


def remove_snapshot_ref(draft: Draft, update: JsonObject) -> None:
    """Removing a reference that is not there is no error."""
    _remove(draft, text(update, "ref-name"))


def drop_dangling_refs(draft: Draft) -> None:
    """After snapshots were removed."""
    refs: dict[str, JsonObject] = draft.document.get("refs") or {}
    ids = draft.snapshot_ids
    for name in [name for name, ref in refs.items() if ref["snapshot-id"] not in ids]:
        _remove(draft, name)


def _remove(draft: Draft, name: str) -> None:
    if name == MAIN:
        set_current_snapshot_id(draft.document, None)
    if name in (draft.document.get("refs") or {}):
        del draft.map_of("refs")[name]
