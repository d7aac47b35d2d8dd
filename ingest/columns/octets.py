"""Bytes in JSON: base64 (also URL-safe), hex, bits, uuids."""

from __future__ import annotations

import binascii
import re
import uuid
from typing import Any

from ingest.columns.unfit import Misfit

_URL_SAFE = str.maketrans("-_", "+/")
_UUID = re.compile(r"\{?[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}\}?")


def base64_bytes(text: str, *, padded: bool = False) -> bytes:
    """The bytes; URL-safe letters are read too. `padded` asks for the padding that many leave out."""
    text = text.translate(_URL_SAFE)
    if not padded:
        text += "=" * (-len(text) % 4)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as wrong:
        raise Misfit("not base64") from wrong


def hex_bytes(text: str) -> bytes:
    try:
        return binascii.unhexlify(text.removeprefix("\\x").removeprefix("0x"))
    except ValueError as wrong:
        raise Misfit("not hexadecimal") from wrong


def bits(text: str) -> int:
    """The number that a bit string is. It travels with its lowest byte first."""
    return int.from_bytes(base64_bytes(text), "little")


def binary(value: Any, encoding: str | None, length: int | None) -> bytes:
    """For `binary`, and `fixed` with its length. Bits are stored highest byte first, as they read."""
    if type(value) is dict and type(value.get("wkb")) is str:
        value = value["wkb"]  # a point or geometry: the rest of the struct is in it
    if type(value) is not str:
        raise Misfit("not bytes as text")
    if encoding == "hex" or value.startswith("\\x"):
        data = hex_bytes(value)
    elif encoding == "bits-base64":
        data = base64_bytes(value)[::-1]
    else:
        data = base64_bytes(value)
    if length is not None and len(data) != length:
        raise Misfit(f"{len(data)} bytes, not {length}")
    return data


def uuid_text(value: Any, encoding: str | None) -> str:
    """For `uuid`, in its canonical spelling."""
    if type(value) is str and _UUID.fullmatch(value):
        return str(uuid.UUID(value))
    if type(value) is str and encoding == "base64" and len(data := base64_bytes(value)) == 16:
        return str(uuid.UUID(bytes=data))
    raise Misfit("not a uuid")
