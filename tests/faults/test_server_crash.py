"""The server dies in the middle of a request: what its client, and another server on the same database, find.

CALVE_FAULTS makes a second server, on the database and the storage of the first, end itself at a failpoint.
The client sees the connection break, asks the first server, and sends the same request again.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.rest import Rest, append_body, identified, uuid7
from tests.harness.server import CalveServer
from tests.harness.stacks import STACKS, Stack, StackName, Stacks

# Failpoints that each kind of request passes; the number says at which pass the server dies.
ON_THE_WAY: dict[str, list[str]] = {
    "commit": [
        "write.decided=kill:1",
        "write.file-written=kill:1",
        "swap.begun=kill:1",
        "swap.row-set=kill:1",
        "swap.before-number=kill:1",
        "swap.before-history=kill:1",
        "swap.before-record=kill:1",
        "swap.before-commit=kill:1",
        "swap.committed=kill:1",
        "write.before-answer=kill:1",
    ],
    "transaction": [
        "write.file-written=kill:2",
        "swap.row-set=kill:1",
        "swap.row-set=kill:2",
        "swap.before-history=kill:1",
        "swap.before-commit=kill:1",
        "swap.committed=kill:1",
        "write.before-answer=kill:1",
    ],
    "publish": [
        "swap.begun=kill:1",
        "publish.locked=kill:1",
        "swap.row-set=kill:1",
        "swap.row-set=kill:3",
        "swap.before-number=kill:1",
        "swap.before-history=kill:1",
        "publish.before-close=kill:1",
        "swap.before-commit=kill:1",
        "swap.committed=kill:1",
    ],
}
IN_SHORT = {
    "commit": ["swap.before-commit=kill:1", "swap.committed=kill:1"],
    "transaction": ["swap.row-set=kill:2"],
    "publish": ["publish.before-close=kill:1", "swap.committed=kill:1"],
}
LANDED = ("swap.committed", "write.before-answer")


@contextlib.contextmanager
def doomed(stack: Stack, folder: Path, faults: str) -> Iterator[CalveServer]:
    """A second server of the same catalog that will end itself."""
    settings = {name: value for name, value in stack.server.settings.items() if name != "CALVE_PORT"}
    with CalveServer.started(folder / uuid.uuid4().hex[:8], {**settings, "CALVE_FAULTS": faults}) as server:
        yield server


class Case:
    """One request to two tables `a` and `b` in a namespace of its own."""

    def __init__(self, stack: Stack, kind: str) -> None:
        self.rest = Rest(stack.url)
        self.kind = kind
        self.namespace = self.rest.fresh_namespace()
        for table in ("a", "b"):
            self.rest.create(self.namespace, table)
        self.ids: dict[str, int] = {}
        self.transaction = f"w{uuid.uuid4().hex[:8]}"
        self.path, self.body, self.headers = self._request()
        self.head = self.rest.head()

    def _request(self) -> tuple[str, Any, dict[str, str]]:
        bodies = {t: append_body(self.rest.load(self.namespace, t)["metadata"]) for t in ("a", "b")}
        self.ids = {t: body["updates"][0]["snapshot"]["snapshot-id"] for t, body in bodies.items()}
        if self.kind == "commit":
            del self.ids["b"]
            return self.rest.table_path(self.namespace, "a"), bodies["a"], {"idempotency-key": uuid7()}
        if self.kind == "transaction":
            changes = [identified(self.namespace, t, body) for t, body in bodies.items()]
            return self.rest.path("transactions/commit"), {"table-changes": changes}, {}
        inside = self.rest.open_transaction(self.transaction)
        for table, body in bodies.items():
            assert inside.commit(self.namespace, table, body).status_code == 200
        inside.create(self.namespace, "c")
        return f"/lake/v1/main/transactions/{self.transaction}/commit", None, {}

    def send(self, url: str) -> httpx.Response:
        return httpx.post(url + self.path, json=self.body, headers=self.headers, timeout=60)

    def landed(self) -> bool:
        """All or nothing, in every table and in the history."""
        found = set()
        for table, id_ in self.ids.items():
            snapshots = self.rest.load(self.namespace, table)["metadata"]["snapshots"]
            assert [s["snapshot-id"] for s in snapshots] in ([], [id_])
            found.add(bool(snapshots))
        if self.kind == "publish":
            found.add("c" in self.rest.tables(self.namespace))
        assert len(found) == 1, "half of it is there"
        found.add(self.rest.head() == self.head + 1)
        assert len(found) == 1, "the history does not agree"
        return found.pop()


def _run(stacks: Stacks, name: StackName, folder: Path, points: dict[str, list[str]]) -> int:
    count = 0
    stack = stacks.shared(name)
    for kind, faults in points.items():
        for fault in faults:
            case = Case(stack, kind)
            dies = pytest.raises(httpx.TransportError)
            with doomed(stack, folder, fault) as server, dies:
                case.send(server.url)
            assert case.landed() == fault.startswith(LANDED), f"{kind} killed at {fault}"
            for _ in range(2):
                again = case.send(stack.url)
                assert again.status_code in (200, 204), f"{kind} killed at {fault}: {again.text}"
                assert case.landed()
                if kind == "publish":
                    assert again.json()["number"] == case.head + 1
            count += 1
    ended = stack.server.command("check")
    assert ended.returncode == 0, ended.stdout
    return count


@pytest.mark.parametrize("name", STACKS)
def test_a_request_cut_short_by_a_crash_can_be_sent_again(
    stacks: Stacks, tmp_path: Path, name: StackName
) -> None:
    _run(stacks, name, tmp_path, IN_SHORT)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STACKS)
def test_every_request_cut_short_at_every_point_can_be_sent_again(
    stacks: Stacks, tmp_path: Path, name: StackName
) -> None:
    count = _run(stacks, name, tmp_path, ON_THE_WAY)
    print(f"\n{name}: {count} crashes of a server in the middle of a request")
