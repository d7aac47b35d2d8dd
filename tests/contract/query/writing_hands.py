"""Workers by hand that write rows, so that queries can read the mirrors."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.contract.ingest.hand import Hand, Job
from tests.harness.rest import identified


class WritingHand(Hand):
    """Writes a row of nulls to each mirror. `catalog` opens a warehouse."""

    def __init__(self, url: str, catalog: Callable[[str], RestCatalog]) -> None:
        super().__init__(url)
        self._catalog = catalog
        self._staged: dict[tuple[str, ...], list[str]] = {}

    def work(self, job: Job) -> dict[str, int]:
        """In an open transaction, as a MERGE does it."""
        self.abort()
        self._staged = {(*table["namespace"], table["name"]): table["files"] for table in job["tables"]}
        inside = self.rest.open_transaction(self.transaction)
        for table in job["tables"]:
            (space,) = table["namespace"]
            prepared = [
                identified(space, name, {key: state[key] for key in ("requirements", "updates")})
                for name, state in table["states"].items()
                if state["updates"]
            ]
            if prepared:
                inside.ok("POST", inside.path("transactions", "commit"), json={"table-changes": prepared})
            for name in table["states"]:
                if name.endswith("__changes"):
                    inside.append(space, name)
                else:
                    mirror = self._catalog(f"main~{self.transaction}").load_table((space, name))
                    self.write(mirror, self._staged[space, name])
        return {}

    def publish_body(self, job: Job) -> dict[str, Any]:
        return {"epoch": job["epoch"], "transaction": self.transaction}

    def write(self, mirror: Table, staged: list[str]) -> None:
        schema = mirror.schema().as_arrow()
        mirror.append(pa.Table.from_arrays([_filler(field) for field in schema], schema=schema))


class InsertingHand(WritingHand):
    """Appends the staged rows to the mirrors, which is right for inserts of new keys."""

    def write(self, mirror: Table, staged: list[str]) -> None:
        schema = mirror.schema().as_arrow()
        for path in staged:
            with mirror.io.new_input(path).open() as file:
                rows = pq.read_table(io.BytesIO(file.read()))
            rows = rows.filter(pc.is_in(rows.column("_calve_operation"), pa.array(["insert", "update"])))
            columns = [
                rows.column(field.name).cast(field.type)
                if field.name in rows.column_names
                else pa.nulls(rows.num_rows, field.type)
                for field in schema
            ]
            mirror.append(pa.table(columns, schema=schema))


def _filler(field: pa.Field) -> pa.Array:
    return pa.array([None], field.type) if field.nullable else pa.array([0]).cast(field.type)
