"""Debezium Server without a word about keys: each mirror is right by evidence, or in doubt with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.mariadb import MariaDbServer
from tests.harness.postgres import PostgresServer
from tests.harness.stacks import Stack, Stacks
from tests.pipeline.debezium import Debezium, Sending
from tests.pipeline.debezium_keys import require_outcomes, wait_for_end
from tests.pipeline.key_tables import FIRST, THEN, KeyTables
from tests.pipeline.worker import Worker

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1_800)]
SENDING = [Sending(), Sending(schemas=False, batches=True)]
IDS = ["schemas", "bare-batches"]


@pytest.mark.parametrize("sending", SENDING, ids=IDS)
def test_keys_of_postgresql(sending: Sending, stacks: Stacks, tmp_path: Path) -> None:
    """Deletes name the key alone."""
    with (
        PostgresServer.started({"wal_level": "logical"}) as server,
        stacks.started("embedded", tmp_path / "stack") as stack,
    ):
        outcomes = outcomes_of(KeyTables(server.database(), "keys"), stack, tmp_path, sending)
        if sending.schemas:
            assert outcomes["accounts"] == "right"


@pytest.mark.parametrize("sending", SENDING, ids=IDS)
def test_keys_of_mariadb(sending: Sending, stacks: Stacks, tmp_path: Path) -> None:
    """Deletes have the whole row, which does not say what the key is."""
    with (
        MariaDbServer.started(1) as server,
        stacks.started("embedded", tmp_path / "stack") as stack,
    ):
        outcomes = outcomes_of(KeyTables(server.database("keys"), "keys"), stack, tmp_path, sending)
        assert "probably not the key" in outcomes["accounts"]


def outcomes_of(tables: KeyTables, stack: Stack, folder: Path, sending: Sending) -> dict[str, str]:
    url = f"{stack.url}/cdc"
    debezium = Debezium(folder / "debezium", tables.database, url=url, tables=tables.names, sending=sending)
    worker = Worker(stack, folder / "worker")
    try:
        tables.run(*FIRST)
        worker.start(wait=False)
        debezium.start()
        tables.run(*THEN)
        wait_for_end(stack, tables.schema)
        outcomes = require_outcomes(stack, tables.schema, tables.rows())
    finally:
        debezium.kill()
        worker.stop()
        tables.close()
    print(f"\n{tables.database.partition(':')[0]}, {sending}: {outcomes}")
    return outcomes
