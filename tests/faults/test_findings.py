"""What these tests have found, each as small as it can be."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from catalog.errors import Conflict, NoSuchTransaction, Unavailable
from catalog.services import commits, tables, transactions
from catalog.services.catalog import Catalog
from catalog.services.check import check
from catalog.services.commits import TableCommit
from catalog.store.database import Database, pack
from catalog.store.schema import entries
from tests.concurrency.catalog_address import CONTEXT, CatalogAddress, create_tables, state, table
from tests.concurrency.in_process_client import InProcessClient, error
from tests.concurrency.lock_step import GATES, Steps, lanes
from tests.faults.test_unknown_commits import commits_without_answers
from tests.harness.rest import SCHEMA, append_body
from tests.harness.s3 import S3Server
from tests.harness.stacks import STACKS, Stacks
from tests.harness.storage_roots import s3_settings
from tests.harness.tcp_proxy import Fault, TcpProxy


@pytest.fixture(params=STACKS)
def address(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> CatalogAddress:
    return CatalogAddress.fresh(stacks, request.param, tmp_path, local_files=True)


@pytest.fixture
def catalog(address: CatalogAddress) -> Iterator[Catalog]:
    with address.opened() as opened:
        create_tables(opened, "a", "b")
        yield opened


def _metadata(catalog: Catalog, name: str, within: str = "main") -> dict[str, Any]:
    metadata: dict[str, Any] = orjson.loads(tables.load(state(catalog, within), table(name)).document or b"")
    return metadata


def _property(name: str, key: str, requirements: list[Any] | None = None) -> TableCommit:
    return TableCommit(table(name), requirements or [], [{"action": "set-properties", "updates": {key: "1"}}])


def _no_read(self: Database, *_: Any) -> Any:
    raise Unavailable("the catalog database does not answer; try again")


def _no_write(self: Database, *_: Any) -> Any:
    raise Unavailable("the catalog database refused the write; nothing was changed")


PATH = {"namespace": "db", "table": "a"}


def test_a_replay_without_a_database_is_not_told_that_it_did_not_happen(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It landed, its answer was lost, and nobody can look: 409 would make its client delete the files."""
    client, body = InProcessClient(catalog), append_body(_metadata(catalog, "a"))
    assert client.call("updateTable", PATH, body).status_code == 200
    monkeypatch.setattr(Database, "fetch_all", _no_read)
    assert client.call("updateTable", PATH, body).status_code >= 500


