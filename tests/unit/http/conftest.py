"""One small server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.server.child import SmallServer

BODY_BYTES_MAX = 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    settings = {"CALVE_BODY_BYTES_MAX": str(BODY_BYTES_MAX), "CALVE_REQUEST_TIMEOUT_S": "30"}
    with SmallServer.started(tmp_path_factory.mktemp("http"), settings) as started:
        yield started
