"""Removes secrets from log lines: the configured ones, and everything that looks like a credential."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MASK = "****"

_CREDENTIAL_FIELD = (
    r"(?:password|passwd|client[-_.]?secret|secret[-_.]?access[-_.]?key|session[-_.]?token|access[-_.]?token"
    r"|authorization)"
)
# What looks like a credential in any text: a bearer token, the password of a URL, and the value after a name
# such as `password` in JSON, in a form, in a header or in a message.
_CREDENTIAL = re.compile(
    r"(?i)(\b(?:bearer|basic)\s+)[^\s\"',;]+"
    r"|(://[^:/@\s]*:)[^@/\s]+(?=@)"
    rf"|({_CREDENTIAL_FIELD}[\"']?\s*[:=]\s*[\"']?(?!bearer|basic))[^\s\"',;&}}]+"
)
_CREDENTIAL_NAME = re.compile(rf"(?i)\b(?:.*[-_.])?{_CREDENTIAL_FIELD}$")


class Redactor:
    """Removes secrets from texts and from containers of texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted((re.escape(text) for text in secrets if len(text) >= 4), key=len, reverse=True)
        self._known = re.compile("|".join(known)) if known else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return _CREDENTIAL.sub(lambda found: f"{found[1] or found[2] or found[3]}{MASK}", text)

    def value(self, value: Any) -> Any:
        """The same for a field of a log line. A value that is not plain becomes text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {
                str(name): MASK if _CREDENTIAL_NAME.match(str(name)) else self.value(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(inner) for inner in value]
        return self(value if isinstance(value, str) else str(value))
