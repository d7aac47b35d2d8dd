"""`calve check` finds every kind of damage; `--repair` writes missing files again and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from catalog.services import commits, tables
from catalog.services.catalog import Catalog
from catalog.services.check import Finding, check
from catalog.services.commits import TableCommit
from catalog.store.database import pack, unpack
from catalog.store.schema import entries
from tests.concurrency.catalog_address import CONTEXT, CatalogAddress, create_tables, state, table
from tests.harness.rest import Rest, append_body
from tests.harness.stacks import STACKS, Stacks

TABLES = ("a", "b", "c", "d")


@dataclass(frozen=True, slots=True)
class Lake:
    """A catalog of four tables, with the files and the rows behind it in reach."""

    catalog: Catalog
    folder: Path  # where the files of the warehouse are on this machine
    root: str

    def check(self, *, repair: bool = False) -> dict[str, Finding]:
        """What is found, by table."""
        return {found.name.removeprefix("db."): found for found in check(self.catalog, repair=repair)}

    def location(self, name: str) -> str:
        return str(tables.require(state(self.catalog), table(name)).metadata_location)

    def file(self, name: str) -> Path:
        return self.folder / self.location(name).removeprefix(self.root + "/")

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def alter_row(self, name: str, **values: Any) -> None:
        statement = sa.update(entries).where(entries.c.namespace == "db", entries.c.name == name)
        self.catalog.database.write(lambda connection: connection.execute(statement.values(**values)))

    def alter_document(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        query = sa.select(entries.c.document).where(entries.c.namespace == "db", entries.c.name == name)
        packed = self.catalog.database.write(lambda connection: connection.execute(query).scalar_one())
        document = orjson.loads(unpack(packed))
        change(document)
        self.alter_row(name, document=pack(orjson.dumps(document)))


@pytest.fixture(params=STACKS)
def lake(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> Iterator[Lake]:
    address = CatalogAddress.fresh(stacks, request.param, tmp_path)
    folder = stacks.s3.path(address.root) if address.s3 else Path(address.root.removeprefix("file://"))
    with address.opened() as catalog:
        create_tables(catalog, *TABLES)
        for name in TABLES:
            body = append_body(orjson.loads(tables.load(state(catalog), table(name)).document or b""))
            wanted = TableCommit(table(name), body["requirements"], body["updates"])
            commits.commit_tables(catalog, state(catalog), CONTEXT, [wanted])
        yield Lake(catalog, folder, address.root)


def test_nothing_is_found_where_nothing_is_wrong(lake: Lake) -> None:
    found = lake.check(repair=True)
    assert sorted(found) == sorted(TABLES)
    assert not any(finding.problems or finding.repaired for finding in found.values())


def test_every_damage_is_found_and_only_missing_files_are_repaired(lake: Lake) -> None:
    gone, altered = lake.file("a"), lake.file("b")
    text = gone.read_bytes()
    gone.unlink()
    altered.write_bytes(altered.read_bytes().replace(b'"name"', b'"nome"', 1))

    def lose_the_snapshot_of_main(document: dict[str, Any]) -> None:
        document["snapshots"] = []

    lake.alter_document("c", lose_the_snapshot_of_main)
    found = lake.check()
    assert found["a"].problems == [f"the file {lake.location('a')} is missing (--repair writes it again)"]
    assert found["b"].problems == [f"the file {lake.location('b')} differs from the row"]
    assert f"the file {lake.location('c')} differs from the row" in found["c"].problems
    assert len(found["c"].problems) > 1  # and what is wrong with the document itself
    assert found["d"].problems == []

    before = lake.files()
    repaired = lake.check(repair=True)
    assert {name: finding.repaired for name, finding in repaired.items() if finding.repaired} == {
        "a": lake.location("a")
    }
    assert [repaired[name].problems for name in "bcd"] == [found[name].problems for name in "bcd"]
    after = lake.files()
    assert set(after) - set(before) == {str(gone)}
    assert orjson.loads(after[str(gone)]) == orjson.loads(text)
    assert {path: after[path] for path in before} == before
    assert lake.check()["a"].problems == []


def test_a_file_that_cannot_be_read_is_found_and_left_alone(lake: Lake) -> None:
    contents = {"a": b"{", "b": b"\x1f\x8b" + bytes(20), "c": b""}
    for name, content in contents.items():
        lake.file(name).write_bytes(content)
    found = lake.check(repair=True)
    for name, content in contents.items():
        assert len(found[name].problems) == 1
        assert "cannot be read" in found[name].problems[0]
        assert lake.file(name).read_bytes() == content
    assert found["d"].problems == []


def test_a_row_that_means_another_table_is_found(lake: Lake) -> None:
    lake.alter_row("a", uuid=str(uuid.uuid4()))
    lake.alter_row("b", metadata_location=lake.location("c"))
    found = lake.check()
    assert found["a"].problems == ["the row and its document name different uuids"]
    assert found["b"].problems == [f"the file {lake.location('c')} differs from the row"]


def test_the_command_says_what_it_found(stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started("embedded", tmp_path / "own") as stack:
        rest = Rest(stack.url)
        namespace = rest.fresh_namespace()
        location = rest.create(namespace, "t")["metadata-location"]
        Path(location.removeprefix("file://")).unlink()
        damaged, repaired, sound = (
            stack.server.command("check", *words) for words in ((), ("--repair",), ())
        )
    named = f"main: {namespace}.t:"
    missing = f"{named} the file {location} is missing (--repair writes it again)"
    assert (damaged.returncode, damaged.stdout) == (1, f"{missing}\n1 entries checked, 1 problems\n")
    assert (repaired.returncode, repaired.stdout) == (
        0,
        f"{named} wrote {location} again\n1 entries checked, 0 problems\n",
    )
    assert (sound.returncode, sound.stdout) == (0, "1 entries checked, 0 problems\n")
