"""JSON text of a value, for columns that hold JSON and for the row as it was before."""

from __future__ import annotations

import json
from typing import Any

import orjson

from ingest.columns.unfit import Misfit


def json_text(value: Any) -> str:
    """Compact JSON. Numbers keep all their digits. `Misfit` if it is not Unicode, or far too deep."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # an integer beyond 64 bits, a structure deeper than 254, a lone surrogate
        return _slower(value)


def _slower(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        text.encode()
    except UnicodeEncodeError as broken:
        raise Misfit("its text is not valid Unicode") from broken
    except (RecursionError, ValueError) as broken:
        raise Misfit("it is too deep or too large to be written as JSON") from broken
    return text
