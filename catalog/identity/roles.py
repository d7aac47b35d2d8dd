"""Callers and their roles. Pure: every layer may use it.

A role is held in one warehouse or, as "*", in all of them. There is no role for "nothing": where a caller has
no role, the warehouse has to look as if it did not exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from catalog.errors import Invalid

EVERY_WAREHOUSE = "*"

_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}").fullmatch


def is_principal_name(text: str) -> bool:
    return _PRINCIPAL(text) is not None


class Role(IntEnum):
    """Each role may do what the lower ones may: `role >= Role.WRITER` reads as it is meant."""

    READER = 1
    WRITER = 2
    ADMIN = 3

    def __str__(self) -> str:
        return self.name.lower()

    @staticmethod
    def parse(text: str) -> Role:
        role = _BY_WORD.get(text)
        if role is None:
            raise Invalid(f"Invalid role: use one of {', '.join(_BY_WORD)}")
        return role

    @staticmethod
    def known(text: str) -> Role | None:
        """The role of a stored word. One that this version does not know gives nothing: default deny."""
        return _BY_WORD.get(text)


_BY_WORD = {str(role): role for role in Role}


@dataclass(frozen=True, slots=True)
class Caller:
    """An identified caller: the name that history and idempotency keys are kept under, and its roles."""

    name: str
    roles: Mapping[str, Role]

    def role(self, warehouse: str) -> Role | None:
        """The higher one of the caller's roles there and in "*"; None: not there for this caller."""
        here, everywhere = self.roles.get(warehouse), self.roles.get(EVERY_WAREHOUSE)
        if here is None or everywhere is None:
            return here or everywhere
        return max(here, everywhere)
