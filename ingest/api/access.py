"""Who may write changes to a warehouse, and who may read from it.

Checked for every request and every batch: a revoked token is refused at once. A warehouse in which the caller
has no role looks as if it did not exist. A dropped warehouse accepts changes for up to `PRESENT_S` more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from catalog.errors import Forbidden, NoSuchWarehouse, NotAuthorized
from catalog.identity.base import Identity
from catalog.identity.open import OpenIdentity
from catalog.models import Caller, Role
from catalog.names import check_warehouse_name
from catalog.services.catalog import Catalog
from ingest.api import signatures
from ingest.api.settings import ApiSettings

WEBHOOK = "webhook"
PRESENT_S = 1.0


class Access:
    def __init__(
        self,
        identity: Identity,
        catalog: Catalog,
        settings: ApiSettings,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._catalog = catalog
        self._settings = settings
        self._is_open = isinstance(identity, OpenIdentity)
        self._now_s = now_s
        self._present_s: dict[str, float] = {}  # when each warehouse was last seen
        secret = settings.webhook_secret
        self._key = signatures.secret_key(secret) if secret is not None else None

    def poster(self, headers: Mapping[bytes, bytes], body: bytes, warehouse: str) -> Caller:
        """The caller of a POST with changes: identified by a token, by a signature, or by both."""
        return self._require(self._signed_or_known(headers, body), warehouse, Role.WRITER)

    def writer(self, authorization: str | None, warehouse: str) -> Caller:
        return self._require(self._identity.identify(authorization), warehouse, Role.WRITER)

    def reader(self, authorization: str | None, warehouse: str) -> Caller:
        return self._require(self._identity.identify(authorization), warehouse, Role.READER)

    def _signed_or_known(self, headers: Mapping[bytes, bytes], body: bytes) -> Caller:
        authorization = headers.get(b"authorization")
        if self._key is not None:
            signed = signatures.is_signed(headers)
            # An open server accepts any Authorization header, so it proves nothing there.
            if not signed and (self._is_open or authorization is None):
                raise NotAuthorized(signatures.REFUSAL)
            if signed:
                tolerance_s = self._settings.webhook_tolerance_s
                signatures.verify(self._key, headers, body, now_s=self._now_s(), tolerance_s=tolerance_s)
                if authorization is None:
                    return Caller(WEBHOOK, {self._settings.webhook_warehouse: Role.WRITER})
        return self._identity.identify(text(authorization))

    def _require(self, caller: Caller, warehouse: str, least: Role) -> Caller:
        role = caller.role(check_warehouse_name(warehouse))
        if role is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
        self._require_present(warehouse)
        if role < least:
            raise Forbidden(f"{caller.name} needs the role {least} in {warehouse} for this")
        return caller

    def _require_present(self, warehouse: str) -> None:
        """Looked up at most once in `PRESENT_S`: for small requests the look-up would be most of the work."""
        now_s = time.monotonic()
        if now_s - self._present_s.get(warehouse, float("-inf")) > PRESENT_S:
            self._catalog.warehouse(warehouse)
            self._present_s[warehouse] = now_s


def text(header: bytes | None) -> str | None:
    return header.decode("latin-1") if header is not None else None
