"""The updates add-encryption-key and remove-encryption-key (format v3)."""

from __future__ import annotations

import base64
import binascii

from catalog.errors import Invalid
from catalog.metadata.draft import Draft
from catalog.metadata.shapes import JsonObject, mapping, string_map, text, without_nulls

KEYS = "encryption-keys"


def add_encryption_key(draft: Draft, update: JsonObject) -> None:
    """A key that is there already stays as it is."""
    at = "encryption-key"
    if draft.format_version < 3:
        raise Invalid("encryption keys are not supported until v3")
    key = without_nulls(mapping(update, at), "encrypted-by-id", "properties")
    id_ = text(key, "key-id", at)
    try:
        base64.b64decode(text(key, "encrypted-key-metadata", at), validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"{at}.encrypted-key-metadata must be base64") from None
    if "encrypted-by-id" in key:
        text(key, "encrypted-by-id", at)
    if "properties" in key:
        string_map(key, "properties", at)
    known = draft.document.get(KEYS) or []
    if all(entry["key-id"] != id_ for entry in known):
        draft.list_of(KEYS).append(key)


def remove_encryption_key(draft: Draft, update: JsonObject) -> None:
    id_ = text(update, "key-id")
    known = draft.document.get(KEYS) or []
    kept = [entry for entry in known if entry["key-id"] != id_]
    if len(kept) == len(known):
        return
    if kept:
        draft.put_list(KEYS, kept)
    else:
        draft.drop(KEYS)
