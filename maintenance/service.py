"""Maintenance of a server: the rounds in this process, policies, and what the API shows."""

from __future__ import annotations

from catalog.services.catalog import Catalog
from maintenance.policies import Policies
from maintenance.rounds import Rounds, RoundSettings
from maintenance.store import MaintenanceStore


class Maintenance:
    """`is_on` is False if the server does nothing by itself; requests are still carried out."""

    def __init__(
        self,
        catalog: Catalog,
        store: MaintenanceStore,
        policies: Policies,
        settings: RoundSettings,
        *,
        is_on: bool = True,
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.policies = policies
        self.rounds = Rounds(catalog, store, policies, settings)
        self._is_on = is_on

    def start(self) -> None:
        if self._is_on:
            self.rounds.start()

    def stop(self) -> None:
        self.rounds.stop()
