"""A running server answers as `openapi/` says: to the examples, to data made from the schemas, to wrong data.

Schemathesis makes the requests: for each operation every example, the border cases of every field one at a
time, and random data, right and wrong. Each answer is asked whether its status, content type, headers and
body are the described ones, and whether the server failed. The short form leaves out the border cases of two
operations whose bodies are large and mostly met elsewhere; the long form does everything, with 200 random
requests for each operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis

from calve import openapi
from catalog.api.operations import OPERATIONS, Operation
from tests.contract import example_lake
from tests.contract.example_lake import ExampleLake
from tests.harness.server import CalveServer

DIRECTORY = Path(__file__).parents[2] / "openapi"
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_headers_conformance,
    schemathesis.checks.response_schema_conformance,
]
RANDOM_SHORT = 15
RANDOM_LONG = 200
# ScanReport holds the whole expression grammar; a transaction is a list of what updateTable takes.
LARGE = ("reportMetrics", "commitTransaction")

# Random text would hardly ever name what exists, so most paths get a name that does; the rest stays random.
NAMES = {
    "prefix": example_lake.PREFIX,
    "warehouse": example_lake.PREFIX,
    "namespace": example_lake.NAMESPACE,
    "table": example_lake.TABLE,
    "view": example_lake.VIEW,
    "name": example_lake.TRANSACTION,
    "id": example_lake.DROPPED_ID,
}
NAMED = 0.8


def described(name: str, *, random: int, without_borders: tuple[str, ...] = ()) -> Any:
    """One file as Schemathesis reads it, with `random` requests for each operation."""
    config = schemathesis.Config.from_dict(
        {
            "seed": 1,
            "generation": {
                "max-examples": random,
                "database": "none",
                "with-security-parameters": False,  # the server runs open; tokens have tests of their own
            },
            "dictionaries": {key: {"values": [value]} for key, value in NAMES.items()},
            "parameters": {
                **{f"path.{key}": {"dictionary": key, "probability": NAMED} for key in NAMES},
                "query.wait_s": 0,  # long polls are tested elsewhere
            },
            "operations": [
                {"include-operation-id": operation_id, "phases": {"coverage": {"enabled": False}}}
                for operation_id in without_borders
            ],
        }
    )
    return schemathesis.openapi.from_path(str(DIRECTORY / name), config=config)


iceberg = described(openapi.ICEBERG_FILE, random=RANDOM_SHORT, without_borders=LARGE)
iceberg_long = described(openapi.ICEBERG_FILE, random=RANDOM_LONG)
lake = described(openapi.LAKE_FILE, random=RANDOM_SHORT)
lake_long = described(openapi.LAKE_FILE, random=RANDOM_LONG)


class Asker:
    """Sends requests to a server that holds what the examples speak of, and keeps it that way."""

    def __init__(self, url: str) -> None:
        self.examples = ExampleLake(url)
        self._url = url
        self._session = requests.Session()

    def ask(self, case: Any) -> int:
        """Send one request, check the answer, and put back what it changed."""
        case.path_parameters = self.examples.translate(case.path_parameters)
        case.body = self.examples.translate(case.body)
        case.headers.update(self.examples.translate(dict(case.headers)))
        answer = case.call_and_validate(base_url=self._url, session=self._session, checks=CHECKS)
        if answer.status_code < 300 and case.method not in ("GET", "HEAD"):
            self.examples.restore_after(case.operation.definition.raw["operationId"])
        return int(answer.status_code)

    def close(self) -> None:
        self._session.close()
        self.examples.close()


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    with CalveServer.started(tmp_path_factory.mktemp("described")) as server:
        made = Asker(server.url)
        yield made
        made.close()


def request_example(operation: Operation) -> Any:
    if operation.request_schema is None:
        return None
    schemas = iceberg.raw_schema["components"]["schemas"]
    # A report is one of two kinds, and the kind is named beside it.
    if operation.id == "reportMetrics":
        return {"report-type": "scan-report", **schemas["ScanReport"]["examples"][0]}
    return schemas[operation.request_schema]["examples"][0]


# In open mode there are no tokens to get.
@pytest.mark.parametrize(
    "operation", [o for o in OPERATIONS if o.id != "getToken"], ids=lambda operation: operation.id
)
def test_example_succeeds(asker: Asker, operation: Operation) -> None:
    names = {**NAMES, "namespace": example_lake.EMPTY} if operation.id == "dropNamespace" else NAMES
    body = request_example(operation)
    case = iceberg[operation.path][operation.method].Case(
        path_parameters={name: names[name] for name in operation.path_parameters},
        **({} if body is None else {"body": body, "media_type": operation.request_type}),
    )
    assert str(asker.ask(case)) in operation.success


@iceberg.parametrize()  # type: ignore[untyped-decorator]
def test_iceberg(case: Any, asker: Asker) -> None:
    asker.ask(case)


@lake.parametrize()  # type: ignore[untyped-decorator]
def test_lake(case: Any, asker: Asker) -> None:
    asker.ask(case)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@iceberg_long.parametrize()  # type: ignore[untyped-decorator]
def test_iceberg_long(case: Any, asker: Asker) -> None:
    asker.ask(case)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@lake_long.parametrize()  # type: ignore[untyped-decorator]
def test_lake_long(case: Any, asker: Asker) -> None:
    asker.ask(case)
