"""A job is checked once, and says which field is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.job import BadJob, job_from

TABLE: dict[str, Any] = {
    "namespace": ["a", "b"],
    "name": "t",
    "files": ["file:///x.parquet"],
    "events": 3,
    "columns": ["id", "name"],
    "key": ["id"],
    "mirror": "t",
    "changes": "t__changes",
    "counts": {"insert": 3},
    "requests": [
        {"method": "POST", "path": "/v1/{warehouse}/namespaces", "body": {"namespace": ["a"]}},
        {"method": "POST", "path": "/v1/{prefix}/namespaces/a/tables", "body": {}},
    ],
}
JOB: dict[str, Any] = {
    "id": "j",
    "epoch": 2,
    "kind": "commit",
    "warehouse": "main",
    "lease-s": 30,
    "commit-timestamp-us": 1,
    "batch-id": "b",
    "tables": [TABLE],
}


def test_a_job_is_read() -> None:
    job = job_from(JOB)
    (table,) = job.tables
    assert (job.epoch, job.lease_s, job.watermark) == (2, 30.0, None)
    assert (table.label, table.key, table.late, table.counts["delete"]) == ("a.b.t", ("id",), False, 0)
    assert table.names["event-id"] == "_event_id"
    assert [request.is_outside for request in table.requests] == [True, False]


def test_a_table_with_nothing_but_rejects_is_short() -> None:
    given = {
        "namespace": ["a"],
        "name": "t",
        "files": [],
        "events": 0,
        "columns": [],
        "key": [],
        "mirror": None,
        "changes": None,
        "rejects": {"name": "t__rejects", "files": ["file:///r.parquet"]},
    }
    (table,) = job_from({**JOB, "tables": [given], "watermark": 17}).tables
    assert table.rejects is not None
    assert table.rejects.files == ("file:///r.parquet",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": None}, "job.id must be str"),
        ({"id": ""}, "job.id is empty"),
        ({"epoch": "3"}, "job.epoch must be int"),
        ({"tables": {}}, "job.tables must be list"),
        ({"tables": [1]}, r"job.tables\[0\] must be an object"),
        ({"tables": [{**TABLE, "key": []}]}, "has a mirror and no key"),
        ({"tables": [{**TABLE, "key": ["other"]}]}, "key column other is not among the columns"),
        ({"tables": [{**TABLE, "columns": ["id", "_calve_x"]}]}, "_calve_x is reserved"),
        ({"tables": [{**TABLE, "namespace": []}]}, "namespace is empty"),
        ({"tables": [{**TABLE, "late": "yes"}]}, "late must be bool"),
        ({"tables": [{**TABLE, "counts": {"insert": -1}}]}, "counts must be whole numbers"),
        ({"tables": [{**TABLE, "names": {"source": 1}}]}, "names.source must be a text"),
        ({"tables": [{**TABLE, "files": [1]}]}, "files must be a list of texts"),
        ({"tables": [{**TABLE, "requests": [{"method": "POST"}]}]}, r"requests\[0\].path is missing"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadJob, match=said):
        job_from({**JOB, **change})


def test_no_job_at_all() -> None:
    with pytest.raises(BadJob, match="job must be an object"):
        job_from([])
