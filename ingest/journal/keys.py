"""How names become keys in SQL, and events become marks.

A table is kept under its levels joined with 0x1F; a reject that nobody could assign to a table under "".
Sources and transactions are named by producers, with any text of any length: NUL, which PostgreSQL cannot
hold, is replaced, and a long name ends in a digest of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

import orjson

from catalog.errors import Invalid
from ingest.change import TableName

SEPARATOR = "\x1f"
TABLE_KEY_BYTES_MAX = 2_000  # PostgreSQL refuses longer rows in an index
NAME_CHARACTERS_MAX = 200
MARK_BYTES = 15  # 120 bits; with its header a `bytes` of this length fills 48 bytes exactly


@lru_cache(maxsize=4096)
def table_key(table: TableName | None) -> str:
    """Invalid if a level cannot stand in a key."""
    if table is None:
        return ""
    for level in table:
        if not level or SEPARATOR in level or "\0" in level:
            raise Invalid(f"Invalid table name: {table!r}")
    key = SEPARATOR.join(table)
    try:
        length = len(key.encode())
    except UnicodeEncodeError as error:
        raise Invalid(f"Invalid table name: {table!r}") from error
    if length > TABLE_KEY_BYTES_MAX:
        raise Invalid(f"Invalid table name: longer than {TABLE_KEY_BYTES_MAX} bytes")
    return key


@lru_cache(maxsize=4096)
def table_name(key: str) -> TableName:
    return tuple(key.split(SEPARATOR)) if key else ()


@lru_cache(maxsize=4096)
def name_key(name: str) -> str:
    """A producer's name for something, so that both databases hold it."""
    if name.isascii() and "\0" not in name and len(name) <= NAME_CHARACTERS_MAX:
        return name
    raw = name.encode("utf-8", "surrogatepass")
    plain = raw.decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}")
    if plain == name and len(name) <= NAME_CHARACTERS_MAX:
        return name
    return f"{plain[: NAME_CHARACTERS_MAX - 33]}#{blake2b(raw, digest_size=16).hexdigest()}"


def marks_of(warehouse: str, source: str, identities: Iterable[str]) -> list[bytes]:
    """The digest of each identity within its source."""
    prefix = orjson.dumps([warehouse, name_key(source)])
    return [
        blake2b(prefix + identity.encode("utf-8", "surrogatepass"), digest_size=MARK_BYTES).digest()
        for identity in identities
    ]
