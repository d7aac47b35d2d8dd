"""An object store that refuses, hangs, breaks off or loses its answers: tests/harness/tcp_proxy.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from catalog.errors import Unavailable
from catalog.storage.files import StorageFiles
from tests.harness.s3 import S3Server
from tests.harness.storage_roots import s3_settings
from tests.harness.tcp_proxy import Fault, TcpProxy

DATA = b"metadata " * 500
PASSING = [Fault.HANG, Fault.RESET, Fault.ERROR_503, Fault.TRUNCATE, Fault.LOSE_REPLY]
SERVED = [Fault.TRUNCATE, Fault.LOSE_REPLY]  # the store does the work and the client does not learn of it


@dataclass(frozen=True, slots=True)
class Broken:
    """Files behind a proxy; `direct` goes around it."""

    proxy: TcpProxy
    files: StorageFiles
    direct: StorageFiles
    root: str

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"


@pytest.fixture
def broken(s3: S3Server) -> Iterator[Broken]:
    with TcpProxy(("127.0.0.1", s3.port)) as proxy:
        quick = replace(s3_settings(s3.access, proxy.endpoint), request_timeout_s=0.3, connect_timeout_s=0.3)
        files = StorageFiles(quick)
        yield Broken(proxy, files, StorageFiles(s3_settings(s3.access)), f"s3://{s3.bucket()}/t")


Operation = Callable[[Broken], object]
OPERATIONS: dict[str, Operation] = {
    "read": lambda broken: broken.files.read(broken.at("old.json")),
    "create": lambda broken: broken.files.create(broken.at("new.json"), DATA),
    "exists": lambda broken: broken.files.exists(broken.at("old.json")),
    "delete": lambda broken: broken.files.delete([broken.at("old.json")]),
    "probe": lambda broken: broken.files.probe(broken.root),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.name)
def test_a_fault_that_passes_is_not_noticed(broken: Broken, fault: Fault, operation: str) -> None:
    broken.direct.create(broken.at("old.json"), DATA)
    for times in (1, 2):
        broken.proxy.fail(fault, times=times)
        answer = OPERATIONS[operation](broken)
        expected = {"read": DATA, "exists": True, "delete": 1}
        assert answer == expected.get(operation)
        if operation == "create":
            assert broken.direct.read(broken.at("new.json")) == DATA
            broken.direct.delete([broken.at("new.json")])


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.name)
def test_a_fault_that_stays_is_unavailable(broken: Broken, fault: Fault, operation: str) -> None:
    broken.direct.create(broken.at("old.json"), DATA)
    broken.proxy.fail(fault)
    with pytest.raises(Unavailable) as caught:
        OPERATIONS[operation](broken)
    assert broken.root.split("/")[2] in caught.value.message
    assert "calvesecret" not in caught.value.message
    assert broken.proxy.exchanges == 4  # the first try and three more
    broken.proxy.heal()
    if operation != "delete":
        assert broken.files.read(broken.at("old.json")) == DATA


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_store_that_is_away_and_comes_back(broken: Broken, operation: str) -> None:
    broken.direct.create(broken.at("old.json"), DATA)
    broken.proxy.refuse()
    with pytest.raises(Unavailable, match="cannot be reached"):
        OPERATIONS[operation](broken)
    broken.proxy.heal()
    OPERATIONS[operation](broken)


@pytest.mark.parametrize("fault", SERVED, ids=lambda fault: fault.name)
def test_a_create_whose_answer_was_lost_is_no_conflict(broken: Broken, fault: Fault) -> None:
    broken.proxy.fail(fault, times=1)
    broken.files.create(broken.at("new.json"), DATA)
    assert broken.proxy.exchanges == 3  # served and lost; refused as existing; compared
    assert broken.direct.read(broken.at("new.json")) == DATA


@pytest.mark.parametrize("other", [b"someone else's", bytes(len(DATA))], ids=["longer", "as long"])
def test_a_retried_create_on_a_taken_name_is_a_conflict(broken: Broken, other: bytes) -> None:
    broken.direct.create(broken.at("new.json"), other)
    broken.proxy.fail(Fault.LOSE_REPLY, times=1)
    with pytest.raises(FileExistsError):
        broken.files.create(broken.at("new.json"), DATA)
    assert broken.direct.read(broken.at("new.json")) == other


def test_the_comparison_may_fail_too(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """Served and lost; refused as existing; the comparison breaks off; refused again; compared."""
    faults = iter([Fault.LOSE_REPLY, None, Fault.TRUNCATE])
    monkeypatch.setattr(broken.proxy, "_take", lambda: next(faults, None))
    broken.files.create(broken.at("new.json"), DATA)
    assert broken.direct.read(broken.at("new.json")) == DATA


def test_a_create_given_up_leaves_a_whole_file_or_none(broken: Broken) -> None:
    for number, fault in enumerate(PASSING):
        broken.proxy.fail(fault)
        location = broken.at(f"{number}.json")
        with pytest.raises(Unavailable):
            broken.files.create(location, DATA)
        assert not broken.direct.exists(location) or broken.direct.read(location) == DATA


def test_no_try_is_begun_that_could_end_too_late(s3: S3Server) -> None:
    with TcpProxy(("127.0.0.1", s3.port)) as proxy:
        proxy.fail(Fault.HANG)
        settings = replace(
            s3_settings(s3.access, proxy.endpoint), request_timeout_s=0.4, total_timeout_s=0.7, retries_max=50
        )
        with pytest.raises(Unavailable, match="did not answer in time"):
            StorageFiles(settings).read(f"s3://{s3.bucket()}/x")
        assert proxy.exchanges == 1


def test_a_refusal_is_not_tried_again(s3: S3Server) -> None:
    with TcpProxy(("127.0.0.1", s3.port)) as proxy:
        wrong = replace(s3_settings(s3.access, proxy.endpoint), secret_access_key="not-the-secret")
        bucket = s3.bucket()
        with pytest.raises(Unavailable) as caught:
            StorageFiles(wrong).create(f"s3://{bucket}/t/1.json", DATA)
        assert caught.value.message == f"Cannot write s3://{bucket}/t/1.json (bucket {bucket}): access denied"
        assert proxy.exchanges == 1
