"""Purges go on in the background, and none is forgotten: not by a crash, a stop, a storage that is away."""

from __future__ import annotations

import io
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import httpx
import orjson
import pytest

from catalog.errors import NoSuchTable, Unavailable
from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services import namespaces, purge, tables, transactions, warehouses
from catalog.services.catalog import Catalog, Limits
from catalog.services.commits import TableCommit, commit_tables
from catalog.services.writes import WriteContext
from catalog.storage.files import StorageFiles
from catalog.store.database import Database
from catalog.store.dropped import PurgeStore
from catalog.store.migrations import migrate
from tests.harness.rest import SCHEMA, Rest, append_body
from tests.harness.server import CalveServer
from tests.harness.stacks import STACKS, Stack, StackName, Stacks
from tests.harness.storage_roots import STORAGE_KINDS, StorageRoot, storage_root_of
from tests.unit.storage.test_purge import ENTRY, LIST, avro, entry

ASKED = WriteContext("test")
NAMESPACE = Namespace(("ns",))
TABLE = Identifier(NAMESPACE, "t")
MANY = 10_000


class Gate:
    """Files whose deletes wait, or fail, for as long as a test wants."""

    def __init__(self, files: StorageFiles) -> None:
        self._files = files
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.failing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def delete(self, locations: Iterable[str]) -> int:
        self.reached.set()
        assert self.open.wait(60)
        if self.failing:
            raise Unavailable("the storage is away")
        return self._files.delete(locations)


