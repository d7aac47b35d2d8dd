"""A mirror that was rolled back: what the rollback says about later changes is what happens to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.ingest.staging_lake import WAREHOUSE, StagingLake, opened

TABLE = "/lake/v1/main/namespaces/shop/tables/t"


def _send(lake: StagingLake, number: int) -> None:
    source = {"name": "pg", "db": "d", "schema": "shop", "table": "t"}
    log = {"connector": "postgresql", "lsn": number}
    event = {"op": "c", "before": None, "after": {"id": number}, "ts_ms": 1}
    lake.post(event | {"source": source | log}, key=("id",))


def _roll_back(lake: StagingLake, **more: Any) -> str:
    """Undo the newest batch. Returns the notice."""
    found = lake.call("GET", "/v1/main/namespaces/shop/tables/t").json()["metadata"]
    first = min(found["snapshots"], key=lambda snapshot: snapshot["sequence-number"])
    answer = lake.call("POST", f"{TABLE}/rollback", {"snapshot_id": first["snapshot-id"], **more})
    assert answer.is_success, answer.text
    return str(answer.json()["notice"])


def _landed_twice(lake: StagingLake) -> None:
    for number in (1, 2):
        _send(lake, number)
        lake.land()


def test_later_changes_wait_until_the_user_has_chosen(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        _landed_twice(lake)
        notice = _roll_back(lake, dry_run=True)
        assert _roll_back(lake) == notice
        assert "its changes are acknowledged and wait" in notice
        _send(lake, 3)
        assert lake.ingest.job_service.lease("w", [WAREHOUSE], {}, "anonymous") is None
        stalled = lake.ingest.landing_status.status(WAREHOUSE)["tables"]["shop.t"]["stalled"]
        for remedy in ("calve table settings shop.t mirror-changed=accept", "calve table rebuild shop.t"):
            assert f"`{remedy}`" in notice
            assert f"`{remedy}`" in stalled
        settings = lake.call("GET", f"{TABLE}/ingest").json()
        assert lake.call("PUT", f"{TABLE}/ingest", settings | {"mirror-changed": "accept"}).is_success
        assert lake.land()["tables"]


def test_a_batch_that_was_staged_before_the_rollback_does_not_land_after_it(tmp_path: Path) -> None:
    """Its publish is a conflict. The worker then asks for the tables as they are now."""
    with opened(tmp_path) as lake:
        _landed_twice(lake)
        _send(lake, 3)
        job = lake.lease()
        _roll_back(lake)
        again = {"epoch": job["epoch"], "progress": {}, "tables": True}
        refused = lake.call("POST", f"/lake/v1/jobs/{job['id']}/heartbeat", again)
        assert refused.status_code == 409
        assert "the mirror was rolled back" in refused.json()["error"]["message"]
        failed = {"epoch": job["epoch"], "error": "refused", "retry": False}
        assert lake.call("POST", f"/lake/v1/jobs/{job['id']}/fail", failed).is_success
        assert lake.ingest.job_service.lease("w", [WAREHOUSE], {}, "anonymous") is None


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("accept", "are applied to the rows as they are after the rollback"),
        ("rebuild", "with the next change it is rebuilt from t__changes"),
    ],
)
def test_a_setting_chooses_beforehand(tmp_path: Path, choice: str, words: str) -> None:
    with opened(tmp_path) as lake:
        assert lake.call("PUT", f"{TABLE}/ingest", {"mirror-changed": choice}).is_success
        _landed_twice(lake)
        assert words in _roll_back(lake, dry_run=True)
