"""Bearer tokens on both databases: issue, identify, renew, expire, revoke; and 40 forgeries."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from catalog.errors import CommitStateUnknown, Conflict, NotAuthorized, NotFound, Unavailable
from catalog.identity import secrets
from catalog.identity.oauth import ACCESS_TOKEN_TYPE, Client, ClientCredentials, OAuthError, TokenExchange
from catalog.identity.principals import EXPIRED_DELETED_MAX, Holder, PrincipalStore, Records
from catalog.identity.tokens import REFUSAL, TokenIdentity
from catalog.models import Role
from catalog.store import schema
from catalog.store.database import Database
from tests.unit.identity.clock import Clock
from tests.unit.identity.conftest import LIFETIME_S


def issued(identity: TokenIdentity, name: str, secret: str) -> str:
    return str(identity.issue(ClientCredentials(Client(name, secret), "catalog"))["access_token"])


def refused(identity: TokenIdentity, authorization: str | None) -> None:
    with pytest.raises(NotAuthorized) as answer:
        identity.identify(authorization)
    assert (answer.value.status, answer.value.message) == (401, REFUSAL)
    # Nothing of how it failed may hang on the error either: a log would print it.
    assert answer.value.__cause__ is None
    assert answer.value.__context__ is None


def oauth_refusal(identity: TokenIdentity, grant: ClientCredentials | TokenExchange) -> tuple[int, str]:
    with pytest.raises(OAuthError) as answer:
        identity.issue(grant)
    return answer.value.status, answer.value.error


def stored_tokens(database: Database) -> int:
    with database.engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(schema.tokens)).scalar_one()


# -- issue and identify --------------------------------------------------------------------------------------


def test_the_answer(store: PrincipalStore, identity: TokenIdentity) -> None:
    secret = store.create("etl", {})
    answer = identity.issue(ClientCredentials(Client("etl", secret), "PRINCIPAL_ROLE:ALL"))
    token = answer.pop("access_token")
    assert answer == {
        "token_type": "bearer",
        "expires_in": LIFETIME_S,
        "issued_token_type": ACCESS_TOKEN_TYPE,
        "scope": "PRINCIPAL_ROLE:ALL",
    }
    assert secrets.token_hash(token) is not None


@pytest.mark.parametrize(
    "roles", [{}, {"main": Role.READER}, {"main": Role.READER, "other": Role.ADMIN, "*": Role.WRITER}]
)
def test_the_caller(store: PrincipalStore, identity: TokenIdentity, roles: dict[str, Role]) -> None:
    secret = store.create("etl", roles)
    store.create("other", {"main": Role.ADMIN})
    caller = identity.identify(f"Bearer {issued(identity, 'etl', secret)}")
    assert (caller.name, dict(caller.roles)) == ("etl", roles)


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer  {}"])
def test_the_scheme_has_no_case(store: PrincipalStore, identity: TokenIdentity, form: str) -> None:
    token = issued(identity, "etl", store.create("etl", {}))
    assert identity.identify(form.format(token)).name == "etl"


def test_a_token_works_on_every_server(
    store: PrincipalStore, identity: TokenIdentity, database: Database, clock: Clock
) -> None:
    token = issued(identity, "etl", store.create("etl", {}))
    another = Database(database.url.render_as_string(hide_password=False))
    try:
        assert TokenIdentity(another, LIFETIME_S, now_ms=clock).identify(f"Bearer {token}").name == "etl"
    finally:
        another.close()


def test_only_the_hash_is_stored(store: PrincipalStore, identity: TokenIdentity, database: Database) -> None:
    token = issued(identity, "etl", store.create("etl", {}))
    with database.engine.connect() as connection:
        row = connection.execute(sa.select(schema.tokens)).one()
    assert row.token_hash == secrets.token_hash(token)
    assert token not in str(tuple(row))


def test_one_query_for_a_request_and_none_for_nonsense(
    store: PrincipalStore, identity: TokenIdentity, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = issued(identity, "etl", store.create("etl", {"a": Role.READER, "b": Role.READER}))
    queries: list[sa.Executable] = []
    fetch_all = database.fetch_all

    def counted(statement: sa.Executable, params: Mapping[str, Any]) -> Sequence[Any]:
        queries.append(statement)
        return fetch_all(statement, params)

    monkeypatch.setattr(database, "fetch_all", counted)
    identity.identify(f"Bearer {token}")
    assert len(queries) == 1
    for nonsense in (None, "", "Bearer x", "Basic " + "x" * 49, "Bearer " + "x" * 1024 * 1024):
        refused(identity, nonsense)
    assert len(queries) == 1


def test_a_lifetime_is_positive(database: Database) -> None:
    with pytest.raises(ValueError, match="token_lifetime_s"):
        TokenIdentity(database, 0)


# -- refusals ------------------------------------------------------------------------------------------------


def forgeries(token: str, secret: str, stored: str) -> list[str | None]:
    body = token.removeprefix("calve_")
    other_last = "A" if token[-1] != "A" else "B"
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    claims = base64.urlsafe_b64encode(b'{"sub":"admin","exp":99999999999}').decode().rstrip("=")
    return [
        None,
        "",
        " ",
        token,
        body,
        "Bearer",
        "Bearer ",
        f"Bearer{token}",
        f"Bearer\t{token}",
        f"Token {token}",
        f"Basic {token}",
        f"Negotiate {token}",
        "Basic " + base64.b64encode(f"etl:{secret}".encode()).decode(),
        f"Bearer {body}",
        f"Bearer calve_{body[:-1]}",
        f"Bearer {token[:-1]}{other_last}",
        f"Bearer {token}A",
        f"Bearer {token}=",
        f"Bearer {token}\n",
        f"Bearer {token}\x00",
        f"Bearer {token} {token}",
        f"Bearer {token}, Bearer {token}",
        f"Bearer {token};",
        f'Bearer "{token}"',
        f"Bearer {token.swapcase()}",
        f"Bearer CALVE_{body}",
        f"Bearer calve_{body[::-1]}",
        f"Bearer {secret}",
        f"Bearer {stored}",
        f"Bearer calve_{stored[:43]}",
        f"Bearer {secrets.new_token()}",
        "Bearer calve_" + "A" * 43,
        "Bearer calve_" + "%" * 43,
        "Bearer calve_" + "\uff21" * 43,
        "Bearer calve_" + "\udc80" * 43,
        "Bearer ' OR 1=1 --",
        "Bearer calve_' OR '1'='1",
        "Bearer null",
        f"Bearer {unsigned}.{claims}.",
        "Bearer " + token * 20_000,
    ]


def test_forty_forged_tokens(store: PrincipalStore, identity: TokenIdentity) -> None:
    secret = store.create("etl", {"*": Role.ADMIN})
    token = issued(identity, "etl", secret)
    stored = secrets.token_hash(token)
    assert stored is not None
    forged = forgeries(token, secret, stored)
    assert len(set(forged)) == 40
    for authorization in forged:
        refused(identity, authorization)
    assert identity.identify(f"Bearer {token}").name == "etl"


def test_wrong_clients_look_alike(store: PrincipalStore, identity: TokenIdentity) -> None:
    secret = store.create("etl", {})
    off = store.create("off", {})
    store.disable("off")
    bodies = set()
    for client in (
        Client("etl", secret + "x"),
        Client("nobody", secret),
        Client("off", off),
        Client("ETL", secret),
    ):
        with pytest.raises(OAuthError) as answer:
            identity.issue(ClientCredentials(client, "catalog"))
        bodies.add((answer.value.status, str(answer.value.body)))
    assert len(bodies) == 1
    assert next(iter(bodies))[0] == 401


def test_a_secret_may_hold_colons(store: PrincipalStore, identity: TokenIdentity, database: Database) -> None:
    store.create("etl", {})
    Records(database).set_secret("etl", secrets.secret_hash("a:b:c"))
    assert identity.identify(f"Bearer {issued(identity, 'etl', 'a:b:c')}").name == "etl"


def test_a_server_that_cannot_answer_says_so_in_the_shape_of_oauth(
    store: PrincipalStore, identity: TokenIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client("etl", store.create("etl", {}))
    for error in (Unavailable("the database is away"), CommitStateUnknown("who knows")):

        def fail(*_: object, error: Exception = error, **__: object) -> bool:
            raise error

        monkeypatch.setattr(Records, "add_token", fail)
        with pytest.raises(OAuthError) as answer:
            identity.issue(ClientCredentials(client, "catalog"))
        assert (answer.value.status, answer.value.error) == (503, "temporarily_unavailable")
        assert answer.value.headers["Retry-After"] == "1"


# -- renewal -------------------------------------------------------------------------------------------------


def test_a_live_token_is_exchanged(store: PrincipalStore, identity: TokenIdentity, clock: Clock) -> None:
    first = issued(identity, "etl", store.create("etl", {"main": Role.READER}))
    clock.pass_s(LIFETIME_S - 1)
    second = identity.issue(TokenExchange(first, None, "catalog"))["access_token"]
    assert second != first
    assert identity.identify(f"Bearer {first}").name == "etl"
    clock.pass_s(1)
    refused(identity, f"Bearer {first}")
    assert identity.identify(f"Bearer {second}").role("main") is Role.READER


def test_an_expired_token_is_exchanged_only_with_credentials(
    store: PrincipalStore, identity: TokenIdentity, clock: Clock
) -> None:
    secret = store.create("etl", {})
    token = issued(identity, "etl", secret)
    clock.pass_s(LIFETIME_S)
    assert oauth_refusal(identity, TokenExchange(token, None, "catalog")) == (400, "invalid_grant")
    wrong = Client("etl", "wrong")
    assert oauth_refusal(identity, TokenExchange(token, wrong, "catalog")) == (401, "invalid_client")
    renewed = identity.issue(TokenExchange(token, Client("etl", secret), "catalog"))["access_token"]
    assert identity.identify(f"Bearer {renewed}").name == "etl"


def test_nobody_renews_the_token_of_another(store: PrincipalStore, identity: TokenIdentity) -> None:
    admin = issued(identity, "admin", store.create("admin", {"*": Role.ADMIN}))
    client = Client("etl", store.create("etl", {}))
    assert oauth_refusal(identity, TokenExchange(admin, client, "catalog")) == (400, "invalid_grant")


@pytest.mark.parametrize("subject", ["", "x", "calve_" + "A" * 43, "x" * 10_000, "\x00"])
def test_nonsense_is_not_exchanged(identity: TokenIdentity, subject: str) -> None:
    assert oauth_refusal(identity, TokenExchange(subject, None, "catalog")) == (400, "invalid_grant")


# -- the end of a token --------------------------------------------------------------------------------------


def test_a_token_expires(store: PrincipalStore, identity: TokenIdentity, clock: Clock) -> None:
    token = issued(identity, "etl", store.create("etl", {}))
    clock.pass_s(LIFETIME_S - 1)
    identity.identify(f"Bearer {token}")
    clock.pass_s(1)
    refused(identity, f"Bearer {token}")


def test_disable_is_immediate_and_final_for_tokens(store: PrincipalStore, identity: TokenIdentity) -> None:
    secret = store.create("etl", {"main": Role.READER})
    token = issued(identity, "etl", secret)
    store.disable("etl")
    refused(identity, f"Bearer {token}")
    assert oauth_refusal(identity, TokenExchange(token, None, "catalog")) == (400, "invalid_grant")
    store.enable("etl")
    refused(identity, f"Bearer {token}")
    assert identity.identify(f"Bearer {issued(identity, 'etl', secret)}").role("main") is Role.READER


def test_rotation_ends_the_old_secret_and_its_tokens(store: PrincipalStore, identity: TokenIdentity) -> None:
    old = store.create("etl", {})
    token = issued(identity, "etl", old)
    new = store.rotate("etl")
    refused(identity, f"Bearer {token}")
    assert oauth_refusal(identity, ClientCredentials(Client("etl", old), "")) == (401, "invalid_client")
    assert identity.identify(f"Bearer {issued(identity, 'etl', new)}").name == "etl"


def test_a_name_that_is_used_again_does_not_inherit(store: PrincipalStore, identity: TokenIdentity) -> None:
    token = issued(identity, "etl", store.create("etl", {"main": Role.ADMIN}))
    store.delete("etl")
    refused(identity, f"Bearer {token}")
    secret = store.create("etl", {})
    refused(identity, f"Bearer {token}")
    assert identity.identify(f"Bearer {issued(identity, 'etl', secret)}").role("main") is None


def test_grants_are_felt_by_the_next_request(store: PrincipalStore, identity: TokenIdentity) -> None:
    authorization = f"Bearer {issued(identity, 'etl', store.create('etl', {}))}"
    assert identity.identify(authorization).role("main") is None
    store.grant("etl", "main", Role.WRITER)
    assert identity.identify(authorization).role("main") is Role.WRITER
    store.revoke("etl", "main")
    assert identity.identify(authorization).role("main") is None


@pytest.mark.parametrize("change", ["rotate", "disable", "delete", "again"])
def test_what_changes_while_a_token_is_issued_wins(
    store: PrincipalStore, identity: TokenIdentity, database: Database, change: str
) -> None:
    """The secret was verified, and then it ended before the token was written."""
    store.create("etl", {})
    records = Records(database)
    holder = records.client("etl")
    assert holder is not None
    if change == "again":
        store.delete("etl")
        store.create("etl", {})
    else:
        getattr(store, change)("etl")
    assert not records.add_token(holder, "0" * 64, now_ms=0, expires_ms=1)
    assert stored_tokens(database) == 0


def test_tokens_and_deletes_at_once_leave_no_orphan(
    store: PrincipalStore, identity: TokenIdentity, database: Database
) -> None:
    records = Records(database)
    for attempt in range(10):
        store.create("etl", {})
        holder = records.client("etl")
        assert holder is not None

        def add(number: int, holder: Holder = holder, attempt: int = attempt) -> bool:
            return records.add_token(holder, f"{attempt}-{number}", now_ms=0, expires_ms=1)

        with ThreadPoolExecutor(4) as pool:
            added = pool.map(add, range(4))
            pool.submit(store.delete, "etl").result()
            list(added)
        with pytest.raises(NotFound):
            store.delete("etl")
        assert stored_tokens(database) == 0


def test_expired_tokens_are_cleared_in_bounded_steps(
    store: PrincipalStore, identity: TokenIdentity, database: Database, clock: Clock
) -> None:
    secret = store.create("etl", {})
    old = [
        {"token_hash": f"old-{number}", "principal": "etl", "expires_ms": clock() - number}
        for number in range(EXPIRED_DELETED_MAX + 50)
    ]
    database.write(lambda connection: connection.execute(schema.tokens.insert(), old))
    live = issued(identity, "etl", secret)
    assert stored_tokens(database) == 51
    second = issued(identity, "etl", secret)
    assert stored_tokens(database) == 2
    for token in (live, second):
        assert identity.identify(f"Bearer {token}").name == "etl"


# -- secrets -------------------------------------------------------------------------------------------------


def test_no_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Even with SQLAlchemy writing every statement and parameter."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "sqlalchemy.engine")
    database = Database(f"sqlite:///{tmp_path}/catalog.db")
    schema.metadata.create_all(database.engine)
    store, identity = PrincipalStore(database), TokenIdentity(database, LIFETIME_S)
    secret = store.create("etl", {"main": Role.READER})
    token = issued(identity, "etl", secret)
    renewed = identity.issue(TokenExchange(token, Client("etl", secret), "catalog"))["access_token"]
    caller = identity.identify(f"Bearer {token}")
    oauth_refusal(identity, ClientCredentials(Client("etl", "canary-4711"), "catalog"))
    refused(identity, "Bearer canary-4711")
    rotated = store.rotate("etl")
    database.close()
    holder = Holder("etl", secrets.secret_hash(secret))
    written = caplog.text + repr(caller) + repr(store) + repr(identity) + repr(holder) + repr(store.__dict__)
    assert "INSERT INTO tokens" in caplog.text
    for canary in (secret, token, renewed, rotated, "canary-4711"):
        assert canary not in written
    assert "scrypt$" not in repr(holder)


# -- credentials of the server's own processes ---------------------------------------------------------------


def test_every_server_has_a_credential_of_its_own(store: PrincipalStore, database: Database) -> None:
    """Another replica starts, or the same one again: what the first was given stays valid."""
    identity = TokenIdentity(database, LIFETIME_S)
    roles = {"*": Role.WRITER}
    first = store.own_credential("calve-worker", roles)
    token = issued(identity, "calve-worker", first)
    second = store.own_credential("calve-worker", roles)
    assert first != second
    assert [one.name for one in store.list()] == ["calve-worker"]
    for credential in (first, second):
        for bearer in (token, issued(identity, "calve-worker", credential)):
            caller = identity.identify(f"Bearer {bearer}")
            assert (caller.name, caller.role("main")) == ("calve-worker", Role.WRITER)


def test_a_credential_of_a_server_keeps_to_the_roles_that_an_administrator_gave(
    store: PrincipalStore, database: Database
) -> None:
    identity = TokenIdentity(database, LIFETIME_S)
    store.create("calve-worker", {"main": Role.READER})
    credential = store.own_credential("calve-worker", {"*": Role.WRITER})
    caller = identity.identify(f"Bearer {issued(identity, 'calve-worker', credential)}")
    assert (caller.role("main"), caller.role("other")) == (Role.READER, None)


@pytest.mark.parametrize("end", ["rotate", "disable", "delete"])
def test_an_administrator_ends_the_credentials_of_servers(
    store: PrincipalStore, database: Database, end: str
) -> None:
    identity = TokenIdentity(database, LIFETIME_S)
    credential = store.own_credential("calve-worker", {"*": Role.WRITER})
    getattr(store, end)("calve-worker")
    grant = ClientCredentials(Client("calve-worker", credential), "catalog")
    assert oauth_refusal(identity, grant) == (401, "invalid_client")
    if end == "disable":
        with pytest.raises(Conflict, match="calve-worker is disabled"):
            store.own_credential("calve-worker", {"*": Role.WRITER})
    else:
        again = store.own_credential("calve-worker", {"*": Role.WRITER})
        assert issued(identity, "calve-worker", again)


def test_a_token_is_the_secret_of_its_own_principal_alone(
    store: PrincipalStore, identity: TokenIdentity, clock: Clock
) -> None:
    token = issued(identity, "etl", store.create("etl", {}))
    store.create("other", {})
    for name in ("other", "nobody"):
        grant = ClientCredentials(Client(name, token), "catalog")
        assert oauth_refusal(identity, grant) == (401, "invalid_client")
    assert issued(identity, "etl", token)
    clock.pass_s(LIFETIME_S)
    assert oauth_refusal(identity, ClientCredentials(Client("etl", token), "catalog")) == (
        401,
        "invalid_client",
    )