@pytest.fixture(params=STORAGE_KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> StorageRoot:
    return storage_root_of(request, tmp_path)


@pytest.fixture
def gate(storage: StorageRoot) -> Gate:
    return Gate(storage.files)


@pytest.fixture
def catalog(
    storage: StorageRoot, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    monkeypatch.setattr(purge, "RESPONSE_WAIT_S", 0.05)
    database = Database(f"sqlite:///{tmp_path}/catalog.db")
    migrate(database)
    made = Catalog(database, gate, Limits(), lambda _: {})
    warehouses.ensure_main(made, storage.root)
    namespaces.create(made, made.state(WarehouseRef("main")), ASKED, NAMESPACE, {})
    yield made
    gate.open.set()
    made.purge_worker.stop()
    database.close()


def state(catalog: Catalog, transaction: str | None = None) -> Any:
    return catalog.state(WarehouseRef("main", transaction=transaction))


def written(catalog: Catalog, transaction: str | None = None) -> None:
    """A snapshot with a data file."""
    at = state(catalog, transaction)
    metadata = orjson.loads(tables.load(at, TABLE).document or b"")
    body = append_body(metadata)
    folder, name = metadata["location"], uuid.uuid4().hex
    data, manifest = f"{folder}/data/{name}.parquet", f"{folder}/metadata/{name}-m0.avro"
    body["updates"][0]["snapshot"]["manifest-list"] = listed = f"{folder}/metadata/snap-{name}.avro"
    catalog.files.create(data, b"data")
    catalog.files.create(manifest, avro("manifest_entry", ENTRY, [entry(data)], "deflate"))
    rows = [{"manifest_path": manifest, "manifest_length": 1}]
    catalog.files.create(listed, avro("manifest_file", LIST, rows, "deflate"))
    commit_tables(catalog, at, ASKED, [TableCommit(TABLE, body["requirements"], body["updates"])])


@pytest.fixture
def table(catalog: Catalog) -> str:
    entry = tables.create(catalog, state(catalog), ASKED, TABLE, {"name": "t", "schema": SCHEMA})
    written(catalog)
    return entry.uuid


def purge_table(catalog: Catalog) -> None:
    tables.drop_table(catalog, state(catalog), ASKED, TABLE, purge=True)


def eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.02)


def queued(catalog: Catalog) -> list[str]:
    return [found.uuid for found in PurgeStore(catalog.database).queued(10)]


def has_failed(catalog: Catalog) -> bool:
    """Whether a purge was tried and is put off, for much longer than one that goes on is held."""
    [found] = PurgeStore(catalog.database).queued(1)
    return found.leased_until_ms > catalog.now_ms() + 4 * purge.LEASE_S * 1000


def test_the_answer_does_not_wait_for_a_long_purge(
    catalog: Catalog, storage: StorageRoot, gate: Gate, table: str
) -> None:
    gate.open.clear()
    purge_table(catalog)
    with pytest.raises(NoSuchTable):
        tables.load(state(catalog), TABLE)
    assert storage.found()
    assert queued(catalog) == [table]
    assert catalog.records.dropped_before("main", 1, 2**62, "", 10) == []  # cannot be brought back
    gate.open.set()
    eventually(lambda: not storage.found() and not queued(catalog))


def test_a_short_purge_is_done_when_the_answer_comes(
    catalog: Catalog, storage: StorageRoot, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "RESPONSE_WAIT_S", 60)
    purge_table(catalog)
    assert (storage.found(), queued(catalog)) == (set(), [])


def test_a_stop_interrupts_a_purge_and_the_next_process_continues(
    catalog: Catalog, storage: StorageRoot, gate: Gate, table: str
) -> None:
    gate.open.clear()
    purge_table(catalog)
    assert gate.reached.wait(60)
    stopping = threading.Thread(target=catalog.purge_worker.stop)
    stopping.start()
    eventually(catalog.purge_worker._stopped.is_set)
    gate.open.set()
    stopping.join()
    assert storage.found()
    after = purge.PurgeWorker(catalog.database, storage.files)
    after.poll()
    assert (storage.found(), queued(catalog)) == (set(), [])
    after.stop()


def test_what_another_process_has_is_left_to_it_until_it_is_silent_for_too_long(
    catalog: Catalog, storage: StorageRoot, gate: Gate, table: str
) -> None:
    now_ms = catalog.now_ms()
    gate.failing = True
    purge_table(catalog)
    store = PurgeStore(catalog.database)
    eventually(lambda: has_failed(catalog))
    gate.failing = False
    far_ms = store.queued(1)[0].leased_until_ms
    assert store.lease("main", table, now_ms, far_ms) is None
    assert 0 < catalog.purge_worker.poll() <= purge.POLL_INTERVAL_S
    assert storage.found()
    # As if the time had passed.
    held = store.lease("main", table, far_ms, now_ms)
    assert held is not None
    catalog.purge_worker.poll()
    assert (storage.found(), queued(catalog)) == (set(), [])
    assert not store.renew(held, far_ms)


def test_an_unavailable_storage_is_retried(
    catalog: Catalog, storage: StorageRoot, gate: Gate, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "RESPONSE_WAIT_S", 60)
    monkeypatch.setattr(purge, "RETRY_AFTER_S", 0)
    gate.failing = True
    purge_table(catalog)
    assert storage.found()
    catalog.purge_worker.start()
    gate.failing = False
    catalog.purge_worker.poll()
    eventually(lambda: not storage.found() and not queued(catalog))


def test_a_publish_purges_what_only_the_transaction_has_written_too(
    catalog: Catalog, storage: StorageRoot, table: str
) -> None:
    before = storage.found()
    transactions.open_transaction(catalog, "main", "test", "work")
    written(catalog, "work")
    assert len(storage.found()) == len(before) + 3
    tables.drop_table(catalog, state(catalog, "work"), ASKED, TABLE, purge=True)
    _, staged = transactions.publish(catalog, "main", "test", "work")
    assert queued(catalog) == [table]
    assert [held.last.uuid for held in staged if transactions.is_purged(held)] == [table]
    catalog.purge_worker.poll()
    assert (storage.found(), queued(catalog)) == (set(), [])


def test_a_table_that_has_a_name_again_is_not_purged(
    catalog: Catalog, storage: StorageRoot, gate: Gate, table: str
) -> None:
    gate.failing = True
    metadata_location = tables.load(state(catalog), TABLE).metadata_location
    purge_table(catalog)
    eventually(lambda: has_failed(catalog))
    before = storage.found()
    gate.failing = False
    tables.register(catalog, state(catalog), ASKED, TABLE, metadata_location, overwrite=False)
    assert queued(catalog) == []
    catalog.purge_worker.poll()
    assert storage.found() == before


@pytest.mark.parametrize("name", STACKS)
def test_a_crash_between_drop_and_purge(stacks: Stacks, tmp_path: Path, name: StackName) -> None:
    with stacks.started(name, tmp_path / "own") as stack:
        rest = Rest(stack.url)
        namespace = rest.fresh_namespace()
        location = rest.create(namespace, "t")["metadata"]["location"]
        before = found_under(stack, stacks, location)
        assert before
        settings = {key: value for key, value in stack.server.settings.items() if key != "CALVE_PORT"}
        settings["CALVE_FAULTS"] = "write.before-answer=kill:1"
        with CalveServer.started(tmp_path / "doomed", settings) as doomed:
            dying = Rest(doomed.url)
            with pytest.raises(httpx.HTTPError):
                dying.call("DELETE", dying.table_path(namespace, "t"), params={"purgeRequested": "true"})
        assert rest.tables(namespace) == []
        assert found_under(stack, stacks, location) == before
        stack.server.restart()
        eventually(lambda: found_under(stack, stacks, location) == [])


def found_under(stack: Stack, stacks: Stacks, location: str) -> list[Path]:
    folder = stacks.s3.path(location) if stack.s3 else Path(location.removeprefix("file://"))
    return [path for path in folder.rglob("*") if path.is_file()]


def test_ten_thousand_files(stacks: Stacks, tmp_path: Path) -> None:
    """With a deadline that such a purge might miss."""
    with stacks.started("embedded", tmp_path, {"CALVE_REQUEST_TIMEOUT_S": "4"}) as stack:
        rest = Rest(stack.url)
        namespace = rest.fresh_namespace()
        metadata = rest.create(namespace, "t")["metadata"]
        folder = Path(metadata["location"].removeprefix("file://"))
        (folder / "data").mkdir()
        paths = [folder / f"data/{number}.parquet" for number in range(MANY)]
        for path in paths:
            path.touch()
            path.with_name(f".{path.name}.crc").touch()
        body = append_body(metadata)
        entries = [entry(f"file://{path}") for path in paths]
        manifest = folder / "metadata/m.avro"
        manifest.write_bytes(container("manifest_entry", ENTRY, entries))
        listed = Path(body["updates"][0]["snapshot"]["manifest-list"].removeprefix("file://"))
        rows = [{"manifest_path": f"file://{manifest}", "manifest_length": 1}]
        listed.write_bytes(container("manifest_file", LIST, rows))
        assert rest.commit(namespace, "t", body).status_code == 200
        gone = rest.call("DELETE", rest.table_path(namespace, "t"), params={"purgeRequested": "true"})
        assert gone.status_code == 204
        eventually(lambda: not folder.exists())


def container(name: str, fields: list[dict[str, Any]], rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, {"type": "record", "name": name, "fields": fields}, rows)
    return file.getvalue()
