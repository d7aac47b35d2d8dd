"""Engines that show who they are: id and secret in, tokens by the engine itself, roles felt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, OAuthError
from pyspark.sql import SparkSession

from tests.clients.duckdb_client import connected
from tests.clients.spark_client import SparkLake, SparkRefused
from tests.harness.stacks import Stack, Stacks

# One of them uses Spark, and they share a server: so all stay on one worker.
pytestmark = pytest.mark.xdist_group("spark")
ROWS = pa.table({"id": [1]})


@pytest.fixture(scope="module")
def guarded(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A server that asks for tokens."""
    folder: Path = tmp_path_factory.mktemp("guarded")
    with stacks.started("embedded", folder, {"CALVE_AUTH": "tokens"}) as stack:
        yield stack


@pytest.fixture(scope="module")
def secrets(guarded: Stack) -> dict[str, str]:
    """A principal for each role."""
    made = {}
    for name in ("writer", "reader"):
        ended = guarded.server.command("principal", "create", name, "--role", name)
        assert ended.returncode == 0, ended.stderr
        made[name] = ended.stdout.strip()
    writer = _pyiceberg(guarded, "writer", made["writer"])
    writer.create_namespace("db")
    writer.create_table("db.t", ROWS.schema).append(ROWS)
    return made


def _pyiceberg(stack: Stack, name: str, secret: str) -> RestCatalog:
    oauth = f"{stack.url}/v1/oauth/tokens"
    return RestCatalog("lake", uri=stack.url, credential=f"{name}:{secret}", **{"oauth2-server-uri": oauth})


def _duckdb(stack: Stack, name: str, secret: str) -> duckdb.DuckDBPyConnection:
    connection = connected()
    connection.execute(
        f"CREATE SECRET calve (TYPE iceberg, CLIENT_ID '{name}', CLIENT_SECRET '{secret}', "
        f"OAUTH2_SERVER_URI '{stack.url}/v1/oauth/tokens')"
    )
    connection.execute(f"ATTACH 'main' AS lake (TYPE iceberg, SECRET calve, ENDPOINT '{stack.url}')")
    return connection


def test_pyiceberg(guarded: Stack, secrets: dict[str, str]) -> None:
    _pyiceberg(guarded, "writer", secrets["writer"]).load_table("db.t").append(ROWS)
    reader = _pyiceberg(guarded, "reader", secrets["reader"])
    assert reader.load_table("db.t").scan().to_arrow().num_rows >= 2
    with pytest.raises(ForbiddenError, match="requires the role writer"):
        reader.load_table("db.t").append(ROWS)
    with pytest.raises(OAuthError, match="invalid_client"):
        _pyiceberg(guarded, "writer", "wrong")


def test_duckdb(guarded: Stack, secrets: dict[str, str]) -> None:
    with _duckdb(guarded, "writer", secrets["writer"]) as writer:
        writer.execute("CREATE TABLE lake.db.made AS SELECT 1 AS id")
    with _duckdb(guarded, "reader", secrets["reader"]) as reader:
        assert reader.execute("SELECT * FROM lake.db.made").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match="requires the role writer"):
            reader.execute("INSERT INTO lake.db.made VALUES (2)")
    with pytest.raises(duckdb.Error, match="invalid_client"):
        _duckdb(guarded, "writer", "wrong")


def test_spark(guarded: Stack, secrets: dict[str, str], spark: SparkSession) -> None:
    lake = SparkLake(spark, guarded)
    catalogs = {}
    for name in ("writer", "reader"):
        catalogs[name] = f"{name}_{guarded.server.port}"
        for key, value in {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": guarded.url,
            ".cache-enabled": "false",
            ".credential": f"{name}:{secrets[name]}",
        }.items():
            spark.conf.set(f"spark.sql.catalog.{catalogs[name]}{key}", value)
    lake.sql(f"CREATE TABLE {catalogs['writer']}.db.by_spark AS SELECT 1L AS id")
    assert lake.sql(f"SELECT * FROM {catalogs['reader']}.db.by_spark") == [(1,)]
    with pytest.raises(SparkRefused, match="requires the role writer"):
        lake.sql(f"INSERT INTO {catalogs['reader']}.db.by_spark VALUES (2)")
