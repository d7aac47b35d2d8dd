"""Creates maintenance and verification from the settings."""

from __future__ import annotations

from calve.bootstrap import Ingest
from calve.settings import Settings
from catalog.services.catalog import Catalog
from ingest.store.mirrors import Mirrors
from ingest.verification.jobs import PrioritizedJobs, VerificationJobs
from ingest.verification.service import VerificationService
from ingest.verification.store import Verifications
from maintenance.policies import Policies
from maintenance.rounds import RoundSettings
from maintenance.row_lifetimes import RowLifetimes
from maintenance.service import Maintenance
from maintenance.store import MaintenanceStore


def open_maintenance(settings: Settings, catalog: Catalog, ingest: Ingest | None) -> Maintenance:
    store = MaintenanceStore(catalog.database)
    policies = Policies(store, settings.kept_moments, is_on=settings.maintenance)
    rounds = RoundSettings(settings.maintenance_interval_s, settings.reader_grace_s * 1000)
    rows = RowLifetimes(ingest.journal.database) if ingest is not None else None
    maintenance = Maintenance(catalog, store, policies, rounds, is_on=settings.maintenance, rows=rows)
    if ingest is not None:
        verification = open_verification(settings, catalog, ingest)
        ingest.job_service.maintenance = PrioritizedJobs(
            [verification.due, maintenance.jobs, verification.due.idle]
        )
        ingest.landing_status.verification = verification.of_warehouse
        maintenance.verification = verification
    return maintenance


def open_verification(settings: Settings, catalog: Catalog, ingest: Ingest) -> VerificationService:
    store = Verifications(catalog.database)
    due = VerificationJobs(
        catalog, store, ingest.jobs, ingest.tables, settings.verify_interval_s, settings.checksums
    )
    due.gap = Mirrors(catalog.database).why_not_comparable
    return VerificationService(catalog, store, ingest.jobs, ingest.tables, due, ingest.job_service.wakeup)
