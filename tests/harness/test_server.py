"""The server under the harness: ready when it says so, and at the same address after a crash."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.harness.errors import ComponentFailed
from tests.harness.server import CalveServer, environment
from tests.harness.stacks import Stack


def _is_ready(server: CalveServer) -> bool:
    return httpx.get(f"{server.url}/ready", timeout=10).status_code == 200


def test_a_killed_server_comes_back_at_the_same_address(own_stack: Stack) -> None:
    server = own_stack.server
    url = server.url
    assert _is_ready(server)
    server.kill()
    assert not server.running
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=10)
    server.start()
    assert (server.url, _is_ready(server)) == (url, True)


def test_a_requested_stop_exits_with_0(own_stack: Stack) -> None:
    assert own_stack.server.stop() == 0
    own_stack.server.start()
    assert _is_ready(own_stack.server)


def test_a_server_that_refuses_to_start_shows_why(tmp_path: Path) -> None:
    server = CalveServer(tmp_path, {"CALVE_WORKERS": "none"})
    with pytest.raises(ComponentFailed, match=r"(?s)calve ended with 2.*CALVE_WORKERS"):
        server.start()


def test_settings_of_the_surroundings_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_AUTH", "tokens")
    monkeypatch.setenv("CALVE_LOG_LEVEL", "debug")
    given = {
        name: value for name, value in environment({"CALVE_PORT": "1"}).items() if name.startswith("CALVE_")
    }
    assert given == {"CALVE_PORT": "1"}
