"""A running server answers as `openapi/` says: to the examples, to data made from the schemas, to wrong data.

Schemathesis makes the requests: for each operation every example, the border cases of every field one at a
time, and random data, right and wrong. Each answer is asked whether its status, content type, headers and
body are the described ones, and whether the server failed. The short form leaves out the border cases of two
operations whose bodies are large and mostly met elsewhere; the long form does everything, with 200 random
requests for each operation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
import yaml
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests

from calve import openapi
from tests.concurrency.seeds import seed
from tests.contract import example_lake
from tests.contract.example_lake import ExampleLake
from tests.harness.operations import BY_ID, OPERATIONS, Operation
from tests.harness.server import CalveServer

__all__ = ["seed"]

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
    "dropped_id": example_lake.DROPPED_ID,
}
NAMED = 0.8

ICEBERG_OPERATIONS = [operation.id for operation in OPERATIONS]
LAKE_OPERATIONS = [
    node["operationId"]
    for item in yaml.safe_load((DIRECTORY / openapi.LAKE_FILE).read_text(encoding="utf-8"))["paths"].values()
    for node in item.values()
]


@functools.cache
def described(name: str, *, random: int, borders: bool = True, seed: int = 1) -> Any:
    """One file as Schemathesis reads it: `random` requests for each operation, with border cases or not.

    The short form has a fixed seed, so that a failure is a change of the code; the long form a new one.
    """
    config = schemathesis.Config.from_dict(
        {
            "seed": seed,
            "generation": {
                "max-examples": random,
                "database": "none",
                "with-security-parameters": False,  # the server runs open; tokens have tests of their own
            },
            "dictionaries": {key: {"values": [value]} for key, value in NAMES.items()},
            "parameters": {
                **{f"path.{key}": {"dictionary": key, "probability": NAMED} for key in NAMES},
                "query.wait_s": 0,  # long polls are tested elsewhere
                "query.wait-s": 0,
                "query.timeout-s": 0,  # of a stream without end
                "query.wait": "journal",
            },
            "phases": {"coverage": {"enabled": borders}},
        }
    )
    return schemathesis.openapi.from_path(str(DIRECTORY / name), config=config)


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
        _wait_for_nothing(case)
        answer = case.call(base_url=self._url, session=self._session)
        try:
            case.validate_response(answer, checks=CHECKS)
        finally:
            if answer.status_code < 300 and case.method not in ("GET", "HEAD"):
                self.examples.restore_after(case.operation.definition.raw["operationId"])
        return int(answer.status_code)

    def config(self) -> Any:
        return self._session.get(f"{self._url}/v1/config", timeout=60).json()

    def close(self) -> None:
        self._session.close()
        self.examples.close()


def _wait_for_nothing(case: Any) -> None:
    """There is no worker here, so whoever waits for one waits until the end."""
    operation, body = case.operation.definition.raw["operationId"], case.body
    absent = not isinstance(body, dict | list | str | bytes | int | float)
    if operation == "flush" and (absent or (isinstance(body, dict) and body.get("wait", True) is True)):
        case.body = {**({} if absent else body), "wait": False}
        case.media_type = "application/json"
    if operation == "query" and isinstance(body, dict) and isinstance(body.get("timeout_s"), int | float):
        # The first query starts a process; a valid time is made long enough for that.
        body["timeout_s"] = max(body["timeout_s"], 30) if body["timeout_s"] >= 1 else body["timeout_s"]
    if operation == "leaseJob" and isinstance(body, dict) and isinstance(body.get("wait-s"), int | float):
        body["wait-s"] = min(body["wait-s"], 0)


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    with CalveServer.started(tmp_path_factory.mktemp("described")) as server:
        made = Asker(server.url)
        yield made
        made.close()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CalveServer]:
    """A server that asks for tokens."""
    with CalveServer.started(tmp_path_factory.mktemp("closed"), {"CALVE_AUTH": "tokens"}) as server:
        yield server


def case_of(operation: Operation, *, body: Any = None, **names: str) -> Any:
    """One request to an operation, at the names that exist if no others are given."""
    schema = described(openapi.ICEBERG_FILE, random=RANDOM_SHORT)
    return schema[operation.path][operation.method].Case(
        path_parameters={name: {**NAMES, **names}[name] for name in operation.path_parameters},
        **({} if body is None else {"body": body, "media_type": operation.media_type}),
    )


def example_of(operation: Operation) -> Any:
    """The body of a request, as the description shows it."""
    if operation.request_schema is None:
        return None
    document = described(openapi.ICEBERG_FILE, random=RANDOM_SHORT).raw_schema
    examples = document["components"]["schemas"][operation.request_schema]["examples"]
    # Tables and views are renamed by the same schema: its first example is a table, its second a view.
    return examples[1 if operation.id == "renameView" else 0]


SECURED = [operation for operation in OPERATIONS if operation.secured]


@pytest.mark.parametrize("operation", SECURED, ids=lambda operation: operation.id)
def test_example_succeeds(asker: Asker, operation: Operation) -> None:
    names = {"namespace": example_lake.EMPTY} if operation.id == "dropNamespace" else {}
    case = case_of(operation, body=example_of(operation), **names)
    assert str(asker.ask(case)) in operation.success


def test_config_advertises_the_described_operations(asker: Asker) -> None:
    below_prefix = [operation for operation in OPERATIONS if "{prefix}" in operation.path]
    assert asker.config()["endpoints"] == [operation.endpoint for operation in below_prefix]


# Made from the table, so that a new operation that forgets its caller shows here.
@pytest.mark.parametrize("operation", SECURED, ids=lambda operation: operation.id)
def test_without_a_token_the_answer_is_401(closed: CalveServer, operation: Operation) -> None:
    case = case_of(operation, body=example_of(operation))
    answer = case.call(base_url=closed.url)
    assert answer.status_code == 401
    case.validate_response(answer, checks=CHECKS)


def test_the_caller_is_checked_before_the_body(closed: CalveServer) -> None:
    with_body = [operation for operation in SECURED if operation.request_schema is not None]
    for operation in with_body:
        path = operation.path.format(**{name: NAMES[name] for name in operation.path_parameters})
        answer = requests.post(f"{closed.url}{path}", data=b'{"not JSON', timeout=60)
        assert answer.status_code == 401, operation.id
    assert len(with_body) > 5


def test_a_principal_gets_a_token_as_described(closed: CalveServer) -> None:
    created = closed.command("principal", "create", "loader", "--role", "writer")
    assert created.returncode == 0, created.stderr
    form = {
        "grant_type": "client_credentials",
        "client_id": "loader",
        "client_secret": created.stdout.strip(),
    }
    case = case_of(BY_ID["getToken"], body=form)
    answer = case.call(base_url=closed.url)
    assert answer.status_code == 200
    case.validate_response(answer, checks=CHECKS)


def ask_everything(asker: Asker, schema: Any, operation_id: str) -> None:
    """All requests that Schemathesis makes for one operation."""

    def ask(case: Any) -> None:
        asker.ask(case)

    chosen = schema.include(operation_id=operation_id)
    [made] = get_all_tests(schema=chosen, test_func=ask, settings=None, given_kwargs=None)
    assert isinstance(made, Ok), made.err()
    _, run = made.ok()
    run()


@pytest.mark.parametrize("operation_id", ICEBERG_OPERATIONS)
def test_iceberg(asker: Asker, operation_id: str) -> None:
    schema = described(openapi.ICEBERG_FILE, random=RANDOM_SHORT, borders=operation_id not in LARGE)
    ask_everything(asker, schema, operation_id)


@pytest.mark.parametrize("operation_id", LAKE_OPERATIONS)
def test_lake(asker: Asker, operation_id: str) -> None:
    ask_everything(asker, described(openapi.LAKE_FILE, random=RANDOM_SHORT), operation_id)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("operation_id", ICEBERG_OPERATIONS)
def test_iceberg_long(asker: Asker, operation_id: str, seed: int) -> None:
    ask_everything(asker, described(openapi.ICEBERG_FILE, random=RANDOM_LONG, seed=seed), operation_id)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("operation_id", LAKE_OPERATIONS)
def test_lake_long(asker: Asker, operation_id: str, seed: int) -> None:
    ask_everything(asker, described(openapi.LAKE_FILE, random=RANDOM_LONG, seed=seed), operation_id)
