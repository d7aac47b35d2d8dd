"""Every rule about what a mirror means, in every format that it applies to, from POST to DuckDB and Spark.

All cases run together: each round of all of them lands with one flush, so the matrix costs a few batches.
After each round DuckDB reads the mirrors; at the end Spark reads all of them and the views of histories, and
mirrors are verified against their changes tables.
"""

from __future__ import annotations

import functools
import time
import traceback
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import duckdb
import httpx
import orjson
import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from tests.clients.duckdb_client import DuckLake
from tests.clients.spark_client import SparkLake, SparkRefused, started_session
from tests.contract.ingest.producers import POSITIONED, Row
from tests.pipeline.conftest import Pipeline
from tests.pipeline.meaning_cases import CASES, Case
from tests.pipeline.source_table import Rounds, SourceTable

pytestmark = pytest.mark.timeout(900)
WAIT_S = 240
LATE = (12, 13, 14)  # keys of changes that come late: their versions depend on the format


_SALT = sa.text("SELECT DISTINCT salt FROM landing_sources WHERE warehouse = 'main'")


@dataclass(slots=True)
class Running:
    """A case in one format, its table, and what was wrong with it."""

    table: SourceTable
    rounds: Rounds
    round: int = 0
    over: bool = False
    wrong: list[str] = field(default_factory=list)

    def advance(self) -> bool:
        """Run the next round; False if there is none."""
        if self.over:
            return False
        self.round += 1
        try:
            next(self.rounds)
        except StopIteration:
            self.over = True
        except (AssertionError, httpx.HTTPError):
            self.over = True
            self.wrong.append(f"round {self.round}: {traceback.format_exc(limit=-3)}")
        return not self.over

    def compare(self, reader: str, read: Callable[[], list[Row]]) -> None:
        expected = self.table.expected()
        try:
            found = read()
        except duckdb.Error as error:
            self.wrong.append(f"round {self.round}, {reader}: {error}")
            return
        if [_typed(row) for row in found] != [_typed(row) for row in expected]:
            lines = (f"  {name}: {row}" for name, rows in (("+", found), ("-", expected)) for row in rows)
            self.wrong.append("\n".join([f"round {self.round}, {reader} (+) and the source (-):", *lines]))


def _typed(row: Row) -> dict[str, tuple[str, object]]:
    """1 is not 1.0."""
    return {name: (type(value).__name__, value) for name, value in row.items()}


class Matrix:
    """All cases on one stack."""

    def __init__(self, pipeline: Pipeline, client: httpx.Client) -> None:
        self._pipeline = pipeline
        self._client = client
        self.tables: set[str] = set()
        self.spaces: set[str] = set()
        self.space = f"n{uuid.uuid4().hex[:8]}"
        self.running = {
            (case.name, format_): self._begun(case, format_) for case in CASES for format_ in case.formats
        }

    def _begun(self, case: Case, format_: str) -> Running:
        name = f"{case.name}_{format_}".replace("-", "_")
        raw = f"{self.space}_raw" if case.name == "history" else ""
        table = SourceTable(self._client, self.space, name, format_, self.salt, sent_as=raw, **case.about)
        return Running(table, case.run(table))

    @functools.cache  # noqa: B019 - as long as the test process
    def salt(self) -> bytes:
        engine = sa.create_engine(self._pipeline.stack.database)
        with engine.connect() as connection:
            found = connection.execute(_SALT).scalar_one()
        engine.dispose()
        return bytes(found)

    def run(self) -> None:
        while True:
            advanced = [one for one in self.running.values() if one.advance()]
            if not advanced:
                return
            self._flush()
            with DuckLake(self._pipeline.stack) as lake:
                for one in [one for one in advanced if one.table.is_settled]:
                    one.compare("DuckDB", functools.partial(_duckdb_rows, lake, one.table))

    def _flush(self) -> None:
        names = [f"{self.space}.{one.table.name}" for one in self.running.values() if not one.table.waits]
        until_s = time.monotonic() + WAIT_S
        while True:
            body = {"wait": True, "timeout_s": 30, "tables": names}
            answer = self._client.post("/flush", json=body).raise_for_status()
            if answer.json()["committed"]:
                return
            assert time.monotonic() < until_s, self._client.get("/status").text

    def read_with_spark(self, lake: SparkLake) -> None:
        """All mirrors in one query, as JSON; then all views. A wrong case would make the query fail."""
        sound = {name: one for name, one in self.running.items() if not one.wrong}
        queries = [_json_query(one.table, lake.catalog()) for one in sound.values()]
        found = _grouped(lake.sql(" UNION ALL ".join(queries)))
        for one in sound.values():
            one.compare("Spark", functools.partial(_sorted, found[one.table.name], one.table))
        with_views = [
            one for (case, format_), one in sound.items() if case == "history" and format_ in POSITIONED
        ]
        for one in with_views:
            self._wait_for_view(one.table)
        queries = [_versions_query(one.table, lake.catalog()) for one in with_views]
        versions = _grouped(lake.sql(" UNION ALL ".join(queries)))
        for one in with_views:
            _compare_versions(one, versions[one.table.name])

    def _wait_for_view(self, table: SourceTable) -> None:
        until_s = time.monotonic() + WAIT_S
        path = f"/v1/main/namespaces/{self.space}/views/{table.name}__history"
        while self._client.get(path).status_code == 404:
            assert time.monotonic() < until_s, f"no view {table.name}__history"
            time.sleep(0.2)

    @property
    def verified(self) -> dict[tuple[str, str], Running]:
        """The tables that are verified. A check takes a Spark job: every fourth table on the second stack."""
        step = 1 if self._pipeline.stack.name == "embedded" else 4
        return dict(list(self.running.items())[::step])

    def request_verification(self) -> None:
        for one in self.verified.values():
            self._client.post(self._path(one, "verify")).raise_for_status()

    def look_at_verification(self) -> None:
        until_s = time.monotonic() + WAIT_S
        for (case, _), one in self.verified.items():
            found = {"state": "requested"}
            while found["state"] in ("requested", "running"):
                assert time.monotonic() < until_s, f"{one.table.name} is not verified: {found}"
                found = self._client.get(self._path(one, "verification")).raise_for_status().json()
                time.sleep(0.02)
            # The changes of a table whose key was another one are not compared.
            expected = "not-verifiable" if case.startswith("key_") else "equal"
            if found["state"] != expected:
                one.wrong.append(f"verification: {found}")

    def _path(self, one: Running, what: str) -> str:
        return f"/lake/v1/main/namespaces/{self.space}/tables/{one.table.name}/{what}"


