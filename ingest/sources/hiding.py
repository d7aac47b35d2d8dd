"""Drop or hash columns, so that their values do not reach the journal. Pure.

A hash is HMAC-SHA256 of the value's text with a secret salt, as 64 hexadecimal digits. Equal values have
equal hashes, so a hashed column can be joined and can be a key. Null stays null.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import replace
from typing import Any

from ingest.change import Change, Declared, Refused, Reject, Row, original_of
from ingest.formats.json_body import NotJson, decode
from ingest.sources.rules import ROW_ID, TableRules

HIDDEN = "***"
UNREADABLE = b'"***"'
TEXT_CHARS_MIN = 3  # shorter texts occur in almost every sentence


def hashed(value: Any, salt: bytes) -> str | None:
    """Return the hash of a value; None for null."""
    return None if value is None else hmac.digest(salt, _bytes(value), "sha256").hex()


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


def hide(change: Change, rules: TableRules, salt: bytes) -> Change:
    """Return the change without the dropped columns and with hashes for the hashed ones. Refused if that is
    not possible.
    """
    dropped_key = [column for column in change.key or () if column in rules.dropped]
    if dropped_key:
        raise Refused(
            "dropped-key",
            f"the rules of the source drop the key column {dropped_key[0]}: hash the column instead",
        )
    values = _values(change, rules)
    _require_no_value_in_row_id(change, rules, values)
    return replace(
        change,
        before=_row(change.before, rules, salt),
        after=_row(change.after, rules, salt),
        row_id=_row_id(change, rules, salt),
        identity=_identity(change.identity, values, salt),
        declared=_declared(change.declared, rules),
    )


def _values(change: Change, rules: TableRules) -> set[str]:
    """Return the texts that must not be stored."""
    rows = [row for row in (change.before, change.after) if row is not None]
    found = (row[column] for row in rows for column in rules.hidden if column in row)
    return {_bytes(value).decode("utf-8", "replace") for value in found if value is not None}


def _require_no_value_in_row_id(change: Change, rules: TableRules, values: set[str]) -> None:
    row_id = change.row_id
    if row_id is None or ROW_ID in rules.hidden or row_id not in values:
        return
    for row in (change.before, change.after):
        for column, value in (row or {}).items():
            if column not in rules.hidden and str(value) == row_id:
                return  # the row is identified by a column that is not hidden
    raise Refused(
        "hidden-row-id",
        f"`{ROW_ID}` has the value of a column that the rules of the source hide: "
        f"add {ROW_ID} to hash-columns, or name rows by another column",
    )


def _row(row: Row | None, rules: TableRules, salt: bytes) -> Row | None:
    if row is None or rules.hidden.isdisjoint(row):
        return row
    return {
        column: hashed(value, salt) if column in rules.hashed else value
        for column, value in row.items()
        if column not in rules.dropped
    }


def _row_id(change: Change, rules: TableRules, salt: bytes) -> str | None:
    if ROW_ID in rules.dropped:
        return None
    return hashed(change.row_id, salt) if ROW_ID in rules.hashed else change.row_id


def _identity(identity: str, values: set[str], salt: bytes) -> str:
    """Hash an identity that contains hidden values. A repeat of the event has the same hash."""
    shows_value = any(value and value in identity for value in values)
    return hashed(identity, salt) or "" if shows_value else identity


def _declared(declared: Declared | None, rules: TableRules) -> Declared | None:
    if declared is None or rules.hidden.isdisjoint(declared.columns):
        return declared
    columns = {
        column: "string" if column in rules.hashed else type_
        for column, type_ in declared.columns.items()
        if column not in rules.dropped
    }
    encodings = {name: value for name, value in declared.encodings.items() if name not in rules.hidden}
    defaults = {name: value for name, value in declared.defaults.items() if name not in rules.hidden}
    return Declared(columns, encodings, declared.required - rules.dropped, defaults)


def hide_content(reject: Reject, salt: bytes) -> Reject:
    """Keep only the names of the fields of an event that could not be parsed: any field may have a hidden
    value.
    """
    texts: set[str] = set()
    try:
        outline = original_of(_outline(decode(reject.original), texts))
        shows_value = any(text in reject.reason for text in texts)
    except (NotJson, RecursionError):
        outline, shows_value = UNREADABLE, True
    hidden = f"the event cannot be used ({reject.code}); its source hides columns, so its content is not kept"
    return replace(
        reject,
        original=outline,
        reason=hidden if shows_value else reject.reason,
        identity=hashed(reject.identity, salt) or "" if reject.identity else "",
    )


def _outline(value: Any, texts: set[str]) -> Any:
    """Return the value with `***` for each text and number, which are added to `texts`."""
    if isinstance(value, dict):
        return {name: _outline(item, texts) for name, item in value.items()}
    if isinstance(value, list):
        return [_outline(item, texts) for item in value]
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    if len(text) >= TEXT_CHARS_MIN:
        texts.add(text)
    return HIDDEN
