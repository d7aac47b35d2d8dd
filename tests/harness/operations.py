"""The operations of the Iceberg REST specification that the server has, read from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from catalog.api import context, dependencies, routers


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    description: dict[str, Any]  # `openapi_extra` of the route
    writes: bool  # needs the role writer
    secured: bool  # needs a caller
    takes_key: bool  # reads the header Idempotency-Key

    @property
    def endpoint(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def path_parameters(self) -> list[str]:
        return re.findall(r"\{([^}]+)\}", self.path)

    @property
    def success(self) -> set[str]:
        return {status for status in self.description["responses"] if status[0] in "23"}

    @property
    def media_type(self) -> str | None:
        return next(iter(self.description.get("requestBody", {}).get("content", {})), None)

    @property
    def request_schema(self) -> str | None:
        if self.media_type is None:
            return None
        reference: str = self.description["requestBody"]["content"][self.media_type]["schema"]["$ref"]
        return reference.rsplit("/", 1)[-1]


def _called(dependant: Dependant) -> Iterator[Any]:
    yield dependant.call
    for inner in dependant.dependencies:
        yield from _called(inner)


WRITES = {context.begin_write, context.begin_write_without_key, context.begin_commit}


def _operation(route: APIRoute) -> Operation:
    [method] = route.methods or {""}
    called = set(_called(route.dependant))
    return Operation(
        id=str(route.operation_id),
        method=method,
        path=route.path,
        description=route.openapi_extra or {},
        writes=bool(WRITES & called),
        secured=bool(({context.get_caller, dependencies.reader_state} | WRITES) & called),
        takes_key=bool({context.begin_write, context.begin_commit} & called),
    )


OPERATIONS = [
    _operation(route)
    for router in routers()
    for route in router.routes
    if isinstance(route, APIRoute) and route.path.startswith("/v1/")
]
BY_ID = {operation.id: operation for operation in OPERATIONS}