def names(client: httpx.Client, path: str, field_: str) -> set[str]:
    """The names of all tables or namespaces."""
    found = client.get(f"/v1/main/{path}", params={"pageSize": 1000}).raise_for_status().json()[field_]
    return {one["name"] if isinstance(one, dict) else one[0] for one in found}


def _duckdb_rows(lake: DuckLake, table: SourceTable) -> list[Row]:
    columns, rows = lake.named(_query(table, "lake"))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _query(table: SourceTable, catalog: str) -> str:
    columns, keys = ", ".join(table.shown_columns), ", ".join(table.key)
    return f"SELECT {columns} FROM {catalog}.{table.space}.{table.name} ORDER BY {keys}"


def _json_query(table: SourceTable, catalog: str) -> str:
    row = f"to_json(struct({', '.join(table.shown_columns)}), map('ignoreNullFields', 'false'))"
    return f"SELECT '{table.name}', {row} FROM {catalog}.{table.space}.{table.name}"


def _versions_query(table: SourceTable, catalog: str) -> str:
    view = f"{catalog}.{table.space}.{table.name}__history"
    version = "to_json(struct(id, name, _valid_to IS NULL AS is_valid))"
    return f"SELECT '{table.name}', {version} FROM {view} WHERE id NOT IN {LATE}"


def _grouped(found: list[tuple[str, str]]) -> dict[str, list[Row]]:
    """The rows of each table."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for name, text in found:
        rows[name].append(orjson.loads(text))
    return rows


def _sorted(rows: list[Row], table: SourceTable) -> list[Row]:
    return sorted(rows, key=lambda row: [row[column] for column in table.key])


def _compare_versions(one: Running, found: list[Row]) -> None:
    """The view has every version, and says which are valid now."""
    current = {(row["id"], row["name"]) for row in one.table.rows.values()}
    versions = Counter((row["id"], row["name"]) for row in one.table.versions if row["id"] not in LATE)
    expected = Counter({(*version, False): count for version, count in versions.items()})
    for version in current & versions.keys():
        expected[(*version, False)] -= 1
        expected[(*version, True)] += 1
    shown = Counter((row["id"], row["name"], row["is_valid"]) for row in found)
    if shown - expected or expected - shown:
        extra, lacking = dict(shown - expected), dict(expected - shown)
        one.wrong.append(f"the view of the history has {extra} as well, and lacks {lacking}")


@pytest.fixture(scope="module")
def matrices() -> dict[str, Matrix | Exception]:
    """One matrix for each stack. It runs when the first of its tests needs it."""
    return {}


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    found = started_session()
    yield found
    found.stop()


@pytest.fixture
def matrix(pipeline: Pipeline, session: SparkSession, matrices: dict[str, Matrix | Exception]) -> Matrix:
    name = pipeline.stack.name
    if name not in matrices:
        matrices[name] = _finished(pipeline, SparkLake(session, pipeline.stack))
    found = matrices[name]
    if isinstance(found, Exception):
        raise found
    return found


def _finished(pipeline: Pipeline, lake: SparkLake) -> Matrix | Exception:
    """An exception is that of every test of this stack."""
    try:
        with httpx.Client(base_url=pipeline.url, timeout=120) as client:
            matrix = Matrix(pipeline, client)
            matrix.run()
            matrix.request_verification()
            matrix.read_with_spark(lake)
            matrix.look_at_verification()
            matrix.tables = names(client, f"namespaces/{matrix.space}/tables", "identifiers")
            matrix.spaces = names(client, "namespaces", "namespaces")
    except (AssertionError, httpx.HTTPError, SparkRefused, duckdb.Error) as error:
        return error
    return matrix


@pytest.mark.parametrize(
    ("case", "format_"), [(case.name, format_) for case in CASES for format_ in case.formats]
)
def test_the_mirror_means_what_the_source_shows(matrix: Matrix, case: str, format_: str) -> None:
    wrong = matrix.running[case, format_].wrong
    assert not wrong, "\n".join(wrong)


def test_tables_that_rules_leave_out_are_not_there(matrix: Matrix) -> None:
    assert [name for name in matrix.tables if name.startswith("skipped_")] == []
    assert [name for name in matrix.spaces if name.startswith(matrix.space)] == [matrix.space]