def test_an_unknown_commit_with_a_key_stays_unknown(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMMIT was not confirmed, because the database died; the look at the key fails for the same reason."""
    client, body = InProcessClient(catalog), append_body(_metadata(catalog, "a"))
    commits_without_answers(monkeypatch, lands=True)
    transaction = Database.transaction

    def once(self: Database, work: Any) -> Any:
        try:
            return transaction(self, work)
        finally:
            monkeypatch.setattr(Database, "fetch_all", _no_read)

    monkeypatch.setattr(Database, "transaction", once)
    answer = client.call("updateTable", PATH, body, key=str(uuid.uuid4()))
    assert error(answer) == (500, "CommitStateUnknownException")


def test_a_transaction_that_landed_is_a_replay_as_a_whole(catalog: Catalog) -> None:
    """One table got a snapshot, the other a property and then a snapshot of others, before the replay."""
    append = append_body(_metadata(catalog, "a"))
    unmoved = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
    wanted = [
        TableCommit(table("a"), append["requirements"], append["updates"]),
        _property("b", "p", unmoved),
    ]
    commits.commit_tables(catalog, state(catalog), CONTEXT, wanted)
    other = append_body(_metadata(catalog, "b"))
    commits.commit_tables(
        catalog, state(catalog), CONTEXT, [TableCommit(table("b"), other["requirements"], other["updates"])]
    )
    head = catalog.entries.number("main")
    commits.commit_tables(catalog, state(catalog), CONTEXT, wanted)
    assert catalog.entries.number("main") == head


def test_writers_of_one_transaction_do_not_overwrite_each_other(
    address: CatalogAddress, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One looks at the table; writes of another come in between; the first must see them and try again."""
    for key in ("x", "y"):  # the version inside a transaction counts from 1, and can meet that of the table
        commits.commit_tables(catalog, state(catalog), CONTEXT, [_property("a", key)])
    version = tables.require(state(catalog), table("a")).version
    transactions.open_transaction(catalog, "main", "tester", "w")

    def write(own: Catalog, *keys: str) -> None:
        for key in keys:
            commits.commit_tables(own, state(own, "main~w"), CONTEXT, [_property("a", key)])

    theirs = [f"q{number}" for number in range(version)]
    with lanes(address) as (one, other):
        works = [
            (lambda: write(one.catalog, "mine"), GATES),
            (lambda: write(other.catalog, *theirs), frozenset[str]()),
        ]
        Steps([one, other], works).run([0, 1, 0, 0, 0, 0], monkeypatch)
    properties = _metadata(catalog, "a", "main~w")["properties"]
    assert {"mine", *theirs} <= set(properties)


def test_a_transaction_opened_by_a_server_whose_clock_is_behind_is_found(catalog: Catalog) -> None:
    """A lane uses its name again at once, perhaps through another server."""
    setattr(catalog, "now_ms", lambda: 2_000_000_000_000)  # noqa: B010
    transactions.open_transaction(catalog, "main", "tester", "w")
    commits.commit_tables(catalog, state(catalog, "main~w"), CONTEXT, [_property("a", "first")])
    first, _ = transactions.publish(catalog, "main", "tester", "w")
    setattr(catalog, "now_ms", lambda: 1_999_999_999_990)  # noqa: B010
    opened = transactions.open_transaction(catalog, "main", "tester", "w")
    assert transactions.newest(catalog, "main", "w").id == opened.id
    commits.commit_tables(catalog, state(catalog, "main~w"), CONTEXT, [_property("a", "second")])
    second, _ = transactions.publish(catalog, "main", "tester", "w")
    assert second != first
    assert "second" in _metadata(catalog, "a")["properties"]


def test_a_name_that_another_transaction_took_is_not_found_by_the_id(catalog: Catalog) -> None:
    """Its owner was checked for the first transaction: the second one may belong to somebody else."""
    first = transactions.open_transaction(catalog, "main", "alice", "w")
    transactions.abort(catalog, "main", "w", id_=first.id)
    second = transactions.open_transaction(catalog, "main", "bob", "w")
    with pytest.raises(NoSuchTransaction):
        transactions.publish(catalog, "main", "alice", "w", id_=first.id)
    with pytest.raises(NoSuchTransaction):
        transactions.extend(catalog, "main", "w", 60, id_=first.id)
    with pytest.raises(NoSuchTransaction):
        transactions.abort(catalog, "main", "w", id_=first.id)
    assert transactions.newest(catalog, "main", "w", id_=second.id).state == "open"


def test_a_key_is_remembered_inside_a_transaction(catalog: Catalog) -> None:
    transactions.open_transaction(catalog, "main", "tester", "w")
    client, key = InProcessClient(catalog), str(uuid.uuid4())
    body = {"name": "new", "schema": SCHEMA}
    answers = [
        client.call("createTable", {"prefix": "main~w", "namespace": "db"}, body, key=key).status_code
        for _ in range(2)
    ]
    assert answers == [200, 200]


def test_a_key_that_is_over_can_be_used_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    client, key, now_ms = InProcessClient(catalog), str(uuid.uuid4()), catalog.now_ms()
    assert client.call("dropTable", PATH, key=key).status_code == 204
    create_tables(catalog, "a")
    setattr(catalog, "now_ms", lambda: now_ms + 3_600_000)  # noqa: B010
    assert client.call("dropTable", PATH, key=key).status_code == 204
    assert client.call("tableExists", PATH).status_code == 404


def test_a_replay_is_answered_even_if_its_key_cannot_be_kept(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, body = InProcessClient(catalog), append_body(_metadata(catalog, "a"))
    assert client.call("updateTable", PATH, body).status_code == 200
    monkeypatch.setattr(Database, "write", _no_write)
    assert client.call("updateTable", PATH, body, key=str(uuid.uuid4())).status_code == 200


def test_a_protected_table_is_not_replaced_by_a_publish(catalog: Catalog) -> None:
    kept = tables.require(state(catalog), table("a")).uuid
    transactions.open_transaction(catalog, "main", "tester", "w")
    inside = state(catalog, "main~w")
    tables.drop_table(catalog, inside, CONTEXT, table("a"), purge=False)
    tables.create(catalog, inside, CONTEXT, table("a"), {"name": "a", "schema": SCHEMA})
    tables.protect(catalog, state(catalog), table("a"), True)
    with pytest.raises(Conflict, match="protected"):
        transactions.publish(catalog, "main", "tester", "w")
    assert tables.require(state(catalog), table("a")).uuid == kept


def test_a_protected_table_can_be_renamed_and_stays_protected(catalog: Catalog) -> None:
    tables.protect(catalog, state(catalog), table("a"), True)
    tables.rename(catalog, state(catalog), CONTEXT, table("a"), table("z"))
    assert tables.require(state(catalog), table("z")).protected
    with pytest.raises(Conflict, match="protected"):
        tables.drop_table(catalog, state(catalog), CONTEXT, table("z"), purge=False)


def test_a_table_renamed_and_dropped_in_a_transaction_can_come_back(catalog: Catalog) -> None:
    gone = tables.require(state(catalog), table("a")).uuid
    transactions.open_transaction(catalog, "main", "tester", "w")
    inside = state(catalog, "main~w")
    tables.rename(catalog, inside, CONTEXT, table("a"), table("z"))
    tables.drop_table(catalog, inside, CONTEXT, table("z"), purge=False)
    transactions.publish(catalog, "main", "tester", "w")
    assert gone in {
        found.entry.uuid for found in catalog.records.dropped_before("main", catalog.now_ms(), 2**62, "", 10)
    }


@pytest.mark.parametrize("document", [b"garbage", pack(b"{")], ids=["packed", "json"])
def test_check_finds_a_document_that_cannot_be_read(catalog: Catalog, document: bytes) -> None:
    statement = sa.update(entries).where(entries.c.name == "a").values(document=document)
    catalog.database.write(lambda connection: connection.execute(statement))
    found = {finding.name: finding.problems for finding in check(catalog)}
    assert found["db.a"]
    assert found["db.b"] == []


def test_a_store_that_fails_once_is_tried_again_with_the_default_settings(s3: S3Server) -> None:
    from dataclasses import replace

    from calve.settings import Settings
    from catalog.storage.files import StorageFiles

    default = Settings()
    with TcpProxy(("127.0.0.1", s3.port)) as proxy:
        settings = replace(
            s3_settings(s3.access, proxy.endpoint),
            connect_timeout_s=default.s3_connect_timeout_s,
            request_timeout_s=default.s3_request_timeout_s,
        )
        proxy.fail(Fault.ERROR_503, times=1)
        StorageFiles(settings).create(f"s3://{s3.bucket()}/t/1.json", b"{}")
