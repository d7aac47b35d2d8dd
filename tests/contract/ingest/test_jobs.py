"""The jobs API: leases, epochs, publishing, crashes. A worker by hand takes the place of Spark."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.identity.principals import PrincipalStore
from catalog.models import Role
from catalog.store.database import Database
from tests.contract.ingest.desks import Desks
from tests.contract.ingest.hand import Hand, Job, expire
from tests.harness.process import children, is_alive
from tests.harness.rest import Rest
from tests.harness.server import CalveServer
from tests.harness.stacks import STACKS, Stack, Stacks

SETTINGS = {"CALVE_FRESHNESS_TARGET_MS": "0"}


@pytest.fixture(scope="module")
def desks(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desks]:
    with contextlib.ExitStack() as running:
        yield Desks(stacks, tmp_path_factory.mktemp("desks"), running, SETTINGS)


@pytest.fixture(params=STACKS)
def desk(request: pytest.FixtureRequest, desks: Desks) -> Stack:
    return desks.on(request.param)


def fresh() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


def without_states(job: Job) -> Job:
    """A new table is described anew at each lease: it has another location."""
    tables = [{key: table[key] for key in table if key != "states"} for table in job["tables"]]
    return {**{key: job[key] for key in job if key != "epoch"}, "tables": tables}


def landed(stack: Stack, table: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{stack.url}/status", timeout=60).json()["landing"]["tables"][table]
    return found


def staged_files(stacks: Stacks, job: Job) -> list[Path]:
    """The files behind the locations of a job that are still there."""
    names = [name for table in job["tables"] for name in table["files"]]
    names += [name for table in job["tables"] if table["rejects"] for name in table["rejects"]["files"]]
    assert names
    paths = [stacks.s3.path(n) if n.startswith("s3:") else Path(n.removeprefix("file://")) for n in names]
    return [path for path in paths if path.exists()]


def test_a_job_is_leased_worked_on_and_published(desk: Stack, stacks: Stacks) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1, "x": "a"}, {"id": 2, "x": "b"})
    job = hand.lease(space)
    assert job["epoch"] == 1
    assert [table["name"] for table in job["tables"]] == ["t"]
    assert job["tables"][0]["events"] == 2
    assert len(staged_files(stacks, job)) == 1
    assert hand.heartbeat(job).json() == {"lease-s": job["lease-s"]}
    assert hand.shown(job)["progress"] == {"stage": "write"}
    snapshots = hand.work(job)
    assert hand.rest.call("GET", hand.rest.table_path(space, "t")).status_code == 404
    number = hand.publish(job).json()["number"]
    found = hand.rest.load(space, "t")["metadata"]
    assert found["current-snapshot-id"] == snapshots["t"]
    shown = landed(desk, f"{space}.t")
    assert (shown["number"], shown["events"], shown["pending-events"]) == (number, 2, 0)
    assert hand.shown(job)["state"] == "done"
    assert staged_files(stacks, job) == []


def test_a_publish_can_be_repeated(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1})
    job = hand.lease(space)
    hand.work(job)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: hand.publish(job), range(4)))
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    number = answers[0].json()["number"]
    assert {answer.json()["number"] for answer in (*answers, hand.publish(job))} == {number}
    assert landed(desk, f"{space}.t")["events"] == 1
    # Also after the next batch.
    hand.post(f"{space}.t", {"id": 2})
    assert hand.land(hand.lease(space)) > number
    assert hand.publish(job).json()["number"] == number


def test_all_tables_of_a_batch_change_at_the_same_time_and_number(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    tables = [f"{space}.{name}" for name in ("a", "b", "c")]
    hand.post(tables[0], *({"id": 1, "_table": table} for table in tables), transaction="x1")
    number = hand.land(hand.lease(space))
    assert {landed(desk, table)["number"] for table in tables} == {number}
    names = [f"{name}{end}" for name in ("a", "b", "c") for end in ("", "__changes")]
    found = [hand.rest.load(space, name)["metadata"] for name in names]
    assert len({metadata["snapshot-log"][-1]["timestamp-ms"] for metadata in found}) == 1
    assert {len(metadata.get("metadata-log") or []) for metadata in found} == {0}, "one file for each table"


def test_a_job_whose_table_another_client_created_is_cut_again(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1})
    job = hand.lease(space)
    hand.rest.create(space, "t")  # it exists now, and the job would make it
    expire(desk, job)
    assert hand.ask().status_code == 204
    assert hand.rest.lake("GET", f"jobs/{job['id']}").status_code == 404
    hand.land(hand.lease(space))
    assert landed(desk, f"{space}.t")["events"] == 1


def test_status_shows_how_a_table_was_written(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    told: list[dict[str, Any]] = [
        {"by": "tasks", "tasks": 1},
        {"by": "merge", "why": "the table has equality deletes"},
    ]
    for number, facts in enumerate(told):
        hand.post(f"{space}.t", {"id": number})
        job = hand.lease(space)
        hand.work(job)
        assert hand.publish(job, metrics={"tables": {f"{space}.t": facts}}).status_code == 200
        shown = landed(desk, f"{space}.t")
        assert (shown["written-by"], shown.get("merge-reason")) == (facts["by"], facts.get("why"))


def test_the_next_worker_takes_over_when_a_lease_is_over_and_the_first_can_do_nothing(desk: Stack) -> None:
    space, zombie, heir = fresh(), Hand(desk.url), Hand(desk.url)
    zombie.post(f"{space}.t", {"id": 1})
    lost = zombie.lease(space)
    zombie.work(lost)
    expire(desk, lost)
    job = heir.lease(space)
    assert (job["id"], job["epoch"]) == (lost["id"], lost["epoch"] + 1)
    assert without_states(job) == without_states(lost)
    refused = [zombie.heartbeat(lost), zombie.fail(lost), zombie.publish(lost)]
    # Not even under the epoch of another.
    refused += [zombie.publish(lost, epoch=lost["epoch"] + 5)]
    assert [answer.status_code for answer in refused] == [409] * 4
    assert all("epoch" in answer.json()["error"]["message"] for answer in refused)
    assert heir.rest.call("GET", heir.rest.table_path(space, "t")).status_code == 404
    snapshots = heir.work(job)
    assert heir.publish(job).status_code == 200
    assert zombie.publish(lost).status_code == 409
    assert heir.rest.load(space, "t")["metadata"]["current-snapshot-id"] == snapshots["t"]
    assert landed(desk, f"{space}.t")["events"] == 1


def test_an_expired_lease_is_valid_until_another_worker_takes_it(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1})
    job = hand.lease(space)
    expire(desk, job)
    assert hand.heartbeat(job).status_code == 200
    expire(desk, job)
    hand.work(job)
    assert hand.publish(job).status_code == 200


def test_a_job_that_was_given_back_is_leased_again_and_status_has_the_reason(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1})
    job = hand.lease(space)
    assert hand.fail(job, "the moon is in the way").status_code == 204
    assert hand.fail(job).status_code == 409
    assert hand.publish(job).status_code == 409
    status = httpx.get(f"{desk.url}/status", timeout=60).json()["landing"]
    assert "the moon is in the way" in status["stalled"]
    assert [j["error"] for j in status["jobs"] if j["id"] == job["id"]] == ["the moon is in the way"]
    again = hand.lease(space)
    assert (again["id"], again["epoch"]) == (job["id"], 2)
    hand.land(again)
    assert hand.shown(job)["error"] is None


def test_a_table_that_moved_is_refused_and_the_job_can_be_done_again(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1})
    hand.land(hand.lease(space))
    hand.post(f"{space}.t", {"id": 2})
    job = hand.lease(space)
    hand.work(job)
    somebody = hand.rest.append(space, "t")["metadata"]["current-snapshot-id"]
    refused = hand.publish(job)
    assert refused.status_code == 409
    assert refused.json()["error"]["type"] == "CommitFailedException"
    assert refused.json()["error"]["message"].startswith(f"{space}.t has changed")
    assert landed(desk, f"{space}.t")["events"] == 1
    # The worker asks for the tables as they are by now, and does the batch again under the same lease.
    job["tables"] = hand.heartbeat(job, tables=True).json()["tables"]
    snapshots = hand.work(job)
    assert hand.publish(job).status_code == 200
    found = hand.rest.load(space, "t")["metadata"]
    assert found["current-snapshot-id"] == snapshots["t"]
    assert somebody in {snapshot["snapshot-id"] for snapshot in found["snapshots"]}
    assert landed(desk, f"{space}.t")["events"] == 2


def test_a_job_that_fails_again_and_again_is_cut_anew(desk: Stack, stacks: Stacks) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1, "name": "x"})
    old = job = hand.lease(space)
    for attempt in range(4):
        assert hand.fail(job, "no memory").status_code == 204
        again = hand.lease(space)
        if attempt < 3:
            assert (again["id"], again["epoch"]) == (job["id"], job["epoch"] + 1)
        old, job = job, again
    assert job["id"] != old["id"]
    assert staged_files(stacks, old) == []
    assert hand.heartbeat(old).status_code == 404
    hand.land(job)
    assert landed(desk, f"{space}.t")["events"] == 1


def test_a_batch_whose_worker_dies_each_time_is_cut_anew_by_table(desk: Stack) -> None:
    """The table that makes workers stop is not known, so each goes alone from then on."""
    space, hand = fresh(), Hand(desk.url)
    for name in ("a", "b"):
        hand.post(f"{space}.{name}", {"id": 1})
    job = hand.lease(space)
    assert [table["name"] for table in job["tables"]] == ["a", "b"]
    for attempts in (1, 2, 3, 4):
        assert hand.shown(job)["attempts"] == attempts
        expire(desk, job)
        again = hand.lease(space)
        assert (again["id"] == job["id"]) == (attempts < 4)
        job = again
    names = [table["name"] for table in job["tables"]]
    assert len(names) == 1
    assert "its worker stopped" in landed(desk, f"{space}.{names[0]}")["stalled"]
    hand.land(job)
    hand.land(hand.lease(space))
    assert [landed(desk, f"{space}.{name}")["events"] for name in ("a", "b")] == [1, 1]


def test_a_conversion_whose_worker_dies_is_tried_again_and_says_why(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1, "n": 1})
    hand.land(hand.lease(space))
    hand.post(f"{space}.t", {"id": 2, "n": 2.5})
    job = hand.lease(space)
    expire(desk, job)
    again = hand.lease(space)
    assert (again["kind"], again["id"] != job["id"]) == ("convert", True)
    assert "its worker stopped" in landed(desk, f"{space}.t")["stalled"]
    assert hand.fail(again, "no", retry=False).is_success
    path = f"main/namespaces/{space}/tables/t/ingest"
    assert hand.rest.lake("PUT", path, json={"type-changes": "reject"}).is_success
    hand.land(hand.lease(space))


def test_a_worker_can_ask_for_a_new_cut_at_once(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1})
    job = hand.lease(space)
    assert hand.fail(job, retry=False).status_code == 204
    hand.post(f"{space}.t", {"id": 2})
    again = hand.lease(space)
    assert again["id"] != job["id"]
    assert again["tables"][0]["events"] == 2
    hand.land(again)


def test_a_type_change_is_a_job_in_the_lane_of_its_table(desk: Stack) -> None:
    """The changes wait for it, other tables do not, and /status shows both the job and its failure."""
    space, hand = fresh(), Hand(desk.url)
    table = f"{space}.t"
    hand.post(table, {"id": 1, "n": 1})
    hand.land(hand.lease(space))
    hand.post(table, {"id": 2, "n": 2.5})
    job = hand.lease(space)
    assert (job["kind"], job["names"]) == ("convert", ["t", "t__changes"])
    assert job["columns"] == {"n": {"from": "long", "to": ["double", "string"]}}
    shown = landed(desk, table)
    assert (shown["converting"]["columns"], shown["pending-events"]) == (job["columns"], 1)
    hand.post(f"{space}.other", {"id": 1})
    other = hand.lease(space)
    assert [one["name"] for one in other["tables"]] == ["other"]
    hand.land(other)
    assert hand.fail(job, "the disk is full", retry=False).is_success
    assert "the disk is full" in landed(desk, table)["stalled"]
    again = hand.lease(space)
    assert (again["kind"], again["id"] != job["id"]) == ("convert", True)
    path = f"main/namespaces/{space}/tables/t/ingest"
    assert hand.rest.lake("PUT", path, json={"type-changes": "reject"}).is_success
    assert hand.fail(again, "no", retry=False).is_success
    hand.land(hand.lease(space))
    assert (landed(desk, table)["events"], landed(desk, table)["rejects"]) == (1, 1)
    refused = hand.rest.lake("PUT", path, json={"type-changes": "guess"})
    assert refused.status_code == 400


def test_events_that_cannot_land_do_not_delay_others(desk: Stack) -> None:
    """Neither one that names no table, nor a number that no JSON writer of ours writes."""
    space, hand = fresh(), Hand(desk.url)
    hand.post(f"{space}.t", {"id": 1, "n": 1})
    hand.land(hand.lease(space))
    head = '{"sequence":%d,"timestamp":1,"operation":"INSERT","rowId":"%d","after":{"id":%d,"n":%s}%s}'
    lines = [
        head % (1, 2, 2, str(2**70), f',"table":"{space}.t"'),
        head % (2, 3, 3, "3", ""),
        head % (3, 4, 4, "4", f',"table":"{space}.t"'),
    ]
    for round_ in range(2):
        answer = hand.rest.call(
            "POST",
            "/cdc",
            params={"format": "native"},
            content="\n".join(lines),
            headers={"X-Source-Id": f"{space}-{round_}", "Content-Type": "application/x-ndjson"},
        )
        assert answer.is_success, answer.text
        _drain(desk, space)
    assert (landed(desk, f"{space}.t")["events"], landed(desk, f"{space}.t")["rejects"]) == (3, 2)
    assert landed(desk, "(no table)")["rejects"] >= 2
    found = hand.rest.lake("GET", "main/dead-letters", params={"table": f"{space}.t"}).json()["dead-letters"]
    assert [str(2**70) in letter["reason"] for letter in found] == [True, True]
    shown = hand.rest.lake("GET", f"main/dead-letters/{found[0]['id']}").json()
    assert f'"n":{2**70}' in shown["original"].replace(" ", "")
    # Read again as it was, digit for digit, it is refused for the same reason.
    assert hand.rest.lake("POST", "main/dead-letters/replay", json={"ids": [found[0]["id"]]}).json() == {
        "replayed": 1
    }
    _drain(desk, space)
    found = hand.rest.lake("GET", "main/dead-letters", params={"table": f"{space}.t"}).json()["dead-letters"]
    assert [str(2**70) in letter["reason"] for letter in found] == [True] * 3


def test_two_workers_never_have_the_same_table(desk: Stack) -> None:
    space, tables = fresh(), 6
    hands = [Hand(desk.url) for _ in range(4)]
    for round_ in range(3):
        for number in range(tables):
            hands[0].post(f"{space}.t{number}", {"id": round_})
        with ThreadPoolExecutor(len(hands)) as threads:
            answers = list(threads.map(lambda hand: hand.ask(), hands))
        held = [(hand, a.json()) for hand, a in zip(hands, answers, strict=True) if a.status_code == 200]
        names = [(*t["namespace"], t["name"]) for _, job in held for t in job["tables"]]
        assert len(names) == len(set(names))
        # What comes while a table is being worked on waits for the next job.
        hands[0].post(f"{space}.t0", {"id": 100 + round_})
        assert all(
            t["name"] != "t0"
            for answer in (hands[0].ask(), hands[1].ask())
            if answer.status_code == 200
            for t in answer.json()["tables"]
            if t["namespace"] == [space] and any(name[-1] == "t0" for name in names)
        )
        for hand, job in held:
            hand.land(job)
    _drain(desk, space)
    assert sum(landed(desk, f"{space}.t{n}")["events"] for n in range(tables)) == 3 * (tables + 1)


def _drain(stack: Stack, space: str) -> None:
    """Land all that is left of a namespace, also what others hold."""
    hand = Hand(stack.url)
    while True:
        status = httpx.get(f"{stack.url}/status", timeout=60).json()["landing"]
        for job in status["jobs"]:
            expire(stack, job)
        waiting = [t for t, row in status["tables"].items() if t.startswith(space) and row["pending-events"]]
        if not waiting and not status["jobs"]:
            return
        answer = hand.ask(1)
        if answer.status_code == 200:
            hand.land(answer.json())


def test_tables_that_share_a_transaction_go_together_for_ever(desk: Stack) -> None:
    space, hand = fresh(), Hand(desk.url)
    a, b = f"{space}.a", f"{space}.b"
    hand.post(a, {"id": 1}, {"id": 1, "_table": b}, transaction="x1")
    job = hand.lease(space)
    assert [table["name"] for table in job["tables"]] == ["a", "b"]
    # While one of them is being worked on, the other is not cut either.
    hand.post(b, {"id": 2})
    assert Hand(desk.url).ask().status_code == 204
    number = hand.land(job)
    assert [landed(desk, table)["number"] for table in (a, b)] == [number, number]
    job = hand.lease(space)
    assert [table["name"] for table in job["tables"] if table["events"]] == ["b"]
    hand.land(job)


def test_a_crash_between_staging_and_leasing_leaves_the_changes_in_the_journal(
    desk: Stack, tmp_path: Path
) -> None:
    space, hand = fresh(), Hand(desk.url)
    with _doomed(desk, tmp_path, "job.staged=kill:1") as server:
        hand.post(f"{space}.a", {"id": 1}, {"id": 1, "_table": f"{space}.b"}, transaction="x1")
        with pytest.raises(httpx.TransportError):
            Hand(server.url).ask(20)
    # Its tables are free again when the time for staging is over.
    left = httpx.get(f"{desk.url}/status", timeout=60).json()["landing"]["jobs"]
    assert [row["state"] for row in left] == ["staging"]
    assert Hand(desk.url).ask().status_code == 204
    expire(desk, left[0])
    job = hand.lease(space)
    assert job["id"] != left[0]["id"]
    assert [table["events"] for table in job["tables"]] == [1, 1]
    hand.land(job)


@pytest.mark.parametrize("point", ["job.finished", "job.published"])
def test_a_crash_leaves_all_of_a_publish_or_nothing(
    desk: Stack, stacks: Stacks, tmp_path: Path, point: str
) -> None:
    space, hand, done = fresh(), Hand(desk.url), point == "job.published"
    hand.post(f"{space}.a", {"id": 1}, {"id": 1, "_table": f"{space}.b"}, transaction="x1")
    job = hand.lease(space)
    snapshots = hand.work(job)
    with _doomed(desk, tmp_path, f"{point}=kill:1") as server, pytest.raises(httpx.TransportError):
        hand.publish(job, url=server.url)
    wanted = [snapshots["a"], snapshots["b"]]
    assert [_current(hand.rest, space, n) for n in ("a", "b")] == (wanted if done else [None, None])
    assert hand.shown(job)["state"] == ("done" if done else "leased")
    again = [hand.publish(job) for _ in range(2)]
    assert [answer.status_code for answer in again] == [200, 200], again[0].text
    assert again[0].json() == again[1].json()
    assert [landed(desk, f"{space}.{name}")["events"] for name in ("a", "b")] == [1, 1]
    assert [_current(hand.rest, space, name) for name in ("a", "b")] == wanted
    assert staged_files(stacks, job) == []


def test_the_staging_process_ends_with_its_server(stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started("embedded", tmp_path, SETTINGS) as stack:
        hand, space = Hand(stack.url), fresh()
        hand.post(f"{space}.t", {"id": 1})
        hand.lease(space)
        below = children(stack.server.pid)
        assert below
        os.kill(stack.server.pid, signal.SIGKILL)  # alone, as the kernel does when memory runs out
        until_s = time.monotonic() + 60
        while any(is_alive(pid) for pid in below):
            assert time.monotonic() < until_s, "a child of the server is left"
            time.sleep(0.05)


def _current(rest: Rest, space: str, table: str) -> int | None:
    answer = rest.call("GET", rest.table_path(space, table))
    return answer.json()["metadata"]["current-snapshot-id"] if answer.status_code == 200 else None


@contextlib.contextmanager
def _doomed(stack: Stack, folder: Path, faults: str) -> Iterator[CalveServer]:
    """A second server of the same lake that will end itself."""
    settings = {name: value for name, value in stack.server.settings.items() if name != "CALVE_PORT"}
    with CalveServer.started(folder / uuid.uuid4().hex[:8], {**settings, "CALVE_FAULTS": faults}) as server:
        yield server


def test_a_reader_gets_no_job_and_sees_none(stacks: Stacks, tmp_path: Path) -> None:
    settings = SETTINGS | {"CALVE_AUTH": "tokens"}
    with stacks.started("embedded", tmp_path, settings) as stack:
        hands = {
            name: Hand(stack.url, headers={"Authorization": f"Bearer {_token(stack, name, roles)}"})
            for name, roles in {
                "writer": {"main": Role.WRITER},
                "reader": {"main": Role.READER},
                "nobody": {},
            }.items()
        }
        writer, space = hands["writer"], fresh()
        writer.post(f"{space}.t", {"id": 1})
        assert hands["reader"].ask().status_code == 204
        assert hands["nobody"].ask().status_code == 204
        assert Hand(stack.url).ask().status_code == 401
        job = writer.lease(space)
        writer.work(job)
        for name in ("reader", "nobody"):
            hand = hands[name]
            answers = [hand.heartbeat(job), hand.fail(job), hand.publish(job)]
            assert [answer.status_code for answer in answers] == [404] * 3, name
        assert hands["nobody"].rest.lake("GET", f"jobs/{job['id']}").status_code == 404
        assert hands["reader"].shown(job)["state"] == "leased"
        assert writer.publish(job).status_code == 200


def _token(stack: Stack, name: str, roles: dict[str, Role]) -> str:
    database = Database(stack.database)
    secret = PrincipalStore(database).create(name, roles)
    database.close()
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
    answer = httpx.post(f"{stack.url}/v1/oauth/tokens", data=form, timeout=60)
    token: str = answer.json()["access_token"]
    return token


def test_an_unknown_job_is_404_and_a_malformed_call_400(desk: Stack) -> None:
    rest = Rest(desk.url)
    for what, body in (
        ("heartbeat", {"epoch": 1}),
        ("publish", {"epoch": 1, "transaction": "x"}),
        ("fail", {"epoch": 1, "error": ""}),
    ):
        answer = rest.lake("POST", f"jobs/none/{what}", json=body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchJobException")
    assert rest.lake("POST", "jobs/lease", json={"worker": ""}).status_code == 400
    assert rest.lake("POST", "jobs/lease", json={"worker": "w", "wait-s": -1}).status_code == 400


def test_the_tables_of_a_batch_have_properties_that_bound_their_metadata_files(desk: Stack) -> None:
    """Also those that were made without them. What the owner of a table has set stays."""
    space, hand = fresh(), Hand(desk.url)
    deletes, kept = "write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max"
    bounded = {deletes: "true", kept: "20"}
    names = ("t", "t__changes", "t__rejects")

    def found(table: str) -> dict[str, str]:
        properties = hand.rest.load(space, table)["metadata"]["properties"]
        return {name: properties[name] for name in bounded if name in properties}

    def change(table: str, *updates: dict[str, Any]) -> None:
        body = {"requirements": [], "updates": list(updates)}
        assert hand.rest.commit(space, table, body).status_code == 200

    hand.post(f"{space}.t", {"id": 1, "n": 1})
    hand.land(hand.lease(space))
    hand.post(f"{space}.t", {"id": 2, "n": 2}, {"id": 3, "n": "not a number"})
    hand.land(hand.lease(space))
    assert [found(table) for table in names] == [bounded] * 3
    for table in names:
        change(table, {"action": "remove-properties", "removals": [deletes, kept]})
    change("t__changes", {"action": "set-properties", "updates": {deletes: "false"}})
    hand.post(f"{space}.t", {"id": 4, "n": 4}, {"id": 5, "n": "not a number"})
    hand.land(hand.lease(space))
    assert [found(table) for table in names] == [bounded, {deletes: "false", kept: "20"}, bounded]
    hand.post(f"{space}.t", {"id": 6, "n": 6}, {"id": 7, "n": "not a number"})
    job = hand.lease(space)
    assert [state["updates"] for state in job["tables"][0]["states"].values()] == [[], [], []]
    hand.land(job)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"partition": ["dayz(at)"]}, "no such transform"),
        ({"partition": ["bucket(id)"]}, "write bucket(16, id)"),
        ({"partition": ["days(typo)"]}, 'no column "typo"'),
        ({"changes-partition": ["weeks(at)"]}, "no such transform"),
        ({"key": ["tenant", "id"]}, 'no column "tenant"'),
        ({"key": ["id", "id"]}, "different"),
    ],
)
def test_settings_that_cannot_work_are_refused(desk: Stack, body: dict[str, Any], reason: str) -> None:
    space, hand = fresh(), Hand(desk.url)
    path = f"main/namespaces/{space}/tables/t/ingest"
    hand.post(f"{space}.t", {"id": 1})
    hand.land(hand.lease(space))
    refused = hand.rest.lake("PUT", path, json=body)
    assert refused.status_code == 400
    assert reason in refused.json()["error"]["message"]
    assert hand.rest.lake("PUT", path, json={"partition": ["days(_commit_timestamp)"]}).status_code == 200
