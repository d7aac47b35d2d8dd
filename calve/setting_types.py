"""The types of settings, with the checks that pydantic runs on them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

from pydantic import AfterValidator, Field

from calve.settings_sources import as_text


def not_blank(text: str) -> str:
    if not text.strip() or any(ord(letter) < 32 for letter in text):
        raise ValueError("must not be empty or hold control characters")
    return text


def web_address(text: str) -> str:
    if not re.match(r"https?://[^/\s]", text):
        raise ValueError(f"must begin with http:// or https://, not {as_text(text)}")
    return text.rstrip("/")


def database_address(text: str) -> str:
    if re.match(r"postgres(ql)?(\+psycopg)?://|sqlite:///(?!:memory:)[^?]", text):
        return text
    raise ValueError(f"must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME, not {as_text(text)}")


def storage_root(text: str) -> str:
    if not re.match(r"(file:///|s3://)[^/]", text):
        raise ValueError(f"must be file:///FOLDER or s3://BUCKET/PREFIX, not {text}")
    return text


def separator(text: str) -> str:
    character = unquote(text)
    if len(character) != 1 or character.isalnum() or character in "/%?#":
        raise ValueError(
            "must stand for one character that is no letter, no digit and not / % ? #, "
            f"such as %1F, not {text}"
        )
    return text


def absolute(path: Path) -> Path:
    # Without "..", because the home becomes part of locations, which allow none.
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100


Text = Annotated[str, AfterValidator(not_blank)]
WebAddress = Annotated[str, AfterValidator(not_blank), AfterValidator(web_address)]
DatabaseAddress = Annotated[str, AfterValidator(not_blank), AfterValidator(database_address)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]
