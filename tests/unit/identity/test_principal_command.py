"""`calve principal`: what each action prints, and its refusals in one sentence with their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from calve.cli import main
from catalog.identity.oauth import Client, ClientCredentials, OAuthError
from catalog.identity.tokens import TokenIdentity
from catalog.models import Caller, Role
from catalog.store import migrations, schema
from catalog.store.database import Database

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database without principals; where it is a file, neither the file nor its folder exists yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new/lake/catalog.db"
    address: str = request.getfixturevalue("postgres_url")
    emptied = Database(address)
    migrations.migrate(emptied)
    with emptied.engine.begin() as connection:
        for table in (schema.tokens, schema.grants, schema.principals):
            connection.execute(table.delete())
    emptied.close()
    return address


@pytest.fixture
def principal(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["principal", *words, "--database", url])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def caller(url: str, name: str, secret: str) -> Caller:
    database = Database(url)
    try:
        identity = TokenIdentity(database, 60)
        token = identity.issue(ClientCredentials(Client(name, secret), "catalog"))["access_token"]
        return identity.identify(f"Bearer {token}")
    finally:
        database.close()


def test_the_first_administrator(principal: Command, url: str) -> None:
    code, out, err = principal("create", "admin", "--role", "admin", "--warehouse", "all")
    assert code == 0
    assert out.count("\n") == 1
    secret = out.strip()
    assert secret not in err
    assert "/v1/oauth/tokens" in err
    assert "As admin in every warehouse it may do what a writer may, and manage the warehouse." in err
    assert caller(url, "admin", secret).role("any") is Role.ADMIN


def test_a_life(principal: Command, url: str) -> None:
    _, out, err = principal("create", "etl")
    old = out.strip()
    assert "no role yet" in err
    granted = principal("grant", "etl", "--role", "writer")[1]
    assert granted.startswith("etl is writer in the warehouse main: it may do what a reader may, create")
    assert caller(url, "etl", old).roles == {"main": Role.WRITER}
    assert (
        "no warehouse sales yet" in principal("grant", "etl", "--role", "reader", "--warehouse", "sales")[2]
    )
    assert principal("list")[1] == "etl\tenabled\twriter in main, reader in sales\n"
    assert json.loads(principal("list", "--format", "json")[1]) == [
        {"name": "etl", "state": "enabled", "roles": {"main": "writer", "sales": "reader"}}
    ]
    assert principal("revoke", "etl", "--warehouse", "main")[1] == (
        "etl has no role in the warehouse main any more. Other roles: reader in sales.\n"
    )
    new = principal("rotate", "etl")[1].strip()
    with pytest.raises(OAuthError):
        caller(url, "etl", old)
    assert caller(url, "etl", new).roles == {"sales": Role.READER}
    assert principal("disable", "etl")[0] == 0
    assert principal("list")[1] == "etl\tdisabled\treader in sales\n"
    with pytest.raises(OAuthError):
        caller(url, "etl", new)
    assert principal("enable", "etl")[0] == 0
    assert caller(url, "etl", new).name == "etl"
    assert principal("delete", "etl")[0] == 0
    assert principal("list")[1] == ""


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("create", "admin"), 1, "Principal already exists: admin"),
        (("create", "a b"), 1, "Invalid principal name"),
        (("create", "etl", "--warehouse", "main"), 2, "--warehouse needs --role"),
        (("create", "etl", "--role", "owner"), 2, "'owner' is not one of 'reader', 'writer', 'admin'"),
        (("create", "etl", "--role", "reader", "--warehouse", "a/b"), 1, "Invalid warehouse name"),
        (("grant", "nobody", "--role", "reader"), 1, "Principal does not exist: nobody"),
        (("revoke", "admin", "--warehouse", "main"), 1, "has no role of its own in main"),
        (("revoke", "admin"), 2, "Missing option '--warehouse'"),
        (("delete", "nobody"), 1, "Principal does not exist: nobody"),
        (("promote", "admin"), 2, "No such command 'promote'"),
    ],
)
def test_refusals(principal: Command, words: tuple[str, ...], code: int, sentence: str) -> None:
    assert principal("create", "admin")[0] == 0
    ended, out, err = principal(*words)
    assert (ended, out) == (code, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [("list",), ("rotate", "admin"), ("delete", "admin")])
def test_only_create_begins_a_lake(
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["principal", *words, "--home", "mistyped"]) == 1
    assert "there is no catalog at" in capsys.readouterr().err
    assert not (tmp_path / "mistyped").exists()
    assert main(["principal", "create", "admin", "--home", "mistyped"]) == 0


def test_a_database_that_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["principal", "list", "--database", "postgresql://me:canary-4711@127.0.0.1:1/none"]) == 1
    err = capsys.readouterr().err
    assert "Cannot open the database" in err
    assert "canary-4711" not in err
