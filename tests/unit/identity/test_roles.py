"""Roles: their order, and which one a caller has where."""

from __future__ import annotations

import dataclasses

import pytest

from catalog.errors import Invalid
from catalog.identity.oauth import Client, ClientCredentials, OAuthError
from catalog.identity.open import OpenIdentity
from catalog.models import Caller, Role


def test_roles_are_ordered() -> None:
    assert Role.READER < Role.WRITER < Role.ADMIN


@pytest.mark.parametrize("role", list(Role))
def test_a_role_is_its_word(role: Role) -> None:
    assert Role.parse(str(role)) is role
    assert Role.known(str(role)) is role


@pytest.mark.parametrize("word", ["", "ADMIN", "owner", "3", "admin "])
def test_other_words_are_no_role(word: str) -> None:
    assert Role.known(word) is None
    with pytest.raises(Invalid, match="reader, writer, admin"):
        Role.parse(word)


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ({}, None),
        ({"other": Role.ADMIN}, None),
        ({"main": Role.READER}, Role.READER),
        ({"*": Role.WRITER}, Role.WRITER),
        ({"main": Role.READER, "*": Role.WRITER}, Role.WRITER),
        ({"main": Role.ADMIN, "*": Role.READER}, Role.ADMIN),
        ({"MAIN": Role.ADMIN}, None),
    ],
)
def test_the_higher_of_own_and_every(roles: dict[str, Role], expected: Role | None) -> None:
    assert Caller("somebody", roles).role("main") is expected


def test_a_caller_is_frozen() -> None:
    caller = Caller("somebody", {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        caller.name = "another"  # type: ignore[misc]


@pytest.mark.parametrize("authorization", [None, "", "Bearer x", "Basic x"])
def test_open_identity_knows_one_caller(authorization: str | None) -> None:
    caller = OpenIdentity().identify(authorization)
    assert (caller.name, caller.role("anything")) == ("anonymous", Role.ADMIN)


def test_open_identity_issues_no_tokens() -> None:
    with pytest.raises(OAuthError) as refused:
        OpenIdentity().issue(ClientCredentials(Client("admin", "s"), "catalog"))
    assert (refused.value.status, refused.value.error) == (400, "unauthorized_client")
