"""A server that asks for tokens, with three tenants on it: each a warehouse and principals of its own."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from catalog.identity.principals import PrincipalStore
from catalog.models import EVERY_WAREHOUSE, Role
from catalog.store.database import Database
from tests.harness.rest import Rest
from tests.harness.stacks import Stack
from tests.security.requests_of_operations import Maker

TENANTS = ("acme", "blue", "core")
ABSENT = "dune"  # as long as the others, so that answers about it have the same length


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    secret: str
    token: str

    @property
    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


class Guarded:
    """The stack, and who is who on it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.url = stack.url
        self._database = Database(stack.database)
        self.principals = PrincipalStore(self._database)
        self.root = self.principal("root", {EVERY_WAREHOUSE: Role.ADMIN})
        self.nobody = self.principal("nobody", {})
        for name in TENANTS:
            answer = self.rest(self.root).lake("POST", "warehouses", json={"name": name})
            assert answer.status_code == 200, answer.text
        self.admins = {name: self.principal(f"{name}-admin", {name: Role.ADMIN}) for name in TENANTS}
        self.writer = self.principal("acme-writer", {"acme": Role.WRITER})
        self.reader = self.principal("acme-reader", {"acme": Role.READER})
        self.makers = {name: Maker(self.rest(self.admins[name], name)) for name in TENANTS}

    def close(self) -> None:
        for maker in self.makers.values():
            maker.rest.http.close()
        self._database.close()

    def principal(self, name: str, roles: dict[str, Role]) -> Principal:
        secret = self.principals.create(name, roles)
        return Principal(name, secret, self.token(name, secret))

    def token(self, name: str, secret: str) -> str:
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        answer = httpx.post(f"{self.url}/v1/oauth/tokens", data=form, timeout=60)
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        return token

    def rest(self, principal: Principal, prefix: str = "main") -> Rest:
        return TokenRest(self.url, prefix, headers=principal.header)

    def client(self, principal: Principal | None = None) -> httpx.Client:
        headers = principal.header if principal is not None else {}
        return httpx.Client(base_url=self.url, timeout=60, headers=headers)

    def heads(self) -> dict[str, int]:
        """The number of the newest commit of each tenant."""
        rest = self.rest(self.root)
        found = {name: rest.lake("GET", f"{name}/events", params={"after": 2**61}).json() for name in TENANTS}
        return {name: answer["head"] for name, answer in found.items()}


class TokenRest(Rest):
    """The plain client, which keeps its token when it turns to another prefix."""

    def at(self, prefix: str) -> Rest:
        return TokenRest(self.url, prefix, headers=dict(self.http.headers))
