"""A job is checked once, and the error names the field that is wrong."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from spark_jobs.messages import BadJob, TableState, WorkItem, job_from

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
    "load-key": None,
    "states": {
        "t": {"metadata": {"table-uuid": "u"}, "requirements": [{"type": "assert-create"}], "updates": [{}]},
        "t__changes": {"metadata": {"table-uuid": "v"}},
    },
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
    assert (job.epoch, job.lease_s) == (2, 30.0)
    assert (table.label, table.key, table.late, table.counts["delete"]) == ("a.b.t", ("id",), False, 0)
    assert table.names["event-id"] == "_event_id"
    assert {name: state.is_new for name, state in table.states.items()} == {"t": True, "t__changes": False}


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
        "states": {"t__rejects": {"metadata": {}}},
    }
    (table,) = job_from({**JOB, "tables": [given]}).tables
    assert table.rejects is not None
    assert table.rejects.files == ("file:///r.parquet",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": None}, "id: Input should be a valid string"),
        ({"id": ""}, "id: String should have at least 1 character"),
        ({"epoch": "three"}, "epoch: Input should be a valid integer"),
        ({"tables": {}}, "tables: Input should be a valid tuple"),
        ({"tables": [1]}, r"tables.0: Input should be a valid dictionary"),
        ({"tables": [{**TABLE, "key": []}]}, "a.b.t has a mirror and no key"),
        ({"tables": [{**TABLE, "key": ["other"]}]}, "key column other is not among the columns"),
        ({"tables": [{**TABLE, "columns": ["id", "_calve_x"]}]}, "_calve_x is reserved"),
        ({"tables": [{**TABLE, "namespace": []}]}, "tables.0.namespace: Tuple should have at least 1 item"),
        ({"tables": [{**TABLE, "late": "perhaps"}]}, "tables.0.late: Input should be a valid boolean"),
        ({"tables": [{**TABLE, "counts": {"insert": -1}}]}, "a count is below zero"),
        ({"tables": [{**TABLE, "names": {"source": 1}}]}, "names.source: Input should be a valid string"),
        ({"tables": [{**TABLE, "files": [1]}]}, "files.0: Input should be a valid string"),
        ({"tables": [{**TABLE, "states": {"t": {}}}]}, "states.t.metadata: Field required"),
        ({"tables": [{**TABLE, "states": {}}]}, "the table t of a.b.t is not described"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadJob, match=said):
        job_from({**JOB, **change})


def test_no_job_at_all() -> None:
    with pytest.raises(BadJob, match="job: Input should be"):
        job_from([])


def test_an_item_travels_to_a_task_and_hides_the_keys_of_the_store() -> None:
    (table,) = job_from(JOB).tables
    item = WorkItem(
        job=table,
        commit_us=1,
        mirror=TableState(name="t", metadata="{}"),
        io={"s3.secret-access-key": "hidden"},
    )
    assert pickle.loads(pickle.dumps(item)) == item
    assert "hidden" not in repr(item)
