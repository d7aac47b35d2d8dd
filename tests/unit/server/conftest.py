"""One small server for the tests of a module, with each of the two parsers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.server.child import SmallServer


@pytest.fixture(scope="module", params=["zttp", "h11"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    with SmallServer.started(
        tmp_path_factory.mktemp("server"), {"CALVE_HTTP_PARSER": request.param}
    ) as started:
        yield started
