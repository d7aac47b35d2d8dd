"""The operations of one table, as steps that `Connection` and `AsyncConnection` run.

Each is a route below /lake/v1/{warehouse}/namespaces/{namespace}/tables/{table}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import quote

from calve.client.calls import Call, Steps
from calve.client.names import table_path
from calve.client.operations import WarehouseAddress
from calve.client.times import Moment, moment_parameter
from calve.client.values import from_json
from calve.errors import TooLarge

Document = dict[str, Any]
Key = Any
"""The value of a one-column key, or a dict of the key's columns."""

FILES_TIMEOUT_S = 600.0
ROWS_MAX = 10_000  # of one request, which has no pages


@dataclass(frozen=True, slots=True)
class TableOperations:
    address: WarehouseAddress
    levels: tuple[str, ...]

    def _get(self, rest: str, params: Mapping[str, Any] | None = None) -> Steps[Document]:
        response = yield Call("GET", self.address.table(self.levels, rest), params or {})
        found: Document = response.json()
        return found

    def _post(self, rest: str, body: Any, timeout_s: float | None = None) -> Steps[Document]:
        response = yield Call("POST", self.address.table(self.levels, rest), json=body, timeout_s=timeout_s)
        found: Document = response.json()
        return found

    def _pages(self, rest: str, params: Mapping[str, Any], name: str) -> Steps[list[Document]]:
        found: list[Document] = []
        token = None
        while True:
            page = yield from self._get(rest, {**params, "pageToken": token})
            found += page[name]
            token = page.get("next-page-token")
            if not token:
                return found

    def metadata(self, snapshots: str | None) -> Steps[Document]:
        path = self.address.catalog(table_path(self.levels, self.address.separator))
        response = yield Call("GET", path, {"snapshots": snapshots})
        found: Document = response.json()["metadata"]
        return found

    # -- rows

    def rows(
        self,
        where: str | None,
        columns: Sequence[str] | None,
        as_of: Moment | None,
        dates: tuple[date | str | None, date | str | None] | None,
        date_column: str | None,
        limit: int | None,
    ) -> Steps[list[Document]]:
        from_date, to_date = dates or (None, None)
        params = {
            "where": where,
            "columns": ",".join(columns) if columns else None,
            "as_of": moment_parameter(as_of),
            "from_date": None if from_date is None else str(from_date),
            "to_date": None if to_date is None else str(to_date),
            "date_column": date_column,
            "limit": ROWS_MAX if limit is None else limit,
        }
        found = yield from self._get("/rows", params)
        if limit is None and found["truncated"]:
            raise TooLarge(f"There are more than {ROWS_MAX} rows: give where=, limit=, or use lake.query().")
        return [_typed(row, found["columns"]) for row in found["rows"]]

    def get(self, key: Key, as_of: Moment | None) -> Steps[Document | None]:
        path = f"/rows/{quote(key_text(key), safe='')}"
        found = yield from self._get(path, {"as_of": moment_parameter(as_of)})
        return None if found["row"] is None else _typed(found["row"], found["columns"])

    # -- time

    def snapshots(self, as_of: Moment | None) -> Steps[list[Document]]:
        return (yield from self._pages("/snapshots", {"as_of": moment_parameter(as_of)}, "snapshots"))

    def snapshot_as_of(self, moment: Moment) -> Steps[Document | None]:
        page = yield from self._get("/snapshots", {"as_of": moment_parameter(moment)})
        return next((one for one in page["snapshots"] if one["is_current"]), None)

    def history(self, key: Key) -> Steps[list[Document]]:
        return (yield from self._pages("/history", {"key": key_text(key)}, "versions"))

    def changes(self, from_: Moment | None, to: Moment | None) -> Steps[Document]:
        """All pages as one. The first page decides where they end."""
        params = {"from": moment_parameter(from_), "to": moment_parameter(to)}
        found = yield from self._get("/changes", params)
        token = found.pop("next-page-token", None)
        while token:
            page = yield from self._get("/changes", {**params, "to": found["to_number"], "pageToken": token})
            found["changes"] += page["changes"]
            token = page.get("next-page-token")
        return found

    def diff(self, from_: Moment, to: Moment | None, limit: int | None) -> Steps[Document]:
        params = {"from": moment_parameter(from_), "to": moment_parameter(to), "limit": limit}
        return (yield from self._get("/diff", params))

    def rollback(self, moment: Moment | None, snapshot_id: int | None, dry_run: bool) -> Steps[Document]:
        body: Document = {"dry_run": dry_run}
        if moment is not None:
            body["as_of"] = moment_parameter(moment)
        if snapshot_id is not None:
            body["snapshot_id"] = snapshot_id
        return (yield from self._post("/rollback", body))

    def pause(self, reason: str | None) -> Steps[Document]:
        return (yield from self._post("/ingest/pause", {} if reason is None else {"reason": reason}))

    def resume(self) -> Steps[Document]:
        return (yield from self._post("/ingest/resume", {}))

    def begin_resync(self) -> Steps[Document]:
        return (yield from self._post("/resync", {}))

    def end_resync(self) -> Steps[Document]:
        return (yield from self._post("/resync/end", {}))

    def abort_resync(self) -> Steps[Document]:
        return (yield from self._post("/resync/abort", {}))

    def skip(self, up_to: int | None) -> Steps[Document]:
        return (yield from self._post("/ingest/skip", {} if up_to is None else {"up-to": up_to}))

    def rebuild(self, reason: str | None) -> Steps[Document]:
        return (yield from self._post("/rebuild", {} if reason is None else {"reason": reason}))

    def ingest_settings(self) -> Steps[Document]:
        return (yield from self._get("/ingest"))

    def set_ingest_settings(self, changed: Mapping[str, Any]) -> Steps[Document]:
        """`PUT` replaces all settings, so those that are not named are sent as they are."""
        present = yield from self._get("/ingest")
        response = yield Call("PUT", self.address.table(self.levels, "/ingest"), json={**present, **changed})
        found: Document = response.json()
        return found

    def maintenance(self) -> Steps[Document]:
        return (yield from self._get("/maintenance"))

    def verification(self) -> Steps[Document]:
        return (yield from self._get("/verification"))

    def verify(self) -> Steps[Document]:
        return (yield from self._post("/verify", {}))

    def post_checksums(self, checksums: Document) -> Steps[Document]:
        return (yield from self._post("/verification", checksums))

    def maintain(self, action: str, dry_run: bool) -> Steps[Document]:
        path = self.address.table(self.levels, f"/{action}")
        response = yield Call("POST", path, {"dry-run": dry_run}, timeout_s=FILES_TIMEOUT_S)
        found: Document = response.json()
        return found

    def refs(self, kind: str) -> Steps[list[Document]]:
        found: list[Document] = (yield from self._get(f"/{kind}"))[kind]
        return found

    def create_ref(
        self, kind: str, name: str, snapshot_id: int | None, as_of: Moment | None
    ) -> Steps[Document]:
        body: Document = {"name": name}
        if snapshot_id is not None:
            body["snapshot_id"] = snapshot_id
        if as_of is not None:
            body["as_of"] = moment_parameter(as_of)
        return (yield from self._post(f"/{kind}", body))

    def drop_ref(self, kind: str, name: str) -> Steps[None]:
        yield Call("DELETE", self.address.table(self.levels, f"/{kind}/{quote(name, safe='')}"))

    # -- schema, partitions, files

    def schema(self, as_of: Moment | None) -> Steps[Document]:
        return (yield from self._get("/schema", {"as_of": moment_parameter(as_of)}))

    def check_schema(self, columns: Sequence[Document]) -> Steps[Document]:
        return (yield from self._post("/schema/check", {"columns": list(columns)}))

    def evolve(self, changes: Document) -> Steps[Document]:
        return (yield from self._post("/schema/evolve", _given(changes)))

    def partitions(self, as_of: Moment | None) -> Steps[Document]:
        return (yield from self._get("/partitions", {"as_of": moment_parameter(as_of)}))

    def evolve_partitions(self, changes: Document) -> Steps[Document]:
        return (yield from self._post("/partitions", _given(changes)))

    def files(self, filter_: str | None, as_of: Moment | None) -> Steps[Document]:
        return (yield from self._get("/files", {"filter": filter_, "as_of": moment_parameter(as_of)}))

    def append_files(self, paths: Sequence[str]) -> Steps[Document]:
        return (yield from self._post("/append-files", {"files": list(paths)}, FILES_TIMEOUT_S))

    def overwrite_files(self, paths: Sequence[str], where: str | None) -> Steps[Document]:
        body = _given({"files": list(paths), "where": where})
        return (yield from self._post("/overwrite-files", body, FILES_TIMEOUT_S))

    def export(
        self, location: str, as_of: Moment | None, where: str | None, columns: Sequence[str] | None
    ) -> Steps[Document]:
        body = {"location": location, "as_of": moment_parameter(as_of), "where": where, "columns": columns}
        return (yield from self._post("/export", _given(body), FILES_TIMEOUT_S))


def _given(body: Document) -> Document:
    return {name: value for name, value in body.items() if value is not None}


def _typed(row: Document, columns: Sequence[Document]) -> Document:
    types = {column["name"]: column["type"] for column in columns}
    return {name: from_json(value, types.get(name, "")) for name, value in row.items()}


def key_text(key: Key) -> str:
    """A key in a URL: the value itself, or a JSON object of its columns."""
    if isinstance(key, Mapping):
        return json.dumps(dict(key), default=str, ensure_ascii=False)
    return str(key)
