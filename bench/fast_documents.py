"""What the cache of parsed documents earns: commits to a table with many snapshots, with it and without it.

    python -m bench.fast_documents [--snapshots N] [--rounds N]

Both catalogs are in this process, on SQLite and local files, and take turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from bench.catalog.operations import document
from catalog.fast.reads import DocumentCache
from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services import commits, namespaces, tables
from catalog.services.catalog import Catalog, Limits
from catalog.services.commits import TableCommit
from catalog.services.warehouse_state import Documents
from catalog.services.warehouses import ensure_main
from catalog.services.writes import WriteContext
from catalog.storage.files import StorageFiles
from catalog.storage.s3 import S3Settings
from catalog.store.database import Database
from catalog.store.migrations import migrate

TABLE = Identifier(Namespace(("db",)), "grown")
ASKED = WriteContext("bench")
CACHE_BYTES_MAX = 64 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="calve-documents-") as folder:
        catalogs = {
            "with": _catalog(Path(folder) / "with", DocumentCache(CACHE_BYTES_MAX), given.snapshots),
            "without": _catalog(Path(folder) / "without", Documents(), given.snapshots),
        }
        took_s: dict[str, list[float]] = {name: [] for name in catalogs}
        for number in range(given.rounds):
            for name, catalog in catalogs.items():
                took_s[name].append(_commit(catalog, number))
        for name, catalog in catalogs.items():
            print(f"{name:8} {statistics.median(took_s[name]) * 1000:6.2f} ms a commit")
            catalog.database.close()


def _catalog(folder: Path, documents: Documents, snapshots: int) -> Catalog:
    """A catalog with one table of so many snapshots, registered from a metadata file."""
    folder.mkdir()
    root = f"file://{folder}/warehouse"
    database = Database(f"sqlite:///{folder}/catalog.db")
    migrate(database)
    files = StorageFiles(S3Settings(), file_roots=[root])
    catalog = Catalog(database, files, Limits(), lambda _root: {}, documents=documents)
    ensure_main(catalog, root)
    state = catalog.state(WarehouseRef("main"))
    namespaces.create(catalog, state, ASKED, TABLE.namespace, {})
    location = f"{state.warehouse.root}/grown"
    file = f"{location}/metadata/{snapshots:05}-{uuid.uuid4()}.metadata.json"
    path = Path(urlsplit(file).path)
    path.parent.mkdir(parents=True)
    path.write_bytes(orjson.dumps(document(location, str(uuid.uuid4()), snapshots)))
    tables.register(catalog, state, ASKED, TABLE, file, overwrite=False)
    return catalog


def _commit(catalog: Catalog, number: int) -> float:
    update = {"action": "set-properties", "updates": {"n": str(number)}}
    began = time.perf_counter()
    commits.commit_tables(
        catalog, catalog.state(WarehouseRef("main")), ASKED, [TableCommit(TABLE, [], [update])]
    )
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
