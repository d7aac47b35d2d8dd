"""The engines as fixtures, each looking at the stack of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

from tests.clients import pyiceberg_client
from tests.clients.duckdb_client import DuckLake
from tests.clients.spark_client import SparkLake, started_session
from tests.harness.rest import Rest
from tests.harness.stacks import Stack


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One JVM and one session for all tests of the process: a start takes longer than most tests."""
    session = started_session()
    yield session
    session.stop()


@pytest.fixture
def spark_lake(spark: SparkSession, stack: Stack) -> SparkLake:
    return SparkLake(spark, stack)


@pytest.fixture
def duck(stack: Stack) -> Iterator[DuckLake]:
    with DuckLake(stack) as lake:
        yield lake


@pytest.fixture
def iceberg(stack: Stack) -> RestCatalog:
    return pyiceberg_client.catalog(stack)


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


@pytest.fixture
def namespace(rest: Rest) -> str:
    """A namespace of the test's own."""
    return rest.fresh_namespace()
